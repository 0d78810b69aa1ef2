//! Answers for blocks whose source symbols are not sent themselves: as many combinations as a block lacks.
//!
//! `deficit` uses it in generations. The fates of a block's packets show what it lacks, so nothing waits for
//! a report. Invariant: a key is used once in a block; a source symbol is sent only when the code has no key
//! left; a block that has news or owes answers is in the news of [`OpenBlocks`].

use core::ops::Range;

use tidewire_codec::{Elimination, RepairId, SourceId};
use tidewire_model::sphinx::MAX_LOSS;

use crate::redundancy::known::Known;
use crate::redundancy::{Closed, CodingContext, GenerationRow, HasSpan, OpenBlocks, Repair, RepairInFlight};

/// A closed block that the peer may be unable to decode.
#[derive(Debug)]
struct Open {
    closed: Closed,
    /// What the acknowledged packets determine.
    known: Known,
    /// Key of the next answer. The keys below are those of the proactive repairs.
    key: u16,
    /// Proactive repairs whose fate is known.
    settled: u16,
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
    /// Decides how many answers the block needs. It needs some if fewer packets are under way than it lacks:
    /// then as many as it lacks divided by the share of packets that arrive, but no more than it has symbols.
    fn review(&mut self, cx: &CodingContext<'_>) {
        self.has_news = false;
        let Closed { count, repairs, .. } = self.closed;
        // Combinations can be dependent, so a block with as many packets as symbols may still lack one.
        let lacking = u64::from(count).saturating_sub(self.known.packets()).max(1);
        let flying = cx.in_flight.within(self.span());
        let unsent = u64::from(repairs).saturating_sub(u64::from(self.settled) + flying.proactive);
        let under_way = flying.all() + unsent;
        if under_way < lacking {
            let arriving = 1.0 - cx.path.loss.rate.clamp(0.0, MAX_LOSS);
            let wanted = (lacking as f64 / arriving).ceil() as u64;
            self.owed = (wanted - under_way).min(count.into());
        }
    }

    /// The combination with the next key. When the code has no further key, a source symbol.
    fn answer(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        let Closed { first, count, code, .. } = self.closed;
        let key = self.key;
        if code.check(RepairId { first, count, key }).is_err() {
            return cx.lost.filter(|id| self.span().contains(id)).map(Repair::Resend);
        }
        self.key += 1;
        Some(Repair::Coded { first, count, row: Some(GenerationRow { code, key }), on_feedback: true })
    }
}

/// The blocks of a lane that the peer may be unable to decode; see the module.
#[derive(Debug, Default)]
pub(super) struct BlockAnswers {
    open: OpenBlocks<Open>,
    /// Something was settled of each block below this id.
    touched: SourceId,
    /// Number of reports when the blocks were last compared with the report.
    reports: u64,
}

impl BlockAnswers {
    pub(super) fn on_closed(&mut self, closed: &Closed) {
        let known = Known::new(closed, Elimination::WhenStuck);
        let open = Open { closed: *closed, known, key: closed.repairs, settled: 0, owed: 0, has_news: false };
        self.open.push(open);
    }

    /// A source symbol arrived, which a probe carried.
    pub(super) fn on_source_arrived(&mut self, id: SourceId) {
        self.learn(id, |block| {
            let place = id.since(block.closed.first) as u16;
            block.known.add_source(place);
        });
    }

    /// The fate of a repair became known.
    pub(super) fn on_repair_settled(&mut self, repair: &RepairInFlight, arrived: bool) {
        self.learn(repair.first, |block| {
            block.settled += u16::from(!repair.on_feedback);
            if arrived {
                block.known.add_repair(repair.key);
            }
        });
    }

    /// Passes the fate of a packet to the block of `id`. Forgets the block if what arrived determines it.
    fn learn(&mut self, id: SourceId, fate: impl FnOnce(&mut Open)) {
        let Some(block) = self.open.of(id) else { return };
        fate(block);
        block.has_news = true;
        let first = block.closed.first;
        if block.known.is_decoded() {
            self.open.remove(first);
        } else {
            self.open.add_news(first);
        }
    }

