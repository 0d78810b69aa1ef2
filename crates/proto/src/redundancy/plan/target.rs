//! What a target asks of the code: the least proactive repair with which few enough symbols are later than a
//! user allows.
//!
//! [`super::Planner`] plans by it, for the latency that is given ([`crate::config::Config::latency`]) or the
//! default target. Pure: the same path and target give the same [`Plan`]. In-order delay is predicted by
//! [`crate::model::gilbert`], exactly for a path that loses as it is believed to. A late symbol costs no more
//! than a round trip of asking, so that a target beyond that is met without proactive repair.

use core::fmt;
use core::time::Duration;

use crate::model::gilbert::{self, Gilbert};
use crate::path::{LossEstimate, correlation};

/// Round trips from the first transmission of a lost symbol to the answer that repairs it, beyond the one-way
/// time: the round trip, a sixteenth until FEEDBACK leaves, an eighth for reordering (`path/loss.rs`), and
/// some for the jitter of all three.
pub(super) const ASKED: f64 = 1.25;
/// ... and so many symbols, where they are far apart: a loss is seen by what comes after it.
const ASKED_SYMBOLS: f64 = 3.0;
/// So many symbols are later than an answer should be, for what delays some of them: rate control that
/// drains, a gap that is seen late. Measured at half load, 2 and 10 % of loss: 0.2 %, in runs of 4 1.6 %
/// (`crates/sim/tests/behaviour/target.rs`), as [`correlation`] says.
const ASKED_LATE: f64 = 0.003;
/// Rounds of asking that a nearest target may count on: the strictest fraction needs four where losses come
/// in runs of 10.
const MOST_ROUNDS: u32 = 8;
/// A share is least enough where it leaves this much less late than is allowed, at most: it is then within a
/// hundredth of the least one, and what is believed of the path is not known to a tenth.
const NEAR: f64 = 0.05;
/// Most shares that are tried for that; some five are.
const TRIALS: usize = 20;
/// One answer in so many may fall short at most, whatever the target: else the margin would cost more than
/// what is lacking.
const LEAST_RISK: f64 = 1e-4;
/// ... and at least, so that an answer usually does.
const MOST_RISK: f64 = 0.1;

/// How late data may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// In-order delay beyond the path's own one-way time that a symbol may have.
    pub latency: Duration,
    /// Fraction of symbols that are to keep to it, below 1.
    pub deliver: f64,
    /// Proactive repairs per source symbol at most.
    pub max_overhead: f64,
}

/// What a plan rests on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// Fraction of packets lost: the upper bound that is planned with.
    pub loss: f64,
    /// Mean run of lost packets.
    pub burst: f64,
    /// Smoothed round trip.
    pub rtt: Duration,
    /// Mean time between source symbols.
    pub interval: Duration,
}

/// What to send for a target, and what comes of it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// What it is for.
    pub target: Target,
    /// The user stated that target; else it is the default's.
    pub stated: bool,
    /// What it rests on.
    pub conditions: Conditions,
    /// Proactive repairs per source symbol.
    pub share: f64,
    /// Predicted fraction of symbols that are later than the target's latency.
    pub late: f64,
    /// Fraction of symbols that wait for an answer when it comes: so many are later by a round trip if it
    /// falls short.
    asking: f64,
    /// What could be had instead, where the target cannot.
    pub nearest: Option<Nearest>,
}

/// What is feasible where a target is not: each by itself would do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nearest {
    /// The latency that the fraction asked for can keep to.
    pub latency: Duration,
    /// The fraction that can keep to the latency asked for.
    pub deliver: f64,
    /// The overhead with which the target could be met, if any up to 100 % would do.
    pub max_overhead: Option<f64>,
}

impl Conditions {
    pub(super) fn new(loss: &LossEstimate, rtt: Duration, interval: Duration) -> Self {
        let loss_rate = loss.upper.min(0.9);
        // Independent losses come in runs of 1/(1-p) on average.
        let burst = loss.burst.max(1.0 / (1.0 - loss_rate));
        Self { loss: loss_rate, burst, rtt, interval: interval.max(Duration::from_micros(1)) }
    }

    /// By which part the two are apart in what they are furthest apart in.
    pub(super) fn difference(&self, other: &Self) -> f64 {
        let part = |a: f64, b: f64| (a - b).abs() / a.max(b).max(f64::MIN_POSITIVE);
        let times = part(self.rtt.as_secs_f64(), other.rtt.as_secs_f64())
            .max(part(self.interval.as_secs_f64(), other.interval.as_secs_f64()));
        part(self.loss, other.loss).max(part(self.burst, other.burst)).max(times)
    }

