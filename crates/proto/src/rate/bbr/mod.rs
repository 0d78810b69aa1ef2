//! The default controller: a model of the bottleneck after the BBR family (draft-ietf-ccwg-bbr). It does not
//! take random loss for congestion.
//!
//! It keeps the bottleneck's rate (windowed maximum of the measured delivery rates) and the minimum RTT. It
//! paces at the rate and limits the bytes in flight by the product of both. It differs from BBR in seven
//! points, each because of a measurement:
//! - While the queue is short, the rate counts bytes *passed*, which includes lost ones (see
//!   [`crate::path::DeliveryRate`]). BBR's rate is `(1 - p)` of the bottleneck and collapses once `1.25 (1 -
//!   p) < 1`: kernel BBR keeps 38 % at 20 % loss.
//! - Start-up also uses the dispersion of packets ([`crate::path::Dispersion`]), which shows the rate one
//!   round trip before rates measured over a round trip do.
//! - Start-up ends when the round trip shows a queue, not only when the rate stops growing. It never needs a
//!   full queue.
//! - Where another sender keeps the queue full, it competes as CUBIC does while that lasts
//!   ([`contest`]).
//! - Where that sender does not yield to losses either, it keeps a constant window of half of the path
//!   ([`hold`]).
//! - A queue that stands for a round trip, even one too short to end start-up, lowers the pace by a twentieth
//!   and reduces the loss that is attributed to the medium. Otherwise a short queue would drop packets and
//!   the sender would take the drops for random loss.
//! - A standing queue ends a cruise early. No time is spent at four packets in flight to probe the minimum
//!   RTT: the drain after each probe shows it, and only if that fails the bytes in flight are halved for one
//!   round trip.

mod contest;
mod delays;
mod hold;
mod medium;
mod rates;
#[cfg(test)]
mod tests;
mod tuning;

use core::time::Duration;

use contest::Contest;
use delays::RoundTrips;
use hold::{Hold, Turn};
use medium::{Medium, Verdict};
use rates::Rates;

use super::{AckSample, Budget, INITIAL_WINDOW, LossSample, RateController, own_time, queue_is_long};
use crate::Time;
use tuning::{
    ANSWER, ASK_GAIN, ASKED, CRUISE_GAIN, CRUISE_ROUNDS, DOWN_GAIN, DRAIN_GAIN, DRAIN_ROUNDS, DROP_GAIN, FIRST_FLIGHT,
    FULL_GROWTH, FULL_ROUNDS, LEAST_ROUND, LOOK_DIVISOR, LOOKED, MARK_GAIN, MIN_RTT_LIFE, MOST_CRUISE_ROUNDS,
    QUEUE_DIVISOR, QUEUE_FLOOR, RECENT, RETURNS, SHARED_UP_GAIN, SHORT_QUEUE, SOON, STARTUP_GAIN, STARTUP_QUEUE,
    STOOD_GAIN, UP_GAIN, UP_GROWTH, WINDOW_GAIN,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Startup,
    Drain,
    Up,
    Down,
    Cruise,
    /// Half of the usual bytes in flight for a round trip, which shows the path without the sender's own
    /// queue.
    Probe,
    /// Less in flight than the pipe holds, for two round trips. A queue that stays belongs to another sender.
    Look,
    /// Competes with a sender that keeps the queue full.
    Compete,
    /// Holds a constant window beside a sender that keeps the queue full and does not yield.
    Hold,
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
    delays: RoundTrips,
    standing: Standing,
    /// Whether the peer reported congestion marks for which the rate has not fallen yet.
    marked: bool,
    /// Consecutive cruises that a queue ended soon.
    returns: u32,
    /// The competition with a sender that keeps the queue full.
    contest: Option<Contest>,
    hold: Hold,
    medium: Medium,
    /// Length of a cruise in round trips.
    cruise_rounds: u64,
    /// Time at which the rate last fell for marks. Marks on packets sent until then cause no further fall.
    lowered: Option<Time>,
}

/// A queue that stands.
#[derive(Debug, Default)]
struct Standing {
    /// Whether a queue stood throughout the last round.
    stood: bool,
    /// The newest packet acknowledged, and the next packet to be sent when a standing queue was last seen.
    /// Rate samples of packets between the two include drops of that queue.
    newest: u64,
    until: u64,
}

impl Default for Bbr {
    fn default() -> Self {
        Self {
            phase: Phase::Startup,
            phase_rounds: 0,
            phase_round_ends: 0,
            round_ends: 0,
            rates: Rates::default(),
            delays: RoundTrips::default(),
            standing: Standing::default(),
            marked: false,
            returns: 0,
            contest: None,
            hold: Hold::default(),
            medium: Medium::default(),
            cruise_rounds: CRUISE_ROUNDS,
            lowered: None,
        }
    }
}

