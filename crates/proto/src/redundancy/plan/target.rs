//! Computes the plan for a target: the least proactive repair with which few enough symbols are later than
//! the target's latency.
//!
//! [`super::Planner`] calls it with the user's target ([`crate::config::Config::latency`]) or the default
//! target. It is pure: the same path and target give the same [`Plan`]. [`tidewire_model::gilbert`] predicts
//! the in-order delay, exactly for a path whose losses match the estimate. An answer repairs a symbol after
//! about one round trip, so a target longer than that needs no proactive repair.

use core::fmt;
use core::time::Duration;

use tidewire_model::gilbert::{self, Gilbert};

use crate::path::{LossEstimate, correlation};
use crate::redundancy::tuning::{
    ASKED, ASKED_LATE, ASKED_SYMBOLS, LEAST_RISK, MOST_RISK, MOST_ROUNDS, NEAR, SPARE, TRIALS,
};

/// A latency target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// Longest allowed in-order delay, beyond the one-way time of the path.
    pub latency: Duration,
    /// Fraction of symbols that must meet the latency, below 1.
    pub deliver: f64,
    /// Upper limit of proactive repairs per source symbol.
    pub max_overhead: f64,
}

/// The path conditions that a plan is computed from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// Loss rate. Plans use the upper bound of the estimate.
    pub loss: f64,
    /// Mean number of consecutive lost packets.
    pub burst: f64,
    /// Smoothed round trip.
    pub rtt: Duration,
    /// Mean time between source symbols.
    pub interval: Duration,
}

/// How much repair to send for a target, and the predicted result.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// The target of the plan.
    pub target: Target,
    /// True if the user stated the target; false if it is the default target.
    pub stated: bool,
    /// The conditions that it was computed from.
    pub conditions: Conditions,
    /// Proactive repairs per source symbol.
    pub share: f64,
    /// Predicted fraction of symbols that are later than the target's latency.
    pub late: f64,
    /// Fraction of symbols that are waiting when an answer arrives. If the answer falls short, these symbols
    /// are late by another round trip.
    asking: f64,
    /// Most repairs of an answer that are there because one run of losses may take them.
    pub(super) spare: f64,
    /// The nearest feasible targets, if the target is not feasible.
    pub nearest: Option<Nearest>,
}

/// The nearest feasible targets, if the target is not feasible. Each field alone makes it feasible.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nearest {
    /// The latency that the requested fraction of symbols can meet.
    pub latency: Duration,
    /// The fraction of symbols that can meet the requested latency.
    pub deliver: f64,
    /// The overhead with which the target is feasible, if 100 % or less suffices.
    pub max_overhead: Option<f64>,
}

impl Conditions {
    pub(super) fn new(loss: &LossEstimate, rtt: Duration, interval: Duration) -> Self {
        let loss_rate = loss.upper.min(0.9);
        // Runs of independent losses have a mean length of 1/(1-p).
        let burst = loss.burst.max(1.0 / (1.0 - loss_rate));
        Self { loss: loss_rate, burst, rtt, interval: interval.max(Duration::from_micros(1)) }
    }

    /// The largest relative difference over all fields.
    pub(super) fn difference(&self, other: &Self) -> f64 {
        let part = |a: f64, b: f64| (a - b).abs() / a.max(b).max(f64::MIN_POSITIVE);
        let times = part(self.rtt.as_secs_f64(), other.rtt.as_secs_f64())
            .max(part(self.interval.as_secs_f64(), other.interval.as_secs_f64()));
        part(self.loss, other.loss).max(part(self.burst, other.burst)).max(times)
    }

    /// Moves the losses and the interval towards those of `other` by the fraction `part`, from 0 to 1. The
    /// round trip is copied, because it is an average already.
    pub(super) fn towards(&self, other: &Self, part: f64) -> Self {
        let between = |from: f64, to: f64| from + part * (to - from);
        let interval = between(self.interval.as_secs_f64(), other.interval.as_secs_f64());
        Self {
            loss: between(self.loss, other.loss),
            burst: between(self.burst, other.burst),
            rtt: other.rtt,
            interval: Duration::from_secs_f64(interval),
        }
    }

