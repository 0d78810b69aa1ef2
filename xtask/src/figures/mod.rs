//! `cargo xtask figures`: measures with real processes what documents state as figures, against the goals.
//!
//! Run by hand on a quiet machine, never by `test`: what is timed there depends on who else uses the machine. Each
//! [`Subject`] has rows, a row is a link and a load, and each is run with several seeds: processes of `tidewire` with
//! `tidewire lab link` between them, whose `--json` lines are read. Invariant: a goal holds only if every run of its
//! row succeeded, and no figure is printed that was not measured in this call.

mod delay;
mod emulator;
mod forward;
mod goal;
mod goodput;
mod lateness;
mod machine;
mod measured;
mod options;
mod process;

use crate::context::Context;
pub use machine::Machine;
use options::Options;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The line of `cargo xtask`'s help.
pub const ABOUT: &str = "figures of the documents, measured with real processes; `figures --help`";

/// Something to be measured.
#[derive(Debug)]
pub struct Subject {
    /// The word behind `figures`.
    name: &'static str,
    /// The file with its report.
    report: &'static str,
    /// The options that it has beside the common ones.
    options: &'static [&'static str],
    /// Length of a run unless told otherwise, where that is a time.
    seconds: u64,
    /// The names of its rows.
    rows: fn() -> Vec<String>,
    /// Measures the rows that are wanted.
    measure: fn(&Session<'_>) -> Result<Report, String>,
}

/// All subjects; the first needs no word.
static SUBJECTS: [Subject; 3] = [goodput::SUBJECT, forward::SUBJECT, delay::SUBJECT];

/// What every measurement is given.
struct Session<'a> {
    options: &'a Options,
    machine: &'a Machine,
    /// As typed.
    command: &'a str,
    /// `tidewire`, built for release.
    binary: PathBuf,
}

/// What it gives.
struct Report {
    /// In Markdown.
    text: String,
    /// Whether every goal is reached.
    holds: bool,
}

/// When the steady state begins: rate and loss of the path are found (PEERS L2 measures from the third second on).
const STEADY_FROM: Duration = Duration::from_secs(3);

/// Runs the command with the arguments behind its name: 0 if every goal holds, 1 if not, 2 for a wrong command line.
pub fn main(arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        print!("{}", options::HELP);
        return ExitCode::SUCCESS;
    }
    let ready = options::parse(arguments, &SUBJECTS).and_then(|options| Ok((options, Context::new(false)?)));
    let (options, context) = match ready {
        Ok(ready) => ready,
        Err(problem) => {
            eprintln!("{problem}\n\n{}", options::HELP);
            return ExitCode::from(2);
        }
    };
    let command = format!("cargo xtask figures {}", arguments.join(" "));
    match measure(&options, &context, command.trim_end()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// Measures, prints the report; whether all goals hold.
fn measure(options: &Options, context: &Context, command: &str) -> Result<bool, String> {
    context.run("cargo build --release --package tidewire-cli")?;
    let binary = context.target.join("release").join(format!("tidewire{}", std::env::consts::EXE_SUFFIX));
    let machine = Machine::look(context);
    println!("{machine}");
    let Report { text, holds } = (options.subject.measure)(&Session { options, machine: &machine, command, binary })?;
    println!("\n{text}");
    if options.write {
        let path = context.root.join(options.subject.report);
        std::fs::write(&path, &text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(holds)
}

#[cfg(test)]
impl Options {
    /// Those of `line`, which must be right.
    fn example(line: &str) -> Self {
        options::parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>(), &SUBJECTS).unwrap()
    }
}
