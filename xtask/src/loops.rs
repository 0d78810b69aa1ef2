//! `cargo xtask loops [N] [TEST-FILTER]`: runs every test that starts processes N times, on two cores that it
//! shares with three busy loops. A test that depends on scheduling passes on an idle machine and fails here.
//!
//! A person runs this command; no step does, because fifty rounds take hours. cargo-nextest repeats the
//! tests, one at a time, and prints what a failed one said. Invariant: the busy loops are children of this
//! process, which kills them by their ids when it ends, also after a failure.

use crate::context::{Context, run};
use crate::tools;
use std::process::Child;

/// Tests that start processes.
const TESTS: [&str; 6] = ["command", "end_to_end", "faults", "jobs", "lab", "papers"];
/// Rounds if no number is given. A test that fails once in 20 runs passes 50 rounds with a probability of 8
/// %.
const ROUNDS: u32 = 50;
/// Number of busy loops: with three on two cores, a test always shares its core.
const LOOPS: usize = 3;
/// The cores on which tests and loops run.
const PIN: &str = "taskset -c 0,1";
/// The packages of the tests, with the features that the other steps build them with.
const PACKAGES: &str = "--workspace --exclude xtask --exclude tidewire-capi";
/// Runs the command with the arguments behind its name. It succeeds if every round passed.
pub fn main(arguments: &[String]) -> Option<Result<(), String>> {
    parse(arguments).map(|(rounds, filter)| all(rounds, filter))
}

fn parse(arguments: &[String]) -> Option<(u32, Option<&str>)> {
    match arguments {
        [] => Some((ROUNDS, None)),
        [one] => Some(one.parse().map_or((ROUNDS, Some(one.as_str())), |rounds| (rounds, None))),
        [rounds, filter] => Some((rounds.parse().ok()?, Some(filter))),
        _ => None,
    }
}

/// Runs all tests that match `filter`.
fn all(rounds: u32, filter: Option<&str>) -> Result<(), String> {
    let context = Context::new()?;
    let nextest = tools::subcommand(&context, &tools::NEXTEST)?;
    // All first: tests of one command start the other.
    context.run(&format!("cargo test {PACKAGES} --no-run"))?;
    let pinned = if context.succeeds(&format!("{PIN} true")) { PIN } else { "env" };
    if pinned != PIN {
        println!("taskset is missing: the loops and the tests use every core of this machine");
    }
    let _busy = Busy::start(&context, pinned)?;
    let mut command = context.command(pinned);
    command.arg(nextest).args(["nextest", "run"]).args(PACKAGES.split(' '));
    command.args(TESTS.iter().flat_map(|test| ["--test", test]));
    command.args(["--run-ignored", "all", "--test-threads", "1", "--no-fail-fast", "--stress-count"]);
    run(command.arg(rounds.to_string()).args(filter))
}

/// Processes that only consume processor time.
struct Busy(Vec<Child>);

impl Busy {
    fn start(context: &Context, pinned: &str) -> Result<Self, String> {
        let mut busy = Self(Vec::new());
        for _ in 0..LOOPS {
            let child = context.command(pinned).args(["sh", "-c", "while :; do :; done"]).spawn();
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
        let busy = Busy::start(&Context::new().unwrap(), "env").unwrap();
        let ids: Vec<u32> = busy.0.iter().map(Child::id).collect();
        let runs = |id: &u32| std::path::Path::new(&format!("/proc/{id}")).exists();
        assert!(!cfg!(target_os = "linux") || ids.iter().all(runs));
        drop(busy);
        assert!(!ids.iter().any(runs));
    }
}