    /// In-order delay of a lost symbol that the first answer repairs.
    pub(crate) fn asked(&self) -> Duration {
        self.rtt.mul_f64(ASKED) + self.interval.mul_f64(ASKED_SYMBOLS)
    }

    /// Fraction of symbols later than `latency` if every loss is repaired by an answer. If `latency` is
    /// shorter than an answer takes, these are the symbols that wait behind a gap. If it is longer, each
    /// further round of answers is as rare as the first, among the symbols that need it.
    fn asked_late(&self, latency: Duration) -> f64 {
        let asked = self.asked();
        let Some(waits) = asked.checked_sub(latency).filter(|waits| !waits.is_zero()) else {
            let rounds = (latency.as_secs_f64() / asked.as_secs_f64()).floor();
            return (ASKED_LATE * correlation(self.burst)).min(1.0).powf(rounds).min(self.loss);
        };
        self.behind_gaps(waits).max(self.loss).min(1.0)
    }

    /// Expected number of symbols, per symbol sent, that are sent within `time` after the first packet of a
    /// gap.
    fn behind_gaps(&self, time: Duration) -> f64 {
        self.loss / self.burst * time.as_secs_f64() / self.interval.as_secs_f64()
    }

    /// Fraction of symbols that are waiting when an answer arrives: those behind a gap, but at most those
    /// that the code alone would deliver later.
    pub(super) fn asking(&self, share: f64) -> f64 {
        let asked = self.asked();
        let behind_gaps = self.behind_gaps(asked);
        if share > 0.0 { behind_gaps.min(self.late(share, asked)) } else { behind_gaps }
    }

    /// Seconds per packet, with `share` repairs per source symbol.
    fn slot(&self, share: f64) -> f64 {
        self.interval.as_secs_f64() / (1.0 + share)
    }

    /// Fraction of symbols later than `latency` if no loss is answered. Takes about 0.1 ms to compute.
    pub(super) fn late(&self, share: f64, latency: Duration) -> f64 {
        gilbert::late(self.loss, self.burst, 1.0 + 1.0 / share.max(1e-9), latency.as_secs_f64() / self.slot(share))
    }
}

/// Computes the least share that meets a stated target under these conditions, at most the cap of the target.
/// If the cap is too low, the plan names the nearest feasible targets. Takes a millisecond or two; 10 if the
/// target is not feasible.
pub fn plan(target: Target, conditions: Conditions) -> Plan {
    let plan = least_plan(target, conditions);
    let nearest = (plan.late > 1.0 - target.deliver).then(|| nearest(&target, &conditions, plan.late));
    Plan { stated: true, nearest, ..plan }
}

/// Computes the plan for the default target. If that target is not feasible, the share is the cap, and no
/// nearest target is computed. Rare losses get no proactive repair, however many symbols wait behind them:
/// 0.1 % loss in runs of four would need a repair in every five packets.
pub(super) fn plan_default(target: Target, conditions: Conditions) -> Plan {
    if conditions.loss <= (1.0 - target.deliver) / 2.0 {
        return asking_plan(target, conditions);
    }
    least_plan(target, conditions)
}

/// A plan without proactive repair: every loss is repaired by an answer.
fn asking_plan(target: Target, conditions: Conditions) -> Plan {
    let (late, asking) = (conditions.asked_late(target.latency), conditions.asking(0.0));
    Plan { target, stated: false, conditions, share: 0.0, late, asking, spare: SPARE, nearest: None }
}

