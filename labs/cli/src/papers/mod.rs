//! `tidewire-lab papers [NAME]`: lists the papers, or computes the data of one paper's figures and tables.
//!
//! The rows go into files, and with `--json` also to stdout. Invariant: `--json` writes the rows of a figure
//! after its files.

mod cells;

use std::path::{Path, PathBuf};
use std::time::Instant;
use std::{fs, io};

use serde::Serialize;
use tidewire_figures::csv;
#[cfg(target_os = "linux")]
use tidewire_lab::hosts::Hosts;
use tidewire_papers::row::{self, Row};
use tidewire_papers::{PAPERS, Paper};
#[cfg(target_os = "linux")]
use tidewire_papers::{conditions::Conditions, lab::Runs, lab::Told};

#[cfg(target_os = "linux")]
use tidewire_command::exit::OrExit;
use tidewire_command::exit::{Exit, Failure};
use tidewire_command::options::Output;
use tidewire_command::report::Console;
#[cfg(target_os = "linux")]
use tidewire_command::report::rate;
use tidewire_command::stdout;

/// Arguments of `papers`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Paper to reproduce. Without it, the papers are listed
    name: Option<String>,
    /// Reproduce only this figure or table [example: figure-6]
    #[arg(long, value_name = "NAME", requires = "name")]
    only: Option<String>,
    /// Folder to write the data to [default: papers/NAME/data, with --lab papers/NAME/lab]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Simulate more: ten times as many symbols and twenty seeds instead of three, or the paper's 5,000
    /// blocks instead of 400
    #[arg(long)]
    full: bool,
    /// Run the cells of each experiment as processes, by the Python package: `processes` takes the processors
    /// of this machine, dask://HOST:PORT the workers of a Dask scheduler. The rows are the same
    #[arg(long, value_name = "EXECUTOR", requires = "name")]
    executor: Option<String>,
    /// Run only this cell of the experiment, counted from 0, and print its rows without writing a file
    #[arg(long, value_name = "N", requires_all = ["only", "json"], conflicts_with_all = ["out", "executor"])]
    cell: Option<usize>,
    /// Measure the real transport and kernel TCP over the lab's link in real time instead. It needs root and
    /// some minutes
    #[cfg(target_os = "linux")]
    #[arg(long, requires = "name", conflicts_with_all = ["full", "executor", "cell"])]
    lab: bool,
    #[command(flatten)]
    pub(super) output: Output,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// A point of a figure, as in its files.
    FigureRow {
        paper: &'a str,
        figure: &'a str,
        #[serde(flatten)]
        row: &'a Row,
    },
}

/// Lists the papers, or runs one.
///
/// # Errors
/// [`Exit::Usage`] for an unknown name, [`Exit::LocalIo`] if the data cannot be written, [`Exit::Other`] if
/// the lab cannot start, or one of its runs or a process of `--executor` failed.
pub fn run(args: &Args, console: &Console) -> Result<(), Failure> {
    let Some(name) = &args.name else {
        for paper in &PAPERS {
            stdout::write_line(&format!("{:<20} {}", paper.name, paper.title));
        }
        return Ok(());
    };
    let known = PAPERS.map(|paper| paper.name).join(", ");
    let paper = PAPERS.iter().find(|paper| paper.name == name);
    let paper = paper.ok_or_else(|| {
        Failure::message(Exit::Usage, format_args!("`{name}` is not a paper; the papers are: {known}"))
    })?;
    #[cfg(target_os = "linux")]
    if args.lab {
        return measure(paper, args, console);
    }
    reproduce(paper, args, console)
}

fn reproduce(paper: &Paper, args: &Args, console: &Console) -> Result<(), Failure> {
    let folder = args.folder(paper, "data");
    for experiment in args.wanted(paper.experiments, |experiment| experiment.name)? {
        let began = Instant::now();
        if let Some(cell) = args.cell {
            show(paper, experiment.name, &cells::one(experiment, cell, args.full)?, console);
            continue;
        }
        let rows = match &args.executor {
            Some(executor) => cells::all(paper, experiment, args.full, executor)?,
            None => experiment.rows(args.full),
        };
        let written = row::write(&folder, experiment.name, &rows);
        let table = paper.table(&rows).map(|table| csv::of_markdown(&table));
        let written = written.and_then(|()| table.map_or(Ok(()), |table| fs::write(folder.join("table.csv"), table)));
        written.map_err(|error| unwritten(&folder, &error))?;
        show(paper, experiment.name, &rows, console);
        let seconds = began.elapsed().as_secs_f64();
        console.say(&format!("{}: {}, {} rows, {seconds:.1} s", experiment.name, experiment.title, rows.len()));
    }
    Ok(())
}

