//! What the suites hand back, and its forms: Markdown for people, files of comma-separated values that
//! `docs/performance.md` links to, JSON for programs, and the verdict on the goals.
//!
//! A cell is an absolute figure and, in brackets, its ratio to the reference that the table names, measured
//! in the same rounds. The spread is that of the ratio, if there is one, because the ratio is the more
//! reliable figure.

use serde_json::{Value, json};
use tidewire_figures::csv;

use crate::timing::Spread;

/// Figures of one kind.
pub struct Table {
    /// The suite and the table in it, as JSON names it.
    pub id: &'static str,
    /// Heading.
    pub title: &'static str,
    /// What was measured, in which unit, and the reference of the ratio.
    pub note: String,
    /// Heads of all columns, including that of the row names.
    pub columns: Vec<String>,
    /// Name and cells of each row. A cell is missing where something cannot be done.
    pub rows: Vec<(String, Vec<Option<Cell>>)>,
}

/// One figure.
#[derive(Clone, Copy)]
pub struct Cell {
    /// In the table's unit.
    pub value: Spread,
    /// The ratio to the table's reference.
    pub ratio: Option<Spread>,
}

/// A goal and what was measured.
pub struct Verdict {
    /// Its row in the table of goals of `docs/performance.md`.
    pub goal: u8,
    /// The kernel it was measured with.
    pub tier: &'static str,
    /// What is compared.
    pub what: &'static str,
    /// The case of the comparison; empty if there is only one.
    pub case: String,
    /// What is bounded.
    pub measured: Spread,
    /// Unit of it, empty for a ratio.
    pub unit: &'static str,
    /// The bound.
    pub limit: f64,
    /// Whether the bound is a minimum rather than a maximum.
    pub at_least: bool,
}

/// All results of a run.
#[derive(Default)]
pub struct Report {
    /// In the order of the suites.
    pub tables: Vec<Table>,
    /// In the order of the suites.
    pub verdicts: Vec<Verdict>,
}

impl Cell {
    /// A figure without a reference.
    pub fn plain(value: Spread) -> Self {
        Self { value, ratio: None }
    }

    /// A figure and its ratio.
    pub fn with_ratio(value: Spread, ratio: Spread) -> Self {
        Self { value, ratio: Some(ratio) }
    }

    fn text(&self) -> String {
        let value = number(self.value.median);
        match self.ratio {
            None => format!("{value} ±{:.0}%", self.value.percent()),
            Some(ratio) => format!("{value} ({}) ±{:.0}%", number(ratio.median), ratio.percent()),
        }
    }
}

impl Verdict {
    /// Whether the median keeps the bound.
    pub fn is_reached(&self) -> bool {
        self.margin() >= 1.0
    }

    /// The factor by which it keeps the bound; below 1 it misses the bound.
    fn margin(&self) -> f64 {
        let over = self.measured.median / self.limit;
        if self.at_least { over } else { 1.0 / over.max(f64::MIN_POSITIVE) }
    }
}

impl Report {
    /// Whether every goal that could be measured is reached.
    pub fn is_reached(&self) -> bool {
        self.verdicts.iter().all(Verdict::is_reached)
    }

    /// All tables with their headings, for a terminal.
    pub fn markdown(&self) -> String {
        let sheet = |sheet: &Sheet| format!("### {}\n\n{}\n\n{}", sheet.title, sheet.note, grid(&sheet.rows));
        self.sheets().iter().map(sheet).collect()
    }

    /// Links to the files of [`Report::files`], each a paragraph of its own that says what the file has. The
    /// book shows such a paragraph as a table.
    pub fn links(&self, part: &Part) -> String {
        let link = |sheet: &Sheet| format!("[{}: {}]({})\n\n", sheet.title, sheet.note, sheet.path(part));
        self.sheets().iter().map(link).collect()
    }

    /// Path below `docs/` and text of each table, as comma-separated values.
    pub fn files(&self, part: &Part) -> Vec<(String, String)> {
        self.sheets().iter().map(|sheet| (sheet.path(part), sheet.rows.iter().map(csv::line).collect())).collect()
    }

