//! Blocks whose repairs go out until the peer has recovered them (Baguena and others, "RCDP", 2013, section
//! III-A). docs/rcdp.md describes the protocol.
//!
//! The source symbols of a block are sent first. In the overlapped form, the expected number of lost packets
//! follows as repairs, and then the next block begins. When the fates of a block's packets show that they are
//! too few, further repairs are sent at once. In the basic form, the paper's stop-and-wait, repairs are sent
//! until a report says that the block is recovered. A policy is asked before each source symbol, so a repair
//! in every slot holds the next block back.
//!
//! Invariants: a key is used once in a block; a source symbol is sent again only when the code has no key
//! left; a block that has news or owes answers is in the news of [`OpenBlocks`]. If the application leaves a
//! block unfinished, it is closed after an eighth of a round trip.

use core::fmt;
use core::ops::Range;

use tidewire_codec::{Elimination, RepairId, SourceId};
use tidewire_model::sphinx::MAX_LOSS;

use crate::Time;
use crate::redundancy::known::{Filling, Known};
use crate::redundancy::{
    Closed, CodingContext, GenerationRow, HasSpan, LONGEST_SPAN, OpenBlocks, ProactivePolicy, Repair, RepairInFlight,
};

/// A block that the application leaves unfinished is closed after this part of a round trip. Chosen: as
/// `sphinx` does.
const IDLE: u32 = 8;

/// Repairs of a block. Each key up to this number fits the two bytes for which a symbol leaves room
/// (`connection/send/write.rs`).
const MOST_KEYS: u16 = 1 << 14;

/// The parameters of the policy `rcdp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RcdpBlocks {
    /// Source symbols of a block.
    pub symbols: u16,
    /// Whether to send one block at a time, and its repairs until the peer reports it as recovered.
    pub basic: bool,
}

impl RcdpBlocks {
    /// Parses `K` or `K,basic`: source symbols of a block, and whether one block is sent at a time.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (symbols, basic) = text.strip_suffix(",basic").map_or((text, false), |symbols| (symbols, true));
        let symbols = symbols.parse().ok().filter(|symbols| (1..=LONGEST_SPAN).contains(symbols))?;
        Some(Self { symbols, basic })
    }
}

impl fmt::Display for RcdpBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rcdp:{}{}", self.symbols, if self.basic { ",basic" } else { "" })
    }
}

/// A closed block that the peer may be unable to decode.
#[derive(Debug)]
struct Open {
    closed: Closed,
    /// What the acknowledged packets determine.
    known: Known,
    /// Key of the next repair.
    key: u16,
    /// Number of answers still to be sent.
    owed: u64,
    /// Whether the fate of a packet became known since the last review.
    has_news: bool,
}

impl HasSpan for Open {
    fn span(&self) -> Range<SourceId> {
        self.closed.span()
    }
}

impl Open {
    fn new(closed: Closed) -> Self {
        Self { closed, known: Known::new(&closed, Elimination::WhenStuck), key: 0, owed: 0, has_news: false }
    }

    /// Decides how many answers the block needs. It needs some if fewer packets are under way than it lacks:
    /// then as many as it lacks divided by the share of packets that arrive, but no more than it has symbols.
    fn review(&mut self, cx: &CodingContext<'_>) {
        self.has_news = false;
        let count = u64::from(self.closed.count);
        // Repairs can be dependent, so a block with as many packets as symbols may still lack one.
        let lacking = count.saturating_sub(self.known.packets()).max(1);
        let unsettled = self.closed.first.0.max(cx.settled.0)..self.span().end.0;
        let place = |id: u64| (id - self.closed.first.0) as u16;
        let sources = unsettled.filter(|&id| !self.known.is_known(place(id))).count() as u64;
        let unsent = u64::from(self.closed.repairs.saturating_sub(self.key));
        if sources + unsent >= lacking {
            return;
        }
        let under_way = sources + unsent + cx.in_flight.within(self.span()).all();
        if under_way < lacking {
            let arriving = 1.0 - cx.path.loss.rate.clamp(0.0, MAX_LOSS);
            let wanted = (lacking as f64 / arriving).ceil() as u64;
            self.owed = (wanted - under_way).min(count);
        }
    }

    /// The repair with the next key. When the code has no further key, a missing source symbol.
    fn repair(&mut self, cx: &CodingContext<'_>, on_feedback: bool) -> Option<Repair> {
        let Closed { first, count, code, .. } = self.closed;
        let key = self.key;
        if key >= MOST_KEYS || code.check(RepairId { first, count, key }).is_err() {
            return self.missing(cx).map(Repair::Resend);
        }
        self.key += 1;
        Some(Repair::Coded { first, count, row: Some(GenerationRow { code, key }), on_feedback })
    }

    /// The first source symbol that is lost, is not reported as decoded, and is not under way again.
    fn missing(&self, cx: &CodingContext<'_>) -> Option<SourceId> {
        let settled = self.closed.first.0.max(cx.base.0)..self.span().end.0.min(cx.settled.0);
        let is_known = |id: SourceId| self.known.is_known((id.0 - self.closed.first.0) as u16);
        settled.map(SourceId).find(|&id| !is_known(id) && !cx.report.is_decoded(id) && !cx.in_flight.has_single(id))
    }
}

