//! CUBIC (RFC 9438): the window grows by the time since it last fell, first back to where that happened, then beyond.
//!
//! Loss is congestion, also where a repair made it good (RFC 9265), and so is a mark: the window falls to 0.7 once per round trip.
//! Slow start is HyStart++ (RFC 9406). Windows in the formulas are in packets of 1,500 bytes, times in seconds, as in the RFC.

use core::time::Duration;

use super::window::{Growth, LossWindow};
use super::{AckSample, Budget, LossSample, PACKET, RateController};
use crate::Time;

/// How steep the curve is (RFC 9438 section 5.1).
const C: f64 = 0.4;
/// What is left of the window after congestion (RFC 9438 section 4.6).
const BETA: f64 = 0.7;
/// Packets per round trip by which a window that falls to 0.7 gets what Reno gets (RFC 9438 section 4.3).
const RENO_ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// The window grows by half of itself in a round trip at most (RFC 9438 section 4.2).
const MOST_GROWTH: f64 = 1.5;

/// One stretch of congestion avoidance, from one fall of the window to the next.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// Time in it during which the sender used its window: an idle sender earns nothing (RFC 9438 section 5.8).
    elapsed: Duration,
    /// When the curve is back at `max`.
    k: f64,
    /// The window that Reno would have.
    reno: f64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Cubic {
    window: LossWindow,
    epoch: Option<Epoch>,
    /// Where the curve is flat: the window before it fell, less where it had not come back to the one before (`W_max`).
    pub(super) max: f64,
    /// The window before it fell (`cwnd_prior`).
    prior: f64,
    /// Congestion was met since slow start: `max` and `prior` are of it.
    fallen: bool,
    last_ack: Time,
}

impl Cubic {
    /// Begins in congestion avoidance, with a window of so many bytes.
    pub(super) fn avoiding(window: u64) -> Self {
        Self { window: LossWindow::avoiding(window), ..Self::default() }
    }

    /// Window in packets.
    fn packets(&self) -> f64 {
        self.window.bytes as f64 / PACKET as f64
    }

    fn on_congestion(&mut self, now: Time, sent: Time) {
        if self.window.is_answered(sent) {
            return;
        }
        let before = self.packets();
        // Fast convergence: who had not come back to the last maximum leaves room to others (RFC 9438 section 4.7).
        self.max = if self.fallen && before < self.max { before * (1.0 + BETA) / 2.0 } else { before };
        self.prior = before;
        self.fallen = true;
        self.epoch = None;
        self.window.fall(now, BETA);
    }

    /// The stretch that begins now.
    fn begin(&mut self) -> Epoch {
        let reno = self.packets();
        if !self.fallen {
            // Slow start ended without a loss, or began anew after persistent congestion (RFC 9438 sections 4.8, 4.10).
            (self.max, self.prior) = (reno, reno);
        }
        Epoch { elapsed: Duration::ZERO, k: ((self.max - reno).max(0.0) / C).cbrt(), reno }
    }

    fn avoid(&mut self, ack: &AckSample, bytes: u64, used: Duration) {
        let mut epoch = self.epoch.unwrap_or_else(|| self.begin());
        epoch.elapsed += used;
        let window = self.packets();
        let acked = bytes as f64 / PACKET as f64;
        let alpha = if epoch.reno >= self.prior { 1.0 } else { RENO_ALPHA };
        epoch.reno += alpha * acked / window;
        let now = epoch.elapsed.as_secs_f64();
        let grown = if curve(now, epoch.k, self.max) < epoch.reno {
            epoch.reno.max(window)
        } else {
            let target = curve(now + ack.smoothed.as_secs_f64(), epoch.k, self.max);
            window + (target.clamp(window, window * MOST_GROWTH) - window) * acked / window
        };
        self.window.bytes = (grown * PACKET as f64) as u64;
        self.epoch = Some(epoch);
    }
}

/// The cubic curve: window after `t` seconds (RFC 9438 equation 1).
fn curve(t: f64, k: f64, max: f64) -> f64 {
    C * (t - k).powi(3) + max
}

impl RateController for Cubic {
    fn on_handshake(&mut self, rtt: Duration) {
        self.window.on_handshake(rtt);
    }

    fn on_ack(&mut self, ack: &AckSample) {
        let used = ack.now.since(core::mem::replace(&mut self.last_ack, ack.now));
        match self.window.on_ack(ack) {
            Growth::Avoidance(bytes) => self.avoid(ack, bytes, used),
            Growth::SlowStart => self.epoch = None,
            Growth::Still => {}
        }
    }

    fn on_loss(&mut self, loss: &LossSample) {
        self.on_congestion(loss.now, loss.sent);
        if loss.persistent {
            self.window.collapse();
            self.fallen = false;
        }
    }

    fn on_ecn(&mut self, now: Time, sent: Time) {
        self.on_congestion(now, sent);
    }

    fn budget(&self) -> Budget {
        self.window.budget()
    }

    fn is_congested(&self) -> bool {
        self.window.is_congested()
    }
}
