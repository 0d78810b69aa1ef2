//! NewReno in its QUIC form (RFC 9002 section 7 and appendix B), with HyStart++ (RFC 9406) for slow start.
//!
//! Every loss counts as congestion, even if a repair recovered the data (RFC 9265), and so does every
//! congestion mark. The window halves at most once per round trip.

use core::time::Duration;

use super::window::{Growth, LossWindow};
use super::{AckSample, Budget, LossSample, PACKET, RateController};
use crate::Time;

/// Factor of the window after congestion (RFC 9002 appendix B.1, `kLossReductionFactor`).
const REDUCTION: f64 = 0.5;

/// The NewReno controller, described in the module documentation.
#[derive(Debug, Default)]
pub(crate) struct NewReno {
    window: LossWindow,
}

impl NewReno {
    fn on_congestion(&mut self, now: Time, sent: Time) {
        if !self.window.is_answered(sent) {
            self.window.fall(now, REDUCTION);
        }
    }
}

impl RateController for NewReno {
    fn on_handshake(&mut self, rtt: Duration) {
        self.window.on_handshake(rtt);
    }

    fn on_ack(&mut self, ack: &AckSample) {
        if let Growth::Avoidance(bytes) = self.window.on_ack(ack) {
            // The window grows by one packet per window acknowledged (RFC 9002 section 7.3.3).
            self.window.bytes += (PACKET * bytes).checked_div(self.window.bytes).unwrap_or(0);
        }
    }

    fn on_loss(&mut self, loss: &LossSample) {
        self.on_congestion(loss.now, loss.sent);
        if loss.persistent {
            self.window.collapse();
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