    /// These with the losses and the interval of `other` in them, as far as `part` says, from 0 to 1; the
    /// round trip is an average already.
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

    /// In-order delay of what is repaired by asking, when the first answer does.
    pub fn asked(&self) -> Duration {
        self.rtt.mul_f64(ASKED) + self.interval.mul_f64(ASKED_SYMBOLS)
    }

    /// Fraction of symbols later than `latency` when all that is lost is asked for: before an answer can be
    /// there, what waits behind a gap; beyond that each further round is as rare among those that need one.
    fn asked_late(&self, latency: Duration) -> f64 {
        let asked = self.asked();
        let Some(waits) = asked.checked_sub(latency).filter(|waits| !waits.is_zero()) else {
            let rounds = (latency.as_secs_f64() / asked.as_secs_f64()).floor();
            return (ASKED_LATE * correlation(self.burst)).min(1.0).powf(rounds).min(self.loss);
        };
        self.behind_gaps(waits).max(self.loss).min(1.0)
    }

    /// Symbols that are sent within that time of a gap's first packet, per symbol.
    fn behind_gaps(&self, time: Duration) -> f64 {
        self.loss / self.burst * time.as_secs_f64() / self.interval.as_secs_f64()
    }

    /// Fraction of symbols that wait when an answer comes: those behind a gap that is asked for, at most
    /// those that the code alone delivers later.
    fn asking(&self, share: f64) -> f64 {
        let asked = self.asked();
        let behind_gaps = self.behind_gaps(asked);
        if share > 0.0 { behind_gaps.min(self.late(share, asked)) } else { behind_gaps }
    }

    /// Seconds that a packet has, with `share` repairs per source symbol.
    fn slot(&self, share: f64) -> f64 {
        self.interval.as_secs_f64() / (1.0 + share)
    }

    /// Fraction of symbols later than `latency` without any asking. About 0.1 ms.
    fn late(&self, share: f64, latency: Duration) -> f64 {
        gilbert::late(self.loss, self.burst, 1.0 + 1.0 / share.max(1e-9), latency.as_secs_f64() / self.slot(share))
    }
}

/// The least share that meets a stated target under these conditions, at most its cap; with what can be had
/// instead where that is too little. A millisecond or two; 10 where the target cannot be met.
pub fn plan(target: Target, conditions: Conditions) -> Plan {
    let plan = least_plan(target, conditions);
    let nearest = (plan.late > 1.0 - target.deliver).then(|| nearest(&target, &conditions, plan.late));
    Plan { stated: true, nearest, ..plan }
}

/// The same for a target that nobody stated: where it cannot be had, the cap, and nothing to be said; and
/// rare losses are asked for, whatever waits behind them: a repair in five packets is what 0.1 % in runs of
/// four would take.
pub(super) fn plan_default(target: Target, conditions: Conditions) -> Plan {
    if conditions.loss <= (1.0 - target.deliver) / 2.0 {
        return asking_plan(target, conditions);
    }
    least_plan(target, conditions)
}

/// Nothing before it is asked for.
fn asking_plan(target: Target, conditions: Conditions) -> Plan {
    let (late, asking) = (conditions.asked_late(target.latency), conditions.asking(0.0));
    Plan { target, stated: false, conditions, share: 0.0, late, asking, nearest: None }
}

fn least_plan(target: Target, conditions: Conditions) -> Plan {
    let allowed = 1.0 - target.deliver;
    let asked = asking_plan(target, conditions);
    // Where answers come too late the margin is for what that estimate leaves out: gaps that are asked for
    // more than once.
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
    // Rounds of asking until few enough are late.
    let asked = (1..=MOST_ROUNDS).map(|rounds| conditions.asked() * rounds);
    let asked = asked.into_iter().find(|&latency| conditions.asked_late(latency) <= 1.0 - target.deliver);
    Nearest { latency: coded.min(asked.unwrap_or(Duration::MAX)), deliver: 1.0 - at_cap, max_overhead }
}

