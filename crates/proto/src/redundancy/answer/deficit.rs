//! Each deficit that the peer reports is answered by as many repairs (paper K, K-A2).
//!
//! The two rules below are public: a policy from outside can use them too.

use tidewire_codec::SourceId;

use super::{AnswerPolicy, RegionAnswers};
use crate::redundancy::{CodingContext, Repair};

/// Answers each deficit in full.
#[derive(Debug, Default)]
pub struct Deficit {
    regions: RegionAnswers,
}

impl AnswerPolicy for Deficit {
    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        resend_unseen(cx)
            .or_else(|| answer_deficit(cx, |missing| missing))
            .or_else(|| self.regions.next(cx, |missing| missing))
    }
}

/// A run of so many symbols of which nothing arrived is an outage, and not a loss that repairs were sent for:
/// bursts of mean length 4 reach it once in seven thousand. Chosen.
const OUTAGE: u64 = 32;

/// Sends source symbols again that were lost in an outage or beyond all that the peer has seen, where no
/// deficit tells of them: where nothing arrived, the symbols one by one give data earlier than combinations
/// do.
pub fn resend_unseen(cx: &CodingContext<'_>) -> Option<Repair> {
    let lost = cx.lost?;
    let run = cx.report.undecoded.iter().find(|run| run.contains(&lost));
    let outage = run.is_some_and(|run| run.end.0 - run.start.0 >= OUTAGE);
    (outage || lost >= cx.report.seen()).then_some(Repair::Resend(lost))
}

/// A repair for what the settled part of the window lacks beyond what is under way for it.
///
/// `allow(missing)` says how many repairs should be under way for a span that lacks `missing` symbols. The
/// gaps are served span by span from the lowest up, so that a window longer than one span is served too.
pub fn answer_deficit(cx: &CodingContext<'_>, allow: impl Fn(u64) -> u64) -> Option<Repair> {
    let mut lacking = cx.report.settled_deficit(cx.settled);
    let mut gap = cx.report.first_gap(cx.settled)?;
    while lacking > 0 {
        let count = cx.gap_span(gap);
        let end = SourceId(gap.0 + u64::from(count));
        let missing = (cx.report.undecoded_below(end) - cx.report.undecoded_below(gap)).min(lacking);
        let allowed = allow(missing);
        // What is under way is counted only where that could matter: this runs for each packet.
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
