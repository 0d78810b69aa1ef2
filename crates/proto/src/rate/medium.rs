//! Tells what the medium loses from what a full queue drops, for a controller that does not take every loss for congestion.
//!
//! The delay tells of a queue that is long; one shorter than the delay can show drops without a word. But its drops go away when the
//! sender is slower, and the medium's do not. [`super::Bbr`] paces below its estimate in each of its cycles anyway, while it drains:
//! the loss among those packets is the medium's. Loss beyond that at full pace is an alarm, after which the sender slows down, and what
//! the slower packets then meet is the verdict on it.

use core::ops::Range;

use crate::path::{LossEstimator, correlation};

/// Loss beyond the medium's that is tolerated: what a loss-based competitor's own probing costs (BBRv2 tolerates 2 % in all).
const TOLERANCE: f64 = 0.01;
/// ... and by how many standard deviations of the difference between the two, widened for bursts: one false alarm in some hundred cycles.
const SIGMAS: f64 = 3.0;
/// ... and that many packets, more where the medium loses in bursts: a queue that drops one has told nothing.
const FEW: f64 = 1.0;
/// Fates on which the medium's loss must rest; before, [`UNKNOWN`] holds.
const ENOUGH: f64 = 64.0;
/// The medium may take this much of what it passes as long as nothing better is known.
const UNKNOWN: f64 = 0.3;
/// A path that loses less than this counts as clean: with as much random loss a CUBIC flow has 8 % of 25 Mbit/s at 60 ms (PEERS.md), and keeps
/// no queue. Beside a full queue ours loses some 0.3 %, and seldom 1 % of as many packets as this.
const CLEAN: f64 = 0.01;
const MANY: f64 = 256.0;
/// The alarm was false if slowing down left more than this part of the loss.
const STAYED: f64 = 0.7;

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    packets: f64,
    lost: f64,
}

impl Tally {
    fn add(&mut self, lost: bool) {
        self.packets += 1.0;
        self.lost += f64::from(u8::from(lost));
    }

    fn rate(&self) -> f64 {
        if self.packets > 0.0 { self.lost / self.packets } else { 0.0 }
    }
}

/// What an alarm was about, once it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The loss went away with the pace: a full queue.
    Queue,
    /// It stayed: the medium loses more than was known.
    Medium,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Medium {
    /// Of the packets that left below the estimate.
    loss: LossEstimator,
    /// Of all packets: too few are slow to tell soon how long bursts are, and the runs that a queue drops are short.
    bursts: LossEstimator,
    /// Packets that left below the estimate, the last time or now.
    slow: Range<u64>,
    slow_tally: Tally,
    /// The others of this round trip.
    fast: Tally,
    /// Loss that raised the alarm which is not decided yet.
    alarm: Option<f64>,
}

impl Medium {
    /// From packet `next` on the sender is slower than its estimate.
    pub fn slow_down(&mut self, next: u64) {
        self.slow = next..u64::MAX;
        self.slow_tally = Tally::default();
    }

    /// From packet `next` on it is not any more.
    pub fn speed_up(&mut self, next: u64) {
        if self.slow.end == u64::MAX {
            self.slow.end = next;
        }
    }

    /// The fate of a packet, in order; a verdict when it was the last that one waited for.
    pub fn on_fate(&mut self, number: u64, lost: bool) -> Option<Verdict> {
        self.bursts.on_fate(lost);
        if self.slow.contains(&number) {
            self.loss.on_fate(lost);
            self.slow_tally.add(lost);
            return None;
        }
        self.fast.add(lost);
        if number < self.slow.end {
            return None;
        }
        let alarm = self.alarm.take()?;
        if self.slow_tally.rate() < STAYED * alarm {
            return Some(Verdict::Queue);
        }
        // What was believed of the medium was of another time.
        self.loss = LossEstimator::default();
        Some(Verdict::Medium)
    }

