//! The repairs of a lane whose fate is open.
//!
//! The lane's sender adds each repair when it leaves and settles it when its packet is acknowledged or lost;
//! policies read the list. A peer may acknowledge in any order, so no order of settling may be expensive: a
//! settled entry stays in its place as a blank until blanks are the majority, and one pass then removes them.
//! Settling costs a binary search and an amortised constant.

use crate::redundancy::RepairInFlight;

/// See the module. Bound: the packets that a path remembers (`path/flight.rs`), and as many blanks.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// By ascending packet number.
    repairs: Vec<RepairInFlight>,
    blanks: usize,
}

impl InFlight {
    /// A repair leaves, in a packet of a higher number than all before it.
    pub fn push(&mut self, repair: RepairInFlight) {
        self.repairs.push(repair);
    }

    /// The fate of the repair in `packet` is known. Returns the repair, once.
    pub fn settle(&mut self, packet: u64) -> Option<RepairInFlight> {
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
    pub fn as_slice(&self) -> &[RepairInFlight] {
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
            list.push(RepairInFlight { packet, first: SourceId(packet), count: 1, on_feedback: packet % 2 == 0 });
        }
        list
    }

    #[test]
    fn each_repair_is_settled_once_in_any_order() {
        let mut list = filled();
        // 7 has no factor in common with the count: every number comes up once.
        for packet in (0..COUNT).map(|n| n * 7 % COUNT) {
            assert_eq!(list.settle(packet).map(|repair| repair.first), Some(SourceId(packet)));
            assert_eq!(list.settle(packet), None);
        }
        assert!(list.as_slice().is_empty());
    }

    /// Counts the entries that removals move: a list that closed each gap at once moved half of them for each
    /// settled repair.
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
