//! Experiments of published papers, made anew: each case of an experiment is a plain function from what is
//! run to rows.
//!
//! The verb `tidewire-lab papers` and tests are the callers; whoever has many machines can give them a
//! [`Case`] each. `papers/NAME/README.md` says what the paper has, what came out, and why the two differ; the
//! Python package draws the rows. Nothing here prints: progress of what takes real time is told through a
//! function that the caller gives.
//!
//! Invariant: the rows of an [`Experiment`] are the same on every machine and in every order of its cases.
//! Those of a `LabExperiment` are measured in real time over the lab's link (Linux, root), lie in files of
//! their own and say where and when they were measured.
//!
//! ```
//! let paper = tidewire_papers::PAPERS.iter().find(|paper| paper.name == "streaming-code-5g").unwrap();
//! let table = paper.experiments.iter().find(|experiment| experiment.name == "table-1").unwrap();
//! // The paper's Table I in four digits: 0.6700 operations per symbol at 2 % of loss and half load.
//! let rows = table.rows(false);
//! assert_eq!((rows[0].loss, rows[0].parameter, (1e2 * rows[0].value).trunc()), (0.02, 0.5, 67.0));
//! // One case alone, as another process would run it.
//! assert_eq!((table.cases)(false)[0]()[0].value, rows[0].value);
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod compare;
#[cfg(target_os = "linux")]
pub mod conditions;
pub mod fairness;
#[cfg(target_os = "linux")]
pub mod lab;
pub mod rcdp;
pub mod row;
pub mod sphinx;
pub mod streaming_code;
pub mod variable_bucket;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use row::Row;

/// All papers, and the comparison of all profiles.
pub const PAPERS: [Paper; 6] =
    [streaming_code::PAPER, sphinx::PAPER, rcdp::PAPER, fairness::PAPER, variable_bucket::PAPER, compare::PAPER];

/// A paper that can be reproduced.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// Its name on the command line, and its folder in `papers/`.
    pub name: &'static str,
    /// Authors and title.
    pub title: &'static str,
    /// Its figures and tables.
    pub experiments: &'static [Experiment],
    /// The experiments that are also measured in real time.
    #[cfg(target_os = "linux")]
    pub lab: &'static [LabExperiment],
}

/// One figure or table.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Name of its files.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// Its cases, in the order of their rows. With `full`, each has more symbols and seeds.
    pub cases: fn(full: bool) -> Vec<Case>,
}

/// Points of a figure that are measured in real time over the lab's link, as root.
#[cfg(target_os = "linux")]
#[derive(Clone, Copy, Debug)]
pub struct LabExperiment {
    /// Name of its files.
    pub name: &'static str,
    /// What it adds to the figure.
    pub title: &'static str,
    /// Its cases, in the order of their rows.
    pub cases: fn() -> Vec<LabCase>,
}

/// An independent part of an experiment: a function without arguments that returns its rows.
pub type Case = Box<dyn Fn() -> Vec<Row> + Send + Sync>;

/// The same in real time. It tells the [`Runs`](lab::Runs) what ran and what failed.
#[cfg(target_os = "linux")]
pub type LabCase = Box<dyn Fn(&mut lab::Runs<'_>) -> Vec<Row> + Send + Sync>;

impl Paper {
    /// The rows of an experiment as a table in Markdown, if the paper has one.
    pub fn table(&self, rows: &[Row]) -> Option<String> {
        (self.name == compare::PAPER.name).then(|| compare::table(rows))
    }
}

impl Experiment {
    /// The rows of all cases, computed on as many threads as there are processors.
    pub fn rows(&self, full: bool) -> Vec<Row> {
        let (cases, next) = ((self.cases)(full), AtomicUsize::new(0));
        let rows: Vec<OnceLock<Vec<Row>>> = cases.iter().map(|_| OnceLock::new()).collect();
        let work = || {
            let turns = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
            for (case, rows) in turns.map_while(|turn| cases.get(turn).zip(rows.get(turn))) {
                rows.get_or_init(case);
            }
        };
        let others = thread::available_parallelism().map_or(0, |all| all.get() - 1);
        thread::scope(|scope| {
            (0..others).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        rows.into_iter().filter_map(OnceLock::into_inner).flatten().collect()
    }
}

/// A case for each of `all`.
fn cases<T: Send + Sync + 'static>(all: impl IntoIterator<Item = T>, run: fn(&T) -> Vec<Row>) -> Vec<Case> {
    all.into_iter().map(|one| Box::new(move || run(&one)) as Case).collect()
}

/// A case in real time for each of `all`.
#[cfg(target_os = "linux")]
fn lab_cases<T: Send + Sync + 'static>(
    all: impl IntoIterator<Item = T>,
    run: fn(&T, &mut lab::Runs<'_>) -> Vec<Row>,
) -> Vec<LabCase> {
    all.into_iter().map(|one| Box::new(move |runs: &mut lab::Runs<'_>| run(&one, runs)) as LabCase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use row::How;

    #[test]
    fn rows_come_in_the_order_of_their_cases() {
        fn run(n: &u32) -> Vec<Row> {
            vec![Row::new("x", How::Model, 0.0, f64::from(*n), 0.0); *n as usize % 3]
        }
        let all = |full| cases(0..if full { 1_000 } else { 100 }, run);
        let experiment = Experiment { name: "x", title: "x", cases: all };
        for (full, count) in [(false, 100), (true, 1_000)] {
            let wanted: Vec<f64> = (0..count).flat_map(|n| run(&n)).map(|row| row.parameter).collect();
            assert_eq!(experiment.rows(full).iter().map(|row| row.parameter).collect::<Vec<_>>(), wanted);
        }
    }

    #[test]
    fn names_are_those_of_one_paper_and_one_experiment() {
        for paper in &PAPERS {
            assert_eq!(PAPERS.iter().filter(|other| other.name == paper.name).count(), 1);
            for experiment in paper.experiments {
                let alike = paper.experiments.iter().filter(|other| other.name == experiment.name);
                assert_eq!(alike.count(), 1, "{}", experiment.name);
            }
        }
    }
}
