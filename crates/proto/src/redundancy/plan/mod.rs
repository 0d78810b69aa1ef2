//! The planner of a lane computes how much proactive repair to send. Both policies of the default redundancy
//! read its decision.
//!
//! - *Application-limited*: the least share of repair with which the exact model predicts that few enough
//!   symbols are later than the target (`target.rs`). The target is the user's, or `default_target`.
//! - *Saturated*, and no target given: `p/(1-p)`, which replaces the lost packets, and a few percent more.
//!   Every further repair costs goodput.
//! - *Clean path*: no repair. The default redundancy is then plain ARQ.
//!
//! `super::Policies` owns the planner, because `adaptive` and `planned` read the same decision, and a plan
//! takes a millisecond to compute.

mod steady;
mod target;

use core::time::Duration;

use super::CodingContext;
use crate::Time;
use crate::path::{LossEstimate, correlation};

pub use steady::{SteadyPath, steady_share};
use target::{ASKED, plan_default};
pub use target::{Conditions, Nearest, Plan, Target, plan};

/// If the upper bound of the loss rate is below this, the path counts as clean. At 0.2 % loss, a repair per
/// 20 packets saves one round trip in 500 packets and costs 25 packets.
pub(super) const CLEAN: f64 = 0.002;
/// Number of packets with a known fate below which the loss estimate is too uncertain. Until then [`UNKNOWN`]
/// applies. If a packet was lost, fewer are enough ([`FEW`]), because a loss is stronger evidence than none.
const ENOUGH: f64 = 64.0;
const FEW: f64 = 8.0;
/// Share of proactive repair before the loss is known. Small, and raised on evidence. Chosen.
const UNKNOWN: f64 = 0.03;
/// Saturated flow: repair beyond what replaces the losses, as a fraction of the rate. Headers take 5.4 %, and
/// 0.90 of C(1 - p) should remain as goodput. docs/recovery.md measures the effect of these rules.
const EXCESS: f64 = 0.02;
/// The same excess if answers are sparing ([`is_dear`]). This excess already drains a deficit, so answers are
/// reduced by the same amount.
const SPARING_EXCESS: f64 = 0.03;
/// If the loss rate times [`correlation`] exceeds this, the receiver lacks something most of the time, and
/// answering all of it would cost more goodput than is acceptable (Gilbert 10 % x 4: 2.4 %). Chosen between
/// 10 % of independent losses (0.12) or 2 % in runs of 4 (0.14), where answers are cheap, and 20 % (0.3).
const DENSE: f64 = 0.2;
/// If a round trip has fewer source symbols than this, an answer arrives soon, and sparing answers cost
/// little delay (10 % at 10 ms, 25 Mbit/s, 21 symbols: they cost 2 ms and save 2.8 % of goodput). With 125
/// symbols, half of the delay comes from sparing answers. Chosen between the two.
const SHORT: u64 = 64;
/// The delay quantile that the default target bounds.
const QUANTILE: f64 = 0.99;
/// The default target on a path without loss, in round trips. It grows with the loss, because a given delay
/// then costs more repair. It is at most one round trip, which is the cost of an answer, and at least
/// [`TARGET_FLOOR`]. Chosen, see docs/recovery.md.
const TARGET: f64 = 0.1;
const TARGET_FLOOR: Duration = Duration::from_millis(5);
/// Growth of the default target, in round trips per unit of loss rate, multiplied by [`correlation`] for
/// bursts. From the sweep in docs/recovery.md: with it, delay and overhead both meet the goals for half load
/// at every loss rate from 1 % to 20 %, in bursts or not.
const TARGET_PER_LOSS: f64 = 2.0;
/// If symbols are far apart, the default target is at least this many symbol intervals, up to the time an
/// answer takes. A repair should mix several symbols; with too few in the interval it is a copy of each.
const SLOW: u32 = 8;
/// Least time between two plans for small changes of the path. A plan takes a millisecond or two to compute.
const PLAN_LIFE: Duration = Duration::from_millis(250);
/// A new plan is made only if some condition changed by more than this fraction.
const DRIFT: f64 = 0.1;
/// A change by more than this fraction means a different path. The least time between two plans is then
/// [`STEP_LIFE`].
const STEP: f64 = 0.5;
const STEP_LIFE: Duration = Duration::from_millis(40);
/// Source symbols between two reviews of the share. A review is cheap.
const REVIEW: u32 = 16;
/// A window of more symbols than this is long. The loss estimate then covers only a few milliseconds, and
/// symbols leave in bursts, so each review would give a noisy result. Chosen: twice the window of 25 Mbit/s
/// at 60 ms.
const LONG: u64 = 256;
/// Round trips until a packet's fate is known: FEEDBACK leaves a sixteenth later, and a loss is declared an
/// eighth later (docs/recovery.md section 1).
const SETTLED: f64 = 1.0 + 1.0 / 16.0 + 1.0 / 8.0;
/// Fraction of a long window over which the conditions are averaged. Chosen: the planner still follows a step
/// within a round trip.
const AVERAGED: f64 = 0.5;

