//! The proactive half of the default redundancy: as much repair as the planner finds, evenly placed, and a
//! tail.
//!
//! When the sources pause, the *tail* gets as many repairs as make it likely that it can be decoded. Where
//! answers are sparing, each of them leaves out one proactive repair as soon as nothing is lacking, because
//! both come out of one budget.
//!
//! Over no second is there more proactive repair than `max_overhead` of the source symbols ([`super::cap`]).

use super::ProactivePolicy;
use super::cap::Cap;
use crate::Time;
use crate::redundancy::answer::is_sparing;
use crate::redundancy::plan::{CLEAN, more_than};
use crate::redundancy::{CodingContext, Repair};

/// Proactive repairs that sparing answers may leave out at most. Chosen.
const MAX_DEBT: u32 = 32;
/// Probability that a tail stays undecoded after its repairs.
const TAIL_RISK: f64 = 0.01;
/// A pause is a tail after this fraction of a round trip.
const TAIL_FRACTION: u32 = 8;
/// Repairs that may wait for a slot: what an idle moment of the path makes good, and no burst.
const MOST_DUE: f64 = 4.0;

/// See the module.
#[derive(Debug, Default)]
pub struct Adaptive {
    due: f64,
    /// Proactive repairs to be left out for answers that were sent.
    debt: u32,
    cap: Cap,
    /// Source symbols since the last repair over the newest span.
    unprotected: u32,
    tail_sent: u32,
    /// The cap allows no repair of the tail, until sources earn more.
    tail_refused: bool,
}

impl ProactivePolicy for Adaptive {
    fn on_source_sent(&mut self, cx: &CodingContext<'_>) {
        self.cap.on_source(cx.now, cx.max_overhead);
        self.due = (self.due + cx.planned.share).min(MOST_DUE);
        self.unprotected = self.unprotected.saturating_add(1);
        (self.tail_sent, self.tail_refused) = (0, false);
    }

    fn on_answer(&mut self, cx: &CodingContext<'_>, answer: &Repair) {
        // Answers to regions beyond what the report names are not sparing.
        if let Repair::Coded { first, .. } = *answer
            && first < cx.report.end
            && is_sparing(cx)
        {
            self.debt = (self.debt + 1).min(MAX_DEBT);
        }
    }

    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        let (first, count) = cx.newest_span(cx.max_span)?;
        if self.due >= 1.0 && self.debt > 0 && cx.report.deficit == 0 {
            self.due -= 1.0;
            self.debt -= 1;
        }
        let is_tail = self.due < 1.0;
        if is_tail && self.tail_due(cx).is_none_or(|at| at > cx.now) {
            return None;
        }
        if !self.cap.allows(cx.now, cx.max_overhead) {
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
    /// When the next tail repair is due, if the tail needs one more.
    fn tail_due(&self, cx: &CodingContext<'_>) -> Option<Time> {
        if cx.backlog || self.tail_refused || self.unprotected == 0 || cx.base >= cx.sent {
            return None;
        }
        let tail = self.unprotected.min(u32::from(cx.max_span));
        let risk = cx.target.map_or(TAIL_RISK, |target| TAIL_RISK.min(1.0 - target.deliver));
        let wait = (cx.rtt / TAIL_FRACTION).max(cx.source_interval * 5 / 4).min(cx.rtt / 2);
        let wait = cx.target.map_or(wait, |target| wait.min(target.latency / 4));
        (self.tail_sent < tail_repairs(cx.loss.rate, tail, risk)).then(|| cx.last_source + wait)
    }
}

/// Fewest repairs `m` after `tail` source symbols so that more than `m` losses among the `tail + m` packets
/// are unlikelier than `risk`; none where the path loses next to nothing.
fn tail_repairs(loss: f64, tail: u32, risk: f64) -> u32 {
    if loss < CLEAN {
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
        cx.max_overhead = 0.0;
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
