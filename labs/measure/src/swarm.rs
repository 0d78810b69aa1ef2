//! `cargo measure swarm` and `cargo measure soak`: run the simulator's swarm with seeds that no run had
//! before.
//!
//! Continuous integration runs fixed seeds of the swarm on each change. `swarm` takes new seeds from the
//! clock, once each night. `soak` runs batches of new seeds for hours, until a given number of datagrams was
//! simulated. Both run the test `swarm` of `tidewire-sim`. They print the seeds before they run them, and the
//! slowest five with their processor time after it. They append each seed that fails to
//! `target/swarm-failed`, with the reason. Add such a seed to `KEPT_SEEDS` of that test.

use crate::context::Context;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The lines of `cargo xtask`'s help.
pub const ABOUT: &str = "fresh seeds of the simulator's swarm, drawn from the clock; `swarm COUNT`";
pub const ABOUT_SOAK: &str = "the same in batches for hours; `soak DATAGRAMS [--from SEED]`";

/// Seeds of `swarm` if no number is given.
const SEEDS: u64 = 2_100;
/// Datagrams of `soak` if no number is given.
const DATAGRAMS: u64 = 1_000_000_000;
/// Seeds of a batch: some five million datagrams, a minute on two cores. An interruption loses at most one
/// batch.
const BATCH: u64 = 500;

/// Runs one of the two commands with the arguments behind its name. The exit code is 0 if no seed failed.
pub fn main(command: &str, arguments: &[String]) -> ExitCode {
    let Some((amount, first)) = parse(command, arguments) else {
        eprintln!("cargo measure swarm [COUNT] [--from SEED]   {ABOUT}");
        eprintln!("cargo measure soak [DATAGRAMS] [--from SEED]   {ABOUT_SOAK}");
        return ExitCode::from(2);
    };
    let done = Context::new().and_then(|context| {
        let swarm = Swarm { context, first };
        if command == "soak" { swarm.soak(amount) } else { swarm.batch(first, amount).map(|batch| batch.failed) }
    });
    match done {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failed) => {
            eprintln!("{failed} seeds failed; they are in target/swarm-failed");
            ExitCode::FAILURE
        }
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// Reads the number of seeds or datagrams, and the first seed.
fn parse(command: &str, arguments: &[String]) -> Option<(u64, u64)> {
    let (mut amount, mut first) = (if command == "soak" { DATAGRAMS } else { SEEDS }, None);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--from" => first = Some(rest.next()?.parse().ok()?),
            number => amount = number.replace('_', "").parse().ok()?,
        }
    }
    Some((amount, first.unwrap_or_else(from_clock)))
}

/// Two runs that begin a second apart and end within eleven days have no seed in common.
fn from_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() * 1_000_000)
}

struct Swarm {
    context: Context,
    first: u64,
}

/// Results of some seeds, summed.
#[derive(Clone, Copy, Default)]
struct Batch {
    passed: u64,
    failed: u64,
    datagrams: u64,
    /// The most memory that a batch held, in KiB.
    kib: u64,
}

impl Swarm {
    /// Runs batches until `datagrams` were simulated, and returns the number of seeds that failed.
    fn soak(&self, datagrams: u64) -> Result<u64, String> {
        let (began, mut next, mut sum) = (Instant::now(), self.first, Batch::default());
        while sum.datagrams < datagrams {
            let batch = self.batch(next, BATCH)?;
            next += BATCH;
            sum = Batch {
                passed: sum.passed + batch.passed,
                failed: sum.failed + batch.failed,
                datagrams: sum.datagrams + batch.datagrams,
                kib: sum.kib.max(batch.kib),
            };
            let left = datagrams.saturating_sub(sum.datagrams);
            println!("{}", line(&sum, self.first, next, began.elapsed().as_secs()));
            println!("continue an interrupted soak with: cargo measure soak {left} --from {next}");
        }
        let commit = self.context.output_of("git describe --always --dirty --abbrev=9").unwrap_or_default();
        println!(
            "\nFor docs/data/survival-measured.csv:\nsoak of commit {}: {}",
            commit.trim(),
            line(&sum, self.first, next, began.elapsed().as_secs())
        );
        Ok(sum.failed)
    }