fn least_plan(target: Target, conditions: Conditions) -> Plan {
    let allowed = 1.0 - target.deliver;
    let asked = asking_plan(target, conditions);
    // If answers take longer than the target's latency, keep half of the allowed fraction as a margin. The
    // estimate omits gaps that need more than one answer.
    if asked.late <= allowed / 2.0 || (target.latency >= conditions.asked() && asked.late <= allowed) {
        return asked;
    }
    let coded = |share, late| Plan { share, late, asking: conditions.asking(share), ..asked };
    let late = |share| conditions.late(share, target.latency);
    let at_cap = late(target.max_overhead);
    if at_cap > allowed {
        return coded(target.max_overhead, at_cap);
    }
    let (share, late) = least((0.0, 1.0), (target.max_overhead, at_cap), allowed, late);
    coded(share, late)
}

fn nearest(target: &Target, conditions: &Conditions, at_cap: f64) -> Nearest {
    let cap = target.max_overhead;
    let spacing = (1.0 + 1.0 / cap.max(1e-9)) as u32;
    let coded = Gilbert::new(conditions.loss, conditions.burst, spacing).ok();
    let slots = coded.and_then(|code| code.quantile(target.deliver)).unwrap_or(f64::INFINITY);
    let coded = Duration::try_from_secs_f64(slots * conditions.slot(cap)).unwrap_or(Duration::MAX);
    let (allowed, late) = (1.0 - target.deliver, |share| conditions.late(share, target.latency));
    let most = late(1.0);
    let max_overhead = (most <= allowed).then(|| least((cap, at_cap), (1.0, most), allowed, late).0);
    // Rounds of answers until few enough symbols are late.
    let asked = (1..=MOST_ROUNDS).map(|rounds| conditions.asked() * rounds);
    let asked = asked.into_iter().find(|&latency| conditions.asked_late(latency) <= 1.0 - target.deliver);
    Nearest { latency: coded.min(asked.unwrap_or(Duration::MAX)), deliver: 1.0 - at_cap, max_overhead }
}

/// Finds the least share that leaves at most `allowed` late. `low` is a share that leaves too much late, and
/// `high` is one that does not, each with its late fraction. Returns a share and its late fraction. The late
/// fraction falls about exponentially with the share, so the search interpolates its logarithm (regula falsi
/// with the Illinois rule: an end that stays twice is given half its weight).
pub(super) fn least(low: (f64, f64), high: (f64, f64), allowed: f64, late: impl Fn(f64) -> f64) -> (f64, f64) {
    let excess = |late: f64| (late.max(f64::MIN_POSITIVE) / allowed).ln() + NEAR / 2.0;
    let (mut low, mut above, mut best, mut below) = (low.0, excess(low.1), high, excess(high.1));
    let mut last_was_enough = None;
    for _ in 0..TRIALS {
        if best.1 >= allowed * (1.0 - NEAR) || best.0 <= low {
            break;
        }
        let share = low + (best.0 - low) * above / (above - below);
        let late = late(share);
        let is_enough = late <= allowed;
        let stays = if last_was_enough == Some(is_enough) { 0.5 } else { 1.0 };
        if is_enough {
            (best, below, above) = ((share, late), excess(late), above * stays);
        } else {
            (low, above, below) = (share, excess(late), below * stays);
        }
        last_was_enough = Some(is_enough);
    }
    best
}

impl Plan {
    /// A plan of [`super::complete`] for a stated target. `asking` is the fraction of symbols that wait when
    /// an answer arrives.
    pub(super) fn complete(target: Target, conditions: Conditions, share: f64, late: f64, asking: f64) -> Self {
        Self { target, stated: true, conditions, share, late, asking, spare: SPARE, nearest: None }
    }

