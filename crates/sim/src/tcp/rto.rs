//! Round trip and retransmission timeout: RFC 6298 as Linux computes it (`tcp_rtt_estimator`).
//!
//! [`Sender`](super::Sender) calls it for each acknowledgement and each timeout. Linux differs from the RFC
//! in three points. The variation never counts for less than 200 ms, so the timeout is at least that above
//! the round trip. It rises at once and falls at most once a round trip. A round trip shorter than the mean
//! changes it by an eighth only.

use core::time::Duration;

/// `TCP_RTO_MIN`: the least that the variation adds to the smoothed round trip.
pub(super) const RTO_MIN: i64 = 200_000_000;
/// `TCP_RTO_MAX`.
const RTO_MAX: i64 = 120_000_000_000;
/// `TCP_TIMEOUT_INIT`, and RFC 6298 section 2.1: the timeout before the first sample.
const RTO_FIRST: i64 = 1_000_000_000;

/// The estimator. Times are nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Rto {
    /// Smoothed round trip; `None` before the first sample.
    smoothed: Option<i64>,
    /// Mean deviation times four (`mdev_us`).
    deviation: i64,
    /// Largest deviation of the present round trip (`mdev_max_us`).
    largest: i64,
    /// What the timeout adds to the round trip (`rttvar_us`).
    variation: i64,
    /// The round trip ends when this byte is acknowledged (`rtt_seq`).
    round_ends: u64,
    timeout: i64,
    /// The shortest sample.
    least: Option<Duration>,
}

impl Rto {
    pub(super) fn new() -> Self {
        Self { smoothed: None, deviation: 0, largest: 0, variation: 0, round_ends: 0, timeout: RTO_FIRST, least: None }
    }

    /// Takes a sample of the round trip. All bytes below `acked` are acknowledged, and `next` is sent next.
    /// Ends any backoff (RFC 6298 section 5.7).
    pub(super) fn on_sample(&mut self, sample: Duration, acked: u64, next: u64) {
        self.least = Some(self.least.map_or(sample, |least| least.min(sample)));
        let sample = i64::try_from(sample.as_nanos()).unwrap_or(RTO_MAX).max(1);
        match self.smoothed {
            None => {
                self.smoothed = Some(sample);
                self.deviation = 2 * sample;
                self.variation = self.deviation.max(RTO_MIN);
                self.largest = self.variation;
                self.round_ends = next;
            }
            Some(smoothed) => {
                let error = sample - smoothed;
                self.smoothed = Some((smoothed + error / 8).max(1));
                let excess = error.abs() - self.deviation / 4;
                self.deviation += if error < 0 && excess > 0 { excess / 8 } else { excess };
                if self.deviation > self.largest {
                    self.largest = self.deviation;
                    self.variation = self.variation.max(self.largest);
                }
                if acked > self.round_ends {
                    if self.largest < self.variation {
                        self.variation -= (self.variation - self.largest) / 4;
                    }
                    self.round_ends = next;
                    self.largest = RTO_MIN;
                }
            }
        }
        self.timeout = (self.smoothed.unwrap_or(0) + self.variation).min(RTO_MAX);
    }

    /// Doubles the timeout (RFC 6298 section 5.5).
    pub(super) fn back_off(&mut self) {
        self.timeout = (2 * self.timeout).min(RTO_MAX);
    }

    /// The present timeout.
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_nanos(self.timeout.unsigned_abs())
    }

    /// The shortest round trip; `None` before the first sample.
    pub(super) fn least(&self) -> Option<Duration> {
        self.least
    }

    /// The smoothed round trip; `None` before the first sample.
    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.smoothed.map(|smoothed| Duration::from_nanos(smoothed.unsigned_abs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_timeout_is_the_round_trip_and_at_least_200_ms() {
        let mut rto = Rto::new();
        assert_eq!(rto.timeout(), ms(1_000));
        for round in 0..100 {
            rto.on_sample(ms(40), round + 1, round + 2);
            assert_eq!((rto.smoothed(), rto.timeout()), (Some(ms(40)), ms(240)), "{round}");
        }
        // A first sample of 300 ms counts three times: RFC 6298 section 2.2.
        let mut slow = Rto::new();
        slow.on_sample(ms(300), 0, 1);
        assert_eq!(slow.timeout(), ms(900));
    }

    #[test]
    fn it_rises_at_once_falls_by_a_quarter_a_round_trip_and_ignores_short_ones() {
        let mut rto = Rto::new();
        rto.on_sample(ms(40), 0, 100);
        // 400 ms late: the deviation is 80 - 20 + 400 = 460 ms, the mean 90 ms.
        rto.on_sample(ms(440), 50, 100);
        assert_eq!((rto.smoothed(), rto.timeout()), (Some(ms(90)), ms(90 + 460)));
        rto.on_sample(ms(90), 101, 200);
        let before = rto.timeout();
        rto.on_sample(ms(90), 201, 300);
        assert!(rto.timeout() < before && rto.timeout() > ms(90 + 345), "{:?}", rto.timeout());
    }

    #[test]
    fn backoff_doubles_until_two_minutes_and_a_sample_ends_it() {
        let mut rto = Rto::new();
        rto.on_sample(ms(40), 0, 1);
        let mut timeouts = Vec::new();
        for _ in 0..11 {
            timeouts.push(rto.timeout().as_millis());
            rto.back_off();
        }
        let wanted = [240, 480, 960, 1_920, 3_840, 7_680, 15_360, 30_720, 61_440, 120_000, 120_000];
        assert_eq!(timeouts, wanted);
        rto.on_sample(ms(40), 1, 2);
        assert_eq!(rto.timeout(), ms(240));
    }
}
