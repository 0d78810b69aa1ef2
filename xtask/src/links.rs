//! Checks that documents lead somewhere: rumdl checks the relative links and anchors of each `.md` file, and
//! this file each `docs/...` path that any source or document names in prose, and the table of contents.
//!
//! The step `book` calls it before it builds the book. Invariant: it reads the tree alone; addresses on the
//! network are never asked.

use crate::context::{Context, run};
use crate::tools;
use crate::tree::{self, File};
use std::collections::BTreeSet;

/// Fails with every link that leads nowhere, and every page of `docs/` that the table of contents leaves out.
pub fn check(context: &Context) -> Result<(), String> {
    let rumdl = tools::subcommand(context, &tools::RUMDL)?;
    // MD051: anchors; MD057: paths.
    let links =
        run(&mut context.program(&rumdl, "check --no-config --no-cache --exclude target --enable MD051,MD057 ."));
    let files = tree::files(&context.root, &[".md", ".rs", ".toml", ".yml", ".ci/run"])?;
    let mut broken: Vec<_> = files
        .iter()
        .filter(|file| leaves_the_tree(file))
        .map(|file| format!("{}: a link leaves the tree", file.name))
        .collect();
    for File { name, text } in files.iter().filter(|file| file.name != OWN) {
        let missing = mentioned(text).into_iter().filter(|path| !context.root.join(path).exists());
        broken.extend(missing.map(|path| format!("{name}: names `{path}`, which does not exist")));
    }
    broken.extend(left_out(&files));
    broken.iter().for_each(|line| println!("{line}"));
    links?;
    if broken.is_empty() { Ok(()) } else { Err(format!("{} broken links: mend the lines above", broken.len())) }
}

/// Whether a document links to a path above the root.
fn leaves_the_tree(File { name, text }: &File) -> bool {
    name.ends_with(".md") && text.contains(&format!("]({}", "../".repeat(name.matches('/').count() + 1)))
}

/// The paths below `docs/` that a text names, with the ending of a file. Placeholders in capitals are no
/// paths.
fn mentioned(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("docs/") {
        let before = &text[..at];
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
        if before.ends_with(is_part) && !before.ends_with("../") {
            continue;
        }
        let is_path = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || "/._-".contains(*c);
        let path: String = text[at..].chars().take_while(is_path).collect();
        let path = path.trim_end_matches('.');
        if [".md", ".svg", ".json", ".csv"].iter().any(|ending| path.ends_with(ending)) {
            found.insert(path.to_owned());
        }
    }
    found
}

/// Pages of `docs/` that no line of the table of contents names: nobody would find them in the book.
fn left_out(files: &[File]) -> Vec<String> {
    let contents = files.iter().find(|file| file.name == CONTENTS).map_or("", |file| &file.text);
    let pages = files.iter().filter_map(|file| file.name.strip_prefix("docs/").filter(|page| page.ends_with(".md")));
    let pages = pages.filter(|page| *page != "SUMMARY.md" && !contents.contains(&format!("]({page})")));
    pages.map(|page| format!("{CONTENTS} leaves out {page}")).collect()
}

const CONTENTS: &str = "docs/SUMMARY.md";
/// This file has paths in its tests that do not exist.
const OWN: &str = "xtask/src/links.rs";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_prose_and_code_are_found() {
        let text = "see `docs/wire.md` section 2, docs/adr/0001-a.md. \
                    Not docs/NAME.md, docs/adr/ or https://x.org/docs/a.md; include_str!(\"../../docs/j.json\")";
        assert_eq!(
            mentioned(text).into_iter().collect::<Vec<_>>(),
            ["docs/adr/0001-a.md", "docs/j.json", "docs/wire.md"]
        );
    }

    #[test]
    fn the_table_of_contents_names_every_page_and_links_stay_in_the_tree() {
        let file = |name: &str, text: &str| File { name: name.into(), text: text.into() };
        let files =
            [file("docs/SUMMARY.md", "[a](a.md)"), file("docs/a.md", "[b](../../b)"), file("docs/adr/b.md", "")];
        assert_eq!(left_out(&files), ["docs/SUMMARY.md leaves out adr/b.md"]);
        assert_eq!(files.each_ref().map(leaves_the_tree), [false, true, false]);
    }
}
