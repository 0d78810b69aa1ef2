//! What every step is given: the folders, how much to run, and the functions that start programs.
//!
//! Programs run in the workspace root without standard input, so that none can wait for an answer. Each
//! command line is printed before it starts, so that a reader of the log can repeat it by hand.

use serde_json::Value;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Settings and folders of one run.
pub struct Context {
    /// The workspace root.
    pub root: PathBuf,
    /// Cargo's target directory; tools that steps install live in its `tools` folder.
    pub target: PathBuf,
    /// How long each fuzz target runs after it replayed its corpus, in seconds.
    pub fuzz_seconds: u32,
    /// Why the step under way did not run; see [`Context::skip`].
    skipped: RefCell<Option<String>>,
}

impl Context {
    /// Finds the workspace from which cargo started this runner. The path is read at run time: when two
    /// checkouts share a target directory, the binary may have been built in the other one.
    pub fn new() -> Result<Self, String> {
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR").ok_or("start this as `cargo xtask`")?;
        let root = Path::new(&manifest).parent().ok_or("the task runner does not lie in a workspace")?.to_path_buf();
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
        Ok(Self { root, target, fuzz_seconds: DEFAULT_FUZZ_SECONDS, skipped: RefCell::default() })
    }

    /// Notes that the step under way cannot run on this machine, and why. The table then shows it as skipped.
    pub fn skip(&self, reason: &str) {
        println!("SKIPPED: {reason}");
        self.skipped.replace(Some(reason.into()));
    }

    /// The reason given to [`Context::skip`] since the last call.
    pub fn take_skipped(&self) -> Option<String> {
        self.skipped.take()
    }

    /// Makes a command from `program arguments...`, separated by spaces. It will run in the workspace root.
    pub fn command(&self, line: &str) -> Command {
        let (program, arguments) = line.split_once(' ').unwrap_or((line, ""));
        self.program(program, arguments)
    }

    /// Makes a command for a program given by its path. It will run in the workspace root.
    pub fn program(&self, program: impl AsRef<OsStr>, arguments: &str) -> Command {
        let mut command = Command::new(program);
        command.args(arguments.split_whitespace()).current_dir(&self.root).stdin(Stdio::null());
        command
    }

    /// Runs a command line to its end; an exit code other than zero is an error.
    pub fn run(&self, line: &str) -> Result<(), String> {
        run(&mut self.command(line))
    }

    /// Whether the program exists and the command line succeeds. Its output is discarded.
    pub fn succeeds(&self, line: &str) -> bool {
        let mut command = self.command(line);
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    /// The packages that `cargo metadata`, with these options, knows.
    pub fn packages(&self, options: &str) -> Result<Vec<Value>, String> {
        let metadata = self.output_of(&format!("cargo metadata --format-version 1 {options}"))?;
        let mut metadata: Value = serde_json::from_str(&metadata).map_err(|e| format!("cargo metadata: {e}"))?;
        match metadata["packages"].take() {
            Value::Array(packages) => Ok(packages),
            _ => Err("cargo metadata names no package".into()),
        }
    }

    /// Runs a command line and returns what it printed to standard output.
    pub fn output_of(&self, line: &str) -> Result<String, String> {
        let output = self.command(line).stderr(Stdio::inherit()).output().map_err(|e| format!("`{line}`: {e}"))?;
        if !output.status.success() {
            return Err(format!("`{line}` ended with {}", output.status));
        }
        String::from_utf8(output.stdout).map_err(|_| format!("`{line}` printed bytes that are not UTF-8"))
    }
}

/// Makes an empty folder, in the place of one of an earlier run.
pub fn fresh(folder: &Path) -> Result<(), String> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))
}

/// Prints and runs `command`; an exit code other than zero is an error.
pub fn run(command: &mut Command) -> Result<(), String> {
    let line = describe(command);
    println!("$ {line}");
    let status = command.status().map_err(|e| format!("cannot start `{line}`: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{line}` ended with {status}")) }
}

/// How much of a picked line is repeated, in characters: enough for a message and the figures in it.
const LONGEST_LINE: usize = 1_000;

