//! `cargo xtask figures`: measures with real processes the figures that the README states, against the goals.
//!
//! Run by hand on a quiet machine, never by `test`: what is timed there depends on who else uses the machine. Every
//! cell is a link; each of its runs sends one file from `tidewire send` through `tidewire lab link` to `tidewire
//! receive`, and reads off their `--json` lines. Invariant: a goal holds only if every run of its cell succeeded, and
//! no figure is printed that was not measured in this call.

mod cell;
mod forward;
mod machine;
mod options;
mod process;
mod run;
mod table;

use crate::context::Context;
use cell::Cell;
pub use machine::Machine;
use options::Options;
use run::{Figures, Folder};
use std::process::ExitCode;
use table::{Measured, Report};

/// The line of `cargo xtask`'s help.
pub const ABOUT: &str = "the README's figures, measured with real processes; `figures --help`";

/// Runs the command with the arguments behind its name: 0 if every goal holds, 1 if not, 2 for a wrong command line.
pub fn main(arguments: &[String]) -> ExitCode {
    if let Some((command, rest)) = arguments.split_first()
        && command == "forward"
    {
        return forward::main(rest);
    }
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        print!("{}", options::HELP);
        return ExitCode::SUCCESS;
    }
    let (options, context) = match options::parse(arguments).and_then(|options| Ok((options, Context::new(false)?))) {
        Ok(ready) => ready,
        Err(problem) => {
            eprintln!("{problem}\n\n{}", options::HELP);
            return ExitCode::from(2);
        }
    };
    match measure(&options, &context, arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// Measures every chosen cell and prints the report; whether all goals hold.
fn measure(options: &Options, context: &Context, arguments: &[String]) -> Result<bool, String> {
    context.run("cargo build --release --package tidewire-cli")?;
    let binary = context.target.join("release").join(format!("tidewire{}", std::env::consts::EXE_SUFFIX));
    let machine = Machine::look(context);
    println!("{machine}");
    let folder = Folder::new(options.bytes)?;
    let setup = run::Setup { binary: &binary, folder: &folder, redundancy: options.redundancy.as_deref() };
    let cells = options.cells();
    let measured: Vec<_> = cells.iter().map(|cell| seeds(cell, options.seeds, &setup)).collect();
    let command = format!("cargo xtask figures {}", arguments.join(" "));
    let report = Report { machine: &machine, command: command.trim_end(), options, measured: &measured };
    let text = report.to_string();
    println!("\n{text}");
    if options.write {
        let path = context.root.join("docs/figures.md");
        std::fs::write(&path, &text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(measured.iter().all(Measured::holds))
}

/// All runs of one cell, a line for each as it ends. One that fails does not hide the others.
fn seeds<'a>(cell: &'a Cell, seeds: u64, setup: &run::Setup<'_>) -> Measured<'a> {
    let mut measured = Measured { cell, runs: Vec::new(), failures: Vec::new() };
    for seed in 1..=seeds {
        match run::run(cell, seed, setup) {
            Ok(figures) => {
                println!("{:<22} seed {seed}: {}", cell.name, line(&figures));
                measured.runs.push(figures);
            }
            Err(problem) => {
                println!("{:<22} seed {seed}: FAILED: {problem}", cell.name);
                measured.failures.push(format!("seed {seed}: {problem}"));
            }
        }
    }
    measured
}

/// What a run measured, for whoever watches.
fn line(figures: &Figures) -> String {
    let mut text = format!(
        "{:.2} Mbit/s = {:.3} C(1-p), steady {:.3}, queue drops {:.2} %, queueing {:.1} ms, sent/app {:.3}, \
         p99 {:.0} ms",
        figures.goodput / 1e6,
        figures.share,
        figures.steady,
        figures.queue_drops,
        figures.queueing_ms,
        figures.sent_per_app,
        figures.delay_ms[3],
    );
    if figures.unseen > 0 {
        text += &format!("; {} packets never reached the emulator: the machine is too busy", figures.unseen);
    }
    text
}