    /// All tables, then the goals.
    fn sheets(&self) -> Vec<Sheet> {
        let cell = |cell: &Option<Cell>| cell.map_or("–".into(), |cell| cell.text());
        let row = |(name, cells): &(String, Vec<Option<Cell>>)| {
            std::iter::once(name.clone()).chain(cells.iter().map(cell)).collect()
        };
        let sheet = |table: &Table| Sheet {
            id: table.id,
            title: table.title,
            note: table.note.clone(),
            rows: std::iter::once(table.columns.clone()).chain(table.rows.iter().map(row)).collect(),
        };
        let mut sheets: Vec<Sheet> = self.tables.iter().map(sheet).collect();
        if !self.verdicts.is_empty() {
            let reached = self.verdicts.iter().filter(|verdict| verdict.is_reached()).count();
            let heads = ["goal", "what", "kernel", "case", "measured", "quartiles", "asked", "verdict"];
            sheets.push(Sheet {
                id: "goals",
                title: "Goals",
                note: format!(
                    "{reached} of {} reached. For each comparison on one kernel, all cases that miss, or else the closest one.",
                    self.verdicts.len()
                ),
                rows: std::iter::once(heads.map(String::from).to_vec()).chain(self.telling().map(Verdict::row)).collect(),
            });
        }
        sheets
    }

    /// The verdicts that summarise the run, by goal. For each comparison on one kernel they are all missed
    /// ones, or, if none is missed, the closest one.
    fn telling(&self) -> impl Iterator<Item = &Verdict> {
        let mut sorted: Vec<&Verdict> = self.verdicts.iter().collect();
        // Stable: kernels and cases stay in their order, fastest first.
        sorted.sort_by_key(|verdict| verdict.goal);
        let is_telling = |verdict: &&Verdict| {
            let alike = |other: &&Verdict| other.what == verdict.what && other.tier == verdict.tier;
            let tightest = self.verdicts.iter().filter(alike).map(Verdict::margin).fold(f64::INFINITY, f64::min);
            !verdict.is_reached() || verdict.margin() == tightest
        };
        sorted.into_iter().filter(move |verdict| is_telling(verdict)).collect::<Vec<_>>().into_iter()
    }

    /// The same, every quartile of it.
    pub fn json(&self) -> Value {
        let spread = |spread: Spread| json!([spread.low, spread.median, spread.high]);
        let table = |table: &Table| {
            let rows = table.rows.iter().flat_map(|(name, cells)| {
                cells.iter().zip(&table.columns[1..]).filter_map(move |(cell, column)| {
                    let cell = (*cell)?;
                    let (value, ratio) = (spread(cell.value), cell.ratio.map(spread));
                    Some(json!({ "row": name, "column": column, "value": value, "ratio": ratio }))
                })
            });
            json!({ "id": table.id, "title": table.title, "note": table.note, "figures": rows.collect::<Vec<_>>() })
        };
        let verdict = |verdict: &Verdict| {
            json!({
                "goal": verdict.goal, "what": verdict.what, "kernel": verdict.tier, "case": verdict.case,
                "unit": verdict.unit,
                "measured": spread(verdict.measured), "limit": verdict.limit, "at_least": verdict.at_least,
                "reached": verdict.is_reached(),
            })
        };
        json!({
            "tables": self.tables.iter().map(table).collect::<Vec<_>>(),
            "goals": self.verdicts.iter().map(verdict).collect::<Vec<_>>(),
        })
    }
}

impl Verdict {
    fn row(&self) -> Vec<String> {
        let Spread { low, median, high } = self.measured;
        let unit = if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) };
        vec![
            self.goal.to_string(),
            self.what.into(),
            self.tier.into(),
            self.case.clone(),
            format!("{}{unit}", number(median)),
            format!("{} – {}", number(low), number(high)),
            format!("{} {}{unit}", if self.at_least { "≥" } else { "≤" }, number(self.limit)),
            if self.is_reached() { "ok" } else { "**missed**" }.into(),
        ]
    }
}

/// Three digits, which is the precision that a spread of a few percent allows.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.0995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A table whose cells are text. Its first row has the heads of the columns.
struct Sheet {
    id: &'static str,
    title: &'static str,
    note: String,
    rows: Vec<Vec<String>>,
}

impl Sheet {
    /// The path of its file below `docs/`.
    fn path(&self, part: &Part) -> String {
        format!("data/performance-{}-{}.csv", part.name, self.id.replace('/', "-"))
    }
}

/// A Markdown table with aligned columns, which is also readable on a terminal.
fn grid(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let line = |cells: &[String]| {
        let cells = cells.iter().zip(&widths).map(|(cell, &width)| format!(" {cell:<width$} |"));
        format!("|{}\n", cells.collect::<String>())
    };
    let rule: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
    let body: String = rows[1..].iter().map(|row| line(row)).collect();
    format!("{}{}{body}\n", line(&rows[0]), line(&rule))
}

