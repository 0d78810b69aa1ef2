//! Runs steps one after the other and says at the end what became of each.
//!
//! Invariant: every step given is run and counted once, whatever the others did, and the last line printed is
//! `N passed, N failed`.

use crate::context::Context;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// One check, with the name by which it is run alone.
pub struct Step {
    /// The word on the command line.
    pub name: &'static str,
    /// Whether `cargo xtask check` runs it too.
    pub quick: bool,
    /// What it shows when it passes, for the help text.
    pub about: &'static str,
    /// The check itself; the error says what failed.
    pub run: fn(&Context) -> Result<(), String>,
}

/// How one step ended.
struct Outcome {
    name: &'static str,
    took: Duration,
    result: Result<(), String>,
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
        println!("==== {}: {:.1} s, {}", step.name, took.as_secs_f64(), verdict(&result));
        outcomes.push(Outcome { name: step.name, took, result });
    }
    print!("\n{}", table(&outcomes));
    if outcomes.iter().all(|outcome| outcome.result.is_ok()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn verdict(result: &Result<(), String>) -> &'static str {
    if result.is_ok() { "passed" } else { "FAILED" }
}

fn table(outcomes: &[Outcome]) -> String {
    let mut text = format!("{:<12} {:>8}  result\n", "step", "seconds");
    for Outcome { name, took, result } in outcomes {
        text += &format!("{name:<12} {:>8.1}  {}", took.as_secs_f64(), verdict(result));
        if let Err(problem) = result {
            text += &format!(": {}", problem.lines().next().unwrap_or_default());
        }
        text += "\n";
    }
    let failed = outcomes.iter().filter(|outcome| outcome.result.is_err()).count();
    text + &format!("\n{} passed, {failed} failed\n", outcomes.len() - failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_counts_every_step_and_ends_with_the_sum() {
        let outcome = |name, result| Outcome { name, took: Duration::from_millis(1250), result };
        let text = table(&[outcome("fmt", Ok(())), outcome("clippy", Err("`cargo clippy` failed\nmore".into()))]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[1], "fmt               1.2  passed");
        assert_eq!(lines[2], "clippy            1.2  FAILED: `cargo clippy` failed");
        assert_eq!(lines.last(), Some(&"1 passed, 1 failed"));
    }
}
