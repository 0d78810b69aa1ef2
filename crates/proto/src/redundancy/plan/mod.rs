//! The planner of a lane: how much proactive repair there should be, for both policies of the default
//! redundancy.
//!
//! - *Application-limited*: the least share of repair with which the exact model predicts that few enough
//!   symbols are later than the target (`target.rs`): the user's, or `default_target`.
//! - *Saturated* and no target given: what the loss takes, `p/(1-p)`, and a few percent more; every repair
//!   beyond costs goodput.
//! - On a clean path: nothing. The default redundancy is then plain ARQ.
//!
//! `super::Policies` owns the planner, because `adaptive` and `planned` read the same decision and a plan
//! costs a millisecond.

mod steady;
mod target;

use core::time::Duration;

use super::CodingContext;
use crate::Time;
use crate::path::{LossEstimate, correlation};

pub use steady::{SteadyPath, steady_share};
use target::{ASKED, plan_default};
pub use target::{Conditions, Nearest, Plan, Target, plan};

/// Below this upper bound of the loss rate the path counts as clean: at 0.2 % a repair per 20 packets saves
/// one round trip in 500 packets and costs 25 packets for it.
pub(super) const CLEAN: f64 = 0.002;
/// Fewer fates than this say too little: until then [`UNKNOWN`] holds. A loss says more than none.
const ENOUGH: f64 = 64.0;
const FEW: f64 = 8.0;
/// Proactive share before anything is known: little, and more on evidence. Chosen.
const UNKNOWN: f64 = 0.03;
/// Saturated: repair beyond what the loss takes, as a fraction of the rate. Headers take 5.4 %, and 0.90 of
/// C(1 - p) is to be left. What these rules are worth is measured in docs/recovery.md.
const EXCESS: f64 = 0.02;
/// The same where answers are sparing ([`is_dear`]). It is also what drains a deficit without being asked: so
/// much is not answered, since both would be sent for the same loss.
const SPARING_EXCESS: f64 = 0.03;
/// From this rate of loss times [`correlation`] on something is lacking most of the time, and to answer all
/// of it would cost more goodput than there is to give (Gilbert 10 % x 4: 2.4 %). Between 10 % of independent
/// losses (0.12) or 2 % in runs of 4 (0.14), where answers are cheap, and 20 % (0.3).
const DENSE: f64 = 0.2;
/// With fewer source symbols than this in a round trip an answer comes soon, and being sparing with answers
/// costs little delay (10 % at 10 ms, 25 Mbit/s, 21 symbols: 2 ms, for 2.8 % of goodput). Chosen between that
/// and 125 symbols, where it costs half of the delay.
const SHORT: u64 = 64;
/// Predicted delay quantile that the default target bounds.
const QUANTILE: f64 = 0.99;
/// The default target in round trips: this much, and more where the loss makes a given delay dearer, but no
/// more than one, which is what asking costs; and no less than [`TARGET_FLOOR`]. Chosen, see
/// docs/recovery.md.
const TARGET: f64 = 0.1;
const TARGET_FLOOR: Duration = Duration::from_millis(5);
/// Round trips that the default target grows by per unit of loss, times [`correlation`] for bursts. From the
/// sweep in docs/recovery.md: with it delay and overhead both keep to the goals of half load at every loss
/// from 1 % to 20 %, in bursts or not.
const TARGET_PER_LOSS: f64 = 2.0;
/// Where symbols are far apart, the default target is so many of them at least, up to what asking takes: a
/// repair mixes some symbols, and with fewer between them it is a copy of each.
const SLOW: u32 = 8;
/// A plan costs a millisecond or two, so that a new one is made no more often than this, and only where what
/// it rests on has changed
const PLAN_LIFE: Duration = Duration::from_millis(250);
/// by more than this fraction,
const DRIFT: f64 = 0.1;
/// or sooner, where the change is so large that the path is another one.
const STEP: f64 = 0.5;
const STEP_LIFE: Duration = Duration::from_millis(40);
/// The share is worked out anew after this many source symbols: cheap enough to be exact about.
const REVIEW: u32 = 16;
/// A window of more symbols than this is long. The memory of the loss estimate is then a few milliseconds and
/// symbols leave by bursts, so that each review would see something else. Chosen: twice what 25 Mbit/s takes
/// at 60 ms.
const LONG: u64 = 256;
/// Round trips until a packet's fate is known: FEEDBACK leaves a sixteenth later, and a loss is believed an
/// eighth later (docs/recovery.md section 1).
const SETTLED: f64 = 1.0 + 1.0 / 16.0 + 1.0 / 8.0;
/// The part of a long window over which what is seen is averaged. Chosen: a step is still followed within a
/// round trip.
const AVERAGED: f64 = 0.5;

