//! The default controller: a model of the bottleneck after the BBR family (draft-ietf-ccwg-bbr). It does not
//! take random loss for congestion.
//!
//! Start-up doubles the pace each round trip until a queue shows, or until more is dropped. From then on the
//! pace follows the law of [`cruise`]: what the path passed, corrected by the queue. Short phases at a lower
//! pace show what nothing else shows: the path without our queue, and the loss of the medium
//! ([`medium`]). Where another sender keeps the queue full, it competes as CUBIC does while that lasts
//! ([`contest`]).

mod contest;
mod cruise;
mod delays;
mod epoch;
mod medium;
mod rates;
mod tuning;

use core::time::Duration;

use contest::Contest;
use cruise::{Cruise, Known};
use delays::Delays;
use epoch::{Epoch, Epochs};
use medium::{Medium, Sent, Verdict};
use rates::Rates;

use super::{AckSample, Budget, INITIAL_WINDOW, PACKET, LossSample, RateController, own_time, queue_is_long};
use crate::Time;
use tuning::{
    CROWDED, DRAIN_GAIN, DRAIN_ROUNDS, FIRST_FLIGHT, FULL_GROWTH, FULL_ROUNDS, JOIN_GAIN, LEAST_ROUND, LEAST_SLOW, LOOK_DIVISOR, LOOK_GAIN,
    LOOK_ROUNDS, LOSSY, MARK_GAIN, MOST_SLOW_ROUNDS, NEAR_LIFE, NEAR_ROUNDS, PAUSE_AGAIN, PAUSE_GAIN, PAUSE_RESUME, PAUSE_ROUNDS, QUEUE_DIVISOR, QUEUE_FLOOR, SLOW_GAIN, SLOW_SHARE,
    STARTUP_GAIN, STARTUP_QUEUE, WINDOW_GAIN,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Startup,
    /// After start-up: half of the rate until its queue is gone and the medium's loss is known.
    Drain,
    /// The law of [`cruise`].
    Cruise,
    /// A round trip at a pace that the path has just delivered with room to spare. It shows the path without
    /// our queue, and the loss of the medium.
    Slow,
    /// Almost nothing, after the path was overrun. All flows of our kind that overran it see that and pause at
    /// the same time, so that the queue drains and its losses end.
    Pause,
    /// Less in flight than the pipe holds, for two round trips. A queue that stays belongs to another sender.
    Look,
    /// Competes with a sender that keeps the queue full.
    Compete,
}

/// The default controller, described in the module documentation.
#[derive(Debug)]
pub struct Bbr {
    phase: Phase,
    /// Whole round trips of this phase, and the packet whose acknowledgement ends the current one.
    phase_rounds: u64,
    phase_round_ends: u64,
    /// Packet whose acknowledgement ends the current round trip. These round trips ignore the phases; rates
    /// age by them.
    round_ends: u64,
    rates: Rates,
    delays: Delays,
    epochs: Epochs,
    /// What arrived in each of the last epochs, in bytes per second.
    arrived: [f64; 4],
    cruise: Cruise,
    medium: Medium,
    /// When the sender last paused, and what it sent before.
    paused: Option<Time>,
    overran: Sent,
    /// Pace of a slow phase.
    slow: f64,
    /// The competition with a sender that keeps the queue full.
    contest: Option<Contest>,
    /// Whether the peer reported congestion marks for which the rate has not fallen yet, and when the rate
    /// last fell for them. Marks on packets sent until then cause no further fall.
    marked: bool,
    lowered: Option<Time>,
}

impl Default for Bbr {
    fn default() -> Self {
        Self {
            phase: Phase::Startup,
            phase_rounds: 0,
            phase_round_ends: 0,
            round_ends: 0,
            rates: Rates::default(),
            delays: Delays::default(),
            epochs: Epochs::default(),
            arrived: [0.0; 4],
            cruise: Cruise::default(),
            medium: Medium::default(),
            paused: None,
            overran: Sent::default(),
            slow: 0.0,
            contest: None,
            marked: false,
            lowered: None,
        }
    }
}

impl RateController for Bbr {
    fn on_handshake(&mut self, rtt: Duration) {
        self.delays.min_rtt = rtt;
    }

