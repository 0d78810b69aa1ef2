//! The rate controller of a path, with the budget that it gave last.
//!
//! The path asks for the budget several times per packet, and a controller may compute it from many samples.
//! Invariant: the kept budget is that of the controller's present state, because every call that may change
//! the state goes through this type and discards it.

use core::cell::Cell;
use core::time::Duration;

use super::control::{AckSample, Budget, LossSample, RateController, TrainPace, TrainSample};
use crate::Time;

/// A controller and its budget, described in the module documentation. Its methods are those of
/// [`RateController`].
#[derive(Debug)]
pub(crate) struct Controller {
    inner: Box<dyn RateController>,
    /// `None` after each call that may have changed it.
    budget: Cell<Option<Budget>>,
    /// State that [`Self::new_state`] returned last.
    told: &'static str,
}

impl Controller {
    pub fn new(inner: Box<dyn RateController>) -> Self {
        Self { inner, budget: Cell::new(None), told: "" }
    }

    pub fn on_handshake(&mut self, rtt: Duration) {
        self.changing().on_handshake(rtt);
    }

    pub fn on_sent(&mut self, now: Time, bytes: u64, in_flight: u64) {
        if self.inner.on_sent(now, bytes, in_flight) {
            self.budget.set(None);
        }
    }

    pub fn on_ack(&mut self, ack: &AckSample) {
        self.changing().on_ack(ack);
    }

    pub fn on_fate(&mut self, number: u64, lost: bool) {
        self.changing().on_fate(number, lost);
    }

    pub fn on_loss(&mut self, loss: &LossSample) {
        self.changing().on_loss(loss);
    }

    pub fn on_ecn(&mut self, now: Time, sent: Time) {
        self.changing().on_ecn(now, sent);
    }

    pub fn on_mtu_fell(&mut self) {
        self.changing().on_mtu_fell();
    }

    pub fn on_train(&mut self, train: &TrainSample) {
        self.changing().on_train(train);
    }

    pub fn budget(&self) -> Budget {
        let budget = self.budget.get().unwrap_or_else(|| self.inner.budget());
        self.budget.set(Some(budget));
        budget
    }

    pub fn train(&self) -> Option<TrainPace> {
        self.inner.train()
    }

    pub fn is_congested(&self) -> bool {
        self.inner.is_congested()
    }

    pub fn state(&self) -> &'static str {
        self.inner.state()
    }

    /// The state, if it is another one than at the last call.
    pub fn new_state(&mut self) -> Option<&'static str> {
        let state = self.state();
        (core::mem::replace(&mut self.told, state) != state).then_some(state)
    }

    fn changing(&mut self) -> &mut dyn RateController {
        self.budget.set(None);
        &mut *self.inner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its window is the number of calls that it has got.
    #[derive(Debug, Default)]
    struct Counting(u64);

    impl RateController for Counting {
        fn on_handshake(&mut self, _rtt: Duration) {
            self.0 += 1;
        }
        fn on_sent(&mut self, _now: Time, bytes: u64, _in_flight: u64) -> bool {
            self.0 += bytes;
            bytes > 0
        }
        fn on_ack(&mut self, _ack: &AckSample) {
            self.0 += 1;
        }
        fn on_fate(&mut self, _number: u64, _lost: bool) {
            self.0 += 1;
        }
        fn on_loss(&mut self, _loss: &LossSample) {
            self.0 += 1;
        }
        fn on_ecn(&mut self, _now: Time, _sent: Time) {
            self.0 += 1;
        }
        fn on_mtu_fell(&mut self) {
            self.0 += 1;
        }
        fn on_train(&mut self, _train: &TrainSample) {
            self.0 += 1;
        }
        fn budget(&self) -> Budget {
            Budget { window: self.0, pacing: 0 }
        }
    }

    #[test]
    fn no_kept_budget_outlives_a_call_that_may_change_it() {
        let (now, time) = (Time::ZERO, Duration::ZERO);
        let ack = AckSample {
            now,
            bytes: 0,
            in_flight: 0,
            newest: 0,
            left: now,
            next: 0,
            rtt: None,
            one_way: None,
            newest_bytes: 0,
            app_limited: false,
            totals: Default::default(),
            smoothed: time,
            min_rtt: time,
            rate: None,
            dispersion: None,
        };
        let calls: [&dyn Fn(&mut Controller); 8] = [
            &|controller| controller.on_handshake(time),
            &|controller| controller.on_sent(now, 1, 0),
            &|controller| controller.on_ack(&ack),
            &|controller| controller.on_fate(0, false),
            &|controller| controller.on_loss(&LossSample { now, bytes: 0, sent: now, persistent: false }),
            &|controller| controller.on_ecn(now, now),
            &|controller| controller.on_mtu_fell(),
            &|controller| {
                controller.on_train(&TrainSample { now, bytes: 0, left: time, arrived: time, queue: time });
            },
        ];
        let mut controller = Controller::new(Box::new(Counting::default()));
        for (made, call) in (0..).zip(calls) {
            assert_eq!(controller.budget().window, made);
            call(&mut controller);
        }
        assert_eq!(controller.budget().window, 7);
        controller.on_sent(now, 0, 0);
        assert_eq!(controller.budget.get(), Some(Budget { window: 7, pacing: 0 }), "it was kept");
    }
}
