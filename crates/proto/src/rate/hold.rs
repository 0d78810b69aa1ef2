//! How the default controller keeps its part beside a sender that does not yield to losses, as BBR version 1.
//!
//! Beside such a sender a window that falls with each loss falls for good: the other takes what each fall frees. [`super::Bbr`] tells this
//! controller of every acknowledgement, loss and round trip. Where a full queue has dropped packets for some seconds while the sender got
//! little, it tries a constant window: half of what the bottleneck and its queue hold. A constant window drops nothing by itself, so the
//! losses beside it show who the others are. Loss-based senders with half of the path lose little (some 1.5 packets in the square of the
//! window), and the trial ends after a few seconds; BBR goes on to overrun the queue, and the window stays as long as it does.
//!
//! Invariant: the window is never more than half of the path and its queue by the highest rate that was measured, so that others keep half of
//! the link even where the trial was a mistake.

use core::time::Duration;

use super::{AckSample, Budget, INITIAL_WINDOW, LossSample, PACKET};
use crate::Time;

/// Round trips of a period, two cycles of BBR's gains; and periods over which losses are counted.
const ROUNDS: u32 = 16;
const PERIODS: usize = 3;
/// Packets lost beside a full queue, from which a trial begins. Three CUBIC flows on 25 Mbit/s and 60 ms seldom cause as many for long.
const SUSPECT: f64 = 0.005;
/// ... and without which it ends. Measured beside the constant window at 25 Mbit/s, 60 ms, queues of 15 to 60 ms: 0.0 to 0.4 % with one or three
/// CUBIC flows over three periods, 1 to 10 % with BBR (docs/recovery.md, "Beside BBR").
const STUBBORN: f64 = 0.01;
/// A trial begins only where so many of all losses are of that kind: a medium loses beside any queue. Chosen.
const MOST: f64 = 0.8;
/// ... and where the sender gets less than this part of the bottleneck: with more a trial wins little. Chosen.
const LITTLE: f64 = 0.4;
/// The window in parts of what the path and its full queue hold: half for the others.
const PART: f64 = 0.5;
/// Where the window would be less, CUBIC too loses more than [`STUBBORN`], and a trial shows nothing: 1.5 / 0.01 is the square of 12,
/// doubled for several flows.
const LEAST_WINDOW: u64 = 24 * PACKET;
/// With more than this lost the window is too long for the path: BBR lowers its rate no earlier (`bbr_lt_loss_thresh` of Linux is 20 %).
const MUCH: f64 = 0.2;
/// The window grows to its size by as much each round trip as BBR's probes do.
const GROWTH: f64 = 1.25;
/// Pace in windows per round trip, so that the window is the limit (RFC 9002 section 7.7).
const PACING_GAIN: f64 = 1.25;
/// A trial begins only where the full queue makes the round trip no longer than so many times the least. BBR has twice its rate's share of the least
/// round trip in flight, which does not fill a longer queue; there [`super::contest`] gets its part.
const LONGEST: f64 = 2.5;
/// Periods from the end of a trial that found others who yield to the beginning of the next. Chosen.
const REST: u32 = 10;
/// The bottleneck's rate is taken over this part of a round trip or more, and not over less than two batches of a late driver (2 ms each),
/// as in `path/delivery.rs`.
const TRAIN_DIVISOR: u32 = 8;
const LEAST_TRAIN: Duration = Duration::from_millis(4);

/// Bytes of one period.
#[derive(Clone, Copy, Debug, Default)]
struct Period {
    acked: u64,
    lost: u64,
    /// Lost beside a full queue.
    dropped: u64,
    lasted: Duration,
}

impl Period {
    fn plus(self, other: Self) -> Self {
        Self {
            acked: self.acked + other.acked,
            lost: self.lost + other.lost,
            dropped: self.dropped + other.dropped,
            lasted: self.lasted + other.lasted,
        }
    }

    fn drop_rate(&self) -> f64 {
        self.dropped as f64 / (self.acked + self.lost).max(1) as f64
    }
}

/// Highest rate at which packets of this flow arrived. Where the others pause and the queue drains, they arrive as fast as the bottleneck
/// lets them pass, whatever the pace at which they left. That is never more than the bottleneck's rate.
#[derive(Clone, Copy, Debug, Default)]
struct Bottleneck {
    rate: u64,
    acked: u64,
    /// When the train began to arrive, on our clock, and what was acknowledged by then.
    begin: Option<(Time, u64)>,
}