impl RateController for Bbr {
    fn on_handshake(&mut self, rtt: Duration) {
        self.delays.min = rtt;
    }

    fn on_ack(&mut self, ack: &AckSample) {
        self.delays.on_ack(ack);
        self.standing.newest = ack.newest;
        if self.delays.latest_least() > self.delays.floor.saturating_add(self.short_queue()) {
            self.standing.until = ack.next;
        }
        if let (Phase::Startup, Some(found)) = (self.phase, ack.dispersion) {
            self.rates.slowed = found.slowed;
            self.sample(found.acked, found.passed, true);
        }
        if let Some(sample) = ack.rate {
            self.sample(sample.acked, sample.passed, sample.app_limited);
        }
        if let Some(contest) = &mut self.contest {
            contest.on_ack(ack, self.delays.queue);
        }
        self.hold.on_ack(ack, self.delays.recent_queue());
        self.leave_early(ack);
        if ack.newest >= self.round_ends {
            self.end_round(ack);
        }
        if ack.newest >= self.phase_round_ends {
            self.phase_round_ends = ack.next;
            self.phase_rounds += 1;
            self.end_phase_round(ack);
            self.delays.least = Duration::MAX;
        }
    }

    fn on_loss(&mut self, loss: &LossSample) {
        let queue = self.delays.recent_queue();
        self.hold.on_loss(loss, self.delays.latest_least(), queue, queue > self.queue_limit());
        if let Some(contest) = &mut self.contest {
            contest.on_loss(loss, self.delays.queue);
        }
    }

    fn on_fate(&mut self, number: u64, lost: bool) {
        match self.medium.on_fate(number, lost) {
            Some(Verdict::Queue) => self.probe_less(),
            // The rate that the alarm took back is valid again.
            Some(Verdict::Medium) => self.rates.restore(),
            None => {}
        }
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
        if let (Phase::Hold, Some(budget)) = (self.phase, self.hold.budget()) {
            return budget;
        }
        let rate = self.rate();
        // The first flight over one round trip: the rate at which start-up begins. Rates of the first few
        // packets must not lower it.
        let initial = (FIRST_FLIGHT as f64 / self.delays.min.as_secs_f64().max(1e-4)) as u64;
        // A queue may end start-up before any rate sample. A pace of zero would never give one.
        let rate = if self.phase == Phase::Startup || rate == 0 { rate.max(initial) } else { rate };
        let gain = match self.phase {
            // Packets that arrive more slowly than they were sent have found the bottleneck.
            Phase::Startup => (STARTUP_GAIN * self.rates.slowed).max(1.0),
            Phase::Drain => DRAIN_GAIN,
            Phase::Up if self.is_shared() => SHARED_UP_GAIN,
            Phase::Up if self.phase_rounds < ASKED => ASK_GAIN,
            Phase::Up if self.phase_rounds < LOOKED => CRUISE_GAIN,
            Phase::Up => UP_GAIN,
            Phase::Down | Phase::Look => DOWN_GAIN,
            Phase::Cruise if self.standing.stood => STOOD_GAIN,
            Phase::Cruise | Phase::Probe | Phase::Compete | Phase::Hold => CRUISE_GAIN,
        };
        let product = self.product_of(rate);
        let window = match self.phase {
            Phase::Startup => self.product().saturating_mul(3).max(FIRST_FLIGHT),
            Phase::Probe => product / 2,
            Phase::Look => (product as f64 * DOWN_GAIN) as u64,
            _ => bytes_in(rate, self.base()).saturating_mul(WINDOW_GAIN),
        };
        Budget { window: window.max(INITIAL_WINDOW), pacing: (rate as f64 * gain) as u64 }
    }

    fn is_congested(&self) -> bool {
        let drops = self.phase == Phase::Hold && self.hold.is_full(self.delays.recent_queue());
        drops || queue_is_long(self.delays.queue, self.delays.min, self.rate())
    }

    fn state(&self) -> &'static str {
        match self.phase {
            Phase::Startup => "startup",
            Phase::Drain => "drain",
            Phase::Up => "up",
            Phase::Down => "down",
            Phase::Cruise => "cruise",
            Phase::Probe => "probe",
            Phase::Look => "look",
            Phase::Compete => "compete",
            Phase::Hold => "hold",
        }
    }
}