    /// The number of repairs that should be in flight for `missing` symbols, the oldest of which has waited
    /// for `waited`. It is the smallest number that falls short no more often than the target allows.
    ///
    /// An answer that falls short needs another answer, and all symbols behind the gap wait for that round
    /// trip. While there is time for further rounds, each answer may fall short more often. The nearer the
    /// deadline, the more repairs are sent.
    pub(in crate::redundancy) fn answers(&self, missing: u64, waited: Duration) -> u64 {
        let Conditions { loss, burst, .. } = self.conditions;
        let left = self.target.latency.saturating_sub(waited).as_secs_f64() / self.conditions.asked().as_secs_f64();
        let rounds = left.floor().clamp(1.0, f64::from(MOST_ROUNDS));
        let risk =
            ((1.0 - self.target.deliver) / self.asking.max(1e-9)).powf(1.0 / rounds).clamp(LEAST_RISK, MOST_RISK);
        let missing = missing as u32;
        let spread = (0..=missing + 8).find(|&more| super::more_than(more, missing + more, loss) <= risk);
        // All repairs that are sent together may be lost in one burst.
        let one_burst = if burst > 1.0 / (1.0 - loss) { (risk / loss).ln() / (1.0 - 1.0 / burst).ln() } else { 0.0 };
        u64::from(missing)
            + u64::from(spread.unwrap_or(missing + 8)).max(one_burst.clamp(0.0, self.spare).ceil() as u64)
    }

    /// A plan that was made elsewhere or before, as one in a recording: it says the same as the original.
    pub fn restored(target: Target, conditions: Conditions, share: f64, late: f64, nearest: Option<Nearest>) -> Self {
        Self { target, stated: false, conditions, share, late, asking: 0.0, spare: SPARE, nearest }
    }

    /// Whether two plans send about the same repair.
    pub fn is_like(&self, other: &Self) -> bool {
        let near = (self.share - other.share).abs() <= 0.02f64.max(self.share.max(other.share) / 4.0);
        near && self.nearest.is_some() == other.nearest.is_some() && (self.share == 0.0) == (other.share == 0.0)
    }
}

