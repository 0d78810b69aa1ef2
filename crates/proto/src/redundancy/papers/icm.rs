//! Instantaneous compensation (Li and others, "Sphinx", 2019, section III-C1): when a block cannot be decoded
//! from what arrived, its missing source symbols are sent again, with a few repairs beside them (ReFEC).
//!
//! The paper's receiver names every symbol that it recovered. FEEDBACK names every packet, so this policy
//! computes what the receiver has: it decodes the coefficients of the acknowledged packets as the receiver
//! decodes the symbols. Nothing more is needed when feedback is lost, because a later FEEDBACK names the
//! same packets. Invariants: a block is answered when no packet of it is in flight, or those in flight are
//! too few; a block is forgotten when every receiver that has the acknowledged packets has decoded it, or
//! when a report says so. A block is looked at when something happened to one of its packets or its trigger
//! is true.

mod open;

use core::fmt;

use tidewire_codec::{Elimination, SourceId};
use tidewire_model::sphinx::Rounding;

use self::open::{Belief, Open, Wait, Waits};
use super::SphinxBlocks;
use crate::Time;
use crate::path::LossEstimate;
use crate::redundancy::known::{Filling, Known};
use crate::redundancy::{AnswerPolicy, Closed, CodingContext, HasSpan, OpenBlocks, Repair, RepairInFlight};

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

/// What follows from a look at a block.
#[derive(Debug)]
enum Look {
    /// An answer is due.
    Send(Repair),
    /// Neither this block nor any block above it needs an answer now.
    Stop,
    /// It needs no answer before it has news, or before this.
    Wait(Option<Wait>),
}

/// The policy; see the module.
#[derive(Debug)]
pub(crate) struct Icm {
    trigger: Trigger,
    /// What the receiver is believed to decode.
    elimination: Elimination,
    /// Blocks that may be undecoded.
    open: OpenBlocks<Open>,
    waits: Waits,
    /// Number of reports when the blocks were last compared with the report.
    reports: u64,
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
        Self {
            trigger,
            elimination: trigger.elimination(),
            open: OpenBlocks::default(),
            waits: Waits::default(),
            reports: 0,
            filling: Filling::default(),
            decoded: SourceId(0),
            silent: None,
            newest: (SourceId(0), 0),
        }
    }

    /// A symbol of the block that begins at `first` became known.
    fn count_known(&mut self, first: SourceId, known: u16) {
        if first >= self.newest.0 {
            self.newest = (first, known);
        }
    }

    /// Records a settled packet of an open block, and forgets the block if it is decoded.
    fn learn(&mut self, id: SourceId, packet: impl FnOnce(&mut Open) -> bool) {
        let Some(block) = self.open.of(id) else { return };
        let first = block.closed.first;
        self.open.add_news(first);
        let Some(block) = self.open.get_mut(first) else { return };
        if !packet(block) {
            return;
        }
        let (end, known) = (block.end(), block.known.recovered());
        let is_news = block.belief == Belief::Undecoded && block.known.is_decoded();
        if is_news {
            block.belief = Belief::Decoded(None);
        }
        let is_over = is_news && block.known.is_certain();
        self.count_known(first, known);
        if is_news {
            self.decoded = self.decoded.max(end);
        }
        if is_over {
            self.waits.remove(first);
            self.open.remove(first);
        }
    }

    /// Forgets the blocks that the peer reported as decoded, or of which it needs nothing.
    fn forget_decoded(&mut self, cx: &CodingContext<'_>) {
        let Self { open, waits, decoded, .. } = self;
        let mut forget = |block: Open| {
            waits.remove(block.closed.first);
            *decoded = (*decoded).max(block.end());
        };
        open.release_before(cx.base, &mut forget);
        if self.reports == cx.report.serial {
            return;
        }
        self.reports = cx.report.serial;
        open.forget_decoded(cx.report, forget);
        // What is left below the end of the report is not decoded.
        while let Some(first) = waits.first(Wait::Believed)
            && open.get_mut(first).is_none_or(|block| block.end() <= cx.report.end)
        {
            waits.of(Wait::Believed).remove(&first);
            open.add_news(first);
        }
    }

    /// The lowest block to look at.
    fn next_block(&self, due: SourceId, is_silent: bool) -> Option<SourceId> {
        let triggered = self.waits.first(Wait::Trigger).filter(|&first| first < due);
        let unsettled = self.waits.first(Wait::Unsettled).filter(|_| is_silent);
        self.open.news().into_iter().chain(triggered).chain(unsettled).min()
    }

    /// The triggers of all settled blocks below this id are true.
    fn due(&self, cx: &CodingContext<'_>, is_late: bool) -> SourceId {
        let Trigger::Symbols { blocks, symbols } = self.trigger else {
            let is_due = self.trigger == Trigger::Settled || is_late;
            return if is_due { SourceId(u64::MAX) } else { self.decoded };
        };
        let (newest, known) = self.newest;
        let is_covered = || {
            // At most 255: the number is a byte.
            let others = self.open.iter().take(blocks.into()).inspect(|_| cx.in_flight.look());
            others.take_while(|open| open.end() <= newest).count() >= blocks.into()
        };
        match is_late {
            true => SourceId(u64::MAX),
            false if known > symbols && is_covered() => self.decoded.max(newest),
            false => self.decoded,
        }
    }

    /// Looks at a block.
    fn look_at(&mut self, first: SourceId, due: SourceId, is_silent: bool, cx: &CodingContext<'_>) -> Look {
        let Some(block) = self.open.get_mut(first) else { return Look::Stop };
        if cx.report.is_all_decoded(block.span()) {
            // It was closed after the report had come.
            self.decoded = self.decoded.max(block.end());
            self.open.remove(first);
            return Look::Wait(None);
        }
        if block.is_disproved(cx.report) {
            self.elimination = Elimination::Never;
            block.known.only_peel();
            block.belief = Belief::Undecoded;
        }
        if block.belief != Belief::Undecoded {
            return Look::Wait(Some(Wait::Believed));
        }
        if let Some(repair) = block.next() {
            return Look::Send(repair);
        }
        if !block.is_settled(cx, is_silent) {
            if self.trigger == Trigger::Settled
                && let Some(repair) = block.too_few(cx)
            {
                return Look::Send(repair);
            }
            // Packets of later blocks left later, and most of them are settled later.
            if block.end() > cx.settled {
                return Look::Stop;
            }
            // After a silence it waits for an answer in flight, whose fate is news.
            return Look::Wait(Some(Wait::Unsettled).filter(|_| !is_silent));
        }
        block.known.add_reported(cx.report);
        if block.end() > due {
            return Look::Wait(Some(Wait::Trigger));
        }
        // Without an answer, all that it lacks is in flight again.
        block.answer(self.trigger, cx).map_or(Look::Wait(None), Look::Send)
    }

    /// The block was looked at, and waits for this before it is looked at without news.
    fn settle_down(&mut self, first: SourceId, wait: Option<Wait>) {
        self.open.remove_news(first);
        self.waits.remove(first);
        if let Some(wait) = wait {
            self.waits.of(wait).insert(first);
        }
    }
}

