//! Source symbols that repairs replace: the lane gives them to its policies, and no packet carries them.
//!
//! `slot` calls this before a source symbol would fill a slot, and before a repair does. Invariant: a
//! symbol that was withheld is in the span of a repair, unless the policies break their contract.

use core::ops::ControlFlow;

use tidewire_codec::SourceId;

use super::super::Connection;
use super::Slot;
use crate::Time;
use crate::wire::Layout;

impl Connection {
    /// If repairs replace the source symbols of the lane, gives the next one to the policies and not to
    /// the peer. Returns whether it did.
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

    /// The slot of a lane that sends no source symbols and has withheld some whose repairs no longer
    /// fit. They leave in parts. A combination of a new symbol and of one of them would not fit either,
    /// so no new one may join before.
    pub(super) fn withheld_lost_slot(&mut self, lane: u32, limit: usize) -> Option<ControlFlow<Option<Slot>>> {
        let of = self.lanes.get_mut(lane)?;
        if !of.slides_without_sources() || of.sender.first_lost().is_none() {
            return None;
        }
        if limit < usize::from(self.path.mtu.current()) {
            return Some(ControlFlow::Break(None));
        }
        let slot = self.slice_lost(lane);
        Some(slot.map_or(ControlFlow::Continue(()), |slot| ControlFlow::Break(Some(slot))))
    }

    /// Withholds symbols up to `end`, the end of the span of a repair: those that wait, and empty ones.
    /// Returns whether all are there.
    pub(super) fn fill_span(&mut self, now: Time, lane: u32, end: SourceId) -> bool {
        while let Some(of) = self.lanes.get_mut(lane)
            && of.policies.withholds_sources()
            && of.sender.sent() < end
        {
            if of.sender.withhold_empty(now) {
                self.stats.symbols.padding += 1;
            } else if !self.withhold_source(now, lane) {
                return false;
            }
        }
        true
    }
}