impl Bbr {
    /// Bytes per second that the bottleneck carries.
    fn rate(&self) -> u64 {
        self.rates.best()
    }

    /// Bandwidth-delay product in bytes.
    fn product(&self) -> u64 {
        self.product_of(self.rate())
    }

    fn product_of(&self, rate: u64) -> u64 {
        bytes_in(rate, self.delays.min)
    }

    fn queue_limit(&self) -> Duration {
        (self.delays.min / QUEUE_DIVISOR).max(QUEUE_FLOOR).max(own_time(self.rate()))
    }

    /// Takes rate samples. Samples that are only lower bounds count only if they exceed the known rate.
    fn sample(&mut self, acked: u64, passed: u64, are_bounds: bool) {
        self.rates.acked = self.rates.acked.max(acked);
        let rate = if self.is_congested() {
            acked
        } else {
            self.medium.carried(acked, passed, self.standing.newest < self.standing.until)
        };
        if !are_bounds || rate > self.rate() {
            self.rates.add(rate);
        }
    }

    /// Whether a probe goes on after this many round trips. It does while its effect is not known yet, and
    /// while it found more capacity.
    fn is_more(&self, lasted: u64) -> bool {
        let grew = |factor: f64| self.rate() as f64 >= self.rates.full as f64 * factor;
        match lasted {
            _ if self.is_shared() => false,
            LOOKED => grew(ANSWER),
            // The effect of one round trip is known after the next.
            _ => lasted <= LOOKED + 1 || grew(UP_GROWTH),
        }
    }

    /// Whether probes made a short queue drop.
    fn is_shared(&self) -> bool {
        self.cruise_rounds > CRUISE_ROUNDS
    }

    /// The queue is short and drops packets, so probes become rarer and smaller.
    fn probe_less(&mut self) {
        self.cruise_rounds = (2 * self.cruise_rounds).min(MOST_CRUISE_ROUNDS);
    }

    fn enter(&mut self, phase: Phase, ack: &AckSample) {
        if matches!(phase, Phase::Drain | Phase::Down | Phase::Look) {
            self.medium.slow_down(ack.next);
        } else {
            self.medium.speed_up(ack.next);
        }
        self.phase = phase;
        self.phase_rounds = 0;
        self.phase_round_ends = ack.next;
        self.delays.samples = 0;
    }

    /// Ends phases that end at a single acknowledgement, not at the end of a round.
    fn leave_early(&mut self, ack: &AckSample) {
        if core::mem::take(&mut self.marked) {
            self.hold.forget();
            self.rates.lower(MARK_GAIN);
            let drain = if self.phase == Phase::Startup { Phase::Drain } else { Phase::Down };
            return self.enter(drain, ack);
        }
        let product = self.product();
        match self.phase {
            Phase::Startup if self.standing_queue() > self.queue_limit() / STARTUP_QUEUE => {
                self.enter(Phase::Drain, ack)
            }
            Phase::Drain | Phase::Down
                if (ack.in_flight <= product || self.is_drained())
                    && (self.phase_rounds > 0 || self.medium.has_asked(ack.next)) =>
            {
                self.enter(Phase::Cruise, ack);
            }
            Phase::Up if !self.is_shared() && self.standing_queue() > self.queue_limit() => {
                self.enter(Phase::Down, ack)
            }
            Phase::Cruise if self.standing_queue() > self.queue_limit() => {
                let returned = self.phase_rounds < SOON && self.medium.is_clean();
                self.returns = if returned { self.returns + 1 } else { 0 };
                let next = if self.returns < RETURNS { Phase::Down } else { Phase::Look };
                self.enter(next, ack);
            }
            _ => {}
        }
    }

    /// Minimum queueing delay of the latest feedback of this phase. It shows the queue that stands, without
    /// short peaks.
    fn standing_queue(&self) -> Duration {
        if self.delays.samples < RECENT {
            return Duration::ZERO;
        }
        self.delays.latest_least().saturating_sub(self.base())
    }

    /// Whether start-up overruns a short queue: the queue stands, and more is lost than a medium is assumed
    /// to lose. The drops may block the sender, which then counts as limited by the application.
    fn overruns(&self) -> bool {
        self.medium.loses_much() && self.standing_queue() > self.short_queue()
    }

    /// Round trip without a queue of our own. On a path that loses packets, the delay that remains after a
    /// drain is the path's jitter, since no TCP keeps a queue there. On a clean path it may be another
    /// sender's queue, so only the minimum RTT counts.
    fn base(&self) -> Duration {
        let is_known = self.delays.floor != Duration::MAX && !self.medium.is_clean();
        if is_known { self.delays.min.max(self.delays.floor) } else { self.delays.min }
    }

