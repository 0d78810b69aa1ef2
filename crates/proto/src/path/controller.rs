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
}

impl Controller {
    pub fn new(inner: Box<dyn RateController>) -> Self {
        Self { inner, budget: Cell::new(None) }
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

    fn changing(&mut self) -> &mut dyn RateController {
        self.budget.set(None);
        &mut *self.inner
    }
}
