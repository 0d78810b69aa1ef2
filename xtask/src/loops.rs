//! `cargo xtask loops [N] [TEST-FILTER]`: runs every test that starts processes N times, on two cores that it
//! shares with three busy loops. A test that depends on scheduling passes on an idle machine and fails here.
//!
//! A person runs this command; no step does, because fifty rounds take hours. Each test binary is built once
//! and then started directly, without cargo. Invariants: the busy loops are children of this process, which
//! kills them by their ids when it ends, also after a failure; a failed round leaves its whole output in a
//! file of its own.

use crate::context::Context;
use crate::testing::{Binary, binaries};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

/// The line of `cargo xtask`'s help.
pub const ABOUT: &str =
    "every test with real processes N times (default 50) beside three busy loops on two cores; a filter picks tests";

/// Tests that start processes.
const TESTS: [&str; 6] = ["command", "end_to_end", "faults", "jobs", "lab", "papers"];
/// Rounds if no number is given. A test that fails once in 20 runs passes 50 rounds with a probability of 8
/// %.
const ROUNDS: u32 = 50;
/// Number of busy loops: with three on two cores, a test always shares its core.
const LOOPS: usize = 3;
/// The cores on which tests and loops run.
const CORES: &str = "0,1";

/// Runs the command with the arguments behind its name. The exit code is 0 if every round passed.
pub fn main(arguments: &[String]) -> ExitCode {
    let Some((rounds, filter)) = parse(arguments) else {
        eprintln!("cargo xtask loops [N] [TEST-FILTER]   {ABOUT}");
        return ExitCode::from(2);
    };
    match all(rounds, filter) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> Option<(u32, Option<&str>)> {
    match arguments {
        [] => Some((ROUNDS, None)),
        [one] => Some(one.parse().map_or((ROUNDS, Some(one.as_str())), |rounds| (rounds, None))),
        [rounds, filter] => Some((rounds.parse().ok()?, Some(filter))),
        _ => None,
    }
}

/// Runs all tests that match `filter`, and returns how many of their rounds failed.
fn all(rounds: u32, filter: Option<&str>) -> Result<u32, String> {
    let context = Context::new()?;
    let binaries = build(&context)?;
    let logs = context.target.join("loops");
    fs::create_dir_all(&logs).map_err(|error| format!("`{}`: {error}", logs.display()))?;
    let pinned = context.succeeds(&format!("taskset -c {CORES} true"));
    if !pinned {
        println!("taskset is missing: the loops and the tests use every core of this machine");
    }
    let _busy = Busy::start(pinned)?;
    let (mut failures, mut runs) = (0, 0);
    for binary in &binaries {
        for test in names(binary, filter)? {
            let (began, mut failed) = (Instant::now(), 0);
            for round in 1..=rounds {
                failed += u32::from(!passes(binary, &test, pinned, &logs.join(format!("{test}-{round}.log")))?);
            }
            println!("{test}: {failed} of {rounds} failed, {:.0} s", began.elapsed().as_secs_f64());
            (failures, runs) = (failures + failed, runs + rounds);
        }
    }
    println!("{failures} of {runs} runs failed; their output is in `{}`", logs.display());
    if runs == 0 { Err("no test matches the filter".into()) } else { Ok(failures) }
}

/// Builds the tests of both commands.
fn build(context: &Context) -> Result<Vec<Binary>, String> {
    let tests = TESTS.map(|test| format!(" --test {test}")).concat();
    let all = "cargo test --workspace --exclude xtask --exclude tidewire-capi --no-run";
    // All first: tests of one command start the other.
    context.run(all)?;
    let binaries = binaries(&context.output_of(&format!("{all}{tests} --message-format json"))?);
    if binaries.is_empty() { Err("no test binary was built".into()) } else { Ok(binaries) }
}

/// The tests of `binary` whose name contains `filter`.
fn names(binary: &Binary, filter: Option<&str>) -> Result<Vec<String>, String> {
    let output = Command::new(&binary.path).args(["--list", "--format", "terse"]).output();
    let output = output.map_err(|error| format!("`{}`: {error}", binary.path.display()))?;
    let listed = String::from_utf8_lossy(&output.stdout);
    let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(names.filter(|name| filter.is_none_or(|filter| name.contains(filter))).map(String::from).collect())
}

/// Runs one test alone, and returns whether it passed. If it fails, its output is written to `log`.
fn passes(binary: &Binary, test: &str, pinned: bool, log: &Path) -> Result<bool, String> {
    let mut command = on_two_cores(&binary.path, pinned);
    // cargo sets the same folder and variable: tests use them to find their data.
    command
        .args(["--exact", test, "--nocapture", "--include-ignored"])
        .current_dir(&binary.package)
        .env("CARGO_MANIFEST_DIR", &binary.package);
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| format!("`{}`: {error}", binary.path.display()))?;
    if !output.status.success() {
        println!("FAILED: `{}`", log.display());
        let text = [output.stdout, output.stderr].concat();
        fs::write(log, text).map_err(|error| format!("`{}`: {error}", log.display()))?;
    }
    Ok(output.status.success())
}

fn on_two_cores(program: &Path, pinned: bool) -> Command {
    if !pinned {
        return Command::new(program);
    }
    let mut command = Command::new("taskset");
    command.args(["-c", CORES]).arg(program);
    command
}

/// Processes that only consume processor time.
struct Busy(Vec<Child>);

impl Busy {
    fn start(pinned: bool) -> Result<Self, String> {
        let mut busy = Self(Vec::new());
        for _ in 0..LOOPS {
            let mut command = on_two_cores(Path::new("sh"), pinned);
            let child = command.args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn();
            busy.0.push(child.map_err(|error| format!("cannot start a busy loop: {error}"))?);
        }
        Ok(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_rounds_and_a_filter() {
        let words = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>();
        assert_eq!(parse(&words("")), Some((50, None)));
        assert_eq!(parse(&words("3")), Some((3, None)));
        assert_eq!(parse(&words("s13")), Some((50, Some("s13"))));
        assert_eq!(parse(&words("3 s13")), Some((3, Some("s13"))));
        assert_eq!(parse(&words("s13 3")), None);
    }

    #[test]
    fn busy_loops_end_with_their_owner() {
        let busy = Busy::start(false).unwrap();
        let ids: Vec<u32> = busy.0.iter().map(Child::id).collect();
        let runs = |id: &u32| Path::new(&format!("/proc/{id}")).exists();
        assert!(!cfg!(target_os = "linux") || ids.iter().all(runs));
        drop(busy);
        assert!(!ids.iter().any(runs));
    }
}
