//! The floor of sanity: a limit of what is sent for a byte delivered, whatever a rate controller believes.
//!
//! A controller that ignores losses can take the drops of a policer for the losses of a medium, and send
//! many times what arrives. This module counts only fates. Over two seconds, at most `1.3 / (1 - p)` bytes
//! shall be sent for a byte delivered, or `2 / (1 - p)` where the application limits the sender. p is the
//! loss of the medium, which only a test confirms: for at least 64 packets, the sender sends half of what
//! was delivered. A bottleneck that takes twice as much drops none of them, so what is lost then is the
//! medium's. After a test the controller has its pace back if p explains the losses. Otherwise the pace
//! follows what is delivered. If the path loses nearly all of what three tests send, a circuit breaker (RFC
//! 8084) leaves a few packets per round trip.
//!
//! [`super::controller::Controller`] calls it for each fate. Invariants: only a test raises p; the limit
//! never raises a pace. docs/recovery.md section 2 derives the rules.

mod tally;
#[cfg(test)]
mod tests;

use core::time::Duration;

use self::tally::{Meter, SPAN, Tally, Window};
use super::control::Tested;
use crate::Time;

/// Bytes sent for a byte delivered, times `1 - p`: the bound, as asked (issue: a floor of sanity).
const BOUND: f64 = 1.3;
/// What makes the sender act in the first two seconds, whose doubling paces may overrun a policer. Chosen:
/// three standard deviations of 1,000 packets, 5 % of loss, lead to 3 bytes for one (as asked); and a medium
/// that loses 60 % needs 2.5, so that no test slows the start down there.
const FIRST_ALARM: f64 = 2.6;
/// What makes the sender act. Chosen: at 10 Mbit/s the three standard deviations beyond it, which chance
/// needs, lie at the bound: 2,100 packets in two seconds make them 2.6 % of loss.
const ALARM: f64 = 1.25;
/// What makes a sender act that the application limits: more than half is lost (as asked). Such a sender
/// does not raise its pace by itself, and a test at half of its pace makes live data late. So it is not
/// tested on a medium that loses 30 %.
const APP_LIMITED_ALARM: f64 = 2.0;
/// What a limited pace sends. Chosen: below the alarm, and enough for the pace to grow where the medium
/// delivers 0.83 of what p says.
const LIMITED: f64 = 1.2;
/// Below this nothing is overrun. Chosen: halfway between the limit and no overrun at all.
const HEALTHY: f64 = 1.1;
/// What a limited pace sends while nothing is overrun. Chosen: a path of 200 ms that is overrun by that for
/// 400 ms has a ratio of 1.26 over two seconds, within the bound.
const GROWING: f64 = 1.5;
/// Largest loss that is taken for the medium's. Beyond it, repair costs six bytes for one. Chosen.
const MOST_LOSS: f64 = 0.8;

/// Pace of a test, as a share of what is delivered (as asked). It leaves room for rates that are measured
/// too high by a policer's bucket.
const TEST_SHARE: f64 = 0.5;
/// Least packets of a test (as asked). It goes on, for at most four times as many, while its loss is not
/// known to [`TEST_SPREAD`] and does not clearly explain the losses either. At 20 % of independent loss 180
/// suffice.
const TEST_PACKETS: i64 = 64;
const MOST_TESTED: i64 = 256;
const TEST_SPREAD: f64 = 0.03;
/// Part of the losses that stays in a test if the medium caused them; drops of a bottleneck end. Chosen:
/// halfway.
const PERSISTS: f64 = 0.5;
/// Packets of a test that do not count after the queue of those before them is gone: the bucket of a policer
/// is still empty. Chosen.
const SETTLING: u64 = 8;
/// What a test found is valid for this time, and for this many times the time of the test. The time that a
/// test costs is half of its length, so all tests together cost at most half a percent of the goodput.
/// Each test that confirms an expired result doubles this time (as asked), because a medium that lost the
/// same twice probably loses it a third time. The upper limit is as asked.
const VALID: Duration = Duration::from_secs(30);
const VALID_TESTS: u32 = 100;
const LONGEST_VALID: Duration = Duration::from_secs(600);
/// The same for a test of the controller. Chosen: start-up takes as many round trips.
const TESTED_VALID: u32 = 10;
/// Standard deviations, each at least [`TEST_SPREAD`], by which two tests of the same medium differ at most.
/// Chosen: two results of that deviation differ by less in 97 % of cases.
const CONFIRMS: f64 = 3.0;
/// Tests in a row that lose more than [`MOST_LOSS`] until the breaker opens. Each sends half of what the one
/// before delivered, for a round trip or more. RFC 8084 section 4 asks that no transient opens a breaker.
/// Chosen.
const FAILED_TESTS: u32 = 3;
/// What an open breaker sends: this many packets in a round trip, or in this time if that is longer. Chosen:
/// the first window of RFC 3390, at most 0.5 Mbit/s.
const BROKEN_PACKETS: f64 = 4.0;
const BROKEN_ROUND: Duration = Duration::from_millis(100);
/// Packets that close the breaker again, if fewer than [`MOST_LOSS`] of them are lost. Chosen: four round
/// trips.
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
        /// When the queue of the packets before it is gone; later packets count.
        settled: Option<Time>,
        /// What the test's packets lost.
        tested: Tally,
        /// Whether nothing was limited before.
        was_free: bool,
    },
    /// The pace follows what is delivered.
    Limited {
        /// What was delivered when that began, in bytes per second.
        first: f64,
    },
    /// The circuit breaker is open.
    Broken {
        /// The packets since then.
        seen: Tally,
    },
}

