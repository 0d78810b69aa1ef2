//! The rules of CONTRIBUTING.md for text that a program can check: a reader needs nothing outside of this
//! tree, and can read every comment by itself.
//!
//! Three faults are counted in the sources, documents and settings: a reference to notes that do not lie in
//! the tree, a doc comment that begins with "..." and so leans on the line above it, and a comment of a Rust
//! file that is wider than [`WIDTH`]. Files that a program wrote (`@generated` in their first line) are not
//! looked at.

use crate::comments;
use crate::context::Context;
use crate::tree::{self, File};

/// Notes that lie outside of the tree, by the words that name them.
const NOTES: [&str; 10] =
    ["DESIGN", "RELIABILITY", "PEERS", "SPEED", "USERS", "PAPERS", "STYLE.md", "AXES", "founder", "founders"];
/// Those of them that are also names in the code: in Rust, only prose in comments can mean the notes.
const NAMES: [&str; 2] = ["PEERS", "PAPERS"];
/// This file has to name them.
const OWN: &str = "xtask/src/words.rs";
/// The most columns of a line with a comment, its indent and its code included.
const WIDTH: usize = 110;

/// Fails with every fault.
pub fn check(context: &Context) -> Result<(), String> {
    let files = tree::files(&context.root, &[".rs", ".md", ".toml", ".sh", ".yml", ".ci/run"])?;
    let mut count = 0;
    for file in &files {
        let faults = scan(file);
        faults.iter().for_each(|(line, what)| println!("{}:{line}: {what}", file.name));
        count += faults.len();
    }
    println!("{} files", files.len());
    match count {
        0 => Ok(()),
        count => Err(format!("{count} faults in words: mend the lines above")),
    }
}

/// The line and the text of every fault of one file.
fn scan(file: &File) -> Vec<(usize, String)> {
    let File { name, text } = file;
    if text.lines().next().is_some_and(|line| line.contains("@generated")) {
        return Vec::new();
    }
    let is_rust = name.ends_with(".rs");
    let starts = if is_rust { comments::starts(text) } else { Vec::new() };
    let mut faults = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let comment = starts.get(index).copied().flatten().map(|start| &line[start..]);
        let mut report = |what| faults.push((index + 1, what));
        if name != OWN {
            let words = NOTES.iter().filter(|word| {
                let is_name = is_rust && NAMES.contains(word);
                if is_name { comment.is_some_and(|prose| mentions(prose, word)) } else { mentions(line, word) }
            });
            words.for_each(|word| report(format!("`{word}` names notes outside of the tree; state the reason itself")));
        }
        let Some(comment) = comment else { continue };
        let doc = comment.strip_prefix("///").or(comment.strip_prefix("//!"));
        if doc.is_some_and(|doc| doc.trim_start().starts_with("...") || doc.trim_start().starts_with('…')) {
            report("a doc comment begins with \"...\"; write a sentence that stands alone".into());
        }
        let columns = line.chars().count();
        if columns > WIDTH {
            report(format!("a comment line of {columns} columns, at most {WIDTH}"));
        }
    }
    faults
}

/// Whether `word` stands in `text` as a word of prose: not as a part of a longer name, a path of code
/// (`a::WORD`), the whole of a code span (`` `WORD` ``), or a variable that is set (`WORD=1`).
fn mentions(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let is_code = NAMES.contains(&word) && before.ends_with('`') && after.starts_with('`');
        !(before.ends_with(is_part)
            || after.starts_with(is_part)
            || before.ends_with("::")
            || before.ends_with('$')
            || after.starts_with('=')
            || is_code)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(name: &str, text: &str) -> Vec<(usize, String)> {
        scan(&File { name: name.into(), text: text.into() })
    }

    fn lines(name: &str, text: &str) -> Vec<usize> {
        faults(name, text).into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn references_to_notes_are_found_in_every_kind_of_file() {
        assert_eq!(lines("a.rs", "let a = 1; // DESIGN section 6\nlet b = \"RELIABILITY H1\";"), [1, 2]);
        assert_eq!(lines("a.rs", "/// As the founders' notes say (PEERS L1).\nfn f() {}"), [1, 1]);
        assert_eq!(lines("pages/a.md", "see `DESIGN.md`\nfine\nSTYLE.md 4"), [1, 3]);
        assert_eq!(lines("Cargo.toml", "# an overflow is an error (RELIABILITY 3)\n"), [1]);
        assert_eq!(lines("a.sh", "# SPEED 2\nSPEED=1\necho $SPEED\n"), [1]);
    }

    #[test]
    fn names_of_code_and_longer_words_are_no_references() {
        for line in [
            "pub const PAPERS: [Paper; 1] = [];",
            "//! [`PAPERS`](crate::PAPERS) holds them",
            "//! let p = tidewire_papers::PAPERS.iter();",
            "for peer in PEERS.iter() {}",
            "const SPEED_LIMIT: u8 = 1; // REDESIGN, SPEEDS",
            "// what the users of a design get at speed",
        ] {
            assert_eq!(faults("a.rs", line), [], "{line}");
        }
        assert_eq!(lines(OWN, "// DESIGN"), [0; 0]);
        assert_eq!(lines("pages/a.md", "`PEERS` is a constant, PEERS are notes"), [1]);
    }

    #[test]
    fn a_doc_comment_stands_alone() {
        let text = "/// One half ...\nfn a() {}\n/// ... and the other.\nfn b() {}\n//! ...x";
        assert_eq!(lines("a.rs", text), [3, 5]);
        let text = "// ... an ordinary comment may\nlet a = \"/// ...\";\n/// Ranges: `0...9`";
        assert_eq!(lines("a.rs", text), [0; 0]);
        assert_eq!(lines("a.md", "/// ... text"), [0; 0]);
    }

    #[test]
    fn only_lines_with_comments_have_a_width() {
        let (fits, wide) = ("x".repeat(WIDTH - 3), "é".repeat(WIDTH - 2));
        assert_eq!(lines("a.rs", &format!("// {fits}\n// {wide}\n//{}\n", "é".repeat(WIDTH - 2))), [2]);
        assert_eq!(lines("a.rs", &format!("let a = \"http://{wide}\";")), [0; 0]);
        assert_eq!(lines("a.rs", &format!("let a = \"{wide}\"; // why")), [1]);
        assert_eq!(lines("a.rs", &format!("// @generated\n// {wide}")), [0; 0]);
        assert_eq!(lines("a.md", &format!("// {wide}")), [0; 0]);
    }
}
