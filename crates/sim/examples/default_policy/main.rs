//! Writes the decisions of the default policy as a table and two pictures, which docs/default-policy.md
//! shows.
//!
//! `cargo run --release -p tidewire-sim --example default_policy -- [--write]`
//!
//! The policy is a function of its context, so the program needs no link and no packets: it asks the policy
//! as a connection would, on paths that do not change. Without `--write` the table goes to standard output. A
//! test compares the committed files with the program's output.

mod decision;
mod picture;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let write = match &arguments[..] {
        [] => false,
        [option] if option == "--write" => true,
        _ => {
            eprintln!("known: --write");
            return ExitCode::from(2);
        }
    };
    if !write {
        print!("{}", table::draw());
        return ExitCode::SUCCESS;
    }
    // Read at run time: where two checkouts share a target directory, the program may come from the other
    // one.
    let Some(manifest) = std::env::var_os("CARGO_MANIFEST_DIR") else {
        eprintln!("start this by cargo run, so that it finds docs/");
        return ExitCode::FAILURE;
    };
    match files(&Path::new(&manifest).join("../../docs")).iter().try_for_each(save) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// Each file and its new content.
fn files(docs: &Path) -> [(PathBuf, String); 3] {
    [
        (docs.join("data/default-policy.csv"), table::draw()),
        (docs.join("default-policy.svg"), picture::by_default()),
        (docs.join("default-policy-targets.svg"), picture::for_targets()),
    ]
}

fn save((path, text): &(PathBuf, String)) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_committed_is_what_the_policy_decides() {
        for (path, text) in files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")) {
            let committed = std::fs::read_to_string(&path).unwrap();
            let differs = committed.lines().zip(text.lines()).find(|(old, new)| old != new);
            assert!(committed == text, "{} is old, write it anew: {differs:?}", path.display());
        }
    }
}
