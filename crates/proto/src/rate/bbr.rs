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
//!   ([`super::contest`]).
//! - Where that sender does not yield to losses either, it keeps a constant window of half of the path
//!   ([`super::hold`]).
//! - A queue that stands for a round trip, even one too short to end start-up, lowers the pace by a twentieth
//!   and reduces the loss that is attributed to the medium. Otherwise a short queue would drop packets and
//!   the sender would take the drops for random loss.
//! - A standing queue ends a cruise early. No time is spent at four packets in flight to probe the minimum
//!   RTT: the drain after each probe shows it, and only if that fails the bytes in flight are halved for one
//!   round trip.

use core::time::Duration;

use super::contest::Contest;
use super::hold::{Hold, Turn};
use super::medium::{Medium, Verdict};
use super::{AckSample, Budget, INITIAL_WINDOW, LossSample, PACKET, RateController, own_time, queue_is_long};
use crate::Time;

/// Gain that doubles the rate each round trip in start-up (2/ln 2; draft-ietf-ccwg-bbr section 5.3.1.1).
const STARTUP_GAIN: f64 = 2.77;
/// Bytes sent before the first ACK, as many as Chromium's BBR sends (`kInitialCongestionWindow`). At the pace
/// of start-up they take a third of a round trip. Their dispersion at the receiver shows the rate one round
/// trip before the ACKs would.
const FIRST_FLIGHT: u64 = 32 * PACKET;
/// Gain that drains the queue of start-up within about one round trip.
const DRAIN_GAIN: f64 = 0.5;
/// Gain of the first step of a probe: one round trip, followed by a check of its effect. At capacity it
/// queues a thirtieth of a round trip. A gain of 1.25 at once queued a quarter, and a key stroke beside a
/// bulk stream waited for it.
const ASK_GAIN: f64 = 1.03;
/// Growth of the rate that shows, after the first step, that more capacity is free.
const ANSWER: f64 = 1.02;
/// Round trips from the start of a probe until the first step was sent, and until its effect is known.
const ASKED: u64 = 1;
const LOOKED: u64 = 2;
/// Gain of the second step, which lasts while the rate grows by [`UP_GROWTH`] each round trip
/// (draft-ietf-ccwg-bbr section 5.3.3).
const UP_GAIN: f64 = 1.25;
const UP_GROWTH: f64 = 1.1;
/// Gain of a probe where earlier probes made a short queue drop. Chosen.
const SHARED_UP_GAIN: f64 = 1.1;
/// Gain that drains the queue of a probe (draft-ietf-ccwg-bbr section 5.3.3).
const DOWN_GAIN: f64 = 0.75;
/// Gain of a cruise. BBRv2 stays 1 % below the estimate; here the drain after each probe and the early end of
/// a cruise limit the queue.
const CRUISE_GAIN: f64 = 1.0;
/// Gain of a cruise whose queue stood for a whole round trip, because the estimate is some percent too high.
/// In a queue of 5 ms at a round trip of 60 ms, 0.95 drains what an estimate 5 % too high adds. Chosen.
const STOOD_GAIN: f64 = 0.95;
/// Round trips of a cruise between probes (BBRv1's cycle of eight: up, down, six of cruise).
const CRUISE_ROUNDS: u64 = 6;
/// Upper limit of the cruise. The cruise doubles after each loss in a short queue and shrinks by three round
/// trips after each clean cruise. Chosen.
const MOST_CRUISE_ROUNDS: u64 = 48;
/// After this many round trips at [`DOWN_GAIN`] the sender's own queue is gone.
const DRAIN_ROUNDS: u64 = 3;
/// A queue that returns within `SOON` round trips after a drain, `RETURNS` times in a row, may belong to
/// another sender. If it does not, each look costs half a round trip of goodput. With a look at the first
/// return, on lossy paths too, links that lost 20 % carried 3 % less.
const SOON: u64 = 2;
const RETURNS: u32 = 3;
/// A queue that stays while less than a full pipe is in flight belongs to another sender if it is longer than
/// this part of the queue limit. The minimum RTT over a round trip of feedback has little noise.
const LOOK_DIVISOR: u32 = 3;
/// Factor of the rate when a full queue drops, the same as for a mark.
const DROP_GAIN: f64 = 0.85;
/// Rounds for which a rate sample counts. BBRv1 uses ten; it must be longer than one probe cycle.
const RATE_ROUNDS: usize = 10;
/// Window in bandwidth-delay products. The second leaves room for delayed and lost feedback (BBRv1
/// cwnd_gain).
const WINDOW_GAIN: u64 = 2;
/// The window uses at least this round trip. Batches, feedback and wake-ups come in steps of some hundred
/// microseconds, and the window must hold them all. Otherwise the two ends of a short path wait for each
/// other in turns (draft-ietf-ccwg-bbr section 5.6.4.2 adds three send quanta). The window's gain doubles it
/// to one batch of 0.5 ms. Chosen by docs/performance.md.
const LEAST_ROUND: Duration = Duration::from_micros(250);
/// Factor of the rate when the path marks congestion. A mark comes before the queue is full (ABE, RFC 8511:
/// 0.85 instead of 0.7).
const MARK_GAIN: f64 = 0.85;
/// Start-up ends after three rounds in which the rate grew by less than a quarter (BBRv1).
const FULL_ROUNDS: u32 = 3;
const FULL_GROWTH: f64 = 1.25;
/// Queueing delay that ends start-up and cruise: an eighth of the round trip. HyStart++ (RFC 9406) clamps it
/// to 4 .. 16 ms; here the minimum is 5 ms, the spread that a busy host's scheduler adds.
const QUEUE_DIVISOR: u32 = 8;
const QUEUE_FLOOR: Duration = Duration::from_millis(5);
/// A queue that the minimum of several RTT samples shows for certain: half of [`QUEUE_FLOOR`], whatever the
/// round trip.
const SHORT_QUEUE: Duration = Duration::from_micros(2_500);
/// Start-up ends at the queue limit divided by this, because the packets in flight will add to the queue.
const STARTUP_QUEUE: u32 = 2;
/// Number of RTT samples whose minimum counts: the feedback of a quarter of a round trip. HyStart++ takes 8
/// samples of a round. That is half a round too late where the rate doubles in one round (measured: a queue
/// of one round trip dropped 120 instead of 5 packets).
const RECENT: usize = 4;
/// The sender probes for the minimum RTT when it saw no RTT near it for this long (BBRv2 probes every 5 s).
const MIN_RTT_LIFE: Duration = Duration::from_secs(5);

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
    /// Best rate of each of the last rounds that had a sample, and the slot of the current round.
    rates: [u64; RATE_ROUNDS],
    rate_slot: usize,
    sampled: bool,
    /// The latest RTT samples, and the number of samples in this phase.
    recent: [Duration; RECENT],
    samples: usize,
    min_rtt: Duration,
    near_min_at: Time,
    full_rate: u64,
    full_rounds: u32,
    queue: Duration,
    /// Whether the peer reported congestion marks for which the rate has not fallen yet.
    marked: bool,
    /// The path's new, longer minimum RTT, used while the minimum of the last ten seconds still shows the old
    /// one. Any shorter sample lowers it.
    longer: Duration,
    /// Minimum RTT of the current round of this phase.
    least: Duration,
    /// Minimum RTT of the current round, whatever the phase.
    round_least: Duration,
    /// Minimum RTT of the packets of the last drain. It contains no queue of our own, only the path's jitter.
    /// MAX before the first drain.
    floor: Duration,
    /// Whether a queue stood throughout the last round.
    stood: bool,
    /// The newest packet acknowledged, and the next packet to be sent when a standing queue was last seen.
    /// Rate samples of packets between the two include drops of that queue.
    newest: u64,
    stood_until: u64,
    /// Consecutive cruises that a queue ended soon.
    returns: u32,
    /// The competition with a sender that keeps the queue full.
    contest: Option<Contest>,
    hold: Hold,
    medium: Medium,
    /// Length of a cruise in round trips.
    cruise_rounds: u64,
    /// The rate before it fell for losses that may turn out to be the medium's.
    doubted: u64,
    /// Best acknowledged rate. Start-up ends when it stops growing.
    acked: u64,
    /// Value of the latest dispersion sample ([`crate::path::Dispersion::slowed`]).
    slowed: f64,
    /// Time at which the rate last fell for marks. Marks on packets sent until then cause no further fall.
    lowered: Option<Time>,
}

