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
        used.extend(direct(&context.packages(&format!("--no-deps --manifest-path {manifest}"))?));
    }
    let text = std::fs::read_to_string(context.root.join(PAGE)).map_err(|e| format!("{PAGE}: {e}"))?;
    let explained = explained(&text);
    for (package, dependency) in used.symmetric_difference(&explained) {
        println!("{PAGE}: `{dependency}` of `{package}` has no reason, or is no dependency any more");
    }
    println!("{} direct dependencies, {} with a reason", used.len(), used.intersection(&explained).count());
    match used.symmetric_difference(&explained).count() {
        0 => Ok(()),
        count => Err(format!("{count} lines of {PAGE} are missing or old")),
    }
}

/// Package, without its prefix, and foreign dependency, for each direct dependency of any kind.
fn direct(packages: &[Value]) -> BTreeSet<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut found = BTreeSet::new();
    for package in packages {
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        // One with a path is ours.
        let foreign = dependencies.filter(|dependency| dependency["path"].is_null());
        let package = text(&package["name"]).replacen(PREFIX, "", 1);
        found.extend(foreign.map(|dependency| (package.clone(), text(&dependency["name"]))));
    }
    found
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
    use serde_json::json;

    fn set(pairs: &[(&str, &str)]) -> BTreeSet<(String, String)> {
        pairs.iter().map(|(package, name)| ((*package).into(), (*name).into())).collect()
    }

    #[test]
    fn dependencies_with_a_path_are_ours() {
        let dependencies =
            json!([{"name": "b", "path": "/b"}, {"name": "serde"}, {"name": "serde", "kind": "dev"}, {"name": "cc"}]);
        let package = json!({"name": "tidewire-a", "dependencies": dependencies});
        assert_eq!(direct(&[package]), set(&[("a", "serde"), ("a", "cc")]));
    }

    #[test]
    fn a_row_has_dependencies_their_users_and_a_reason() {
        let page = "| crate | limit |\n| `a` | 7 |\n| crate | used by | reason |\n| --- | --- | --- |\n\
            | `serde`, `toml` | a, b (Linux); c (dev) | rows |\n| `empty` | a | |\n";
        let pairs = ["a", "b", "c"].map(|user| [(user, "serde"), (user, "toml")]).concat();
        assert_eq!(explained(page), set(&pairs));
    }
}
