//! What a user may build that no other step builds: every set of features, with the oldest compiler that
//! `rust-version` promises, and for the C library of packages.

use crate::context::{Context, run};
use crate::tools;
use serde_json::Value;
use std::collections::BTreeSet;

/// Checks each crate that has features with each set of them.
pub fn check(context: &Context) -> Result<(), String> {
    let cargo_hack = tools::subcommand(context, &tools::CARGO_HACK)?;
    let packages = context.packages("--no-deps")?;
    let mut command = context.program(&cargo_hack, "hack check --feature-powerset --exclude-features default");
    for package in with_features(&packages) {
        command.args(["--package", package]);
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
fn with_features(packages: &[Value]) -> impl Iterator<Item = &str> {
    let has_some = |package: &&Value| package["features"].as_object().is_some_and(|features| !features.is_empty());
    packages.iter().filter(has_some).filter_map(|package| package["name"].as_str())
}

/// Checks the workspace with the oldest compiler that it promises to build with.
///
/// Tests and examples are left out: what only they use may need a newer compiler. Where that toolchain is
/// neither installed nor to be had, the step is skipped.
pub fn oldest_compiler(context: &Context) -> Result<(), String> {
    let version = rust_version(&context.packages("--no-deps")?)?;
    let is_there = context.succeeds(&format!("rustup run {version} cargo --version"));
    if !is_there && context.run(&format!("rustup toolchain install {version} --profile minimal")).is_err() {
        context.skip(&format!("Rust {version} is not installed, and rustup cannot install it here"));
        return Ok(());
    }
    let mut command = context.command(&format!("rustup run {version} cargo check --workspace --locked"));
    // Apart from the others: another compiler would make cargo rebuild what they share.
    run(command.env("CARGO_TARGET_DIR", context.target.join("oldest-compiler")))
}

/// The `rust-version` of the workspace's packages, which all have the same.
fn rust_version(packages: &[Value]) -> Result<String, String> {
    let versions = packages.iter().map(|package| package["rust_version"].as_str().unwrap_or("missing"));
    match versions.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()[..] {
        [version] if version != "missing" => Ok(version.into()),
        ref versions => Err(format!("the packages promise different compilers: {}", versions.join(", "))),
    }
}

/// The target of the static binaries in packages.
pub const MUSL: &str = "x86_64-unknown-linux-musl";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn packages_with_features_and_their_oldest_compiler_are_found() {
        let package =
            |name, rust_version, features| json!({"name": name, "rust_version": rust_version, "features": features});
        let a = package("a", json!("1.89"), json!({}));
        let b = package("b", json!("1.89"), json!({"default": ["x"], "x": []}));
        let other = |version| [a.clone(), package("c", version, json!({}))];
        let packages = [a.clone(), b];
        assert_eq!(with_features(&packages).collect::<Vec<_>>(), ["b"]);
        assert_eq!(rust_version(&packages), Ok("1.89".into()));
        assert!(rust_version(&other(json!("1.90"))).is_err() && rust_version(&other(Value::Null)).is_err());
    }
}
