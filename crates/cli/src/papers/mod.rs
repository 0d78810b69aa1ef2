//! Papers whose figures and tables this program makes anew: each is a list of experiments, functions from nothing to rows.
//!
//! `tidewire papers` (the verb) runs them and writes the rows; `papers/NAME/README.md` says what the paper has, what came out, and why the
//! two differ; `papers/plot.py` draws them. The same rows come out on every machine.

pub mod row;
mod streaming_code;
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
}

/// All of them.
pub const PAPERS: [Paper; 1] = [streaming_code::PAPER];
