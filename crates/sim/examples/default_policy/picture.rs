//! Draws decisions as SVG: panels side by side. Each shows the share of repair over loss or latency, with a
//! line for each kind of loss.

use core::fmt::Write;

use tidewire_figures::chart::svg::begin;

use crate::decision::{BURSTS, CAP, DELIVER, Decision, Flow, RTTS_MS};

/// One plot: its axis, and a line of decisions for each of [`BURSTS`].
struct Panel {
    title: String,
    axis: &'static Axis,
    lines: Vec<Vec<Decision>>,
}

/// A logarithmic axis.
struct Axis {
    name: &'static str,
    /// The values for which the policy is asked.
    values: &'static [f64],
    /// The values that get a number on the axis.
    numbered: &'static [f64],
}

const LOSS: Axis = Axis {
    name: "packets lost, %",
    values: &[
        0.1, 0.14, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.5, 10.0, 12.0, 14.0, 17.0, 20.0,
        25.0, 30.0,
    ],
    numbered: &[0.1, 0.3, 1.0, 3.0, 10.0, 30.0],
};
const LATENCY: Axis = Axis {
    name: "stated latency, ms",
    values: &[
        5.0, 6.0, 7.0, 8.5, 10.0, 12.0, 14.0, 17.0, 20.0, 25.0, 30.0, 35.0, 40.0, 50.0, 60.0, 70.0, 75.0, 80.0, 90.0,
        100.0, 120.0, 140.0, 150.0, 160.0, 200.0,
    ],
    numbered: &[5.0, 10.0, 20.0, 50.0, 100.0, 200.0],
};

impl Axis {
    /// The place of a value on the axis, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let (low, high) = (self.values[0], self.values[self.values.len() - 1]);
        (value / low).ln() / (high / low).ln()
    }
}

/// Draws the decisions without a target: half load in the upper row, saturated in the lower row.
pub fn by_default() -> String {
    let rows = [(false, "half load"), (true, "saturated")].map(|(saturated, name)| {
        let panel = |rtt_ms| {
            let flow = Flow { rtt_ms, saturated, latency_ms: None };
            over_loss(format!("{name}, round trip {rtt_ms} ms"), flow)
        };
        RTTS_MS.map(panel).into()
    });
    draw("Proactive repairs per source symbol, no target stated", &rows)
}

/// Draws the decisions for stated targets, at a round trip of 60 ms.
pub fn for_targets() -> String {
    let flow = |latency| Flow { rtt_ms: 60, saturated: false, latency_ms: Some(latency) };
    let mut panels: Vec<_> = [30.0, 80.0].map(|ms| over_loss(format!("within {ms} ms"), flow(ms))).into();
    let line = |burst| LATENCY.values.iter().map(|&latency| flow(latency).decide(0.05, burst)).collect();
    panels.push(Panel { title: "5 % lost".into(), axis: &LATENCY, lines: BURSTS.map(line).into() });
    let target = format!("{:.0} % within a stated latency", 100.0 * DELIVER);
    draw(&format!("Proactive repairs per source symbol, {target}, 60 ms, half load"), &[panels])
}

fn over_loss(title: String, flow: Flow) -> Panel {
    let line = |burst| LOSS.values.iter().map(|percent| flow.decide(percent / 100.0, burst)).collect();
    Panel { title, axis: &LOSS, lines: BURSTS.map(line).into() }
}

fn draw(title: &str, rows: &[Vec<Panel>]) -> String {
    let height = TOP + ROW * rows.len() as f64 + LEGEND;
    let mut out = begin((WIDTH, height), title);
    text(&mut out, (LEFT, 26.0), "start", "#222\" font-size=\"16\" font-weight=\"600", title);
    for (row, panels) in rows.iter().enumerate() {
        for (column, panel) in panels.iter().enumerate() {
            let place = (LEFT + (PLOT.0 + GAP) * column as f64, TOP + ROW * row as f64 + 26.0);
            grid(&mut out, place, panel, column + 1 == panels.len());
            for (index, line) in panel.lines.iter().enumerate() {
                draw_line(&mut out, place, panel.axis, index, line);
            }
        }
    }
    legend(&mut out, TOP + ROW * rows.len() as f64 + 14.0);
    out + "</svg>\n"
}

