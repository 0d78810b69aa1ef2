//! The law of the steady state: how the pace follows the queue, and how flows share it.
//!
//! At the end of each epoch the rate becomes
//!
//! ```text
//! r' = served * (1 + (T(r) - q) / tau)        served = s / (1 + dq/dt)
//! ```
//!
//! s is the rate at which the packets of the epoch left and q their queueing delay, so `served` is the rate
//! at which the bottleneck served this flow: a queue grows by what exceeds its service. The last factor moves
//! the queue to its target T within `tau`. T falls with the rate, so of two flows that see one queue the
//! faster one yields to the slower one, until both have the same rate, whatever their round trips. At equal
//! rates C/N the queue is T(C/N), which grows with the square root of N: flow scaling, as in Swift (SIGCOMM
//! 2020, section 3.5). An empty queue says nothing about the service, which may be faster; then r takes the
//! place of `served`, and after some such epochs the sender probes with growing steps while they pay.
//! Where the sender stopped, because no FEEDBACK came and its window was full, r takes the place of s.
//!
//! Between two epochs the pace is the rate times a gain that corrects the queue that the latest packets show,
//! and what is in the pipe beyond the service. So the loop acts on what it has already sent, and the delay of
//! a round trip does not make it oscillate. A long queue is drained until it is short: all flows that share
//! it see the same queue, drain at the same time, and see the path without a queue.
//!
//! Called by [`super::Share`] in the phase `Cruise`. Invariant: while packets are dropped beyond the medium's
//! loss, the rate is at most what arrives, corrected for the medium's loss.

use core::mem;
use core::time::Duration;

use super::epoch::Epoch;
use super::tuning::{
    BASE_LIFE, BRAKE_ROUNDS, CAP_GROWTH, CAP_LIFE, CAP_ROUNDS, CORRECTION_EPOCHS, DRAINED, DROP_MARGIN, EPOCH_LEAST,
    FIRST_GROWTH, FRESH, FULL_FADES, LEAST_PACE, LEAST_SERVED, LEAST_TARGET, LEAST_UNSEEN, MARK_GAIN, MOST_BRAKE,
    MOST_FALL, MOST_FILL, MOST_GROWTH, NOISE_EPOCHS, NOISE_PART, NOISE_STANDS, NOISY_FALL, NOISY_GROWTH, NOISY_TARGET,
    PROBE_AFTER, SPARSE, SPIKE, TARGET_SCALE,
};
use super::{AckSample, PACKET};
use crate::Time;

/// State of the law, described in the module documentation.
#[derive(Debug, Default)]
pub(super) struct Cruise {
    /// The rate of this flow in bytes per second.
    pub rate: f64,
    /// The rate before losses whose cause is not known yet lowered it.
    pub unlowered: f64,
    /// Factor of the pace, which moves the queue to its target.
    gain: f64,
    /// Noise of the delay in the last epoch, in seconds.
    noise: f64,
    spreads: [f64; NOISE_EPOCHS],
    /// Mean delay of the last epoch, and the queue at its end, in seconds.
    mean: Option<f64>,
    queue: Option<f64>,
    /// Rate at which the path served this flow in the last epoch, and the gain of the pace over it since
    /// then, if that gain is a probe for free capacity.
    served: f64,
    probe: f64,
    /// Until then the rate grows in small steps only, because the bottleneck drops without a queue.
    capped: Option<Time>,
    /// Longest queue of the last epochs, in seconds; of those before the bottleneck dropped, and until when
    /// that is remembered.
    longest: f64,
    full: Option<(f64, Time)>,
    /// A long queue is drained until it is short.
    drains: bool,
    /// Epochs in a row whose queue was shorter than half of the target.
    empty: u32,
    /// Epochs until the queue has come back that the last slow phase drained.
    fresh: u32,
}

/// What the medium loses, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// Upper bound of the loss of the medium.
    pub loss: f64,
    /// Loss beyond that of the medium, where it is significant.
    pub excess: f64,
    /// The rate that shows who causes the losses, while that is not known.
    pub tests: Option<f64>,
}

impl Cruise {
    /// Begins with this pace. The epoch before it says nothing about the queue.
    pub(super) fn begin(&mut self, pace: f64) {
        let rate = pace.max(LEAST_PACE);
        *self = Self { rate, unlowered: rate, gain: 1.0, ..Self::default() };
    }

    /// Until epochs have shown it, delays are expected to vary by this much.
    pub(super) fn expect(&mut self, spread: Duration) {
        self.spreads = [spread.as_secs_f64(); NOISE_EPOCHS];
        self.noise = NOISE_PART * spread.as_secs_f64();
    }

    /// Goes on after a phase with another pace.
    pub(super) fn resume(&mut self) {
        (self.queue, self.mean, self.empty, self.probe, self.gain) = (None, None, 0, 0.0, 1.0);
        self.fresh = FRESH;
    }