impl Default for Bbr {
    fn default() -> Self {
        Self {
            phase: Phase::Startup,
            phase_rounds: 0,
            phase_round_ends: 0,
            round_ends: 0,
            rates: [0; RATE_ROUNDS],
            rate_slot: 0,
            sampled: false,
            recent: [Duration::ZERO; RECENT],
            samples: 0,
            min_rtt: Duration::from_millis(333),
            near_min_at: Time::ZERO,
            full_rate: 0,
            full_rounds: 0,
            queue: Duration::ZERO,
            marked: false,
            longer: Duration::ZERO,
            least: Duration::MAX,
            round_least: Duration::MAX,
            floor: Duration::MAX,
            stood: false,
            newest: 0,
            stood_until: 0,
            returns: 0,
            contest: None,
            hold: Hold::default(),
            medium: Medium::default(),
            cruise_rounds: CRUISE_ROUNDS,
            doubted: 0,
            acked: 0,
            slowed: 1.0,
            lowered: None,
        }
    }
}

impl RateController for Bbr {
    fn on_handshake(&mut self, rtt: Duration) {
        self.min_rtt = rtt;
    }

    fn on_ack(&mut self, ack: &AckSample) {
        self.longer = ack.rtt.map_or(self.longer, |rtt| self.longer.min(rtt));
        self.min_rtt = ack.min_rtt.max(self.longer);
        if let Some(rtt) = ack.rtt {
            self.recent[self.samples % RECENT] = rtt;
            self.samples += 1;
            self.least = self.least.min(rtt);
            self.round_least = self.round_least.min(rtt);
            self.queue = rtt.saturating_sub(self.min_rtt);
            if self.queue <= (self.min_rtt / 16).max(Duration::from_millis(1)) {
                self.near_min_at = ack.now;
            }
        }
        self.newest = ack.newest;
        if self.latest_least() > self.floor.saturating_add(self.short_queue()) {
            self.stood_until = ack.next;
        }
        if let (Phase::Startup, Some(found)) = (self.phase, ack.dispersion) {
            self.slowed = found.slowed;
            self.sample(found.acked, found.passed, true);
        }
        if let Some(sample) = ack.rate {
            self.sample(sample.acked, sample.passed, sample.app_limited);
        }
        if let Some(contest) = &mut self.contest {
            contest.on_ack(ack, self.queue);
        }
        self.hold.on_ack(ack, self.recent_queue());
        self.leave_early(ack);
        if ack.newest >= self.round_ends {
            self.end_round(ack);
        }
        if ack.newest >= self.phase_round_ends {
            self.phase_round_ends = ack.next;
            self.phase_rounds += 1;
            self.end_phase_round(ack);
            self.least = Duration::MAX;
        }
    }