fn grid(out: &mut String, (left, top): (f64, f64), panel: &Panel, is_last: bool) {
    let (right, bottom) = (left + PLOT.0, top + PLOT.1);
    text(out, (left, top - 8.0), "start", "#222\" font-weight=\"600", &panel.title);
    for percent in (0..=50).step_by(10) {
        let share = f64::from(percent) / 100.0;
        let (y, dashes) = (bottom - up(share), if share == CAP { "#888\" stroke-dasharray=\"5 4" } else { "#ddd" });
        let _ = writeln!(out, "<path d=\"M{left} {y:.1}H{right}\" stroke=\"{dashes}\"/>");
        text(out, (left - 6.0, y + 4.5), "end", GREY, &format!("{percent} %"));
        // Shows the same share in its other form: packets per repair.
        if is_last && percent > 0 {
            text(out, (right + 6.0, y + 4.5), "start", GREY, &format!("1 in {:.1}", 1.0 + 1.0 / share));
        }
    }
    for &value in panel.axis.numbered {
        let x = left + PLOT.0 * panel.axis.place(value);
        let _ = writeln!(out, "<path d=\"M{x:.1} {top}V{bottom}\" stroke=\"#eee\"/>");
        text(out, (x, bottom + BARS + 14.0), "middle", GREY, &value.to_string());
    }
    text(out, ((left + right) / 2.0, bottom + BARS + 32.0), "middle", GREY, panel.axis.name);
}

/// Draws the line, crosses where the plan falls short, and a bar below the plot where repairs are only sent
/// on request.
fn draw_line(out: &mut String, (left, top): (f64, f64), axis: &Axis, index: usize, line: &[Decision]) {
    let (colour, bottom) = (COLOURS[index], top + PLOT.1);
    let places: Vec<f64> = axis.values.iter().map(|&value| left + PLOT.0 * axis.place(value)).collect();
    let points: Vec<(f64, &Decision)> = places.iter().copied().zip(line).collect();
    let path: Vec<_> =
        points.iter().map(|(x, decision)| format!("{x:.1} {:.1}", bottom - up(decision.share))).collect();
    let _ = writeln!(
        out,
        "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{}\"/>",
        path.join("L"),
        DASHES[index]
    );
    for (x, decision) in &points {
        if decision.falls_short().is_some() {
            let y = bottom - up(decision.share);
            let _ = writeln!(out, "<path d=\"M{:.1} {:.1}l6 6m0 -6l-6 6\" stroke=\"{colour}\"/>", x - 3.0, y - 3.0);
        }
    }
    // The bar reaches half way to the neighbour on each side.
    let edge = |at: usize| (places[at.saturating_sub(1)] + places[at.min(places.len() - 1)]) / 2.0;
    let y = bottom + 5.0 + BAR * index as f64;
    let mut at = 0;
    for run in line.chunk_by(|one, next| one.asks_only() == next.asks_only()) {
        if run[0].asks_only() {
            let (from, to) = (edge(at), edge(at + run.len()));
            let _ = writeln!(out, "<path d=\"M{from:.1} {y:.1}H{to:.1}\" stroke=\"{colour}\" stroke-width=\"4\"/>");
        }
        at += run.len();
    }
}

fn legend(out: &mut String, y: f64) {
    for (index, burst) in BURSTS.iter().enumerate() {
        let x = LEFT + 150.0 * index as f64;
        let _ = writeln!(
            out,
            "<path d=\"M{x} {y}h30\" stroke=\"{}\" stroke-width=\"2\" stroke-dasharray=\"{}\"/>",
            COLOURS[index], DASHES[index]
        );
        text(out, (x + 38.0, y + 4.5), "start", "#222", &burst.name());
    }
    let notes = "bars below a plot: no proactive repair \u{b7} dashed: the cap \u{b7} crosses: the target is missed \u{b7} right: one repair in so many packets";
    text(out, (LEFT, y + 26.0), "start", GREY, notes);
}

fn text(out: &mut String, (x, y): (f64, f64), anchor: &str, fill: &str, text: &str) {
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{fill}\">{text}</text>");
}

/// Height of a share above the bottom of its plot.
fn up(share: f64) -> f64 {
    PLOT.1 * share / MOST
}

const WIDTH: f64 = 1_000.0;
const LEFT: f64 = 52.0;
const TOP: f64 = 40.0;
/// Width and height of a plot, and the space between two plots.
const PLOT: (f64, f64) = (252.0, 190.0);
const GAP: f64 = 52.0;
/// Height of a row of plots, with titles and axes.
const ROW: f64 = 290.0;
const LEGEND: f64 = 52.0;
/// The share at the top of a plot: a little above the cap.
const MOST: f64 = 0.53;
/// Height of one bar with its gap, and of all bars.
const BAR: f64 = 6.0;
const BARS: f64 = 4.0 + 4.0 * BAR;
const GREY: &str = "#555";
/// The palette of Okabe and Ito, which colour-blind readers can tell apart.
const COLOURS: [&str; 4] = ["#000000", "#0072b2", "#d55e00", "#cc79a7"];
/// With different dashes, lines that cover each other stay visible.
const DASHES: [&str; 4] = ["none", "9 3", "5 4", "2 3"];
