//! The result of one run of a policy in a cell: delay, overhead and goodput, from the third second on and
//! from the beginning.

use core::time::Duration;

use tidewire_proto::profile::Profile;
use tidewire_proto::stats::{DelayHistogram, Stats};

use super::cells::Cell;
use crate::pair::End;
use crate::report::Trial;

/// By this time start-up is over. Goals L1 and L2 (`docs/figures.md`) are measured from the third second on.
const STEADY_AFTER: Duration = Duration::from_secs(3);

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// From the third second on.
    Steady,
    /// From the beginning.
    Whole,
}

/// Delay, overhead and goodput.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// IP bytes sent for each byte delivered.
    pub sent_per_byte: f64,
    /// Mean in-order delay of a source symbol, in milliseconds.
    pub mean_ms: f64,
    /// 99th percentile of that delay, in milliseconds.
    pub p99_ms: f64,
    /// Bits per second delivered.
    pub goodput_bps: f64,
}

/// Both parts of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// From the third second on.
    pub steady: Figures,
    /// From the beginning.
    pub whole: Figures,
}

impl Measured {
    /// One of the two.
    pub fn part(&self, part: Part) -> &Figures {
        match part {
            Part::Steady => &self.steady,
            Part::Whole => &self.whole,
        }
    }

    /// Runs a policy with seeds 1 to `seeds` for three seconds and `seconds` more, and takes the median of
    /// each figure.
    pub(super) fn of(cell: &Cell, profile: Profile, seeds: u64, seconds: u32) -> Self {
        let runs: Vec<Self> = (1..=seeds).map(|seed| run(cell, profile, seed, seconds)).collect();
        let median = |of: &dyn Fn(&Self) -> f64| tidewire_figures::median(runs.iter().map(of));
        let figures = |part: Part| Figures {
            sent_per_byte: median(&|run| run.part(part).sent_per_byte),
            mean_ms: median(&|run| run.part(part).mean_ms),
            p99_ms: median(&|run| run.part(part).p99_ms),
            goodput_bps: median(&|run| run.part(part).goodput_bps),
        };
        Self { steady: figures(Part::Steady), whole: figures(Part::Whole) }
    }
}

fn run(cell: &Cell, profile: Profile, seed: u64, seconds: u32) -> Measured {
    let mut trial = Trial::new(cell.link(seed), vec![cell.flow()], seed);
    let config = cell.config().to_builder().profile(profile).build().expect("the module's own profiles are valid");
    (trial.near, trial.far) = (config.clone(), config);
    let mut run = trial.start();
    let began = run.began();
    run.until(began + STEADY_AFTER);
    let early = [End::Near, End::Far].map(|end| run.stats(end));
    let over = STEADY_AFTER + Duration::from_secs(seconds.into());
    run.until(began + over);
    let late = [End::Near, End::Far].map(|end| run.stats(end));
    assert!(run.load.errors.is_empty(), "{cell}, {}, seed {seed}: {:?}", profile.redundancy, run.load.errors);
    let nothing = [Stats::default(), Stats::default()];
    Measured {
        steady: between(&early, &late, (over - STEADY_AFTER).as_secs_f64()),
        whole: between(&nothing, &late, over.as_secs_f64()),
    }
}

/// What was added to the counts of sender and receiver within `seconds`.
fn between([sent_early, early]: &[Stats; 2], [sent_late, late]: &[Stats; 2], seconds: f64) -> Figures {
    let delivered = (late.bytes.app_received - early.bytes.app_received) as f64;
    let sent = (sent_late.bytes.wire_sent - sent_early.bytes.wire_sent) as f64;
    let (mean_ms, p99_ms) = delays(&early.delay, &late.delay);
    Figures { sent_per_byte: sent / delivered.max(1.0), mean_ms, p99_ms, goodput_bps: delivered * 8.0 / seconds }
}

/// Mean and 99th percentile, in milliseconds, of the delays that `late` counts beyond `early`.
fn delays(early: &DelayHistogram, late: &DelayHistogram) -> (f64, f64) {
    let count = late.count() - early.count();
    if count == 0 {
        return (f64::INFINITY, f64::INFINITY);
    }
    let sum = |delays: &DelayHistogram| delays.mean().as_secs_f64() * 1e3 * delays.count() as f64;
    let rank = count - count / 100;
    let mut before = early.buckets().peekable();
    let mut below = 0;
    let p99 = late.buckets().find(|&(upper, all)| {
        let known = before.next_if(|&(bound, _)| bound == upper).map_or(0, |(_, known)| known);
        below += all - known;
        below >= rank
    });
    let p99 = p99.map_or(f64::INFINITY, |(upper, _)| upper.as_secs_f64() * 1e3);
    ((sum(late) - sum(early)) / count as f64, p99)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_came_later_counts() {
        let mut delays_so_far = DelayHistogram::default();
        (0..500).for_each(|_| delays_so_far.record(Duration::from_millis(900)));
        let early = delays_so_far.clone();
        (1..=1_000).for_each(|ms| delays_so_far.record(Duration::from_millis(ms)));
        let (mean, p99) = delays(&early, &delays_so_far);
        assert!((mean - 500.5).abs() < 1e-3, "{mean}");
        assert!((990.0..=990.0 * 1.07).contains(&p99), "{p99}");
        assert_eq!(delays(&early, &early).0, f64::INFINITY);
    }
}
