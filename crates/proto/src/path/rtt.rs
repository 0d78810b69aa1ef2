//! Round-trip time of a path (RFC 9002 section 5), from each acknowledgement whose newest packet is newly
//! acknowledged.
//!
//! `min` is the minimum of the last ten seconds, so that a longer route is noticed within that time.

use core::time::Duration;

use crate::Time;

/// RTT assumed before the first sample (RFC 9002 section 6.2.2 says 333 ms; the handshake gives a sample
/// before any data).
const INITIAL: Duration = Duration::from_millis(333);
/// Lifetime of a minimum (BBR's choice, draft-ietf-ccwg-bbr section 2.10).
const MIN_WINDOW: Duration = Duration::from_secs(10);
/// Largest delay of the peer that is subtracted from a sample: what the peer may add on purpose. What its
/// host adds beyond is part of every timeout (RFC 9002 section 5.3).
const MAX_PEER_DELAY: Duration = super::MAX_FEEDBACK_DELAY;
/// Timer granularity (RFC 9002 section 6.1.2).
pub(crate) const GRANULARITY: Duration = Duration::from_millis(1);

/// Probe timeouts of persistent congestion (RFC 9002 section 7.6.1, `kPersistentCongestionThreshold`).
const PERSISTENT_TIMEOUTS: u32 = 3;

/// Round-trip time estimate of one path.
#[derive(Clone, Debug)]
pub(crate) struct Rtt {
    latest: Duration,
    smoothed: Option<Duration>,
    variation: Duration,
    min: Duration,
    min_at: Time,
    /// Minimum sample since `min_at + MIN_WINDOW / 2`. `min` becomes this when it expires.
    next_min: Duration,
    lowest: Duration,
    sum: Duration,
    samples: u32,
    /// Time of the first sample.
    known_since: Option<Time>,
}

impl Default for Rtt {
    fn default() -> Self {
        Self {
            latest: INITIAL,
            smoothed: None,
            variation: INITIAL / 2,
            min: Duration::MAX,
            min_at: Time::ZERO,
            next_min: Duration::MAX,
            lowest: Duration::MAX,
            sum: Duration::ZERO,
            samples: 0,
            known_since: None,
        }
    }
}

impl Rtt {
    /// Takes one sample: `now - sent`, and the peer's own delay before its acknowledgement.
    pub(crate) fn on_sample(&mut self, now: Time, sample: Duration, peer_delay: Duration) {
        // The peer's own delay is not part of the path. A peer that overstates it harms only itself, so it is
        // trusted up to the limit.
        let sample = sample.max(Duration::from_micros(1));
        let peer_delay = peer_delay.min(MAX_PEER_DELAY);
        let adjusted = if sample > peer_delay { sample - peer_delay } else { sample };
        self.update_min(now, adjusted);
        self.latest = adjusted;
        self.known_since.get_or_insert(now);
        self.sum += adjusted;
        self.samples = self.samples.saturating_add(1);
        self.smoothed = Some(match self.smoothed {
            None => {
                self.variation = adjusted / 2;
                adjusted
            }
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(adjusted)) / 4;
                (smoothed * 7 + adjusted) / 8
            }
        });
    }

    fn update_min(&mut self, now: Time, sample: Duration) {
        self.lowest = self.lowest.min(sample);
        if sample <= self.min || now.since(self.min_at) > MIN_WINDOW {
            self.min = if sample <= self.min { sample } else { sample.min(self.next_min) };
            self.min_at = now;
            self.next_min = Duration::MAX;
        } else if now.since(self.min_at) > MIN_WINDOW / 2 {
            self.next_min = self.next_min.min(sample);
        }
    }

    /// Smoothed round-trip time, or the initial value.
    pub(crate) fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or(INITIAL)
    }

    /// The latest sample, less the peer's delay.
    pub(crate) fn latest(&self) -> Duration {
        self.latest
    }

    /// Minimum sample of the last ten seconds. Before the first sample, the smoothed value.
    pub(crate) fn min(&self) -> Duration {
        if self.min == Duration::MAX { self.smoothed() } else { self.min }
    }

    /// Minimum RTT, or zero before the first sample. Use it where too early is better than too late. The
    /// smoothed RTT of an end that sends little may be out of date.
    pub(crate) fn least_or_zero(&self) -> Duration {
        self.smoothed.map_or(Duration::ZERO, |smoothed| smoothed.min(self.min))
    }

    /// The minimum of all samples ever, and their mean, for reports.
    pub(crate) fn lowest_and_mean(&self) -> (Duration, Duration) {
        if self.samples == 0 {
            return (Duration::ZERO, Duration::ZERO);
        }
        (self.lowest, self.sum / self.samples)
    }

    /// Number of samples so far.
    pub(crate) fn samples(&self) -> u32 {
        self.samples
    }

    /// The time of the first RTT sample, and how long losses must last to be persistent congestion (RFC 9002
    /// section 7.6.1).
    pub(crate) fn persistent_span(&self, peer_delay: Duration) -> Option<(Time, Duration)> {
        self.known_since.map(|since| (since, self.probe_timeout(peer_delay) * PERSISTENT_TIMEOUTS))
    }

    /// Probe timeout: how long to wait for an acknowledgement before a probe (RFC 9002 section 6.2.1).
    pub(crate) fn probe_timeout(&self, peer_delay: Duration) -> Duration {
        self.smoothed() + (self.variation * 4).max(GRANULARITY) + peer_delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn first_sample_sets_all() {
        let mut rtt = Rtt::default();
        rtt.on_sample(Time::from_millis(60), ms(60), Duration::ZERO);
        assert_eq!((rtt.smoothed(), rtt.variation, rtt.min()), (ms(60), ms(30), ms(60)));
    }

    #[test]
    fn the_peers_delay_is_taken_off_up_to_a_bound() {
        let mut rtt = Rtt::default();
        rtt.on_sample(Time::from_millis(70), ms(70), ms(10));
        assert_eq!((rtt.latest(), rtt.min()), (ms(60), ms(60)));
        rtt.on_sample(Time::from_millis(230), ms(160), ms(500));
        assert_eq!((rtt.latest(), rtt.min()), (ms(135), ms(60)));
        rtt.on_sample(Time::from_millis(260), ms(20), ms(40));
        assert_eq!(rtt.latest(), ms(20));
    }

    #[test]
    fn a_minimum_expires_after_ten_seconds() {
        let mut rtt = Rtt::default();
        rtt.on_sample(Time::from_millis(0), ms(20), Duration::ZERO);
        for at in (100..=10_500).step_by(100) {
            rtt.on_sample(Time::from_millis(at), ms(80), Duration::ZERO);
        }
        assert_eq!(rtt.min(), ms(80));
    }
}
