//! The book of all documents: its links are checked, then mdBook builds it into `target/book`.
//!
//! `book.toml` has its settings and `docs/SUMMARY.md` its table of contents. Invariant: a warning of mdBook
//! is an error.

use crate::context::Context;
use crate::{links, tools};

/// Checks links and builds the book.
pub fn check(context: &Context) -> Result<(), String> {
    links::check(context)?;
    let mdbook = tools::subcommand(context, &MDBOOK)?;
    let folder = context.target.join("book");
    let mut command = context.program(&mdbook, "build --dest-dir");
    let output = command.arg(&folder).output().map_err(|e| format!("cannot start {}: {e}", mdbook.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    print!("{said}");
    let complaints = said.lines().filter(|line| is_complaint(line)).count();
    if !output.status.success() {
        return Err(format!("mdbook ended with {}", output.status));
    }
    if complaints > 0 {
        return Err(format!("{complaints} warnings of mdbook"));
    }
    println!("the book is in {}", folder.display());
    Ok(())
}

/// Whether a line of mdBook's log is a warning or an error.
fn is_complaint(line: &str) -> bool {
    line.split_whitespace().any(|word| matches!(word.trim_matches(['[', ']']), "WARN" | "ERROR"))
}

/// Without its web server, file watcher and search, which no check uses, and without optimization: built so,
/// it takes 37 s of processor time (AMD EPYC), and the book takes it a second or two.
const MDBOOK: tools::Subcommand =
    tools::Subcommand { name: "mdbook", version: "0.5.4", options: &["--debug", "--no-default-features"], wheel: None };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_and_errors_are_told_from_progress() {
        assert!(is_complaint(" WARN unclosed HTML tag `<k>` found in `wire.md`"));
        assert!(is_complaint("2026-01-01 00:00:00 [ERROR] (mdbook::utils): no chapter"));
        assert!(!is_complaint(" INFO Book building has started"));
    }
}
