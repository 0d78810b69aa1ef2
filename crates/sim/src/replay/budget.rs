//! Rate control that allows what was allowed in the recording.
//!
//! A controller from outside of the protocol is made by a function without a value, so the schedule lies
//! beside it, once for each thread: a run of the simulator never leaves its thread.

use core::cell::RefCell;
use core::time::Duration;

use tidewire_proto::rate::{AckSample, Budget, RateControl, RateController};
use tidewire_proto::{Custom, Time};

use super::Allowed;

/// What is allowed before the first step: ten packets of 1,500 bytes (RFC 9002 section 7.2) in 10 ms.
const FIRST: Budget = Budget { window: 15_000, pacing: 1_500_000 };

/// The steps of the run of this thread, and when its connection was made.
struct Schedule {
    steps: Vec<Allowed>,
    began: Option<Time>,
}

thread_local! {
    static SCHEDULE: RefCell<Schedule> = const { RefCell::new(Schedule { steps: Vec::new(), began: None }) };
}

/// The controller, for a configuration.
pub(super) fn control() -> RateControl {
    let build = |_: f64| Box::new(Recorded { step: 0, budget: FIRST, is_congested: false }) as Box<dyn RateController>;
    RateControl::Custom(Custom { name: "recorded", build, parameter: 0.0 })
}

/// From now on controllers of this thread follow `steps`.
pub(super) fn follow(steps: &[Allowed]) {
    SCHEDULE.with_borrow_mut(|schedule| *schedule = Schedule { steps: steps.to_vec(), began: None });
}

/// The connection was made at this time. Later calls change nothing.
pub(super) fn begin(began: Time) {
    SCHEDULE.with_borrow_mut(|schedule| _ = schedule.began.get_or_insert(began));
}

#[derive(Debug)]
struct Recorded {
    /// Number of steps that have come.
    step: usize,
    budget: Budget,
    is_congested: bool,
}

impl Recorded {
    fn advance(&mut self, now: Time) {
        SCHEDULE.with_borrow(|Schedule { steps, began }| {
            let since = began.map_or(Duration::ZERO, |began| now.since(began));
            // The first step is what the handshake led to, which was allowed before it was told.
            while let Some(step) = steps.get(self.step).filter(|step| self.step == 0 || step.at <= since) {
                self.budget = Budget { window: step.window, pacing: step.pacing_bps / 8 };
                self.is_congested = step.is_congested;
                self.step += 1;
            }
        });
    }
}

impl RateController for Recorded {
    fn on_sent(&mut self, now: Time, _bytes: u64, _in_flight: u64) -> bool {
        self.advance(now);
        true
    }

    fn on_ack(&mut self, ack: &AckSample) {
        self.advance(ack.now);
    }

    fn budget(&self) -> Budget {
        self.budget
    }

    fn is_congested(&self) -> bool {
        self.is_congested
    }
}
