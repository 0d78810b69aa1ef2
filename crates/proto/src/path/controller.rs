//! The rate controller of a path, with the budget that it gave last and the floor of sanity below it.
//!
//! The path asks for the budget several times per packet, and a controller may compute it from many samples.
//! Invariant: the kept budget is that of the controller's present state, because every call that may change
//! the state goes through this type and discards it.

use core::cell::Cell;
use core::time::Duration;

use super::control::{AckSample, Budget, LossSample, RateController, TrainPace, TrainSample};
use super::floor::Floor;
use super::host::HostLimit;
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
    floor: Floor,
    /// `None` for `fixed`, which nothing limits.
    host: Option<HostLimit>,
}

impl Controller {
    /// A controller whose pace the floor of sanity and the peer's host limit, or the floor only watches.
    pub(crate) fn new(inner: Box<dyn RateController>, limits: bool) -> Self {
        Self {
            inner,
            budget: Cell::new(None),
            told: "",
            floor: Floor::new(limits),
            host: limits.then(HostLimit::default),
        }
    }

    pub(crate) fn on_handshake(&mut self, rtt: Duration) {
        self.changing().on_handshake(rtt);
    }

    pub(crate) fn on_sent(&mut self, now: Time, bytes: u64, in_flight: u64) {
        if self.inner.on_sent(now, bytes, in_flight) {
            self.budget.set(None);
        }
    }

    pub(crate) fn on_ack(&mut self, ack: &AckSample) {
        self.changing().on_ack(ack);
        let believed = self.believed().pacing;
        if let Some(host) = &mut self.host {
            host.on_ack(ack, believed);
        }
        self.floor.wait(self.inner.is_testing(), ack.next);
        if let Some(tested) = self.inner.poll_tested() {
            self.floor.on_tested(ack.now, tested);
        }
    }

    pub(crate) fn on_fate(&mut self, number: u64, bytes: u32, lost: bool, app_limited: bool) {
        self.floor.on_fate(number, bytes, lost, app_limited);
        self.changing().on_fate(number, lost);
    }

    pub(crate) fn on_loss(&mut self, loss: &LossSample) {
        self.changing().on_loss(loss);
    }

    pub(crate) fn on_ecn(&mut self, now: Time, sent: Time) {
        self.changing().on_ecn(now, sent);
    }

    /// The peer's host kept a packet waiting; see [`HostLimit::on_delay`].
    pub(crate) fn on_host_delay(&mut self, now: Time, left: Time, delay: Duration) {
        self.host.iter_mut().for_each(|host| host.on_delay(now, left, delay));
    }

    /// The peer's host dropped packets; see [`HostLimit::on_drops`].
    pub(crate) fn on_host_drops(&mut self, now: Time, left: Time) {
        self.host.iter_mut().for_each(|host| host.on_drops(now, left));
    }

    pub(crate) fn on_mtu_fell(&mut self) {
        self.changing().on_mtu_fell();
    }

    pub(crate) fn on_train(&mut self, train: &TrainSample) {
        self.changing().on_train(train);
    }

    /// What the controller allows, with a pace that keeps the floor of sanity and that the peer's host takes.
    pub(crate) fn budget(&self) -> Budget {
        let budget = self.believed();
        let limits = self.floor.pace().into_iter().chain(self.host.as_ref().and_then(HostLimit::pace));
        Budget { pacing: limits.fold(budget.pacing, u64::min), ..budget }
    }

    /// The trains of the controller. Under a limited pace they are slower by as much as the pace is, and a
    /// test has none, because a train could exceed what it tests.
    pub(crate) fn train(&self) -> Option<TrainPace> {
        let train = self.inner.train().filter(|_| !self.floor.is_testing())?;
        let (believed, limited) = (self.believed().pacing.max(1), self.budget().pacing);
        let rate = u128::from(train.rate) * u128::from(limited) / u128::from(believed);
        Some(TrainPace { rate: u64::try_from(rate).unwrap_or(train.rate), ..train })
    }

    /// The floor of sanity.
    pub(crate) fn floor(&mut self) -> &mut Floor {
        &mut self.floor
    }

    /// The floor of sanity, to look at.
    pub(crate) fn seen(&self) -> &Floor {
        &self.floor
    }

    /// The budget without the floor of sanity.
    fn believed(&self) -> Budget {
        let budget = self.budget.get().unwrap_or_else(|| self.inner.budget());
        self.budget.set(Some(budget));
        budget
    }

    pub(crate) fn is_congested(&self) -> bool {
        self.inner.is_congested()
    }

    pub(crate) fn state(&self) -> &'static str {
        self.inner.state()
    }

    /// The state, if it is another one than at the last call.
    pub(crate) fn new_state(&mut self) -> Option<&'static str> {
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
            &|controller| controller.on_fate(0, 1, false, false),
            &|controller| controller.on_loss(&LossSample { now, bytes: 0, sent: now, persistent: false }),
            &|controller| controller.on_ecn(now, now),
            &|controller| controller.on_mtu_fell(),
            &|controller| {
                controller.on_train(&TrainSample { now, bytes: 0, left: time, arrived: time, queue: time });
            },
        ];
        let mut controller = Controller::new(Box::new(Counting::default()), true);
        for (made, call) in (0..).zip(calls) {
            assert_eq!(controller.budget().window, made);
            call(&mut controller);
        }
        assert_eq!(controller.budget().window, 8);
        controller.on_sent(now, 0, 0);
        assert_eq!(controller.budget.get(), Some(Budget { window: 8, pacing: 0 }), "it was kept");
    }
}
