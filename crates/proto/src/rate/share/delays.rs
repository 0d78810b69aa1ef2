//! The queueing delay of our own direction, as [`super::Share`] sees it.
//!
//! Delays are one-way delays up to a constant ([`AckSample::one_way`]), or round trips where the peer reports
//! no arrival times. The least delay of the last ten seconds is the path without a queue. If it rose, a queue
//! may have stood all the time, so it follows slowly, unless the delay [jumped](Delays::has_jumped). Short
//! packets need less time for serialization than long ones, so each of the two classes has its own.

use core::mem;
use core::time::Duration;

use super::AckSample;
use super::tuning::{BASE_LIFE, FALL, JUMP, JUMP_STAYS, MEAN_OF, NEAR, RECENT, RISE};
use crate::Time;

/// Least delay of one class of packet sizes: of the present half of the window, and of the one before.
#[derive(Clone, Copy, Debug)]
struct Least([Duration; 2]);

impl Default for Least {
    fn default() -> Self {
        Self([Duration::MAX; 2])
    }
}

impl Least {
    fn get(self) -> Duration {
        self.0[0].min(self.0[1])
    }
}

/// Queueing delays of the latest samples, and their least mean: since the last slow phase began, and before
/// that, back to the slow phase before.
#[derive(Debug, Default)]
struct Means {
    latest: [Duration; MEAN_OF],
    least: [Duration; 2],
}

/// Delays and the queue that they show.
#[derive(Debug, Default)]
pub(super) struct Delays {
    /// Of short and of long packets.
    least: [Least; 2],
    half_since: Option<Time>,
    /// Size of the longest packet seen.
    longest: u32,
    /// Queueing delay of the latest samples, and the number of samples in this phase.
    recent: [Duration; RECENT],
    pub samples: usize,
    /// When a sample near the least delay was last seen.
    pub near_at: Option<Time>,
    /// Shortest queue since the owner last reset it.
    pub low: Duration,
    /// The least delay has just fallen: it contained a queue of others.
    pub fell: bool,
    /// The least delays do not age: a queue of others may stand all the time.
    pub holds: bool,
    /// A delay that rose faster than a queue can grow is the path's, as long as it stays this long.
    jumped: Option<Duration>,
    /// When the packet of the latest sample left.
    left: Time,
    means: Means,
    /// Queueing delay of the latest sample.
    pub queue: Duration,
    /// Minimum and smoothed RTT of the path.
    pub min_rtt: Duration,
    pub smoothed: Duration,
}

impl Delays {
    /// Takes the delay of an acknowledgement, if it has one. Returns the queueing delay that it shows.
    pub(super) fn on_ack(&mut self, ack: &AckSample) -> Option<Duration> {
        (self.min_rtt, self.smoothed) = (ack.min_rtt, ack.smoothed);
        let delay = ack.one_way.or(ack.rtt)?;
        let since = *self.half_since.get_or_insert(ack.now);
        if self.holds {
            self.half_since = Some(ack.now);
        } else if ack.now.since(since) >= BASE_LIFE / 2 {
            self.half_since = Some(ack.now);
            for least in &mut self.least {
                let [present, before] = least.0;
                least.0 = [Duration::MAX, present.min(before.saturating_add(RISE))];
            }
        }
        if ack.newest_bytes > 2 * self.longest {
            // What counted as long until now is short.
            let [short, long] = &mut self.least;
            for (short, long) in short.0.iter_mut().zip(&mut long.0) {
                *short = (*short).min(*long);
                *long = Duration::MAX;
            }
        }
        self.longest = self.longest.max(ack.newest_bytes);
        let class = usize::from(ack.newest_bytes * 2 > self.longest);
        let least = &mut self.least[class];
        let before = least.get();
        self.fell |= before != Duration::MAX && delay + FALL < before;
        least.0[0] = least.0[0].min(delay);
        let queue = delay.saturating_sub(least.get());
        let gap = ack.left.since(mem::replace(&mut self.left, ack.left));
        if queue > self.queue + JUMP.max(2 * gap) {
            self.jumped = Some(queue.mul_f64(JUMP_STAYS));
        } else if self.jumped.is_some_and(|jumped| queue < jumped) {
            self.jumped = None;
        }
        self.queue = queue;
        self.recent[self.samples % RECENT] = self.queue;
        self.samples += 1;
        self.means.latest[self.samples % MEAN_OF] = self.queue;
        if self.samples >= MEAN_OF {
            let mean = self.means.latest.iter().sum::<Duration>() / MEAN_OF as u32;
            self.means.least[0] = self.means.least[0].min(mean);
        }
        self.low = self.low.min(self.recent_queue());
        if self.queue <= NEAR || self.near_at.is_none() {
            self.near_at = Some(ack.now);
        }
        Some(self.queue)
    }

    /// Whether the delay rose at once and stayed: the path has changed.
    pub(super) fn has_jumped(&self) -> bool {
        self.jumped.is_some()
    }

    /// The path has changed: the least delays begin anew.
    pub(super) fn forget(&mut self) {
        (self.least, self.near_at, self.jumped) = (Default::default(), None, None);
    }

    /// A slow phase begins.
    pub(super) fn slow_down(&mut self) {
        self.means.least = [Duration::MAX, self.means.least[0]];
    }

    /// Mean delay that no slow phase of late undercut, as far as one has shown it.
    pub(super) fn least_mean(&self) -> Duration {
        let [present, before] = self.means.least;
        let least = present.min(before);
        if least == Duration::MAX { Duration::ZERO } else { least }
    }

    /// A new phase begins.
    pub(super) fn restart(&mut self) {
        self.samples = 0;
    }

    /// Queueing delay that all of the latest samples show, whatever the phase.
    pub(super) fn recent_queue(&self) -> Duration {
        self.recent.iter().min().copied().unwrap_or_default()
    }

    /// The same, if all of them are of this phase.
    pub(super) fn standing(&self) -> Duration {
        if self.samples < RECENT { Duration::ZERO } else { self.recent_queue() }
    }
}