    /// Queue at which a flow of this pace neither grows nor yields, in seconds.
    pub(super) fn target(&self) -> f64 {
        self.target_at(self.rate)
    }

    /// The same for a flow of this rate.
    pub(super) fn target_at(&self, rate: f64) -> f64 {
        let own = (TARGET_SCALE / rate.max(LEAST_PACE)).sqrt();
        // Shorter than a queue that overflowed, and still the shorter the faster this flow is.
        let target = self.full.map_or(own, |(full, _)| own * full / (full + own));
        target.max(LEAST_TARGET)
    }

    /// The queue of this delay, in seconds, without what varies within an epoch.
    pub(super) fn without_noise(&self, delay: Duration) -> f64 {
        (delay.as_secs_f64() - self.noise).max(0.0)
    }

    /// The target of an epoch. What is left of the noise must not look like a queue.
    fn noisy_target(&self) -> f64 {
        self.target() + self.noise * NOISY_TARGET
    }

    /// Whether this delay shows a queue: if half of it is variation, the path causes it.
    pub(super) fn is_queue(&self, delay: Duration) -> bool {
        self.without_noise(delay) > delay.as_secs_f64() / 2.0
    }

    /// Longest queue of the last epochs.
    pub(super) fn longest_queue(&self) -> Duration {
        Duration::from_secs_f64(self.longest)
    }

    /// Pace in bytes per second.
    pub(super) fn pace(&self) -> f64 {
        self.rate * self.gain
    }

    /// The losses were the medium's: the rate fell in vain.
    pub(super) fn restore(&mut self, rate: f64) {
        self.capped = None;
        self.rate = self.rate.max(rate);
        self.unlowered = self.rate;
    }

    /// The losses were neither the bottleneck's nor the medium's.
    pub(super) fn acquit(&mut self) {
        self.rate = self.rate.max(self.unlowered);
    }

    /// The path marked congestion, which lowers the rate whatever its losses are found to be.
    pub(super) fn on_marks(&mut self) {
        self.rate *= MARK_GAIN;
        self.unlowered *= MARK_GAIN;
        self.resume();
    }

    /// The bottleneck drops what exceeds this rate.
    pub(super) fn limit(&mut self, rate: f64, ack: &AckSample) {
        (self.rate, self.unlowered) = (rate, rate);
        self.full = Some((self.longest.max(LEAST_TARGET), ack.now + BASE_LIFE));
        self.capped = Some(ack.now + CAP_LIFE.max(ack.min_rtt * CAP_ROUNDS));
    }

    /// Whether a long queue is being drained.
    pub(super) fn drains(&self) -> bool {
        self.drains
    }

    /// Whether the bottleneck was found to drop what exceeds the rate.
    pub(super) fn is_capped(&self, now: Time) -> bool {
        self.capped.is_some_and(|until| now < until)
    }

    /// Takes an acknowledgement: the queue that the latest packets show, and what is in the pipe. A test of
    /// losses keeps its pace.
    pub(super) fn on_ack(&mut self, ack: &AckSample, standing: Duration, tests: bool) {
        if self.probe > 0.0 || tests {
            self.gain = 1.0;
            return;
        }
        let queue = self.without_noise(standing);
        let pipe = ack.totals.sent.saturating_sub(ack.totals.passed) as f64;
        let target = self.target();
        // What is in the pipe beyond the service makes the queue longer that later packets find. While the
        // queue is empty, what passed is what this sender sent, and the service may be faster.
        let least = if queue < target / 2.0 { LEAST_UNSEEN } else { LEAST_SERVED };
        let served = ack.rate.map_or(1.0, |sample| (sample.passed as f64 / self.rate).clamp(least, 1.0)) * self.rate;
        let ahead = (pipe / served - ack.now.since(ack.left).as_secs_f64()).clamp(-queue / 2.0, 0.5);
        let tau = ack.smoothed.max(EPOCH_LEAST).as_secs_f64() * BRAKE_ROUNDS;
        let found = queue + ahead;
        self.drains = if self.drains { found > target * DRAINED } else { queue > target * SPIKE };
        if found < target {
            // A flow that has almost nothing may send a packet now and then.
            self.rate = self.rate.max(PACKET as f64 / ack.smoothed.max(SPARSE).as_secs_f64());
        }
        let error = if self.drains { -2.0 * found } else { target - found };
        let base = if self.drains { served / self.rate } else { 1.0 };
        self.gain = base * (1.0 + (error / tau).clamp(-MOST_BRAKE, MOST_FILL));
    }

