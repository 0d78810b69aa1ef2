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
/// The same where a queue stood all the while, which is evidence of its own.
const SIGMAS_BESIDE_QUEUE: f64 = 1.0;
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
    /// Of these alone.
    latest: LossEstimator,
    /// The others since then.
    fast: Tally,
    /// Loss that raised the alarm which is not decided yet.
    alarm: Option<Alarm>,
}

/// Loss that raised an alarm, and the medium's as it was believed to be then.
#[derive(Clone, Copy, Debug)]
struct Alarm {
    loss: f64,
    medium: f64,
}

impl Medium {
    /// From packet `next` on the sender is slower than its estimate.
    pub fn slow_down(&mut self, next: u64) {
        self.slow = next..u64::MAX;
        self.latest = LossEstimator::default();
        self.fast = Tally::default();
    }

    /// Whether the slow packets up to `next` tell enough of the medium, or nothing is lost that they could tell of.
    pub fn has_asked(&self, next: u64) -> bool {
        let known =
            self.loss.estimate().weight >= ENOUGH && self.alarm.is_none() || self.bursts.estimate().rate < CLEAN;
        known || (next.saturating_sub(self.slow.start)) as f64 >= ENOUGH
    }

    /// Whether the packets of start-up so far lost more than a medium is believed to.
    pub fn loses_much(&self) -> bool {
        self.fast.packets >= ENOUGH && self.fast.rate() > UNKNOWN
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
            self.latest.on_fate(lost);
            return None;
        }
        self.fast.add(lost);
        if number < self.slow.end {
            return None;
        }
        let Alarm { loss, medium } = self.alarm.take()?;
        if self.latest.estimate().rate < (loss + medium) / 2.0 {
            return Some(Verdict::Queue);
        }
        if self.latest.estimate().rate >= loss {
            // What was believed of the medium was of another time.
            self.loss = core::mem::take(&mut self.latest);
        }
        Some(Verdict::Medium)
    }

    /// A round trip is over: whether the packets at full pace since the last slow phase lost more than the medium takes. `stood` says that a
    /// queue stood throughout the round trip.
    pub fn end_round(&mut self, stood: bool) -> bool {
        let fast = self.fast;
        let medium = self.loss.estimate();
        if medium.weight < ENOUGH || fast.packets < 1.0 || self.alarm.is_some() {
            return false;
        }
        // Whether two samples are of one rate (test of two proportions): the medium's is one too, and a small one at first.
        let rate = fast.rate();
        let pooled = (fast.lost + medium.rate * medium.weight) / (fast.packets + medium.weight);
        let correlated = correlation(self.bursts.estimate().burst);
        let spread = (pooled * (1.0 - pooled) * correlated * (1.0 / fast.packets + 1.0 / medium.weight)).sqrt();
        let sigmas = if stood { SIGMAS_BESIDE_QUEUE } else { SIGMAS };
        let excess = rate > medium.rate + TOLERANCE + sigmas * spread + FEW * correlated / fast.packets;
        if excess {
            self.alarm = Some(Alarm { loss: rate, medium: medium.rate });
        }
        excess
    }

    /// Whether so little is lost of all packets that a TCP can fill the path and its queue: what is lost is then the queue's.
    pub fn is_clean(&self) -> bool {
        let all = self.bursts.estimate();
        all.weight >= MANY && all.rate < CLEAN
    }

    /// Bytes per second that the bottleneck let through, of which `acked` arrived and `passed` were sent.
    /// Beside a queue that stands the medium is believed to lose what was seen; with none in sight, what it may lose at most.
    pub fn carried(&self, acked: u64, passed: u64, stands: bool) -> u64 {
        let (medium, all) = (self.loss.estimate(), self.bursts.estimate());
        let loss = match medium.weight < ENOUGH {
            true => UNKNOWN,
            false if stands => medium.rate.min(all.rate).min(0.9),
            false => (medium.upper.min(all.upper) + TOLERANCE).min(0.9),
        };
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
            alarms += u32::from(medium.end_round(false));
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
                alarms += u32::from((part == 5 || part == 10) && medium.end_round(false));
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
        let carried = medium.carried(900, 1_000, false);
        assert_eq!(carried, 1_000, "the medium took the rest");
        let carried = medium.carried(900, 1_500, false);
        assert!((1_000..1_050).contains(&carried), "{carried}: the queue dropped the rest");
    }
}
