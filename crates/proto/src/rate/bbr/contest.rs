//! How the default controller keeps its share where another sender keeps the queue full.
//!
//! A sender that drains its own queue yields to a sender that fills the queue, until it has no share left.
//! When [`super::Bbr`] finds a queue that is not its own, it competes as CUBIC does
//! ([`crate::rate::Cubic`]). From time to time it looks whether the other sender is still there. These are
//! the two modes of Copa (NSDI 2018), told apart in another way: Copa uses the queue's minimum, this
//! controller lowers its own flight and looks whether the queue stays. A loss counts as a drop of the queue
//! only beside a long queue, and only beyond the losses of the medium.

use core::time::Duration;

use super::tuning::{CONTEST_LOOK_ROUNDS, CONTEST_MOST_ROUNDS};
use crate::Time;
use crate::rate::{AckSample, Budget, Cubic, LossSample, RateController};

/// State of the competition, described in the module documentation.
#[derive(Debug)]
pub(super) struct Contest {
    cubic: Cubic,
    /// Longest queueing delay since the competition began.
    longest: Duration,
    /// Round trips since the window fell, and since the last look.
    since_fall: u64,
    since_look: u64,
}

impl Contest {
    /// Begins to compete with a window of `window` bytes.
    pub fn begin(window: u64) -> Self {
        Self { cubic: Cubic::avoiding(window), longest: Duration::ZERO, since_fall: 0, since_look: 0 }
    }

    /// Takes an acknowledgement. `queue` is the queueing delay of the newest packet.
    pub fn on_ack(&mut self, ack: &AckSample, queue: Duration) {
        self.longest = self.longest.max(queue);
        self.cubic.on_ack(ack);
    }

    /// Takes a loss at the queueing delay `queue`. Beside a short queue the medium caused the loss.
    pub fn on_loss(&mut self, loss: &LossSample, queue: Duration) {
        if queue * 2 > self.longest {
            self.cubic.on_loss(&LossSample { persistent: false, ..*loss });
            self.since_fall = 0;
        }
    }

    /// The path marked packets as congested.
    pub fn on_ecn(&mut self, now: Time, sent: Time) {
        self.cubic.on_ecn(now, sent);
        self.since_fall = 0;
    }

    /// Ends a round trip. Returns whether it is time to look at the queue.
    pub fn end_round(&mut self) -> bool {
        self.since_fall += 1;
        self.since_look += 1;
        let due = self.since_fall.min(self.since_look) >= CONTEST_LOOK_ROUNDS || self.since_look >= CONTEST_MOST_ROUNDS;
        if due {
            self.since_look = 0;
        }
        due
    }

    /// What the sender may send.
    pub fn budget(&self) -> Budget {
        self.cubic.budget()
    }
}