/// The newest decision of the planner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Planned {
    /// Proactive repairs per source symbol.
    pub share: f64,
    /// True if the path limited the flow at the last review.
    pub saturated: bool,
    /// How the target is met. `None` on a clean or unknown path, and if the flow is saturated without a
    /// stated target.
    pub plan: Option<Plan>,
}

impl Planned {
    /// The state before the first decision.
    pub const NONE: Self = Self { share: 0.0, saturated: false, plan: None };
}

/// Computes the share of proactive repair of one lane; see the module.
#[derive(Debug)]
pub struct Planner {
    planned: Planned,
    /// When the plan was made.
    made: Time,
    since_review: u32,
    reviewed: bool,
    /// The averaged conditions of a long window; see [`Self::conditions`].
    seen: Option<Conditions>,
}

impl Default for Planner {
    fn default() -> Self {
        Self { planned: Planned::NONE, made: Time::ZERO, since_review: 0, reviewed: false, seen: None }
    }
}

impl Planner {
    /// Called when a source symbol was sent for the first time. Reviews the share after every few symbols.
    pub fn on_source_sent(&mut self, cx: &CodingContext<'_>) {
        self.since_review += 1;
        if !self.reviewed || self.since_review >= REVIEW {
            self.reviewed = true;
            self.since_review = 0;
            self.planned.saturated = cx.saturated;
            self.planned.share = self.share(cx);
        }
    }

    /// The newest decision.
    pub fn planned(&self) -> &Planned {
        &self.planned
    }

    /// Proactive repairs per source symbol.
    fn share(&mut self, cx: &CodingContext<'_>) -> f64 {
        let loss = &cx.loss;
        if loss.weight < ENOUGH && (loss.rate == 0.0 || loss.weight < FEW) {
            (self.planned.plan, self.seen) = (None, None);
            return UNKNOWN.min(cx.max_overhead);
        }
        if cx.target.is_none() && (loss.upper < CLEAN || self.planned.saturated) {
            (self.planned.plan, self.seen) = (None, None);
            let taken = if loss.upper < CLEAN { 0.0 } else { taken(loss) };
            let excess = if is_dear(cx) { SPARING_EXCESS } else { EXCESS };
            return (taken + excess.min(taken)).min(cx.max_overhead);
        }
        let conditions = self.conditions(cx);
        let holds = |plan: &Plan| {
            let differ = plan.conditions.difference(&conditions);
            let life = if differ > STEP { STEP_LIFE } else { PLAN_LIFE };
            differ <= DRIFT || cx.now.since(self.made) < life
        };
        if !self.planned.plan.as_ref().is_some_and(holds) {
            let plan = cx
                .target
                .map_or_else(|| plan_default(default_target(cx), conditions), |target| plan(target, conditions));
            (self.planned.plan, self.made) = (Some(plan), cx.now);
        }
        self.planned.plan.map_or(0.0, |plan| plan.share)
    }

    /// The inputs of a plan. In a long window they are averaged over part of the window.
    fn conditions(&mut self, cx: &CodingContext<'_>) -> Conditions {
        let window = cx.flying();
        let conditions = if window <= LONG {
            Conditions::new(&cx.loss, cx.rtt, cx.source_interval)
        } else {
            // Derive the interval from the number sent until a fate is known, so that a burst of the last few
            // does not matter.
            let now = Conditions::new(&cx.loss, cx.rtt, cx.rtt.mul_f64(SETTLED).div_f64(window as f64));
            self.seen.map_or(now, |seen| seen.towards(&now, f64::from(REVIEW) / (AVERAGED * window as f64)))
        };
        self.seen = Some(conditions);
        conditions
    }
}

/// The target if the user states none: a p99 of in-order delay of `round trip * min(1, 0.1 + 2 p (2 B - 1))`,
/// with the upper bound of the loss rate p and the mean burst B. At least 5 ms and [`SLOW`] source symbols.
fn default_target(cx: &CodingContext<'_>) -> Target {
    let round_trips = TARGET + TARGET_PER_LOSS * cx.loss.upper * correlation(cx.loss.burst);
    let slow = (cx.source_interval * SLOW).min(cx.rtt.mul_f64(ASKED));
    let latency = cx.rtt.mul_f64(round_trips.min(1.0)).max(TARGET_FLOOR).max(slow);
    Target { latency, deliver: QUANTILE, max_overhead: cx.max_overhead }
}