impl fmt::Display for Plan {
    /// Writes one sentence: what is sent and why, or why the target is not feasible and which targets are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Conditions { loss, burst, rtt, .. } = self.conditions;
        let Target { latency, deliver, max_overhead } = self.target;
        let percent = |part: f64| format!("{} %", (part * 1e4).round() / 100.0);
        let path = format!(
            "up to {:.1} % loss in runs of {burst:.1}, round trip {:.1} ms",
            loss * 100.0,
            rtt.as_secs_f64() * 1e3
        );
        let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
        match self.nearest {
            Some(nearest) => {
                write!(
                    f,
                    "cannot deliver {} within {} at {path}, with at most {} of repair: possible are {} within {}, or {} within {}",
                    percent(deliver),
                    ms(latency),
                    percent(max_overhead),
                    percent(nearest.deliver),
                    ms(latency),
                    percent(deliver),
                    ms(nearest.latency),
                )?;
                match nearest.max_overhead {
                    Some(cap) => write!(f, ", or the target with {:.0} % of repair", (cap * 100.0).ceil()),
                    None => Ok(()),
                }
            }
            None if self.share == 0.0 && self.late <= (1.0 - deliver) / 2.0 => {
                write!(f, "no proactive repair: {path}, so few symbols are late that the target is met")
            }
            None if self.share == 0.0 && loss <= (1.0 - deliver) / 2.0 => {
                write!(f, "no proactive repair: {path}, so few losses that it would cost more than it gains")
            }
            None if self.spare > SPARE => {
                write!(
                    f,
                    "no proactive repair: {path}; retransmissions with many spare repairs bring {} within {}",
                    percent(1.0 - self.late),
                    ms(latency)
                )
            }
            None if self.share == 0.0 => {
                write!(f, "no proactive repair: {path}, and a retransmission takes less than {}", ms(latency))
            }
            None => write!(
                f,
                "repair {:.1} %: {path}; {} are expected within {}",
                self.share * 100.0,
                percent(1.0 - self.late),
                ms(latency)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(loss: f64, burst: f64, rtt_ms: u64) -> Conditions {
        let estimate = LossEstimate { upper: loss, weight: 512.0, ..LossEstimate::settled(loss, burst) };
        Conditions::new(&estimate, Duration::from_millis(rtt_ms), Duration::from_micros(768))
    }

    fn target(latency_ms: u64, deliver: f64, max_overhead: f64) -> Target {
        Target { latency: Duration::from_millis(latency_ms), deliver, max_overhead }
    }

    #[test]
    fn a_tighter_target_costs_more_and_a_loose_one_nothing() {
        let share = |latency, deliver, loss, burst| plan(target(latency, deliver, 1.0), on(loss, burst, 60)).share;
        let shares = [share(60, 0.99, 0.1, 1.0), share(30, 0.99, 0.1, 1.0), share(10, 0.99, 0.1, 1.0)];
        assert!(0.1 < shares[0] && shares[0] < shares[1] && shares[1] < shares[2] && shares[2] < 0.6, "{shares:?}");
        assert!(share(30, 0.999, 0.1, 1.0) > shares[1] && share(30, 0.99, 0.1, 4.0) > shares[1]);
        assert_eq!((share(160, 0.99, 0.1, 4.0), share(5, 0.99, 0.000_05, 1.0)), (0.0, 0.0));
        // One loss in 250 packets keeps 90 symbols waiting.
        assert!(share(5, 0.99, 0.004, 1.0) > 0.05);
        // If answers are in time at one loss rate, they are in time at lower ones too.
        assert!([0.05, 0.01, 0.008, 0.006, 0.004].iter().all(|&loss| share(80, 0.99, loss, 2.0) == 0.0));
    }

    #[test]
    fn the_plan_is_the_least_that_meets_the_target() {
        for (latency, deliver, loss, burst) in [(10, 0.99, 0.02, 1.0), (30, 0.999, 0.1, 1.0), (40, 0.99, 0.05, 4.0)] {
            let (target, conditions) = (target(latency, deliver, 1.0), on(loss, burst, 60));
            let plan = plan(target, conditions);
            assert!(plan.late <= 1.0 - deliver && plan.nearest.is_none(), "{plan}");
            assert!(conditions.late(plan.share * 0.97, target.latency) > 1.0 - deliver, "{plan}");
        }
    }

    #[test]
    fn what_cannot_be_had_is_said_with_what_can() {
        let (target, conditions) = (target(5, 0.999, 0.15), on(0.1, 4.0, 60));
        let plan = plan(target, conditions);
        let nearest = plan.nearest.expect("the target is not feasible");
        assert!(plan.share == 0.15 && nearest.deliver < 0.999 && nearest.latency > target.latency, "{plan}");
        assert_eq!(super::plan(Target { latency: nearest.latency, ..target }, conditions).nearest, None);
        assert_eq!(super::plan(Target { deliver: nearest.deliver - 1e-6, ..target }, conditions).nearest, None);
        assert_eq!(nearest.max_overhead, None, "{plan}");
        let less = super::plan(Target { deliver: 0.99, ..target }, on(0.1, 1.0, 60));
        let cap =
            less.nearest.and_then(|nearest| nearest.max_overhead).expect("a higher cap makes the target feasible");
        assert_eq!(super::plan(Target { max_overhead: cap, ..less.target }, less.conditions).nearest, None);
        assert!(less.to_string().contains("cannot deliver"), "{less}");
    }

    #[test]
    fn answers_carry_the_margin_that_the_target_bears() {
        let plan = |latency, deliver, loss, burst| plan(target(latency, deliver, 0.5), on(loss, burst, 60));
        let now = Duration::ZERO;
        assert_eq!(plan(90, 0.99, 0.0, 1.0).answers(3, now), 3);
        // The stricter target needs the larger margin for answers.
        let (loose, strict) = (plan(90, 0.9, 0.1, 1.0).answers(3, now), plan(90, 0.99, 0.1, 1.0).answers(3, now));
        assert!(3 < loose && loose < strict && strict <= 10, "{loose} {strict}");
        assert!(plan(90, 0.9, 0.1, 4.0).answers(1, now) > plan(90, 0.9, 0.1, 1.0).answers(1, now));
        // An answer has fewer repairs while more rounds are left. Near the deadline it has as many as for a
        // strict target.
        let patient = plan(400, 0.99, 0.1, 1.0);
        let (early, late) = (patient.answers(3, now), patient.answers(3, Duration::from_millis(320)));
        assert!(early < late && late == strict, "{early} {late} {strict}");
    }
}
