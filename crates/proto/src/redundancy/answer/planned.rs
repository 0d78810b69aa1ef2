//! Answers with the planner's margin: the feedback half of the default policy.
//!
//! - With a plan for a target, each answer carries as many spare repairs as the target needs.
//! - If the flow is saturated and has no stated target, every repair costs goodput. If losses are then dense
//!   or round trips short, answers are reduced by the deficit that the running proactive repairs will drain
//!   anyway.

use tidewire_codec::SourceId;

use super::{AnswerPolicy, RegionAnswers, answer_deficit, combine_unseen, resend_unseen};
use crate::redundancy::plan::{is_sparing, taken};
use crate::redundancy::tuning::{ANSWER_LONG, ANSWER_LOOKS, ANSWER_SURE};
use crate::redundancy::{CodingContext, Repair, Report};

/// Answers reported deficits with the margin of the planner; see the module.
#[derive(Debug, Default)]
pub struct AsPlanned {
    /// The situation of the last scan, if that scan found nothing to answer.
    nothing_due: Option<Situation>,
    regions: RegionAnswers,
}

/// The main inputs of an answer. The loss of an answer is not among them: the next scan, a fraction of the
/// window later, detects it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Situation {
    edge: SourceId,
    end: SourceId,
    deficit: u64,
    settled: SourceId,
    /// Compared with a tolerance, see [`Self::is_still`].
    sent: SourceId,
}

impl Situation {
    fn of(cx: &CodingContext<'_>) -> Self {
        let Report { edge, end, deficit, .. } = *cx.report;
        Self { edge, end, deficit, settled: cx.settled, sent: cx.sent }
    }

    /// Whether the next scan can wait: the window is long, only a small part of it was sent since `before`,
    /// and nothing else changed.
    fn is_still(&self, before: &Self) -> bool {
        let window = self.sent.0.saturating_sub(self.settled.0);
        let is_little = window > ANSWER_LONG && self.sent.0 - before.sent.0 < window / ANSWER_LOOKS;
        is_little && *self == Self { sent: self.sent, ..*before }
    }
}

impl AnswerPolicy for AsPlanned {
    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        resend_unseen(cx)
            .or_else(|| self.answer_if_due(cx))
            .or_else(|| self.answer_region(cx))
            .or_else(|| combine_unseen(cx))
    }
}

impl AsPlanned {
    /// Returns a repair for a reported deficit. Scans only if an answer can have become due.
    fn answer_if_due(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        let now = Situation::of(cx);
        if self.nothing_due.is_some_and(|before| now.is_still(&before)) {
            return None;
        }
        let answer = answer(cx);
        self.nothing_due = answer.is_none().then_some(now);
        answer
    }

    /// Returns a repair for a region beyond the runs that the report names.
    fn answer_region(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        let deviations = if cx.planned.plan.is_some() { ANSWER_SURE } else { 1.0 };
        self.regions.next(cx, |missing| arriving(missing, cx.path.loss.rate, deviations))
    }
}

/// Returns a repair for a reported deficit.
fn answer(cx: &CodingContext<'_>) -> Option<Repair> {
    if let Some(plan) = &cx.planned.plan {
        return answer_deficit(cx, |missing| plan.answers(missing, cx.oldest));
    }
    if !is_sparing(cx) {
        return answer_deficit(cx, |missing| missing);
    }
    // The surplus that the running proactive repairs bring within a round trip, beyond their share for
    // losses.
    let excess = (cx.planned.share - taken(&cx.path.loss)).max(0.0);
    let drained = excess * cx.flying() as f64;
    answer_deficit(cx, |missing| missing.saturating_sub(drained as u64))
}