    fn on_ack(&mut self, ack: &AckSample) {
        let queue = self.delays.on_ack(ack);
        if self.phase == Phase::Startup {
            if let Some(found) = ack.dispersion {
                self.rates.slowed = found.slowed;
                self.sample(found.acked, found.passed, true);
            }
            if let Some(sample) = ack.rate {
                self.sample(sample.acked, sample.passed, sample.app_limited);
            }
        }
        if let Some(contest) = &mut self.contest {
            contest.on_ack(ack, self.delays.queue);
        }
        self.leave_early(ack);
        if std::env::var("TW_ACK").is_ok() {
            eprintln!("ACK {:p} {:.3} {:?} pace {:.2} win {} infl {} queue {:.2} rtt {:.1} best {:.2}", self, ack.now.0 as f64/1e9, self.phase, self.budget().pacing as f64*8e-6, self.budget().window/1500, ack.in_flight/1500, self.delays.recent_queue().as_secs_f64()*1e3, ack.rtt.unwrap_or_default().as_secs_f64()*1e3, self.rates.best() as f64*8e-6);
        }
        if self.phase == Phase::Cruise {
            self.cruise.on_ack(ack, self.delays.recent_queue());
        }
        if let Some(epoch) = queue.and_then(|queue| self.epochs.on_ack(ack, queue)) {
            self.end_epoch(&epoch, ack);
        }
        if ack.newest >= self.round_ends {
            self.round_ends = ack.next;
            self.rates.end_round();
        }
        if ack.newest >= self.phase_round_ends {
            self.phase_round_ends = ack.next;
            self.phase_rounds += 1;
            self.end_phase_round(ack);
        }
    }

    fn on_loss(&mut self, loss: &LossSample) {
        if let Some(contest) = &mut self.contest {
            contest.on_loss(loss, self.delays.queue);
        }
    }

    fn on_fate(&mut self, number: u64, lost: bool) {
        self.medium.on_fate(number, lost);
    }

    fn on_ecn(&mut self, now: Time, sent: Time) {
        if let Some(contest) = &mut self.contest {
            contest.on_ecn(now, sent);
        } else if self.lowered.is_none_or(|lowered| sent > lowered) {
            self.lowered = Some(now);
            self.marked = true;
        }
    }

    fn budget(&self) -> Budget {
        if let (Phase::Compete, Some(contest)) = (self.phase, &self.contest) {
            return contest.budget();
        }
        let (pace, window) = match self.phase {
            Phase::Startup => {
                // The first flight over one round trip: the rate at which start-up begins. Rates of the first
                // few packets must not lower it.
                let initial = (FIRST_FLIGHT as f64 / self.delays.min_rtt.as_secs_f64().max(1e-4)) as u64;
                let rate = self.rates.best().max(initial);
                // Packets that arrive more slowly than they were sent have found the bottleneck.
                let gain = (STARTUP_GAIN * self.rates.slowed).max(1.0);
                let window = bytes_in(self.rates.best(), self.delays.min_rtt).saturating_mul(3).max(FIRST_FLIGHT);
                (rate as f64 * gain, window)
            }
            phase => {
                let pace = if matches!(phase, Phase::Cruise) { self.cruise.pace() } else { self.slow };
                let round = self.delays.min_rtt.max(self.delays.smoothed);
                (pace, bytes_in(self.cruise.rate as u64, round).saturating_mul(WINDOW_GAIN))
            }
        };
        Budget { window: window.max(INITIAL_WINDOW), pacing: pace as u64 }
    }

    fn is_congested(&self) -> bool {
        self.medium.excess() > 0.0
            || queue_is_long(self.delays.queue, self.delays.min_rtt, self.cruise.rate as u64)
    }
}

impl Bbr {
    fn queue_limit(&self) -> Duration {
        (self.delays.min_rtt / QUEUE_DIVISOR).max(QUEUE_FLOOR).max(own_time(self.rates.best()))
    }

    /// Takes rate samples of start-up. Samples that are only lower bounds count only if they exceed the known
    /// rate.
    fn sample(&mut self, acked: u64, passed: u64, are_bounds: bool) {
        self.rates.acked = self.rates.acked.max(acked);
        let rate = passed.min((acked as f64 / (1.0 - self.medium.loss())) as u64);
        if !are_bounds || rate > self.rates.best() {
            self.rates.add(rate);
        }
    }

