//! When HELLOs go out: in pairs, the pairs ever further apart (wire.md section 4).
//!
//! The initiator asks it before each HELLO. Invariant: no more than eight in the first second (RELIABILITY H4), whoever answers what.

use core::fmt;
use core::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::Rng;

use super::{COPY_GAP, FIRST_RETRY, GIVE_UP, RETRY_CAP};
use crate::Time;

/// See the module.
pub(super) struct Flights {
    rng: ChaCha20Rng,
    started: Time,
    pub(super) give_up: Duration,
    due: Time,
    /// When the next pair goes out, once the first of this pair is out.
    next_pair: Option<Time>,
    /// The wait after the next pair, before jitter.
    wait: Duration,
    /// Pairs begun, and when the first was.
    pairs: u32,
    first_left: Time,
    /// Pairs begun when one was last brought forward.
    hurried: u32,
}

impl Flights {
    /// The first is due at `now`.
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

    /// When it is given up.
    pub(super) fn deadline(&self) -> Time {
        self.started + self.give_up
    }

    /// When the next HELLO is due or all is given up.
    pub(super) fn next(&self) -> Time {
        self.due.min(self.deadline())
    }

    /// When the first HELLO left, if no second pair did.
    pub(super) fn left_once(&self) -> Option<Time> {
        (self.pairs == 1).then_some(self.first_left)
    }

    /// Begins the next pair now instead of later, once for each pair that was begun.
    pub(super) fn hurry(&mut self, now: Time) {
        if self.hurried < self.pairs {
            self.hurried = self.pairs + 1;
            (self.due, self.next_pair) = (now, None);
        }
    }

    /// Whether a HELLO is due; if so, the next is planned.
    pub(super) fn take(&mut self, now: Time) -> bool {
        if now < self.due || now >= self.deadline() {
            return false;
        }
        self.due = match self.next_pair.take() {
            Some(next) => next,
            None => {
                self.pairs += 1;
                self.first_left = if self.pairs == 1 { now } else { self.first_left };
                // +-25 %, so that clients which lost the same link do not come back in step.
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
