//! Spreads packets over time at the rate controller's pace.
//!
//! It keeps one value: the time at which the next packet is due. A driver that wakes late may catch up by at
//! most [`CATCH_UP`], so that a coarse timer does not cost rate. An idle sender gets no burst beyond that.

use core::time::Duration;

use crate::Time;

/// Delay that a late driver may make up: two ticks of a 1 ms timer (tokio's).
const CATCH_UP: Duration = Duration::from_millis(2);

/// The pacer of one path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pacer {
    due: Time,
}

impl Pacer {
    /// Whether a packet may be sent now.
    pub fn is_open(&self, now: Time) -> bool {
        self.due <= now
    }

    /// Time at which the next packet may be sent.
    pub fn due(&self) -> Time {
        self.due
    }

    /// A packet of `bytes` (with IP and UDP headers) was sent at `now`. `rate` is in bytes per second.
    pub fn on_sent(&mut self, now: Time, bytes: usize, rate: u64) {
        let earliest = now - CATCH_UP;
        self.due = self.due.max(earliest) + transmission_time(bytes, rate);
    }
}

/// The time that `bytes` take at `rate` bytes per second.
pub(crate) fn transmission_time(bytes: usize, rate: u64) -> Duration {
    Duration::from_nanos((bytes as u64).saturating_mul(1_000_000_000) / rate.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_at_the_rate_and_no_faster() {
        let mut pacer = Pacer::default();
        let (mut now, mut sent) = (Time::from_millis(100), 0);
        while now < Time::from_millis(1_100) {
            while pacer.is_open(now) {
                pacer.on_sent(now, 1_250, 1_250_000);
                sent += 1;
            }
            now = pacer.due();
        }
        // 1,000 packets in one second, and the catch-up at the start.
        assert!((1_000..=1_003).contains(&sent), "{sent}");
    }

    #[test]
    fn a_late_driver_catches_up_by_two_milliseconds() {
        let mut pacer = Pacer::default();
        pacer.on_sent(Time::from_millis(10), 1_250, 1_250_000);
        let late = Time::from_millis(60);
        let mut burst = 0;
        while pacer.is_open(late) {
            pacer.on_sent(late, 1_250, 1_250_000);
            burst += 1;
        }
        assert_eq!(burst, 3);
    }
}
