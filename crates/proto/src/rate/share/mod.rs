//! A controller for many of our own flows on one link, for bottlenecks that drop without a queue, and for
//! links whose delay varies. It does not take random loss for congestion.
//!
//! Start-up doubles the pace each round trip until a queue shows ([`startup`]). From then on the pace follows
//! the law of [`cruise`]: what the bottleneck served, corrected by the queue. Short slow phases show the path
//! without the sender's own queue ([`delays`]). Losses without a queue are tested ([`medium`]). If a quarter
//! more is lost than the medium takes, all flows that see it pause, so that they learn the path anew.
//!
//! It uses one-way delays, so a queue of the other direction and jitter of the way back do not matter. Beside
//! a sender that fills a queue ([`pressed`]), as TCP does, it competes as CUBIC ([`compete`]).

mod compete;
mod cruise;
mod delays;
mod epoch;
mod medium;
#[cfg(test)]
mod misfire;
mod pressed;
mod startup;
#[cfg(test)]
mod tests;
mod tuning;

use core::mem;
use core::time::Duration;

use compete::Compete;
use cruise::{Cruise, Known};
use delays::Delays;
use epoch::{Epoch, Epochs};
use medium::{Medium, Sent, Verdict};
use pressed::Pressed;
use startup::Startup;

use super::{AckSample, Budget, INITIAL_WINDOW, LossSample, PACKET, RateController, Tested, queue_is_long};
use crate::Time;
use tuning::{
    BLIND, CROWD, DRAIN_GAIN, DRAIN_ROUNDS, DRAINED_AGAIN, FALLS, JOIN_GAIN, JUMPED, LEAST_LOOK_TIME, LEAST_ROUND,
    LEAST_SLOW, LIMITED, LIMITED_SAMPLES, LOOK_ROUNDS, LOOK_VANISHED, LOSSY, MOST_SLOW_ROUNDS, NEAR_LIFE, NEAR_ROUNDS,
    OVERRUN, PAUSE_AGAIN, PAUSE_GAIN, PAUSE_MEMORY, PAUSE_RESUME, PAUSE_ROUNDS, QUEUE_DIVISOR, QUEUE_FLOOR, SLOW_DEPTH,
    SLOW_GAIN, SLOW_SHARE, SPARSE, STARTUP_QUEUE, UNDRAINED, WINDOW_GAIN,
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
    /// Beside a sender that fills the queue ([`compete`]).
    Compete,
    /// Looks whether that sender is still there.
    Look,
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
    /// Pauses in a row before this one.
    repeated: u32,
    /// What was sent, arrived and was lost before.
    before: Sent,
    loss: f64,
}

/// The present or last phase with a pace below the rate.
#[derive(Clone, Copy, Debug, Default)]
struct Slow {
    /// Pace of a phase other than start-up and cruise, in bytes per second.
    pace: f64,
    /// When it began.
    at: Time,
}

/// How a queue answers when this sender drains it.
#[derive(Debug, Default)]
struct Draining {
    /// Whether a long queue was drained in the present epoch.
    was_long: bool,
    /// Round trips in which it did not fall, its length at the end of the last one, and the rate before.
    rounds: u64,
    queue: Duration,
    rate: f64,
    /// Slow phases in a row between which the queue stood.
    blind: u32,
}

