//! Schedule of the HELLOs: they are sent in pairs, with growing time between the pairs (docs/wire.md section
//! 4).
//!
//! The initiator asks it before each HELLO. Invariant: at most eight HELLOs in the first second, whatever
//! answers arrive (docs/survival.md, row H4).

use core::fmt;
use core::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::Rng;

use super::{COPY_GAP, FIRST_RETRY, GIVE_UP, RETRY_CAP};
use crate::Time;

/// Schedule of one handshake, described in the module documentation.
pub(super) struct Flights {
    rng: ChaCha20Rng,
    started: Time,
    pub(super) give_up: Duration,
    due: Time,
    /// Time of the next pair, once the first HELLO of this pair is sent.
    next_pair: Option<Time>,
    /// The wait after the next pair, before jitter.
    wait: Duration,
    /// Number of pairs begun, and the time of the first.
    pairs: u32,
    first_left: Time,
    /// Number of pairs begun when a pair was last sent early.
    hurried: u32,
}

impl Flights {
    /// A schedule whose first HELLO is due at `now`.
    pub(super) const fn new(rng: ChaCha20Rng, now: Time) -> Self {
        Self {
            rng,
            started: now,
            give_up: GIVE_UP,
            due: now,
            next_pair: None,
            wait: FIRST_RETRY,
            pairs: 0,
            first_left: now,
            hurried: 0,
        }
    }

    /// Time at which the handshake gives up.
    pub(super) fn deadline(&self) -> Time {
        self.started + self.give_up
    }

    /// Time at which the next HELLO is due or the handshake gives up.
    pub(super) fn next(&self) -> Time {
        self.due.min(self.deadline())
    }

    /// Send time of the first HELLO, if no second pair was sent.
    pub(super) fn left_once(&self) -> Option<Time> {
        (self.pairs == 1).then_some(self.first_left)
    }

    /// Begins the next pair now, at most once per pair.
    pub(super) fn hurry(&mut self, now: Time) {
        if self.hurried < self.pairs {
            self.hurried = self.pairs + 1;
            (self.due, self.next_pair) = (now, None);
        }
    }

    /// Whether a HELLO is due. If so, schedules the next one.
    pub(super) fn take(&mut self, now: Time) -> bool {
        if now < self.due || now >= self.deadline() {
            return false;
        }
        self.due = match self.next_pair.take() {
            Some(next) => next,
            None => {
                self.pairs += 1;
                self.first_left = if self.pairs == 1 { now } else { self.first_left };
                // +-25 %, so that clients that lost the same link do not return at the same time.
                let jittered = self.wait * (768 + self.rng.next_u32() % 513) / 1024;
                self.next_pair = Some(now + jittered);
                self.wait = (self.wait * 3 / 2).min(RETRY_CAP);
                now + COPY_GAP
            }
        };
        true
    }
}

impl fmt::Debug for Flights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flights").field("due", &self.due).field("wait", &self.wait).finish_non_exhaustive()
    }
}
