//! A block code: generations of `k` source symbols, each followed by `r` Cauchy repairs (paper K's baseline,
//! K-A4).
//!
//! If all packets of a generation are settled and it still lacks symbols, as many further repairs are sent.
//! If the application leaves a generation unfinished, it is closed after a quarter of a round trip.
//!
//! Invariant: a settled generation that is short has news, or is the lowest that the peer may lack. So only
//! these are looked at.

use core::ops::Range;

use tidewire_codec::{Code, RepairId, SourceId};

use super::{Closed, ProactivePolicy};
use crate::Time;
use crate::redundancy::{CodingContext, GenerationRow, HasSpan, OpenBlocks, Repair, RepairInFlight, Report};

#[derive(Debug)]
struct Generation {
    first: SourceId,
    count: u16,
    /// Number of proactive repairs still to be sent.
    owed: u16,
    /// Number of repair rows sent.
    sent: u16,
    /// Number of source symbols whose first transmission was lost.
    lost: u64,
    /// Number of repairs that arrived.
    arrived: u64,
}

/// Sends generations of `k` source symbols with `r` repairs each.
#[derive(Debug)]
pub(crate) struct Block {
    k: u16,
    r: u16,
    /// First source symbol of the generation that is being filled.
    filling: SourceId,
    /// Source symbols of the unfinished generation whose first transmission was lost.
    lost: u64,
    closed: OpenBlocks<Generation>,
    /// Generations below this id have sent all their proactive repairs.
    repaired: SourceId,
    /// One past the highest id that a report covered.
    covered: SourceId,
    /// The newest closed generation, until the lane has fetched it.
    news: Option<Closed>,
}

impl Block {
    /// `k` must be at least 1.
    pub(crate) fn new(k: u16, r: u16) -> Self {
        let (zero, closed) = (SourceId(0), OpenBlocks::default());
        Self { k, r, filling: zero, lost: 0, closed, repaired: zero, covered: zero, news: None }
    }

    fn close(&mut self, sent: SourceId, code: Code) {
        let count = (sent.0 - self.filling.0) as u16;
        // A short generation gets a proportional number of repairs.
        let owed = (u32::from(self.r) * u32::from(count)).div_ceil(u32::from(self.k)) as u16;
        let first = core::mem::replace(&mut self.filling, sent);
        let lost = core::mem::take(&mut self.lost);
        self.closed.push(Generation { first, count, owed, sent: 0, lost, arrived: 0 });
        self.closed.add_news(first);
        self.news = Some(Closed { first, count, code, repairs: owed });
    }

    fn idle_deadline(&self, cx: &CodingContext<'_>) -> Option<Time> {
        (self.filling < cx.sent && !cx.flow.backlog).then(|| cx.flow.last + cx.path.rtt / 4)
    }

    /// Something happened to a packet of the generation of this symbol.
    fn add_news(&mut self, id: SourceId, record: impl FnOnce(&mut Generation)) {
        if let Some(generation) = self.closed.of(id) {
            record(generation);
            let first = generation.first;
            self.closed.add_news(first);
        }
    }

    /// The generations that a report covers for the first time have news.
    fn read(&mut self, report: &Report) {
        while self.covered < report.end {
            let first = self.closed.of(self.covered).map(|generation| (generation.first, generation.end()));
            let next = || self.closed.lowest_from(self.covered).map(|generation| (generation.first, generation.end()));
            let Some((first, end)) = first.or_else(next).filter(|(first, _)| *first < report.end) else { break };
            self.closed.add_news(first);
            self.covered = end.min(report.end);
        }
        self.covered = self.covered.max(report.end);
    }

    /// The lowest generation that the report does not say is decoded. None below it lacks anything.
    fn lowest(&mut self, report: &Report) -> Option<SourceId> {
        let first = self.closed.lowest()?.first;
        let run = report.undecoded.partition_point(|run| run.end <= first);
        let undecoded = report.undecoded.get(run).map_or(report.end, |run| run.start.min(report.end)).max(first);
        self.closed.of(undecoded).map(|generation| generation.first)
    }

