//! `cargo xtask figures forward`: the delay of records that cross `tidewire forward` and `serve`, against the goals of L1; and what two hundred
//! connections notice of one that nobody reads.
//!
//! As [`super`], run by hand on a quiet machine. The applications are threads of this process, everything between them are real processes.
//! Invariant: records that did not all arrive give no figures.

mod application;
mod crowd;
mod delay;
mod report;
mod stage;

use std::process::ExitCode;
use std::time::Duration;

use super::machine::Machine;
use crate::context::Context;
use report::{Measured, Report};

/// One way over the link, of `cell::LINK_OPTIONS`.
const ONE_WAY: Duration = Duration::from_millis(30);
/// How much longer than planned a run may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Seconds of a run unless told otherwise: as the peers were measured.
const SECONDS: u64 = 12;

/// What was asked for.
#[derive(Debug, PartialEq)]
struct Options {
    seeds: u64,
    seconds: u64,
    only: String,
    write: bool,
}

/// Runs the command with the arguments behind its name: 0 if every goal holds, 1 if not, 2 for a wrong command line.
pub fn main(arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let (options, context) = match parse(arguments).and_then(|options| Ok((options, Context::new(false)?))) {
        Ok(ready) => ready,
        Err(problem) => {
            eprintln!("{problem}\n\n{HELP}");
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

fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options { seeds: 3, seconds: SECONDS, only: String::new(), write: false };
    let mut rest = arguments.iter();
    while let Some(option) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("`{option}` is no option, or lacks its value"));
        let number = |text: &String| text.parse().map_err(|_| format!("`{text}` is no number; try {option} 6"));
        match option.as_str() {
            "--write" => options.write = true,
            "--seeds" => options.seeds = number(value()?)?,
            "--seconds" => options.seconds = number(value()?)?,
            "--cells" => options.only.clone_from(value()?),
            _ => return Err(format!("there is no option `{option}`")),
        }
    }
    if options.seeds == 0 || options.seconds < 5 {
        return Err("there must be a seed, and 5 seconds, of which figures begin with the third".into());
    }
    Ok(options)
}

impl Options {
    /// Whether a row of this table is wanted; case and spaces do not count.
    fn wants(&self, table: &str, name: &str) -> bool {
        let plain = |text: &str| text.split_whitespace().collect::<String>().to_lowercase();
        plain(&format!("{table} {name}")).contains(&plain(&self.only))
    }
}

fn measure(options: &Options, context: &Context, arguments: &[String]) -> Result<bool, String> {
    context.run("cargo build --release --package tidewire-cli")?;
    let binary = context.target.join("release").join(format!("tidewire{}", std::env::consts::EXE_SUFFIX));
    let machine = Machine::look(context);
    println!("{machine}");
    let length = Duration::from_secs(options.seconds);
    let mut delays = Vec::new();
    for row in delay::ROWS.iter().filter(|row| options.wants("delay", row.name)) {
        delays.push((row, seeds(row.name, options, |seed| delay::run(row, seed, length, &binary))));
    }
    let mut crowds = Vec::new();
    for (name, loss) in crowd::ROWS.into_iter().filter(|(name, _)| options.wants("crowd", name)) {
        crowds.push((name, seeds(name, options, |seed| crowd::run(loss, seed, length / 2, &binary))));
    }
    let command = format!("cargo xtask figures forward {}", arguments.join(" "));
    let report = Report { machine: &machine, command: command.trim_end(), options, delays: &delays, crowds: &crowds };
    let text = report.to_string();
    println!("\n{text}");
    if options.write {
        let path = context.root.join("docs/figures-forward.md");
        std::fs::write(&path, &text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(report.missed() == 0)
}

/// All runs of a row, a line for each as it ends. One that fails does not hide the others.
fn seeds<F: std::fmt::Debug>(name: &str, options: &Options, run: impl Fn(u64) -> Result<F, String>) -> Measured<F> {
    let mut measured = Measured { runs: Vec::new(), failures: Vec::new() };
    for seed in 1..=options.seeds {
        match run(seed) {
            Ok(figures) => {
                println!("{name:<18} seed {seed}: {figures:.3?}");
                measured.runs.push(figures);
            }
            Err(problem) => {
                println!("{name:<18} seed {seed}: FAILED: {problem}");
                measured.failures.push(format!("seed {seed}: {problem}"));
            }
        }
    }
    measured
}

/// What `--help` prints.
const HELP: &str = "\
cargo xtask figures forward [OPTIONS]     delay through `tidewire forward`, measured with real processes on this machine

Carries one TCP connection at half of a link of 25 Mbit/s and 60 ms over every kind of loss, then two hundred of which one
is never read. Close everything else first: 30 runs of some 15 s.

  --seeds N          runs of each row; the tables have their medians [default: 3]
  --seconds N        length of a run [default: 12]
  --cells SUBSTRING  only rows with this in their name, spaces aside [examples: delay, iid10%, crowd]
  --write            replace docs/figures-forward.md by the report

Exit code: 0 if every goal holds, 1 if one is missed or a run failed, 2 for a wrong command line.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options, String> {
        parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn every_option_is_understood_and_a_wrong_one_refused() {
        let options = read("--seeds 1 --seconds 5 --cells crowdiid10% --write").unwrap();
        assert_eq!((options.seeds, options.seconds, options.write), (1, 5, true));
        assert!(options.wants("crowd", "iid 10 %") && !options.wants("delay", "iid 10 %"));
        assert!(delay::ROWS.iter().all(|row| read("").unwrap().wants("delay", row.name)));
        for line in ["--seeds 0", "--seeds", "--seconds 4", "--seconds x", "--fast"] {
            assert!(read(line).is_err(), "{line} was accepted");
        }
    }
}
