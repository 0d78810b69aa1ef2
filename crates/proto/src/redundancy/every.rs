//! The streaming code at a fixed rate: one repair after every `l - 1` source symbols, over the whole window (paper K, K-A1 to K-A3).
//!
//! Closed loop, the window's lower edge follows the peer's feedback and each reported deficit is answered by as many
//! repairs; open loop, only the edge moves. `l` is real: repairs are placed evenly, by accumulating `1/(l-1)` per source symbol.

use tidewire_codec::{Code, SourceId};

use super::{CodingContext, RedundancyPolicy, RegionAnswers, Repair};

/// One repair in `spacing` packets.
#[derive(Debug)]
pub struct Every {
    per_source: f64,
    due: f64,
    closed_loop: bool,
    regions: RegionAnswers,
}

impl Every {
    /// `spacing` > 1 packets per repair, the repair included.
    pub fn new(spacing: f64, closed_loop: bool) -> Self {
        Self { per_source: 1.0 / (spacing - 1.0), due: 0.0, closed_loop, regions: RegionAnswers::default() }
    }
}

impl RedundancyPolicy for Every {
    fn on_source_sent(&mut self, _cx: &CodingContext<'_>) {
        self.due += self.per_source;
    }

    fn next_repair(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        if self.closed_loop
            && let Some(repair) = resend_unseen(cx)
                .or_else(|| answer_deficit(cx, |missing| missing))
                .or_else(|| self.regions.next(cx, |missing| missing))
        {
            return Some(repair);
        }
        // Rounding must not delay the fifth repair of every:5 by a slot.
        if self.due + 1e-9 < 1.0 {
            return None;
        }
        let (first, count) = cx.newest_span(cx.max_span)?;
        self.due -= 1.0;
        Some(Repair::Coded { code: Code::Rlc, first, count, key: None, on_feedback: false })
    }
}

/// A run of so many symbols of which nothing arrived is an outage, and no loss that repairs were sent for: bursts of mean length 4 reach it once in
/// seven thousand. Chosen.
const OUTAGE: u64 = 32;

/// What was lost in an outage, or beyond all that the peer has seen, where no deficit tells of it: where nothing arrived a combination gives nothing that
/// the symbols themselves do not give earlier, one by one.
pub fn resend_unseen(cx: &CodingContext<'_>) -> Option<Repair> {
    let lost = cx.lost?;
    let run = cx.report.undecoded.iter().find(|run| run.contains(&lost));
    let outage = run.is_some_and(|run| run.end.0 - run.start.0 >= OUTAGE);
    (outage || lost >= cx.report.seen()).then_some(Repair::Resend(lost))
}

/// A repair for what the settled part of the window lacks beyond what is under way for it.
///
/// `allow(missing)` says how many repairs should be under way for a span that lacks `missing` symbols. Goes through the gaps
/// span by span from the lowest up, so that a window longer than one span is served too.
pub fn answer_deficit(cx: &CodingContext<'_>, allow: impl Fn(u64) -> u64) -> Option<Repair> {
    let mut lacking = cx.report.settled_deficit(cx.settled);
    let mut gap = cx.report.first_gap(cx.settled)?;
    while lacking > 0 {
        let count = cx.gap_span(gap);
        let end = SourceId(gap.0 + u64::from(count));
        let missing = (cx.report.undecoded_below(end) - cx.report.undecoded_below(gap)).min(lacking);
        let allowed = allow(missing);
        // What is under way is looked through only where that could matter: this is asked for each packet.
        if allowed > 0 && gap >= cx.base && cx.under_way_for(gap..end) < allowed {
            return Some(Repair::Coded { code: Code::Rlc, first: gap, count, key: None, on_feedback: true });
        }
        lacking -= missing;
        gap = cx.report.undecoded.iter().find(|run| run.end > end).map(|run| run.start.max(end))?;
        if gap >= cx.settled {
            return None;
        }
    }
    None
}
