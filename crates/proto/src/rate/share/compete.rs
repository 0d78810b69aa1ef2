//! How [`super::Share`] keeps its part beside a sender that fills the queue, as TCP does.
//!
//! A sender that drains its own queue yields to one that fills the queue, until it has nothing left. If a
//! queue does not go away while this sender drains it, the sender competes as CUBIC does
//! ([`crate::rate::Cubic`]). A loss counts as a drop of the queue only beside a long queue; others are the
//! medium's. So N senders of this kind that compete are N flows of CUBIC, and none of them holds a part
//! without yielding.
//!
//! From time to time it looks whether the other sender is still there: for some round trips it sends so
//! little that the queue would vanish if all senders did the same. It looks when the queue, after it fell,
//! is nearly as long again. All senders of this kind see the same queue, whatever their round trips, so they
//! look at the same time. If there are no others the queue vanishes, and all of them leave.
//!
//! TCP beside a queue of half a round trip empties it now and then, so such a queue is not found to stand. A
//! sender that has only a small part of its former rate left tries to compete. It gives up if that does not
//! pay, and tries again later: among many of this kind, each has what it had before.
//!
//! Called by [`super::Share`] in the phases `Compete` and `Look`. Invariant: the window falls whenever the
//! full queue drops a packet of this sender.

use core::mem;
use core::time::Duration;

use super::tuning::{
    COMPETE_ROUNDS, FALLEN, FIRST_LOOK, LEAST_LOOK, LOOK_LEVEL, LOOK_MARGIN, STARVED, STARVED_LONGEST, STARVED_MEMORY,
    STARVED_WAIT, TRIAL,
};
use super::{AckSample, LossSample};
use crate::Time;
use crate::rate::{Budget, Cubic, RateController};

/// Notices that others have taken nearly all of the rate of this sender.
#[derive(Debug, Default)]
pub(super) struct Starved {
    /// Highest rate of late, in bytes per second, and when it was last looked at.
    pub most: f64,
    seen: Time,
    /// The earliest time of the next trial, and the time between the last two.
    next: Time,
    wait: Duration,
}

impl Starved {
    /// Takes the rate of an epoch. Returns whether to try if others yield to a competition.
    pub fn is_due(&mut self, now: Time, rate: f64) -> bool {
        let aged = now.since(mem::replace(&mut self.seen, now));
        self.most = rate.max(self.most * (-aged.as_secs_f64() / STARVED_MEMORY).exp());
        if !self.is_starved(rate) || now < self.next {
            return false;
        }
        self.wait = (2 * self.wait).clamp(STARVED_WAIT, STARVED_LONGEST);
        self.next = now + self.wait;
        true
    }

    /// Whether this rate is a small part of the highest one.
    pub fn is_starved(&self, rate: f64) -> bool {
        rate < STARVED * self.most
    }
}

/// State of the competition, described in the module documentation.
#[derive(Debug)]
pub(super) struct Compete {
    cubic: Cubic,
    /// When a trial began, until it has paid.
    trial: Option<Time>,
    /// Longest queueing delay since the competition began, and since the queue last fell.
    longest: Duration,
    peak: Duration,
    /// Queueing delay at which a look is due, once the queue has fallen.
    due: Option<Duration>,
    /// Round trips since the last look, and after how many the next one is due at the latest.
    since_look: u64,
    look_after: u64,
}

impl Compete {
    /// Begins with a window of `window` bytes. It may be a trial.
    pub fn begin(window: u64, trial: Option<Time>) -> Self {
        let cubic = Cubic::avoiding(window);
        Self {
            cubic,
            trial,
            longest: Duration::ZERO,
            peak: Duration::ZERO,
            due: None,
            since_look: 0,
            look_after: FIRST_LOOK,
        }
    }

    /// Takes an acknowledgement. The latest packets found queues of `queue` and more.
    pub fn on_ack(&mut self, ack: &AckSample, queue: Duration) {
        self.longest = self.longest.max(queue);
        self.peak = self.peak.max(queue);
        if self.due.is_none() && queue < self.peak.mul_f64(FALLEN) {
            (self.due, self.peak) = (Some(self.peak.mul_f64(LOOK_LEVEL)), queue);
        }
        self.cubic.on_ack(ack);
    }

    /// Takes a loss at this queueing delay. Beside a short queue the medium caused the loss.
    pub fn on_loss(&mut self, loss: &LossSample, queue: Duration) {
        if queue * 2 > self.longest {
            self.cubic.on_loss(&LossSample { persistent: false, ..*loss });
        }
    }

    /// The path marked packets as congested.
    pub fn on_ecn(&mut self, now: Time, sent: Time) {
        self.cubic.on_ecn(now, sent);
    }

    /// Ends a round trip.
    pub fn end_round(&mut self) {
        self.since_look += 1;
    }

    /// Whether a trial is over. One that has paid goes on.
    pub fn ends_trial(&mut self, now: Time) -> bool {
        self.trial.take_if(|began| now.since(*began) > TRIAL).is_some()
    }

    /// Whether it is time to look, beside a queue of this length.
    pub fn is_due(&self, queue: Duration) -> bool {
        self.due.is_some_and(|due| queue >= due) || self.since_look >= self.look_after
    }

    /// Begins a look at a queue of this length over a path with this minimum RTT. Returns the part of its
    /// rate that the sender may use.
    pub fn look(&mut self, queue: Duration, min_rtt: Duration) -> f64 {
        (self.due, self.peak, self.since_look) = (None, queue, 0);
        self.look_after = (2 * self.look_after).min(COMPETE_ROUNDS);
        let all = min_rtt.as_secs_f64() / (min_rtt + queue).as_secs_f64().max(1e-6);
        (all * LOOK_MARGIN).max(LEAST_LOOK)
    }

    /// What the sender may send.
    pub fn budget(&self) -> Budget {
        self.cubic.budget()
    }
}