    /// What the path delivered lately, in bytes per second.
    fn delivered(&self) -> f64 {
        self.arrived.iter().copied().fold(0.0, f64::max)
    }

    fn enter(&mut self, phase: Phase, ack: &AckSample) {
        if std::env::var("TW_DEBUG").is_ok() { eprintln!("DBG {:p} {:.3} {:?} -> {:?} pace {:.2} slow {:.2}", self, ack.now.0 as f64/1e9, self.phase, phase, self.cruise.rate*8e-6, self.slow*8e-6); }
        if self.phase == Phase::Drain {
            self.medium.begin();
        }
        if matches!(phase, Phase::Slow | Phase::Drain) {
            self.medium.slow_down(ack.next);
        } else {
            self.medium.speed_up(ack.next);
        }
        self.phase = phase;
        self.phase_rounds = 0;
        self.phase_round_ends = ack.next;
        self.delays.restart();
    }

    /// Sends more slowly, so that our queue drains.
    fn slow_down(&mut self, phase: Phase, gain: f64, ack: &AckSample) {
        self.slow = (self.cruise.rate * gain).max(1.0);
        self.enter(phase, ack);
    }

    fn end_epoch(&mut self, epoch: &Epoch, ack: &AckSample) {
        self.arrived.rotate_left(1);
        self.arrived[3] = epoch.arrived();
        if std::env::var("TW_DEBUG").is_ok() {
            eprintln!("DBG {:p} {:.3} {:?} pace {:.2} sent {:.2} arr {:.2} loss {:.3} least {:.2} mean {:.2} T {:.2} v {} app {} med {:.3} exc {:.3} crowd {} lasted {:.0}", self, ack.now.0 as f64/1e9, self.phase, self.cruise.rate*8e-6, epoch.sent*8e-6, epoch.arrived()*8e-6, epoch.loss, epoch.least.as_secs_f64()*1e3, epoch.mean.as_secs_f64()*1e3, self.cruise.target()*1e3, self.cruise.probe, epoch.app_limited, self.medium.loss(), self.medium.excess(), self.cruise.crowded, epoch.lasted.as_secs_f64()*1e3);
        }
        if self.phase != Phase::Cruise {
            return;
        }
        let is_long = epoch.least.as_secs_f64() > 2.0 * self.cruise.target();
        let sent = Sent { rate: self.cruise.rate, arrived: epoch.arrived(), next: ack.next };
        let verdict = self.medium.end_epoch(sent, is_long, self.cruise.is_capped(ack.now));
        let (loss, excess, tests) = (self.medium.loss(), self.medium.excess(), self.medium.test_rate());
        let known = Known { loss, excess, tests };
        self.cruise.on_epoch(epoch, ack, self.delays.recent_queue(), known);
        match verdict {
            Some(Verdict::Medium { rate }) => self.cruise.restore(rate),
            Some(Verdict::Bottleneck { arrived }) => self.cruise.limit(arrived / (1.0 - known.loss), ack),
            None => {}
        }
        if core::mem::take(&mut self.delays.fell) {
            // Others drain the queue, and part of it was taken for the path. All have to drain at once to see
            // the path without any queue.
            self.slow_down(Phase::Slow, JOIN_GAIN, ack);
        } else if self.cruise.crowded >= CROWDED && self.medium.is_clean() {
            self.slow_down(Phase::Look, LOOK_GAIN, ack);
        } else if self.delays.near_at.is_none_or(|at| ack.now.since(at) > NEAR_LIFE.max(ack.min_rtt * NEAR_ROUNDS)) {
            let depth = 1.5 * self.delays.recent_queue().as_secs_f64() / ack.smoothed.as_secs_f64();
            let gain = (1.0 - depth).clamp(LEAST_SLOW, SLOW_GAIN);
            let is_lossy = known.loss > LOSSY;
            let gain = if is_lossy { gain.min(SLOW_SHARE * epoch.arrived() / self.cruise.rate) } else { gain };
            self.slow_down(Phase::Slow, gain, ack);
        }
    }