    /// Whether the delay is back at that of the last drain after a round trip of draining. Bytes in flight
    /// beyond the product are then the path's jitter.
    fn is_drained(&self) -> bool {
        self.phase_rounds > 0
            && self.delays.least <= self.base().saturating_add(self.short_queue())
            && !self.medium.is_clean()
    }

    /// Queueing delay above the floor that shows a standing queue.
    fn short_queue(&self) -> Duration {
        SHORT_QUEUE.max(own_time(self.rate()))
    }

    fn end_round(&mut self, ack: &AckSample) {
        self.round_ends = ack.next;
        self.stand_firm(ack);
        // Rounds without a sample, such as those of an application that sends little, do not age the
        // estimate.
        self.rates.end_round();
        self.standing.stood = self.delays.round_least != Duration::MAX
            && self.delays.round_least > self.delays.floor.saturating_add(self.short_queue());
        self.delays.round_least = Duration::MAX;
        if self.medium.end_round(self.standing.stood) && matches!(self.phase, Phase::Up | Phase::Cruise | Phase::Probe)
        {
            self.rates.doubt(DROP_GAIN);
            self.enter(Phase::Down, ack);
        }
    }

    /// Begins or ends to hold a constant window.
    fn stand_firm(&mut self, ack: &AckSample) {
        if matches!(self.phase, Phase::Startup | Phase::Drain) {
            return self.hold.forget();
        }
        let is_saturated = ack.rate.is_some_and(|rate| !rate.app_limited);
        match self.hold.end_round(ack.now, ack.in_flight, is_saturated) {
            Some(Turn::Begin) => {
                (self.contest, self.returns) = (None, 0);
                self.enter(Phase::Hold, ack);
            }
            Some(Turn::End(window)) => {
                self.contest = Some(Contest::begin((window / 2).max(INITIAL_WINDOW)));
                self.enter(Phase::Compete, ack);
            }
            None => {}
        }
    }

    fn end_phase_round(&mut self, ack: &AckSample) {
        let lasted = self.phase_rounds;
        let app_limited = ack.rate.is_none_or(|rate| rate.app_limited);
        match self.phase {
            Phase::Startup if !app_limited || self.overruns() => self.check_full(ack),
            Phase::Up if self.is_more(lasted) => self.rates.full = self.rate(),
            Phase::Up => self.enter(Phase::Down, ack),
            Phase::Drain | Phase::Down if lasted >= DRAIN_ROUNDS => self.enter(Phase::Look, ack),
            Phase::Look if lasted >= LOOKED => self.end_look(ack),
            Phase::Compete if self.contest.as_mut().is_none_or(Contest::end_round) => self.enter(Phase::Look, ack),
            Phase::Probe if lasted >= 2 => {
                self.delays.near_min_at = ack.now;
                self.enter(Phase::Up, ack);
            }
            // By now the packets of the drain are acknowledged.
            Phase::Cruise if lasted == 1 => self.delays.floor = self.delays.least,
            Phase::Cruise if ack.now.since(self.delays.near_min_at) > MIN_RTT_LIFE => self.enter(Phase::Probe, ack),
            Phase::Cruise if lasted >= self.cruise_rounds => {
                self.cruise_rounds = self.cruise_rounds.saturating_sub(CRUISE_ROUNDS / 2).max(CRUISE_ROUNDS);
                self.enter(Phase::Up, ack);
            }
            _ => {}
        }
    }

    /// Ends a look: less was in flight than the pipe holds. Decides whether the remaining queue belongs to
    /// another sender.
    fn end_look(&mut self, ack: &AckSample) {
        // A round trip without a sample shows nothing.
        let least = if self.delays.least == Duration::MAX { self.delays.min } else { self.delays.least };
        let stays = least.saturating_sub(self.delays.min);
        let is_short = stays <= (self.queue_limit() / LOOK_DIVISOR).max(own_time(self.rate()));
        if is_short || !self.medium.is_clean() {
            if !is_short {
                self.delays.longer = least;
            }
            (self.contest, self.returns) = (None, 0);
            return self.enter(Phase::Cruise, ack);
        }
        let window = (self.rate() as f64 * ack.smoothed.as_secs_f64()) as u64;
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
            self.enter(Phase::Drain, ack);
        }
    }
}

/// Bytes in flight at `rate` bytes per second over this round trip.
fn bytes_in(rate: u64, rtt: Duration) -> u64 {
    (u128::from(rate) * rtt.max(LEAST_ROUND).as_micros() / 1_000_000) as u64
}
