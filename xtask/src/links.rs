//! Checks that every link between documents leads somewhere: relative links and anchors of each `.md` file,
//! and each `docs/...` path that any source or document names in prose.
//!
//! The step `book` calls it before it builds the book. Invariant: it reads the tree alone; addresses on the
//! network are never asked.

use crate::context::Context;
use crate::tree::{self, File};
use pulldown_cmark::{Event, Parser, Tag, TagEnd};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Fails with every link that leads nowhere, and every page of `docs/` that the table of contents leaves out.
pub fn check(context: &Context) -> Result<(), String> {
    let files = tree::files(&context.root, &[".md", ".rs", ".toml", ".yml", ".ci/run"])?;
    let pages: BTreeMap<_, _> = pages(&files).map(|page| (page.name.as_str(), Page::read(&page.text))).collect();
    let exists = |path: &str| context.root.join(path).exists();
    let mut broken = Vec::new();
    for (name, page) in &pages {
        let wrong = page.links.iter().filter_map(|link| problem(name, link, &pages, &exists).map(|why| (link, why)));
        broken.extend(wrong.map(|(link, why)| format!("{name}: the link `{link}` {why}")));
    }
    for File { name, text } in files.iter().filter(|file| file.name != OWN) {
        let missing = mentioned(text).into_iter().filter(|path| !exists(path));
        broken.extend(missing.map(|path| format!("{name}: names `{path}`, which does not exist")));
    }
    broken.extend(left_out(&pages));
    broken.iter().for_each(|line| println!("{line}"));
    println!("{} documents, {} links", pages.len(), pages.values().map(|page| page.links.len()).sum::<usize>());
    if broken.is_empty() { Ok(()) } else { Err(format!("{} broken links: mend the lines above", broken.len())) }
}

fn pages(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| file.name.ends_with(".md"))
}

/// What a document links to and what can be linked to in it.
#[derive(Default)]
struct Page {
    links: Vec<String>,
    anchors: BTreeSet<String>,
}

impl Page {
    fn read(text: &str) -> Self {
        let mut page = Self::default();
        let mut heading: Option<String> = None;
        let options = pulldown_cmark::Options::ENABLE_TABLES;
        for event in Parser::new_ext(text, options) {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.into_string());
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::Text(text) | Event::Code(text) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                Event::End(TagEnd::Heading(_)) => page.add_anchor(&heading.take().unwrap_or_default()),
                _ => {}
            }
        }
        page
    }

    /// Adds the anchor of a heading; a second heading of the same text gets the number 1 behind it, and so
    /// on.
    fn add_anchor(&mut self, heading: &str) {
        let plain = anchor(heading);
        let numbered = (1..).map(|n| format!("{plain}-{n}"));
        let free = std::iter::once(plain.clone()).chain(numbered).find(|name| !self.anchors.contains(name));
        self.anchors.extend(free);
    }
}

/// The anchor of a heading, as GitHub and mdBook make it: lower case, spaces as hyphens, no punctuation.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect()
}

/// Why a link of the document `name` leads nowhere; none if it leads somewhere, or out of the tree.
fn problem(
    name: &str,
    link: &str,
    pages: &BTreeMap<&str, Page>,
    exists: &dyn Fn(&str) -> bool,
) -> Option<&'static str> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, fragment) = link.split_once('#').map_or((link, None), |(path, fragment)| (path, Some(fragment)));
    let Some(target) = (if path.is_empty() { Some(name.to_owned()) } else { resolve(name, path) }) else {
        return Some("leaves the tree");
    };
    if !exists(&target) {
        return Some("leads to no file");
    }
    let page = pages.get(target.as_str())?;
    let is_there = fragment.is_none_or(|fragment| page.anchors.contains(fragment));
    (!is_there).then_some("leads to no heading of that document")
}

/// The path from the root of what the document `name` calls `path`; none above the root.
fn resolve(name: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Path::new(name).parent()?.to_str()?.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
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
fn left_out(pages: &BTreeMap<&str, Page>) -> Vec<String> {
    let Some(contents) = pages.get(CONTENTS) else { return vec![format!("{CONTENTS} is missing")] };
    let named: BTreeSet<_> = contents.links.iter().filter_map(|link| resolve(CONTENTS, link)).collect();
    let in_book = pages.keys().filter(|name| name.starts_with("docs/") && **name != CONTENTS);
    in_book.filter(|name| !named.contains(**name)).map(|name| format!("{CONTENTS} leaves out {name}")).collect()
}

const CONTENTS: &str = "docs/SUMMARY.md";
/// This file has paths in its tests that do not exist.
const OWN: &str = "xtask/src/links.rs";

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# A `code` title: 2.1\n[x](b.md#top) ![y](p.svg)\n## Twice\n## Twice\n`[z](no.md)`\n";

    #[test]
    fn headings_become_the_anchors_of_the_site() {
        let anchors: Vec<_> = Page::read(TEXT).anchors.into_iter().collect();
        assert_eq!(anchors, ["a-code-title-21", "twice", "twice-1"]);
        assert_eq!(anchor("Where asking is in time, _nothing_"), "where-asking-is-in-time-_nothing_");
    }

    #[test]
    fn links_are_resolved_from_their_document() {
        let pages = BTreeMap::from([("docs/a.md", Page::read(TEXT)), ("docs/b.md", Page::read("# Top\n"))]);
        let exists = |path: &str| matches!(path, "docs/a.md" | "docs/b.md" | "docs/p.svg" | "README.md");
        let problem = |link| problem("docs/a.md", link, &pages, &exists);
        assert_eq!(pages["docs/a.md"].links, ["b.md#top", "p.svg"]);
        for good in "b.md#top p.svg #twice-1 ../README.md https://example.org/x#y mailto:a@b".split(' ') {
            assert_eq!(problem(good), None, "{good}");
        }
        assert_eq!(problem("b.md#end"), Some("leads to no heading of that document"));
        assert_eq!(problem("#thrice"), Some("leads to no heading of that document"));
        assert_eq!(problem("c.md"), Some("leads to no file"));
        assert_eq!(problem("../../x.md"), Some("leaves the tree"));
    }

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
    fn the_table_of_contents_names_every_page() {
        let page = |text| Page::read(text);
        let pages = [("docs/SUMMARY.md", page("[a](a.md)")), ("docs/a.md", page("")), ("docs/adr/b.md", page(""))];
        assert_eq!(left_out(&pages.into()), ["docs/SUMMARY.md leaves out docs/adr/b.md"]);
        assert_eq!(left_out(&BTreeMap::new()).len(), 1);
    }
}