/// The loss of the medium that the latest test confirmed.
#[derive(Debug, Default)]
struct Confirmed {
    /// It is lowered like [`FloorStats::confirmed_loss`], but kept when that expires.
    loss: Option<f64>,
    /// Until when it is valid.
    until: Time,
    /// Tests in a row that confirmed an expired result.
    times: u32,
}

/// The sender when fates became known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    /// The next packet.
    pub next: u64,
    /// Smoothed round trip.
    pub rtt: Duration,
    /// The part of it above the least: the queue.
    pub queue: Duration,
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
    /// When the bound was exceeded last, and the packets that did it.
    exceeded: Option<Time>,
    cause: Tally,
    confirmed: Confirmed,
    /// Tests in a row that lost nearly everything.
    failed: u32,
    rtt: Duration,
    /// Whether the controller pauses, or tests the medium itself.
    waits: bool,
    /// Whether the application knows that a fixed rate overruns the path.
    is_told: bool,
    pub stats: FloorStats,
}

impl Floor {
    /// A floor that limits the pace or, for `fixed`, only counts.
    pub(crate) fn new(limits: bool) -> Self {
        Self {
            limits,
            mode: Mode::Free,
            from: 0,
            was_lost: false,
            began: None,
            window: Window::default(),
            delivered: Meter::default(),
            exceeded: None,
            cause: Tally::default(),
            confirmed: Confirmed::default(),
            failed: 0,
            rtt: BROKEN_ROUND,
            waits: false,
            is_told: false,
            stats: FloorStats::default(),
        }
    }

    /// The fate of packet `number` is known. Called in the order of sending. `app_limited` tells whether the
    /// application limited the sender when the packet left.
    pub(crate) fn on_fate(&mut self, number: u64, bytes: u32, lost: bool, app_limited: bool) {
        if number < self.from {
            return;
        }
        let starts_run = lost && !self.was_lost;
        self.was_lost = lost;
        self.change(|tally| tally.on_fate(bytes, lost, starts_run, app_limited));
    }

    /// A packet that was declared lost arrived.
    pub(crate) fn on_spurious(&mut self, number: u64, bytes: u32) {
        if number >= self.from {
            self.change(|tally| tally.on_spurious(bytes));
        }
    }

    fn change(&mut self, change: impl Fn(&mut Tally)) {
        self.window.change(&change);
        self.delivered.change(&change);
        if let Mode::Test { tested: tally, .. } | Mode::Broken { seen: tally } = &mut self.mode {
            change(tally);
        }
    }

    /// The path was dead for a while: the packets before `next` that are lost say nothing about its rate.
    /// Under a limit they count, because a path that is overrun far enough looks dead at times.
    pub(crate) fn on_revived(&mut self, next: u64) {
        if let Mode::Free = self.mode {
            self.from = next;
        }
    }

    /// Tells whether the controller pauses, or tests the medium itself. What arrives of such packets says
    /// nothing about the path, so a limited pace does not follow it; packet `next` is the first after
    /// them.
    pub(crate) fn wait(&mut self, waits: bool, next: u64) {
        if self.waits && !waits && matches!(self.mode, Mode::Limited { .. }) {
            self.from = next;
            self.window.clear();
        }
        self.waits = waits;
    }

