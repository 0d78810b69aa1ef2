//! Timing: runs the cases of a table in turns and keeps the times of each, round by round.
//!
//! Every suite passes its cases to [`race`]. Time is the CPU time of this thread, so a preempted case does
//! not pay for other programs. Cases take turns within a round, so a slow period of the machine affects all
//! of them. Figures are medians over rounds, and a ratio is the median of the ratios within each round. The
//! number of calls per round is set once, before the first round.

use std::io::{IsTerminal, Write};

use rustix::time::{ClockId, clock_gettime};
use tidewire_codec::kernel::Kernel;
use tidewire_figures::{ascending, median, quantile};

/// One thing to be timed.
pub struct Case<'a> {
    /// Shown while it runs.
    pub name: String,
    /// The kernel that encoder and decoder use for this case; `None` keeps the last one.
    pub tier: Option<&'static Kernel>,
    /// One call of it.
    pub work: Box<dyn FnMut() + 'a>,
}

impl<'a> Case<'a> {
    /// A case that does not go through the codec's dispatch.
    pub fn new(name: impl Into<String>, work: impl FnMut() + 'a) -> Self {
        Self { name: name.into(), tier: None, work: Box::new(work) }
    }

    /// A case in which the codec is to use `tier`.
    pub fn on(tier: &'static Kernel, name: impl Into<String>, work: impl FnMut() + 'a) -> Self {
        Self { name: name.into(), tier: Some(tier), work: Box::new(work) }
    }
}

/// How much time goes into a table.
#[derive(Clone, Copy, PartialEq)]
pub struct Effort {
    /// Least nanoseconds of a case in one round.
    pub round_ns: u64,
    /// Rounds; odd, so that the median is one of them.
    pub rounds: usize,
}

impl Effort {
    /// For figures: 5 to 60 ms a round and 7 to 15 rounds gave repeats within 5 % on a shared machine (the
    /// reference machine).
    pub const FULL: Self = Self { round_ns: 6_000_000, rounds: 11 };
    /// For a check that everything runs; its figures mean nothing.
    pub const QUICK: Self = Self { round_ns: 50_000, rounds: 1 };
}

/// The times of one case.
#[derive(Clone)]
pub struct Times {
    /// Nanoseconds of one call, by round.
    pub rounds: Vec<f64>,
}

impl Times {
    /// A figure computed from this case's nanoseconds.
    pub fn map(&self, figure: impl Fn(f64) -> f64) -> Spread {
        Spread::of(self.rounds.iter().map(|&ns| figure(ns)))
    }

    /// A figure computed from this case's nanoseconds and another's in the same round.
    pub fn with(&self, other: &Self, figure: impl Fn(f64, f64) -> f64) -> Spread {
        self.combined(other, figure).map(|value| value)
    }

    /// These times minus others of the same round.
    pub fn less(&self, other: &Self) -> Self {
        self.combined(other, |ns, other| ns - other)
    }

    /// Times computed from two of the same round.
    pub fn combined(&self, other: &Self, time: impl Fn(f64, f64) -> f64) -> Self {
        Self { rounds: self.rounds.iter().zip(&other.rounds).map(|(&ns, &other)| time(ns, other)).collect() }
    }
}

/// Quartiles of a figure over the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// First quartile.
    pub low: f64,
    /// The figure.
    pub median: f64,
    /// Third quartile.
    pub high: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let values = ascending(values);
        let at = |q| quantile(&values, q).unwrap_or(f64::NAN);
        Self { low: at(0.25), median: median(values.iter().copied()), high: at(0.75) }
    }

    /// Half the distance of the quartiles, in percent of the median.
    pub fn percent(&self) -> f64 {
        50.0 * (self.high - self.low).abs() / self.median.abs().max(f64::MIN_POSITIVE)
    }
}

/// Times all cases, in turns.
pub fn race(what: &str, cases: &mut [Case], effort: Effort) -> Vec<Times> {
    if !std::io::stderr().is_terminal() {
        eprintln!("{what}: {} cases", cases.len());
    }
    let calls: Vec<u32> = cases.iter_mut().map(|case| calls_per_round(case, effort)).collect();
    let mut times = vec![Times { rounds: Vec::with_capacity(effort.rounds) }; cases.len()];
    for round in 0..effort.rounds {
        // Each round begins with another case, so that no case always follows the same neighbour's cache.
        for turn in 0..cases.len() {
            let at = (turn + round) % cases.len();
            progress(&format!("{what}: round {} of {}, {}", round + 1, effort.rounds, cases[at].name));
            times[at].rounds.push(time(&mut cases[at], calls[at]));
        }
    }
    progress("");
    times
}

/// The least power of two of calls that fills a round.
fn calls_per_round(case: &mut Case, effort: Effort) -> u32 {
    let mut calls = 1;
    while time(case, calls) * f64::from(calls) < effort.round_ns as f64 && calls < 1 << 30 {
        calls *= 2;
    }
    calls
}

/// Nanoseconds of one of `calls` calls, after one that warms the caches.
fn time(case: &mut Case, calls: u32) -> f64 {
    if let Some(tier) = case.tier {
        tier.activate();
    }
    (case.work)();
    let start = thread_ns();
    for _ in 0..calls {
        (case.work)();
    }
    (thread_ns() - start) as f64 / f64::from(calls)
}

/// CPU time that this thread has used.
fn thread_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Prints the progress on standard error; on a terminal it overwrites the last message.
fn progress(line: &str) {
    let mut to = std::io::stderr().lock();
    if to.is_terminal() {
        // Nothing depends on this output.
        let _ = write!(to, "\r\x1b[K{line}").and_then(|()| to.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_quartiles_in_any_order() {
        let times = Times { rounds: vec![5.0, 1.0, 3.0, 2.0, 4.0] };
        assert_eq!(times.map(|ns| ns), Spread { low: 2.0, median: 3.0, high: 4.0 });
        assert_eq!(times.map(|ns| ns).percent(), 100.0 / 3.0);
    }

    #[test]
    fn a_ratio_is_taken_within_each_round() {
        // The machine was ten times slower in the second round: the ratio is not.
        let (ours, theirs) = (Times { rounds: vec![2.0, 20.0, 2.0] }, Times { rounds: vec![1.0, 10.0, 1.0] });
        assert_eq!(ours.with(&theirs, |ours, theirs| ours / theirs), Spread { low: 2.0, median: 2.0, high: 2.0 });
    }

    #[test]
    fn every_case_is_called_in_every_round() {
        let (mut first, mut second) = (0u64, 0u64);
        let mut cases = [Case::new("first", || first += 1), Case::new("second", || second += 1)];
        let times = race("test", &mut cases, Effort { round_ns: 1, rounds: 3 });
        drop(cases);
        assert!(times.iter().all(|times| times.rounds.len() == 3));
        assert!(first >= 3 && second >= 3);
    }
}
