//! The planner of a lane computes how much proactive repair to send. Both policies of the default redundancy
//! read its decision.
//!
//! - *Application-limited*: the least share of repair with which the exact model predicts that few enough
//!   symbols are later than the target (`target.rs`). The target is the user's, or `default_target`.
//!   For messages that are delivered as soon as each is complete it is a longer one, `complete_target`.
//! - *Saturated*, and no target given: `p/(1-p)`, which replaces the lost packets, and a few percent more.
//!   Every further repair costs goodput.
//! - *Clean path*: no repair. The default redundancy is then plain ARQ.
//!
//! `super::Policies` owns the planner, because `adaptive` and `planned` read the same decision, and a plan
//! takes a millisecond to compute.

mod complete;
mod important;
mod steady;
mod target;

use super::CodingContext;
use crate::Time;
use crate::path::{LossEstimate, correlation};

use crate::redundancy::tuning::{
    ASKED, AVERAGED, CLEAN_BOUND, COMPLETE_QUANTILE, COMPLETE_TARGET, DENSE, DRIFT, ENOUGH, EXCESS, FEW, LONG,
    PLAN_LIFE, QUANTILE, REVIEW, SETTLED, SHORT, SLOW, SPARING_EXCESS, STEP, STEP_LIFE, TARGET, TARGET_FLOOR,
    TARGET_PER_LOSS, UNKNOWN, UNKNOWN_DEADLINE,
};
pub(crate) use complete::plan_complete;
use important::Importance;
pub use steady::{SteadyPath, steady_share};
use target::plan_default;
pub use target::{Conditions, Nearest, Plan, Target, plan};

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
    /// When the plan was made, and whether it is for delivery in order.
    made: Time,
    in_order: bool,
    since_review: u32,
    reviewed: bool,
    /// The averaged conditions of a long window; see [`Self::conditions`].
    seen: Option<Conditions>,
    importance: Importance,
}

impl Default for Planner {
    fn default() -> Self {
        Self {
            planned: Planned::NONE,
            made: Time::ZERO,
            in_order: true,
            since_review: 0,
            reviewed: false,
            seen: None,
            importance: Importance::default(),
        }
    }
}

impl Planner {
    /// Called when a source symbol was sent for the first time. Reviews the share after every few symbols.
    pub fn on_source_sent(&mut self, cx: &CodingContext<'_>) {
        self.since_review += 1;
        let changed = self.importance.on_source(cx.flow.important);
        if changed || !self.reviewed || self.since_review >= REVIEW {
            self.reviewed = true;
            self.since_review = 0;
            self.planned.saturated = cx.path.saturated;
            self.planned.share = self.share(cx);
        }
    }

    /// The newest decision.
    pub fn planned(&self) -> &Planned {
        &self.planned
    }

    /// Proactive repairs per source symbol.
    fn share(&mut self, cx: &CodingContext<'_>) -> f64 {
        let loss = &cx.path.loss;
        if loss.weight < ENOUGH && (loss.rate == 0.0 || loss.weight < FEW) {
            (self.planned.plan, self.seen) = (None, None);
            let has_deadlines = cx.limits.target.is_some() && !cx.flow.in_order;
            return if has_deadlines { UNKNOWN_DEADLINE } else { UNKNOWN }.min(cx.limits.max_overhead);
        }
        if cx.limits.target.is_none() && (loss.upper < CLEAN_BOUND || self.planned.saturated) {
            (self.planned.plan, self.seen) = (None, None);
            let taken = if loss.upper < CLEAN_BOUND { 0.0 } else { taken(loss) };
            let excess = if is_dear(cx) { SPARING_EXCESS } else { EXCESS };
            return (taken + excess.min(taken)).min(cx.limits.max_overhead);
        }
        let conditions = self.conditions(cx);
        let holds = |plan: &Plan| {
            let differ = plan.conditions.difference(&conditions);
            let life = if differ > STEP { STEP_LIFE } else { PLAN_LIFE };
            (differ <= DRIFT && self.in_order == cx.flow.in_order) || cx.now.since(self.made) < life
        };
        if !self.planned.plan.as_ref().is_some_and(holds) {
            let stated = if cx.flow.in_order { plan } else { plan_complete };
            let plan = cx
                .limits
                .target
                .map_or_else(|| plan_default(default_target(cx), conditions), |target| stated(target, conditions));
            (self.planned.plan, self.made, self.in_order) = (Some(plan), cx.now, cx.flow.in_order);
            self.importance.on_plan(&plan);
        }
        self.planned.plan.map_or(0.0, |plan| self.importance.share(&plan))
    }