/// Puts `text` between the markers of a document.
///
/// # Errors
/// The document has no such markers.
pub fn insert(document: &str, part: &Part, text: &str) -> Result<String, String> {
    let Part { begin, end, .. } = part;
    let (before, rest) = document.split_once(begin).ok_or_else(|| format!("the line `{begin}` is missing"))?;
    let (_, after) = rest.split_once(end).ok_or_else(|| format!("the line `{end}` is missing"))?;
    Ok(format!("{before}{begin}\n\n{text}{end}{after}"))
}

/// A part of the program, as `docs/performance.md` shows it.
pub struct Part {
    /// In the names of the files.
    pub name: &'static str,
    /// The lines that enclose the machine and the links.
    begin: &'static str,
    end: &'static str,
}

/// The erasure codes.
pub const CODEC: Part = Part {
    name: "codec",
    begin: "<!-- begin codec: written by the program, see the command below -->",
    end: "<!-- end codec -->",
};
/// The whole transport.
pub const TRANSPORT: Part = Part {
    name: "transport",
    begin: "<!-- begin transport: written by the program, see the command below -->",
    end: "<!-- end transport -->",
};

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: Spread = Spread { low: 0.4, median: 0.5, high: 0.6 };

    fn verdict(limit: f64, at_least: bool) -> Verdict {
        Verdict { goal: 1, tier: "avx2", what: "mul_add", case: "L2".into(), measured: HALF, unit: "", limit, at_least }
    }

    #[test]
    fn a_bound_is_kept_on_its_own_side() {
        assert!(verdict(0.5, true).is_reached() && verdict(0.5, false).is_reached());
        assert!(!verdict(0.51, true).is_reached() && !verdict(0.49, false).is_reached());
    }

    #[test]
    fn all_misses_are_told_or_else_the_tightest_case() {
        let report = |limits: &[f64]| {
            let verdicts = limits.iter().map(|&limit| verdict(limit, true)).collect();
            Report { tables: Vec::new(), verdicts }
        };
        let told = |report: &Report| report.telling().map(|verdict| verdict.limit).collect::<Vec<_>>();
        assert_eq!(told(&report(&[0.1, 0.4, 0.2])), [0.4]);
        assert_eq!(told(&report(&[0.1, 0.7, 0.2, 0.6])), [0.7, 0.6]);
    }

    #[test]
    fn tables_show_figure_ratio_and_spread() {
        let cell = Cell::with_ratio(Spread { low: 36.0, median: 36.44, high: 37.0 }, HALF);
        let rows = vec![("avx2".into(), vec![Some(cell), None])];
        let columns = ["kernel", "L1", "L2"].map(String::from).into();
        let table = Table { id: "kernels", title: "Kernels", note: "GB/s.".into(), columns, rows };
        let report = Report { tables: vec![table], verdicts: vec![verdict(0.6, true)] };
        let text = report.markdown();
        assert!(text.contains("| avx2   | 36.4 (0.50) ±20% | –  |\n"), "{text}");
        assert!(text.contains("0 of 1 reached") && text.contains("**missed**"), "{text}");
        let files = report.files(&CODEC);
        assert_eq!(
            files[0],
            ("data/performance-codec-kernels.csv".into(), "kernel,L1,L2\navx2,36.4 (0.50) ±20%,–\n".into())
        );
        assert_eq!(files[1].0, "data/performance-codec-goals.csv");
        assert!(report.links(&CODEC).starts_with("[Kernels: GB/s.](data/performance-codec-kernels.csv)\n\n[Goals: "));
        assert_eq!(report.json()["tables"][0]["figures"][0]["ratio"][1], 0.5);
        assert!(!report.is_reached());
    }

    #[test]
    fn text_replaces_that_between_the_markers() {
        let Part { begin, end, .. } = CODEC;
        let document = format!("head\n{begin}\nold\n{end}\ntail\n");
        let new = insert(&document, &CODEC, "new\n").unwrap();
        assert_eq!(new, format!("head\n{begin}\n\nnew\n{end}\ntail\n"));
        assert_eq!(insert(&new, &CODEC, "new\n").unwrap(), new);
        assert!(insert(&new, &TRANSPORT, "new").is_err());
    }
}
