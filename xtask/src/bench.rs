//! Keeps the benchmarks alive: they build without a warning, their own tests pass, every codec they time, ours and the
//! peers', gives right results, and the transport and its peer carry every byte. No time is judged here: `bench/` is run
//! by hand for that, on a quiet machine.

use crate::context::{Context, run};

/// Lints, tests and runs the benchmark program, apart from the workspace, whose lock file knows no peers.
pub fn check(context: &Context) -> Result<(), String> {
    // One profile for all, so that the peers are compiled once.
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
