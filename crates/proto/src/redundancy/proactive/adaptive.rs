//! The proactive half of the default redundancy: sends as much repair as the planner computes, evenly spaced,
//! and protects the tail.
//!
//! When source symbols pause, the *tail* (the symbols since the last repair) gets enough repairs to be
//! decodable with high probability. While answers are sparing, each answer cancels one proactive repair as
//! soon as the peer has no deficit, because both are paid from one budget.
//!
//! In every second, proactive repairs are at most `max_overhead` times the source symbols ([`super::cap`]).

use super::ProactivePolicy;
use super::cap::Cap;
use crate::Time;
use crate::redundancy::answer::is_sparing;
use crate::redundancy::plan::more_than;
use crate::redundancy::tuning::CLEAN_BOUND;
use crate::redundancy::tuning::{MAX_DEBT, MOST_DUE, TAIL_RISK};
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
        self.cap.on_source(cx.now, cx.limits.max_overhead);
        self.due = (self.due + cx.planned.share).min(MOST_DUE);
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
        if !self.cap.allows(cx.now, cx.limits.max_overhead) {
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
        let tail = self.unprotected.min(u32::from(cx.limits.max_span));
        let risk = cx.limits.target.map_or(TAIL_RISK, |target| TAIL_RISK.min(1.0 - target.deliver));
        let wait = cx.limits.target.map_or(cx.pause(), |target| cx.pause().min(target.latency / 4));
        (self.tail_sent < tail_repairs(cx.path.loss.rate, tail, risk)).then(|| cx.flow.last + wait)
    }
}

/// The least `m` such that more than `m` losses among the `tail + m` packets are less likely than `risk`.
/// Zero if the path loses almost nothing.
fn tail_repairs(loss: f64, tail: u32, risk: f64) -> u32 {
    if loss < CLEAN_BOUND {
        return 0;
    }
    (1..=tail).find(|&m| more_than(m, tail + m, loss) < risk).unwrap_or(tail)
}

#[cfg(test)]
mod tests {
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
        assert_eq!(tail_repairs(0.0, 10, TAIL_RISK), 0);
        assert_eq!(tail_repairs(0.1, 1, TAIL_RISK), 1);
        for tail in 1..40 {
            let m = tail_repairs(0.1, tail, TAIL_RISK);
            assert!(m <= tail && (m == tail || more_than(m, tail + m, 0.1) < TAIL_RISK));
        }
    }
}