/// The least share, between one that leaves too much late and one that does not, each with what it leaves
/// late; returned alike. What is late falls about exponentially with the share, so that its logarithm is
/// interpolated (regula falsi, with the Illinois rule that an end which stays twice counts half).
fn least(low: (f64, f64), high: (f64, f64), allowed: f64, late: impl Fn(f64) -> f64) -> (f64, f64) {
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
    /// How many repairs are to be under way for `missing` symbols, the oldest of which has waited for so
    /// long: the fewest that fall short no more often than the target bears.
    ///
    /// What falls short is asked for again, and for that round trip all symbols behind it wait. As long as
    /// there is time for further rounds of asking each of them may fall short more often: the nearer the
    /// deadline, the more copies.
    pub(in crate::redundancy) fn answers(&self, missing: u64, waited: Duration) -> u64 {
        let Conditions { loss, burst, .. } = self.conditions;
        let left = self.target.latency.saturating_sub(waited).as_secs_f64() / self.conditions.asked().as_secs_f64();
        let rounds = left.floor().clamp(1.0, f64::from(MOST_ROUNDS));
        let risk =
            ((1.0 - self.target.deliver) / self.asking.max(1e-9)).powf(1.0 / rounds).clamp(LEAST_RISK, MOST_RISK);
        let missing = missing as u32;
        let spread = (0..=missing + 8).find(|&more| super::more_than(more, missing + more, loss) <= risk);
        // All that is sent at once may be within one burst.
        let one_burst = if burst > 1.0 / (1.0 - loss) { (risk / loss).ln() / (1.0 - 1.0 / burst).ln() } else { 0.0 };
        u64::from(missing) + u64::from(spread.unwrap_or(missing + 8)).max(one_burst.clamp(0.0, 8.0).ceil() as u64)
    }

    /// Whether two plans do about the same.
    pub fn is_like(&self, other: &Self) -> bool {
        let near = (self.share - other.share).abs() <= 0.02f64.max(self.share.max(other.share) / 4.0);
        near && self.nearest.is_some() == other.nearest.is_some() && (self.share == 0.0) == (other.share == 0.0)
    }
}

impl fmt::Display for Plan {
    /// One sentence: what is sent and why, or what cannot be had and what could.
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
                    "{} within {} is not to be had at {path}, with at most {} of repair: feasible is {} within {}, or {} within {}",
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
                write!(f, "no repair before it is asked for: {path}, fewer late than may be")
            }
            None if self.share == 0.0 && loss <= (1.0 - deliver) / 2.0 => {
                write!(f, "no repair before it is asked for: {path}, so few that repair before would be dear")
            }
            None if self.share == 0.0 => {
                write!(f, "no repair before it is asked for: {path}, and asking takes less than {}", ms(latency))
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
        // One lost in 250 keeps 90 symbols waiting.
        assert!(share(5, 0.99, 0.004, 1.0) > 0.05);
        // Where asking is in time it is so for fewer losses too.
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
        let nearest = plan.nearest.expect("not feasible");
        assert!(plan.share == 0.15 && nearest.deliver < 0.999 && nearest.latency > target.latency, "{plan}");
        assert_eq!(super::plan(Target { latency: nearest.latency, ..target }, conditions).nearest, None);
        assert_eq!(super::plan(Target { deliver: nearest.deliver - 1e-6, ..target }, conditions).nearest, None);
        assert_eq!(nearest.max_overhead, None, "{plan}");
        let less = super::plan(Target { deliver: 0.99, ..target }, on(0.1, 1.0, 60));
        let cap = less.nearest.and_then(|nearest| nearest.max_overhead).expect("more would do");
        assert_eq!(super::plan(Target { max_overhead: cap, ..less.target }, less.conditions).nearest, None);
        assert!(less.to_string().contains("not to be had"), "{less}");
    }

    #[test]
    fn answers_carry_the_margin_that_the_target_bears() {
        let plan = |latency, deliver, loss, burst| plan(target(latency, deliver, 0.5), on(loss, burst, 60));
        let now = Duration::ZERO;
        assert_eq!(plan(90, 0.99, 0.0, 1.0).answers(3, now), 3);
        // Of what is asked for rather than repaired before.
        let (loose, strict) = (plan(90, 0.9, 0.1, 1.0).answers(3, now), plan(90, 0.99, 0.1, 1.0).answers(3, now));
        assert!(3 < loose && loose < strict && strict <= 10, "{loose} {strict}");
        assert!(plan(90, 0.9, 0.1, 4.0).answers(1, now) > plan(90, 0.9, 0.1, 1.0).answers(1, now));
        // Fewer where more rounds of asking are left, as many when the deadline is near.
        let patient = plan(400, 0.99, 0.1, 1.0);
        let (early, late) = (patient.answers(3, now), patient.answers(3, Duration::from_millis(320)));
        assert!(early < late && late == strict, "{early} {late} {strict}");
    }
}
