//! The plan for messages with a deadline: a lane that delivers each message as soon as it is complete, and a
//! target that the user states.
//!
//! [`super::Planner`] calls it. Such a lane differs from one in order in two ways. A symbol that arrived does
//! not wait for others, so only lost symbols can be late: among those that wait, at most as many as repairs
//! arrive. And a target a little longer than a round trip leaves time for one answer, on which the plan can
//! count: few symbols then need the answer (*answered*), or the answer alone repairs the losses, with many
//! spare repairs (*asking*). It is pure, as [`super::plan`] is.

use core::time::Duration;

use super::target::{Conditions, Plan, Target, least, plan};
use crate::path::correlation;
use crate::redundancy::tuning::{
    ANSWER_RISK, ANSWER_SAVES, ANSWER_SHORT, ANSWERED_SYMBOLS, LEAST_RISK, MOST_RISK, MOST_SPARE, REVEALED, SETTLED,
};

/// Computes the cheapest plan that the model of each way allows. Where no way keeps the target, it is the
/// plan of [`plan`], which names the nearest targets. Takes twice as long as that.
pub(crate) fn plan_complete(target: Target, conditions: Conditions) -> Plan {
    let in_order = plan(target, conditions);
    if in_order.share == 0.0 {
        return in_order;
    }
    let allowed = 1.0 - target.deliver;
    let settled = conditions.rtt.mul_f64(SETTLED) + conditions.interval.mul_f64(ANSWERED_SYMBOLS);
    let unrevealed = unrevealed(&target, &conditions);
    let has_time = target.latency >= settled && unrevealed <= allowed / 2.0;
    let asks = |share| conditions.asking(share);
    let coded = with_least_share(target, conditions, |share| share * conditions.late(share, target.latency), asks);
    let coded = coded.unwrap_or(in_order);
    if !has_time {
        return coded;
    }
    let short = (ANSWER_SHORT * correlation(conditions.burst)).min(1.0);
    // The spare repairs of these answers do not become fewer where fewer symbols need them.
    let sure = |_| allowed / ANSWER_RISK;
    let answered = with_least_share(target, conditions, |share| short * conditions.late(share, settled), sure);
    let mixed = answered.filter(|answered| answered.share < coded.share).unwrap_or(coded);
    asking(target, conditions, unrevealed, mixed.share - ANSWER_SAVES).unwrap_or(mixed)
}

/// The plan with the least share for which `late` is at most what the target allows. `asking` is the fraction
/// of symbols from which its answers take their spare repairs.
fn with_least_share(
    target: Target,
    conditions: Conditions,
    late: impl Fn(f64) -> f64,
    asking: impl Fn(f64) -> f64,
) -> Option<Plan> {
    let (allowed, at_cap) = (1.0 - target.deliver, late(target.max_overhead));
    if at_cap > allowed {
        return None;
    }
    let (share, late) = least((0.0, 1.0), (target.max_overhead, at_cap), allowed, late);
    Some(Plan::complete(target, conditions, share, late, asking(share)))
}

/// Fraction of symbols that are lost so early in a run of losses that the answer to its end is too late. The
/// receiver learns of a run by the packet behind it.
fn unrevealed(target: &Target, conditions: &Conditions) -> f64 {
    let left = target.latency.saturating_sub(conditions.rtt.mul_f64(REVEALED) + conditions.interval);
    let run = left.as_secs_f64() / conditions.interval.as_secs_f64();
    conditions.loss * (1.0 - 1.0 / conditions.burst).powf(run)
}

/// The plan without proactive repair, if its answers fall short seldom enough and cost less than `most`
/// repairs per source symbol.
fn asking(target: Target, conditions: Conditions, unrevealed: f64, most: f64) -> Option<Plan> {
    let Conditions { loss, burst, .. } = conditions;
    let allowed = 1.0 - target.deliver;
    let risk = ((allowed - unrevealed) / loss).min(MOST_RISK);
    // The largest margin of an answer may be lost in one run.
    if risk < LEAST_RISK.max(loss * (1.0 - 1.0 / burst).powf(MOST_SPARE)) {
        return None;
    }
    let late = unrevealed + loss * risk;
    let mut plan = Plan::complete(target, conditions, 0.0, late, allowed / risk);
    plan.spare = MOST_SPARE;
    let run = burst.round().max(1.0);
    let repairs = plan.answers(run as u64, Duration::ZERO);
    (loss / run * repairs as f64 <= most).then_some(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::LossEstimate;

    fn on(loss: f64, burst: f64) -> Conditions {
        let estimate = LossEstimate { upper: loss, weight: 512.0, ..LossEstimate::settled(loss, burst) };
        Conditions::new(&estimate, Duration::from_millis(60), Duration::from_micros(1_755))
    }

    fn target(latency_ms: u64, deliver: f64) -> Target {
        Target { latency: Duration::from_millis(latency_ms), deliver, max_overhead: 0.5 }
    }

    fn both(target: Target, conditions: Conditions) -> (Plan, Plan) {
        (plan_complete(target, conditions), plan(target, conditions))
    }

    #[test]
    fn time_for_an_answer_saves_proactive_repair() {
        for loss in [0.02, 0.05, 0.1] {
            let (complete, in_order) = both(target(80, 0.9999), on(loss, 1.0));
            assert!(complete.share < 0.9 * in_order.share, "{} of {}", complete.share, in_order.share);
            assert!(0.0 < complete.share && complete.late <= 1e-4 && complete.nearest.is_none(), "{complete}");
        }
    }

    #[test]
    fn without_time_for_an_answer_lost_symbols_alone_can_be_late() {
        for latency in [30, 70] {
            let (complete, in_order) = both(target(latency, 0.999), on(0.05, 1.0));
            assert!(complete.share < in_order.share && complete.share > 0.5 * in_order.share, "{complete}");
        }
        // An answer alone is enough for a target that is not strict.
        let (complete, in_order) = both(target(90, 0.99), on(0.05, 1.0));
        assert_eq!((complete, complete.share), (in_order, 0.0));
    }

    #[test]
    fn long_runs_are_answered_with_many_spare_repairs_if_their_end_is_seen_in_time() {
        let (complete, in_order) = both(target(120, 0.9999), on(0.05, 4.0));
        assert_eq!((complete.share, complete.nearest), (0.0, None), "{complete}");
        assert!(in_order.share > 0.45, "{in_order}");
        let answers = |plan: &Plan| plan.answers(4, Duration::ZERO);
        assert!(answers(&complete) > 12 && answers(&in_order) <= 12, "{} {}", answers(&complete), answers(&in_order));
        // With 80 ms the first symbols of many runs would be too late.
        assert!(plan_complete(target(80, 0.9999), on(0.05, 4.0)).share > 0.4);
    }
}
