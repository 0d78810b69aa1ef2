//! The report in Markdown: medians of each cell with their goals.

use super::super::Session;
use super::super::goal::{Figure, Goal, heading, shown};
use super::super::measured::Measured;
use super::super::options::Options;
use super::cell::{BACK_PER_APP, Cell, QUEUE_DROPS, QUEUEING_MS, SENT_PER_APP, STEADY};
use super::run::Figures;
use std::fmt;

/// The runs of one cell.
pub struct Row<'a> {
    pub cell: &'a Cell,
    pub measured: Measured<Figures>,
}

impl Row<'_> {
    /// Whether every run succeeded and every goal of the cell holds.
    pub fn holds(&self) -> bool {
        self.measured.failures.is_empty() && self.figures().iter().all(Figure::holds)
    }

    /// The figures of the first table, in the order of its columns.
    fn figures(&self) -> [Figure; 7] {
        let median = |of: fn(&Figures) -> f64| self.measured.median(of);
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

    /// Medians of an array of figures, separated by slashes.
    fn medians<const N: usize>(&self, decimals: usize, of: fn(&Figures) -> [f64; N]) -> String {
        let medians = (0..N).map(|index| self.measured.median(|run| of(run)[index]));
        medians.map(|median| shown(median, decimals)).collect::<Vec<_>>().join(" / ")
    }
}

/// All rows, and how they were measured.
pub struct Text<'a> {
    pub session: &'a Session<'a>,
    pub rows: &'a [Row<'a>],
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.introduction(f)?;
        writeln!(f, "## Goodput and cost\n")?;
        heading(f, &GOAL_COLUMNS)?;
        for row in self.rows {
            let figures = row.figures().map(|figure| figure.to_string());
            writeln!(f, "| {} | {} |", row.cell.name, figures.join(" | "))?;
        }
        writeln!(f)?;
        writeln!(f, "## Delay and repairs\n")?;
        heading(f, &OTHER_COLUMNS)?;
        for row in self.rows {
            let [delay, symbols, repairs] = [
                row.medians(1, |run| run.delay_ms),
                row.medians(0, |run| run.symbols),
                row.medians(0, |run| run.repairs),
            ];
            let (good, bad) = (row.measured.runs.len(), row.measured.failures.len());
            writeln!(f, "| {} | {delay} | {symbols} | {repairs} | {good} of {} |", row.cell.name, good + bad)?;
        }
        self.verdict(f)
    }
}

/// Columns with goals, in the order of [`Row::figures`].
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
/// Columns without goals.
const OTHER_COLUMNS: [&str; 5] = [
    "loss",
    "delay mean / p50 / p95 / p99 ms",
    "symbols direct / repaired / resent",
    "repairs proactive / on feedback",
    "file identical",
];

impl Text<'_> {
    fn introduction(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Session { machine, command, options, .. } = self.session;
        let Options { seeds, bytes, redundancy, .. } = options;
        let megabytes = *bytes as f64 / 1e6;
        let policy = redundancy.as_deref().unwrap_or("the default");
        writeln!(f, "# Figures\n\nWritten by `{command}`.\n{machine}\n")?;
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
        for row in self.rows {
            for failure in &row.measured.failures {
                writeln!(f, "\n{} **FAILED**, {failure}", row.cell.name)?;
            }
        }
        match self.rows.iter().filter(|row| !row.holds()).count() {
            0 => writeln!(f, "\nEvery goal is reached."),
            missed => writeln!(f, "\n{missed} of {} rows miss a goal.", self.rows.len()),
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

    fn row(shares: &[f64]) -> Row<'static> {
        let measured = Measured { runs: shares.iter().map(|share| run(*share)).collect(), failures: Vec::new() };
        Row { cell: &CELLS[0], measured }
    }

    #[test]
    fn the_median_decides_and_every_run_must_succeed() {
        assert!(row(&[0.9, 0.7, 0.89]).holds());
        assert!(!row(&[0.9, 0.7, 0.87]).holds());
        assert!(!row(&[]).holds());
        assert_eq!(row(&[]).figures()[1].to_string(), "- >= 0.88 **MISSED**");
        let mut failed = row(&[0.9]);
        failed.measured.failures.push("seed 2: no answer".into());
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
            let mut row = row(&[0.9]);
            spoil(&mut row.measured.runs[0]);
            let missed = row.figures().map(|figure| figure.to_string().contains("MISSED"));
            assert!(!row.holds() && missed.iter().filter(|missed| **missed).count() == 1, "{index}");
        }
    }

    #[test]
    fn bytes_sent_are_a_goal_only_where_nothing_is_lost() {
        let mut lossy = Row { cell: &CELLS[4], ..row(&[0.9]) };
        lossy.measured.runs[0].sent_per_app = 1.3;
        assert!(lossy.holds());
        assert_eq!(lossy.medians(0, |run| run.symbols), "900 / 90 / 10");
    }
}