    /// The next answer: the lowest block goes first.
    pub(super) fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        if self.reports != cx.report.serial {
            self.reports = cx.report.serial;
            self.open.forget_decoded(cx.report, drop);
            // An answer that was asked for may not have been sent: then no fate of a packet would show it.
            if let Some(block) = self.open.lowest().filter(|block| block.settled > 0) {
                block.has_news = true;
                let first = block.closed.first;
                self.open.add_news(first);
            }
        }
        self.open.release_before(cx.base, drop);
        // Blocks of which nothing was settled have nothing to answer, and neither have those behind them.
        while let Some(block) = self.open.lowest_from(self.touched).filter(|block| block.settled > 0) {
            self.touched = block.span().end;
        }
        let untouched = self.open.lowest_from(self.touched).map(|block| block.closed.first);
        while let Some(first) = self.open.news().filter(|&first| untouched.is_none_or(|untouched| first < untouched)) {
            cx.in_flight.look();
            let block = self.open.get_mut(first)?;
            if block.owed == 0 && block.has_news {
                block.review(cx);
            }
            if block.owed > 0 {
                block.owed -= 1;
                match block.answer(cx) {
                    Some(repair) => return Some(repair),
                    None => block.owed = 0,
                }
            }
            self.open.remove_news(first);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use tidewire_codec::Code;

    use super::*;
    use crate::redundancy::{InFlight, Report, context as any_context};

    fn context<'a>(report: &'a Report, in_flight: &[RepairInFlight]) -> CodingContext<'a> {
        CodingContext { in_flight: InFlight::of(in_flight), ..any_context(report, 0.1, 1.0, true) }
    }

    fn repair(first: u64, key: u16, on_feedback: bool) -> RepairInFlight {
        RepairInFlight { packet: key.into(), first: SourceId(first), count: 8, key, on_feedback }
    }

    /// Two blocks of eight symbols with ten repairs each.
    fn two_blocks() -> BlockAnswers {
        let mut answers = BlockAnswers::default();
        for first in [0, 8] {
            let closed = Closed { first: SourceId(first), count: 8, code: Code::Rlc16, repairs: 10 };
            answers.on_closed(&closed);
        }
        answers
    }

    fn keys(answers: &mut BlockAnswers, cx: &CodingContext<'_>) -> Vec<(u64, u16)> {
        let next = || match answers.next(cx) {
            Some(Repair::Coded { first, count: 8, row: Some(row), on_feedback: true }) => Some((first.0, row.key)),
            None => None,
            other => panic!("{other:?}"),
        };
        core::iter::from_fn(next).collect()
    }

    #[test]
    fn a_block_is_answered_when_what_is_under_way_cannot_suffice_and_with_new_keys() {
        let report = Report::default();
        let mut answers = two_blocks();
        assert_eq!(keys(&mut answers, &context(&report, &[])), [], "nothing was settled, nor perhaps sent");
        let flying: Vec<_> = (3..10).map(|key| repair(0, key, false)).collect();
        (0..2).for_each(|key| answers.on_repair_settled(&repair(0, key, false), false));
        answers.on_repair_settled(&repair(0, 2, false), true);
        assert_eq!(keys(&mut answers, &context(&report, &flying)), [], "seven are under way and seven are lacking");
        answers.on_repair_settled(&repair(0, 3, false), false);
        // Seven are lacking, six are under way, and a tenth is lost: two.
        assert_eq!(keys(&mut answers, &context(&report, &flying[1..])), [(0, 10), (0, 11)]);
        assert_eq!(keys(&mut answers, &context(&report, &flying[1..])), [], "each fate is answered once");
    }

    #[test]
    fn what_arrived_ends_a_block_as_does_a_report() {
        let mut answers = two_blocks();
        (0..8).for_each(|key| answers.on_repair_settled(&repair(0, key, false), true));
        answers.on_source_arrived(SourceId(9));
        (0..6).for_each(|key| answers.on_repair_settled(&repair(8, key, false), true));
        let known: Vec<_> = answers.open.iter().map(|block| block.known.packets()).collect();
        assert_eq!(known, [7]);
        let report = Report { edge: SourceId(16), serial: 1, ..Report::default() };
        assert_eq!(keys(&mut answers, &context(&report, &[])), []);
        assert!(answers.open.is_empty());
    }

    #[test]
    fn after_the_last_key_a_source_symbol_goes_itself() {
        let report = Report::default();
        let mut answers = BlockAnswers::default();
        let closed = Closed { first: SourceId(0), count: 250, code: Code::Cauchy, repairs: 6 };
        answers.on_closed(&closed);
        answers.on_repair_settled(&RepairInFlight { count: 250, ..repair(0, 0, false) }, false);
        let cx = CodingContext { lost: Some(SourceId(3)), ..context(&report, &[]) };
        assert_eq!(answers.next(&cx), Some(Repair::Resend(SourceId(3))));
    }
}