    /// All fates known at `now` were told.
    pub(crate) fn review(&mut self, now: Time, state: Sending) {
        let Sending { next, rtt, queue } = state;
        self.rtt = rtt;
        let began = *self.began.get_or_insert(now);
        if let Mode::Test { settled, .. } = &mut self.mode
            && settled.is_some_and(|at| now >= at)
        {
            (*settled, self.from) = (None, next + SETTLING);
        }
        if self.waits && !self.is_testing() {
            self.delivered.restart();
        }
        let is_measured = !self.is_testing() && self.delivered.on_fates(now, rtt, self.lost_at(BOUND));
        let is_over = self.window.advance(now);
        if is_over {
            self.lower_confirmed(now);
        }
        match self.mode {
            Mode::Free if is_over && !self.waits => {
                let first = if now.since(began) < SPAN { 1.0 - 1.0 / FIRST_ALARM } else { 0.0 };
                let total = self.window.total();
                if total.exceeds(self.lost_at(alarm(total)).max(first)) {
                    self.on_exceeded(now, queue);
                }
            }
            Mode::Test { began, tested, was_free, .. } => self.look_at_test(now, state, began, was_free, &tested),
            Mode::Limited { first } if (is_over || is_measured) && !self.waits => self.look_at_limit(now, first, queue),
            Mode::Broken { seen } if seen.packets >= CLOSING_PACKETS => {
                if seen.loss() < MOST_LOSS {
                    self.failed = 0;
                    self.limit(next);
                } else {
                    self.mode = Mode::Broken { seen: Tally::default() };
                }
            }
            Mode::Free | Mode::Limited { .. } | Mode::Broken { .. } => {}
        }
    }

    /// The most that the controller's pace may be, in bytes per second.
    pub(crate) fn pace(&self) -> Option<u64> {
        let broken = BROKEN_PACKETS * PACKET / self.rtt.max(BROKEN_ROUND).as_secs_f64();
        let pace = match self.mode {
            Mode::Free => return None,
            Mode::Test { .. } => TEST_SHARE * self.delivered.rate,
            Mode::Limited { .. } => {
                let is_healthy = self.delivered.loss().is_some_and(|loss| loss < self.lost_at(HEALTHY));
                let more = if is_healthy { GROWING } else { LIMITED };
                more / (1.0 - self.stats.confirmed_loss) * self.delivered.most
            }
            Mode::Broken { .. } => broken,
        };
        Some(pace.max(broken) as u64)
    }

    /// Whether a test runs. Its packets show no rate.
    pub(crate) fn is_testing(&self) -> bool {
        matches!(self.mode, Mode::Test { .. })
    }

    /// The statistics so far.
    pub(crate) fn stats(&self) -> FloorStats {
        FloorStats { is_limited: !matches!(self.mode, Mode::Free), ..self.stats }
    }

    /// The loss at which `ratio / (1 - p)` bytes are sent for a byte delivered.
    fn lost_at(&self, ratio: f64) -> f64 {
        1.0 - (1.0 - self.stats.confirmed_loss) / ratio
    }

    /// What is not lost at any pace, the medium does not take. And what was confirmed long ago is not known
    /// now.
    fn lower_confirmed(&mut self, now: Time) {
        let total = self.window.total();
        if total.is_enough() {
            let loss = total.loss();
            let most = loss + 2.0 * total.spread(loss);
            self.stats.confirmed_loss = self.stats.confirmed_loss.min(most);
            self.confirmed.loss = self.confirmed.loss.map(|known| known.min(most));
        }
        if let Mode::Free = self.mode
            && now >= self.confirmed.until
        {
            self.stats.confirmed_loss = 0.0;
        }
    }

    fn on_exceeded(&mut self, now: Time, queue: Duration) {
        if self.exceeded.is_none_or(|last| now.since(last) >= SPAN) {
            self.stats.exceeded += 1;
            self.exceeded = Some(now);
        }
        self.cause = *self.window.total();
        if self.limits {
            self.begin_test(now, queue);
        }
    }

    /// Whether a rate that the user vouched for overruns the path, once.
    pub(crate) fn poll_overrun(&mut self) -> bool {
        !self.limits && self.stats.exceeded > 0 && !core::mem::replace(&mut self.is_told, true)
    }

