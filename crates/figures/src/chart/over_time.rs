//! Pictures of quantities over time, as SVG: congestion windows, queues. One panel for each unit, all over
//! the same time.
//!
//! `sim` and `tidewire-lab run` draw them for a network.

use std::fmt::Write;

use super::svg::{COLOURS, PLOT as CURVES, WIDTH, begin, escape, heading};

/// A quantity over time.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Its name, in a few words.
    pub label: String,
    /// Times in seconds, and values.
    pub points: Vec<(f64, f64)>,
}

/// Curves of one unit.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What is drawn, with its unit.
    pub title: &'static str,
    /// Drawn over the same axes.
    pub traces: Vec<Trace>,
}

/// Left and right edge of the plots.
const EDGES: (f64, f64) = (CURVES.0, CURVES.2);
/// Space above the first panel, height of a plot, and space for its axis.
const TOP: f64 = 40.0;
const PLOT: f64 = 200.0;
const AXIS: f64 = 64.0;
/// Height of a line of the legend.
const LINE: f64 = 18.0;
/// Numbers at an axis.
const TICKS: u32 = 5;

/// The whole file. Panels without a curve are left out.
pub fn draw(title: &str, panels: &[Panel]) -> String {
    let panels: Vec<_> = panels.iter().filter(|panel| !panel.traces.is_empty()).collect();
    let all = || panels.iter().flat_map(|panel| &panel.traces).flat_map(|trace| &trace.points);
    let seconds = all().map(|point| point.0).fold(1.0, f64::max);
    let height = panels.iter().map(|panel| height_of(panel)).sum::<f64>() + TOP;
    let mut out = begin((WIDTH, height), title);
    heading(&mut out, title, "");
    let mut top = TOP;
    for panel in panels {
        draw_panel(&mut out, panel, top, seconds);
        top += height_of(panel);
    }
    out.push_str("</svg>\n");
    out
}

fn height_of(panel: &Panel) -> f64 {
    PLOT + AXIS + LINE * panel.traces.len() as f64
}

fn draw_panel(out: &mut String, panel: &Panel, top: f64, seconds: f64) {
    let (left, right) = EDGES;
    let (top, bottom) = (top + LINE, top + LINE + PLOT);
    let most = panel.traces.iter().flat_map(|trace| &trace.points).map(|point| point.1).fold(1.0, f64::max);
    let _ = writeln!(out, "<text x=\"{left}\" y=\"{:.1}\" fill=\"#222\">{}</text>", top - 6.0, escape(panel.title));
    for tick in 0..=TICKS {
        let share = f64::from(tick) / f64::from(TICKS);
        let (x, y) = (left + share * (right - left), bottom - share * PLOT);
        let _ = writeln!(
            out,
            "<path d=\"M{left} {y:.1}H{right}M{x:.1} {top}V{bottom}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{:.0}</text>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">{:.1} s</text>",
            left - 8.0,
            y + 4.5,
            share * most,
            bottom + 18.0,
            share * seconds,
        );
    }
    for (index, trace) in panel.traces.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let mut path = String::new();
        for (n, (at, value)) in trace.points.iter().enumerate() {
            let (x, y) = (left + at / seconds * (right - left), bottom - value / most * PLOT);
            let _ = write!(path, "{}{x:.1} {y:.1}", if n == 0 { "M" } else { "L" });
        }
        let y = bottom + 36.0 + LINE * index as f64;
        let _ = writeln!(
            out,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>\
             <path d=\"M{left} {y}h24\" stroke=\"{colour}\" stroke-width=\"3\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#222\">{}</text>",
            left + 32.0,
            y + 4.5,
            escape(&trace.label),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_every_curve_inside_the_picture_and_no_empty_panel() {
        let trace = |label: &str, most: f64| Trace {
            label: label.to_owned(),
            points: (0..=100).map(|n| (f64::from(n) / 10.0, most * f64::from(n % 10) / 9.0)).collect(),
        };
        let panels = [
            Panel { title: "window in segments", traces: vec![trace("<a>", 40.0), trace("b", 20.0)] },
            Panel { title: "nothing", traces: Vec::new() },
            Panel { title: "queue in kB", traces: vec![trace("c", 0.0)] },
        ];
        let svg = draw("A network", &panels);
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n") && !svg.contains("NaN"));
        assert_eq!(svg.matches("fill=\"none\"").count(), 3);
        assert!(svg.contains("&lt;a&gt;") && !svg.contains("nothing") && svg.contains(">10.0 s<"));
        // The height is that of two panels with three lines.
        assert!(svg.contains("viewBox=\"0 0 800 622\""), "{}", &svg[..200]);
        // The largest value touches the upper edge of its plot, and none lies above.
        let top = TOP + LINE;
        assert!(svg.contains(&format!(" {top:.1}L")));
        assert!(!draw("", &[]).contains("NaN"));
    }
}
