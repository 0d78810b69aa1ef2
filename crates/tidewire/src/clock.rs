//! The clock and the timer of a driver.
//!
//! The timer is the runtime's, which ticks in milliseconds, while packets are due each few hundred
//! microseconds: the pacer lets a late driver catch up by 2 ms, so that it sends two or three at a time. A
//! timer of the kernel (timerfd) in its place gave the same rate and delay for twice the CPU time, since each
//! packet then woke the driver (25 and 100 Mbit/s, 60 ms, 2 cores).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tidewire_proto::Time;
use tokio::time::Sleep;

/// Nothing in the protocol waits for longer; keeps a moment that never comes within what a clock can count.
const LONGEST: Duration = Duration::from_secs(3_600);

/// Monotonic time since the endpoint began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    pub fn now(&self) -> Time {
        Time::ZERO + self.start.elapsed()
    }
}

/// Wakes its task at one moment, which may be moved.
#[derive(Debug)]
pub(crate) struct Timer {
    clock: Clock,
    sleep: Pin<Box<Sleep>>,
    set: Time,
}

impl Timer {
    /// Needs a runtime with time enabled.
    pub fn new(clock: Clock) -> Self {
        Self { clock, sleep: Box::pin(tokio::time::sleep(LONGEST)), set: Time::NEVER }
    }

    /// Ready when `at` has come; else the task is woken then.
    pub fn poll(&mut self, cx: &mut Context<'_>, at: Time) -> Poll<()> {
        loop {
            let wait = at.since(self.clock.now());
            if wait.is_zero() {
                return Poll::Ready(());
            }
            if self.set != at {
                self.sleep.as_mut().reset(tokio::time::Instant::now() + wait.min(LONGEST));
                self.set = at;
            }
            ready!(self.sleep.as_mut().poll(cx));
            // It rang, at the latest moment that can be set: it is set again.
            self.set = Time::ZERO;
        }
    }
}
