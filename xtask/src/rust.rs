//! The steps that are one cargo command each: formatting, lints, documentation, tests, Miri.

use crate::context::{Context, run, run_and_repeat, run_together};
use crate::tools;
use serde_json::Value;
use std::collections::BTreeSet;

/// Checks the formatting of the workspace and of the crates outside it: `bench`, `crates/py` and `fuzz`.
pub fn fmt(context: &Context) -> Result<(), String> {
    context.run("cargo fmt --all --check")?;
    context.run("cargo fmt --manifest-path crates/py/Cargo.toml --check")?;
    context.run("cargo fmt --manifest-path bench/Cargo.toml --check")?;
    context.run("cargo fmt --manifest-path fuzz/Cargo.toml --check")
}

/// Lints all targets. A warning is an error.
pub fn clippy(context: &Context) -> Result<(), String> {
    // In the profile of the tests, so that macros and build scripts (C code of the ciphers) are built only
    // once.
    context.run("cargo clippy --workspace --all-targets --profile checked -- -D warnings")
}

/// Builds the documentation of the workspace. A warning (a dead link, a missing comment) is an error.
pub fn doc(context: &Context) -> Result<(), String> {
    run(context.command("cargo doc --workspace --no-deps --profile checked").env("RUSTDOCFLAGS", "-D warnings"))
}

/// Runs the tests at release speed, with assertions and overflow checks on, those that simulate many seeds
/// with few of them. The quick part leaves out examples, and those tests of the command that start many
/// processes and wait for real time.
pub fn test(context: &Context) -> Result<(), String> {
    run_tests(context, Seeds::Few)
}

/// Runs all tests with all their seeds.
pub fn test_all_seeds(context: &Context) -> Result<(), String> {
    run_tests(context, Seeds::All)
}

/// How many seeds the tests simulate.
enum Seeds {
    /// A tenth or less of all.
    Few,
    All,
}

fn run_tests(context: &Context, seeds: Seeds) -> Result<(), String> {
    if cfg!(target_os = "linux") {
        tools::optional_packages(context, TEST_TOOLS);
    }
    // One command: with another set of packages or targets cargo would build foreign crates again, with other
    // features. Without a choice of targets it builds examples as programs, which `tests/examples.rs` of
    // `tidewire` runs, and runs the examples in the documentation too.
    let mut line = String::from("cargo test --workspace --exclude xtask --profile checked --no-fail-fast");
    if context.quick {
        line += " --lib";
        line += &quick_targets(context)?;
    }
    let mut command = context.command(&line);
    if matches!(seeds, Seeds::Few) {
        command.env("TIDEWIRE_QUICK", "1");
    }
    let mut panicked = false;
    let tests = run_and_repeat(&mut command, |line| {
        // The line after the place of a panic is its message.
        let message = std::mem::replace(&mut panicked, line.contains("' panicked at "));
        message || panicked || line.ends_with(" ... FAILED") || line.contains("SIM_SEED=")
    });
    // In the profile in which the task runner itself was built.
    let own = context.run("cargo test -p xtask");
    tests.and(own)
}

/// The tests of the quick part, as arguments of cargo.
fn quick_targets(context: &Context) -> Result<String, String> {
    let metadata = context.output_of("cargo metadata --no-deps --format-version 1")?;
    let metadata: Value = serde_json::from_str(&metadata).map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = metadata["packages"].as_array().into_iter().flatten().filter(|package| package["name"] != "xtask");
    let targets = packages.flat_map(|package| package["targets"].as_array().into_iter().flatten());
    let tests = targets.filter(|target| target["kind"][0] == "test").filter_map(|target| target["name"].as_str());
    let quick: BTreeSet<_> = tests.filter(|test| !SLOW_TESTS.contains(test)).collect();
    Ok(quick.iter().map(|test| format!(" --test {test}")).collect())
}

/// Runs the kernel tests under Miri, which checks every unsafe access. Miri interprets AVX2, AVX-512, GFNI
/// and NEON instructions, so this step also tests kernels that the machine itself cannot run.
pub fn miri(context: &Context) -> Result<(), String> {
    tools::nightly(context, &["miri", "rust-src"])?;
    let targets = [
        ("x86_64-unknown-linux-gnu", "+gfni,+avx512f,+avx512bw,+avx512dq,+avx2"),
        ("aarch64-unknown-linux-gnu", "+neon"),
    ];
    let commands = targets.map(|(triple, features)| {
        let mut command = context.command("rustup run nightly cargo miri test -p tidewire-codec --test kernels");
        command.args(["--target", triple]).env("RUSTFLAGS", format!("-Ctarget-feature={features}"));
        // A target folder of its own: Miri's flags would make cargo rebuild what other steps share.
        command.env("CARGO_TARGET_DIR", context.target.join("miri"));
        command
    });
    // Each run keeps one core busy.
    run_together(commands.into()).into_iter().collect()
}

/// Runs the codec's tests under the address sanitizer. It covers what Miri is too slow for: whole streams and
/// all lengths.
pub fn asan(context: &Context) -> Result<(), String> {
    tools::nightly(context, &[])?;
    let host = context.output_of("rustc --print host-tuple")?;
    let mut command =
        context.command("rustup run nightly cargo test -p tidewire-codec --lib --tests --profile checked");
    // With an explicit target, build scripts and macros are built without the sanitizer.
    command.args(["--target", host.trim()]).env("RUSTFLAGS", "-Zsanitizer=address").env("TIDEWIRE_QUICK", "1");
    run(command.env("CARGO_TARGET_DIR", context.target.join("asan")))
}

/// Tools that tests of the command use on Linux: for namespaces, address translation, failing system calls
/// and the dashboard's page.
const TEST_TOOLS: &[(&str, &str)] = &[
    ("ip -V", "iproute2"),
    ("nft --version", "nftables"),
    ("strace -V", "strace"),
    ("chromium --version", "chromium"),
];
/// Tests of the command that the quick part leaves out: they start many processes and wait for real time.
const SLOW_TESTS: [&str; 4] = ["end_to_end", "faults", "jobs", "lab"];
