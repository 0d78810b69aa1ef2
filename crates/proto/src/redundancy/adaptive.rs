//! The first adaptive policy: the streaming code at a spacing chosen from what is measured.
//!
//! - *Application-limited*: the widest spacing whose predicted p99 of in-order delay stays under a target, from the model of the
//!   streaming code at the upper confidence bound of the loss rate: a tenth of the round trip and more with the loss (see `target`).
//! - *Saturated*: what the loss takes, `p/(1-p)`, and a few percent more: every repair beyond costs goodput.
//! - *Feedback*: what the settled part of the window lacks is repaired at once, less what is under way for it and is not
//!   needed by newer losses. Application-limited, with a margin against the loss of repairs; saturated, less what the running
//!   repairs drain anyway, and each answer leaves out one proactive repair when next nothing is lacking.
//! - *With a target* of the user's: the least proactive repair that the exact model says is needed for it ([`super::target`]), and answers
//!   whose margin it bears.
//! - *Tail*: when the sources pause, as many repairs as make it likely that the tail can be decoded.
//! - On a clean path nothing is sent before it is asked for: the policy is then plain ARQ.
//!
//! Proactive repair never exceeds `max_overhead` of the source packets (a token bucket).

use core::time::Duration;

use tidewire_codec::Code;

use super::every::{answer_deficit, resend_unseen};
use super::target::{Conditions, Plan, plan};
use super::{CodingContext, RedundancyPolicy, Repair, Target};
use crate::Time;
use crate::model::approximate;
use crate::path::{LossEstimate, correlation};

/// Below this upper bound of the loss rate the path counts as clean: at 0.2 % a repair per 20 packets saves one round trip in 500
/// packets and costs 25 packets for it.
const CLEAN: f64 = 0.002;
/// From this loss rate on an answer carries a margin.
const LOSSY: f64 = 0.005;
/// Fewer fates than this say too little: until then [`UNKNOWN`] holds.
const ENOUGH: f64 = 64.0;
/// Proactive share before anything is known ("start near 0-3 %, grow on evidence": USERS.md complaint 2).
const UNKNOWN: f64 = 0.03;
/// Saturated: repair beyond what the loss takes, as a fraction of the rate (DESIGN section 6 allows 5 %; headers take 5.4 %, and 0.90 of C(1 - p)
/// is to be left). It is also what drains a deficit without being asked: so much is not answered, since both would be sent for the same loss.
/// What these rules are worth is measured in docs/recovery.md.
const EXCESS: f64 = 0.03;
/// Saturated, each answer to a deficit leaves out one proactive repair, when next nothing is lacking: both come out of one budget. At most this many
/// are owed.
const MAX_DEBT: u32 = 32;
/// Predicted delay quantile that the target bounds.
const QUANTILE: f64 = 0.99;
/// Target when none is given, in round trips: this much (DESIGN section 6), and more where the loss makes a given delay dearer, but no more than
/// one, which is what asking costs; and no less than [`TARGET_FLOOR`].
const TARGET: f64 = 0.1;
const TARGET_FLOOR: Duration = Duration::from_millis(5);
/// Round trips that the target grows by per unit of loss, times [`correlation`] for bursts. From the sweep in docs/recovery.md: with it
/// delay and overhead both keep to the goals of half load at every loss from 1 % to 20 %, in bursts or not.
const TARGET_PER_LOSS: f64 = 1.5;
/// The delay under bursts of mean length B is about this times (2B - 1) of the iid delay (catalogue of paper K: 3.7 at B = 2, 9.7 at 4, R = 0.8).
const BURST_FACTOR: f64 = 1.3;
/// Probability that a tail stays undecoded after its repairs.
const TAIL_RISK: f64 = 0.01;
/// A pause is a tail after this fraction of a round trip.
const TAIL_FRACTION: u32 = 8;
/// Depth of the token bucket in packets (DESIGN section 6).
const BURST_TOKENS: f64 = 4.0;
/// A plan for a target costs some milliseconds, so that it is made anew no more often than this, and only where what it rests on has changed.
const PLAN_LIFE: Duration = Duration::from_millis(250);
/// Spacing is worked out anew after this many source symbols: cheap enough to be exact about.
const REVIEW: u32 = 16;

/// See the module.
#[derive(Debug, Default)]
pub struct Adaptive {
    /// Proactive repairs per source symbol.
    share: f64,
    due: f64,
    /// Proactive repairs to be left out for answers that were sent.
    debt: u32,
    tokens: f64,
    since_review: u32,
    reviewed: bool,
    saturated: bool,
    /// Source symbols since the last repair over the newest span.
    unprotected: u32,
    tail_sent: u32,
    /// For the target, and when it was made.
    plan: Option<(Time, Plan)>,
}