/// The number of repairs of which `missing` arrive on average, plus `deviations` standard deviations. Without
/// the margin, half of the regions would need another answer, a round trip later.
fn arriving(missing: u64, loss: f64, deviations: f64) -> u64 {
    let (missing, arrives) = (missing as f64, (1.0 - loss).max(0.1));
    ((missing + deviations * (missing * loss).sqrt()) / arrives).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redundancy::{InFlight, Planner, RepairInFlight, context};

    /// The context after the planner has reviewed it.
    fn planned<'a>(cx: &CodingContext<'a>, planner: &'a mut Planner) -> CodingContext<'a> {
        planner.on_source_sent(cx);
        CodingContext { planned: planner.planned(), ..*cx }
    }

    #[test]
    fn saturated_answers_are_full_where_they_cost_little() {
        let gap = SourceId(0)..SourceId(2);
        let report =
            Report { edge: gap.start, end: SourceId(200), deficit: 2, undecoded: vec![gap], ..Report::default() };
        let answered = |rate, burst, flying: u64| {
            let mut cx = context(&report, rate, burst, true);
            (cx.sent, cx.settled) = (SourceId(200), SourceId(200 - flying));
            let mut planner = Planner::default();
            AsPlanned::default().next(&planned(&cx, &mut planner)).is_some()
        };
        assert!(answered(0.1, 1.1, 125), "with 125 in flight, 3 % would drain three of them");
        assert!(!answered(0.1, 4.0, 125), "losses in bursts are dense: the running repairs drain the deficit");
        assert!(answered(0.1, 1.1, 20), "the running repairs drain little within a short round trip");
    }

    #[test]
    fn with_a_long_window_what_is_not_due_is_looked_at_again_a_little_later() {
        let gap = SourceId(10)..SourceId(12);
        let report = Report {
            edge: gap.start,
            end: SourceId(100),
            deficit: 2,
            undecoded: vec![gap.clone()],
            ..Report::default()
        };
        let answers = [RepairInFlight { packet: 0, first: gap.start, count: 40, key: 0, on_feedback: true }; 4];
        let (mut policy, mut planner) = (AsPlanned::default(), Planner::default());
        let mut is_answered = |report, sent, in_flight: &[RepairInFlight]| {
            let mut cx = context(report, 0.1, 1.0, false);
            (cx.base, cx.settled, cx.sent, cx.in_flight) =
                (SourceId(10), SourceId(50), SourceId(sent), InFlight::of(in_flight));
            policy.next(&planned(&cx, &mut planner)).is_some()
        };
        let few = &answers[..2];
        // 1,000 symbols are in flight: the next scan comes 15 symbols later, or when the report changes.
        assert!(!is_answered(&report, 1_050, &answers) && !is_answered(&report, 1_064, few));
        assert!(is_answered(&report, 1_065, few) && is_answered(&report, 1_065, few));
        assert!(!is_answered(&report, 1_065, &answers));
        let worse = Report { deficit: 6, undecoded: vec![SourceId(10)..SourceId(16)], ..report.clone() };
        assert!(is_answered(&worse, 1_066, &answers));
    }

    #[test]
    fn a_settled_deficit_is_answered_with_a_margin_and_no_more() {
        let gap = SourceId(10)..SourceId(12);
        let report =
            Report { edge: gap.start, end: SourceId(100), deficit: 2, undecoded: vec![gap], ..Report::default() };
        let answer = RepairInFlight { packet: 0, first: SourceId(10), count: 40, key: 0, on_feedback: true };
        let flying = [answer; 4];
        for under_way in 0..=4 {
            let mut cx = context(&report, 0.1, 1.0, false);
            (cx.base, cx.settled, cx.in_flight) = (SourceId(10), SourceId(50), InFlight::of(&flying[..under_way]));
            let wanted = Repair::Coded { first: SourceId(10), count: 40, row: None, on_feedback: true };
            let mut planner = Planner::default();
            let got = AsPlanned::default().next(&planned(&cx, &mut planner));
            assert_eq!(got, (under_way < 3).then_some(wanted), "{under_way} under way");
        }
    }
}
