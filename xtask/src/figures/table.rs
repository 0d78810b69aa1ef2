//! The report: medians of each cell beside their goals, in Markdown.

use super::cell::{BACK_PER_APP, Cell, Goal, QUEUE_DROPS, QUEUEING_MS, SENT_PER_APP, STEADY};
use super::machine::Machine;
use super::options::Options;
use super::run::Figures;
use std::fmt;

/// The runs of one cell.
pub struct Measured<'a> {
    pub cell: &'a Cell,
    pub runs: Vec<Figures>,
    /// Why others gave no figures.
    pub failures: Vec<String>,
}

impl Measured<'_> {
    /// Whether every run succeeded and every goal of the cell holds.
    pub fn holds(&self) -> bool {
        self.failures.is_empty() && self.figures().iter().all(Figure::holds)
    }

    /// The figures of the first table, in the order of its columns.
    fn figures(&self) -> [Figure; 7] {
        let median = |of: fn(&Figures) -> f64| self.median(of);
        let sent = (self.cell.p == 0.0).then_some(SENT_PER_APP);
        [
            Figure::new(median(|run| run.goodput / 1e6), 2, None),
            Figure::new(median(|run| run.share), 3, Some(Goal::AtLeast(self.cell.least_share))),
            Figure::new(median(|run| run.steady), 3, Some(STEADY)),
            Figure::new(median(|run| run.queue_drops), 2, Some(QUEUE_DROPS)),
            Figure::new(median(|run| run.queueing_ms), 1, Some(QUEUEING_MS)),
            Figure::new(median(|run| run.sent_per_app), 3, sent),
            Figure::new(median(|run| run.back_per_app), 3, Some(BACK_PER_APP)),
        ]
    }

    /// The median of a figure over all runs; no number without a run.
    fn median(&self, of: impl Fn(&Figures) -> f64) -> f64 {
        median(self.runs.iter().map(of))
    }

    /// Medians of an array of figures, separated by slashes.
    fn medians<const N: usize>(&self, decimals: usize, of: fn(&Figures) -> [f64; N]) -> String {
        let medians = (0..N).map(|index| self.median(|run| of(run)[index]));
        medians.map(|median| shown(median, decimals)).collect::<Vec<_>>().join(" / ")
    }
}

/// The middle of `values`; no number of none.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match (values.len(), values.len() / 2) {
        (0, _) => f64::NAN,
        (count, middle) if count % 2 == 1 => values[middle],
        (_, middle) => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// One value and what it is held to.
pub struct Figure {
    value: f64,
    decimals: usize,
    goal: Option<Goal>,
}

impl Figure {
    pub fn new(value: f64, decimals: usize, goal: Option<Goal>) -> Self {
        Self { value, decimals, goal }
    }

    /// Whether the goal is reached, if there is one.
    pub fn holds(&self) -> bool {
        self.goal.is_none_or(|goal| goal.holds(self.value))
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { value, decimals, goal } = *self;
        f.write_str(&shown(value, decimals))?;
        match goal {
            None => return Ok(()),
            Some(Goal::AtLeast(least)) => write!(f, " >= {least}")?,
            Some(Goal::AtMost(most)) => write!(f, " <= {most}")?,
        }
        write!(f, " {}", if goal.is_some_and(|goal| goal.holds(value)) { "ok" } else { "**MISSED**" })
    }
}

/// A value as the tables have it; a dash where no run gave one.
fn shown(value: f64, decimals: usize) -> String {
    if value.is_nan() { "-".into() } else { format!("{value:.decimals$}") }
}

/// Everything that was measured and how.
pub struct Report<'a> {
    pub machine: &'a Machine,
    /// As typed.
    pub command: &'a str,
    pub options: &'a Options,
    pub measured: &'a [Measured<'a>],
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.introduction(f)?;
        heading(f, &GOAL_COLUMNS)?;
        for measured in self.measured {
            let figures = measured.figures().map(|figure| figure.to_string());
            writeln!(f, "| {} | {} |", measured.cell.name, figures.join(" | "))?;
        }
        writeln!(f)?;
        heading(f, &OTHER_COLUMNS)?;
        for measured in self.measured {
            let [delay, symbols, repairs] = [
                measured.medians(1, |run| run.delay_ms),
                measured.medians(0, |run| run.symbols),
                measured.medians(0, |run| run.repairs),
            ];
            let (good, all) = (measured.runs.len(), measured.runs.len() + measured.failures.len());
            writeln!(f, "| {} | {delay} | {symbols} | {repairs} | {good} of {all} |", measured.cell.name)?;
        }
        self.verdict(f)
    }
}

/// The first two lines of a table.
pub fn heading(f: &mut fmt::Formatter<'_>, columns: &[&str]) -> fmt::Result {
    writeln!(f, "| {} |\n|{}", columns.join(" | "), " --- |".repeat(columns.len()))
}

