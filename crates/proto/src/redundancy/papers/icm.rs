//! Instantaneous compensation (Li and others, "Sphinx", 2019, section III-C1): when a block cannot be decoded
//! from what arrived, its missing source symbols are sent again, with a few repairs beside them (ReFEC).
//!
//! The paper's receiver names every symbol that it recovered. FEEDBACK names every packet, so this policy
//! computes what the receiver has: it decodes the coefficients of the acknowledged packets as the receiver
//! decodes the symbols. Nothing more is needed when feedback is lost, because a later FEEDBACK names the
//! same packets. Invariants: a block is answered when no packet of it is in flight, or those in flight are
//! too few; a block is forgotten when every receiver that has the acknowledged packets has decoded it, or
//! when a report says so.

use core::fmt;
use std::collections::VecDeque;

use tidewire_codec::{Elimination, SourceId};
use tidewire_model::sphinx::Rounding;

use super::SphinxBlocks;
use crate::Time;
use crate::path::LossEstimate;
use crate::redundancy::known::{Filling, Known};
use crate::redundancy::{AnswerPolicy, Closed, CodingContext, GenerationRow, Repair, RepairInFlight, Report};

/// When an undecoded block of which no packet is in flight is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "these are the readings of one paper")]
pub enum Trigger {
    /// At once, and before that if those in flight are too few in any case.
    Settled,
    /// The paper's rule: symbol-level feedback covers more than `blocks` blocks, the newest and undecoded
    /// ones before it, and the newest has more than `symbols` recovered symbols. The paper has 2 and 3. Or a
    /// later block is decoded (Block-SACK).
    Symbols {
        /// Blocks.
        blocks: u8,
        /// Symbols.
        symbols: u16,
    },
    /// Only when a later block is decoded: the paper's system without its symbol-level feedback.
    Blocks,
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settled => f.write_str("icm"),
            Self::Symbols { blocks, symbols } => write!(f, "icm:{blocks}/{symbols}"),
            Self::Blocks => f.write_str("block-sack"),
        }
    }
}

impl Trigger {
    /// The paper's rule with the paper's numbers.
    pub(crate) const PRINTED: Self = Self::Symbols { blocks: 2, symbols: 3 };

    /// Parses the text that [`Display`](fmt::Display) writes.
    pub(in crate::redundancy) fn parse(text: &str) -> Option<Self> {
        match text {
            "icm" => Some(Self::Settled),
            "block-sack" => Some(Self::Blocks),
            _ => {
                let (blocks, symbols) = text.strip_prefix("icm:")?.split_once('/')?;
                Some(Self::Symbols { blocks: blocks.parse().ok()?, symbols: symbols.parse().ok()? })
            }
        }
    }

    /// What the receiver decodes: the paper's only peels.
    fn elimination(self) -> Elimination {
        if self == Self::Settled { Elimination::WhenStuck } else { Elimination::Never }
    }

    /// How many repairs go with symbols that are sent again.
    fn compensation(self, count: u16, missing: u16, loss: &LossEstimate) -> u16 {
        // The threshold with which (5) gives the 14 % that the paper reports (docs/sphinx.md section 2).
        let threshold = (self != Self::Settled).then_some(0.5);
        let blocks = SphinxBlocks { symbols: count, threshold, rounding: Rounding::Up };
        blocks.compensation(count, missing, loss)
    }
}

/// A closed block that the peer may be unable to decode.
#[derive(Debug)]
struct Open {
    closed: Closed,
    known: Known,
    /// Proactive repairs whose fate is known.
    repairs_settled: u16,
    /// Key of the next repair.
    key: u16,
    /// What is still to be sent: source symbols, then repairs.
    resend: VecDeque<SourceId>,
    repairs: u16,
    belief: Belief,
}

/// Whether the receiver can decode a block, as far as the sender knows. A receiver that only peels decodes
/// less than one that eliminates, and the sender does not know which of them the peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Belief {
    Undecoded,
    /// A receiver that eliminates can. The number is that of the newest report when a slot was free since.
    Decoded(Option<u64>),
}

impl Open {
    fn end(&self) -> SourceId {
        self.closed.first.plus(self.closed.count.into())
    }

    /// Whether a report that came after the sender believed the block decoded says that it is not.
    fn is_disproved(&mut self, report: &Report) -> bool {
        let Belief::Decoded(since) = &mut self.belief else { return false };
        // The block is still in the list, so this report does not say that it is decoded.
        *since.get_or_insert(report.serial) < report.serial && self.end() <= report.end
    }

    fn contains(&self, id: SourceId) -> bool {
        self.closed.first <= id && id < self.end()
    }

