//! Keeps the benchmarks working: they build without a warning, their own tests pass, every codec they time
//! (ours and the peers') gives correct results, and the transport and its peer carry every byte.
//!
//! This step judges no times. To measure, run `bench/` by hand on a quiet machine.

use crate::context::{Context, run};

/// Lints, tests and runs the benchmark program. It is a workspace of its own, so that its peers stay out of
/// the product's lock file.
pub fn check(context: &Context) -> Result<(), String> {
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