/// Like [`run`], for a long output. The error also repeats the lines that `matters` picks, because the log of
/// a machine may keep only its end.
pub fn run_and_repeat(command: &mut Command, mut matters: impl FnMut(&str) -> bool) -> Result<(), String> {
    let line = describe(command);
    println!("$ {line}");
    let cannot = |e| format!("cannot start `{line}`: {e}");
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(cannot)?;
    let mut picked = String::new();
    for said in BufReader::new(child.stdout.take().ok_or("standard output is not piped")?).split(b'\n') {
        let said = said.map_err(cannot)?;
        let said = String::from_utf8_lossy(&said);
        println!("{said}");
        if matters(&said) {
            picked.push('\n');
            picked.extend(said.chars().take(LONGEST_LINE));
        }
    }
    let status = child.wait().map_err(cannot)?;
    if status.success() { Ok(()) } else { Err(format!("`{line}` ended with {status}{picked}")) }
}

/// Runs commands that keep one core busy each, as many at a time as there are cores. Prints each when it has
/// ended, and returns the results in the order of the commands.
pub fn run_together(commands: Vec<Command>) -> Vec<Result<(), String>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let results: Vec<_> = commands.iter().map(|_| Mutex::new(Ok(()))).collect();
    let waiting = Mutex::new(commands.into_iter().zip(&results));
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some((mut command, result)) = next() {
                    *result.lock().unwrap_or_else(PoisonError::into_inner) = run_quietly(&mut command);
                }
            });
        }
    });
    results.into_iter().map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

/// Runs `command`, then prints it with its output in one piece, so that the outputs of several commands do
/// not mix. Of a command that succeeded, only the last line is printed: a fuzz target prints thousands.
fn run_quietly(command: &mut Command) -> Result<(), String> {
    let line = describe(command);
    let output = command.output().map_err(|e| format!("cannot start `{line}`: {e}"))?;
    let [said, complained] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    if !output.status.success() {
        println!("$ {line}\n{said}{complained}");
        return Err(format!("`{line}` ended with {}", output.status));
    }
    let mut lines = complained.lines().rev().chain(said.lines().rev());
    println!("$ {line}\n{}", lines.find(|line| !line.trim().is_empty()).unwrap_or_default());
    Ok(())
}

/// The command line as a person would type it, with the environment variables it sets.
fn describe(command: &Command) -> String {
    let set = command.get_envs().filter_map(|(key, value)| Some((key, value?)));
    let environment = set.filter(|(key, _)| *key != "PATH").map(|(key, value)| {
        let value = value.to_string_lossy();
        let quote = if value.contains(' ') { "'" } else { "" };
        format!("{}={quote}{value}{quote}", key.to_string_lossy())
    });
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words = words.map(|word| word.to_string_lossy().into_owned());
    environment.chain(words).collect::<Vec<_>>().join(" ")
}

/// Chosen: sixteen targets take about a minute on two cores. Each night, and `cargo xtask fuzz 600`, search
/// longer.
const DEFAULT_FUZZ_SECONDS: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_described_as_one_would_type_it() {
        let context = Context::new().unwrap();
        let mut command = context.command("cargo doc --no-deps");
        command.env("RUSTDOCFLAGS", "-D warnings").env("CI", "true").env("PATH", "/bin");
        assert_eq!(describe(&command), "CI=true RUSTDOCFLAGS='-D warnings' cargo doc --no-deps");
    }

    #[test]
    fn a_failure_repeats_the_lines_that_matter() {
        let mut command = Context::new().unwrap().program("sh", "");
        command.args(["-c", "echo good; echo bad; exit 3"]);
        let problem = run_and_repeat(&mut command, |line| line == "bad").unwrap_err();
        assert!(problem.ends_with("exit status: 3\nbad"), "{problem}");
    }

    #[test]
    fn commands_run_together_keep_their_results_in_order() {
        let context = Context::new().unwrap();
        let commands = ["true", "false", "no-such-program-here", "true"].map(|line| context.command(line));
        let failed: Vec<_> = run_together(commands.into()).iter().map(Result::is_err).collect();
        assert_eq!(failed, [false, true, true, false]);
    }

    #[test]
    fn a_failing_program_and_a_missing_one_are_errors() {
        let context = Context::new().unwrap();
        assert!(context.run("false").is_err());
        assert!(context.run("no-such-program-here").is_err());
        assert!(!context.succeeds("false"));
        assert!(context.succeeds("true"));
    }
}
