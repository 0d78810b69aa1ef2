//! The reasons for direct dependencies, `docs/dependencies.md`: each dependency of each manifest has its line
//! there, and no line is about a dependency that is gone.
//!
//! A part of the step `deny`. Crates of the workspace itself need no reason.

use crate::context::Context;
use serde_json::Value;
use std::collections::BTreeSet;

/// The workspaces: the product's, and those beside it.
const MANIFESTS: [&str; 4] = ["Cargo.toml", "bench/Cargo.toml", "crates/py/Cargo.toml", "fuzz/Cargo.toml"];
const PAGE: &str = "docs/dependencies.md";
/// The page leaves it out in the names of our packages.
const PREFIX: &str = "tidewire-";

/// Fails with every dependency without a reason, and every reason without its dependency.
pub fn check(context: &Context) -> Result<(), String> {
    let mut used = BTreeSet::new();
    for manifest in MANIFESTS {
        let line = format!("cargo metadata --no-deps --format-version 1 --manifest-path {manifest}");
        used.extend(direct(&context.output_of(&line)?)?);
    }
    let text = std::fs::read_to_string(context.root.join(PAGE)).map_err(|e| format!("{PAGE}: {e}"))?;
    let explained = explained(&text);
    for (package, dependency) in used.difference(&explained) {
        println!("{PAGE} gives no reason for `{dependency}` of `{package}`");
    }
    for (package, dependency) in explained.difference(&used) {
        println!("{PAGE} has a reason for `{dependency}`, which `{package}` does not use");
    }
    println!("{} direct dependencies, {} with a reason", used.len(), used.intersection(&explained).count());
    match used.symmetric_difference(&explained).count() {
        0 => Ok(()),
        count => Err(format!("{count} lines of {PAGE} are missing or old")),
    }
}

/// Package, without its prefix, and foreign dependency, for each direct dependency of any kind in the output
/// of `cargo metadata`.
fn direct(metadata: &str) -> Result<BTreeSet<(String, String)>, String> {
    let metadata: Value = serde_json::from_str(metadata).map_err(|e| format!("cargo metadata: {e}"))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut found = BTreeSet::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        // One with a path is ours.
        let foreign = dependencies.filter(|dependency| dependency["path"].is_null());
        let package = text(&package["name"]).replacen(PREFIX, "", 1);
        found.extend(foreign.map(|dependency| (package.clone(), text(&dependency["name"]))));
    }
    Ok(found)
}

/// Package and dependency of each row of the page: the first cell has the dependencies, the second the
/// packages that use them, without their prefix, and the last one the reason.
fn explained(page: &str) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for line in page.lines() {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [names, users, reason] = cells[..] else { continue };
        // The odd pieces lie between the marks of code.
        for name in names.split('`').skip(1).step_by(2).filter(|_| !reason.is_empty()) {
            let users = users.split([',', ';']).filter_map(|user| user.split_whitespace().next());
            found.extend(users.map(|user| (user.to_owned(), name.to_owned())));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(pairs: &[(&str, &str)]) -> BTreeSet<(String, String)> {
        pairs.iter().map(|(package, name)| ((*package).into(), (*name).into())).collect()
    }

    #[test]
    fn dependencies_with_a_path_are_ours() {
        let metadata = r#"{"packages": [{"name": "tidewire-a", "dependencies": [
            {"name": "b", "path": "/b"}, {"name": "serde"}, {"name": "serde", "kind": "dev"}, {"name": "cc", "kind": "build"}]}]}"#;
        assert_eq!(direct(metadata), Ok(set(&[("a", "serde"), ("a", "cc")])));
    }

    #[test]
    fn a_row_has_dependencies_their_users_and_a_reason() {
        let page = "| crate | limit |\n| `a` | 7 |\n| crate | used by | reason |\n| --- | --- | --- |\n\
            | `serde`, `toml` | a, b (Linux); c (dev) | rows |\n| `empty` | a | |\n";
        let pairs = ["a", "b", "c"].map(|user| [(user, "serde"), (user, "toml")]).concat();
        assert_eq!(explained(page), set(&pairs));
    }
}
