//! Cells of an experiment as processes: one (`--cell`), or all of them by the sweeps of the Python package
//! (`--executor`).
//!
//! A cell is a case of the experiment, by its number. `--executor` starts `python -m tidewire.papers`, whose
//! workers start this command with `--cell N --json`. So processes and clusters run the same code as this
//! process does, and the Python package needs no copy of the experiments. Invariant: rows come in the order
//! of the cells, and a cell that failed fails the experiment.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use tidewire_papers::row::Row;
use tidewire_papers::{Experiment, Paper};

use tidewire_command::exit::{Exit, Failure, OrExit};

/// Names the interpreter that has the Python package.
const PYTHON_VARIABLE: &str = "TIDEWIRE_PYTHON";

pub fn one(experiment: &Experiment, cell: usize, full: bool) -> Result<Vec<Row>, Failure> {
    let cases = (experiment.cases)(full);
    let case = cases.get(cell).ok_or_else(|| {
        let (name, count) = (experiment.name, cases.len());
        Failure::message(Exit::Usage, format_args!("--cell {cell}: {name} has {count} cells, counted from 0"))
    })?;
    Ok(case())
}

/// Returns the rows of all cells, which the workers of `executor` run.
pub fn all(paper: &Paper, experiment: &Experiment, full: bool, executor: &str) -> Result<Vec<Row>, Failure> {
    let interpreter = std::env::var_os(PYTHON_VARIABLE).unwrap_or_else(|| OsString::from("python3"));
    let cells = (experiment.cases)(full).len().to_string();
    let mut python = Command::new(&interpreter);
    python.args(["-m", "tidewire.papers", paper.name, experiment.name, "--cells", &cells, "--executor", executor]);
    python.arg("--command").arg(std::env::current_exe().or_exit(Exit::Other)?);
    if full {
        python.arg("--full");
    }
    let ran = python.stdin(Stdio::null()).stderr(Stdio::inherit()).output().map_err(|error| {
        let text = format_args!(
            "cannot start `{}`: {error}; set {PYTHON_VARIABLE} to the interpreter that has the Python package",
            interpreter.display()
        );
        Failure::message(Exit::Other, text)
    })?;
    if !ran.status.success() {
        let text = format_args!("`{} -m tidewire.papers` failed: {}", interpreter.display(), ran.status);
        return Err(Failure::message(Exit::Other, text));
    }
    let lines = ran.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let rows = lines.map(serde_json::from_slice).collect::<Result<_, _>>();
    rows.map_err(|error| Failure::message(Exit::Other, format_args!("a worker printed no row: {error}")))
}