impl Bottleneck {
    fn on_ack(&mut self, ack: &AckSample) {
        self.acked += ack.bytes;
        let Some(rtt) = ack.rtt else { return };
        let arrived = ack.left + rtt;
        let (begin, before) = *self.begin.get_or_insert((arrived, self.acked));
        let span = arrived.since(begin);
        if span >= (ack.min_rtt / TRAIN_DIVISOR).max(LEAST_TRAIN) {
            self.rate = self.rate.max(((self.acked - before) as f64 / span.as_secs_f64()) as u64);
            self.begin = Some((arrived, self.acked));
        }
    }
}

/// What a round trip's end has decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The window is held from now on.
    Begin,
    /// The others yield: so many bytes were held.
    End(u64),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Hold {
    bottleneck: Bottleneck,
    period: Period,
    began: Time,
    rounds: u32,
    /// The last periods, newest last, and how many there were since start-up or the last turn.
    periods: [Period; PERIODS],
    count: u32,
    /// Periods in which no trial begins.
    rest: u32,
    /// Longest standing queue of the running period and of the one before.
    longest: [Duration; 2],
    /// Round trip beside which packets are dropped, averaged.
    full: Duration,
    smoothed: Duration,
    min_rtt: Duration,
    /// The window, while it is held.
    window: Option<u64>,
}

impl Hold {
    /// Packets were acknowledged while `queue` stood.
    pub fn on_ack(&mut self, ack: &AckSample, queue: Duration) {
        self.bottleneck.on_ack(ack);
        self.period.acked += ack.bytes;
        self.longest[1] = self.longest[1].max(queue);
        (self.smoothed, self.min_rtt) = (ack.smoothed, ack.min_rtt);
    }

    /// Packets were lost while `queue` stood, with a round trip of `rtt`. Where `is_queue` is false that is too short for a queue.
    pub fn on_loss(&mut self, loss: &LossSample, rtt: Duration, queue: Duration, is_queue: bool) {
        if loss.persistent {
            return;
        }
        self.period.lost += loss.bytes;
        if is_queue && self.is_full(queue) {
            self.period.dropped += loss.bytes;
            // An eighth of each, as the smoothed round trip has it (RFC 9002 section 5.3).
            self.full = if self.full.is_zero() { rtt } else { (7 * self.full + rtt) / 8 };
        }
    }

    /// Whether a queue that drops would be like this one.
    pub fn is_full(&self, queue: Duration) -> bool {
        queue * 2 > self.longest[0].max(self.longest[1])
    }

    /// What was counted says nothing, as in start-up: the sender itself overran the queue.
    pub fn forget(&mut self) {
        (self.period, self.rounds, self.count, self.window) = (Period::default(), 0, 0, None);
    }

    /// A round trip is over, of which `in_flight` bytes are the flight. `is_saturated` says that the application had more to send.
    pub fn end_round(&mut self, now: Time, in_flight: u64, is_saturated: bool) -> Option<Turn> {
        let most = self.most();
        if let Some(window) = &mut self.window {
            *window = ((*window as f64 * GROWTH) as u64).min(most).max(INITIAL_WINDOW);
        }
        if self.rounds == 0 {
            self.began = now;
        }
        self.rounds += 1;
        if self.rounds <= ROUNDS {
            return None;
        }
        self.end_period(now);
        let all = self.periods.iter().fold(Period::default(), |sum, period| sum.plus(*period));
        if let Some(window) = self.window {
            if self.count == 1 || all.drop_rate() >= STUBBORN {
                return None;
            }
            // Who did not yield for some periods may only have paused.
            self.rest = if self.count > PERIODS as u32 { 0 } else { REST };
            (self.window, self.count) = (None, 0);
            return Some(Turn::End(window));
        }
        if self.count < PERIODS as u32 {
            return None;
        }
        let last = self.periods[PERIODS - 1];
        let rate = last.acked as f64 / last.lasted.as_secs_f64().max(1e-6);
        let begins = self.rest == 0
            && is_saturated
            && all.drop_rate() >= SUSPECT
            && all.dropped as f64 >= MOST * all.lost as f64
            && rate < LITTLE * self.bottleneck.rate as f64
            && self.full < self.min_rtt.mul_f64(LONGEST)
            && self.most() >= LEAST_WINDOW;
        begins.then(|| {
            (self.window, self.count) = (Some(in_flight.min(self.most()).max(INITIAL_WINDOW)), 0);
            Turn::Begin
        })
    }

