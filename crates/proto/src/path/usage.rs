//! How much of the path the application uses: the share of time in which nothing was there to send.
//!
//! The path asks it whether a packet was limited by the application, the redundancy policies whether the path is
//! saturated.

use core::time::Duration;

use crate::Time;

/// A path that was idle for less than this share of the last round trip is saturated: the path, not the application,
/// is the limit. The wake-ups of a driver leave gaps of some ten microseconds per millisecond; an application at
/// 85 % of the rate leaves 15 %.
const SATURATED_IDLE: f64 = 0.1;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Since when slots were free with nothing to send.
    pub idle_since: Option<Time>,
    /// Fraction of the time in which that was so, over about one round trip.
    idle_share: f64,
    /// When data last left.
    pub last_data: Time,
}

impl Usage {
    /// Nothing was sent yet.
    pub fn new(now: Time) -> Self {
        Self { idle_since: Some(now), idle_share: 1.0, last_data: now }
    }

    /// The path, not the application, is the limit.
    pub fn is_saturated(&self) -> bool {
        self.idle_share < SATURATED_IDLE
    }

    /// Data leaves; `rtt` is the smoothed round trip.
    pub fn on_data(&mut self, now: Time, rtt: Duration) {
        let idle = self.idle_since.take().map_or(Duration::ZERO, |since| now.since(since));
        let passed = now.since(self.last_data).max(Duration::from_nanos(1));
        let weight = (passed.as_secs_f64() / rtt.as_secs_f64().max(1e-3)).min(1.0);
        let share = (idle.as_secs_f64() / passed.as_secs_f64()).min(1.0);
        self.idle_share += weight * (share - self.idle_share);
        self.last_data = now;
    }
}