impl RedundancyPolicy for Adaptive {
    fn on_source_sent(&mut self, cx: &CodingContext<'_>) {
        self.since_review += 1;
        if !self.reviewed || self.since_review >= REVIEW {
            self.reviewed = true;
            self.since_review = 0;
            self.saturated = cx.saturated || cx.backlog;
            self.share = match cx.target {
                Some(target) if cx.loss.weight >= ENOUGH => self.share_for(target, cx),
                _ => share(cx, self.saturated),
            };
        }
        self.tokens = (self.tokens + cx.max_overhead).min(BURST_TOKENS);
        self.due = (self.due + self.share).min(BURST_TOKENS);
        self.unprotected = self.unprotected.saturating_add(1);
        self.tail_sent = 0;
    }

    fn next_repair(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        if let Some(repair) = resend_unseen(cx).or_else(|| self.answer(cx)) {
            return Some(repair);
        }
        let (first, count) = cx.newest_span(cx.max_span)?;
        if self.due >= 1.0 && self.debt > 0 && cx.report.deficit == 0 {
            self.due -= 1.0;
            self.debt -= 1;
        }
        if self.due >= 1.0 && self.tokens >= 1.0 {
            self.due -= 1.0;
            self.tokens -= 1.0;
            self.unprotected = 0;
            return Some(Repair::Coded { code: Code::Rlc, first, count, key: None, on_feedback: false });
        }
        if self.tail_due(cx).is_some_and(|at| at <= cx.now) && self.tokens >= 1.0 {
            self.tail_sent += 1;
            self.tokens -= 1.0;
            return Some(Repair::Coded { code: Code::Rlc, first, count, key: None, on_feedback: false });
        }
        None
    }

    fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref().map(|(_, plan)| plan)
    }

    fn poll_timeout(&self, cx: &CodingContext<'_>) -> Option<Time> {
        if self.tokens < 1.0 { None } else { self.tail_due(cx) }
    }
}

impl Adaptive {
    /// Proactive repairs per source symbol for a target.
    fn share_for(&mut self, target: Target, cx: &CodingContext<'_>) -> f64 {
        let conditions = Conditions::new(&cx.loss, cx.rtt, cx.source_interval);
        let holds = |&(at, plan): &(Time, Plan)| {
            cx.now.since(at) < PLAN_LIFE || (plan.target == target && !plan.conditions.differ(&conditions))
        };
        if !self.plan.as_ref().is_some_and(holds) {
            self.plan = Some((cx.now, plan(target, conditions)));
        }
        self.plan.map_or(0.0, |(_, plan)| plan.share)
    }

    /// A repair for a reported deficit.
    fn answer(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        if let Some((_, plan)) = self.plan {
            return answer_deficit(cx, |missing| plan.answers(missing));
        }
        if !self.saturated {
            return answer_deficit(cx, |missing| with_margin(missing, cx.loss.rate));
        }
        // What the running repairs bring within a round trip beyond what its losses take.
        let excess = (self.share - taken(&cx.loss)).max(0.0);
        let drained = excess * cx.sent.0.saturating_sub(cx.settled.0) as f64;
        let answer = answer_deficit(cx, |missing| missing.saturating_sub(drained as u64))?;
        self.debt = (self.debt + 1).min(MAX_DEBT);
        Some(answer)
    }

    /// When the next tail repair is due, if the tail needs one more.
    fn tail_due(&self, cx: &CodingContext<'_>) -> Option<Time> {
        if cx.backlog || self.unprotected == 0 || cx.base >= cx.sent {
            return None;
        }
        let tail = self.unprotected.min(u32::from(cx.max_span));
        let risk = cx.target.map_or(TAIL_RISK, |target| TAIL_RISK.min(1.0 - target.deliver));
        let wait = cx.target.map_or(cx.rtt / TAIL_FRACTION, |target| (cx.rtt / TAIL_FRACTION).min(target.latency / 4));
        (self.tail_sent < tail_repairs(cx.loss.rate, tail, risk)).then(|| cx.last_source + wait)
    }
}

/// Proactive repairs per source symbol.
fn share(cx: &CodingContext<'_>, saturated: bool) -> f64 {
    let loss = &cx.loss;
    if loss.weight < ENOUGH {
        return UNKNOWN.min(cx.max_overhead);
    }
    if loss.upper < CLEAN {
        return 0.0;
    }
    if saturated {
        let taken = taken(loss);
        return (taken + EXCESS.min(taken)).min(cx.max_overhead);
    }
    let target = target(cx.rtt, loss);
    let interval = cx.source_interval.as_secs_f64().max(1e-6);
    let burst = if loss.burst > 1.2 { BURST_FACTOR * correlation(loss.burst) } else { 1.0 };
    least_share(cx.max_overhead, |share| {
        let spacing = 1.0 + 1.0 / share;
        // A slot is the time of one packet, repairs included.
        let slot = interval / (1.0 + share);
        approximate::quantile(loss.upper, spacing, QUANTILE) * slot * burst <= target.as_secs_f64()
    })
}

