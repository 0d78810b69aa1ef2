//! The steps that run tests. `tests` runs the default set, which is what `cargo test` runs, and holds each
//! test to [`LONGEST`]. `slow-tests` runs what that leaves out: the ignored ones, and those of every other
//! crate. `all-seeds` runs both with all their seeds.
//!
//! They start the binaries that cargo built themselves: only so can they ask libtest for the time of each
//! test, which is an unstable option. Invariant: `tests` runs what `cargo test` runs, and names what that
//! leaves out; with `slow-tests` every test was run.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::context::{Context, run_and_repeat};
use crate::tools;

/// The most that a test of the default set may take, in seconds; slower ones are ignored with a reason.
const LONGEST: f64 = 10.0;
/// How many of the slowest tests are listed.
const LISTED: usize = 10;

/// Runs the default set.
pub fn default_set(context: &Context) -> Result<(), String> {
    let mut results = Results::default();
    let mut failed = Vec::new();
    for binary in binaries(&context.output_of("cargo test --no-run --message-format json-render-diagnostics")?) {
        let before = results.took.len();
        failed.extend(run_and_repeat(&mut binary.command(), |line| results.read(line)).err());
        for (seconds, name) in results.took[before..].iter_mut().filter(|(seconds, _)| *seconds > LONGEST) {
            // Once more alone: it shared the cores with others, and the machine may be busy.
            let mut alone = Results::default();
            failed.extend(run_and_repeat(binary.command().args(["--exact", name]), |line| alone.read(line)).err());
            *seconds = alone.took.first().map_or(*seconds, |(again, _)| seconds.min(*again));
        }
    }
    failed.extend(context.run("cargo test --doc --no-fail-fast").err());
    print!("{}", results.summary());
    failed.extend(results.slow());
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

/// Runs what the default set leaves out: its ignored tests, which need root, a browser or minutes, and every
/// test of the other crates.
pub fn left_out(context: &Context) -> Result<(), String> {
    run_all(context, "few", |binary| if binary.is_of_product() { "--ignored" } else { "--include-ignored" })
}

/// Runs every test with all its seeds.
pub fn all_seeds(context: &Context) -> Result<(), String> {
    run_all(context, "all", |_| "--include-ignored")
}

fn run_all(context: &Context, seeds: &str, chosen: fn(&Binary) -> &'static str) -> Result<(), String> {
    let missing = if cfg!(target_os = "linux") { tools::packages(context, NEEDED) } else { Ok(()) };
    // No error: tests that lack a tool say so.
    missing.unwrap_or_else(|problem| println!("{problem}"));
    let unwanted = unwanted();
    unwanted.iter().for_each(|(test, why)| println!("left out: {test}, {why}"));
    let mut results = Results::default();
    let mut failed = Vec::new();
    for built in [
        // The features of foreign crates are those of the default set, so that nothing is compiled again.
        // `xtask` and the header generator of the C API ask for others.
        "cargo test --workspace --exclude xtask --exclude tidewire-capi",
        // Only with this name does cargo turn the feature of this test on.
        "cargo test --workspace --exclude xtask --exclude tidewire-capi --test xdp",
        "cargo test --package tidewire-capi",
        "cargo test --package xtask",
    ] {
        let messages = context.output_of(&format!("{built} --no-run --message-format json-render-diagnostics"))?;
        for binary in binaries(&messages) {
            let mut command = binary.command();
            command.arg(chosen(&binary)).env("TIDEWIRE_SEEDS", seeds);
            unwanted.iter().for_each(|(test, _)| _ = command.args(["--skip", test]));
            let mut panicked = false;
            failed.extend(
                run_and_repeat(&mut command, |line| {
                    // The line after the place of a panic is its message.
                    let message = std::mem::replace(&mut panicked, line.contains("' panicked at "));
                    results.read(line) || message || panicked || line.contains("SIM_SEED=")
                })
                .err(),
            );
        }
    }
    failed.extend(context.run("cargo test --workspace --exclude xtask --exclude tidewire-capi --doc").err());
    print!("{}", results.summary());
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

/// Tests that no machine has to run, and why.
fn unwanted() -> Vec<(&'static str, &'static str)> {
    let mut tests = vec![("packets_a_second", "a measurement")];
    if !Path::new("/sys/fs/ext4/features/casefold").exists() {
        tests.push(("names_that_differ_by_case_are_told_apart_where", "this kernel folds no names"));
    }
    tests
}

/// A test binary, and the folder of its package.
struct Binary {
    path: PathBuf,
    package: PathBuf,
}

impl Binary {
    /// Whether the default set has its other tests.
    fn is_of_product(&self) -> bool {
        !self.package.components().any(|folder| ["labs", "capi", "xtask"].map(OsStr::new).contains(&folder.as_os_str()))
    }

    /// Starts it as cargo does: tests find their data by folder and variable. It tells the time of each test.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(["-Zunstable-options", "--report-time"]).env("RUSTC_BOOTSTRAP", "1");
        command.current_dir(&self.package).env("CARGO_MANIFEST_DIR", &self.package);
        command
    }
}

/// The test binaries in cargo's messages.
fn binaries(messages: &str) -> Vec<Binary> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let built = messages.filter(|message| message["profile"]["test"] == true);
    let binary = |message: Value| {
        let package = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
        Some(Binary { path: message["executable"].as_str()?.into(), package })
    };
    built.filter_map(binary).collect()
}

