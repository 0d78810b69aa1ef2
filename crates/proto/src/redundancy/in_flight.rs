//! The repairs of a lane that are in flight, and questions about them.
//!
//! The lane's sender adds each repair when it is sent, and settles it when its packet is acknowledged or
//! lost. Policies ask how many there are. A peer may acknowledge in any order, so every order of settling
//! must be cheap. A settled entry stays in its place as a placeholder (blank) until blanks are the majority;
//! one pass then removes them. Settling costs a binary search and an amortised constant.
//!
//! Policies of this crate never walk the list: a peer decides how long it gets. [`Tally`] has the counts.

use core::cell::Cell;
use core::ops::Range;
use std::collections::BTreeMap;

use tidewire_codec::SourceId;

use super::tally::{Counts, Tally};
use super::{LONGEST_SPAN, RepairInFlight};

/// Numbers of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flying {
    /// Repairs that answer a reported deficit, and retransmitted source symbols.
    pub answers: u64,
    /// Proactive repairs.
    pub proactive: u64,
}

impl Flying {
    fn of([proactive, answers]: [u32; 2]) -> Self {
        Self { answers: answers.into(), proactive: proactive.into() }
    }

    /// All of them.
    pub(crate) fn all(self) -> u64 {
        self.answers + self.proactive
    }
}

/// The repairs in flight; see the module. Bound: the number of packets that a path remembers
/// (`path/flight.rs`), and as many blanks.
#[derive(Debug, Default)]
pub struct InFlight {
    /// Sorted by packet number.
    repairs: Vec<RepairInFlight>,
    blanks: usize,
    /// Number of proactive repairs.
    proactive: usize,
    tally: Tally,
    ends: Option<Ends>,
    looks: Cell<u64>,
}

/// First symbols and ends of the proactive repairs, if repairs replace source symbols.
#[derive(Debug, Default)]
struct Ends {
    repairs: BTreeMap<(SourceId, SourceId), u32>,
    /// Most symbols of one of them.
    longest: u64,
}

impl InFlight {
    /// Adds a repair that is sent in a packet with a higher number than all packets before. The peer may lack
    /// symbols from `base` up.
    pub(crate) fn push(&mut self, repair: RepairInFlight, base: SourceId) {
        self.repairs.push(repair);
        self.proactive += usize::from(!repair.on_feedback);
        // No question is about a span that ends below the base.
        self.tally.add(&repair, SourceId(base.0.saturating_sub(LONGEST_SPAN.into())));
        if let Some(ends) = self.ends.as_mut().filter(|_| !repair.on_feedback) {
            *ends.repairs.entry((repair.first, repair.end())).or_default() += 1;
            ends.longest = ends.longest.max(repair.count.into());
        }
    }

    /// Called when the repair in `packet` is known to be received or lost. Returns the repair, only once.
    pub(crate) fn settle(&mut self, packet: u64) -> Option<RepairInFlight> {
        let at = self.repairs.binary_search_by_key(&packet, |repair| repair.packet).ok()?;
        let entry = self.repairs.get_mut(at).filter(|repair| !repair.is_blank())?;
        let repair = core::mem::replace(entry, RepairInFlight::blank(packet));
        self.blanks += 1;
        if 2 * self.blanks > self.repairs.len() {
            self.repairs.retain(|repair| !repair.is_blank());
            self.blanks = 0;
        }
        self.proactive -= usize::from(!repair.on_feedback);
        self.tally.remove(&repair);
        if let Some(ends) = self.ends.as_mut().filter(|_| !repair.on_feedback)
            && let Some(count) = ends.repairs.get_mut(&(repair.first, repair.end()))
        {
            *count -= 1;
            if *count == 0 {
                ends.repairs.remove(&(repair.first, repair.end()));
            }
        }
        Some(repair)
    }

    /// Called before the first repair that replaces a source symbol.
    pub(crate) fn keep_ends(&mut self) {
        self.ends.get_or_insert_default();
    }

    /// All of them in sending order. A peer decides how many there are, so do not walk them for each packet.
    pub fn iter(&self) -> impl Iterator<Item = &RepairInFlight> {
        self.repairs.iter().inspect(|_| self.look()).filter(|repair| !repair.is_blank())
    }

    /// Whether a proactive repair is in flight.
    pub(crate) fn has_proactive(&self) -> bool {
        self.proactive > 0
    }

    /// Repairs whose spans begin within `ids`, and retransmitted symbols of them. In generations these are
    /// all packets of a generation.
    pub(crate) fn within(&self, ids: Range<SourceId>) -> Flying {
        self.look();
        Flying::of(self.tally.sum(ids).firsts)
    }

    /// Retransmitted symbols, and repairs of a single symbol, within `ids`.
    pub(crate) fn singles(&self, ids: Range<SourceId>) -> Flying {
        self.look();
        Flying::of(self.tally.sum(ids).singles)
    }

    /// Whether the symbol is sent again, by itself.
    pub(crate) fn has_single(&self, id: SourceId) -> bool {
        self.look();
        self.tally.at(id).singles != [0; 2]
    }

    /// Repairs that cover the first symbol of `span`, and retransmitted symbols of the span.
    pub(crate) fn helping(&self, span: Range<SourceId>) -> Flying {
        self.look();
        // Those that end above the symbol, without those that begin above it.
        let mut counts = self.tally.sum_from(span.start);
        let above = self.tally.sum_from(span.start.next());
        counts -= Counts { lasts: above.firsts, ..Counts::default() };
        let singles = self.tally.sum(span.start.next()..span.end).singles;
        counts += Counts { lasts: singles, ..Counts::default() };
        Flying::of(counts.lasts)
    }

    /// One past the newest symbol that a proactive repair among [`Self::helping`] mixes. `None` without such
    /// a repair, and if source symbols are sent themselves.
    pub(crate) fn newest_end(&self, span: Range<SourceId>) -> Option<SourceId> {
        let Ends { repairs, longest } = self.ends.as_ref()?;
        let mut single =
            repairs.range((span.start.next(), SourceId(0))..(span.end.max(span.start.next()), SourceId(0)));
        let single = single.rfind(|((first, end), _)| {
            self.look();
            *end == first.next()
        });
        let mut found = single.map(|((_, end), _)| *end);
        for ((first, end), _) in repairs.range(..=(span.start, SourceId(u64::MAX))).rev() {
            self.look();
            // No repair that begins here or below ends higher.
            if first.0 + longest <= found.unwrap_or(span.start).0.max(span.start.0) {
                break;
            }
            found = found.max(Some(*end).filter(|&end| end > span.start));
        }
        found
    }

    /// Counts a look at a block or a repair.
    pub(crate) fn look(&self) {
        self.looks.set(self.looks.get().wrapping_add(1));
    }

    /// Number of blocks and repairs that policies have looked at.
    pub(crate) fn looks(&self) -> u64 {
        self.looks.get()
    }

    /// These repairs, for tests of policies. Their memory is returned when the process ends.
    #[cfg(test)]
    pub(crate) fn of(repairs: &[RepairInFlight]) -> &'static Self {
        let list: &mut Self = Box::leak(Box::default());
        list.keep_ends();
        repairs.iter().for_each(|&repair| list.push(repair, SourceId(0)));
        list
    }
}

#[cfg(test)]
mod tests;
