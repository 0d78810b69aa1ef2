//! Start-up of a connection: the pace doubles each round trip until the path is full.
//!
//! The rate is the best one that was measured, over a round trip or from the dispersion of the latest packets
//! ([`crate::path::Dispersion`]), which shows a path's rate one round trip sooner. Called by [`super::Share`]
//! in its first phase.

use super::AckSample;
use super::tuning::{FIRST_FLIGHT, FULL_GROWTH, FULL_ROUNDS, LEAST_FLIGHT, SPARSE, STARTUP_GAIN};
use crate::Time;
use crate::rate::Budget;
use core::mem;
use core::time::Duration;

/// Rates found in start-up, in bytes per second.
#[derive(Debug)]
pub(super) struct Startup {
    /// Best rate of the bottleneck, and best rate of arrivals.
    pub best: u64,
    acked: u64,
    /// The rate of arrivals that must be exceeded, and the rounds in which that did not happen.
    full: u64,
    full_rounds: u32,
    /// The least flight in bytes: the rates of the first packets must not lower that of the first flight.
    flight: u64,
    /// The least time in seconds that it takes.
    least_round: f64,
    /// Departure time of the latest train divided by its arrival time. Below 1 the path was slower.
    slowed: f64,
    /// Longest delay of late above the least one, and the largest fall after such a one.
    peak: Duration,
    pub fell: Duration,
    /// When the packet of the latest delay left.
    left: Time,
}

impl Default for Startup {
    fn default() -> Self {
        Self {
            best: 0,
            acked: 0,
            full: 0,
            full_rounds: 0,
            flight: FIRST_FLIGHT,
            least_round: 1e-4,
            slowed: 1.0,
            peak: Duration::ZERO,
            fell: Duration::ZERO,
            left: Time::ZERO,
        }
    }
}

impl Startup {
    /// Begins again at this rate.
    pub(super) fn again(best: u64) -> Self {
        Self { best, flight: LEAST_FLIGHT, least_round: SPARSE.as_secs_f64(), ..Self::default() }
    }

    /// Takes the rates of an acknowledgement. `loss` is what the medium is known to lose.
    pub(super) fn on_ack(&mut self, ack: &AckSample, loss: f64) {
        let mut sample = |acked: u64, passed: u64| {
            self.acked = self.acked.max(acked);
            self.best = self.best.max(passed.min((acked as f64 / (1.0 - loss)) as u64));
        };
        if let Some(found) = ack.dispersion {
            sample(found.acked, found.passed);
            self.slowed = found.slowed;
        }
        if let Some(found) = ack.rate {
            sample(found.acked, found.passed);
        }
    }

    /// Takes the delay of a sample above the least one. The queue does not fall while this sender sends more
    /// and more, so a delay that falls is the path's. After a gap the queue may have emptied.
    pub(super) fn on_delay(&mut self, delay: Duration, ack: &AckSample) {
        let gap = ack.left.since(mem::replace(&mut self.left, ack.left));
        self.peak = if gap > ack.min_rtt / 4 { delay } else { self.peak.max(delay) };
        self.fell = self.fell.max(self.peak - delay);
    }

    /// The path was overrun: what did not arrive was dropped.
    pub(super) fn overran(&mut self) {
        self.best = self.best.min(self.acked);
    }

    /// Ends a round trip in which the application had enough to send. Returns whether the rate of arrivals
    /// has stopped growing.
    pub(super) fn is_full(&mut self) -> bool {
        if self.acked as f64 >= self.full as f64 * FULL_GROWTH {
            (self.full, self.full_rounds) = (self.acked, 0);
            return false;
        }
        self.full_rounds += 1;
        if self.full_rounds < FULL_ROUNDS {
            return false;
        }
        // No queue was built and no more arrived.
        self.overran();
        true
    }

    /// What may be sent over a path with this minimum RTT.
    pub(super) fn budget(&self, min_rtt: Duration) -> Budget {
        let rtt = min_rtt.as_secs_f64().max(1e-4);
        let rate = (self.best as f64).max(self.flight as f64 / rtt.max(self.least_round));
        // Packets that arrive more slowly than they were sent have found the bottleneck.
        let pacing = rate * (STARTUP_GAIN * self.slowed).max(1.0);
        let window = (3.0 * self.best as f64 * rtt) as u64;
        Budget { window: window.max(self.flight), pacing: pacing as u64 }
    }
}
