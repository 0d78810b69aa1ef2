//! Divides the repair of a lane with important messages, if the cap is too low for the target.
//!
//! [`super::Planner`] calls it. An application calls a message important if others are useless without it: a
//! key frame of video, for example. While the plan meets its target, all messages are alike. Otherwise the
//! symbols that are sent while the peer may lack an important one get the share that meets the target, and
//! the others get what is left of the cap. Invariant: over all symbols, the mean share is that of the plan.

use super::complete::plan_complete;
use super::target::{Plan, Target};

/// Symbols over which the part of important ones is averaged. Chosen: ten seconds at 5 Mbit/s, which are
/// several picture groups.
const MEMORY: f64 = 4_096.0;

/// The part of important symbols, and what they need.
#[derive(Debug, Default)]
pub(super) struct Importance {
    /// Whether the newest symbol was sent while the peer may lack an important one.
    now: bool,
    /// Mean of `now` over the last [`MEMORY`] symbols.
    part: f64,
    symbols: f64,
    /// The share with which the target of the newest plan is met. `None` if all messages are alike.
    wanted: Option<f64>,
}

impl Importance {
    /// Called for each source symbol. Returns whether its importance differs from that of the one before.
    pub(super) fn on_source(&mut self, important: bool) -> bool {
        self.symbols = (self.symbols + 1.0).min(MEMORY);
        let change = f64::from(u8::from(important)) - self.part;
        // Spares the division where no symbol is important.
        if change != 0.0 {
            self.part += change / self.symbols;
        }
        core::mem::replace(&mut self.now, important) != important
    }

    /// Called when a plan was made. Takes as long as a plan if the plan misses its target.
    pub(super) fn on_plan(&mut self, plan: &Plan) {
        let Plan { target, conditions, .. } = *plan;
        let is_divided = self.part > 0.0 && plan.nearest.is_some();
        // An important symbol may need a repair of its own, whatever the cap.
        let most = Target { max_overhead: 1.0, ..target };
        self.wanted = is_divided.then(|| plan_complete(most, conditions).share);
    }

    /// The share of the newest symbol.
    pub(super) fn share(&self, plan: &Plan) -> f64 {
        let Some(wanted) = self.wanted else { return plan.share };
        let important = wanted.max(plan.share).min(plan.share / self.part);
        let left = plan.share - self.part * important;
        if self.now { important } else { (left / (1.0 - self.part)).max(0.0) }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::path::LossEstimate;
    use crate::redundancy::plan::Conditions;

    fn plan(max_overhead: f64) -> Plan {
        let estimate = LossEstimate { upper: 0.1, weight: 512.0, ..LossEstimate::settled(0.1, 1.0) };
        let conditions = Conditions::new(&estimate, Duration::from_millis(60), Duration::from_micros(2_632));
        plan_complete(Target { latency: Duration::from_millis(20), deliver: 0.9999, max_overhead }, conditions)
    }

    /// The shares of important and other symbols, if `important` of ten are.
    fn shares(important: u32, plan: &Plan) -> (f64, f64) {
        let mut importance = Importance::default();
        let mut share = |now| {
            importance.on_source(now);
            importance.on_plan(plan);
            importance.share(plan)
        };
        let mut last = (plan.share, plan.share);
        for n in 0..10_000_u32 {
            let now = n % 10 < important;
            let share = share(now);
            if now { last.0 = share } else { last.1 = share }
        }
        last
    }

    #[test]
    #[ignore = "slow: seconds of processor time"]
    fn a_budget_that_is_too_small_goes_to_important_symbols_first() {
        let plan = plan(0.15);
        for important in [1, 4, 9] {
            let (more, less) = shares(important, &plan);
            let part = f64::from(important) / 10.0;
            assert!((part * more + (1.0 - part) * less - 0.15).abs() < 1e-3, "{important}: {more} {less}");
            assert!(less < 0.15 && 0.15 < more && more <= 1.0, "{important}: {more} {less}");
        }
        let (few, many) = (shares(1, &plan), shares(4, &plan));
        assert!(few.0 > many.0 && few.1 > 0.05 && many.1 < 1e-3, "{few:?} {many:?}");
    }

    #[test]
    fn a_budget_that_is_enough_is_not_divided() {
        let plan = plan(1.0);
        assert_eq!((shares(4, &plan), plan.nearest), ((plan.share, plan.share), None));
        assert_eq!(shares(0, &self::plan(0.15)).1, 0.15);
    }
}