/// What the planner decided last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Planned {
    /// Proactive repairs per source symbol.
    pub share: f64,
    /// The flow was limited by the path at the last review.
    pub saturated: bool,
    /// How a target is met; `None` on a clean or unknown path, and where the flow is saturated without a
    /// stated target.
    pub plan: Option<Plan>,
}

impl Planned {
    /// Nothing decided.
    pub const NONE: Self = Self { share: 0.0, saturated: false, plan: None };
}

/// See the module.
#[derive(Debug)]
pub struct Planner {
    planned: Planned,
    /// When the plan was made.
    made: Time,
    since_review: u32,
    reviewed: bool,
    /// See [`Self::conditions`].
    seen: Option<Conditions>,
}

impl Default for Planner {
    fn default() -> Self {
        Self { planned: Planned::NONE, made: Time::ZERO, since_review: 0, reviewed: false, seen: None }
    }
}

impl Planner {
    /// A source symbol was sent for the first time: now and then the share is worked out anew.
    pub fn on_source_sent(&mut self, cx: &CodingContext<'_>) {
        self.since_review += 1;
        if !self.reviewed || self.since_review >= REVIEW {
            self.reviewed = true;
            self.since_review = 0;
            self.planned.saturated = cx.saturated;
            self.planned.share = self.share(cx);
        }
    }

    /// What it decided last.
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

    /// What a plan rests on; of a long window what is seen over some of it.
    fn conditions(&mut self, cx: &CodingContext<'_>) -> Conditions {
        let window = cx.flying();
        let conditions = if window <= LONG {
            Conditions::new(&cx.loss, cx.rtt, cx.source_interval)
        } else {
            // So many were sent in the time until a fate is known, whatever the last few did.
            let now = Conditions::new(&cx.loss, cx.rtt, cx.rtt.mul_f64(SETTLED).div_f64(window as f64));
            self.seen.map_or(now, |seen| seen.towards(&now, f64::from(REVIEW) / (AVERAGED * window as f64)))
        };
        self.seen = Some(conditions);
        conditions
    }
}

/// What is aimed at where the user says nothing: a p99 of in-order delay of `round trip * min(1, 0.1 + 2 p (2
/// B - 1))` with the upper bound of the loss rate p and the mean burst B; at least 5 ms and [`SLOW`] source
/// symbols.
fn default_target(cx: &CodingContext<'_>) -> Target {
    let round_trips = TARGET + TARGET_PER_LOSS * cx.loss.upper * correlation(cx.loss.burst);
    let slow = (cx.source_interval * SLOW).min(cx.rtt.mul_f64(ASKED));
    let latency = cx.rtt.mul_f64(round_trips.min(1.0)).max(TARGET_FLOOR).max(slow);
    Target { latency, deliver: QUANTILE, max_overhead: cx.max_overhead }
}

/// Repairs per source symbol that the loss takes: `p / (1 - p)`.
pub(super) fn taken(loss: &LossEstimate) -> f64 {
    loss.rate / (1.0 - loss.rate).max(0.1)
}

/// Saturated: whether to answer all that is lacking would cost too much goodput.
pub(super) fn is_dear(cx: &CodingContext<'_>) -> bool {
    cx.flying() < SHORT || cx.loss.rate * correlation(cx.loss.burst) > DENSE
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
    use super::*;
    use crate::redundancy::{Report, context};

    /// What is decided at the first review.
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
        // Drift is followed after a quarter of a second, a step at the next moment.
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
        assert_eq!(before.interval, Duration::from_nanos(11_875), "6,000 in 71.25 ms, whatever the last few did");
        assert_eq!(conditions(&mut cx, 0.12, 1), before);
        // Three halves of a window; then there is time for another plan.
        conditions(&mut cx, 0.12, 3 * 188);
        assert!(conditions(&mut cx, 0.12, 1).loss > 0.1, "what lasts is believed");
    }
}
