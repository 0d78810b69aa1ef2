//! Source symbols that are not sent themselves, because repairs replace them.
//!
//! In generations such a symbol counts as lost at once. In a sliding lane it is *open* until the fate of the
//! first repair over it is known, since until then the peer may lack it for no other reason than that the
//! repair is under way. It is never lost and never sent again by itself, unless the repairs over it no longer
//! fit the path.

use core::cmp::Reverse;
use std::collections::VecDeque;

use tidewire_codec::SourceId;

use super::{LaneSender, Source};
use crate::Time;
use crate::wire::Layout;

/// The repairs that were the first over some symbols, in the order of sending. Bound: the number of packets
/// that a path remembers (`path/flight.rs`).
#[derive(Debug, Default)]
pub(super) struct FirstMixed {
    /// Sorted by packet number. An entry without symbols is settled.
    repairs: VecDeque<First>,
    /// One past the newest symbol that a repair mixed.
    end: SourceId,
}

/// A repair, and the symbols that it was the first to mix.
#[derive(Debug)]
struct First {
    packet: u64,
    first: SourceId,
    end: SourceId,
}

impl FirstMixed {
    /// A repair over `first..end` is sent as packet `packet`.
    fn add(&mut self, packet: u64, first: SourceId, end: SourceId) {
        if end > self.end {
            self.repairs.push_back(First { packet, first: first.max(self.end), end });
            self.end = end;
        }
    }

    /// The fate of `packet` became known. Returns the symbols that it was the first to mix.
    fn settle(&mut self, packet: u64) -> Option<(SourceId, SourceId)> {
        let at = self.repairs.binary_search_by_key(&packet, |entry| entry.packet).ok()?;
        let entry = self.repairs.get_mut(at)?;
        let symbols = (entry.first, core::mem::replace(&mut entry.end, entry.first));
        while self.repairs.front().is_some_and(|entry| entry.first == entry.end) {
            self.repairs.pop_front();
        }
        Some(symbols)
    }
}

impl LaneSender {
    /// As [`Self::send_source`], for a symbol that no packet carries.
    pub(crate) fn withhold_source(&mut self, now: Time) -> Option<SourceId> {
        let state = match self.layout() {
            Layout::Sliding => {
                self.repairs.in_flight.keep_ends();
                Source::Withheld
            }
            // If the repairs of its generation no longer fit the path, it is sent in parts.
            Layout::Generations => Source::Lost,
        };
        let id = self.date_source(now, state)?;
        if state == Source::Lost {
            self.lost.push(Reverse(id));
            self.advance();
        }
        Some(id)
    }

    /// Adds an empty symbol and withholds it. Returns false if a symbol is waiting, or there is no room.
    pub(crate) fn withhold_empty(&mut self, now: Time) -> bool {
        if self.queued() > 0 || self.credit() == 0 || !self.open_empty() {
            return false;
        }
        self.next_source().is_some() && self.withhold_source(now).is_some()
    }

    /// A repair over `count` symbols from `first` is sent as packet `packet`.
    pub(super) fn on_mixed(&mut self, packet: u64, first: SourceId, count: u16) {
        // In generations, withheld symbols are settled already, and other lanes withhold none.
        let end = first.plus(count.into());
        let newest = self.index(SourceId(end.0.saturating_sub(1)));
        if newest.is_some_and(|index| self.sources[index] == Source::Withheld) {
            self.repairs.mixed.add(packet, first, end);
        }
    }

    /// The fate of a repair became known.
    pub(super) fn settle_mixed(&mut self, packet: u64) {
        let Some((first, end)) = self.repairs.mixed.settle(packet) else { return };
        let mut any = false;
        for id in (first.max(self.ids.base).0..end.0).map(SourceId) {
            if let Some(index) = self.index(id)
                && self.sources[index] == Source::Withheld
            {
                self.sources[index] = Source::Mixed;
                any = true;
            }
        }
        if any {
            self.advance();
        }
    }

    /// A repair over `count` symbols from `first` on no longer fits the path, so others do not either. From
    /// now on, all symbols that were not sent themselves count as lost, unless the peer is known to have
    /// enough to decode them. Each is looked at once, and those of the repair each time, because there may be
    /// many symbols and many such repairs.
    pub(crate) fn lose_withheld(&mut self, first: SourceId, count: u16) {
        let end = first.plus(count.into()).0.min(self.ids.sent.0);
        let looked = core::mem::replace(&mut self.sliced.looked, self.ids.sent).max(self.ids.base);
        for id in (looked.0..self.ids.sent.0).chain(first.0..end).map(SourceId) {
            if let Some(index) = self.index(id)
                && matches!(self.sources[index], Source::Withheld | Source::Mixed)
                && !self.reported.report.lacks_nothing_of(id)
            {
                self.sources[index] = Source::Lost;
                self.lost.push(Reverse(id));
            }
        }
        self.advance();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sliding lane that has withheld `count` symbols.
    fn lane(count: u64) -> LaneSender {
        let mut lane = LaneSender::new(Layout::Sliding, 64, 512, 1 << 20, 1_000);
        for n in 0..count {
            lane.write(0, n * 400, &[7; 400], false, 420, usize::MAX);
            lane.close();
            assert!(lane.next_source().is_some());
            assert_eq!(lane.withhold_source(Time::from_millis(n)), Some(SourceId(n)));
        }
        lane
    }

    fn mix(lane: &mut LaneSender, packet: u64, first: u64, count: u16) {
        let id = lane.name_repair(tidewire_codec::Code::Rlc, SourceId(first), count, None);
        lane.send_repair(tidewire_codec::Code::Rlc, id, false, packet, &mut [0; 512]).expect("inside");
    }

    #[test]
    fn a_symbol_is_open_until_the_fate_of_the_first_repair_over_it_is_known_and_is_never_lost() {
        let mut lane = lane(4);
        for (packet, count) in [(10, 1), (11, 2), (12, 2), (13, 3), (14, 4)] {
            mix(&mut lane, packet, 0, count);
        }
        // The extra combination 12 is not the first over any symbol, and 13 comes before 11.
        for (packet, arrived, settled) in [(10, false, 1), (12, true, 1), (13, true, 1), (11, false, 3), (14, true, 4)]
        {
            assert!(lane.on_repair_settled(packet, arrived).is_some());
            assert_eq!((lane.settled(), lane.first_lost()), (SourceId(settled), None), "{packet}");
        }
        assert_eq!((lane.base(), lane.repairs.mixed.repairs.len()), (SourceId(0), 0));
    }

    #[test]
    fn a_repair_over_one_symbol_is_the_symbol() {
        let mut lane = lane(1);
        mix(&mut lane, 3, 0, 1);
        lane.on_repair_settled(3, true);
        assert_eq!(lane.base(), SourceId(1));
    }

    #[test]
    fn symbols_whose_repairs_do_not_fit_count_as_lost() {
        let mut lane = lane(4);
        mix(&mut lane, 3, 0, 1);
        lane.on_repair_settled(3, false);
        lane.reported.report.regions = vec![(SourceId(2)..SourceId(3), 0), (SourceId(3)..SourceId(4), 1)];
        lane.lose_withheld(SourceId(0), 1);
        for lost in [0, 1, 3] {
            assert_eq!(lane.first_lost(), Some(SourceId(lost)));
            assert!(lane.resend(SourceId(lost), 4 + lost).is_some());
        }
        assert_eq!((lane.first_lost(), lane.settled()), (None, SourceId(2)), "the peer can decode 2");
    }
}
