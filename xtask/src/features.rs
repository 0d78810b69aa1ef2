//! What a user may build that no other step builds: every set of features, and the oldest compiler that
//! `rust-version` promises.

use crate::context::Context;
use serde_json::Value;

/// Every set of features of every crate that has some, as arguments of `cargo check`.
const SETS: [(&str, &str); 9] = [
    ("tidewire-codec", "--no-default-features"),
    ("tidewire-codec", "--no-default-features --features rs-fft"),
    ("tidewire-codec", "--no-default-features --features raptorq"),
    ("tidewire-codec", "--no-default-features --features raptorq,rs-fft"),
    ("tidewire-codec", "--no-default-features --features std"),
    ("tidewire-codec", "--no-default-features --features raptorq,rs-fft,std"),
    ("tidewire", ""),
    ("tidewire-proto", "--no-default-features"),
    ("tidewire-proto", "--no-default-features --features aws-lc-rs"),
];
/// All features of the workspace except `default`, so that a new one cannot be forgotten in [`SETS`].
const KNOWN: [(&str, &str); 5] = [
    ("tidewire", "xdp"),
    ("tidewire-codec", "raptorq"),
    ("tidewire-codec", "rs-fft"),
    ("tidewire-codec", "std"),
    ("tidewire-proto", "aws-lc-rs"),
];

/// Checks each crate with each set of its features.
pub fn check(context: &Context) -> Result<(), String> {
    let metadata = context.output_of("cargo metadata --no-deps --format-version 1")?;
    let features = features(&metadata)?;
    if features != KNOWN.map(|(package, feature)| (package.to_owned(), feature.to_owned())) {
        return Err(format!("the features are {features:?}: bring SETS and KNOWN of xtask/src/features.rs up to date"));
    }
    for (package, set) in SETS {
        context.run(&format!("cargo check --package {package} {set}"))?;
    }
    Ok(())
}

/// Packages and their features, `default` and those of optional dependencies aside.
fn features(metadata: &str) -> Result<Vec<(String, String)>, String> {
    let mut found = Vec::new();
    for package in packages(metadata)? {
        let name = package["name"].as_str().unwrap_or_default();
        let features = package["features"].as_object().into_iter().flat_map(|features| features.keys());
        found.extend(features.filter(|feature| *feature != "default").map(|feature| (name.into(), feature.clone())));
    }
    Ok(found)
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
    crate::context::run(command.env("CARGO_TARGET_DIR", context.target.join("oldest-compiler")))
}

/// The `rust-version` of the workspace's packages, which all have the same.
fn rust_version(metadata: &str) -> Result<String, String> {
    let packages = packages(metadata)?;
    let versions = packages.iter().map(|package| package["rust_version"].as_str());
    let mut versions: Vec<_> = versions.map(|version| version.unwrap_or("missing")).collect();
    versions.dedup();
    match versions[..] {
        [version] if version != "missing" => Ok(version.into()),
        _ => Err(format!("the packages promise different compilers: {}", versions.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = r#"{"packages": [
        {"name": "a", "rust_version": "1.89", "features": {}},
        {"name": "b", "rust_version": "1.89", "features": {"default": ["x"], "x": [], "y": []}}]}"#;

    #[test]
    fn features_are_listed_without_the_default() {
        let names = features(METADATA).unwrap();
        assert_eq!(names, [("b".into(), "x".into()), ("b".into(), "y".into())]);
        assert!(features("{}").is_err());
    }

    #[test]
    fn all_packages_promise_one_compiler() {
        assert_eq!(rust_version(METADATA), Ok("1.89".into()));
        assert!(rust_version(&METADATA.replacen("\"1.89\"", "\"1.90\"", 1)).is_err());
        assert!(rust_version(&METADATA.replace("\"1.89\"", "null")).is_err());
    }
}