    /// Runs seeds `first..first + count`, and passes on what the test prints.
    fn batch(&self, first: u64, count: u64) -> Result<Batch, String> {
        let mut command = self.context.command("cargo test -p tidewire-sim --test swarm");
        command.args(["--", "--nocapture", "no_seed_loses"]).env("SIM_SEEDS", format!("{first}+{count}"));
        println!("$ SIM_SEEDS={first}+{count} cargo test -p tidewire-sim --test swarm -- --nocapture no_seed");
        let (batch, said) = run(command, &self.context.target.join("swarm-failed"))?;
        // A seed that neither passed nor failed did not run, or the process died.
        if batch.passed + batch.failed != count {
            return Err(format!("the batch did not end:\n{said}"));
        }
        Ok(batch)
    }
}

fn line(sum: &Batch, first: u64, next: u64, seconds: u64) -> String {
    let Batch { passed, failed, datagrams, kib } = sum;
    format!(
        "{datagrams} datagrams, {passed} seeds passed, {failed} failed, seeds {first} to {}, {kib} KiB at most, {seconds} s",
        next - 1
    )
}

/// Runs the test and counts the results in its output. Failures are appended to the file `kept`.
fn run(mut command: Command, kept: &Path) -> Result<(Batch, String), String> {
    // A thread reads standard error, so that a full pipe cannot block the test.
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(|e| format!("cargo: {e}"))?;
    let errors = child.stderr.take().ok_or("no standard error")?;
    let errors = std::thread::spawn(move || BufReader::new(errors).lines().map_while(Result::ok).collect::<Vec<_>>());
    let mut said: Vec<String> = Vec::new();
    for text in BufReader::new(child.stdout.take().ok_or("no standard output")?).lines().map_while(Result::ok) {
        println!("{text}");
        said.push(text);
    }
    let errors = errors.join().map_err(|_| "reading standard error failed")?;
    child.wait().map_err(|e| format!("cargo: {e}"))?;
    said.extend(errors);
    let batch = said.iter().fold(Batch::default(), |batch, text| count(batch, text));
    let failures: String =
        said.iter().filter(|text| text.starts_with("SIM_SEED=")).map(|text| format!("{text}\n")).collect();
    if !failures.is_empty() {
        println!("{failures}");
        let file = OpenOptions::new().create(true).append(true).open(kept);
        file.and_then(|mut file| file.write_all(failures.as_bytes()))
            .map_err(|e| format!("{}: {e}", kept.display()))?;
    }
    Ok((batch, said.join("\n")))
}

/// Adds the counts in one line of the test's output.
fn count(batch: Batch, text: &str) -> Batch {
    if text.starts_with("SIM_SEED=") {
        return Batch { failed: batch.failed + 1, ..batch };
    }
    let Some(counts) = text.strip_prefix("passed: ") else { return batch };
    let numbers: Vec<u64> = counts.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [passed, datagrams, kib] = numbers[..] else { return batch };
    Batch { passed, datagrams, kib, ..batch }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_test_are_counted() {
        let said = [
            "running 1 test",
            "passed: 498 seeds, 4959347 datagrams, 174336 KiB at most",
            "SIM_SEED=2:17: not done",
            "SIM_SEED=2:99: late",
        ];
        let Batch { passed, failed, datagrams, kib } = said.iter().fold(Batch::default(), |sum, text| count(sum, text));
        assert_eq!((passed, failed, datagrams, kib), (498, 2, 4_959_347, 174_336));
    }

    #[test]
    fn arguments_name_an_amount_and_a_first_seed() {
        let parsed = |line: &str| parse("soak", &line.split_whitespace().map(String::from).collect::<Vec<_>>());
        assert_eq!(parsed("20_000 --from 7"), Some((20_000, 7)));
        assert_eq!(parsed("--from 7").map(|(datagrams, _)| datagrams), Some(DATAGRAMS));
        assert!(parsed("").is_some_and(|(_, first)| first > 0));
        assert!(parsed("many").is_none() && parsed("--from").is_none());
    }
}
