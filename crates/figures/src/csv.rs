//! Lines of comma-separated values: the data files of the documents and of the papers.
//!
//! Everything that writes tables into `docs/data` or `papers` uses it. Invariant: a reader of RFC 4180 gets
//! back every cell, as long as none has a line feed.

/// One line with its line feed; cells with a comma or a quote are quoted (RFC 4180 section 2).
pub fn line(cells: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let field = |cell: &str| match cell.contains([',', '"']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.to_owned(),
    };
    let fields: Vec<_> = cells.into_iter().map(|cell| field(cell.as_ref())).collect();
    fields.join(",") + "\n"
}

/// The rows of a Markdown table, without the rule below its head. No cell may have an escaped `|`.
pub fn of_markdown(table: &str) -> String {
    let is_rule = |row: &str| row.chars().all(|c| matches!(c, '-' | ':' | '|' | ' '));
    let rows = table.lines().filter_map(|line| line.trim().strip_prefix('|')?.strip_suffix('|'));
    rows.filter(|row| !is_rule(row)).map(|row| line(row.split('|').map(str::trim))).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn cells_with_a_comma_or_a_quote_are_quoted() {
        assert_eq!(super::line(["a", "b, c"]), "a,\"b, c\"\n");
        assert_eq!(super::line(["d \"e\"", ""]), "\"d \"\"e\"\"\",\n");
    }

    #[test]
    fn a_markdown_table_keeps_its_cells_without_its_rule() {
        let table = "| loss | p50, p99 |\n| --- | ---: |\n| 1 % | **2** |\n|  | 3 |\n";
        assert_eq!(super::of_markdown(table), "loss,\"p50, p99\"\n1 %,**2**\n,3\n");
    }
}