/// The policy; see the module.
#[derive(Debug)]
pub(crate) struct Rcdp {
    blocks: RcdpBlocks,
    /// Blocks that may be undecoded.
    open: OpenBlocks<Open>,
    filling: Filling,
    /// Blocks below this id have sent all their proactive repairs.
    repaired: SourceId,
    /// Fraction of a repair that the closed blocks left over.
    fraction: f64,
    /// Number of reports when the blocks were last compared with the report.
    reports: u64,
    /// The newest closed block, until the lane has fetched it.
    news: Option<Closed>,
}

impl Rcdp {
    /// `blocks.symbols` must be at least 1.
    pub(crate) fn new(blocks: RcdpBlocks) -> Self {
        let (open, filling, repaired) = (OpenBlocks::default(), Filling::default(), SourceId(0));
        Self { blocks, open, filling, repaired, fraction: 0.0, reports: 0, news: None }
    }

    fn close(&mut self, cx: &CodingContext<'_>) {
        let first = self.filling.first;
        let count = (cx.sent.0 - first.0) as u16;
        let repairs = if self.blocks.basic { 0 } else { self.expected(cx, count) };
        let closed = Closed { first, count, code: cx.limits.code, repairs };
        let mut block = Open::new(closed);
        self.filling.close(&closed, &mut block.known);
        if self.blocks.basic || !block.known.is_decoded() {
            self.open.push(block);
        }
        self.news = Some(closed);
    }

    /// Number of repairs that replace the packets which a block of `count` symbols is expected to lose, these
    /// repairs included. The fraction counts for the next block, so small blocks do not round up.
    fn expected(&mut self, cx: &CodingContext<'_>, count: u16) -> u16 {
        let rate = cx.path.loss.rate.clamp(0.0, MAX_LOSS);
        let most = cx.limits.max_overhead;
        let wanted = self.fraction + f64::from(count) * (rate / (1.0 - rate)).min(most);
        self.fraction = wanted.fract();
        let code = |key: u16| cx.limits.code.check(RepairId { first: self.filling.first, count, key });
        (0..wanted as u16).take_while(|&key| code(key).is_ok()).count() as u16
    }

    fn idle_deadline(&self, cx: &CodingContext<'_>) -> Option<Time> {
        (self.filling.first < cx.sent && !cx.flow.backlog).then(|| cx.flow.last + cx.path.rtt / IDLE)
    }

    /// Records the fate of a packet in the block of `id`. Forgets the block if what arrived determines it.
    fn learn(&mut self, id: SourceId, packet: impl FnOnce(&mut Open)) {
        let Some(block) = self.open.of(id) else { return };
        packet(block);
        let first = block.closed.first;
        // The basic form answers nothing.
        if self.blocks.basic {
            return;
        }
        block.has_news = true;
        if block.known.is_decoded() {
            self.open.remove(first);
        } else {
            self.open.add_news(first);
        }
    }

    /// Forgets the blocks that the peer reported as decoded.
    fn forget_decoded(&mut self, cx: &CodingContext<'_>) {
        if self.reports != cx.report.serial {
            self.reports = cx.report.serial;
            self.open.forget_decoded(cx.report, drop);
            // A repair that was asked for may not have been sent: then no fate of a packet would show it.
            if let Some(block) = self.open.lowest() {
                block.has_news = true;
                let first = block.closed.first;
                self.open.add_news(first);
            }
        }
        self.open.release_before(cx.base, drop);
    }

    /// The next answer: the lowest block goes first.
    fn answer(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        while let Some(first) = self.open.news().filter(|&first| first < cx.settled) {
            cx.in_flight.look();
            let block = self.open.get_mut(first)?;
            if block.owed == 0 && block.has_news {
                block.review(cx);
            }
            if block.owed > 0 {
                block.owed -= 1;
                match block.repair(cx, true) {
                    Some(repair) => return Some(repair),
                    None => block.owed = 0,
                }
            }
            self.open.remove_news(first);
        }
        None
    }

    /// The next proactive repair.
    fn proactive(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        loop {
            let block = self.open.lowest_from(self.repaired)?;
            if block.key < block.closed.repairs {
                return block.repair(cx, false);
            }
            self.repaired = block.span().end;
        }
    }
}

impl ProactivePolicy for Rcdp {
    fn on_source_sent(&mut self, cx: &CodingContext<'_>) {
        if cx.sent.0 - self.filling.first.0 >= u64::from(self.blocks.symbols.min(cx.limits.max_span)) {
            self.close(cx);
        }
    }

    fn on_source_settled(&mut self, id: SourceId, arrived: bool) {
        if id >= self.filling.first {
            if arrived {
                self.filling.add(id);
            }
        } else {
            self.learn(id, |block| {
                if arrived {
                    block.known.add_source(id.since(block.closed.first) as u16);
                }
            });
        }
    }

    fn on_repair_settled(&mut self, repair: &RepairInFlight, arrived: bool) {
        self.learn(repair.first, |block| {
            if arrived {
                block.known.add_repair(repair.key);
            }
        });
    }

    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        if self.idle_deadline(cx).is_some_and(|deadline| deadline <= cx.now) {
            self.close(cx);
        }
        self.forget_decoded(cx);
        if self.blocks.basic {
            return self.open.lowest()?.repair(cx, false);
        }
        self.answer(cx).or_else(|| self.proactive(cx))
    }

    fn poll_closed(&mut self) -> Option<Closed> {
        self.news.take()
    }

    fn poll_timeout(&self, cx: &CodingContext<'_>) -> Option<Time> {
        self.idle_deadline(cx)
    }
}

#[cfg(test)]
mod tests;