/// Whether nothing but answers is in flight. Then no later block can show that one is undecoded, so this
/// shows after a round trip. Answers do not count, because the lane's probes of a silent path are answers.
fn is_silent(cx: &CodingContext<'_>) -> bool {
    cx.settled >= cx.sent && !cx.in_flight.has_proactive()
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
        let is_settled = self.trigger == Trigger::Settled;
        self.learn(id, |block| {
            if arrived {
                block.known.add_source(id.since(block.closed.first) as u16);
            } else if is_settled {
                // The paper's rule waits until the whole block is settled again.
                block.resend.push_back(id);
            }
            arrived
        });
    }

    fn on_repair_settled(&mut self, repair: &RepairInFlight, arrived: bool) {
        self.learn(repair.first, |block| {
            block.repairs_settled += u16::from(!repair.on_feedback);
            if arrived {
                block.known.add_repair(repair.key);
            }
            arrived
        });
    }

    fn on_closed(&mut self, closed: &Closed) {
        let known = Known::new(closed, self.elimination);
        let mut block = Open::new(closed, known);
        let end = block.end();
        self.filling.close(closed, &mut block.known);
        if block.known.is_decoded() {
            self.decoded = self.decoded.max(end);
        } else {
            self.open.push(block);
            self.open.add_news(closed.first);
        }
    }

    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        self.forget_decoded(cx);
        if is_silent(cx) {
            self.silent.get_or_insert(cx.now);
        } else {
            self.silent = None;
        }
        let is_silent = self.silent.is_some_and(|since| since + cx.path.rtt <= cx.now);
        let due = self.due(cx, is_silent);
        while let Some(first) = self.next_block(due, is_silent) {
            cx.in_flight.look();
            match self.look_at(first, due, is_silent, cx) {
                Look::Send(repair) => {
                    self.settle_down(first, None);
                    // More may be due when this one was sent.
                    self.open.add_news(first);
                    return Some(repair);
                }
                Look::Stop => return None,
                Look::Wait(wait) => self.settle_down(first, wait),
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