/// The controller, described in the module documentation.
#[derive(Debug)]
pub(crate) struct Share {
    phase: Phase,
    /// Whole round trips of this phase, and the packet whose acknowledgement ends the current one.
    rounds: u64,
    round_ends: u64,
    startup: Startup,
    delays: Delays,
    epochs: Epochs,
    cruise: Cruise,
    medium: Medium,
    slow: Slow,
    pause: Option<Pause>,
    /// The competition with a sender that fills the queue.
    compete: Option<Compete>,
    pressed: Pressed,
    draining: Draining,
    marks: Marks,
    /// Part of the recent acknowledgements before whose packets the application had too little to send.
    limited: f64,
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
            cruise: Cruise::default(),
            medium: Medium::default(),
            slow: Slow::default(),
            pause: None,
            compete: None,
            pressed: Pressed::default(),
            draining: Draining::default(),
            marks: Marks::default(),
            limited: 0.0,
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
            if let Some(queue) = queue {
                self.startup.on_delay(queue, ack);
            }
        }
        if let Some(compete) = &mut self.compete {
            compete.on_ack(ack, self.delays.recent_queue());
        }
        self.leave_early(ack);
        if self.phase == Phase::Cruise {
            self.cruise.on_ack(ack, self.delays.recent_queue(), self.medium.test_rate().is_some());
            self.draining.was_long |= self.cruise.drains();
        }
        if let Some(queue) = queue {
            self.medium.on_queue(ack.newest, queue, queue < self.cruise.longest_queue() / 2);
        }
        if self.phase == Phase::Cruise {
            let after_pause = self.medium.tests_after_pause();
            if let Some(verdict) = self.medium.verdict(ack.now) {
                self.judge(verdict, after_pause, ack);
            }
        }
        if let Some(epoch) = queue.and_then(|queue| self.epochs.on_ack(ack, queue, self.cruise.rate))
            && self.phase == Phase::Cruise
        {
            self.end_epoch(&epoch, ack);
        }
        if ack.newest >= self.round_ends {
            self.round_ends = ack.next;
            self.rounds += 1;
            self.end_round(ack);
        }
    }

    fn on_loss(&mut self, loss: &LossSample) {
        if let Some(compete) = &mut self.compete {
            compete.on_loss(loss, self.delays.queue);
        } else if self.phase == Phase::Cruise {
            self.pressed.on_loss(loss.now, self.delays.queue.as_secs_f64());
        }
    }

    fn on_fate(&mut self, number: u64, lost: bool) {
        self.medium.on_fate(number, lost);
    }

    fn on_mtu_fell(&mut self) {
        self.medium.acquit();
        self.cruise.acquit();
        if self.phase == Phase::Pause {
            self.pause = None;
        }
    }

    fn on_ecn(&mut self, now: Time, sent: Time) {
        if let Some(compete) = &mut self.compete {
            compete.on_ecn(now, sent);
        } else if self.marks.lowered.is_none_or(|lowered| sent > lowered) {
            self.marks = Marks { pending: true, lowered: Some(now) };
        }
    }

    fn budget(&self) -> Budget {
        if let (Phase::Compete, Some(compete)) = (self.phase, &self.compete) {
            return compete.budget();
        }
        let pace = match self.phase {
            Phase::Startup => return self.startup.budget(self.delays.min_rtt),
            Phase::Cruise => self.cruise.pace(),
            Phase::Drain | Phase::Slow | Phase::Pause | Phase::Look | Phase::Compete => self.slow.pace,
        };
        let round = self.delays.min_rtt.max(self.delays.smoothed).max(LEAST_ROUND);
        let product = (self.cruise.rate * round.as_secs_f64()) as u64;
        Budget { window: product.saturating_mul(WINDOW_GAIN).max(INITIAL_WINDOW), pacing: pace as u64 }
    }

    fn is_congested(&self) -> bool {
        self.medium.excess() > 0.0 || queue_is_long(self.delays.queue, self.delays.min_rtt, self.cruise.rate as u64)
    }

    fn is_testing(&self) -> bool {
        self.phase == Phase::Pause || self.medium.tests_after_pause()
    }

    fn poll_tested(&mut self) -> Option<Tested> {
        self.medium.tested.take()
    }

    fn state(&self) -> &'static str {
        match self.phase {
            Phase::Startup => "startup",
            Phase::Drain => "drain",
            Phase::Cruise => "cruise",
            Phase::Slow => "slow",
            Phase::Pause => "pause",
            Phase::Compete => "compete",
            Phase::Look => "look",
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
        if matches!(phase, Phase::Slow | Phase::Drain | Phase::Look) {
            self.medium.slow_down(ack.next);
        } else {
            self.medium.speed_up(ack.next);
        }
        (self.phase, self.rounds, self.round_ends) = (phase, 0, ack.next);
        (self.draining.rounds, self.draining.rate) = (0, self.cruise.rate);
        self.delays.restart();
        self.epochs.restart(ack.next);
    }

    /// Begins a phase with this part of the rate.
    fn slow_down(&mut self, phase: Phase, gain: f64, ack: &AckSample) {
        self.slow.at = ack.now;
        self.delays.slow_down();
        self.slow.pace = (self.cruise.rate * gain).max(1.0);
        self.enter(phase, ack);
    }

    /// Ends phases that end at a single acknowledgement, not at the end of a round trip.
    fn leave_early(&mut self, ack: &AckSample) {
        if mem::take(&mut self.marks.pending) {
            if self.phase == Phase::Startup {
                self.end_startup(ack);
            }
            self.cruise.on_marks();
        }
        self.limited += (f64::from(u8::from(ack.app_limited)) - self.limited) / LIMITED_SAMPLES;
        if self.medium.is_overrun(self.limited > LIMITED) {
            match self.phase {
                // The drain takes care of what start-up overran.
                Phase::Startup if self.medium.began_well() => {
                    self.startup.overran();
                    return self.end_startup(ack);
                }
                Phase::Drain | Phase::Pause => {}
                _ if self.pause.is_none_or(|pause| ack.now.since(pause.at) > PAUSE_AGAIN) => return self.pause(ack),
                _ => {}
            }
        }
        let standing = self.delays.standing();
        match self.phase {
            // More is lost than while the sender was slow: it has found the bottleneck.
            Phase::Startup if self.medium.is_confirmed() && self.medium.excess() > 0.0 => {
                self.startup.overran();
                self.end_startup(ack);
            }
            Phase::Startup if standing > self.queue_limit() / STARTUP_QUEUE => self.end_startup(ack),
            // The path was not overrun: its packets were too long.
            Phase::Pause if self.pause.is_none() => self.end_pause(ack),
            Phase::Drain if self.rounds > 0 && standing.as_secs_f64() < 2.0 * self.cruise.target() => {
                self.enter(Phase::Cruise, ack);
            }
            Phase::Compete if self.compete.as_ref().is_none_or(|compete| compete.is_due(standing)) => self.look(ack),
            // The queue has vanished: there is no other sender that fills it.
            Phase::Look
                if self.rounds > 0
                    && standing.as_secs_f64() < LOOK_VANISHED * self.cruise.target_at(self.pressed.most) =>
            {
                (self.compete, self.delays.holds) = (None, false);
                self.cruise.resume();
                self.enter(Phase::Cruise, ack);
            }
            _ => {}
        }
    }

    fn end_startup(&mut self, ack: &AckSample) {
        self.cruise.begin(self.startup.best as f64);
        self.cruise.expect(self.startup.fell);
        self.pressed.most = self.pressed.most.max(self.cruise.rate);
        self.slow_down(Phase::Drain, DRAIN_GAIN, ack);
    }

    /// The path is overrun: stops until its queue is gone.
    fn pause(&mut self, ack: &AckSample) {
        let arrived = self.epochs.arrived.max(ack.rate.map_or(0.0, |sample| sample.acked as f64));
        let rate = match self.phase {
            Phase::Startup => self.startup.best as f64,
            Phase::Compete | Phase::Look => arrived,
            _ => self.cruise.unlowered,
        };
        let recent = self.pause.filter(|last| ack.now.since(last.at) < PAUSE_MEMORY);
        self.pause = Some(Pause {
            at: ack.now,
            repeated: recent.map_or(0, |last| last.repeated + 1),
            before: Sent {
                now: ack.now,
                rate: rate.max(arrived),
                arrived,
                next: ack.next,
                app_limited: false,
                queue: Duration::ZERO,
            },
            loss: self.medium.recent().rate(),
        });
        (self.compete, self.delays.holds) = (None, false);
        self.cruise.begin(arrived * PAUSE_RESUME);
        self.cruise.unlowered = rate;
        self.slow_down(Phase::Pause, PAUSE_GAIN, ack);
        // Without packets it would not end.
        self.slow.pace = self.slow.pace.max(2.0 * PACKET as f64 / ack.smoothed.max(SPARSE).as_secs_f64());
    }

    fn end_pause(&mut self, ack: &AckSample) {
        if let Some(Pause { before, loss, repeated, .. }) = self.pause {
            let sent = Sent { now: ack.now, next: ack.next, ..before };
            self.medium.begin_again(loss, sent, self.cruise.rate, repeated);
        }
        self.cruise.resume();
        self.enter(Phase::Cruise, ack);
    }

    fn end_epoch(&mut self, epoch: &Epoch, ack: &AckSample) {
        let was_long = mem::take(&mut self.draining.was_long);
        let is_long = was_long || self.cruise.without_noise(epoch.least) > 2.0 * self.cruise.target();
        let sent = Sent {
            now: ack.now,
            rate: self.cruise.rate,
            arrived: epoch.arrived(),
            next: ack.next,
            app_limited: epoch.app_limited,
            queue: epoch.mean,
        };
        self.medium.end_epoch(sent, is_long, self.cruise.is_capped(ack.now));
        let (loss, excess, tests) = (self.medium.loss(), self.medium.excess(), self.medium.test_rate());
        self.cruise.on_epoch(
            epoch,
            ack,
            self.delays.recent_queue(),
            self.delays.least_mean(),
            Known { loss, excess, tests },
        );
        if excess == 0.0 && tests.is_none() {
            self.cruise.unlowered = self.cruise.rate;
        }
        // If half of the delay is variation, the path causes it, and it shows no queue of TCP.
        let rate = self.cruise.rate;
        let queue = if self.cruise.is_queue(epoch.mean) { epoch.mean.as_secs_f64() } else { 0.0 };
        let life = NEAR_LIFE.max(ack.min_rtt * NEAR_ROUNDS);
        let is_drained = self.delays.near_at.is_some_and(|at| ack.now.since(at) < life * DRAINED_AGAIN);
        if !epoch.app_limited
            && self.pressed.is_due(ack.now, rate, queue, |rate| self.cruise.target_at(rate))
            && (!is_drained || self.pressed.has_nothing(rate))
            && !self.is_lossy()
        {
            return self.compete(rate, ack);
        }
        if mem::take(&mut self.delays.fell) {
            // Others drain the queue, and part of it was taken for the path. All have to drain at once to see
            // the path without any queue.
            self.slow_down(Phase::Slow, JOIN_GAIN, ack);
        } else if self.delays.near_at.is_none_or(|at| ack.now.since(at.max(self.slow.at)) > life) {
            let is_blind = self.delays.low.as_secs_f64() > self.cruise.target();
            self.draining.blind = if is_blind { self.draining.blind + 1 } else { 0 };
            self.delays.low = Duration::MAX;
            if self.draining.blind == BLIND {
                self.draining.blind = 0;
                return self.meet(self.cruise.rate, ack);
            }
            let depth = SLOW_DEPTH * self.delays.recent_queue().as_secs_f64() / ack.smoothed.as_secs_f64();
            let gain = (1.0 - depth).clamp(LEAST_SLOW, SLOW_GAIN);
            let half = SLOW_SHARE * epoch.arrived() / self.cruise.rate;
            self.slow_down(Phase::Slow, if loss > LOSSY { gain.min(half) } else { gain }, ack);
        }
    }

    /// The test of the losses has shown who caused them.
    fn judge(&mut self, verdict: Verdict, after_pause: bool, ack: &AckSample) {
        self.epochs.restart(ack.next);
        match verdict {
            // The rate before the pause may have been the path's with all others silent.
            // After more than two pauses in a row, start-ups may be what overruns it.
            Verdict::Medium { .. } if after_pause => {
                if self.pause.is_none_or(|pause| pause.repeated <= 1) {
                    self.startup = Startup::again(self.cruise.rate as u64);
                    self.enter(Phase::Startup, ack);
                }
            }
            Verdict::Medium { rate } => self.cruise.restore(rate),
            Verdict::Bottleneck { arrived } => self.cruise.limit(arrived / (1.0 - self.medium.loss()), ack),
        }
    }

    fn end_round(&mut self, ack: &AckSample) {
        let lasted = self.rounds;
        match self.phase {
            Phase::Startup if !ack.app_limited && self.startup.is_full() => self.end_startup(ack),
            Phase::Cruise => self.end_cruise_round(ack),
            Phase::Compete => {
                let Some(compete) = &mut self.compete else { return };
                compete.end_round();
                let rate = compete.budget().window as f64 / ack.smoothed.as_secs_f64();
                if let Some(left) = compete.leaves(ack.now) {
                    self.pressed.left(ack.now, left);
                    (self.compete, self.delays.holds) = (None, false);
                    self.cruise.begin(rate);
                    self.enter(Phase::Cruise, ack);
                }
            }
            Phase::Look if lasted >= LOOK_ROUNDS && ack.now.since(self.slow.at) >= LEAST_LOOK_TIME => {
                self.enter(Phase::Compete, ack);
            }
            Phase::Drain if lasted >= DRAIN_ROUNDS => self.enter(Phase::Cruise, ack),
            Phase::Slow if lasted >= MOST_SLOW_ROUNDS || !mem::take(&mut self.delays.fell) => {
                self.cruise.resume();
                self.enter(Phase::Cruise, ack);
            }
            Phase::Pause if ack.now.since(self.slow.at) >= LEAST_LOOK_TIME.max(ack.smoothed * PAUSE_ROUNDS) => {
                self.end_pause(ack);
            }
            _ => {}
        }
    }

    /// Counts the round trips in which a queue does not fall although this sender drains it.
    fn end_cruise_round(&mut self, ack: &AckSample) {
        let queue = self.delays.recent_queue();
        if !self.cruise.drains() {
            (self.draining.rounds, self.draining.rate, self.draining.queue) = (0, self.cruise.rate, queue);
            return;
        }
        let jumped = self.delays.has_jumped();
        let others = if jumped { 0.0 } else { CROWD * self.cruise.target_at(self.draining.rate) };
        if queue > self.draining.queue.mul_f64(FALLS) && queue.as_secs_f64() > others {
            self.draining.rounds += 1;
        }
        self.draining.queue = queue;
        let enough = if jumped { JUMPED } else { UNDRAINED };
        if self.draining.rounds < enough {
            return;
        }
        self.draining.rounds = 0;
        self.meet(self.draining.rate, ack);
    }

    /// Answers a queue of others that a sender of this kind would have drained. `rate` is that of this flow
    /// before it met the queue.
    fn meet(&mut self, rate: f64, ack: &AckSample) {
        if self.delays.has_jumped() || self.is_lossy() {
            self.delays.forget();
            self.cruise.begin(rate);
        } else if self.pressed.trusts_a_standing_queue() && self.cruise.is_queue(self.delays.recent_queue()) {
            self.compete(rate, ack);
        }
    }

    /// No sender that fills queues keeps one on a path that loses much, unless it is overrun.
    fn is_lossy(&self) -> bool {
        self.medium.loses(LOSSY) && !self.pressed.has_overflows() && self.medium.recent().rate() < OVERRUN
    }

    fn compete(&mut self, rate: f64, ack: &AckSample) {
        let window = rate * ack.smoothed.as_secs_f64();
        self.compete = Some(Compete::begin((window as u64).max(INITIAL_WINDOW), ack.now));
        self.pressed.begin();
        self.delays.holds = true;
        self.enter(Phase::Compete, ack);
    }

    fn look(&mut self, ack: &AckSample) {
        let Some(compete) = &mut self.compete else { return };
        let rate = compete.budget().window as f64 / ack.smoothed.as_secs_f64();
        let gain = compete.look(self.delays.recent_queue(), ack.min_rtt);
        self.cruise.begin(rate);
        self.slow_down(Phase::Look, gain, ack);
    }
}