    /// Ends phases that end at a single acknowledgement, not at the end of a round.
    fn leave_early(&mut self, ack: &AckSample) {
        if core::mem::take(&mut self.marked) {
            if self.phase == Phase::Startup {
                self.end_startup(ack);
            }
            self.cruise.rate *= MARK_GAIN;
            self.cruise.resume();
        }
        if self.medium.is_overrun() && self.paused.is_none_or(|at| ack.now.since(at) > PAUSE_AGAIN) {
            return self.pause(ack);
        }
        match self.phase {
            Phase::Startup if self.delays.standing() > self.queue_limit() / STARTUP_QUEUE => {
                self.end_startup(ack);
            }
            Phase::Drain if self.phase_rounds > 0 && self.delays.standing().as_secs_f64() < 2.0 * self.cruise.target() => {
                self.enter(Phase::Cruise, ack);
            }
            _ => {}
        }
    }

    /// The path is overrun: stops until its queue is gone.
    fn pause(&mut self, ack: &AckSample) {
        self.paused = Some(ack.now);
        let arrived = self.arrived[3].max(ack.rate.map_or(0.0, |sample| sample.acked as f64));
        let rate = self.cruise.rate.max(self.rates.best() as f64 * f64::from(u8::from(self.phase == Phase::Startup)));
        self.overran = Sent { rate, arrived, next: 0 };
        self.cruise.begin(arrived * PAUSE_RESUME);
        self.slow_down(Phase::Pause, PAUSE_GAIN, ack);
        self.slow = self.slow.max(2.0 * PACKET as f64 / ack.smoothed.as_secs_f64());
        self.contest = None;
    }

    fn end_startup(&mut self, ack: &AckSample) {
        self.cruise.begin(self.rates.best() as f64);
        self.slow_down(Phase::Drain, DRAIN_GAIN, ack);
    }

    fn end_phase_round(&mut self, ack: &AckSample) {
        let lasted = self.phase_rounds;
        let app_limited = ack.rate.is_none_or(|rate| rate.app_limited);
        match self.phase {
            Phase::Startup if !app_limited => self.check_full(ack),
            Phase::Drain if lasted >= DRAIN_ROUNDS => self.enter(Phase::Cruise, ack),
            Phase::Slow if lasted >= MOST_SLOW_ROUNDS || !core::mem::take(&mut self.delays.fell) => {
                self.delays.near_at = Some(ack.now);
                self.cruise.resume();
                self.enter(Phase::Cruise, ack);
            }
            Phase::Pause if lasted >= PAUSE_ROUNDS => {
                self.medium.begin_again(Sent { next: ack.next, ..self.overran }, self.cruise.rate);
                self.cruise.resume();
                self.enter(Phase::Cruise, ack);
            }
            Phase::Look if lasted >= LOOK_ROUNDS => self.end_look(ack),
            Phase::Compete if self.contest.as_mut().is_none_or(Contest::end_round) => {
                self.cruise.rate = self.delivered().max(1.0);
                self.slow_down(Phase::Look, LOOK_GAIN, ack);
            }
            _ => {}
        }
    }

    /// Ends a look: less was in flight than the pipe holds. Decides whether the remaining queue belongs to
    /// another sender.
    fn end_look(&mut self, ack: &AckSample) {
        let stays = self.delays.standing();
        let is_short = stays <= (self.queue_limit() / LOOK_DIVISOR).max(own_time(self.cruise.rate as u64));
        if is_short || !self.medium.is_clean() {
            self.contest = None;
            self.cruise.begin(self.cruise.rate);
            return self.enter(Phase::Cruise, ack);
        }
        let window = (self.cruise.rate * ack.smoothed.as_secs_f64()) as u64;
        self.contest.get_or_insert_with(|| Contest::begin(window.max(INITIAL_WINDOW)));
        self.enter(Phase::Compete, ack);
    }

    fn check_full(&mut self, ack: &AckSample) {
        if self.rates.acked as f64 >= self.rates.full as f64 * FULL_GROWTH {
            self.rates.full = self.rates.acked;
            self.rates.full_rounds = 0;
            return;
        }
        self.rates.full_rounds += 1;
        if self.rates.full_rounds >= FULL_ROUNDS {
            // No queue was built and no more arrived, so the rest of the packets was dropped.
            self.rates.limit_to_acked();
            self.end_startup(ack);
        }
    }
}

/// Bytes in flight at `rate` bytes per second over this round trip.
fn bytes_in(rate: u64, rtt: Duration) -> u64 {
    (u128::from(rate) * rtt.max(LEAST_ROUND).as_micros() / 1_000_000) as u64
}