/// Repairs per source symbol that replace the lost packets: `p / (1 - p)`.
pub(super) fn taken(loss: &LossEstimate) -> f64 {
    loss.rate / (1.0 - loss.rate).max(0.1)
}

/// For a saturated flow: whether answering every deficit would cost too much goodput.
pub(super) fn is_dear(cx: &CodingContext<'_>) -> bool {
    cx.flying() < SHORT || cx.loss.rate * correlation(cx.loss.burst) > DENSE
}

/// P(Bin(n, p) > m): the probability that more than `m` of `n` packets are lost at loss rate `p`.
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
    use super::*;
    use crate::redundancy::{Report, context};

    /// The share after the first review.
    fn share(cx: &CodingContext<'_>) -> f64 {
        let mut planner = Planner::default();
        planner.on_source_sent(cx);
        planner.planned().share
    }

    #[test]
    fn share_grows_with_loss_and_bursts_and_is_zero_when_clean() {
        let report = Report::default();
        let of = |rate, burst| share(&context(&report, rate, burst, false));
        assert_eq!(of(0.0, 1.0), 0.0);
        let (low, high, bursty) = (of(0.02, 1.0), of(0.1, 1.0), of(0.1, 4.0));
        assert!(0.0 < low && low < high && high < bursty && bursty <= 0.5, "{low} {high} {bursty}");
    }

    #[test]
    fn saturated_it_is_what_the_loss_takes_and_a_little() {
        let report = Report::default();
        let saturated = share(&context(&report, 0.1, 1.0, true));
        assert!((saturated - (0.1 / 0.9 + EXCESS)).abs() < 1e-9, "{saturated}");
    }

    #[test]
    fn little_is_sent_on_no_evidence_and_a_loss_is_more_than_none() {
        let report = Report::default();
        let mut cx = context(&report, 0.0, 1.0, false);
        cx.loss.weight = ENOUGH - 1.0;
        assert_eq!(share(&cx), UNKNOWN);
        cx.loss = LossEstimate { rate: 0.1, upper: 0.25, deviation: 0.04, burst: 1.0, weight: 10.0 };
        assert!(share(&cx) > 0.2, "{}", share(&cx));
    }

    #[test]
    fn a_plan_lasts_while_the_path_is_the_same_and_little_longer() {
        let report = Report::default();
        let mut planner = Planner::default();
        let mut after = |cx: &mut CodingContext<'_>, wait: Duration, upper| {
            cx.now += wait;
            cx.loss.upper = upper;
            (0..REVIEW).for_each(|_| planner.on_source_sent(cx));
            planner.planned().share
        };
        let mut cx = context(&report, 0.05, 1.0, false);
        let first = after(&mut cx, Duration::ZERO, 0.06);
        // The planner follows drift after a quarter of a second, and a step after [`STEP_LIFE`].
        assert_eq!(after(&mut cx, Duration::ZERO, 0.08), first);
        assert_eq!(after(&mut cx, PLAN_LIFE, 0.063), first);
        let drifted = after(&mut cx, Duration::ZERO, 0.08);
        assert!(drifted > first);
        assert_eq!(after(&mut cx, Duration::ZERO, 0.2), drifted);
        assert!(after(&mut cx, STEP_LIFE, 0.2) > drifted);
    }

    #[test]
    fn binomial_tail_is_exact_on_small_cases() {
        assert!((more_than(0, 2, 0.5) - 0.75).abs() < 1e-12);
        assert!((more_than(1, 2, 0.5) - 0.25).abs() < 1e-12);
        assert_eq!(more_than(2, 2, 0.5), 0.0);
    }

    #[test]
    fn with_a_long_window_no_single_look_makes_a_plan() {
        let report = Report::default();
        let mut planner = Planner::default();
        let mut conditions = |cx: &mut CodingContext<'_>, upper, reviews| {
            cx.loss.upper = upper;
            for _ in 0..reviews * REVIEW {
                planner.on_source_sent(cx);
            }
            cx.now += PLAN_LIFE;
            planner.planned().plan.map(|plan| plan.conditions).expect("it plans at half load")
        };
        let mut cx = context(&report, 0.05, 1.0, false);
        (cx.settled, cx.sent) = (tidewire_codec::SourceId(1_000), tidewire_codec::SourceId(7_000));
        let before = conditions(&mut cx, 0.06, 1);
        assert_eq!(
            before.interval,
            Duration::from_nanos(11_875),
            "6,000 symbols in 71.25 ms, whatever the last few did"
        );
        assert_eq!(conditions(&mut cx, 0.12, 1), before);
        // After three halves of a window, enough time has passed for another plan.
        conditions(&mut cx, 0.12, 3 * 188);
        assert!(conditions(&mut cx, 0.12, 1).loss > 0.1, "a lasting change is followed");
    }
}
