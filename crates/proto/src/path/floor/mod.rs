//! The floor of sanity: a limit of what is sent for a byte delivered, whatever a rate controller believes.
//!
//! A controller that ignores losses can take the drops of a policer for the losses of a medium, and send many times
//! what arrives. This module counts only fates. Over two seconds, at most `1.3 / (1 - p)` bytes shall be
//! sent for a byte delivered. p is the loss of the medium, which only a test confirms: for at least 64 packets, the
//! sender sends half of what was delivered. A bottleneck that takes twice as much drops none of them, so what is
//! lost then is the medium's. After a test the controller has its pace back if p explains the losses.
//! Otherwise the pace follows what is delivered. If the path loses nearly all of what three tests send, a circuit
//! breaker (RFC 8084) leaves a few packets per round trip.
//!
//! [`super::controller::Controller`] calls it for each fate. Invariants: only a test raises p; the limit never
//! raises a pace. docs/recovery.md section 2 derives the rules.

mod tally;
#[cfg(test)]
mod tests;

use core::time::Duration;

use self::tally::{Meter, SPAN, Tally, Window};
use crate::Time;

/// Bytes sent for a byte delivered, times `1 - p`: the bound, as asked (issue: a floor of sanity).
const BOUND: f64 = 1.3;
/// The bound of the first two seconds, whose doubling paces may overrun a policer (as asked).
const FIRST_BOUND: f64 = 3.0;
/// What makes the sender act. Chosen: at 10 Mbit/s the three standard deviations beyond it, which chance
/// needs, lie at the bound: 2,100 packets in two seconds make them 2.6 % of loss.
const ALARM: f64 = 1.25;
/// What a limited pace sends. Chosen: below the alarm, and above `1 / (1 - 1/6)`, so that the pace grows where
/// the medium loses up to a sixth more than p.
const LIMITED: f64 = 1.2;
/// Below this the limit is not needed. Chosen: halfway between it and no overrun at all.
const HEALTHY: f64 = 1.1;
/// Largest loss that is taken for the medium's. Beyond it, repair costs six bytes for one. Chosen.
const MOST_LOSS: f64 = 0.8;

/// Pace of a test, as a share of what is delivered (as asked). It leaves room for rates that are measured
/// too high by a policer's bucket.
const TEST_SHARE: f64 = 0.5;
/// Packets of a test. More than the least only until its loss is known to [`TEST_SPREAD`], and at most
/// four times as many. At 20 % of independent loss 100 packets suffice.
const TEST_PACKETS: i64 = 64;
const MOST_TESTED: i64 = 256;
const TEST_SPREAD: f64 = 0.04;
/// Packets at the begin of a test that do not count, because those before them filled the queue or emptied the bucket.
/// Chosen.
const SETTLING: u64 = 8;
/// What a test found is valid for this time, and for this many times the time of the test. The time that a test
/// costs is half of its length, so all tests together cost at most half a percent of the goodput.
const VALID: Duration = Duration::from_secs(30);
const VALID_TESTS: u32 = 100;
/// Tests in a row that lose more than [`MOST_LOSS`] until the breaker opens. Each lowers the pace to a half or
/// less, and lasts for a round trip or more. RFC 8084 section 4 asks for several such periods. Chosen.
const FAILED_TESTS: u32 = 3;
/// What an open breaker sends: this many packets in a round trip, or in this time if that is longer. Chosen: the first
/// window of RFC 3390, at most 0.5 Mbit/s.
const BROKEN_PACKETS: f64 = 4.0;
const BROKEN_ROUND: Duration = Duration::from_millis(100);
/// Packets that close the breaker again, if fewer than [`MOST_LOSS`] of them are lost. Chosen: four round trips.
const CLOSING_PACKETS: i64 = 16;
/// Full packet, as in `rate/mod.rs`.
const PACKET: f64 = 1_500.0;

/// What the floor of sanity did on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct FloorStats {
    /// Times that more was sent for a byte delivered than the bound allows. `fixed` is only counted, once in
    /// two seconds.
    pub exceeded: u64,
    /// Tests of the medium's loss.
    pub tests: u64,
    /// Times that the circuit breaker opened.
    pub broken: u64,
    /// Whether the pace is limited now.
    pub is_limited: bool,
    /// Loss of the medium that the latest valid test confirmed; zero without one.
    pub confirmed_loss: f64,
}

