//! Notices a sender that fills the queue again and again, but lets it empty in between, as TCP does beside a
//! queue of half a round trip. Such a queue never stands, so draining it does not show that sender.
//!
//! A flow of this kind yields while the queue is longer than its target. Among flows of this kind it does so
//! only until its rate is fair, because the queue of N equal flows is as long as the target of each
//! ([`super::cruise`]). Beside TCP it yields until nothing is left. So one of two signs has to be there for
//! most of some seconds:
//!
//! - The queue is much longer than the target ([`LONG`]), and the full queue has dropped packets of this
//!   sender at least twice. Flows of this kind overflow a queue while some of them start, and not later.
//! - The sender is starved: its rate is a small part [`STARVED`] of the highest one of late, and the queue is
//!   longer than the target of that one by `LONG / sqrt(STARVED)`. Among flows of this kind, at least the
//!   square of that, 15, have started since then. The present target does not count here: a starved flow
//!   settles where it is as long as the queue of TCP.
//!
//! Both may be wrong while many start. Therefore the owner competes only if it saw no delay near the least
//! one of late ([`DRAINED_AGAIN`](super::tuning::DRAINED_AGAIN)) or has next to nothing. A competition that
//! is left as [`Left::Thin`] is not repeated for a time that doubles, and one that is left as [`Left::Vain`]
//! needs a sign of this module. Called by [`super::Share`] for each epoch and loss in the phase `Cruise`.

use core::mem;
use core::time::Duration;

use super::compete::Left;
use super::tuning::{
    APART, FULL, LATE, LONG, LONG_TIME, LOOK_VANISHED, NOTHING, OVERFLOWS, PRESSED_PART, PRESSED_TIME, STARVED,
    THIN_LONGEST, THIN_WAIT,
};
use crate::Time;

/// State of the signs, described in the module documentation.
#[derive(Debug, Default)]
pub(super) struct Pressed {
    /// Highest rate of late, in bytes per second.
    pub most: f64,
    /// When an epoch last ended.
    seen: Time,
    /// Longest mean queue of an epoch of late, in seconds.
    longest: f64,
    /// Part of the recent time in which the queue was much longer than the target.
    part: f64,
    /// Overflows of late, and the time of the last one.
    overflows: u32,
    overflowed: Time,
    /// Whether the last competition was in vain.
    doubts: bool,
    /// The earliest time of the next competition, and how long the sender waited for it.
    next: Time,
    wait: Duration,
}

impl Pressed {
    /// Takes the rate of an epoch in bytes per second and its mean queue in seconds; `target` gives that of a
    /// rate. Returns whether to compete.
    pub(super) fn is_due(&mut self, now: Time, rate: f64, queue: f64, target: impl Fn(f64) -> f64) -> bool {
        let aged = now.since(mem::replace(&mut self.seen, now)).as_secs_f64();
        let fades = (-aged / LATE.as_secs_f64()).exp();
        (self.most, self.longest) = (rate.max(self.most * fades), queue.max(self.longest * fades));
        if now.since(self.overflowed) > LATE {
            self.overflows = 0;
        }
        let is_starved = rate < STARVED * self.most;
        // Beside a queue that a look would call gone, the competition would end at once.
        let is_long = queue > (LONG * target(rate)).max(LOOK_VANISHED * target(self.most))
            || is_starved && queue > (LONG / STARVED.sqrt() * target(self.most)).max(LONG_TIME);
        self.part += (f64::from(u8::from(is_long)) - self.part) * (1.0 - (-aged / PRESSED_TIME).exp());
        let has_sign = self.has_overflows() || is_starved;
        self.part > PRESSED_PART && has_sign && now >= self.next
    }

    /// Takes a loss beside this queue in seconds. Where one is lost beside a short queue, the medium may lose
    /// the others too.
    pub(super) fn on_loss(&mut self, now: Time, queue: f64) {
        if queue < FULL * self.longest {
            self.overflows = 0;
        } else if now.since(self.overflowed) > APART {
            self.overflowed = now;
            self.overflows += 1;
        }
    }

    /// Whether the losses of late were drops of the full queue.
    pub(super) fn has_overflows(&self) -> bool {
        self.overflows >= OVERFLOWS
    }

    /// Whether this rate is next to nothing beside the highest one of late.
    pub(super) fn has_nothing(&self, rate: f64) -> bool {
        rate < NOTHING * self.most
    }

    /// Whether a queue that stands is enough to compete.
    pub(super) fn trusts_a_standing_queue(&self) -> bool {
        !self.doubts
    }

    /// A competition begins.
    pub(super) fn begin(&mut self) {
        (self.part, self.overflows, self.doubts) = (0.0, 0, false);
    }

    /// It ended without a look that saw the queue vanish.
    pub(super) fn left(&mut self, now: Time, left: Left) {
        match left {
            Left::Vain => self.doubts = true,
            Left::Thin => {
                self.wait = (2 * self.wait).clamp(THIN_WAIT, THIN_LONGEST);
                self.next = now + self.wait;
            }
        }
    }
}
