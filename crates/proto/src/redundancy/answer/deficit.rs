//! Answers each reported deficit with the same number of repairs (paper K, K-A2). In generations, it answers
//! what each block lacks ([`BlockAnswers`]).
//!
//! The two rules below are public, so policies outside this crate can use them too.

use tidewire_codec::SourceId;

use super::blocks::BlockAnswers;
use super::{AnswerPolicy, RegionAnswers};
use crate::redundancy::{Closed, CodingContext, MAX_REGIONS, Repair, RepairInFlight};

/// Sends as many repairs as the deficit.
#[derive(Debug, Default)]
pub(crate) struct Deficit {
    regions: RegionAnswers,
    /// In a sliding lane no block is ever closed.
    blocks: Option<BlockAnswers>,
}

impl AnswerPolicy for Deficit {
    fn on_source_settled(&mut self, id: SourceId, arrived: bool) {
        self.on_resent_settled(id, arrived);
    }

    fn on_resent_settled(&mut self, id: SourceId, arrived: bool) {
        self.blocks.iter_mut().filter(|_| arrived).for_each(|blocks| blocks.on_source_arrived(id));
    }

    fn on_closed(&mut self, closed: &Closed) {
        self.blocks.get_or_insert_default().on_closed(closed);
    }

    fn on_repair_settled(&mut self, repair: &RepairInFlight, arrived: bool) {
        self.blocks.iter_mut().for_each(|blocks| blocks.on_repair_settled(repair, arrived));
    }

    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        if let Some(blocks) = &mut self.blocks {
            return blocks.next(cx);
        }
        resend_unseen(cx)
            .or_else(|| answer_deficit(cx, |missing| missing))
            .or_else(|| self.regions.next(cx, |missing| missing))
            .or_else(|| combine_unseen(cx))
    }
}

/// If this many consecutive symbols were lost, the cause is an outage, which repairs were not sized for. With
/// bursts of mean length 4, one burst in seven thousand is that long. Chosen.
const OUTAGE: u64 = 32;

/// Retransmits source symbols that were lost in an outage, or that lie beyond everything the peer has seen.
/// No reported deficit covers the latter. When a whole run is lost, retransmitted symbols deliver data
/// earlier than combinations do.
///
/// Retransmits every lost symbol if more symbols wait for the lowest gap than a report covers: answers to
/// reports would repair only one report's symbols in each round trip, however many were lost.
pub fn resend_unseen(cx: &CodingContext<'_>) -> Option<Repair> {
    let lost = cx.lost?;
    let run = cx.report.undecoded.iter().find(|run| run.contains(&lost));
    let outage = run.is_some_and(|run| run.end.0 - run.start.0 >= OUTAGE);
    (outage || lost >= cx.report.seen() || is_longer_than_report(cx)).then_some(Repair::Resend(lost))
}

/// Whether more symbols are settled from the lowest gap on than the regions of one report cover, each as long
/// as the longest span.
fn is_longer_than_report(cx: &CodingContext<'_>) -> bool {
    cx.settled.since(cx.base) > MAX_REGIONS as u64 * u64::from(cx.limits.max_span)
}

/// If source symbols are withheld, none is lost, and no reported deficit covers those beyond everything that
/// the peer has seen. Returns a combination of them, if fewer packets are under way for them than there are
/// symbols. Ask this last: a peer whose matrix is full of lower symbols refuses it.
pub(crate) fn combine_unseen(cx: &CodingContext<'_>) -> Option<Repair> {
    if !cx.limits.is_withheld {
        return None;
    }
    let first = cx.report.seen().max(cx.base);
    let count = cx.settled.since(first).min(cx.limits.max_span.into());
    let is_short = count > 0 && cx.under_way_for(first..first.plus(count)) < count;
    is_short.then_some(Repair::Coded { first, count: count as u16, row: None, on_feedback: true })
}

/// Returns a repair if the settled part of the window needs more symbols than the packets in flight will
/// bring.
///
/// `allow(missing)` returns how many repairs should be in flight for a span that lacks `missing` symbols.
/// Gaps are served span by span from the lowest up, so this also works for a window longer than one span.
pub fn answer_deficit(cx: &CodingContext<'_>, allow: impl Fn(u64) -> u64) -> Option<Repair> {
    let mut lacking = cx.report.settled_deficit(cx.settled);
    let mut gap = cx.report.first_gap(cx.settled)?;
    while lacking > 0 {
        let count = cx.gap_span(gap);
        let end = SourceId(gap.0 + u64::from(count));
        let missing = (cx.report.undecoded_below(end) - cx.report.undecoded_below(gap)).min(lacking);
        let allowed = allow(missing);
        // This runs for each packet, so repairs in flight are counted only if the result can matter.
        if allowed > 0 && gap >= cx.base && cx.under_way_for(gap..end) < allowed {
            return Some(Repair::Coded { first: gap, count, row: None, on_feedback: true });
        }
        lacking -= missing;
        gap = cx.report.undecoded.iter().find(|run| run.end > end).map(|run| run.start.max(end))?;
        if gap >= cx.settled {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redundancy::{Report, context};

    /// Every fourth of 4,000 settled symbols is lost. The regions of one report cover 63 spans.
    #[test]
    fn issue_39_losses_that_one_report_does_not_cover_are_sent_again() {
        let runs = (0..32).map(|n| SourceId(4 * n)..SourceId(4 * n + 1)).collect();
        let regions = vec![(SourceId(125)..SourceId(4_000), 968)];
        let report = Report { end: SourceId(125), deficit: 32, undecoded: runs, regions, ..Report::default() };
        for (span, is_covered) in [(1, false), (8, false), (63, false), (64, true), (256, true)] {
            let mut cx = context(&report, 0.25, 1.0, true);
            (cx.settled, cx.sent, cx.lost) = (SourceId(4_000), SourceId(4_100), Some(SourceId(0)));
            cx.limits.max_span = span;
            let answer = resend_unseen(&cx);
            assert_eq!(answer, (!is_covered).then_some(Repair::Resend(SourceId(0))), "spans of {span}");
        }
    }
}