    /// Whether the fates of all its packets are known. Proactive repairs that were never sent, because the
    /// path takes only shorter packets now, are no longer expected after a round trip of silence. Nor are
    /// retransmissions then: the lane probes a silent path with the block's oldest symbol more often than
    /// once in a round trip, so that one is always in flight.
    fn is_settled(&self, cx: &CodingContext<'_>, is_silent: bool) -> bool {
        let are_sent = self.repairs_settled >= self.closed.repairs || is_silent;
        let is_in_flight = |repair: &RepairInFlight| {
            self.contains(repair.first) && !repair.is_blank() && !(is_silent && repair.count == 1)
        };
        self.end() <= cx.settled && are_sent && !cx.in_flight.iter().any(is_in_flight)
    }

    /// Number of packets of the block that may still arrive.
    fn outstanding(&self, cx: &CodingContext<'_>) -> u64 {
        let own = cx.in_flight.iter().filter(|repair| self.contains(repair.first) && !repair.is_blank());
        let (answers, proactive) =
            own.fold(
                (0, 0),
                |(answers, proactive), repair| {
                    if repair.on_feedback { (answers + 1, proactive) } else { (answers, proactive + 1) }
                },
            );
        // Proactive repairs that are in flight or not sent yet.
        let repairs = u64::from(self.closed.repairs.saturating_sub(self.repairs_settled)).max(proactive);
        let sources = self.end().0.saturating_sub(cx.settled.0.max(self.closed.first.0));
        sources + repairs + answers + self.resend.len() as u64
    }

    /// A lost source symbol to send again although packets of the block are in flight: those cannot be
    /// enough.
    fn too_few(&self, cx: &CodingContext<'_>) -> Option<Repair> {
        if self.known.packets() + self.outstanding(cx) >= self.closed.count.into() {
            return None;
        }
        let settled = (self.closed.first.0..self.end().0.min(cx.settled.0)).map(SourceId);
        let lost = |id: &SourceId| !self.known.is_known((id.0 - self.closed.first.0) as u16) && !is_resent(cx, *id);
        settled.into_iter().find(lost).map(Repair::Resend)
    }

    /// Plans the answer to this settled block and returns its first packet. None if all symbols that it lacks
    /// are in flight again.
    fn answer(&mut self, trigger: Trigger, cx: &CodingContext<'_>) -> Option<Repair> {
        let Closed { first, count, .. } = self.closed;
        let lacking = self.known.lacking().into_iter().map(|place| first.plus(place.into()));
        let lacking: Vec<_> = lacking.filter(|&id| !is_resent(cx, id)).collect();
        if lacking.is_empty() {
            return None;
        }
        let missing = u16::try_from(lacking.len()).unwrap_or(u16::MAX);
        // At a loss rate near 1, (5) gives many times the block. The next answer follows in a round trip.
        self.repairs = trigger.compensation(count, missing, &cx.path.loss).min(count);
        self.resend.extend(lacking);
        self.next()
    }

    /// The next packet of its answer.
    fn next(&mut self) -> Option<Repair> {
        while let Some(id) = self.resend.pop_front() {
            // Repairs may have revealed it in the meantime.
            if !self.known.is_known((id.0 - self.closed.first.0) as u16) {
                return Some(Repair::Resend(id));
            }
        }
        self.repairs = self.repairs.checked_sub(1)?;
        let Closed { first, count, code, .. } = self.closed;
        let row = GenerationRow { code, key: self.key };
        code.check(tidewire_codec::RepairId { first, count, key: self.key }).ok()?;
        self.key = self.key.checked_add(1)?;
        Some(Repair::Coded { first, count, row: Some(row), on_feedback: true })
    }
}

/// The policy; see the module.
#[derive(Debug)]
pub(crate) struct Icm {
    trigger: Trigger,
    /// What the receiver is believed to decode.
    elimination: Elimination,
    /// Blocks that may be undecoded, in the order of their ids.
    open: VecDeque<Open>,
    filling: Filling,
    /// One past the newest symbol of a block that is known to be decoded.
    decoded: SourceId,
    /// Since when nothing but answers is in flight.
    silent: Option<Time>,
    /// The newest block of which a symbol arrived: its first symbol, and the number of its known symbols.
    newest: (SourceId, u16),
}

impl Icm {
    /// A policy that answers when `trigger` says.
    pub(crate) fn new(trigger: Trigger) -> Self {
        let (open, filling) = (VecDeque::new(), Filling::default());
        let elimination = trigger.elimination();
        Self { trigger, elimination, open, filling, decoded: SourceId(0), silent: None, newest: (SourceId(0), 0) }
    }

    fn block_of(&mut self, id: SourceId) -> Option<usize> {
        let index = self.open.partition_point(|block| block.end() <= id);
        self.open.get(index).filter(|block| block.contains(id)).map(|_| index)
    }

    /// A symbol of the block that begins at `first` became known.
    fn count_known(&mut self, first: SourceId, known: u16) {
        if first >= self.newest.0 {
            self.newest = (first, known);
        }
    }

