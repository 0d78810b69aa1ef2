//! `cargo measure figures`: measures the figures that the documents state with real processes, and compares
//! them with the goals.
//!
//! A person runs this command on a quiet machine; no step does, because the times depend on the load of the
//! machine. Each [`Subject`] has rows; a row is a link and a load. Each row is run with several seeds:
//! processes of `tidewire` with `tidewire-lab link` between them, whose `--json` lines are read. Invariants:
//! a goal holds only if every run of its row succeeded, and every printed figure was measured in this call.

mod delay;
pub mod emulator;
mod forward;
mod goal;
mod goodput;
mod lateness;
mod machine;
mod measured;
mod options;
pub mod process;
mod recording;

use crate::context::Context;
use crate::tables;
pub use machine::Machine;
use options::Options;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The line of `cargo xtask`'s help.
pub const ABOUT: &str = "figures of the documents, measured with real processes; `figures --help`";

/// One kind of measurement.
#[derive(Debug)]
pub struct Subject {
    /// The word behind `figures`.
    name: &'static str,
    /// The file of its report, whose tables are files of the same name in docs/data.
    report: &'static str,
    /// Its options, without the common ones.
    options: &'static [&'static str],
    /// Default length of a run, in seconds; 0 where the length of a run is not a time.
    seconds: u64,
    /// The names of its rows.
    rows: fn() -> Vec<String>,
    /// Measures the chosen rows.
    measure: fn(&Session<'_>) -> Result<Report, String>,
}

/// All subjects. The first one is the default.
static SUBJECTS: [Subject; 4] = [goodput::SUBJECT, forward::SUBJECT, delay::SUBJECT, recording::SUBJECT];

/// What every measurement is given.
struct Session<'a> {
    options: &'a Options,
    machine: &'a Machine,
    /// The command line as typed.
    command: &'a str,
    /// `tidewire`, built for release.
    binary: PathBuf,
}

/// The result of a measurement.
struct Report {
    /// In Markdown.
    text: String,
    /// Whether every goal is reached.
    holds: bool,
}

/// Start of the steady state. By then the sender has found rate and loss of the path.
const STEADY_FROM: Duration = Duration::from_secs(3);

/// Runs the command with the arguments behind its name. The exit code is 0 if every goal holds, 1 if one does
/// not, and 2 for a wrong command line.
pub fn main(arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        print!("{}", options::HELP);
        return ExitCode::SUCCESS;
    }
    let ready = options::parse(arguments, &SUBJECTS).and_then(|options| Ok((options, Context::new()?)));
    let (options, context) = match ready {
        Ok(ready) => ready,
        Err(problem) => {
            eprintln!("{problem}\n\n{}", options::HELP);
            return ExitCode::from(2);
        }
    };
    let command = format!("cargo measure figures {}", arguments.join(" "));
    match measure(&options, &context, command.trim_end()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// Measures and prints the report. Returns whether all goals hold.
fn measure(options: &Options, context: &Context, command: &str) -> Result<bool, String> {
    let binary = context.commands()?;
    // The example writes recordings for `figures recording`.
    context.run("cargo build --release --package tidewire-recording --example long_recording")?;
    let machine = Machine::look(context);
    println!("{machine}");
    let Report { text, holds } = (options.subject.measure)(&Session { options, machine: &machine, command, binary })?;
    println!("\n{text}");
    if options.write {
        let path = context.root.join(options.subject.report);
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let split = tables::split(&text, &name, &name);
        std::fs::write(&path, &split.page).map_err(|e| format!("{}: {e}", path.display()))?;
        tables::save(&context.root, &split.files)?;
    }
    Ok(holds)
}

#[cfg(test)]
impl Options {
    /// The options in `line`, which must be correct.
    fn example(line: &str) -> Self {
        options::parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>(), &SUBJECTS).unwrap()
    }
}
