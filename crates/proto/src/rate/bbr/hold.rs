//! How the default controller keeps its share beside a sender that does not yield to losses, such as BBR
//! version 1.
//!
//! A window that falls with each loss keeps falling beside such a sender, because the other sender takes the
//! capacity that each fall frees. [`super::Bbr`] reports every acknowledgement, loss and round trip to this
//! module. When a full queue has dropped packets for some seconds and the sender got little, this module
//! tries a constant window: half of what the bottleneck and its queue hold. A constant window causes no drops
//! by itself, so the losses beside it show what the other senders do. Loss-based senders that have half of
//! the path lose little (some 1.5 packets in the square of the window), and the trial ends after a few
//! seconds. BBR keeps overrunning the queue, and the window stays as long as BBR does so.
//!
//! Invariant: the window is at most half of the path and its queue, computed from the highest rate measured.
//! The others keep half of the link even if the trial was a mistake.

use core::time::Duration;

use super::tuning::{
    HOLD_GROWTH, HOLD_LEAST_TRAIN, HOLD_LEAST_WINDOW, HOLD_LITTLE, HOLD_LONGEST, HOLD_MOST, HOLD_MUCH,
    HOLD_PACING_GAIN, HOLD_PART, HOLD_PERIODS, HOLD_REST, HOLD_ROUNDS, HOLD_STUBBORN, HOLD_SUSPECT, HOLD_TRAIN_DIVISOR,
};
use crate::Time;
use crate::rate::{AckSample, Budget, INITIAL_WINDOW, LossSample};

/// Bytes of one period.
#[derive(Clone, Copy, Debug, Default)]
struct Period {
    acked: u64,
    lost: u64,
    /// Bytes lost beside a full queue.
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

/// Highest rate at which packets of this flow arrived. While the others pause and the queue drains, packets
/// arrive as fast as the bottleneck passes them, whatever the pace at which they were sent. This is never
/// more than the bottleneck's rate.
#[derive(Clone, Copy, Debug, Default)]
struct Bottleneck {
    rate: u64,
    acked: u64,
    /// Arrival time of the train's beginning, on our clock, and the bytes acknowledged by then.
    begin: Option<(Time, u64)>,
}

impl Bottleneck {
    fn on_ack(&mut self, ack: &AckSample) {
        self.acked += ack.bytes;
        let Some(rtt) = ack.rtt else { return };
        let arrived = ack.left + rtt;
        let (begin, before) = *self.begin.get_or_insert((arrived, self.acked));
        let span = arrived.since(begin);
        if span >= (ack.min_rtt / HOLD_TRAIN_DIVISOR).max(HOLD_LEAST_TRAIN) {
            self.rate = self.rate.max(((self.acked - before) as f64 / span.as_secs_f64()) as u64);
            self.begin = Some((arrived, self.acked));
        }
    }
}

/// Decision at the end of a round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// A trial begins: the window is constant from now on.
    Begin,
    /// The trial ends because the others yield. The value is the window in bytes.
    End(u64),
}

/// State of the trials, described in the module documentation.
#[derive(Debug, Default)]
pub(super) struct Hold {
    bottleneck: Bottleneck,
    period: Period,
    began: Time,
    rounds: u32,
    /// The last periods, newest last, and the number of periods since start-up or since the last turn.
    periods: [Period; HOLD_PERIODS],
    count: u32,
    /// Periods that must pass before a trial may begin.
    rest: u32,
    /// Longest standing queue of the previous period and of the current one.
    longest: [Duration; 2],
    /// Smoothed round trip at which packets are dropped.
    full: Duration,
    smoothed: Duration,
    min_rtt: Duration,
    /// The constant window, during a trial.
    window: Option<u64>,
}

impl Hold {
    /// Takes an acknowledgement that came while `queue` stood.
    pub fn on_ack(&mut self, ack: &AckSample, queue: Duration) {
        self.bottleneck.on_ack(ack);
        self.period.acked += ack.bytes;
        self.longest[1] = self.longest[1].max(queue);
        (self.smoothed, self.min_rtt) = (ack.smoothed, ack.min_rtt);
    }

    /// Takes a loss that came while `queue` stood, at a round trip of `rtt`. `is_queue` is false if the delay
    /// is too short to be a queue.
    pub fn on_loss(&mut self, loss: &LossSample, rtt: Duration, queue: Duration, is_queue: bool) {
        if loss.persistent {
            return;
        }
        self.period.lost += loss.bytes;
        if is_queue && self.is_full(queue) {
            self.period.dropped += loss.bytes;
            // Each sample has a weight of an eighth, as in the smoothed round trip (RFC 9002 section 5.3).
            self.full = if self.full.is_zero() { rtt } else { (7 * self.full + rtt) / 8 };
        }
    }

