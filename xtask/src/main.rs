//! The project's task runner: `cargo xtask test` runs every check and test, `cargo xtask check` the quick
//! ones.
//!
//! Developers and `.ci/run` call it through the alias in `.cargo/config.toml`. Every check is a [`Step`] and
//! can be run alone by its name. All steps run even if one fails, and the exit code is zero only if none
//! failed. `figures`, `install`, `lab`, `loops`, `package`, `swarm` and `soak` are commands and not steps:
//! `figures`, `lab` and `loops` measure or repeat for a long time, `install` and `package` build in the
//! profile `release`, the last two use new seeds in each run. A step installs the tools it needs beyond
//! rustup and cargo (`tools.rs`).

mod bench;
mod book;
mod comments;
mod context;
mod deny;
mod dependencies;
mod features;
mod figures;
mod fuzz;
mod install;
mod lab;
mod links;
mod loops;
mod package;
mod python;
mod rooms;
mod rust;
mod size;
mod steps;
mod swarm;
mod tiers;
mod tools;
mod tree;
mod wasm;
mod words;

use context::Context;
use std::process::ExitCode;
use steps::Step;

/// Every step, the cheapest first. `quick` marks those that `cargo xtask check` runs.
const STEPS: &[Step] = &[
    Step {
        name: "setup",
        quick: true,
        about: "install the toolchain's components and a C compiler",
        run: tools::setup,
    },
    Step { name: "fmt", quick: true, about: "formatting is rustfmt's", run: rust::fmt },
    Step { name: "rooms", quick: true, about: "crates and rooms of proto use only lower ones", run: rooms::check },
    Step { name: "size", quick: true, about: "files and functions within the limits", run: size::check },
    Step {
        name: "words",
        quick: true,
        about: "comments stand alone, fit the width and name no notes outside of the tree",
        run: words::check,
    },
    Step { name: "clippy", quick: true, about: "no lint, no warning, all targets", run: rust::clippy },
    Step { name: "doc", quick: false, about: "documentation builds without a warning", run: rust::doc },
    Step { name: "book", quick: false, about: "links between documents hold, and the book builds", run: book::check },
    Step { name: "deny", quick: false, about: "licences, bans, sources, number of crates, reasons", run: deny::check },
    Step { name: "wasm", quick: false, about: "codec and proto import nothing from an environment", run: wasm::check },
    Step { name: "features", quick: false, about: "every set of features compiles", run: features::check },
    Step {
        name: "msrv",
        quick: false,
        about: "the oldest promised compiler builds it",
        run: features::oldest_compiler,
    },
    Step { name: "cargo-test", quick: true, about: "unit, integration and simulation tests", run: rust::test },
    Step { name: "doc-test", quick: false, about: "examples in the documentation run", run: rust::doc_test },
    Step {
        name: "installed",
        quick: false,
        about: "the C library is installed, and programs compile by pkg-config and run",
        run: install::check,
    },
    Step {
        name: "tiers",
        quick: false,
        about: "the codec's tests on every kernel this machine has",
        run: tiers::native,
    },
    Step {
        name: "foreign",
        quick: false,
        about: "the codec's tests on emulated AArch64 and 32-bit ARM",
        run: tiers::foreign,
    },
    Step {
        name: "py",
        quick: false,
        about: "the Python package: lints, types, and tests of its wheel",
        run: python::check,
    },
    Step { name: "bench", quick: false, about: "benchmarks build and give correct results", run: bench::check },
    Step { name: "miri", quick: false, about: "the SIMD kernels under Miri", run: rust::miri },
    Step { name: "asan", quick: false, about: "the codec's tests under the address sanitizer", run: rust::asan },
    Step { name: "fuzz", quick: false, about: "replay every corpus, then fuzz each target", run: fuzz::check },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((command, rest)) = arguments.split_first() {
        match command.as_str() {
            "figures" => return figures::main(rest),
            "install" => return install::main(rest),
            "lab" => return lab::main(rest),
            "loops" => return loops::main(rest),
            "package" => return package::main(rest),
            "swarm" | "soak" => return swarm::main(command, rest),
            _ => {}
        }
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
    let (command, rest) = arguments.split_first().ok_or("name a task")?;
    let mut context = Context::new(command == "check")?;
    match rest {
        [] => {}
        [seconds] if command == "fuzz" => {
            context.fuzz_seconds =
                seconds.parse().map_err(|_| format!("`{seconds}` is not a number of seconds; try: fuzz 600"))?;
        }
        _ => return Err(format!("too many arguments after `{command}`")),
    }
    let chosen = |step: &&Step| match command.as_str() {
        "test" => true,
        "check" => step.quick,
        name => step.name == name,
    };
    let steps: Vec<_> = STEPS.iter().filter(chosen).collect();
    if steps.is_empty() { Err(format!("there is no task `{command}`")) } else { Ok((steps, context)) }
}

fn help() -> String {
    let mut text = String::from("cargo xtask test              every step below\n");
    text += "cargo xtask check             the quick ones, marked *; tests with TIDEWIRE_QUICK=1\n";
    text += "cargo xtask STEP              one step; `fuzz` takes seconds per target\n";
    text += &format!("cargo xtask figures           {}\n", figures::ABOUT);
    text += &format!("cargo xtask install           {}\n", install::ABOUT);
    text += &format!("cargo xtask lab               {}\n", lab::ABOUT);
    text += &format!("cargo xtask loops             {}\n", loops::ABOUT);
    text += &format!("cargo xtask package           {}\n", package::ABOUT);
    text += &format!("cargo xtask swarm             {}\n", swarm::ABOUT);
    text += &format!("cargo xtask soak              {}\n\n", swarm::ABOUT_SOAK);
    for step in STEPS {
        text += &format!("  {} {:<12} {}\n", if step.quick { '*' } else { ' ' }, step.name, step.about);
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
    fn test_runs_every_step_and_check_the_quick_ones() {
        assert_eq!(names("test").map(|steps| steps.len()), Ok(STEPS.len()));
        assert_eq!(names("check"), Ok(vec!["setup", "fmt", "rooms", "size", "words", "clippy", "cargo-test"]));
        assert_eq!(names("wasm"), Ok(vec!["wasm"]));
    }

    #[test]
    fn a_wrong_command_line_is_refused() {
        for line in ["", "tset", "test now", "fuzz soon", "fuzz 1 2"] {
            assert!(names(line).is_err(), "{line:?} was accepted");
        }
        assert_eq!(names("fuzz 600"), Ok(vec!["fuzz"]));
    }
}
