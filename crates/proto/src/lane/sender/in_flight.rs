//! The repairs of a lane that are in flight.
//!
//! The lane's sender adds each repair when it is sent, and settles it when its packet is acknowledged or
//! lost. Policies read the list. A peer may acknowledge in any order, so every order of settling must be
//! cheap. A settled entry stays in its place as a placeholder (blank) until blanks are the majority; one pass
//! then removes them. Settling costs a binary search and an amortised constant.

use super::withheld::FirstMixed;
use crate::redundancy::RepairInFlight;

/// The list of repairs in flight; see the module. Bound: the number of packets that a path remembers
/// (`path/flight.rs`), and as many blanks.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// Sorted by packet number.
    repairs: Vec<RepairInFlight>,
    blanks: usize,
    /// Those that were the first over some symbols.
    pub mixed: FirstMixed,
}

impl InFlight {
    /// Adds a repair that is sent in a packet with a higher number than all packets before.
    pub(super) fn push(&mut self, repair: RepairInFlight) {
        self.repairs.push(repair);
    }

    /// Called when the repair in `packet` is known to be received or lost. Returns the repair, only once.
    pub(super) fn settle(&mut self, packet: u64) -> Option<RepairInFlight> {
        let at = self.repairs.binary_search_by_key(&packet, |repair| repair.packet).ok()?;
        let entry = self.repairs.get_mut(at).filter(|repair| !repair.is_blank())?;
        let repair = core::mem::replace(entry, RepairInFlight::blank(packet));
        self.blanks += 1;
        if 2 * self.blanks > self.repairs.len() {
            self.repairs.retain(|repair| !repair.is_blank());
            self.blanks = 0;
        }
        Some(repair)
    }

    /// The repairs, with blanks between them.
    pub(super) fn as_slice(&self) -> &[RepairInFlight] {
        &self.repairs
    }
}

#[cfg(test)]
mod tests {
    use tidewire_codec::SourceId;

    use super::*;

    const COUNT: u64 = 20_000;

    fn filled() -> InFlight {
        let mut list = InFlight::default();
        for packet in 0..COUNT {
            list.push(RepairInFlight {
                packet,
                first: SourceId(packet),
                count: 1,
                key: 0,
                on_feedback: packet % 2 == 0,
            });
        }
        list
    }

    #[test]
    fn each_repair_is_settled_once_in_any_order() {
        let mut list = filled();
        // 7 and the count have no common factor, so every number occurs once.
        for packet in (0..COUNT).map(|n| n * 7 % COUNT) {
            assert_eq!(list.settle(packet).map(|repair| repair.first), Some(SourceId(packet)));
            assert_eq!(list.settle(packet), None);
        }
        assert!(list.as_slice().is_empty());
    }

    /// Counts the entries that removals move. A list that closed each gap at once moved half of the entries
    /// for each settled repair.
    #[test]
    fn issue_13_settling_repairs_does_not_move_the_others_each_time() {
        let mut list = filled();
        let mut moved = 0;
        for packet in 0..COUNT {
            let before = list.as_slice().len();
            list.settle(packet);
            let after = list.as_slice().len();
            moved += if after < before { after as u64 } else { 0 };
        }
        assert!(moved <= COUNT, "{moved} entries moved to settle {COUNT}");
    }
}
