//! Splits a measured text into its page, for `docs/`, and its tables, for `docs/data/`.
//!
//! `figures` and `lab` call it for `--write`; on a terminal they print the text with its tables. In the page
//! a link stands in place of each table, alone in its paragraph, so that the book shows the table there
//! (`xtask`, step `book`). Invariant: every cell of the text is in a file.

use std::path::Path;
use tidewire_figures::csv;

/// A text without its tables.
#[derive(Debug, PartialEq, Eq)]
pub struct Split {
    /// The text with links.
    pub page: String,
    /// The name below `docs/data/` and the comma-separated values of each table.
    pub files: Vec<(String, String)>,
}

/// Moves each Markdown table of `text` into a file: `NAME.csv`, `NAME-2.csv` and so on. The nearest heading
/// above a table is the text of its link, or `title` if there is none.
pub fn split(text: &str, name: &str, title: &str) -> Split {
    let mut split = Split { page: String::new(), files: Vec::new() };
    let (mut heading, mut is_in_table) = (title, false);
    for line in text.lines() {
        if !line.starts_with('|') {
            is_in_table = false;
            if line.starts_with('#') {
                heading = line.trim_start_matches(['#', ' ']);
            }
            split.page += &format!("{line}\n");
            continue;
        }
        if !is_in_table {
            is_in_table = true;
            let number = split.files.len() + 1;
            let file = if number == 1 { format!("{name}.csv") } else { format!("{name}-{number}.csv") };
            split.page += &format!("[{heading}](data/{file})\n");
            split.files.push((file, String::new()));
        }
        if let Some((_, rows)) = split.files.last_mut() {
            *rows += &csv::of_markdown(line);
        }
    }
    split
}

/// Writes the files into `docs/data` of the workspace.
pub fn save(root: &Path, files: &[(String, String)]) -> Result<(), String> {
    files.iter().try_for_each(|(name, rows)| {
        let path = root.join("docs/data").join(name);
        std::fs::write(&path, rows).map_err(|e| format!("{}: {e}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_becomes_a_file_and_a_link() {
        let table = "| loss | p50, p99 |\n| --- | ---: |\n| 1 % | 2, 3 **MISSED** |\n|  | 4 |\n";
        let text = format!("Machine.\n\n{table}\n## Later\n\nWhy.\n\n{table}\nEnd.\n");
        let rows = "loss,\"p50, p99\"\n1 %,\"2, 3 **MISSED**\"\n,4\n";
        assert_eq!(
            split(&text, "a", "Delay"),
            Split {
                page: "Machine.\n\n[Delay](data/a.csv)\n\n## Later\n\nWhy.\n\n[Later](data/a-2.csv)\n\nEnd.\n".into(),
                files: [("a.csv".into(), rows.into()), ("a-2.csv".into(), rows.into())].into(),
            }
        );
    }
}
