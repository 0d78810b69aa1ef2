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
//! It also leaves if its window is too small for the law of CUBIC, and if the queue dropped nothing of it for
//! some looks ([`Left`]). [`super::pressed`] notices senders whose queue does not stand.
//!
//! Called by [`super::Share`] in the phases `Compete` and `Look`. Invariant: the window falls whenever the
//! full queue drops a packet of this sender.

use core::time::Duration;

use super::tuning::{
    COMPETE_ROUNDS, FALLEN, FIRST_LOOK, LEAST_LOOK, LOOK_LEVEL, LOOK_MARGIN, THIN, THIN_FALLS, VAIN_GROWTH, VAIN_LOOKS,
    VAIN_TIME,
};
use super::{AckSample, LossSample};
use crate::Time;
use crate::rate::{Budget, Cubic, RateController};

/// Why a competition ended, other than by a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// The window is so small that its law drops much: too many share the path.
    Thin,
    /// The queue does not overflow, so nobody fills it.
    Vain,
}

/// State of the competition, described in the module documentation.
#[derive(Debug)]
pub(super) struct Compete {
    cubic: Cubic,
    /// Falls of the window in a row to less than [`THIN`].
    thin: u32,
    /// When the full queue last dropped a packet of this sender, its window after that, and looks since then.
    dropped: Time,
    least: u64,
    looks: u32,
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
    /// Begins with a window of `window` bytes.
    pub(super) fn begin(window: u64, now: Time) -> Self {
        let cubic = Cubic::avoiding(window);
        Self {
            cubic,
            thin: 0,
            dropped: now,
            least: window,
            looks: 0,
            longest: Duration::ZERO,
            peak: Duration::ZERO,
            due: None,
            since_look: 0,
            look_after: FIRST_LOOK,
        }
    }

    /// Takes an acknowledgement. The latest packets found queues of `queue` and more.
    pub(super) fn on_ack(&mut self, ack: &AckSample, queue: Duration) {
        self.longest = self.longest.max(queue);
        self.peak = self.peak.max(queue);
        if self.due.is_none() && queue < self.peak.mul_f64(FALLEN) {
            (self.due, self.peak) = (Some(self.peak.mul_f64(LOOK_LEVEL)), queue);
        }
        self.cubic.on_ack(ack);
    }

    /// Takes a loss at this queueing delay. Beside a short queue the medium caused the loss.
    pub(super) fn on_loss(&mut self, loss: &LossSample, queue: Duration) {
        if queue * 2 > self.longest {
            let before = self.cubic.budget().window;
            self.cubic.on_loss(&LossSample { persistent: false, ..*loss });
            let window = self.cubic.budget().window;
            if window < before {
                self.thin = if window < THIN { self.thin + 1 } else { 0 };
            }
            (self.dropped, self.least, self.looks) = (loss.now, window, 0);
        }
    }

    /// The path marked packets as congested.
    pub(super) fn on_ecn(&mut self, now: Time, sent: Time) {
        self.cubic.on_ecn(now, sent);
    }

    /// Ends a round trip.
    pub(super) fn end_round(&mut self) {
        self.since_look += 1;
    }

    /// Whether to end the competition, and why.
    pub(super) fn leaves(&self, now: Time) -> Option<Left> {
        if self.thin >= THIN_FALLS {
            Some(Left::Thin)
        } else if self.cubic.budget().window > VAIN_GROWTH * self.least
            || self.looks >= VAIN_LOOKS && now.since(self.dropped) > VAIN_TIME
        {
            Some(Left::Vain)
        } else {
            None
        }
    }

    /// Whether it is time to look, beside a queue of this length.
    pub(super) fn is_due(&self, queue: Duration) -> bool {
        self.due.is_some_and(|due| queue >= due) || self.since_look >= self.look_after
    }

    /// Begins a look at a queue of this length over a path with this minimum RTT. Returns the part of its
    /// rate that the sender may use.
    pub(super) fn look(&mut self, queue: Duration, min_rtt: Duration) -> f64 {
        (self.due, self.peak, self.since_look) = (None, queue, 0);
        self.looks += 1;
        self.look_after = (2 * self.look_after).min(COMPETE_ROUNDS);
        let all = min_rtt.as_secs_f64() / (min_rtt + queue).as_secs_f64().max(1e-6);
        (all * LOOK_MARGIN).max(LEAST_LOOK)
    }

    /// What the sender may send.
    pub(super) fn budget(&self) -> Budget {
        self.cubic.budget()
    }
}