    fn begin_test(&mut self, now: Time, queue: Duration) {
        self.stats.tests += 1;
        let (settled, was_free) = (Some(now + queue), matches!(self.mode, Mode::Free));
        self.delivered.hurry(now);
        self.begin(Mode::Test { began: now, settled, tested: Tally::default(), was_free }, u64::MAX);
    }

    fn limit(&mut self, next: u64) {
        self.delivered.most = self.delivered.rate;
        self.begin(Mode::Limited { first: self.delivered.rate }, next);
    }

    /// Begins a mode in which packet `from` is the first that counts.
    fn begin(&mut self, mode: Mode, from: u64) {
        (self.mode, self.from) = (mode, from);
        self.window.clear();
        self.delivered.restart();
    }

    fn look_at_limit(&mut self, now: Time, first: f64, queue: Duration) {
        let total = self.window.total();
        let is_old = now >= self.confirmed.until;
        if is_old && total.loss() < self.lost_at(HEALTHY) {
            self.mode = Mode::Free;
        } else if is_old || total.exceeds(self.lost_at(BOUND)) || self.delivered.most < first / 2.0 {
            // If less arrives although less is sent, the medium may take it.
            self.begin_test(now, queue);
        }
    }

    /// A test that took `length` confirmed a loss, which is valid from `now` on.
    fn on_confirmed(&mut self, now: Time, length: Duration, spread: f64) {
        let loss = self.stats.confirmed_loss;
        let differs = |known: f64| (loss - known).abs() > CONFIRMS * spread.max(TEST_SPREAD);
        if self.confirmed.loss.is_none_or(differs) {
            self.confirmed.times = 0;
        } else if now >= self.confirmed.until {
            self.confirmed.times += 1;
        }
        self.confirmed.loss = Some(loss);
        let valid = VALID * 2_u32.pow(self.confirmed.times.min(5));
        self.confirmed.until = now + valid.min(LONGEST_VALID).max(length * VALID_TESTS);
    }

    /// A test of the controller, at half of what was delivered, shows the medium as well. It may be of few
    /// packets, and so is valid for a short time only, until one of this module is cheap.
    pub(crate) fn on_tested(&mut self, now: Time, tested: Tested) {
        if !matches!(self.mode, Mode::Free) || now < self.confirmed.until {
            return;
        }
        let loss = f64::from(tested.lost) / f64::from(tested.packets.max(1));
        let spread = (loss * (1.0 - loss) / f64::from(tested.packets.max(1))).sqrt();
        self.stats.confirmed_loss = (loss + (spread - TEST_SPREAD).max(0.0)).min(MOST_LOSS);
        self.confirmed.until = now + tested.took * TESTED_VALID;
        self.begin(Mode::Free, 0);
    }

    fn look_at_test(
        &mut self,
        now: Time,
        Sending { next, queue, .. }: Sending,
        began: Time,
        was_free: bool,
        tested: &Tally,
    ) {
        let loss = tested.loss();
        let spread = tested.spread(loss);
        let persists = loss + spread >= PERSISTS * self.cause.loss();
        let cause = self.cause;
        let is_explained_by = |loss: f64| persists && !cause.exceeds(1.0 - (1.0 - loss) / alarm(&cause));
        let is_clear = spread <= TEST_SPREAD || is_explained_by(loss - 2.0 * spread);
        if tested.packets < TEST_PACKETS || (!is_clear && tested.packets < MOST_TESTED) {
            return;
        }
        // Where losses come in long runs a test is coarse. The medium has the benefit of that.
        self.stats.confirmed_loss = (loss + (spread - TEST_SPREAD).max(0.0)).min(MOST_LOSS);
        self.on_confirmed(now, now.since(began), spread);
        self.failed = if loss > MOST_LOSS { self.failed + 1 } else { 0 };
        if self.failed >= FAILED_TESTS {
            self.stats.broken += 1;
            self.begin(Mode::Broken { seen: Tally::default() }, next);
        } else if self.failed > 0 {
            self.delivered.rate *= TEST_SHARE * (1.0 - loss);
            self.begin_test(now, queue);
        } else if was_free && is_explained_by(self.stats.confirmed_loss) {
            self.begin(Mode::Free, next);
        } else {
            self.limit(next);
        }
    }
}

/// Bytes sent for a byte delivered, times `1 - p`, that make the sender of these packets act.
fn alarm(packets: &Tally) -> f64 {
    if packets.is_app_limited() { APP_LIMITED_ALARM } else { ALARM }
}
