//! Computes the repair share that a redundancy reaches on a path whose conditions do not change. It calls the
//! policies as a connection does, but needs no connection.
//!
//! `tidewire probe` uses it to say what would be sent for a flow, and docs/default-policy.md lists its
//! results for many paths. No packet is needed, because policies are functions of their context and state.
//! Source symbols leave at equal intervals, the fate of each packet is known after a round trip, and the peer
//! lacks nothing.

use core::time::Duration;

use tidewire_codec::{Code, SourceId};

use super::{Plan, Planned, Target};
use crate::Time;
use crate::path::LossEstimate;
use crate::redundancy::{
    CodingContext, CodingLimits, DEFAULT_SPAN, FlowState, InFlight, PathState, Policies, Redundancy, Repair, Report,
};

/// A path whose conditions do not change, and the flow on it.
#[derive(Clone, Copy, Debug)]
pub struct SteadyPath {
    /// The loss estimate, as in [`LossEstimate::settled`].
    pub loss: LossEstimate,
    /// Smoothed round trip.
    pub rtt: Duration,
    /// Time between source symbols.
    pub interval: Duration,
    /// True if the flow uses the whole capacity of the path.
    pub saturated: bool,
}

/// Returns the proactive repairs per source symbol of a flow, and the plan if the policy makes one. The plan
/// is for `target`, or for the default target if `target` is `None`.
pub fn steady_share(
    redundancy: Redundancy,
    path: &SteadyPath,
    max_overhead: f64,
    target: Option<Target>,
) -> (f64, Option<Plan>) {
    let (mut policies, in_flight) = (Policies::new(redundancy), InFlight::default());
    let interval = path.interval.max(Duration::from_micros(1));
    let flying = (path.rtt.as_nanos() / interval.as_nanos()) as u64;
    let mut repairs = 0_u64;
    for sent in 1..=SYMBOLS {
        let settled = SourceId(sent.saturating_sub(flying));
        let report = Report { edge: settled, end: settled, ..Report::default() };
        let now = Time::ZERO + Duration::from_nanos((interval.as_nanos() as u64).saturating_mul(sent));
        let context = CodingContext {
            now,
            base: settled,
            settled,
            sent: SourceId(sent),
            report: &report,
            lost: None,
            in_flight: &in_flight,
            oldest: Duration::ZERO,
            path: PathState {
                loss: path.loss,
                rtt: path.rtt,
                saturated: path.saturated,
                room: u64::MAX,
                is_silent: false,
            },
            flow: FlowState {
                backlog: path.saturated,
                credit: u64::MAX,
                interval,
                last: now,
                in_order: true,
                important: false,
            },
            limits: CodingLimits {
                max_span: DEFAULT_SPAN,
                max_overhead,
                protects_lone: false,
                target,
                code: Code::Rlc,
                is_withheld: false,
            },
            planned: &Planned::NONE,
        };
        policies.on_source_sent(&context);
        while let Some(Repair::Coded { on_feedback: false, .. }) = policies.next(&context) {
            repairs += 1;
        }
    }
    // Repairs that replace source symbols are no overhead.
    let replacing = if policies.withholds_sources() { SYMBOLS } else { 0 };
    (repairs.saturating_sub(replacing) as f64 / SYMBOLS as f64, policies.plan().copied())
}

/// Number of source symbols simulated: enough for a share exact to a thousandth.
const SYMBOLS: u64 = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    fn on(loss: f64, burst: f64) -> SteadyPath {
        let (rtt, interval) = (Duration::from_millis(60), Duration::from_micros(960));
        SteadyPath { loss: LossEstimate::settled(loss, burst), rtt, interval, saturated: false }
    }

    #[test]
    fn fixed_policies_send_what_they_say() {
        let share = |text: &str| steady_share(text.parse().expect("written right"), &on(0.1, 1.2), 0.5, None).0;
        assert_eq!(share("none"), 0.0);
        assert!((share("every:5") - 0.25).abs() < 1e-2, "{}", share("every:5"));
    }

    #[test]
    fn the_default_follows_the_loss_and_keeps_a_target() {
        let share = |loss, burst| steady_share(Redundancy::ADAPTIVE, &on(loss, burst), 0.5, None).0;
        assert_eq!(share(0.0, 1.0), 0.0);
        assert!(share(0.02, 1.1) < share(0.1, 1.2) && share(0.1, 4.0) <= 0.5);
        let saturated = SteadyPath { saturated: true, ..on(0.1, 1.2) };
        let (tight, plan) = steady_share(Redundancy::ADAPTIVE, &saturated, 0.5, None);
        assert!(0.11 < tight && tight < share(0.1, 1.2) && plan.is_none(), "{tight}");
        let target = Target { latency: Duration::from_millis(30), deliver: 0.99, max_overhead: 0.5 };
        let (share, plan) = steady_share(Redundancy::ADAPTIVE, &on(0.1, 1.2), 0.5, Some(target));
        let plan = plan.expect("a target was given");
        assert!(plan.nearest.is_none() && (share - plan.share).abs() < 0.01, "{share} {plan}");
    }
}
