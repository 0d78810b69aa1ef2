//! Runs steps one after the other and reports at the end how each of them ended.
//!
//! Invariant: every step given is run and counted once, whatever the others did. The last line printed is
//! `N passed, N failed`, with `, N skipped` behind it where a step could not run on this machine.

use crate::context::Context;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// One check, with the name that runs it alone.
pub struct Step {
    /// The word on the command line.
    pub name: &'static str,
    /// Which commands run it.
    pub part: Part,
    /// What it shows when it passes, for the help text.
    pub about: &'static str,
    pub run: Run,
}

/// A check; the error says what failed.
type Run = fn(&Context) -> Result<(), String>;

/// Makes a step, so that the table of all has one line for each.
pub const fn step(part: Part, name: &'static str, about: &'static str, run: Run) -> Step {
    Step { name, part, about, run }
}

/// Which commands run a step, beside the one with its name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// `cargo xtask check` and `cargo xtask test`.
    Check,
    /// `cargo xtask test`.
    Test,
    /// None: the hosted workflow runs it beside the others, or at night. A run on two cores would take more
    /// than 40 minutes with it.
    Alone,
}

/// How one step ended.
struct Outcome {
    name: &'static str,
    took: Duration,
    result: Result<(), String>,
    /// Why it did not run.
    skipped: Option<String>,
}

impl Outcome {
    fn verdict(&self) -> &'static str {
        match (&self.result, &self.skipped) {
            (Err(_), _) => "FAILED",
            (Ok(()), Some(_)) => "SKIPPED",
            (Ok(()), None) => "passed",
        }
    }

    /// What the table says behind the verdict.
    fn reason(&self) -> Option<&str> {
        let reason = self.result.as_ref().err().or(self.skipped.as_ref())?;
        Some(reason.lines().next().unwrap_or_default())
    }
}

/// Runs all `steps`, prints the table, and gives the exit code of the whole.
pub fn run(steps: &[&Step], context: &Context) -> ExitCode {
    let mut outcomes = Vec::new();
    for step in steps {
        println!("\n==== {}: {}", step.name, step.about);
        let start = Instant::now();
        let result = (step.run)(context);
        let took = start.elapsed();
        if let Err(problem) = &result {
            println!("{problem}");
        }
        let outcome = Outcome { name: step.name, took, result, skipped: context.take_skipped() };
        println!("==== {}: {:.1} s, {}", step.name, took.as_secs_f64(), outcome.verdict());
        outcomes.push(outcome);
    }
    for outcome in &outcomes {
        if let Err(problem) = &outcome.result {
            println!("\n{}: {problem}", outcome.name);
        }
    }
    print!("\n{}", table(&outcomes));
    if outcomes.iter().all(|outcome| outcome.result.is_ok()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn table(outcomes: &[Outcome]) -> String {
    let mut text = format!("{:<12} {:>8}  result\n", "step", "seconds");
    for outcome in outcomes {
        text += &format!("{:<12} {:>8.1}  {}", outcome.name, outcome.took.as_secs_f64(), outcome.verdict());
        if let Some(reason) = outcome.reason() {
            text += &format!(": {reason}");
        }
        text += "\n";
    }
    let count = |verdict| outcomes.iter().filter(|outcome| outcome.verdict() == verdict).count();
    text += &format!("\n{} passed, {} failed", count("passed"), count("FAILED"));
    match count("SKIPPED") {
        0 => text + "\n",
        skipped => text + &format!(", {skipped} skipped\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_counts_every_step_and_ends_with_the_sum() {
        let took = Duration::from_millis(1250);
        let outcome = |name, result| Outcome { name, took, result, skipped: None };
        let mut outcomes = vec![outcome("fmt", Ok(())), outcome("clippy", Err("`cargo clippy` failed\nmore".into()))];
        let text = table(&outcomes);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[1], "fmt               1.2  passed");
        assert_eq!(lines[2], "clippy            1.2  FAILED: `cargo clippy` failed");
        assert_eq!(lines.last(), Some(&"1 passed, 1 failed"));
        outcomes.push(Outcome { skipped: Some("no toolchain".into()), ..outcome("msrv", Ok(())) });
        let text = table(&outcomes);
        assert!(text.contains("\nmsrv              1.2  SKIPPED: no toolchain\n"));
        assert_eq!(text.lines().last(), Some("1 passed, 1 failed, 1 skipped"));
    }
}
