//! A controller for many of our own flows on one link, for bottlenecks that drop without a queue, and for
//! links whose delay varies. It does not take random loss for congestion.
//!
//! Start-up doubles the pace each round trip until a queue shows ([`startup`]). From then on the pace follows
//! the law of [`cruise`]: what the bottleneck served, corrected by the queue. Short slow phases show the path
//! without the sender's own queue ([`delays`]). Losses without a queue are tested ([`medium`]). If a quarter
//! more is lost than the medium takes, all flows that see it pause, so that they learn the path anew.
//!
//! It uses one-way delays, so a queue of the other direction and jitter of the way back do not matter. It
//! does not compete with a sender that keeps a queue full, as TCP does; for that there is [`super::Bbr`].

mod cruise;
mod delays;
mod epoch;
mod medium;
mod startup;
#[cfg(test)]
mod tests;
mod tuning;

use core::mem;
use core::time::Duration;

use cruise::{Cruise, Known};
use delays::Delays;
use epoch::{Epoch, Epochs};
use medium::{Medium, Sent, Verdict};
use startup::Startup;

use super::{AckSample, Budget, INITIAL_WINDOW, PACKET, RateController, queue_is_long};
use crate::Time;
use tuning::{
    DRAIN_GAIN, DRAIN_ROUNDS, JOIN_GAIN, LEAST_ROUND, LEAST_SLOW, LOSSY, MARK_GAIN, MOST_SLOW_ROUNDS, NEAR_LIFE,
    NEAR_ROUNDS, PAUSE_AGAIN, PAUSE_GAIN, PAUSE_RESUME, PAUSE_ROUNDS, QUEUE_DIVISOR, QUEUE_FLOOR, SLOW_DEPTH,
    SLOW_GAIN, SLOW_SHARE, STARTUP_QUEUE, WINDOW_GAIN,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Startup,
    /// After start-up: half of the rate until its queue is gone.
    Drain,
    /// The law of [`cruise`].
    Cruise,
    /// A round trip below the rate. It shows the path without our queue.
    Slow,
    /// Almost nothing, after the path was overrun. All flows of this kind that overran it pause at the same
    /// time, so that the queue drains and its losses end.
    Pause,
}

/// Congestion marks.
#[derive(Debug, Default)]
struct Marks {
    /// Whether the peer reported marks for which the rate has not fallen yet.
    pending: bool,
    /// When the rate last fell for them. Marks on packets sent until then cause no further fall.
    lowered: Option<Time>,
}

/// The last pause.
#[derive(Clone, Copy, Debug)]
struct Pause {
    at: Time,
    /// What was sent and arrived before.
    before: Sent,
}

/// The controller, described in the module documentation.
#[derive(Debug)]
pub struct Share {
    phase: Phase,
    /// Whole round trips of this phase, and the packet whose acknowledgement ends the current one.
    rounds: u64,
    round_ends: u64,
    startup: Startup,
    delays: Delays,
    epochs: Epochs,
    /// What arrived in the last epoch, in bytes per second.
    arrived: f64,
    cruise: Cruise,
    medium: Medium,
    /// Pace of a phase other than start-up and cruise, in bytes per second.
    slow: f64,
    pause: Option<Pause>,
    marks: Marks,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            phase: Phase::Startup,
            rounds: 0,
            round_ends: 0,
            startup: Startup::default(),
            delays: Delays::default(),
            epochs: Epochs::default(),
            arrived: 0.0,
            cruise: Cruise::default(),
            medium: Medium::default(),
            slow: 0.0,
            pause: None,
            marks: Marks::default(),
        }
    }
}

impl RateController for Share {
    fn on_handshake(&mut self, rtt: Duration) {
        self.delays.min_rtt = rtt;
    }

    fn on_ack(&mut self, ack: &AckSample) {
        let queue = self.delays.on_ack(ack);
        if self.phase == Phase::Startup {
            self.startup.on_ack(ack, self.medium.loss());
        }
        self.leave_early(ack);
        if self.phase == Phase::Cruise {
            self.cruise.on_ack(ack, self.delays.recent_queue());
        }
        if let Some(epoch) = queue.and_then(|queue| self.epochs.on_ack(ack, queue)) {
            self.arrived = epoch.arrived();
            if self.phase == Phase::Cruise {
                self.end_epoch(&epoch, ack);
            }
        }
        if ack.newest >= self.round_ends {
            self.round_ends = ack.next;
            self.rounds += 1;
            self.end_round(ack);
        }
    }

    fn on_fate(&mut self, number: u64, lost: bool) {
        self.medium.on_fate(number, lost);
    }

    fn on_ecn(&mut self, now: Time, sent: Time) {
        if self.marks.lowered.is_none_or(|lowered| sent > lowered) {
            self.marks = Marks { pending: true, lowered: Some(now) };
        }
    }

    fn budget(&self) -> Budget {
        let pace = match self.phase {
            Phase::Startup => return self.startup.budget(self.delays.min_rtt),
            Phase::Cruise => self.cruise.pace(),
            Phase::Drain | Phase::Slow | Phase::Pause => self.slow,
        };
        let round = self.delays.min_rtt.max(self.delays.smoothed).max(LEAST_ROUND);
        let product = (self.cruise.rate * round.as_secs_f64()) as u64;
        Budget { window: product.saturating_mul(WINDOW_GAIN).max(INITIAL_WINDOW), pacing: pace as u64 }
    }

    fn is_congested(&self) -> bool {
        self.medium.excess() > 0.0 || queue_is_long(self.delays.queue, self.delays.min_rtt, self.cruise.rate as u64)
    }