/// The p99 of in-order delay that is aimed at: `round trip * min(1, 0.1 + 1.5 p (2 B - 1))`, at least 5 ms, with the upper bound of the loss rate p and
/// the mean burst B.
fn target(rtt: Duration, loss: &LossEstimate) -> Duration {
    let round_trips = TARGET + TARGET_PER_LOSS * loss.upper * correlation(loss.burst);
    rtt.mul_f64(round_trips.min(1.0)).max(TARGET_FLOOR)
}

/// Repairs per source symbol that the loss takes: `p / (1 - p)`.
fn taken(loss: &LossEstimate) -> f64 {
    loss.rate / (1.0 - loss.rate).max(0.1)
}

/// The least share up to `cap` that is good enough, by bisection (more repair never delays more); `cap` when none is.
fn least_share(cap: f64, enough: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, cap);
    for _ in 0..10 {
        let middle = (low + high) / 2.0;
        if enough(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

/// Repairs to have under way for `missing` symbols: as many as arrive on average, and one more on a lossy path, so that the
/// loss of one does not cost another round trip ("redundancy on the retransmission": catalogue part 2.3).
fn with_margin(missing: u64, loss: f64) -> u64 {
    if loss < LOSSY { missing } else { (missing as f64 / (1.0 - loss).max(0.1)).ceil() as u64 + 1 }
}

/// Fewest repairs `m` after `tail` source symbols so that more than `m` losses among the `tail + m` packets are unlikelier
/// than `risk`; none where the path loses next to nothing.
fn tail_repairs(loss: f64, tail: u32, risk: f64) -> u32 {
    if loss < CLEAN {
        return 0;
    }
    (1..=tail).find(|&m| more_than(m, tail + m, loss) < risk).unwrap_or(tail)
}

/// P(Bin(n, p) > m).
pub(super) fn more_than(m: u32, n: u32, p: f64) -> f64 {
    let odds = p / (1.0 - p);
    let mut term = (1.0 - p).powi(n as i32);
    let mut at_most = term;
    for k in 0..m.min(n) {
        term *= odds * f64::from(n - k) / f64::from(k + 1);
        at_most += term;
    }
    (1.0 - at_most).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::super::{RepairInFlight, Report};
    use super::*;
    use tidewire_codec::SourceId;

    fn context(report: &Report, rate: f64, burst: f64, saturated: bool) -> CodingContext<'_> {
        CodingContext {
            now: Time::from_millis(1_000),
            base: SourceId(0),
            settled: SourceId(0),
            sent: SourceId(100),
            report,
            lost: None,
            in_flight: &[],
            loss: LossEstimate { rate, upper: rate * 1.2, burst, weight: 512.0 },
            rtt: Duration::from_millis(60),
            backlog: false,
            saturated,
            source_interval: Duration::from_micros(960),
            last_source: Time::from_millis(1_000),
            max_span: 256,
            max_overhead: 0.5,
            target: None,
        }
    }

    #[test]
    fn share_grows_with_loss_and_bursts_and_is_zero_when_clean() {
        let report = Report::default();
        let of = |rate, burst, saturated| share(&context(&report, rate, burst, saturated), saturated);
        assert_eq!(of(0.0, 1.0, false), 0.0);
        let (low, high, bursty) = (of(0.02, 1.0, false), of(0.1, 1.0, false), of(0.1, 4.0, false));
        assert!(0.0 < low && low < high && high < bursty && bursty <= 0.5, "{low} {high} {bursty}");
        let saturated = of(0.1, 1.0, true);
        assert!((saturated - (0.1 / 0.9 + EXCESS)).abs() < 1e-9, "{saturated}");
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

    #[test]
    fn binomial_tail_is_exact_on_small_cases() {
        assert!((more_than(0, 2, 0.5) - 0.75).abs() < 1e-12);
        assert!((more_than(1, 2, 0.5) - 0.25).abs() < 1e-12);
        assert_eq!(more_than(2, 2, 0.5), 0.0);
    }

    #[test]
    fn a_settled_deficit_is_answered_with_a_margin_and_no_more() {
        let gap = SourceId(10)..SourceId(12);
        let report = Report { edge: gap.start, end: SourceId(100), deficit: 2, undecoded: vec![gap] };
        let answer = RepairInFlight { packet: 0, first: SourceId(10), count: 40, on_feedback: true };
        let flying = [answer; 4];
        for under_way in 0..=4 {
            let mut cx = context(&report, 0.1, 1.0, true);
            (cx.base, cx.settled, cx.in_flight) = (SourceId(10), SourceId(50), &flying[..under_way]);
            let wanted =
                Repair::Coded { code: Code::Rlc, first: SourceId(10), count: 40, key: None, on_feedback: true };
            let got = Adaptive::default().next_repair(&cx);
            assert_eq!(got, (under_way < 4).then_some(wanted), "{under_way} under way");
        }
    }
}