    /// Ends an epoch, at whose end the queue was `standing`. No slow phase of late undercut `least_mean`.
    pub(super) fn on_epoch(
        &mut self,
        epoch: &Epoch,
        ack: &AckSample,
        standing: Duration,
        least_mean: Duration,
        known: Known,
    ) {
        let lasted = epoch.lasted.max(Duration::from_micros(1)).as_secs_f64();
        // Delays that vary within an epoch are the path's, but for a queue that grows or shrinks steadily.
        let mean = epoch.mean.as_secs_f64();
        let moved = (mean - self.mean.replace(mean).unwrap_or(mean)).abs();
        let spread = (epoch.mean - epoch.least).as_secs_f64();
        self.spreads.rotate_left(1);
        self.spreads[NOISE_EPOCHS - 1] = (spread - moved / 2.0).max(0.0);
        let mut spreads = self.spreads;
        spreads.sort_unstable_by(f64::total_cmp);
        let spread = spreads[NOISE_EPOCHS / 2];
        self.noise = NOISE_PART * spread;
        if self.noise > self.target() {
            // Late packets hold up those behind them, so at a high rate most of the path's delay stands.
            // A queue of this sender does not: slow phases drain it.
            let stands = least_mean.as_secs_f64() + NOISE_PART * spread;
            self.noise = self.noise.max(stands.min(NOISE_STANDS * spread));
        }
        let least = (epoch.least.as_secs_f64() - self.noise).max(0.0);
        let queue = self.without_noise(standing);
        let most = self.without_noise(epoch.most);
        self.longest = most.max(if known.tests.is_some() { self.longest } else { FULL_FADES * self.longest });
        self.full = self.full.filter(|(_, until)| ack.now < *until).map(|(full, until)| (full.max(most), until));
        let target = self.noisy_target();
        let before = self.queue.replace(queue);
        let grown = (queue - before.unwrap_or(queue)) / lasted;
        let is_dropped = known.excess > 0.0 && epoch.loss > known.loss;
        let tau = lasted * CORRECTION_EPOCHS;
        if epoch.app_limited && known.tests.is_none() {
            // The pace was not tested. A queue that stands asks for less all the same.
            if least > target {
                let error = (target - least) / tau;
                self.rate = (self.rate * (1.0 + error.max(-MOST_FALL))).max(epoch.arrived()).max(LEAST_PACE);
            }
            self.resume();
            return;
        }
        let passed = if is_dropped { (1.0 - epoch.loss) / (1.0 - known.loss) } else { 1.0 };
        // Before and after a stop the sender sent at its rate. The mean of the epoch is no rate of service,
        // even if the burst after the stop leaves a queue.
        let sent = if epoch.stopped { epoch.sent.max(self.rate) } else { epoch.sent };
        let served = sent * passed / (1.0 + grown).clamp(0.5, 2.0);
        // An empty queue says nothing about the rate of service, which may be higher.
        let weight = if is_dropped { 1.0 } else { (queue / target).min(1.0) };
        // Where delays vary by more than the target, one epoch may show a queue that is none.
        let least = if self.noise > target && !is_dropped { -NOISY_FALL * self.rate } else { -self.rate };
        let anchor = self.rate + (weight * (served - self.rate)).max(least);
        self.fresh = self.fresh.saturating_sub(1);
        let step = self.step(queue, tau, served, is_dropped || known.tests.is_some() || self.fresh > 0);
        let step = match (is_dropped, known.tests) {
            (true, None) => step.min(-DROP_MARGIN),
            _ if self.fresh > 0 => step.min(0.0),
            _ if self.is_capped(ack.now) => step.min(CAP_GROWTH),
            _ => step,
        };
        let rate = known.tests.map_or(anchor * (1.0 + step.max(-MOST_FALL)), |rate| rate.min(self.rate));
        self.rate = rate.max(LEAST_PACE);
    }

    /// Relative change of the rate that the queue asks for.
    fn step(&mut self, queue: f64, tau: f64, served: f64, loses: bool) -> f64 {
        let target = self.noisy_target();
        let before = mem::replace(&mut self.served, served);
        // What arrives more since the pace recovered from a drain is not the answer to a probe.
        let recovers = self.probe == 0.0 && served > before * (1.0 + FIRST_GROWTH);
        self.empty = match queue < target / 2.0 && !loses {
            true => self.empty + u32::from(!recovers),
            false => 0,
        };
        // Of a probe, half has to come out as service.
        let pays = served > before * (1.0 + self.probe / 2.0);
        // Noise hides the queue that a large probe builds.
        let most = if self.noise > target { NOISY_GROWTH } else { MOST_GROWTH };
        self.probe = match self.empty {
            0 => 0.0,
            _ if self.probe > 0.0 && pays => (2.0 * self.probe).min(most),
            PROBE_AFTER.. if self.probe == 0.0 => FIRST_GROWTH,
            _ if self.empty.is_multiple_of(2) => 0.0,
            _ => self.probe,
        };
        if self.probe > 0.0 { self.probe } else { ((target - queue) / tau).min(MOST_GROWTH) }
    }
}