    /// The inputs of a plan. In a long window they are averaged over part of the window.
    fn conditions(&mut self, cx: &CodingContext<'_>) -> Conditions {
        let window = cx.flying();
        let conditions = if window <= LONG {
            Conditions::new(&cx.path.loss, cx.path.rtt, cx.flow.interval)
        } else {
            // Derive the interval from the number sent until a fate is known, so that a burst of the last few
            // does not matter.
            let now = Conditions::new(&cx.path.loss, cx.path.rtt, cx.path.rtt.mul_f64(SETTLED).div_f64(window as f64));
            self.seen.map_or(now, |seen| seen.towards(&now, f64::from(REVIEW) / (AVERAGED * window as f64)))
        };
        self.seen = Some(conditions);
        conditions
    }
}

/// The target if the user states none: a p99 of in-order delay of `round trip * min(1, 0.1 + 2 p (2 B - 1))`,
/// with the upper bound of the loss rate p and the mean burst B. At least 5 ms and [`SLOW`] source symbols.
fn default_target(cx: &CodingContext<'_>) -> Target {
    if !cx.flow.in_order {
        return complete_target(cx);
    }
    let round_trips = TARGET + TARGET_PER_LOSS * cx.path.loss.upper * correlation(cx.path.loss.burst);
    let slow = (cx.flow.interval * SLOW).min(cx.path.rtt.mul_f64(ASKED));
    let latency = cx.path.rtt.mul_f64(round_trips.min(1.0)).max(TARGET_FLOOR).max(slow);
    Target { latency, deliver: QUANTILE, max_overhead: cx.limits.max_overhead }
}

/// The target of a lane whose messages are delivered as soon as each is complete, if the user states none.
/// Only lost symbols wait there, and no symbols behind them. A repair helps if it comes before the answer to
/// the peer's feedback, which takes a round trip.
fn complete_target(cx: &CodingContext<'_>) -> Target {
    let latency = cx.path.rtt.mul_f64(COMPLETE_TARGET).max(TARGET_FLOOR);
    Target { latency, deliver: COMPLETE_QUANTILE, max_overhead: cx.limits.max_overhead }
}

/// Repairs per source symbol that replace the lost packets: `p / (1 - p)`.
pub(super) fn taken(loss: &LossEstimate) -> f64 {
    loss.rate / (1.0 - loss.rate).max(0.1)
}

/// For a saturated flow: whether answering every deficit would cost too much goodput.
pub(super) fn is_dear(cx: &CodingContext<'_>) -> bool {
    cx.flying() < SHORT || cx.path.loss.rate * correlation(cx.path.loss.burst) > DENSE
}

/// Whether answers are reduced by the deficit that the running proactive repairs will drain. This is so if
/// the flow is saturated, has no plan, and answering everything would cost too much goodput.
pub(super) fn is_sparing(cx: &CodingContext<'_>) -> bool {
    cx.planned.plan.is_none() && cx.planned.saturated && is_dear(cx)
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
    use core::time::Duration;

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
    fn delivery_as_complete_needs_less_and_a_change_of_order_makes_another_plan() {
        let report = Report::default();
        for (rate, burst) in [(0.02, 1.0), (0.05, 1.0), (0.1, 1.0), (0.05, 4.0)] {
            let mut cx = context(&report, rate, burst, false);
            let mut planner = Planner::default();
            let mut review = |in_order| {
                (cx.flow.in_order, cx.now) = (in_order, cx.now + PLAN_LIFE);
                (0..REVIEW).for_each(|_| planner.on_source_sent(&cx));
                planner.planned().share
            };
            let (first, complete, again) = (review(true), review(false), review(true));
            assert!(rate < complete && complete < first && first == again, "{rate}: {first} {complete} {again}");
        }
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
        cx.path.loss.weight = ENOUGH - 1.0;
        assert_eq!(share(&cx), UNKNOWN);
        cx.path.loss = LossEstimate { rate: 0.1, upper: 0.25, deviation: 0.04, burst: 1.0, weight: 10.0 };
        assert!(share(&cx) > 0.2, "{}", share(&cx));
    }

    #[test]
    fn a_plan_lasts_while_the_path_is_the_same_and_little_longer() {
        let report = Report::default();
        let mut planner = Planner::default();
        let mut after = |cx: &mut CodingContext<'_>, wait: Duration, upper| {
            cx.now += wait;
            cx.path.loss.upper = upper;
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
            cx.path.loss.upper = upper;
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
