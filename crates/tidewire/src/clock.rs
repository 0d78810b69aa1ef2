//! The clock and the timer of a driver.
//!
//! The timer is tokio's, which has a resolution of one millisecond, while packets are due every few hundred
//! microseconds. The pacer lets a late driver catch up by 2 ms, so the driver sends two or three packets at a
//! time. A kernel timer (timerfd) in its place gave the same rate and delay for twice the CPU time, because
//! each packet then woke the driver (25 and 100 Mbit/s, 60 ms, 2 cores). It is used for packet trains, whose
//! pace the peer measures (docs/rcdp.md, "Pacing").

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tidewire_proto::Time;
use tokio::time::Sleep;

#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::alarm::Alarm;

/// Nothing in the protocol waits longer than this. It keeps a time that never comes within the range of a
/// clock.
pub(crate) const LONGEST: Duration = Duration::from_secs(3_600);

/// Monotonic time since the endpoint was created.
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

/// Wakes its task at a time that can be moved.
#[derive(Debug)]
pub(crate) struct Timer {
    clock: Clock,
    sleep: Pin<Box<Sleep>>,
    set: Time,
    #[cfg(any(target_os = "linux", target_os = "android"))]
    alarm: Alarm,
}

impl Timer {
    /// Needs a runtime with time enabled.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            sleep: Box::pin(tokio::time::sleep(LONGEST)),
            set: Time::NEVER,
            #[cfg(any(target_os = "linux", target_os = "android"))]
            alarm: Alarm::default(),
        }
    }

    /// Like [`Self::poll`], by a timer of the kernel where there is one.
    pub fn poll_exactly(&mut self, cx: &mut Context<'_>, at: Time) -> Poll<()> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if let Some(polled) = self.alarm.poll(cx, &self.clock, at) {
            return polled;
        }
        self.poll(cx, at)
    }

    /// Ready once `at` has passed; otherwise the task is woken at that time.
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
            // The timer fired at the latest time that can be set, so it is set again.
            self.set = Time::ZERO;
        }
    }
}
