//! A picture of runs: p50, p95 and p99 of the in-order delay of each over its overhead. `replay` draws it.

use std::fmt::Write;

use crate::distribution::Distribution;

use super::plane::Plane;
use super::svg::{COLOURS, PLOT, WIDTH, begin, escape, heading};

/// Height without the legend.
const HEIGHT: f64 = 432.0;
/// Height of a line of the legend.
const LINE: f64 = 22.0;
/// The quantiles that are drawn, with their names.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)];

/// A run that is compared with others.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its name, in a few words.
    pub label: String,
    /// Bytes on the wire beyond those of the application, as a share of these.
    pub overhead: f64,
    /// Its p50, p95 and p99 are drawn.
    pub delay: Distribution,
}

/// The whole file. The first run is drawn with filled circles: the others are compared with it.
pub fn draw(runs: &[Run], title: &str) -> String {
    let p99 = runs.iter().map(|run| (run.overhead * 1.05, run.delay.quantile(0.99).unwrap_or_default()));
    let plane = Plane::covering(p99);
    let height = HEIGHT + LINE * (1 + runs.len()) as f64;
    let mut out = begin((WIDTH, height), title);
    heading(&mut out, title, "");
    plane.grid(&mut out, "bytes on the wire beyond those of the application");
    for (index, run) in runs.iter().enumerate() {
        mark(&mut out, run, index, plane);
    }
    out.push_str("</svg>\n");
    out
}

/// Draws a run at its quantiles, and its line of the legend.
fn mark(out: &mut String, run: &Run, index: usize, plane: Plane) {
    let colour = COLOURS[index % COLOURS.len()];
    let fill = if index == 0 { colour } else { "#fff" };
    let circle = |x: f64, y: f64| {
        format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{fill}\" stroke=\"{colour}\" stroke-width=\"2\"")
    };
    let mut words = String::new();
    for (name, quantile) in QUANTILES {
        let Some(delay) = run.delay.quantile(quantile) else { continue };
        let (x, y) = plane.at(run.overhead, delay);
        let label = escape(&run.label);
        let _ = writeln!(out, "{}><title>{label} {name}: {delay:.1} ms</title></circle>", circle(x, y));
        let _ = write!(words, ", {name} {delay:.1} ms");
    }
    let (x, y) = (PLOT.0, PLOT.3 + 70.0 + LINE * index as f64);
    let _ = writeln!(
        out,
        "{}/><text x=\"{:.1}\" y=\"{:.1}\" fill=\"#222\">{}: {:.1} %{words}</text>",
        circle(x + 12.0, y),
        x + 32.0,
        y + 4.5,
        escape(&run.label),
        100.0 * run.overhead,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::tests::curves;

    #[test]
    fn every_run_has_its_three_circles_and_its_line() {
        let run = |curve: crate::chart::Curve| Run { label: "<a>".into(), overhead: 0.2, delay: curve.delay };
        let svg = draw(&curves().into_iter().map(run).collect::<Vec<_>>(), "runs");
        assert_eq!(svg.matches("<circle").count(), 3 * 4);
        assert!(svg.ends_with("</svg>\n") && svg.contains("&lt;a&gt;") && !svg.contains("NaN"));
        assert!(draw(&[], "runs").contains("</svg>"));
    }
}