    fn on_loss(&mut self, loss: &LossSample) {
        let queue = self.recent_queue();
        self.hold.on_loss(loss, self.latest_least(), queue, queue > self.queue_limit());
        if let Some(contest) = &mut self.contest {
            contest.on_loss(loss, self.queue);
        }
    }

    fn on_fate(&mut self, number: u64, lost: bool) {
        match self.medium.on_fate(number, lost) {
            Some(Verdict::Queue) => self.probe_less(),
            // The rate that the alarm took back is valid again.
            Some(Verdict::Medium) => self.rates[self.rate_slot] = self.rates[self.rate_slot].max(self.doubted),
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
        let initial = (FIRST_FLIGHT as f64 / self.min_rtt.as_secs_f64().max(1e-4)) as u64;
        // A queue may end start-up before any rate sample. A pace of zero would never give one.
        let rate = if self.phase == Phase::Startup || rate == 0 { rate.max(initial) } else { rate };
        let gain = match self.phase {
            // Packets that arrive more slowly than they were sent have found the bottleneck.
            Phase::Startup => (STARTUP_GAIN * self.slowed).max(1.0),
            Phase::Drain => DRAIN_GAIN,
            Phase::Up if self.is_shared() => SHARED_UP_GAIN,
            Phase::Up if self.phase_rounds < ASKED => ASK_GAIN,
            Phase::Up if self.phase_rounds < LOOKED => CRUISE_GAIN,
            Phase::Up => UP_GAIN,
            Phase::Down | Phase::Look => DOWN_GAIN,
            Phase::Cruise if self.stood => STOOD_GAIN,
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
        let drops = self.phase == Phase::Hold && self.hold.is_full(self.recent_queue());
        drops || queue_is_long(self.queue, self.min_rtt, self.rate())
    }
}

impl Bbr {
    /// Bytes per second that the bottleneck carries.
    fn rate(&self) -> u64 {
        self.rates.iter().copied().max().unwrap_or(0)
    }

    /// Bandwidth-delay product in bytes.
    fn product(&self) -> u64 {
        self.product_of(self.rate())
    }

    fn product_of(&self, rate: u64) -> u64 {
        bytes_in(rate, self.min_rtt)
    }

    fn queue_limit(&self) -> Duration {
        (self.min_rtt / QUEUE_DIVISOR).max(QUEUE_FLOOR).max(own_time(self.rate()))
    }

    /// Takes rate samples. Samples that are only lower bounds count only if they exceed the known rate.
    fn sample(&mut self, acked: u64, passed: u64, are_bounds: bool) {
        self.acked = self.acked.max(acked);
        let rate = if self.is_congested() {
            acked
        } else {
            self.medium.carried(acked, passed, self.newest < self.stood_until)
        };
        if !are_bounds || rate > self.rate() {
            self.rates[self.rate_slot] = self.rates[self.rate_slot].max(rate);
            self.sampled = true;
        }
    }

    /// Whether a probe goes on after this many round trips. It does while its effect is not known yet, and
    /// while it found more capacity.
    fn is_more(&self, lasted: u64) -> bool {
        let grew = |factor: f64| self.rate() as f64 >= self.full_rate as f64 * factor;
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

    fn lower(&mut self, gain: f64) {
        self.rates.iter_mut().for_each(|rate| *rate = (*rate as f64 * gain) as u64);
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
        self.samples = 0;
    }

    /// Ends phases that end at a single acknowledgement, not at the end of a round.
    fn leave_early(&mut self, ack: &AckSample) {
        if core::mem::take(&mut self.marked) {
            self.hold.forget();
            self.lower(MARK_GAIN);
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
        if self.samples < RECENT {
            return Duration::ZERO;
        }
        self.latest_least().saturating_sub(self.base())
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
        let is_known = self.floor != Duration::MAX && !self.medium.is_clean();
        if is_known { self.min_rtt.max(self.floor) } else { self.min_rtt }
    }

    /// Whether the delay is back at that of the last drain after a round trip of draining. Bytes in flight
    /// beyond the product are then the path's jitter.
    fn is_drained(&self) -> bool {
        self.phase_rounds > 0 && self.least <= self.base().saturating_add(self.short_queue()) && !self.medium.is_clean()
    }

    /// Minimum RTT of the latest feedback.
    fn latest_least(&self) -> Duration {
        self.recent.iter().min().copied().unwrap_or_default()
    }

    /// The queueing delay of the latest feedback, whatever the phase.
    fn recent_queue(&self) -> Duration {
        self.latest_least().saturating_sub(self.min_rtt)
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
        if core::mem::take(&mut self.sampled) {
            self.rate_slot = (self.rate_slot + 1) % RATE_ROUNDS;
            self.rates[self.rate_slot] = 0;
        }
        self.stood =
            self.round_least != Duration::MAX && self.round_least > self.floor.saturating_add(self.short_queue());
        self.round_least = Duration::MAX;
        if self.medium.end_round(self.stood) && matches!(self.phase, Phase::Up | Phase::Cruise | Phase::Probe) {
            self.doubted = self.rate();
            self.lower(DROP_GAIN);
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
            Phase::Up if self.is_more(lasted) => self.full_rate = self.rate(),
            Phase::Up => self.enter(Phase::Down, ack),
            Phase::Drain | Phase::Down if lasted >= DRAIN_ROUNDS => self.enter(Phase::Look, ack),
            Phase::Look if lasted >= LOOKED => self.end_look(ack),
            Phase::Compete if self.contest.as_mut().is_none_or(Contest::end_round) => self.enter(Phase::Look, ack),
            Phase::Probe if lasted >= 2 => {
                self.near_min_at = ack.now;
                self.enter(Phase::Up, ack);
            }
            // By now the packets of the drain are acknowledged.
            Phase::Cruise if lasted == 1 => self.floor = self.least,
            Phase::Cruise if ack.now.since(self.near_min_at) > MIN_RTT_LIFE => self.enter(Phase::Probe, ack),
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
        let least = if self.least == Duration::MAX { self.min_rtt } else { self.least };
        let stays = least.saturating_sub(self.min_rtt);
        let is_short = stays <= (self.queue_limit() / LOOK_DIVISOR).max(own_time(self.rate()));
        if is_short || !self.medium.is_clean() {
            if !is_short {
                self.longer = least;
            }
            (self.contest, self.returns) = (None, 0);
            return self.enter(Phase::Cruise, ack);
        }
        let window = (self.rate() as f64 * ack.smoothed.as_secs_f64()) as u64;
        self.contest.get_or_insert_with(|| Contest::begin(window.max(INITIAL_WINDOW)));
        self.enter(Phase::Compete, ack);
    }

    fn check_full(&mut self, ack: &AckSample) {
        if self.acked as f64 >= self.full_rate as f64 * FULL_GROWTH {
            self.full_rate = self.acked;
            self.full_rounds = 0;
            return;
        }
        self.full_rounds += 1;
        if self.full_rounds >= FULL_ROUNDS {
            // No queue was built and no more arrived, so the rest of the packets was dropped.
            let full = self.acked;
            self.rates.iter_mut().for_each(|rate| *rate = (*rate).min(full));
            self.enter(Phase::Drain, ack);
        }
    }
}

/// Bytes in flight at `rate` bytes per second over this round trip.
fn bytes_in(rate: u64, rtt: Duration) -> u64 {
    (u128::from(rate) * rtt.max(LEAST_ROUND).as_micros() / 1_000_000) as u64
}

#[cfg(test)]
#[path = "bbr_tests.rs"]
mod tests;
