//! The project's task runner: `cargo xtask test` runs every check and test, `cargo xtask check` the quick
//! ones.
//!
//! Developers and `.ci/run` call it through the alias in `.cargo/config.toml`. Every check is a [`Step`] and
//! can be run alone by its name. All steps run even if one fails, and the exit code is zero only if none
//! failed. `install`, `loops` and `package` are commands and not steps: `loops` repeats tests for hours, the
//! others build in the profile `release`. A step installs the tools it needs beyond rustup and cargo
//! (`tools.rs`). What measures is `cargo measure` (`labs/measure`).

mod book;
mod circles;
mod comments;
mod context;
mod deny;
mod dependencies;
mod features;
mod fuzz;
mod install;
mod links;
mod loops;
mod package;
mod python;
mod rooms;
mod rust;
mod size;
mod steps;
mod testing;
mod tiers;
mod tools;
mod tree;
mod wasm;
mod words;

use context::Context;
use std::process::ExitCode;
use steps::Part::{Alone, Check, Test};
use steps::{Step, step};

/// Every step, the cheapest first.
const STEPS: &[Step] = &[
    step(Check, "setup", "install the toolchain's components and a C compiler", tools::setup),
    step(Check, "fmt", "formatting is rustfmt's", rust::fmt),
    step(Check, "rooms", "crates and rooms use only lower ones, and no modules each other in a circle", rooms::check),
    step(Check, "size", "files and functions within the limits", size::check),
    step(Check, "words", "comments stand alone, fit the width and name no notes outside of the tree", words::check),
    step(Check, "clippy", "no lint, no warning, all targets", rust::clippy),
    step(Test, "doc", "documentation builds without a warning", rust::doc),
    step(Test, "book", "links between documents hold, and the book builds", book::check),
    step(Test, "deny", "licences, bans, sources, number of crates, reasons", deny::check),
    step(Test, "wasm", "codec, model and proto import nothing from an environment", wasm::check),
    step(Test, "features", "every set of features compiles", features::check),
    step(Alone, "musl", "the commands compile for the C library of packages", features::packaged),
    step(Test, "msrv", "the oldest promised compiler builds it", features::oldest_compiler),
    step(Check, "tests", "the tests of `cargo test`, none of them slow", testing::default_set),
    step(Test, "slow-tests", "what `tests` leaves out: root, tools, minutes, other crates", testing::left_out),
    step(Test, "installed", "the C library is installed, and programs compile by pkg-config and run", install::check),
    step(Test, "tiers", "the codec's tests on every kernel this machine has", tiers::native),
    step(Alone, "foreign", "the codec's tests on emulated AArch64 and 32-bit ARM", tiers::foreign),
    step(Test, "py", "the Python package: lints, types, and tests of its wheel", python::check),
    step(Test, "bench", "benchmarks build and give correct results", rust::bench),
    step(Alone, "miri", "the SIMD kernels under Miri", rust::miri),
    step(Test, "asan", "the codec's tests under the address sanitizer", rust::asan),
    step(Test, "fuzz", "replay every corpus, then fuzz each target", fuzz::check),
    step(Alone, "all-seeds", "the tests of both with all their seeds: every night", testing::all_seeds),
];

/// What runs a command with its arguments; none if these are wrong.
type Run = fn(&[String]) -> Option<Result<(), String>>;

/// The commands that are no steps: name, arguments, line of the help.
const COMMANDS: [(&str, &str, &str, Run); 3] = [
    ("install", "[--prefix DIR]", "library, header, commands: in DIR (/usr/local), below DESTDIR", install::main),
    ("loops", "[N] [TEST-FILTER]", "tests with real processes N times (50), beside busy loops", loops::main),
    ("package", "[--test]", "Debian packages and a static binary; --test: as root, tries them", package::main),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let command = COMMANDS.iter().find(|(name, ..)| arguments.first().is_some_and(|word| word == name));
    if let Some((name, usage, about, run)) = command {
        return match run(&arguments[1..]) {
            Some(Ok(())) => ExitCode::SUCCESS,
            Some(Err(problem)) => {
                eprintln!("{problem}");
                ExitCode::FAILURE
            }
            None => {
                eprintln!("cargo xtask {name} {usage}   {about}");
                ExitCode::from(2)
            }
        };
    }
    match plan(&arguments) {
        Ok((steps, context)) => steps::run(&steps, &context),
        Err(problem) => {
            eprintln!("{problem}\n\n{}", help());
            ExitCode::from(2)
        }
    }
}

