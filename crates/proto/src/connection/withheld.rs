//! Source symbols that repairs replace: the lane gives them to its policies, and no packet carries them.
//!
//! `send` calls this before a source symbol would fill a slot, and before a repair does. Invariant: a symbol
//! that was withheld is in the span of a repair, unless the policies break their contract.

use super::Connection;
use crate::Time;
use crate::redundancy::Repair;
use crate::wire::Layout;

impl Connection {
    /// If repairs replace the source symbols of the lane, gives the next one to the policies and not to the
    /// peer. Returns whether it did.
    pub(super) fn withhold_source(&mut self, now: Time, lane: u32) -> bool {
        let is_systematic = self.agreed.profile.code.is_systematic();
        let Some(of) = self.lanes.get_mut(lane) else { return false };
        let layout = of.sender.layout();
        if (is_systematic || layout == Layout::Sliding) && !of.policies.withholds_sources() {
            return false;
        }
        let Some(id) = of.sender.withhold_source(now) else { return false };
        self.on_source_sent(now, lane);
        if let Some(of) = self.lanes.get_mut(lane)
            && layout == Layout::Generations
        {
            of.policies.on_source_settled(id, false);
        }
        true
    }

    /// Adds empty symbols to the lane up to the end of the span of `repair`.
    pub(super) fn fill_span(&mut self, now: Time, lane: u32, repair: Option<&Repair>) {
        let Some(repair) = repair else { return };
        let Some(of) = self.lanes.get_mut(lane) else { return };
        while of.sender.sent() < repair.end() && of.sender.withhold_empty(now) {
            self.stats.packets.empty_symbols += 1;
        }
    }
}
