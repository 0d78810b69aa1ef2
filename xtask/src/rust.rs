//! The steps that are a few cargo commands each: formatting, lints, documentation, Miri, the address
//! sanitizer, benchmarks.

use crate::context::{Context, run, run_together};
use crate::tools;

/// Checks the formatting of the workspace and of the crates outside it: `bench`, `crates/py` and `fuzz`.
pub fn fmt(context: &Context) -> Result<(), String> {
    let manifests = ["Cargo.toml", "crates/py/Cargo.toml", "bench/Cargo.toml", "fuzz/Cargo.toml"];
    manifests
        .iter()
        .try_for_each(|manifest| context.run(&format!("cargo fmt --all --check --manifest-path {manifest}")))
}

/// Lints all targets. A warning is an error.
pub fn clippy(context: &Context) -> Result<(), String> {
    context.run("cargo clippy --workspace --all-targets -- -D warnings")
}

/// Builds the documentation of the workspace. A warning (a dead link, a missing comment) is an error.
pub fn doc(context: &Context) -> Result<(), String> {
    run(context.command("cargo doc --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings"))
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
    let mut command = context.command("rustup run nightly cargo test -p tidewire-codec --lib --tests");
    // With an explicit target, build scripts and macros are built without the sanitizer.
    command.args(["--target", host.trim()]).env("RUSTFLAGS", "-Zsanitizer=address");
    run(command.env("CARGO_TARGET_DIR", context.target.join("asan")))
}

/// Lints, tests and runs the benchmark program, which judges no times here: every codec it times, ours and
/// the peers', gives correct results, and the transport and its peer carry every byte. It is a workspace of
/// its own, so that its peers stay out of the product's lock file.
pub fn bench(context: &Context) -> Result<(), String> {
    // All commands use one profile, so that the peers are compiled once.
    for (arguments, rest) in [
        ("clippy --all-targets", ["-D", "warnings"].as_slice()),
        ("test", &[]),
        ("run", &["codec", "--quick"]),
        ("run", &["transport", "--quick"]),
    ] {
        let mut command = context.command(&format!("cargo {arguments} --release --locked"));
        command.args(["--manifest-path", "bench/Cargo.toml", "--target-dir"]).arg(context.target.join("bench"));
        run(command.arg("--").args(rest))?;
    }
    Ok(())
}