    /// Records an acknowledged packet of an open block, and forgets the block if it is decoded.
    fn learn(&mut self, index: usize, packet: impl FnOnce(&mut Known)) {
        let Some(block) = self.open.get_mut(index) else { return };
        packet(&mut block.known);
        let (first, end, known) = (block.closed.first, block.end(), block.known.recovered());
        self.count_known(first, known);
        let Some(block) = self.open.get_mut(index).filter(|block| block.belief == Belief::Undecoded) else { return };
        if block.known.is_decoded() {
            block.belief = Belief::Decoded(None);
            self.decoded = self.decoded.max(end);
            if self.open.get(index).is_some_and(|block| block.known.is_certain()) {
                self.open.remove(index);
            }
        }
    }

    /// Whether the trigger answers this settled block now.
    fn answers(&self, block: &Open, is_late: bool) -> bool {
        let is_gap = self.decoded >= block.end();
        match self.trigger {
            Trigger::Settled => true,
            Trigger::Blocks => is_gap || is_late,
            Trigger::Symbols { blocks, symbols } => {
                let (newest, known) = self.newest;
                let covered = self.open.iter().filter(|open| open.end() <= newest).count() + 1;
                let by_symbols = newest >= block.end() && covered > blocks.into() && known > symbols;
                by_symbols || is_gap || is_late
            }
        }
    }
}

/// Whether a retransmission of the symbol is in flight.
fn is_resent(cx: &CodingContext<'_>, id: SourceId) -> bool {
    cx.in_flight.iter().any(|repair| repair.first == id && repair.count == 1)
}

/// Whether nothing but answers is in flight. Then no later block can show that one is undecoded, so this
/// shows after a round trip. Answers do not count, because the lane's probes of a silent path are answers.
fn is_silent(cx: &CodingContext<'_>) -> bool {
    cx.settled >= cx.sent && cx.in_flight.iter().all(|repair| repair.on_feedback || repair.is_blank())
}

impl AnswerPolicy for Icm {
    fn on_source_settled(&mut self, id: SourceId, arrived: bool) {
        if !arrived {
            return;
        }
        if id >= self.filling.first {
            self.filling.add(id);
            self.count_known(self.filling.first, self.filling.count);
            return;
        }
        self.on_resent_settled(id, true);
    }

    fn on_resent_settled(&mut self, id: SourceId, arrived: bool) {
        let Some(index) = self.block_of(id) else { return };
        if !arrived {
            // The paper's rule waits until the whole block is settled again.
            if self.trigger == Trigger::Settled {
                self.open[index].resend.push_back(id);
            }
            return;
        }
        let place = (id.0 - self.open[index].closed.first.0) as u16;
        self.learn(index, |known| known.add_source(place));
    }

    fn on_repair_settled(&mut self, repair: &RepairInFlight, arrived: bool) {
        let Some(index) = self.block_of(repair.first) else { return };
        self.open[index].repairs_settled += u16::from(!repair.on_feedback);
        if arrived {
            self.learn(index, |known| known.add_repair(repair.key));
        }
    }

    fn on_closed(&mut self, closed: &Closed) {
        let known = Known::new(closed, self.elimination);
        let mut block = Open {
            closed: *closed,
            known,
            repairs_settled: 0,
            key: closed.repairs,
            resend: VecDeque::new(),
            repairs: 0,
            belief: Belief::Undecoded,
        };
        let end = block.end();
        self.filling.close(closed, &mut block.known);
        if block.known.is_decoded() {
            self.decoded = self.decoded.max(end);
        } else {
            self.open.push_back(block);
        }
    }

    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        self.open.retain(|block| {
            let is_decoded = block.end() <= cx.base || cx.report.is_all_decoded(block.closed.first..block.end());
            if is_decoded {
                self.decoded = self.decoded.max(block.end());
            }
            !is_decoded
        });
        if is_silent(cx) {
            self.silent.get_or_insert(cx.now);
        } else {
            self.silent = None;
        }
        let is_silent = self.silent.is_some_and(|since| since + cx.path.rtt <= cx.now);
        for index in 0..self.open.len() {
            let block = &mut self.open[index];
            if block.is_disproved(cx.report) {
                self.elimination = Elimination::Never;
                block.known.only_peel();
                block.belief = Belief::Undecoded;
            }
            if block.belief != Belief::Undecoded {
                continue;
            }
            if let Some(repair) = block.next() {
                return Some(repair);
            }
            if !block.is_settled(cx, is_silent) {
                if self.trigger == Trigger::Settled
                    && let Some(repair) = block.too_few(cx)
                {
                    return Some(repair);
                }
                // Packets of later blocks left later, and most of them are settled later.
                if block.end() > cx.settled {
                    break;
                }
                continue;
            }
            block.known.add_reported(cx.report);
            if !self.answers(&self.open[index], is_silent) {
                continue;
            }
            if let Some(repair) = self.open[index].answer(self.trigger, cx) {
                return Some(repair);
            }
        }
        None
    }

    fn poll_timeout(&self, cx: &CodingContext<'_>) -> Option<Time> {
        let since = self.silent.filter(|_| !self.open.is_empty() && is_silent(cx));
        since.map(|since| since + cx.path.rtt).filter(|&at| at > cx.now)
    }
}

#[cfg(test)]
mod tests;