/// What the lines of test binaries said.
#[derive(Default)]
struct Results {
    /// Seconds and names.
    took: Vec<(f64, String)>,
    /// How many tests were left out for each reason.
    left_out: BTreeMap<String, usize>,
}

impl Results {
    /// Reads a line of libtest: `test NAME ... ok <0.012s>` or `test NAME ... ignored, REASON`. Returns
    /// whether a reader of the end of the log needs it.
    fn read(&mut self, line: &str) -> bool {
        let Some((name, outcome)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) else {
            return line.contains("panicked at");
        };
        if let Some(reason) = outcome.strip_prefix("ignored") {
            *self.left_out.entry(reason.trim_start_matches(", ").into()).or_default() += 1;
        }
        let seconds = outcome.split_once('<').and_then(|(_, time)| time.strip_suffix("s>")?.parse().ok());
        self.took.extend(seconds.map(|seconds: f64| (seconds, name.to_owned())));
        outcome.starts_with("FAILED")
    }

    fn summary(&self) -> String {
        let mut slowest: Vec<_> = self.took.iter().collect();
        slowest.sort_by(|a, b| b.0.total_cmp(&a.0));
        let sum: f64 = self.took.iter().map(|(seconds, _)| seconds).sum();
        let mut text = format!("\n{} tests took {sum:.0} s, one after the other. The slowest:\n", self.took.len());
        slowest.iter().take(LISTED).for_each(|(seconds, name)| text += &format!("{seconds:>8.1} s  {name}\n"));
        if !self.left_out.is_empty() {
            text += "left out, for `cargo xtask slow-tests`:\n";
        }
        self.left_out.iter().for_each(|(reason, count)| text += &format!("{count:>8}    {reason}\n"));
        text
    }

    fn slow(&self) -> Vec<String> {
        let slow = self.took.iter().filter(|(seconds, _)| *seconds > LONGEST);
        slow.map(|(seconds, name)| format!("{name} took {seconds:.1} s, more than {LONGEST}: ignore it with a reason"))
            .collect()
    }
}

/// What tests need on Linux beyond a compiler: probes, and Debian's packages.
const NEEDED: &[(&str, &str)] = &[
    ("ip -V", "iproute2"),
    ("nft --version", "nftables"),
    ("strace -V", "strace"),
    ("chromium --version", "chromium"),
    ("curl --version", "curl"),
    ("ssh -V", "openssh-client"),
    ("/usr/sbin/sshd -V", "openssh-server"),
    ("tshark --version", "tshark"),
    ("promtool --version", "prometheus"),
    ("python3 -V", "python3"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_and_ignored_tests_are_named() {
        let mut results = Results::default();
        let lines = [
            "test a::quick ... ok <0.012s>",
            "test a::slow ... ok <12.500s>",
            "test b ... ignored, needs root",
            "test c ... ignored, needs root",
            "running 4 tests",
        ];
        assert!(lines.iter().all(|line| !results.read(line)));
        assert!(results.read("test d ... FAILED <0.100s>"));
        assert_eq!(results.left_out["needs root"], 2);
        assert_eq!(results.slow(), ["a::slow took 12.5 s, more than 10: ignore it with a reason"]);
        assert!(results.summary().contains("    12.5 s  a::slow\n     0.1 s  d\n"));
    }

    #[test]
    fn only_test_binaries_are_started() {
        let message = |test: bool, executable: &str| serde_json::json!({ "profile": { "test": test }, "executable": executable, "manifest_path": "/w/c/Cargo.toml" });
        let messages = format!("{}\n{}\nnoise\n", message(true, "/t/a-1"), message(false, "/t/examples/b"));
        let found = binaries(&messages);
        assert_eq!((found.len(), found[0].path.to_str(), found[0].package.to_str()), (1, Some("/t/a-1"), Some("/w/c")));
    }
}