/// Reads the command line: the steps to run and their settings.
fn plan(arguments: &[String]) -> Result<(Vec<&'static Step>, Context), String> {
    let mut context = Context::new()?;
    let names = match arguments {
        [] => return Err("name a task".into()),
        [fuzz, seconds] if fuzz == "fuzz" && seconds.starts_with(|first: char| first.is_ascii_digit()) => {
            context.fuzz_seconds =
                seconds.parse().map_err(|_| format!("`{seconds}` is not a number of seconds; try: fuzz 600"))?;
            &arguments[..1]
        }
        names => names,
    };
    let chosen = |name: &String, step: &Step| match name.as_str() {
        "test" => step.part != Alone,
        "check" => step.part == Check,
        name => step.name == name,
    };
    if let Some(unknown) = names.iter().find(|name| !STEPS.iter().any(|step| chosen(name, step))) {
        return Err(format!("there is no task `{unknown}`"));
    }
    // In the order of the table, each once.
    let steps = STEPS.iter().filter(|step| names.iter().any(|name| chosen(name, step))).collect();
    Ok((steps, context))
}

fn help() -> String {
    let mut text = String::from("cargo xtask test              every step below but those marked -\n");
    text += "cargo xtask check             the quick ones, marked *, without slow tests\n";
    text += "cargo xtask STEP...           some steps; `fuzz` alone takes seconds per target\n";
    for (name, _, about, _) in COMMANDS {
        text += &format!("cargo xtask {name:<17} {about}\n");
    }
    text.push('\n');
    for step in STEPS {
        let mark = match step.part {
            Check => '*',
            Test => ' ',
            Alone => '-',
        };
        text += &format!("  {mark} {:<12} {}\n", step.name, step.about);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(line: &str) -> Result<Vec<&'static str>, String> {
        let arguments: Vec<String> = line.split_whitespace().map(String::from).collect();
        plan(&arguments).map(|(steps, _)| steps.iter().map(|step| step.name).collect())
    }

    #[test]
    fn test_runs_nearly_every_step_and_check_the_quick_ones() {
        let test = names("test").unwrap();
        let mut alone: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        alone.retain(|name| !test.contains(name));
        assert_eq!(alone, ["musl", "foreign", "miri", "all-seeds"]);
        assert_eq!(names("check"), Ok(vec!["setup", "fmt", "rooms", "size", "words", "clippy", "tests"]));
        assert_eq!(names("wasm"), Ok(vec!["wasm"]));
        assert_eq!(names("all-seeds"), Ok(vec!["all-seeds"]));
    }

    #[test]
    fn a_wrong_command_line_is_refused() {
        for line in ["", "tset", "test now", "fuzz soon", "fuzz 1 2", "fuzz 1s", "fmt wsam"] {
            assert!(names(line).is_err(), "{line:?} was accepted");
        }
        assert_eq!(names("fuzz 600"), Ok(vec!["fuzz"]));
        assert_eq!(names("wasm fmt wasm"), Ok(vec!["fmt", "wasm"]));
    }

    #[test]
    fn the_hosted_jobs_run_every_step_once() {
        let workflow = include_str!("../../.github/workflows/ci.yml");
        let lists = workflow.lines().filter_map(|line| line.trim().strip_prefix("- steps: "));
        let mut run: Vec<&str> = lists.flat_map(str::split_whitespace).collect();
        // All seeds have a job of their own.
        let mut wanted: Vec<_> = STEPS.iter().map(|step| step.name).filter(|name| *name != "all-seeds").collect();
        run.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(run, wanted);
    }
}