/// Prints the rows as events, or as the table of the paper, if it has one.
fn show(paper: &Paper, figure: &str, rows: &[Row], console: &Console) {
    rows.iter().for_each(|row| console.event(&Event::FigureRow { paper: paper.name, figure, row }));
    if let Some(table) = paper.table(rows).filter(|_| !console.json()) {
        table.lines().for_each(|line| console.print(line));
    }
}

/// Runs the experiments of a paper that are measured in real time.
#[cfg(target_os = "linux")]
fn measure(paper: &Paper, args: &Args, console: &Console) -> Result<(), Failure> {
    let folder = args.folder(paper, "lab");
    if paper.lab.is_empty() {
        let text = format!("no part of `{}` is measured in real time: leave out --lab", paper.name);
        return Err(Failure::message(Exit::Usage, text));
    }
    let wanted = args.wanted(paper.lab, |experiment| experiment.name)?;
    // A lab that cannot start must fail now, not after minutes of measurements.
    drop(Hosts::start().or_exit(Exit::Other)?);
    let (program, conditions) = (crate::product::file().or_exit(Exit::Other)?, Conditions::look());
    let tell = |told: Told<'_>| tell(told, console);
    let mut failed = Vec::new();
    for experiment in wanted {
        console.say(&format!("{}: {}", experiment.name, experiment.title));
        let (began, mut runs) = (Instant::now(), Runs::new(&program, &tell));
        let rows: Vec<_> = (experiment.cases)().iter().flat_map(|case| case(&mut runs)).collect();
        failed.extend_from_slice(runs.failed());
        if rows.is_empty() {
            // Keep the data of an earlier run rather than overwrite it with nothing.
            continue;
        }
        runs.write(&folder, experiment.name, &conditions, &rows).map_err(|error| unwritten(&folder, &error))?;
        show(paper, experiment.name, &rows, console);
        console.say(&format!("{}: {} rows, {:.1} s", experiment.name, rows.len(), began.elapsed().as_secs_f64()));
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::message(Exit::Other, format_args!("runs failed: {}", failed.join("; "))))
}

/// Reports the result of a run.
#[cfg(target_os = "linux")]
fn tell(told: Told<'_>, console: &Console) {
    match told {
        Told::Done(run) => console.say(&format!(
            "  {}, loss {} %: mean delay {:.1} ms, {}",
            run.name,
            100.0 * run.loss,
            run.mean_delay_ms,
            rate(run.goodput_bps)
        )),
        Told::Failed { name, problem } => console.warn(&format!("  {name}: {problem:#}")),
    }
}

fn unwritten(folder: &Path, error: &io::Error) -> Failure {
    Failure::message(Exit::LocalIo, format_args!("cannot write into `{}`: {error}", folder.display()))
}

impl Args {
    /// Returns the folder of `--out`, or else the folder `usual` of the paper.
    fn folder(&self, paper: &Paper, usual: &str) -> PathBuf {
        self.out.clone().unwrap_or_else(|| ["papers", paper.name, usual].iter().collect())
    }

    /// Returns the experiments that `--only` names, or all of them.
    fn wanted<'a, T>(&self, all: &'a [T], name: impl Fn(&T) -> &'static str) -> Result<Vec<&'a T>, Failure> {
        let is_wanted = |experiment: &&T| self.only.as_deref().is_none_or(|only| only == name(experiment));
        let wanted: Vec<&T> = all.iter().filter(is_wanted).collect();
        if wanted.is_empty() {
            let names: Vec<_> = all.iter().map(name).collect();
            return Err(Failure::message(
                Exit::Usage,
                format_args!("--only names no experiment; the experiments are: {}", names.join(", ")),
            ));
        }
        Ok(wanted)
    }
}
