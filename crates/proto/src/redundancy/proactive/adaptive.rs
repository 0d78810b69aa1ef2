//! The proactive half of the default redundancy: sends as much repair as the planner computes, evenly spaced,
//! and protects the tail.
//!
//! When source symbols pause, the *tail* (the symbols since the last repair) gets enough repairs to be
//! decodable with high probability. While answers are sparing, each answer cancels one proactive repair as
//! soon as the peer has no deficit, because both are paid from one budget.
//!
//! A *lone* symbol has long pauses on both sides. It is a tail of its own, so its repairs come soon, and
//! are copies of it. They may exceed the default cap, because a flow of lone symbols has few bytes.
//!
//! In every second, all other proactive repairs are at most `max_overhead` times the source symbols; in every
//! four seconds on a lane with important messages ([`super::cap`]).

use super::ProactivePolicy;
use super::cap::Cap;
use crate::Time;
use crate::redundancy::plan::{is_sparing, more_than};
use crate::redundancy::tuning::CLEAN_BOUND;
use crate::redundancy::tuning::{LONE_FRACTION, LONE_LEAST, LONE_PER_SECOND, LONE_REPAIRS, MAX_DEBT, MOST_DUE};
use crate::redundancy::tuning::{TAIL_FRACTION, TAIL_RISK};
use crate::redundancy::{CodingContext, Repair};

/// Sends the share of repair that the planner computes; see the module.
#[derive(Debug, Default)]
pub struct Adaptive {
    due: f64,
    /// Proactive repairs still to be cancelled because answers were sent in their place.
    debt: u32,
    cap: Cap,
    /// Source symbols since the last repair over the newest span.
    unprotected: u32,
    tail_sent: u32,
    /// The cap refused a repair of the tail. Cleared when source symbols earn more.
    tail_refused: bool,
}

impl ProactivePolicy for Adaptive {
    fn on_source_sent(&mut self, cx: &CodingContext<'_>) {
        if cx.flow.important {
            self.cap.lengthen();
        }
        self.cap.on_source(cx.now, cx.limits.max_overhead);
        // The repairs of a lone symbol are those of its tail.
        self.due = if is_lone(cx) { 0.0 } else { (self.due + cx.planned.share).min(MOST_DUE) };
        self.unprotected = self.unprotected.saturating_add(1);
        (self.tail_sent, self.tail_refused) = (0, false);
    }

    fn on_answer(&mut self, cx: &CodingContext<'_>, answer: &Repair) {
        // Answers to regions beyond the named runs are not sparing.
        if let Repair::Coded { first, .. } = *answer
            && first < cx.report.end
            && is_sparing(cx)
        {
            self.debt = (self.debt + 1).min(MAX_DEBT);
        }
    }

    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        let (first, count) = cx.newest_span(cx.limits.max_span)?;
        if self.due >= 1.0 && self.debt > 0 && cx.report.deficit == 0 {
            self.due -= 1.0;
            self.debt -= 1;
        }
        let is_tail = self.due < 1.0;
        if is_tail && self.tail_due(cx).is_none_or(|at| at > cx.now) {
            return None;
        }
        let is_exempt = is_tail && cx.limits.protects_lone && is_lone(cx);
        let is_allowed = is_exempt && self.cap.repairs(cx.now) < LONE_PER_SECOND;
        if !is_allowed && !self.cap.allows(cx.now, cx.limits.max_overhead) {
            self.tail_refused = true;
            return None;
        }
        self.cap.on_repair(cx.now);
        if is_tail {
            self.tail_sent += 1;
        } else {
            self.due -= 1.0;
            self.unprotected = 0;
        }
        Some(Repair::Coded { first, count, row: None, on_feedback: false })
    }

    fn poll_timeout(&self, cx: &CodingContext<'_>) -> Option<Time> {
        self.tail_due(cx)
    }
}

