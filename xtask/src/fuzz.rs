//! Fuzzing: every committed corpus is replayed, then each target runs for a while on new input.
//!
//! cargo-fuzz runs the targets of `fuzz/Cargo.toml` on the nightly toolchain. New inputs go to
//! `target/fuzz-found`, never into the committed corpus, because a check must not change the working tree. A
//! crash is kept under `fuzz/artifacts`, and its command line is printed.

use crate::context::{Context, run, run_together};
use crate::tools;
use std::path::Path;
use std::process::Command;

/// Replays and fuzzes every target. All targets run even if one fails.
pub fn check(context: &Context) -> Result<(), String> {
    tools::nightly(context, &[])?;
    let cargo_fuzz = tools::subcommand(context, &tools::CARGO_FUZZ)?;
    let targets = context.output_of(&format!("{} fuzz list", cargo_fuzz.display()))?;
    let targets: Vec<&str> = targets.lines().collect();
    if targets.is_empty() {
        return Err("fuzz/Cargo.toml names no target".into());
    }
    // Build all targets first: afterwards each run needs only one core.
    run(cargo_fuzz_command(context, &cargo_fuzz, "build").arg("--target-dir").arg(context.target.join("fuzz")))?;
    let runs = targets.iter().map(|target| fuzz(context, &cargo_fuzz, target)).collect::<Result<Vec<_>, _>>()?;
    let ended = targets.iter().zip(run_together(runs));
    let failed: Vec<_> = ended.filter(|(_, result)| result.is_err()).map(|(target, _)| *target).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("fuzz targets failed: {}", failed.join(", "))) }
}

fn cargo_fuzz_command(context: &Context, cargo_fuzz: &Path, verb: &str) -> Command {
    let mut command = context.command("rustup run nightly");
    // Without `--release` cargo-fuzz turns the assertions of all crates on, and one that the profile of
    // `fuzz/Cargo.toml` spares would take minutes for an input. That profile has them for the others.
    command.arg(cargo_fuzz).args(["fuzz", verb, "--release"]);
    command
}

/// The command that replays the committed corpus of one target and then fuzzes it for the time set in the
/// context.
fn fuzz(context: &Context, cargo_fuzz: &Path, target: &str) -> Result<Command, String> {
    let found = context.target.join("fuzz-found").join(target);
    let corpus = context.root.join("fuzz/corpus").join(target);
    for folder in [&found, &corpus] {
        std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let mut command = cargo_fuzz_command(context, cargo_fuzz, "run");
    // libFuzzer replays both folders, and writes new inputs only into the first one.
    command.arg("--target-dir").arg(context.target.join("fuzz")).arg(target).args([&found, &corpus]);
    command.args(["--", "-rss_limit_mb=2048", "-timeout=10"]);
    command.arg(format!("-max_total_time={}", context.fuzz_seconds));
    Ok(command)
}
