//! How the default controller holds its own where somebody else keeps the queue full.
//!
//! A sender that drains what it queues yields to one that fills the queue, until nothing is left of it. Where [`super::Bbr`] finds a queue
//! that is not its own it takes part instead, as CUBIC does ([`super::Cubic`]), and looks from time to time whether the other is still there
//! (the two modes of Copa, NSDI 2018, told apart in another way: by a look at the queue from below rather than by its minimum).
//! Only a loss beside a long queue is the queue's, and only losses beyond what the medium takes.

use core::time::Duration;

use super::{AckSample, Budget, Cubic, LossSample, RateController};
use crate::Time;

/// Round trips after the window fell when the queue is looked at: by then CUBIC is nearly where it was (RFC 9438 equation 1: 94 % of it after 0.4 K),
/// and senders of our kind that met the same full queue look at the same time, or each would take the other for a stranger.
const LOOK_ROUNDS: u64 = 24;
/// ... and at most since the last look, where the window keeps falling.
const MOST_ROUNDS: u64 = 4 * LOOK_ROUNDS;

/// See the module.
#[derive(Debug)]
pub(super) struct Contest {
    cubic: Cubic,
    /// Longest queueing delay since it began.
    longest: Duration,
    /// Round trips since the window fell, and since the last look.
    since_fall: u64,
    since_look: u64,
}

impl Contest {
    /// Takes part with `window` bytes.
    pub fn begin(window: u64) -> Self {
        Self { cubic: Cubic::avoiding(window), longest: Duration::ZERO, since_fall: 0, since_look: 0 }
    }

    /// Packets were acknowledged, the newest after `queue` of queueing delay.
    pub fn on_ack(&mut self, ack: &AckSample, queue: Duration) {
        self.longest = self.longest.max(queue);
        self.cubic.on_ack(ack);
    }

    /// Packets were lost while the queueing delay was `queue`. Beside a short queue that was the medium.
    pub fn on_loss(&mut self, loss: &LossSample, queue: Duration) {
        if queue * 2 > self.longest {
            self.cubic.on_loss(&LossSample { persistent: false, ..*loss });
            self.since_fall = 0;
        }
    }

    /// The path marked congestion.
    pub fn on_ecn(&mut self, now: Time, sent: Time) {
        self.cubic.on_ecn(now, sent);
        self.since_fall = 0;
    }

    /// A round trip is over: whether it is time to look at the queue.
    pub fn end_round(&mut self) -> bool {
        self.since_fall += 1;
        self.since_look += 1;
        let due = self.since_fall.min(self.since_look) >= LOOK_ROUNDS || self.since_look >= MOST_ROUNDS;
        if due {
            self.since_look = 0;
        }
        due
    }

    /// What may be sent.
    pub fn budget(&self) -> Budget {
        self.cubic.budget()
    }
}
