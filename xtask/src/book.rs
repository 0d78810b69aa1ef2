//! The book of all documents: checks their links, builds the book by mdBook into `target/book`, turns the
//! paths of documents in its text into links, and shows the table of a data file where a paragraph is a link
//! to it.
//!
//! `book.toml` has its settings and `docs/SUMMARY.md` its table of contents. Invariant: a warning of mdBook
//! is an error.

use crate::context::Context;
use crate::{links, tools, tree};
use pulldown_cmark::{Options, Parser};
use std::collections::BTreeMap;
use std::path::Path;

/// Checks links and builds the book.
pub fn check(context: &Context) -> Result<(), String> {
    links::check(context)?;
    let mdbook = tools::subcommand(context, &tools::MDBOOK)?;
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
    let documents = tree::files(&context.root, &[".md"])?;
    let pages = documents.iter().filter_map(|file| Some((file.name.as_str(), page(&file.name)?))).collect();
    let (linked, tables) = finish_pages(&folder, &pages)?;
    println!("the book is in {}; {linked} paths became links, {tables} data files tables", folder.display());
    Ok(())
}

/// The page of the book that shows a document; none for a document that is not in the book.
fn page(document: &str) -> Option<String> {
    let name = match document.strip_prefix("docs/") {
        Some(name) => name.strip_suffix(".md")?.replace("README", "index"),
        None if document == "papers/README.md" => "book/papers".into(),
        // docs/book/ includes the documents of the root under their names in lower case.
        None if !document.contains('/') && document != "README.md" => {
            format!("book/{}", document.strip_suffix(".md")?.to_lowercase())
        }
        None => return None,
    };
    Some(format!("{name}.html"))
}

/// Makes links of the documents' paths and tables of the data files in every page of the book, and returns
/// how many.
fn finish_pages(folder: &Path, pages: &BTreeMap<&str, String>) -> Result<(usize, usize), String> {
    let (mut linked, mut tables) = (0, 0);
    for file in tree::files(folder, &[".html"])? {
        let path = folder.join(&file.name);
        let up = "../".repeat(file.name.matches('/').count());
        let (text, links) = link_paths(&file.text, &up, pages);
        let (text, shown) = show_tables(&text, path.parent().unwrap_or(folder))?;
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        (linked, tables) = (linked + links, tables + shown);
    }
    Ok((linked, tables))
}

/// Puts the table of a data file in place of each paragraph that is only a link to it. `folder` has the page.
fn show_tables(html: &str, folder: &Path) -> Result<(String, usize), String> {
    let (mut text, mut count, mut rest) = (String::new(), 0, html);
    while let Some((before, after)) = rest.split_once(PARAGRAPH) {
        text += before;
        let link = after.split_once("</a></p>").and_then(|(link, behind)| Some((link.split_once("\">")?, behind)));
        rest = match link {
            // An end of a link within the caption would be that of a link which prose follows.
            Some(((path, caption), behind)) if path.ends_with(".csv") && !caption.contains("</a>") => {
                text += &format!("<p><a href=\"{path}\">{caption}</a></p>\n{}", table(&folder.join(path))?);
                count += 1;
                behind
            }
            _ => {
                text += PARAGRAPH;
                after
            }
        };
    }
    Ok((text + rest, count))
}

/// The beginning of a paragraph that begins with a link.
const PARAGRAPH: &str = "<p><a href=\"";

/// The table of a data file, whose cells are Markdown.
fn table(path: &Path) -> Result<String, String> {
    let wrong = |problem: &dyn std::fmt::Display| format!("{}: {problem}", path.display());
    let mut rows = csv::ReaderBuilder::new().has_headers(false).from_path(path).map_err(|e| wrong(&e))?;
    let mut markdown = String::new();
    for (n, row) in rows.records().enumerate() {
        let row = row.map_err(|e| wrong(&e))?;
        let cells: Vec<_> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        markdown += &format!("| {} |\n", cells.join(" | "));
        if n == 0 {
            markdown += &format!("|{}\n", " --- |".repeat(cells.len()));
        }
    }
    let mut html = String::new();
    pulldown_cmark::html::push_html(&mut html, Parser::new_ext(&markdown, Options::ENABLE_TABLES));
    Ok(format!("<div class=\"table-wrapper\">{html}</div>\n"))
}