    fn end_period(&mut self, now: Time) {
        let period = Period { lasted: now.since(self.began), ..core::mem::take(&mut self.period) };
        self.periods.rotate_left(1);
        self.periods[PERIODS - 1] = period;
        if self.window.is_some() {
            if self.count == 0 {
                // What the window takes from the others when it begins says nothing of them.
                self.periods = Default::default();
            } else if period.drop_rate() > MUCH {
                self.bottleneck.rate = (self.bottleneck.rate as f64 * (1.0 - period.drop_rate())) as u64;
            }
        }
        self.longest = [self.longest[1], Duration::ZERO];
        (self.began, self.rounds) = (now, 1);
        self.count += 1;
        self.rest = self.rest.saturating_sub(1);
    }

    /// The longest window: see the invariant of the module.
    fn most(&self) -> u64 {
        (PART * self.bottleneck.rate as f64 * self.full.as_secs_f64()) as u64
    }

    /// What may be sent, while the window is held.
    pub fn budget(&self) -> Option<Budget> {
        let window = self.window?;
        let pacing = PACING_GAIN * window as f64 / self.smoothed.as_secs_f64().max(1e-6);
        Some(Budget { window, pacing: pacing as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(60);
    const FULL: Duration = Duration::from_millis(15);

    /// Periods beside a full queue at this rate in bytes per second, with so much of it dropped.
    fn periods(hold: &mut Hold, now: &mut Time, count: u32, rate: u64, dropped: f64) -> Option<Turn> {
        let mut turn = None;
        for _ in 0..count * ROUNDS {
            *now += RTT + FULL;
            let bytes = (rate as f64 * (RTT + FULL).as_secs_f64()) as u64;
            let lost = (bytes as f64 * dropped) as u64;
            let ack = AckSample {
                now: *now,
                bytes: bytes - lost,
                in_flight: bytes,
                newest: 0,
                left: *now - (RTT + FULL),
                next: 0,
                rtt: Some(RTT + FULL),
                smoothed: RTT + FULL,
                min_rtt: RTT,
                rate: None,
                dispersion: None,
            };
            hold.on_ack(&ack, FULL);
            hold.on_loss(&LossSample { now: *now, bytes: lost, sent: *now, persistent: false }, RTT + FULL, FULL, true);
            turn = hold.end_round(*now, bytes, true).or(turn);
        }
        turn
    }

    /// A sender that once had 3 MB/s, and has a tenth of that beside one that loses 3 %.
    fn tried() -> (Hold, Time) {
        let (mut hold, mut now) = (Hold::default(), Time::ZERO);
        assert_eq!(periods(&mut hold, &mut now, 2, 3_000_000, 0.0), None);
        let begins = (0..4).find(|_| periods(&mut hold, &mut now, 1, 300_000, 0.03) == Some(Turn::Begin));
        assert!(begins.is_some());
        (hold, now)
    }

    #[test]
    fn the_window_is_held_beside_losses_and_is_half_of_the_path() {
        let (mut hold, mut now) = tried();
        assert_eq!(periods(&mut hold, &mut now, 20, 1_300_000, 0.02), None);
        let half = (0.5 * 3_000_000.0 * (RTT + FULL).as_secs_f64()) as u64;
        let window = hold.budget().map(|budget| budget.window);
        assert!(window.is_some_and(|window| window.abs_diff(half) <= half / 50), "{window:?}, half is {half}");
    }

    #[test]
    fn a_trial_ends_where_the_others_yield_and_another_waits() {
        let (mut hold, mut now) = tried();
        let turn = periods(&mut hold, &mut now, 2, 1_300_000, 0.002);
        assert!(matches!(turn, Some(Turn::End(_))), "{turn:?}");
        assert_eq!(hold.budget(), None);
        assert_eq!(periods(&mut hold, &mut now, REST - 1, 300_000, 0.03), None);
        assert_eq!(periods(&mut hold, &mut now, 2, 300_000, 0.03), Some(Turn::Begin));
    }

    #[test]
    fn no_trial_where_the_sender_has_much_or_loses_little() {
        for (rate, dropped) in [(2_000_000, 0.03), (300_000, 0.003)] {
            let (mut hold, mut now) = (Hold::default(), Time::ZERO);
            periods(&mut hold, &mut now, 2, 3_000_000, 0.0);
            assert_eq!(periods(&mut hold, &mut now, 20, rate, dropped), None, "{rate}, {dropped}");
        }
    }

    /// Where the path has become narrower than it was, the window follows.
    #[test]
    fn a_window_that_loses_much_falls() {
        let (mut hold, mut now) = tried();
        periods(&mut hold, &mut now, 1, 1_300_000, 0.5);
        let before = hold.budget().map_or(0, |budget| budget.window);
        periods(&mut hold, &mut now, 3, 1_300_000, 0.5);
        let after = hold.budget().map_or(0, |budget| budget.window);
        assert!(0 < after && after * 3 < before, "{before} {after}");
    }
}