/// What is held to goals, in the order of [`Measured::figures`].
const GOAL_COLUMNS: [&str; 8] = [
    "loss",
    "goodput Mbit/s",
    "share of C(1-p)",
    "steady share",
    "queue drops %",
    "queueing ms",
    "sent/app",
    "back/app",
];
/// What is only reported.
const OTHER_COLUMNS: [&str; 5] = [
    "loss",
    "delay mean / p50 / p95 / p99 ms",
    "symbols direct / repaired / resent",
    "repairs proactive / on feedback",
    "file identical",
];

impl Report<'_> {
    fn introduction(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { seeds, bytes, redundancy, .. } = self.options;
        let megabytes = *bytes as f64 / 1e6;
        let policy = redundancy.as_deref().unwrap_or("the default");
        writeln!(f, "# Figures\n\nWritten by `{}`.\n{}\n", self.command, self.machine)?;
        writeln!(
            f,
            "One file of {megabytes} MB over a link of 25 Mbit/s and 60 ms (queue 60 ms), as three processes on loopback;\n\
             redundancy: {policy}. Medians over {seeds} seeds, one run each; a value with a bound is a goal.\n\n\
             C is the link's rate in IP bytes, p the loss. Goodput: bytes of the file from the start of the sender's\n\
             process until it says that the file is whole and verified; steady: bytes in order at the receiver from 3 s\n\
             on. Queue drops: of the packets that came to the link. sent/app and back/app: IP bytes there and back per\n\
             byte of the file. Delay: in order, of symbols.\n"
        )
    }

    fn verdict(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for measured in self.measured {
            for failure in &measured.failures {
                writeln!(f, "\n{} **FAILED**, {failure}", measured.cell.name)?;
            }
        }
        match self.measured.iter().filter(|measured| !measured.holds()).count() {
            0 => writeln!(f, "\nEvery goal is reached."),
            missed => writeln!(f, "\n{missed} of {} rows miss a goal.", self.measured.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cell::CELLS;
    use super::*;

    fn run(share: f64) -> Figures {
        Figures {
            goodput: 25e6 * share,
            share,
            steady: 0.95,
            queue_drops: 1.0,
            queueing_ms: 4.0,
            sent_per_app: 1.05,
            back_per_app: 0.02,
            delay_ms: [5.0, 1.0, 20.0, 50.0],
            symbols: [900.0, 90.0, 10.0],
            repairs: [100.0, 5.0],
            unseen: 0,
        }
    }

    fn measured(shares: &[f64]) -> Measured<'static> {
        Measured { cell: &CELLS[0], runs: shares.iter().map(|share| run(*share)).collect(), failures: Vec::new() }
    }

    #[test]
    fn the_median_decides_and_every_run_must_succeed() {
        assert_eq!(measured(&[0.9, 0.7, 0.89]).median(|run| run.share), 0.89);
        assert_eq!(measured(&[0.5, 0.75]).median(|run| run.share), 0.625);
        assert!(measured(&[0.9, 0.7, 0.89]).holds());
        assert!(!measured(&[0.9, 0.7, 0.87]).holds());
        assert!(!measured(&[]).holds());
        assert_eq!(measured(&[]).figures()[1].to_string(), "- >= 0.88 **MISSED**");
        let failed = Measured { failures: vec!["seed 2: no answer".into()], ..measured(&[0.9]) };
        assert!(!failed.holds());
    }

    #[test]
    fn each_goal_can_be_missed() {
        let spoil: [fn(&mut Figures); 6] = [
            |run| run.share = 0.87,
            |run| run.steady = 0.89,
            |run| run.queue_drops = 3.0,
            |run| run.queueing_ms = 11.0,
            |run| run.sent_per_app = 1.11,
            |run| run.back_per_app = 0.05,
        ];
        for (index, spoil) in spoil.into_iter().enumerate() {
            let mut measured = measured(&[0.9]);
            spoil(&mut measured.runs[0]);
            let missed = measured.figures().map(|figure| figure.to_string().contains("MISSED"));
            assert!(!measured.holds() && missed.iter().filter(|missed| **missed).count() == 1, "{index}");
        }
    }

    #[test]
    fn bytes_sent_are_a_goal_only_where_nothing_is_lost() {
        let mut lossy = Measured { cell: &CELLS[4], ..measured(&[0.9]) };
        lossy.runs[0].sent_per_app = 1.3;
        assert!(lossy.holds());
        assert_eq!(lossy.medians(0, |run| run.symbols), "900 / 90 / 10");
        assert_eq!(lossy.figures()[1].to_string(), "0.900 >= 0.88 ok");
    }
}