    /// Whether this queue is as long as a queue that drops.
    pub fn is_full(&self, queue: Duration) -> bool {
        queue * 2 > self.longest[0].max(self.longest[1])
    }

    /// Discards the counts. They mean nothing if the sender itself overran the queue, as in start-up.
    pub fn forget(&mut self) {
        (self.period, self.rounds, self.count, self.window) = (Period::default(), 0, 0, None);
    }

    /// Ends a round trip in which `in_flight` bytes were in flight. `is_saturated` says that the application
    /// had more to send.
    pub fn end_round(&mut self, now: Time, in_flight: u64, is_saturated: bool) -> Option<Turn> {
        let most = self.most();
        if let Some(window) = &mut self.window {
            *window = ((*window as f64 * HOLD_GROWTH) as u64).min(most).max(INITIAL_WINDOW);
        }
        if self.rounds == 0 {
            self.began = now;
        }
        self.rounds += 1;
        if self.rounds <= HOLD_ROUNDS {
            return None;
        }
        self.end_period(now);
        let all = self.periods.iter().fold(Period::default(), |sum, period| sum.plus(*period));
        if let Some(window) = self.window {
            if self.count == 1 || all.drop_rate() >= HOLD_STUBBORN {
                return None;
            }
            // A sender that did not yield for some periods may only have paused.
            self.rest = if self.count > HOLD_PERIODS as u32 { 0 } else { HOLD_REST };
            (self.window, self.count) = (None, 0);
            return Some(Turn::End(window));
        }
        if self.count < HOLD_PERIODS as u32 {
            return None;
        }
        let last = self.periods[HOLD_PERIODS - 1];
        let rate = last.acked as f64 / last.lasted.as_secs_f64().max(1e-6);
        let begins = self.rest == 0
            && is_saturated
            && all.drop_rate() >= HOLD_SUSPECT
            && all.dropped as f64 >= HOLD_MOST * all.lost as f64
            && rate < HOLD_LITTLE * self.bottleneck.rate as f64
            && self.full < self.min_rtt.mul_f64(HOLD_LONGEST)
            && self.most() >= HOLD_LEAST_WINDOW;
        begins.then(|| {
            (self.window, self.count) = (Some(in_flight.min(self.most()).max(INITIAL_WINDOW)), 0);
            Turn::Begin
        })
    }

    fn end_period(&mut self, now: Time) {
        let period = Period { lasted: now.since(self.began), ..core::mem::take(&mut self.period) };
        self.periods.rotate_left(1);
        self.periods[HOLD_PERIODS - 1] = period;
        if self.window.is_some() {
            if self.count == 0 {
                // What the window takes from the others at its beginning says nothing about them.
                self.periods = Default::default();
            } else if period.drop_rate() > HOLD_MUCH {
                self.bottleneck.rate = (self.bottleneck.rate as f64 * (1.0 - period.drop_rate())) as u64;
            }
        }
        self.longest = [self.longest[1], Duration::ZERO];
        (self.began, self.rounds) = (now, 1);
        self.count += 1;
        self.rest = self.rest.saturating_sub(1);
    }

    /// The longest window that the module's invariant allows.
    fn most(&self) -> u64 {
        (HOLD_PART * self.bottleneck.rate as f64 * self.full.as_secs_f64()) as u64
    }

    /// What the sender may send during a trial.
    pub fn budget(&self) -> Option<Budget> {
        let window = self.window?;
        let pacing = HOLD_PACING_GAIN * window as f64 / self.smoothed.as_secs_f64().max(1e-6);
        Some(Budget { window, pacing: pacing as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(60);
    const FULL: Duration = Duration::from_millis(15);

    /// Runs `count` periods beside a full queue. `rate` is in bytes per second; the queue drops the part
    /// `dropped` of it.
    fn periods(hold: &mut Hold, now: &mut Time, count: u32, rate: u64, dropped: f64) -> Option<Turn> {
        let mut turn = None;
        for _ in 0..count * HOLD_ROUNDS {
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
                one_way: None,
                newest_bytes: 0,
                app_limited: false,
                totals: Default::default(),
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

    /// A sender that once had 3 MB/s, and has a tenth of that beside a sender that makes it lose 3 %.
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
        assert_eq!(periods(&mut hold, &mut now, HOLD_REST - 1, 300_000, 0.03), None);
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

    /// When the path's capacity falls, the window follows.
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
