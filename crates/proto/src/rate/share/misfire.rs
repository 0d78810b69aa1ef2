//! How often losses of the medium alone are taken for drops of a bottleneck: false verdicts and false pauses
//! an hour (docs/recovery.md section 2).
//!
//! [`Medium`] gets random losses at 2,000 packets per second over 60 ms, as one flow has them at 25 Mbit/s,
//! with the times at which [`super::Share`] calls it. Whole connections are in `sim/examples/many.rs`.

use core::time::Duration;

use super::medium::{Medium, Sent, Verdict};
use super::tuning::{CAP_LIFE, NEAR_LIFE, PAUSE_AGAIN, PAUSE_RESUME};
use crate::Time;

/// Bytes per second, and packets of a round trip and of a FEEDBACK, a sixteenth of it.
const RATE: f64 = 3e6;
const ROUND: u64 = 128;
const FEEDBACK: u64 = 8;
const STEP: Duration = Duration::from_millis(4);
/// The target queue at this rate, in which packets wait. At the lower pace of a test they find none.
const QUEUE: Duration = Duration::from_millis(2);

/// A medium that loses a part of the packets, in runs of this mean length (Gilbert), or independently.
struct Losses {
    part: f64,
    run: Option<f64>,
    is_bad: bool,
    state: u64,
}

impl Losses {
    fn random(&mut self) -> f64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn next(&mut self) -> bool {
        let random = self.random();
        self.is_bad = match self.run {
            None => random < self.part,
            Some(run) if self.is_bad => random >= 1.0 / run,
            Some(run) => random < self.part / (1.0 - self.part) / run,
        };
        self.is_bad
    }
}

/// What was decided.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    tests: u32,
    bottleneck: u32,
    pauses: u32,
}

/// Runs for this time after the first five seconds.
fn counted(part: f64, run: Option<f64>, seed: u64, time: Duration) -> Counts {
    let mut losses = Losses { part, run, is_bad: false, state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) };
    let mut medium = Medium::default();
    let (mut counts, mut number) = (Counts::default(), 0);
    let (mut slow, mut capped, mut paused) = (Time::ZERO, Time::ZERO, None::<Time>);
    let (mut epoch, mut arrived, mut pace) = (0_u64, 0_u64, 1.0);
    let began = Time::from_millis(1_000);
    let mut now = began;
    // Start-up is over after eight round trips, and the drain after one more.
    for step in 0.. {
        if now.since(began) > time + Duration::from_secs(5) {
            break;
        }
        if now.since(began) < Duration::from_secs(5) {
            counts = Counts::default();
        }
        now += STEP;
        let next = number + ROUND;
        match step {
            128 => medium.slow_down(next),
            144 => medium.begin(),
            _ => {}
        }
        for _ in 0..((FEEDBACK as f64 * pace) as u64).max(1) {
            let lost = losses.next();
            medium.on_fate(number, lost);
            medium.on_queue(number, if pace < 1.0 { Duration::ZERO } else { QUEUE }, false);
            (number, epoch, arrived) = (number + 1, epoch + 1, arrived + u64::from(!lost));
        }
        if let Some(verdict) = medium.verdict(now).filter(|_| step > 160) {
            counts.tests += 1;
            if let Verdict::Bottleneck { .. } = verdict {
                counts.bottleneck += 1;
                capped = now + CAP_LIFE;
            }
        }
        let rate = RATE * pace;
        let received = rate * arrived as f64 / epoch.max(1) as f64;
        let sent = Sent { now, rate, arrived: received, next, app_limited: false, queue: QUEUE };
        if step > 160 && medium.is_overrun(false) && paused.is_none_or(|at| now.since(at) > PAUSE_AGAIN) {
            counts.pauses += 1;
            paused = Some(now);
            let loss = medium.recent().rate();
            medium.begin_again(loss, sent, received * PAUSE_RESUME, 0);
        }
        if epoch as f64 >= ROUND as f64 * pace {
            medium.end_epoch(sent, false, now < capped);
            (epoch, arrived) = (0, 0);
        }
        // A slow phase of a round trip.
        if now.since(slow) > NEAR_LIFE && step > 160 {
            slow = now;
            medium.slow_down(next);
        } else if now.since(slow) >= STEP * 16 {
            medium.speed_up(next);
        }
        pace = medium.test_rate().map_or(1.0, |rate| rate / RATE);
    }
    counts
}

/// The table of docs/recovery.md section 2: `cargo test -p tidewire-proto --lib misfire --
/// --nocapture` counts one hour for each cell, and ten with `TIDEWIRE_SEEDS=all`. The bounds, for one hour,
/// are about three times the mean of ten hours.
#[test]
fn losses_of_the_medium_alone_are_seldom_taken_for_drops() {
    let few = tidewire_testing::few_seeds();
    let hours = if few { 1 } else { 10 };
    for (part, runs) in [
        (0.01, [(None, 0, 0), (Some(4.0), 0, 0), (Some(16.0), 0, 0)]),
        (0.05, [(None, 3, 0), (Some(4.0), 0, 0), (Some(16.0), 0, 0)]),
        (0.2, [(None, 6, 1), (Some(4.0), 110, 25), (Some(16.0), 30, 55)]),
        (0.4, [(None, 200, 5), (Some(4.0), 170, 30), (Some(16.0), 15, 40)]),
    ] {
        for (run, bottleneck, pauses) in runs {
            let ten_minutes = (1..=6 * hours).map(|seed| counted(part, run, seed, Duration::from_secs(600)));
            let sum = ten_minutes.fold(Counts::default(), |sum, one| Counts {
                tests: sum.tests + one.tests,
                bottleneck: sum.bottleneck + one.bottleneck,
                pauses: sum.pauses + one.pauses,
            });
            println!("{part} in runs of {run:?}: {sum:?} in {hours} hours");
            assert!(sum.bottleneck <= bottleneck * hours as u32, "{part} in runs of {run:?}: {sum:?}");
            assert!(sum.pauses <= pauses * hours as u32, "{part} in runs of {run:?}: {sum:?}");
        }
    }
}
