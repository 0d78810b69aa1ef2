//! The part that loss-based controllers share: slow start, recovery, and pacing by the window (RFC 9002
//! section 7).
//!
//! [`super::NewReno`] and [`super::Cubic`] each own a [`LossWindow`]. They decide how it grows in congestion
//! avoidance and how far it falls. Invariants: the window falls at most once for all packets that were sent
//! before its last fall, it is never below two packets, and it grows only while the sender uses it.

use core::time::Duration;

use super::hystart::HyStart;
use super::{AckSample, Budget, INITIAL_WINDOW, PACKET, queue_is_long};
use crate::Time;

/// Minimum window (RFC 9002 section 7.2).
const LEAST_WINDOW: u64 = 2 * PACKET;
/// Pace in windows per round trip. It is 1.25, so that the window is the limit (RFC 9002 section 7.7). In
/// slow start it matches the rate at which the window may double.
const PACING_GAIN: f64 = 1.25;
const SLOW_START_PACING_GAIN: f64 = 2.0;
/// The window counts as used while at most this part of it is free. FEEDBACK comes every sixteenth of a round
/// trip and the pacer delays packets; RFC 9002 section 7.8 asks not to take such a gap for a lack of data.
const UNUSED_DIVISOR: u64 = 8;

/// The window of a loss-based controller, described in the module documentation.
#[derive(Debug)]
pub(super) struct LossWindow {
    /// Congestion window in bytes, IP headers included.
    pub bytes: u64,
    /// Slow start runs below this window.
    threshold: u64,
    /// Time at which the window last fell. Losses of packets sent until then belong to the same congestion.
    fell: Option<Time>,
    hystart: HyStart,
    smoothed: Duration,
    queue: Duration,
    min_rtt: Duration,
}

impl Default for LossWindow {
    fn default() -> Self {
        Self {
            bytes: INITIAL_WINDOW,
            threshold: u64::MAX,
            fell: None,
            hystart: HyStart::default(),
            smoothed: Duration::from_millis(333),
            queue: Duration::ZERO,
            min_rtt: Duration::from_millis(333),
        }
    }
}

/// How the controller uses an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// Not at all: it is for packets sent before the window fell, or the window was not in use.
    Still,
    /// Slow start has already used it.
    SlowStart,
    /// Congestion avoidance uses it; the value is the bytes acknowledged.
    Avoidance(u64),
}

impl LossWindow {
    /// Begins in congestion avoidance with a window of `bytes`.
    pub(super) fn avoiding(bytes: u64) -> Self {
        Self { bytes, threshold: bytes, ..Self::default() }
    }

    /// See [`super::RateController::on_handshake`].
    pub(super) fn on_handshake(&mut self, rtt: Duration) {
        (self.smoothed, self.min_rtt) = (rtt, rtt);
    }

    /// Takes an acknowledgement. Slow start happens here; the caller does congestion avoidance.
    pub(super) fn on_ack(&mut self, ack: &AckSample) -> Growth {
        (self.smoothed, self.min_rtt) = (ack.smoothed, ack.min_rtt);
        if let Some(rtt) = ack.rtt {
            self.queue = rtt.saturating_sub(ack.min_rtt);
        }
        if self.fell.is_some_and(|fell| ack.left <= fell) || !self.is_used(ack) {
            return Growth::Still;
        }
        if !self.is_slow_start() {
            return Growth::Avoidance(ack.bytes);
        }
        let (growth, over) = self.hystart.on_ack(ack);
        self.bytes = self.bytes.saturating_add(growth).min(self.threshold);
        if over {
            self.threshold = self.bytes;
        }
        Growth::SlowStart
    }

    fn is_used(&self, ack: &AckSample) -> bool {
        let before = ack.in_flight + ack.bytes;
        if self.is_slow_start() {
            // Half is enough: the window doubles within the round trip in which the sender fills it.
            return before.saturating_mul(2) >= self.bytes;
        }
        before + (self.bytes / UNUSED_DIVISOR).max(LEAST_WINDOW) >= self.bytes
    }

    /// Whether the window is below its threshold and doubles in a round trip.
    pub(super) fn is_slow_start(&self) -> bool {
        self.bytes < self.threshold
    }

    /// Whether the window already fell for the congestion seen on packets whose newest was sent at `sent`.
    pub(super) fn is_answered(&self, sent: Time) -> bool {
        self.fell.is_some_and(|fell| sent <= fell)
    }

    /// Lowers the window to `factor` of itself.
    pub(super) fn fall(&mut self, now: Time, factor: f64) {
        self.fell = Some(now);
        self.bytes = ((self.bytes as f64 * factor) as u64).max(LEAST_WINDOW);
        self.threshold = self.bytes;
    }

    /// All packets of a long time were lost. Restarts from the minimum window (RFC 9002 section 7.6.2), with
    /// slow start up to the threshold.
    pub(super) fn collapse(&mut self) {
        self.bytes = LEAST_WINDOW;
        self.fell = None;
        self.hystart = HyStart::default();
    }

    /// The window, and the pace that spreads it over a round trip.
    pub(super) fn budget(&self) -> Budget {
        let gain = if self.is_slow_start() { SLOW_START_PACING_GAIN } else { PACING_GAIN };
        Budget { window: self.bytes, pacing: (self.rate() as f64 * gain) as u64 }
    }

    /// Queueing delay of the newest packet.
    pub(super) fn queue(&self) -> Duration {
        self.queue
    }

    /// See [`super::RateController::is_congested`].
    pub(super) fn is_congested(&self) -> bool {
        queue_is_long(self.queue, self.min_rtt, self.rate())
    }

    /// See [`super::RateController::state`]: the names of qlog's QUIC events.
    pub(super) fn state(&self) -> &'static str {
        if self.is_slow_start() { "slow_start" } else { "congestion_avoidance" }
    }

    /// The window as a rate in bytes per second.
    fn rate(&self) -> u64 {
        (self.bytes as f64 / self.smoothed.as_secs_f64().max(1e-6)) as u64
    }
}