    /// The lowest generation that owes proactive repairs.
    fn owing(&mut self) -> Option<SourceId> {
        while let Some(generation) = self.closed.lowest_from(self.repaired) {
            if generation.owed > 0 {
                return Some(generation.first);
            }
            self.repaired = generation.end();
        }
        None
    }

    /// The lowest generation below `limit` that is settled and short. Generations that turn out not to be
    /// short have no news any more.
    fn short(&mut self, cx: &CodingContext<'_>, limit: Option<SourceId>) -> Option<&mut Generation> {
        let lowest = self.lowest(cx.report);
        let mut is_lowest = lowest.is_some();
        loop {
            let first = if is_lowest { lowest? } else { self.closed.news()? };
            if limit.is_some_and(|limit| first > limit) {
                return None;
            }
            cx.in_flight.look();
            let generation = self.closed.get_mut(first)?;
            if generation.end() > cx.settled {
                return None;
            }
            if generation.is_short(cx, is_lowest) {
                self.closed.add_news(first);
                return self.closed.get_mut(first);
            }
            self.closed.remove_news(first);
            is_lowest = false;
        }
    }
}

impl HasSpan for Generation {
    fn span(&self) -> Range<SourceId> {
        self.first..self.end()
    }
}

impl Generation {
    /// The repair for the next row of the code; `None` when all rows were sent.
    fn repair(&mut self, code: Code, on_feedback: bool) -> Option<Repair> {
        let (first, count, key) = (self.first, self.count, self.sent);
        code.check(RepairId { first, count, key }).ok()?;
        self.sent = key.checked_add(1)?;
        Some(Repair::Coded { first, count, row: Some(GenerationRow { code, key }), on_feedback })
    }

    /// Whether the generation lacks more symbols than are in flight for it. Call this when all its source
    /// symbols are settled. `lowest` means that no lower generation lacks anything.
    fn is_short(&mut self, cx: &CodingContext<'_>, lowest: bool) -> bool {
        let named = self.named(cx.report);
        // A report can be cut short for lack of room, or be older than the generation's end. Then it says
        // nothing about the rest.
        let lacking = if self.end() <= cx.report.end { named } else { named.max(self.lost) };
        // Count the packets in flight, not the repairs requested: a repair is not sent if its symbols became
        // longer than the path MTU.
        let under_way = cx.in_flight.within(self.span()).all();
        if lowest && lacking > 0 && lacking <= self.arrived && under_way == 0 {
            // A repair that arrived may not have helped: a random combination may be redundant.
            self.arrived = lacking - cx.report.settled_deficit(self.end()).clamp(1, lacking);
        }
        lacking > self.arrived + under_way + u64::from(self.owed)
    }

    /// Number of undecoded symbols of the generation that the report names.
    fn named(&self, report: &Report) -> u64 {
        report.undecoded_below(self.end()) - report.undecoded_below(self.first)
    }

    fn end(&self) -> SourceId {
        SourceId(self.first.0 + u64::from(self.count))
    }
}

impl ProactivePolicy for Block {
    fn on_source_sent(&mut self, cx: &CodingContext<'_>) {
        // A generation is one span. If the peer accepts only shorter spans, the generation is cut, and its
        // repairs are cut in proportion.
        if cx.sent.0 - self.filling.0 >= u64::from(self.k.min(cx.limits.max_span)) {
            self.close(cx.sent, cx.limits.code);
        }
    }

    fn on_source_settled(&mut self, id: SourceId, arrived: bool) {
        if arrived {
            return;
        }
        if id >= self.filling {
            self.lost += 1;
        } else {
            self.add_news(id, |generation| generation.lost += 1);
        }
    }

    fn on_repair_settled(&mut self, repair: &RepairInFlight, arrived: bool) {
        self.add_news(repair.first, |generation| generation.arrived += u64::from(arrived));
    }

