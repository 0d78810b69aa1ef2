//! The samples of the round trip that [`super::Bbr`] keeps.

use core::time::Duration;

use super::AckSample;
use super::tuning::RECENT;
use crate::Time;

/// Round trips and the queueing delay that they show.
#[derive(Debug)]
pub(super) struct RoundTrips {
    /// The latest samples, and the number of samples in this phase.
    pub recent: [Duration; RECENT],
    pub samples: usize,
    /// Least round trip of the path.
    pub min: Duration,
    /// When a sample near the minimum was last seen.
    pub near_min_at: Time,
    /// Queueing delay of the latest sample.
    pub queue: Duration,
    /// The path's new, longer minimum, used while the minimum of the last ten seconds still shows the old
    /// one. Any shorter sample lowers it.
    pub longer: Duration,
    /// Minimum of the current round of this phase.
    pub least: Duration,
    /// Minimum of the current round, whatever the phase.
    pub round_least: Duration,
    /// Minimum of the packets of the last drain. It contains no queue of our own, only the path's jitter. MAX
    /// before the first drain.
    pub floor: Duration,
}

impl Default for RoundTrips {
    fn default() -> Self {
        Self {
            recent: [Duration::ZERO; RECENT],
            samples: 0,
            min: Duration::from_millis(333),
            near_min_at: Time::ZERO,
            queue: Duration::ZERO,
            longer: Duration::ZERO,
            least: Duration::MAX,
            round_least: Duration::MAX,
            floor: Duration::MAX,
        }
    }
}

impl RoundTrips {
    /// Takes the round trip of an acknowledgement, if it has one.
    pub fn on_ack(&mut self, ack: &AckSample) {
        self.longer = ack.rtt.map_or(self.longer, |rtt| self.longer.min(rtt));
        self.min = ack.min_rtt.max(self.longer);
        if let Some(rtt) = ack.rtt {
            self.recent[self.samples % RECENT] = rtt;
            self.samples += 1;
            self.least = self.least.min(rtt);
            self.round_least = self.round_least.min(rtt);
            self.queue = rtt.saturating_sub(self.min);
            if self.queue <= (self.min / 16).max(Duration::from_millis(1)) {
                self.near_min_at = ack.now;
            }
        }
    }

    /// Minimum of the latest samples.
    pub fn latest_least(&self) -> Duration {
        self.recent.iter().min().copied().unwrap_or_default()
    }

    /// Queueing delay that all of the latest samples show, whatever the phase.
    pub fn recent_queue(&self) -> Duration {
        self.latest_least().saturating_sub(self.min)
    }
}
