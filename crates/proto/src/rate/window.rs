//! What the controllers that take loss for congestion share: slow start, recovery, pacing by the window (RFC 9002 section 7).
//!
//! [`super::NewReno`] and [`super::Cubic`] own a [`LossWindow`] each and say how it grows in congestion avoidance and how far it
//! falls. The window falls at most once for all packets that had left when it last fell, is never below two packets, and
//! grows only while the sender uses it.

use core::time::Duration;

use super::hystart::HyStart;
use super::{AckSample, Budget, INITIAL_WINDOW, PACKET, queue_is_long};
use crate::Time;

/// Least window (RFC 9002 section 7.2).
const LEAST_WINDOW: u64 = 2 * PACKET;
/// Pace in windows per round trip, so that the window is the limit: 1.25 (RFC 9002 section 7.7), and as fast as it may double in slow start.
const PACING_GAIN: f64 = 1.25;
const SLOW_START_PACING_GAIN: f64 = 2.0;
/// The window counts as used while no more than this part of it is free: FEEDBACK comes every sixteenth of a round trip, and the pacer holds
/// some back (RFC 9002 section 7.8 asks not to take that for a lack of data).
const UNUSED_DIVISOR: u64 = 8;

/// See the module.
#[derive(Debug)]
pub(super) struct LossWindow {
    /// Congestion window in bytes, IP headers included.
    pub bytes: u64,
    /// Slow start below this.
    threshold: u64,
    /// When the window last fell: packets that left until then are of that congestion.
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

/// How an acknowledgement is to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// Not at all: it is of packets from before the window fell, or the window was not used.
    Still,
    /// It was used for slow start.
    SlowStart,
    /// By congestion avoidance: bytes acknowledged.
    Avoidance(u64),
}

impl LossWindow {
    /// Begins in congestion avoidance, with so many bytes.
    pub fn avoiding(bytes: u64) -> Self {
        Self { bytes, threshold: bytes, ..Self::default() }
    }

    /// See [`super::RateController::on_handshake`].
    pub fn on_handshake(&mut self, rtt: Duration) {
        (self.smoothed, self.min_rtt) = (rtt, rtt);
    }

    /// Takes an acknowledgement; slow start is done here, congestion avoidance is the caller's.
    pub fn on_ack(&mut self, ack: &AckSample) -> Growth {
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

    fn is_slow_start(&self) -> bool {
        self.bytes < self.threshold
    }

    /// Whether congestion seen on packets of which the newest left at `sent` was answered already.
    pub fn is_answered(&self, sent: Time) -> bool {
        self.fell.is_some_and(|fell| sent <= fell)
    }

    /// Lowers the window to `factor` of itself.
    pub fn fall(&mut self, now: Time, factor: f64) {
        self.fell = Some(now);
        self.bytes = ((self.bytes as f64 * factor) as u64).max(LEAST_WINDOW);
        self.threshold = self.bytes;
    }

    /// All packets of a long time were lost: begins anew from the least window (RFC 9002 section 7.6.2), with slow start up to the threshold.
    pub fn collapse(&mut self) {
        self.bytes = LEAST_WINDOW;
        self.fell = None;
        self.hystart = HyStart::default();
    }

    /// Window, and the pace at which it is spread over a round trip.
    pub fn budget(&self) -> Budget {
        let gain = if self.is_slow_start() { SLOW_START_PACING_GAIN } else { PACING_GAIN };
        Budget { window: self.bytes, pacing: (self.rate() as f64 * gain) as u64 }
    }

    /// See [`super::RateController::is_congested`].
    pub fn is_congested(&self) -> bool {
        queue_is_long(self.queue, self.min_rtt, self.rate())
    }

    /// Bytes per second that the window amounts to.
    fn rate(&self) -> u64 {
        (self.bytes as f64 / self.smoothed.as_secs_f64().max(1e-6)) as u64
    }
}