/// What limits the pace.
#[derive(Clone, Copy, Debug)]
enum Mode {
    /// Nothing: the controller decides.
    Free,
    /// A test of the medium's loss.
    Test {
        began: Time,
        /// What the test's packets lost.
        tested: Tally,
        /// The packets that caused the test.
        cause: Tally,
    },
    /// The pace follows what is delivered.
    Limited {
        /// When that began.
        since: Time,
        /// What was delivered then, in bytes per second.
        first: f64,
    },
    /// The circuit breaker is open.
    Broken {
        /// The packets since then.
        seen: Tally,
    },
}

/// The floor of sanity of one path, described in the module documentation.
#[derive(Debug)]
pub(crate) struct Floor {
    /// Whether the pace may be limited. The user vouches for `fixed`, which is only counted.
    limits: bool,
    mode: Mode,
    /// First packet that counts in the present mode.
    from: u64,
    was_lost: bool,
    /// When the first fate became known.
    began: Option<Time>,
    window: Window,
    delivered: Meter,
    /// Until when the confirmed loss is valid.
    valid_until: Time,
    /// Tests in a row that lost nearly everything.
    failed: u32,
    rtt: Duration,
    pub stats: FloorStats,
}

impl Floor {
    /// A floor that limits the pace or, for `fixed`, only counts.
    pub fn new(limits: bool) -> Self {
        Self {
            limits,
            mode: Mode::Free,
            from: 0,
            was_lost: false,
            began: None,
            window: Window::default(),
            delivered: Meter::default(),
            valid_until: Time::ZERO,
            failed: 0,
            rtt: BROKEN_ROUND,
            stats: FloorStats::default(),
        }
    }

    /// The fate of packet `number` is known. Called in the order of sending.
    pub fn on_fate(&mut self, number: u64, bytes: u32, lost: bool) {
        if number < self.from {
            return;
        }
        let starts_run = lost && !self.was_lost;
        self.was_lost = lost;
        self.change(|tally| tally.on_fate(bytes, lost, starts_run));
        if !lost {
            self.delivered.on_delivered(bytes);
        }
    }

    /// A packet that was declared lost arrived.
    pub fn on_spurious(&mut self, number: u64, bytes: u32) {
        if number >= self.from {
            self.change(|tally| tally.on_spurious(bytes));
            self.delivered.on_delivered(bytes);
        }
    }

    fn change(&mut self, change: impl Fn(&mut Tally)) {
        self.window.change(&change);
        if let Mode::Test { tested: tally, .. } | Mode::Broken { seen: tally } = &mut self.mode {
            change(tally);
        }
    }

    /// The path was dead for a while: the packets before `next` that are lost say nothing about its rate.
    /// Under a limit they count, because a path that is overrun far enough looks dead at times.
    pub fn on_revived(&mut self, next: u64) {
        if let Mode::Free = self.mode {
            self.from = next;
        }
    }

    /// All fates known at `now` were told; `next` is the next packet and `rtt` the smoothed round trip.
    pub fn review(&mut self, now: Time, next: u64, rtt: Duration) {
        self.rtt = rtt;
        let began = *self.began.get_or_insert(now);
        let is_measured = !matches!(self.mode, Mode::Test { .. }) && self.delivered.on_fates(now, rtt);
        let is_over = self.window.advance(now);
        if is_over {
            self.lower_confirmed(now);
        }
        match self.mode {
            Mode::Free if is_over => {
                let first = if now.since(began) < SPAN { FIRST_BOUND } else { 0.0 };
                if self.window.total().exceeds(self.lost_at(ALARM).max(1.0 - 1.0 / f64::max(first, 1.0))) {
                    self.on_exceeded(now, next);
                }
            }
            Mode::Test { began, tested, cause } => self.look_at_test(now, next, began, &tested, &cause),
            Mode::Limited { since, first } if is_over || is_measured => {
                let total = self.window.total();
                if now >= self.valid_until || self.delivered.rate < first / 2.0 || total.exceeds(self.lost_at(BOUND)) {
                    // Less arrives although less is sent, so perhaps the medium takes it.
                    self.begin_test(now, next);
                } else if now.since(since) >= SPAN && total.is_enough() && total.loss() < self.lost_at(HEALTHY) {
                    self.mode = Mode::Free;
                }
            }
            Mode::Broken { seen } if seen.packets >= CLOSING_PACKETS => {
                if seen.loss() < MOST_LOSS {
                    self.failed = 0;
                    self.limit(now, next);
                } else {
                    self.mode = Mode::Broken { seen: Tally::default() };
                }
            }
            Mode::Free | Mode::Limited { .. } | Mode::Broken { .. } => {}
        }
    }

