//! The supply chain: licences, banned crates and sources by cargo-deny (`deny.toml`), the reason for each
//! direct dependency (`docs/dependencies.md`), and how many foreign crates each of our crates brings into a
//! build.

use crate::context::{Context, run};
use crate::{dependencies, tools};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Runs all checks. The benchmarks' peers are held to licences and sources only. Advisories are checked only
/// where a copy of the RustSec database lies on this machine.
pub fn check(context: &Context) -> Result<(), String> {
    dependencies::check(context)?;
    LIMITS.iter().try_for_each(|(package, limit)| count(context, package, *limit))?;
    let cargo_deny = tools::subcommand(context, &tools::CARGO_DENY)?;
    let checks = "--workspace check --hide-inclusion-graph --allow unused-wrapper licenses bans sources";
    run(&mut context.program(&cargo_deny, checks))?;
    // What users install of the Python package is held to everything.
    let python =
        "--manifest-path crates/py/Cargo.toml --config deny.toml check --hide-inclusion-graph --allow unmatched-skip";
    run(&mut context.program(&cargo_deny, &format!("{python} --allow unused-wrapper licenses bans sources")))?;
    let peers = "--manifest-path bench/Cargo.toml --config deny.toml check --hide-inclusion-graph licenses sources";
    run(&mut context.program(&cargo_deny, peers))?;
    if advisory_database().is_some_and(|folder| folder.exists()) {
        run(&mut context.program(&cargo_deny, "--workspace --offline check --hide-inclusion-graph advisories"))?;
    } else {
        println!("advisories: skipped, no copy of the RustSec database on this machine (`cargo deny fetch` makes one)");
    }
    Ok(())
}

/// Prints how many foreign crates building `package` compiles, build scripts and macros included; more than
/// the limit is an error.
fn count(context: &Context, package: &str, limit: Option<usize>) -> Result<(), String> {
    let tree = context.output_of(&format!("cargo tree --package {package} --edges normal,build --prefix none"))?;
    let crates = foreign(&tree);
    println!("{package}: {crates} foreign crates");
    match limit {
        Some(limit) if crates > limit => Err(format!("{package} brings {crates} foreign crates, at most {limit}")),
        _ => Ok(()),
    }
}

/// Number of packages from outside the workspace, each version by itself, in the output of `cargo tree
/// --prefix none`. Its lines are `name vVERSION`, then marks in parentheses; a package of the workspace has
/// its absolute path there.
fn foreign(tree: &str) -> usize {
    let package = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let lines = tree.lines().filter(|line| !line.is_empty() && !line.contains("(/"));
    lines.map(package).collect::<BTreeSet<_>>().len()
}

/// The folder where cargo-deny keeps its copies of advisory databases.
fn advisory_database() -> Option<PathBuf> {
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo = cargo.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))?;
    Some(cargo.join("advisory-dbs"))
}

/// Foreign crates of each crate that others depend on, and of the command: measured (docs/dependencies.md),
/// with room for an update that splits a crate. The command is nobody's dependency and has no limit.
const LIMITS: [(&str, Option<usize>); 4] =
    [("tidewire-codec", Some(0)), ("tidewire-proto", Some(61)), ("tidewire", Some(74)), ("tidewire-cli", None)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_packages_count_once_per_version() {
        let tree = "tidewire-cli v0.1.0 (/x)\ntidewire v0.1.0 (/y) (*)\n\nlog v0.4.1\nlog v0.4.1 (*)\nlog v0.3.0\n\
            serde_derive v1.0.0 (proc-macro)\n";
        assert_eq!(foreign(tree), 3);
    }
}