    fn state(&self) -> &'static str {
        match self.phase {
            Phase::Startup => "startup",
            Phase::Drain => "drain",
            Phase::Cruise => "cruise",
            Phase::Slow => "slow",
            Phase::Pause => "pause",
        }
    }
}

impl Share {
    fn queue_limit(&self) -> Duration {
        (self.delays.min_rtt / QUEUE_DIVISOR).max(QUEUE_FLOOR)
    }

    fn enter(&mut self, phase: Phase, ack: &AckSample) {
        if self.phase == Phase::Drain {
            self.medium.begin();
        }
        if matches!(phase, Phase::Slow | Phase::Drain) {
            self.medium.slow_down(ack.next);
        } else {
            self.medium.speed_up(ack.next);
        }
        (self.phase, self.rounds, self.round_ends) = (phase, 0, ack.next);
        self.delays.restart();
    }

    /// Begins a phase with this part of the rate.
    fn slow_down(&mut self, phase: Phase, gain: f64, ack: &AckSample) {
        self.slow = (self.cruise.rate * gain).max(1.0);
        self.enter(phase, ack);
    }

    /// Ends phases that end at a single acknowledgement, not at the end of a round trip.
    fn leave_early(&mut self, ack: &AckSample) {
        if mem::take(&mut self.marks.pending) {
            if self.phase == Phase::Startup {
                self.end_startup(ack);
            }
            self.cruise.rate *= MARK_GAIN;
            self.cruise.resume();
        }
        if self.medium.is_overrun() && self.pause.is_none_or(|pause| ack.now.since(pause.at) > PAUSE_AGAIN) {
            return self.pause(ack);
        }
        let standing = self.delays.standing();
        match self.phase {
            Phase::Startup if standing > self.queue_limit() / STARTUP_QUEUE => self.end_startup(ack),
            Phase::Drain if self.rounds > 0 && standing.as_secs_f64() < 2.0 * self.cruise.target() => {
                self.enter(Phase::Cruise, ack);
            }
            _ => {}
        }
    }

    fn end_startup(&mut self, ack: &AckSample) {
        self.cruise.begin(self.startup.best as f64);
        self.slow_down(Phase::Drain, DRAIN_GAIN, ack);
    }

    /// The path is overrun: stops until its queue is gone.
    fn pause(&mut self, ack: &AckSample) {
        let arrived = self.arrived.max(ack.rate.map_or(0.0, |sample| sample.acked as f64));
        let rate = if self.phase == Phase::Startup { self.startup.best as f64 } else { self.cruise.rate };
        self.pause = Some(Pause { at: ack.now, before: Sent { rate: rate.max(arrived), arrived, next: 0 } });
        self.cruise.begin(arrived * PAUSE_RESUME);
        self.slow_down(Phase::Pause, PAUSE_GAIN, ack);
        // Two packets in each round trip end it.
        self.slow = self.slow.max(2.0 * PACKET as f64 / ack.smoothed.as_secs_f64());
    }

    fn end_epoch(&mut self, epoch: &Epoch, ack: &AckSample) {
        let is_long = epoch.least.as_secs_f64() > 2.0 * self.cruise.target();
        let sent = Sent { rate: self.cruise.rate, arrived: epoch.arrived(), next: ack.next };
        let verdict = self.medium.end_epoch(sent, is_long, self.cruise.is_capped(ack.now));
        let (loss, excess, tests) = (self.medium.loss(), self.medium.excess(), self.medium.test_rate());
        self.cruise.on_epoch(epoch, ack, self.delays.recent_queue(), Known { loss, excess, tests });
        match verdict {
            Some(Verdict::Medium { rate }) => self.cruise.restore(rate),
            Some(Verdict::Bottleneck { arrived }) => self.cruise.limit(arrived / (1.0 - loss), ack),
            None => {}
        }
        let life = NEAR_LIFE.max(ack.min_rtt * NEAR_ROUNDS);
        if mem::take(&mut self.delays.fell) {
            // Others drain the queue, and part of it was taken for the path. All have to drain at once to see
            // the path without any queue.
            self.slow_down(Phase::Slow, JOIN_GAIN, ack);
        } else if self.delays.near_at.is_none_or(|at| ack.now.since(at) > life) {
            let depth = SLOW_DEPTH * self.delays.recent_queue().as_secs_f64() / ack.smoothed.as_secs_f64();
            let gain = (1.0 - depth).clamp(LEAST_SLOW, SLOW_GAIN);
            let half = SLOW_SHARE * epoch.arrived() / self.cruise.rate;
            self.slow_down(Phase::Slow, if loss > LOSSY { gain.min(half) } else { gain }, ack);
        }
    }

    fn end_round(&mut self, ack: &AckSample) {
        let lasted = self.rounds;
        match self.phase {
            Phase::Startup if !ack.app_limited && self.startup.is_full() => self.end_startup(ack),
            Phase::Drain if lasted >= DRAIN_ROUNDS => self.enter(Phase::Cruise, ack),
            Phase::Slow if lasted >= MOST_SLOW_ROUNDS || !mem::take(&mut self.delays.fell) => {
                self.delays.near_at = Some(ack.now);
                self.cruise.resume();
                self.enter(Phase::Cruise, ack);
            }
            Phase::Pause if lasted >= PAUSE_ROUNDS => {
                if let Some(Pause { before, .. }) = self.pause {
                    self.medium.begin_again(Sent { next: ack.next, ..before }, self.cruise.rate);
                }
                self.cruise.resume();
                self.enter(Phase::Cruise, ack);
            }
            _ => {}
        }
    }
}