    fn on_resent_settled(&mut self, id: SourceId, _arrived: bool) {
        self.add_news(id, |_| ());
    }

    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        if self.idle_deadline(cx).is_some_and(|deadline| deadline <= cx.now) && self.filling < cx.sent {
            self.close(cx.sent, cx.limits.code);
        }
        self.closed.release_before(cx.base, drop);
        self.read(cx.report);
        let owing = self.owing();
        if let Some(generation) = self.short(cx, owing) {
            // When all rows were sent, the lost source symbols are retransmitted.
            return generation.repair(cx.limits.code, true).or_else(|| cx.lost.map(Repair::Resend));
        }
        let first = owing?;
        // It may turn out to be short if this repair is not sent.
        self.closed.add_news(first);
        let generation = self.closed.get_mut(first)?;
        generation.owed -= 1;
        generation.repair(cx.limits.code, false)
    }

    fn poll_closed(&mut self) -> Option<Closed> {
        self.news.take()
    }

    fn poll_timeout(&self, cx: &CodingContext<'_>) -> Option<Time> {
        self.idle_deadline(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redundancy::{InFlight, context as any_context};

    /// Three generations of 64 symbols are sent and settled, without repairs. The peer sent `report`.
    fn context<'a>(report: &'a Report, in_flight: &[RepairInFlight]) -> CodingContext<'a> {
        let mut cx = any_context(report, 0.2, 1.0, true);
        (cx.base, cx.settled, cx.sent, cx.in_flight) =
            (report.edge, SourceId(192), SourceId(192), InFlight::of(in_flight));
        cx.flow.backlog = true;
        cx
    }

    /// Counts, for each generation, the repairs that the policy sends until it stops. All of them stay in
    /// flight.
    fn answers(block: &mut Block, report: &Report) -> [usize; 3] {
        let mut in_flight = Vec::new();
        while let Some(Repair::Coded { first, count, on_feedback, .. }) = block.next(&context(report, &in_flight)) {
            assert!(in_flight.len() < 200, "the policy never stops sending answers");
            in_flight.push(RepairInFlight { packet: in_flight.len() as u64, first, count, key: 0, on_feedback });
        }
        [0, 64, 128].map(|first| in_flight.iter().filter(|repair| repair.first.0 / 64 == first / 64).count())
    }

    fn three_generations(lost: &[u64]) -> Block {
        let mut block = Block::new(64, 0);
        for sent in [64, 128, 192] {
            block.close(SourceId(sent), Code::Cauchy);
        }
        lost.iter().for_each(|&id| block.on_source_settled(SourceId(id), false));
        block
    }

    #[test]
    fn issue_5_a_cut_report_does_not_ask_for_whole_generations() {
        // The report had room for the first two of six losses only.
        let mut block = three_generations(&[3, 9, 70, 75, 80, 130]);
        let undecoded = vec![SourceId(3)..SourceId(4), SourceId(9)..SourceId(10)];
        let report = Report { edge: SourceId(3), end: SourceId(10), deficit: 6, undecoded, ..Report::default() };
        assert_eq!(answers(&mut block, &report), [2, 3, 1]);
    }

    #[test]
    fn issue_5_a_repair_that_was_not_sent_or_did_not_help_is_sent_again() {
        let mut block = three_generations(&[3]);
        let report = Report {
            edge: SourceId(3),
            end: SourceId(192),
            deficit: 1,
            undecoded: vec![SourceId(3)..SourceId(4)],
            ..Report::default()
        };
        // The repair was requested but not sent.
        assert!(block.next(&context(&report, &[])).is_some());
        assert_eq!(answers(&mut block, &report), [1, 0, 0]);
        let repair = RepairInFlight { packet: 0, first: SourceId(3), count: 61, key: 0, on_feedback: true };
        block.on_repair_settled(&repair, true);
        assert_eq!(answers(&mut block, &report), [1, 0, 0]);
    }

    #[test]
    fn a_generation_whose_rows_are_all_sent_has_no_more() {
        let mut generation = Generation { first: SourceId(0), count: 3, owed: 0, sent: 0, lost: 0, arrived: 0 };
        let mut row = || match generation.repair(Code::Cauchy, true) {
            Some(Repair::Coded { row, .. }) => row.map(|row| row.key),
            other => panic!("{other:?}"),
        };
        assert!((0..253).all(|n| row() == Some(n)));
        assert_eq!(generation.repair(Code::Cauchy, true), None);
    }
}
