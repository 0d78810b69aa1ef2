//! Writes the decisions of the default policy as a table and two pictures: docs/default-policy.md.
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
    match files(&Path::new(&manifest).join("../../docs")).and_then(|files| files.iter().try_for_each(save)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// Each file and its new content. The prose of the document stays unchanged.
fn files(docs: &Path) -> Result<[(PathBuf, String); 3], String> {
    let document = docs.join("default-policy.md");
    let text = std::fs::read_to_string(&document).map_err(|error| format!("{}: {error}", document.display()))?;
    let lacks = || format!("{} lacks its marks {BEGIN}{END}", document.display());
    let (before, rest) = text.split_once(BEGIN).ok_or_else(lacks)?;
    let (_, after) = rest.split_once(END).ok_or_else(lacks)?;
    let text = format!("{before}{BEGIN}\n{}\n{END}{after}", table::draw());
    Ok([
        (document, text),
        (docs.join("default-policy.svg"), picture::by_default()),
        (docs.join("default-policy-targets.svg"), picture::for_targets()),
    ])
}

fn save((path, text): &(PathBuf, String)) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// The program writes the text between these two lines.
const BEGIN: &str = "<!-- begin: written by the program -->\n";
const END: &str = "<!-- end -->\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_committed_is_what_the_policy_decides() {
        for (path, text) in files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")).unwrap() {
            let committed = std::fs::read_to_string(&path).unwrap();
            let differs = committed.lines().zip(text.lines()).find(|(old, new)| old != new);
            assert!(committed == text, "{} is old, write it anew: {differs:?}", path.display());
        }
    }
}
