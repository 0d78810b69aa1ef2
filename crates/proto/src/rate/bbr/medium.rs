//! Tells losses of the medium from drops of a full queue, for a controller that does not take every loss for
//! congestion.
//!
//! The delay shows a long queue. A queue too short to show in the delay can still drop packets. Its drops
//! stop when the sender slows down; the losses of the medium do not. [`super::Bbr`] sends below its rate
//! estimate in every cycle anyway, while it drains. The loss among those packets is the loss of the medium.
//! If packets at full pace lose more than that, this module raises an alarm and the sender slows down. The
//! loss among the slower packets then decides whether the queue or the medium caused the alarm.

use core::ops::Range;

use super::tuning::{
    MEDIUM_CLEAN, MEDIUM_ENOUGH, MEDIUM_FEW, MEDIUM_MANY, MEDIUM_SIGMAS, MEDIUM_SIGMAS_BESIDE_QUEUE, MEDIUM_TOLERANCE,
    MEDIUM_UNKNOWN,
};
use crate::path::{LossEstimator, correlation};
use crate::rate::tally::Tally;

/// The decision on an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The loss stopped when the pace fell: a queue was full.
    Queue,
    /// The loss stayed: the medium loses more than was known.
    Medium,
}

/// Loss counts of the packets at each pace, described in the module documentation.
#[derive(Debug, Default)]
pub(super) struct Medium {
    /// Loss of the packets sent below the rate estimate.
    loss: LossEstimator,
    /// Loss of all packets. It supplies the burst length: the slow packets are too few to show it soon, and
    /// runs that a queue drops are short.
    bursts: LossEstimator,
    /// Numbers of the packets of the current or last slow phase, which are sent below the rate estimate.
    slow: Range<u64>,
    /// Loss of the packets of that phase alone.
    latest: LossEstimator,
    /// Loss of the other packets since that phase began.
    fast: Tally,
    /// The alarm that waits for its verdict.
    alarm: Option<Alarm>,
}

/// Loss rate that raised an alarm, and the loss estimate of the medium at that time.
#[derive(Clone, Copy, Debug)]
struct Alarm {
    loss: f64,
    medium: f64,
}

impl Medium {
    /// The sender is slower than its estimate from packet `next` on.
    pub fn slow_down(&mut self, next: u64) {
        self.slow = next..u64::MAX;
        self.latest = LossEstimator::default();
        self.fast = Tally::default();
    }

    /// Whether the slow packets before `next` are enough to estimate the medium, or the path loses too little
    /// to need an estimate.
    pub fn has_asked(&self, next: u64) -> bool {
        let known = self.loss.estimate().weight >= MEDIUM_ENOUGH && self.alarm.is_none()
            || self.bursts.estimate().rate < MEDIUM_CLEAN;
        known || (next.saturating_sub(self.slow.start)) as f64 >= MEDIUM_ENOUGH
    }

    /// Whether start-up so far lost more packets than a medium is assumed to lose.
    pub fn loses_much(&self) -> bool {
        self.fast.packets >= MEDIUM_ENOUGH && self.fast.rate() > MEDIUM_UNKNOWN
    }

    /// The slow phase ends before packet `next`.
    pub fn speed_up(&mut self, next: u64) {
        if self.slow.end == u64::MAX {
            self.slow.end = next;
        }
    }

    /// Takes the fate of each packet, in order. Returns a verdict if an alarm waited for this packet.
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
            // The old estimate of the medium is out of date.
            self.loss = core::mem::take(&mut self.latest);
        }
        Some(Verdict::Medium)
    }

    /// Ends a round trip. Returns whether the packets at full pace since the last slow phase lost more than
    /// the medium explains. `stood` says that a queue stood throughout the round trip.
    pub fn end_round(&mut self, stood: bool) -> bool {
        let fast = self.fast;
        let medium = self.loss.estimate();
        if medium.weight < MEDIUM_ENOUGH || fast.packets < 1.0 || self.alarm.is_some() {
            return false;
        }
        // Test of two proportions: do both samples have the same loss rate? The estimate of the medium is a
        // sample too, and a small one at first.
        let rate = fast.rate();
        let pooled = (fast.lost + medium.rate * medium.weight) / (fast.packets + medium.weight);
        let correlated = correlation(self.bursts.estimate().burst);
        let spread = (pooled * (1.0 - pooled) * correlated * (1.0 / fast.packets + 1.0 / medium.weight)).sqrt();
        let sigmas = if stood { MEDIUM_SIGMAS_BESIDE_QUEUE } else { MEDIUM_SIGMAS };
        let excess = rate > medium.rate + MEDIUM_TOLERANCE + sigmas * spread + MEDIUM_FEW * correlated / fast.packets;
        if excess {
            self.alarm = Some(Alarm { loss: rate, medium: medium.rate });
        }
        excess
    }

    /// Whether so few packets are lost that a TCP flow can fill the path and its queue. The losses are then
    /// drops of the queue.
    pub fn is_clean(&self) -> bool {
        let all = self.bursts.estimate();
        all.weight >= MEDIUM_MANY && all.rate < MEDIUM_CLEAN
    }

    /// Bytes per second that the bottleneck let through, where `acked` arrived and `passed` were sent. Beside
    /// a standing queue the medium is assumed to lose what was seen. Without one, it is assumed to lose its
    /// upper bound.
    pub fn carried(&self, acked: u64, passed: u64, stands: bool) -> u64 {
        let (medium, all) = (self.loss.estimate(), self.bursts.estimate());
        let loss = match medium.weight < MEDIUM_ENOUGH {
            true => MEDIUM_UNKNOWN,
            false if stands => medium.rate.min(all.rate).min(0.9),
            false => (medium.upper.min(all.upper) + MEDIUM_TOLERANCE).min(0.9),
        };
        passed.min((acked as f64 / (1.0 - loss)) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs cycles of 125 packets per round trip: one round trip below the estimate, two at full pace.
    /// `lose(slow)` gives the losses per round trip, evenly spread.
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

    /// Gilbert 10 % x 4, cycles of 20 packets below the estimate and 200 at full pace. A few slow packets do
    /// not show the burst length, and that must not raise an alarm.
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
