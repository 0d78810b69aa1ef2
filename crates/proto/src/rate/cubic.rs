//! CUBIC (RFC 9438). The window grows with the time since it last fell: first back to its size before the
//! fall, then beyond it.
//!
//! Every loss counts as congestion, even if a repair recovered the data (RFC 9265), and so does every
//! congestion mark. The window falls to 0.7 of itself at most once per round trip. Slow start is HyStart++
//! (RFC 9406). In the formulas windows are in packets of 1,500 bytes and times in seconds, as in the RFC.

use core::time::Duration;

use super::window::{Growth, LossWindow};
use super::{AckSample, Budget, LossSample, PACKET, RateController};
use crate::Time;

/// Steepness of the curve (RFC 9438 section 5.1).
const C: f64 = 0.4;
/// Factor of the window after congestion (RFC 9438 section 4.6).
const BETA: f64 = 0.7;
/// Growth in packets per round trip with which a window that falls to 0.7 gets the same throughput as Reno
/// (RFC 9438 section 4.3).
const RENO_ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// The window grows by at most half of itself in a round trip (RFC 9438 section 4.2).
const MOST_GROWTH: f64 = 1.5;

/// One period of congestion avoidance, from one fall of the window to the next.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// Time within the epoch during which the sender used its window. An idle sender gains nothing (RFC 9438
    /// section 5.8).
    elapsed: Duration,
    /// Time at which the curve is back at `max`.
    k: f64,
    /// The window that Reno would have.
    reno: f64,
}

/// The CUBIC controller, described in the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Cubic {
    window: LossWindow,
    epoch: Option<Epoch>,
    /// Window at which the curve is flat (`W_max`): the window before it fell. It is lower if the window had
    /// not yet reached the previous `max`.
    pub(super) max: f64,
    /// The window before it fell (`cwnd_prior`).
    prior: f64,
    /// Whether congestion was seen since slow start, so that `max` and `prior` are valid.
    fallen: bool,
    last_ack: Time,
}

impl Cubic {
    /// Begins in congestion avoidance with a window of `bytes`.
    pub(super) fn avoiding(window: u64) -> Self {
        Self { window: LossWindow::avoiding(window), ..Self::default() }
    }

    /// The window in packets.
    fn packets(&self) -> f64 {
        self.window.bytes as f64 / PACKET as f64
    }

    fn on_congestion(&mut self, now: Time, sent: Time) {
        if self.window.is_answered(sent) {
            return;
        }
        let before = self.packets();
        // Fast convergence: a flow that had not reached its last maximum leaves room for others (RFC 9438
        // section 4.7).
        self.max = if self.fallen && before < self.max { before * (1.0 + BETA) / 2.0 } else { before };
        self.prior = before;
        self.fallen = true;
        self.epoch = None;
        self.window.fall(now, BETA);
    }

    /// The epoch that begins now.
    fn begin(&mut self) -> Epoch {
        let reno = self.packets();
        if !self.fallen {
            // Slow start ended without a loss, or the window restarted after persistent congestion (RFC 9438
            // sections 4.8, 4.10).
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

/// The cubic curve: the window after `t` seconds (RFC 9438 equation 1).
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

    fn state(&self) -> &'static str {
        self.window.state()
    }
}
