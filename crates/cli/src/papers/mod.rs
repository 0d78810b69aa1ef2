//! Papers whose figures and tables this program makes anew: each is a list of experiments, functions from nothing to rows.
//!
//! `tidewire papers` (the verb) runs them and writes the rows; `papers/NAME/README.md` says what the paper has, what came out, and why the
//! two differ; `papers/plot.py` draws them. The same rows come out on every machine, but for those of `--lab`: they are measured in real time
//! over the lab's link, lie in files of their own and say where and when.

#[cfg(target_os = "linux")]
pub mod conditions;
#[cfg(target_os = "linux")]
pub mod lab_runs;
pub mod row;
mod streaming_code;
#[cfg(target_os = "linux")]
mod streaming_lab;
mod streaming_runs;

use row::Row;

/// One figure or table.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Name of its files.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// Its data; more seeds and symbols when `full`.
    pub run: fn(full: bool) -> Vec<Row>,
}

/// A paper that can be reproduced.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// What it is called on the command line, and its folder in `papers/`.
    pub name: &'static str,
    /// Authors and title.
    pub title: &'static str,
    /// Its figures and tables.
    pub experiments: &'static [Experiment],
    /// Those of them that are also measured in real time.
    #[cfg(target_os = "linux")]
    pub lab: &'static [LabExperiment],
}

/// Points of a figure measured in real time over the lab's link; root.
#[cfg(target_os = "linux")]
#[derive(Clone, Copy, Debug)]
pub struct LabExperiment {
    /// Name of its files.
    pub name: &'static str,
    /// What it adds to the figure.
    pub title: &'static str,
    /// Runs it.
    pub run: fn(runs: &mut lab_runs::Runs<'_>) -> Vec<Row>,
}

/// All of them.
pub const PAPERS: [Paper; 1] = [streaming_code::PAPER];
