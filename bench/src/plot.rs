//! The picture of `docs/performance.md`: block codes over k, Tidewire's and the peers', drawn from the tables
//! of the same run.
//!
//! Two panels, encoding and decoding, both axes logarithmic. Each row of the tables has one line, except rows
//! that only explain another (kernel alone, plan or inverse known).

use crate::report::{Cell, Report, Table};

/// The picture, if the run contains the tables.
pub fn blocks(report: &Report) -> Option<String> {
    let find = |id: &str| report.tables.iter().find(|table| table.id == id);
    let panels = [find("blocks/encode")?, find("blocks/decode")?];
    let names: Vec<&String> = lines(panels[0]).map(|(name, _)| name).collect();
    let mut svg = tidewire_figures::chart::svg::begin((WIDTH, HEIGHT), "Block codes");
    for (at, table) in panels.into_iter().enumerate() {
        svg += &panel(table, LEFT + at as f64 * (PANEL + LEFT));
    }
    for (at, name) in names.iter().enumerate() {
        let (x, y) = (LEFT + (at % 3) as f64 * 320.0, TOP + PANEL_HEIGHT + 62.0 + (at / 3) as f64 * 20.0);
        svg += &format!("<path d=\"M{x:.0} {y:.0}h28\" {}/>", stroke(at, name));
        svg += &text(x + 36.0, y + 4.0, "start", &name.replace(['*', '`'], ""));
    }
    Some(svg + "</svg>\n")
}

fn panel(table: &Table, left: f64) -> String {
    let ks: Vec<f64> = table.columns[1..].iter().filter_map(|column| column.strip_prefix("k=")?.parse().ok()).collect();
    let (first, last) = (ks.first().copied().unwrap_or(1.0), ks.last().copied().unwrap_or(2.0));
    let x = |k: f64| left + PANEL * (k / first).ln() / (last / first).ln();
    let y = |rate: f64| TOP + PANEL_HEIGHT * (HIGHEST / rate.clamp(LOWEST, HIGHEST)).ln() / (HIGHEST / LOWEST).ln();

    let mut svg = text(left, TOP - 14.0, "start", &format!("{}: GB/s of source over k", table.title));
    for decade in [0.01, 0.1, 1.0, 10.0, 100.0] {
        svg += &format!("<path d=\"M{left:.0} {:.1}h{PANEL}\" stroke=\"#ddd\"/>", y(decade));
        svg += &text(left - 6.0, y(decade) + 4.0, "end", &decade.to_string());
    }
    for (at, &k) in ks.iter().enumerate() {
        svg += &format!("<path d=\"M{:.1} {TOP}v{PANEL_HEIGHT}\" stroke=\"#eee\"/>", x(k));
        // Labels that are too close move apart.
        let is_close = |other: Option<&f64>| other.is_some_and(|&other| (x(other) - x(k)).abs() < 30.0);
        let before = at.checked_sub(1).and_then(|before| ks.get(before));
        let anchor = if is_close(ks.get(at + 1)) {
            "end"
        } else if is_close(before) {
            "start"
        } else {
            "middle"
        };
        svg += &text(x(k), TOP + PANEL_HEIGHT + 18.0, anchor, &k.to_string());
    }
    for (at, (name, cells)) in lines(table).enumerate() {
        let points = ks.iter().zip(cells).filter_map(|(&k, cell)| Some((x(k), y(cell.as_ref()?.value.median))));
        let points: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        svg += &format!("<polyline points=\"{}\" {}/>\n", points.join(" "), stroke(at, name));
    }
    svg
}

/// The rows that are drawn, in the same order for both tables.
fn lines(table: &Table) -> impl Iterator<Item = (&String, &Vec<Option<Cell>>)> {
    let explains = |name: &str| name.contains("alone") || name.ends_with("known");
    table.rows.iter().map(|(name, cells)| (name, cells)).filter(move |(name, _)| !explains(name))
}

fn stroke(at: usize, name: &str) -> String {
    let width = if name.contains("ours") { 3.5 } else { 1.5 };
    format!("fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\"", COLOURS[at % COLOURS.len()])
}

fn text(x: f64, y: f64, anchor: &str, text: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>\n")
}

const WIDTH: f64 = 1_040.0;
const HEIGHT: f64 = 560.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 44.0;
const PANEL: f64 = 430.0;
const PANEL_HEIGHT: f64 = 370.0;
/// GB/s at the bottom and at the top: the bottom is ISA-L's inversion, the top is above GFNI-512.
const LOWEST: f64 = 0.005;
const HIGHEST: f64 = 100.0;
/// Colours that most people can distinguish (Okabe and Ito 2008), then greys.
const COLOURS: [&str; 11] = [
    "#0072b2", "#56b4e9", "#009e73", "#d55e00", "#e69f00", "#cc79a7", "#000000", "#b8a800", "#777777", "#aaaaaa",
    "#444444",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::Spread;

    #[test]
    fn a_line_for_each_codec_in_each_panel_and_a_point_for_each_figure() {
        let cell = Some(Cell::plain(Spread { low: 1.0, median: 1.0, high: 1.0 }));
        let table = |id| Table {
            id,
            title: "T",
            note: String::new(),
            columns: ["codec", "k=16", "k=64"].map(String::from).into(),
            rows: [("ours", vec![cell, cell]), ("peer", vec![cell, None]), ("kernel alone, x", vec![cell, cell])]
                .map(|(name, cells)| (name.to_string(), cells))
                .into(),
        };
        let report = Report { tables: vec![table("blocks/encode"), table("blocks/decode")], verdicts: Vec::new() };
        let svg = blocks(&report).unwrap();
        let points: Vec<usize> =
            svg.split("points=\"").skip(1).map(|rest| rest.split('"').next().unwrap().split(' ').count()).collect();
        assert_eq!(points, [2, 1, 2, 1]);
        assert!(blocks(&Report::default()).is_none());
    }
}
