//! How much of the path the application uses: the share of time in which there was nothing to send.
//!
//! The path asks it whether a packet was limited by the application. The redundancy policies ask it whether
//! the path is saturated.

use core::time::Duration;

use crate::Time;

/// A path that was idle for less than this share of the last round trip is saturated: the path is the limit,
/// not the application. The wake-ups of a driver leave gaps of some ten microseconds per millisecond. An
/// application at 85 % of the rate leaves 15 %.
const SATURATED_IDLE: f64 = 0.1;

/// How far the application limits one path, described in the module documentation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AppLimited {
    /// Time since which the path could send and there was nothing to send.
    pub idle_since: Option<Time>,
    /// Fraction of time with nothing to send, over about one round trip.
    idle_share: f64,
    /// Time at which data was last sent.
    pub last_data: Time,
}

impl AppLimited {
    /// The state before anything is sent.
    pub(crate) fn new(now: Time) -> Self {
        Self { idle_since: Some(now), idle_share: 1.0, last_data: now }
    }

    /// Whether the path, not the application, is the limit.
    pub(crate) fn is_saturated(&self) -> bool {
        self.idle_share < SATURATED_IDLE
    }

    /// Data is sent; `rtt` is the smoothed round trip.
    pub(crate) fn on_data(&mut self, now: Time, rtt: Duration) {
        if now == self.last_data && self.idle_since.is_none() {
            // Another packet of the same batch.
            return;
        }
        let idle = self.idle_since.take().map_or(Duration::ZERO, |since| now.since(since));
        let passed = now.since(self.last_data).max(Duration::from_nanos(1));
        let weight = (passed.as_secs_f64() / rtt.as_secs_f64().max(1e-3)).min(1.0);
        let share = (idle.as_secs_f64() / passed.as_secs_f64()).min(1.0);
        self.idle_share += weight * (share - self.idle_share);
        self.last_data = now;
    }
}