    /// The most that the controller's pace may be, in bytes per second.
    pub fn pace(&self) -> Option<u64> {
        let broken = BROKEN_PACKETS * PACKET / self.rtt.max(BROKEN_ROUND).as_secs_f64();
        let pace = match self.mode {
            Mode::Free => return None,
            Mode::Test { .. } => TEST_SHARE * self.delivered.rate,
            Mode::Limited { .. } => LIMITED / (1.0 - self.stats.confirmed_loss) * self.delivered.rate,
            Mode::Broken { .. } => broken,
        };
        Some(pace.max(broken) as u64)
    }

    /// The most that may be in flight while the peer is silent: what was delivered in two seconds. A window is
    /// rarely larger; without one, this is all that leaves until the peer answers.
    pub fn most_in_silence(&self) -> u64 {
        let least = TEST_PACKETS as f64 * PACKET;
        if self.limits { (self.delivered.rate * SPAN.as_secs_f64()).max(least) as u64 } else { u64::MAX }
    }

    /// Whether a test runs. Its packets show no rate.
    pub fn is_testing(&self) -> bool {
        matches!(self.mode, Mode::Test { .. })
    }

    /// The statistics so far.
    pub fn stats(&self) -> FloorStats {
        FloorStats { is_limited: !matches!(self.mode, Mode::Free), ..self.stats }
    }

    /// The loss at which `ratio / (1 - p)` bytes are sent for a byte delivered.
    fn lost_at(&self, ratio: f64) -> f64 {
        1.0 - (1.0 - self.stats.confirmed_loss) / ratio
    }

    /// What is not lost at any pace, the medium does not take. And what was confirmed long ago is not known now.
    fn lower_confirmed(&mut self, now: Time) {
        let total = self.window.total();
        if total.is_enough() {
            let loss = total.loss();
            self.stats.confirmed_loss = self.stats.confirmed_loss.min(loss + 2.0 * total.spread(loss));
        }
        if let Mode::Free = self.mode
            && now >= self.valid_until
        {
            self.stats.confirmed_loss = 0.0;
        }
    }

    fn on_exceeded(&mut self, now: Time, next: u64) {
        self.stats.exceeded += 1;
        if !self.limits {
            self.window.clear();
        } else if now < self.valid_until {
            self.limit(now, next);
        } else {
            self.begin_test(now, next);
        }
    }

    fn begin_test(&mut self, now: Time, next: u64) {
        self.stats.tests += 1;
        let (tested, cause) = (Tally::default(), *self.window.total());
        self.begin(Mode::Test { began: now, tested, cause }, next + SETTLING);
    }

    fn limit(&mut self, now: Time, next: u64) {
        self.begin(Mode::Limited { since: now, first: self.delivered.rate }, next);
    }

    /// Begins a mode in which packet `from` is the first that counts.
    fn begin(&mut self, mode: Mode, from: u64) {
        (self.mode, self.from) = (mode, from);
        self.window.clear();
        self.delivered.restart();
    }

    fn look_at_test(&mut self, now: Time, next: u64, began: Time, tested: &Tally, cause: &Tally) {
        let (loss, most) = (tested.loss(), tested.packets >= MOST_TESTED);
        let spread = tested.spread(loss);
        if tested.packets < TEST_PACKETS || (spread > TEST_SPREAD && !most) {
            return;
        }
        // Where losses come in long runs a test is coarse. The medium has the benefit of that.
        self.stats.confirmed_loss = (loss + (spread - TEST_SPREAD).max(0.0)).min(MOST_LOSS);
        self.valid_until = now + VALID.max(now.since(began) * VALID_TESTS);
        self.failed = if loss > MOST_LOSS { self.failed + 1 } else { 0 };
        if self.failed >= FAILED_TESTS {
            self.stats.broken += 1;
            self.begin(Mode::Broken { seen: Tally::default() }, next);
        } else if cause.exceeds(self.lost_at(ALARM)) {
            self.limit(now, next);
        } else {
            self.begin(Mode::Free, next);
        }
    }
}