impl Adaptive {
    /// When the next tail repair is due; `None` if the tail needs no more repairs.
    fn tail_due(&self, cx: &CodingContext<'_>) -> Option<Time> {
        if cx.flow.backlog || self.tail_refused || self.unprotected == 0 || cx.base >= cx.sent {
            return None;
        }
        let lacking = u32::try_from(cx.sent.0 - cx.base.0).unwrap_or(u32::MAX).min(cx.limits.max_span.into());
        let tail = self.unprotected.min(lacking);
        let risk = cx.limits.target.map_or(TAIL_RISK, |target| TAIL_RISK.min(1.0 - target.deliver));
        let wait = if is_lone(cx) { cx.path.rtt / TAIL_FRACTION } else { cx.pause() };
        let wait = cx.limits.target.map_or(wait, |target| wait.min(target.latency / 4));
        let (loss, most) = if is_lone(cx) { (cx.path.loss.upper, LONE_REPAIRS) } else { (cx.path.loss.rate, tail) };
        (self.tail_sent < tail_repairs(loss, tail, most, risk)).then(|| cx.flow.last + wait)
    }
}

/// Whether no other symbol is expected while a tail waits for its repairs.
fn is_lone(cx: &CodingContext<'_>) -> bool {
    cx.flow.interval > (cx.path.rtt / LONE_FRACTION).max(LONE_LEAST)
}

/// The least `m`, at most `most`, such that more than `m` losses among the `tail + m` packets are less likely
/// than `risk`. Zero if the path loses almost nothing.
fn tail_repairs(loss: f64, tail: u32, most: u32, risk: f64) -> u32 {
    if loss < CLEAN_BOUND {
        return 0;
    }
    (1..=most).find(|&m| more_than(m, tail + m, loss) < risk).unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::redundancy::{Report, context};

    #[test]
    fn a_tail_that_the_cap_refuses_asks_for_no_more_time() {
        let report = Report::default();
        let mut cx = context(&report, 0.1, 1.0, false);
        cx.limits.max_overhead = 0.0;
        let mut policy = Adaptive::default();
        policy.on_source_sent(&cx);
        cx.now = policy.poll_timeout(&cx).expect("the tail is not protected");
        assert_eq!((policy.next(&cx), policy.poll_timeout(&cx)), (None, None));
    }

    #[test]
    fn tail_repairs_are_few_and_enough() {
        assert_eq!(tail_repairs(0.0, 10, 10, TAIL_RISK), 0);
        assert_eq!(tail_repairs(0.1, 1, 1, TAIL_RISK), 1);
        for tail in 1..40 {
            let m = tail_repairs(0.1, tail, tail, TAIL_RISK);
            assert!(m <= tail && (m == tail || more_than(m, tail + m, 0.1) < TAIL_RISK));
        }
    }

    #[test]
    fn a_lone_symbol_gets_its_repairs_soon_and_beyond_the_default_cap_only() {
        let report = Report::default();
        let mut cx = context(&report, 0.1, 1.0, false);
        cx.flow.interval = Duration::from_millis(200);
        let repairs = |cx: &mut CodingContext<'_>, symbols| {
            let mut policy = Adaptive::default();
            let mut sent = 0;
            for _ in 0..symbols {
                (cx.now, cx.flow.last) = (cx.now + cx.flow.interval, cx.now + cx.flow.interval);
                (cx.base, cx.sent) = (cx.sent, cx.sent.next());
                policy.on_source_sent(cx);
                assert_eq!(policy.next(cx), None, "no sooner than an eighth of a round trip");
                cx.now += cx.path.rtt / TAIL_FRACTION;
                while policy.next(cx).is_some() {
                    sent += 1;
                }
            }
            sent
        };
        assert_eq!(repairs(&mut cx, 10), 20, "two for each of ten");
        cx.limits.protects_lone = false;
        assert!(repairs(&mut cx, 10) <= 5, "the cap of 0.5 that the user stated");
        cx.limits.protects_lone = true;
        cx.flow.interval = Duration::from_millis(31);
        assert_eq!(repairs(&mut cx, 25), LONE_PER_SECOND, "25 symbols in less than a second want 50");
    }
}