    /// A round trip is over: whether its packets at full pace lost more than the medium takes.
    pub fn end_round(&mut self) -> bool {
        let fast = core::mem::take(&mut self.fast);
        let medium = self.loss.estimate();
        if medium.weight < ENOUGH || fast.packets < 1.0 || self.alarm.is_some() {
            return false;
        }
        // Whether two samples are of one rate (test of two proportions): the medium's is one too, and a small one at first.
        let rate = fast.rate();
        let pooled = (fast.lost + medium.rate * medium.weight) / (fast.packets + medium.weight);
        let correlated = correlation(self.bursts.estimate().burst);
        let spread = (pooled * (1.0 - pooled) * correlated * (1.0 / fast.packets + 1.0 / medium.weight)).sqrt();
        let excess = rate > medium.rate + TOLERANCE + SIGMAS * spread + FEW * correlated / fast.packets;
        if excess {
            self.alarm = Some(rate);
        }
        excess
    }

    /// Whether so little is lost of all packets that a TCP can fill the path and its queue: what is lost is then the queue's.
    pub fn is_clean(&self) -> bool {
        let all = self.bursts.estimate();
        all.weight >= MANY && all.rate < CLEAN
    }

    /// Bytes per second that the bottleneck let through, of which `acked` arrived and `passed` were sent.
    pub fn carried(&self, acked: u64, passed: u64) -> u64 {
        let medium = self.loss.estimate();
        let loss = if medium.weight < ENOUGH { UNKNOWN } else { (medium.upper + TOLERANCE).min(0.9) };
        passed.min((acked as f64 / (1.0 - loss)) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cycles of 125 packets a round trip: two at full pace, one slower. Losses per round trip as `lose(slow)` says, evenly spread.
    fn alarms(cycles: u64, lose: impl Fn(bool) -> u64) -> (u32, Vec<Verdict>) {
        let (mut medium, mut number, mut alarms, mut verdicts) = (Medium::default(), 0, 0, Vec::new());
        for round in 0..3 * cycles {
            let slow = round % 3 == 0;
            if slow {
                medium.slow_down(number)
            } else {
                medium.speed_up(number)
            }
            let lost = lose(slow);
            for n in 0..125 {
                verdicts.extend(medium.on_fate(number, (n + 1) * lost / 125 > n * lost / 125));
                number += 1;
            }
            alarms += u32::from(medium.end_round());
        }
        (alarms, verdicts)
    }

    #[test]
    fn loss_that_does_not_move_with_the_pace_raises_no_alarm() {
        for lost in [0, 1, 12, 25, 60] {
            assert_eq!(alarms(20, |_| lost).0, 0, "{lost} of 125");
        }
    }

    /// Gilbert 10 % x 4, cycles of 20 packets below the estimate and 200 at full pace: what few slow packets show of bursts is no reason.
    #[test]
    fn bursts_raise_no_alarm() {
        let (mut draw, mut alarms) = (1_u64, 0);
        let mut below = |bound: u64| {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (draw >> 33) % bound
        };
        for _ in 0..50 {
            let (mut medium, mut number, mut bad) = (Medium::default(), 0, false);
            for part in (0..11).cycle().take(11 * 20) {
                match part {
                    0 => medium.slow_down(number),
                    1 => medium.speed_up(number),
                    _ => {}
                }
                for _ in 0..20 {
                    bad = if bad { below(4) > 0 } else { below(36) == 0 };
                    medium.on_fate(number, bad);
                    number += 1;
                }
                alarms += u32::from((part == 5 || part == 10) && medium.end_round());
            }
        }
        assert_eq!(alarms, 0, "of 2,000");
    }

    #[test]
    fn loss_that_goes_away_with_the_pace_is_the_queues() {
        let (alarms, verdicts) = alarms(20, |slow| if slow { 0 } else { 10 });
        assert!(alarms > 10 && verdicts.iter().all(|verdict| *verdict == Verdict::Queue), "{alarms} {verdicts:?}");
    }

    #[test]
    fn the_bottleneck_carried_what_the_medium_did_not_take() {
        let mut medium = Medium::default();
        medium.slow_down(0);
        (0..500).for_each(|n| assert_eq!(medium.on_fate(n, n % 10 == 0), None));
        let carried = medium.carried(900, 1_000);
        assert_eq!(carried, 1_000, "the medium took the rest");
        let carried = medium.carried(900, 1_500);
        assert!((1_000..1_050).contains(&carried), "{carried}: the queue dropped the rest");
    }
}
