//! The rows of the comparison as one table in Markdown: a line for each measure and link, a column for each
//! profile.
//!
//! The verb prints it, and writes its cells into `papers/compare/data/table.csv`. Invariant: a value that
//! is missing is a dash.

use tidewire_proto::profile::Profile;

use super::links::LINKS;
use super::{COST, GOODPUT, RECORDS, RECORDS_COST, TUNNEL, WITHOUT};
use crate::row::Row;

/// A measure of the table: the end of its curves, what its line says, its cell, and whether less is better.
struct Measure {
    ending: &'static str,
    title: &'static str,
    cell: fn(&Row) -> Option<(f64, String)>,
    is_less_better: bool,
}

const MEASURES: [Measure; 5] = [
    Measure { ending: GOODPUT, title: "file: share of what the link delivers", cell: share, is_less_better: false },
    Measure { ending: RECORDS, title: "records: delay p50, p99 in ms", cell: delay, is_less_better: true },
    Measure { ending: COST, title: "file: bytes sent per byte", cell: bytes, is_less_better: true },
    Measure { ending: RECORDS_COST, title: "records: bytes sent per byte", cell: bytes, is_less_better: true },
    Measure { ending: TUNNEL, title: "CUBIC in a tunnel: share", cell: share, is_less_better: false },
];

/// Values within this factor of the best one of a line are bold: seeds differ by as much. Chosen.
const NEAR: f64 = 1.05;

fn share(row: &Row) -> Option<(f64, String)> {
    row.rate.map(|share| (share, format!("{share:.2}")))
}

fn bytes(row: &Row) -> Option<(f64, String)> {
    Some((row.value, format!("{:.2}", row.value)))
}

/// The p99 decides. Where less than that arrived, the cell has the share that arrived.
fn delay(row: &Row) -> Option<(f64, String)> {
    match (row.p50, row.p99) {
        (Some(p50), Some(p99)) => Some((p99, format!("{}, {}", digits(p50), digits(p99)))),
        _ => row.rate.map(|arrived| (f64::INFINITY, format!("{:.0} % arrived", 100.0 * arrived))),
    }
}

/// One digit after the point below ten, none above.
fn digits(ms: f64) -> String {
    if ms < 10.0 { format!("{ms:.1}") } else { format!("{ms:.0}") }
}

/// The table of all rows of the experiment.
pub fn table(rows: &[Row]) -> String {
    let names: Vec<&str> = Profile::NAMED.iter().map(|named| named.name).collect();
    let head = format!("| | link | {} | no tunnel |\n", names.join(" | "));
    let rule = format!("| --- | --- |{}\n", " ---: |".repeat(names.len() + 1));
    let lines = MEASURES.iter().flat_map(|measure| LINKS.iter().enumerate().map(move |link| (measure, link)));
    let lines = lines.map(|(measure, (n, link))| {
        let cell = |name: &str| {
            let curve = format!("{name} {}", measure.ending);
            rows.iter().find(|row| row.curve == curve && row.parameter == (n + 1) as f64).and_then(measure.cell)
        };
        let cells: Vec<_> = names.iter().map(|name| cell(name)).collect();
        let title = if n == 0 { measure.title } else { "" };
        let without = cell(WITHOUT).map_or(String::new(), |(_, text)| text);
        format!("| {title} | {} | {} | {without} |\n", link.name, marked(&cells, measure.is_less_better).join(" | "))
    });
    head + &rule + &lines.collect::<String>()
}

/// The cells of a line; the best ones are bold.
fn marked(cells: &[Option<(f64, String)>], is_less_better: bool) -> Vec<String> {
    let values = cells.iter().flatten().map(|(value, _)| *value);
    let best = if is_less_better { values.fold(f64::INFINITY, f64::min) } else { values.fold(0.0, f64::max) };
    let is_near = |value: f64| if is_less_better { value <= best * NEAR } else { value * NEAR >= best };
    let text = |cell: &Option<(f64, String)>| match cell {
        Some((value, text)) if value.is_finite() && is_near(*value) => format!("**{text}**"),
        Some((_, text)) => text.clone(),
        None => "-".to_owned(),
    };
    cells.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::How;

    #[test]
    fn the_best_are_bold_and_what_is_missing_is_a_dash() {
        let row = |curve: &str, rate, p99| {
            let row = Row::new(curve, How::Code, 0.0, 1.0, 2.0);
            Row { rate: Some(rate), p50: Some(0.5), p99, ..row }
        };
        let rows = [
            row("stream goodput", 0.9, None),
            row("arq goodput", 0.87, None),
            row("block goodput", 0.5, None),
            row("stream records", 1.0, Some(12.4)),
            row("arq records", 0.98, None),
            row("without tunnel", 0.1, None),
        ];
        let table = table(&rows);
        let line = |start: &str| table.lines().find(|line| line.starts_with(start)).unwrap();
        assert!(line("| file: share").contains("no loss | **0.90** | **0.87** | 0.50 | - |"), "{table}");
        assert!(line("| records: delay").contains("| **0.5, 12** | 98 % arrived | - |"), "{table}");
        assert!(line("| CUBIC").ends_with("| - | 0.10 |"), "{table}");
        assert_eq!(table.lines().count(), 2 + MEASURES.len() * LINKS.len());
    }
}