/// Makes a link of each code span that is the path of a document and not in a link already. `up` leads from
/// the page to the root of the book.
fn link_paths(html: &str, up: &str, pages: &BTreeMap<&str, String>) -> (String, usize) {
    let (mut text, mut count) = (String::new(), 0);
    let mut parts = html.split(BEGIN);
    text += parts.next().unwrap_or_default();
    for part in parts {
        let page = part.split_once(END).and_then(|(path, _)| pages.get(path));
        let is_linked = text.rsplit('<').next().is_some_and(|tag| tag.starts_with("a "));
        match part.split_once(END).zip(page) {
            Some(((path, rest), page)) if !is_linked => {
                text += &format!("<a href=\"{up}{page}\">{BEGIN}{path}{END}</a>{rest}");
                count += 1;
            }
            _ => text += &format!("{BEGIN}{part}"),
        }
    }
    (text, count)
}

/// The tags of a code span.
const BEGIN: &str = "<code>";
const END: &str = "</code>";

/// Whether a line of mdBook's log is a warning or an error.
fn is_complaint(line: &str) -> bool {
    line.split_whitespace().any(|word| matches!(word.trim_matches(['[', ']']), "WARN" | "ERROR"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_documents_become_links() {
        let names = ["docs/wire.md", "docs/adr/README.md", "GLOSSARY.md", "papers/README.md"];
        let pages: BTreeMap<_, _> = names.iter().map(|name| (*name, page(name).unwrap())).collect();
        let found: Vec<_> = pages.values().map(String::as_str).collect();
        assert_eq!(found, ["book/glossary.html", "adr/index.html", "wire.html", "book/papers.html"]);
        assert_eq!((page("README.md"), page("crates/codec/README.md")), (None, None));
        let html =
            "<p><code>docs/wire.md</code> and <code>no.md</code>, <a href=\"x\"><code>GLOSSARY.md</code></a></p>";
        let (text, count) = link_paths(html, "../", &pages);
        let link = "<a href=\"../wire.html\"><code>docs/wire.md</code></a>";
        assert_eq!((text, count), (html.replacen("<code>docs/wire.md</code>", link, 1), 1));
        assert_eq!(link_paths(&link_paths(html, "", &pages).0, "", &pages).1, 0);
    }

    #[test]
    fn a_paragraph_that_is_a_link_to_a_data_file_becomes_its_table() {
        let folder = std::env::temp_dir();
        std::fs::write(folder.join("xtask-table.csv"), "loss,\"delay, ms\"\n`5%`,1|2\n").unwrap();
        let html = "<p>a</p><p><a href=\"xtask-table.csv\">Delays</a></p><p><a href=\"b.html\">b</a></p>";
        let (text, count) = show_tables(html, &folder).unwrap();
        assert_eq!(count, 1);
        assert!(text.contains("<th>delay, ms</th>") && text.contains("<td><code>5%</code></td><td>1|2</td>"), "{text}");
        assert!(text.starts_with("<p>a</p><p><a href") && text.ends_with("<p><a href=\"b.html\">b</a></p>"), "{text}");
        let prose = "<p><a href=\"xtask-table.csv\">Delays</a> and prose</p><p><a href=\"b.html\">b</a></p>";
        assert_eq!(show_tables(prose, &folder), Ok((prose.to_owned(), 0)));
        let gone = show_tables("<p><a href=\"no-such.csv\">x</a></p>", &folder);
        assert!(gone.is_err_and(|problem| problem.contains("no-such.csv")));
    }

    #[test]
    fn warnings_and_errors_are_told_from_progress() {
        assert!(is_complaint(" WARN unclosed HTML tag `<k>` found in `wire.md`"));
        assert!(is_complaint("2026-01-01 00:00:00 [ERROR] (mdbook::utils): no chapter"));
        assert!(!is_complaint(" INFO Book building has started"));
    }
}
