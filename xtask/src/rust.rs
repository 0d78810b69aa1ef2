//! The steps that are one cargo command each: formatting, lints, documentation, tests, Miri.

use crate::context::{Context, run, run_together};
use crate::tools;

/// Formatting is rustfmt's, in the workspace and in the crates beside it.
pub fn fmt(context: &Context) -> Result<(), String> {
    context.run("cargo fmt --all --check")?;
    context.run("cargo fmt --manifest-path bench/Cargo.toml --check")?;
    context.run("cargo fmt --manifest-path fuzz/Cargo.toml --check")
}

/// Lints of all targets; a warning is an error.
pub fn clippy(context: &Context) -> Result<(), String> {
    // In the profile of the tests, so that build scripts (C of the cryptography among them) and macros are built once.
    context.run("cargo clippy --workspace --all-targets --profile checked -- -D warnings")
}

/// Documentation of the workspace; a warning (a dead link, a missing comment) is an error.
pub fn doc(context: &Context) -> Result<(), String> {
    run(context.command("cargo doc --workspace --no-deps --profile checked").env("RUSTDOCFLAGS", "-D warnings"))
}

/// All tests at release speed with assertions and overflow checks on.
pub fn test(context: &Context) -> Result<(), String> {
    if cfg!(target_os = "linux") {
        tools::optional_packages(context, TEST_TOOLS);
    }
    let mut command = context.command("cargo test --workspace --lib --bins --tests --examples --profile checked");
    if context.quick {
        command.env("TIDEWIRE_QUICK", "1");
    }
    // Without this, cargo stops at the first test binary that fails.
    run(command.arg("--no-fail-fast"))
}

/// The examples in the documentation.
pub fn doc_test(context: &Context) -> Result<(), String> {
    context.run("cargo test --workspace --doc --profile checked --no-fail-fast")
}

/// The kernel tests under Miri, which checks every unsafe access and executes AVX2, AVX-512, GFNI and NEON
/// instructions whatever the machine has: it is where those kernels are tested on machines without them.
pub fn miri(context: &Context) -> Result<(), String> {
    tools::nightly(context, &["miri", "rust-src"])?;
    let targets =
        [("x86_64-unknown-linux-gnu", "+gfni,+avx512f,+avx512bw,+avx2"), ("aarch64-unknown-linux-gnu", "+neon")];
    let commands = targets.map(|(triple, features)| {
        let mut command = context.command("rustup run nightly cargo miri test -p tidewire-codec --test kernels");
        command.args(["--target", triple]).env("RUSTFLAGS", format!("-Ctarget-feature={features}"));
        // Apart from the others: Miri's flags would make cargo rebuild what they share.
        command.env("CARGO_TARGET_DIR", context.target.join("miri"));
        command
    });
    // Miri keeps one core busy, the second target the other.
    run_together(commands.into()).into_iter().collect()
}

/// The codec's tests under the address sanitizer, which sees what Miri is too slow for: whole streams, every length.
pub fn asan(context: &Context) -> Result<(), String> {
    tools::nightly(context, &[])?;
    let host = context.output_of("rustc --print host-tuple")?;
    let mut command =
        context.command("rustup run nightly cargo test -p tidewire-codec --lib --tests --profile checked");
    // Named, so that build scripts and macros are built without it.
    command.args(["--target", host.trim()]).env("RUSTFLAGS", "-Zsanitizer=address").env("TIDEWIRE_QUICK", "1");
    run(command.env("CARGO_TARGET_DIR", context.target.join("asan")))
}

/// What tests of the command use on Linux: namespaces, an address translator, system calls that fail.
const TEST_TOOLS: &[(&str, &str)] = &[("ip -V", "iproute2"), ("nft --version", "nftables"), ("strace -V", "strace")];
