//! The picture as an SVG file, in the style of the picture of delays.

use std::fmt::Write;

use tidewire_figures::chart::svg::{COLOURS, PLOT, WIDTH, begin, heading};

use super::{LINES, Plane, covering};
use crate::probe::outlook::{Outlook, Point};

/// Height with a legend of two lines.
const HEIGHT: f64 = 512.0;

/// The whole file.
pub fn draw(outlook: &Outlook, title: &str) -> String {
    let plane = covering(outlook);
    let mut out = begin((WIDTH, HEIGHT), title);
    heading(&mut out, "In-order delay against overhead, predicted", title);
    plane.grid(&mut out, "repairs per source symbol");
    for (index, (name, delay)) in LINES.iter().enumerate() {
        let (colour, left, y) = (COLOURS[index % COLOURS.len()], PLOT.0 + 90.0 * index as f64, PLOT.3 + 70.0);
        let points = outlook.code.iter().map(|point| plane.at(point.overhead, delay(point)));
        let path: Vec<String> = points.map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        if !path.is_empty() {
            let path = path.join("L");
            let _ = writeln!(out, "<path d=\"M{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>");
        }
        let _ = writeln!(
            out,
            "<path d=\"M{left} {y}h24\" stroke=\"{colour}\" stroke-width=\"3\"/><text x=\"{}\" y=\"{}\" fill=\"#222\">{name}</text>",
            left + 32.0,
            y + 4.5
        );
    }
    mark(&mut out, plane, &outlook.asking, "asked for only", 0, "#fff");
    mark(&mut out, plane, &outlook.chosen, "what would be chosen", 1, "#222");
    out.push_str("</svg>\n");
    out
}

/// Draws a point at its three quantiles, and its line of the legend.
fn mark(out: &mut String, plane: Plane, point: &Point, label: &str, line: u8, fill: &str) {
    for (name, delay) in LINES {
        let (x, y) = plane.at(point.overhead, delay(point));
        let _ = writeln!(
            out,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{fill}\" stroke=\"#222\" stroke-width=\"2\">\
             <title>{label} {name}: {:.1} ms</title></circle>",
            delay(point)
        );
    }
    let y = PLOT.3 + 92.0 + 22.0 * f64::from(line);
    let _ = writeln!(
        out,
        "<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{fill}\" stroke=\"#222\" stroke-width=\"2\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#222\">{label}: {:.1} % overhead, p50 {:.1}, p95 {:.1}, p99 {:.1} ms</text>",
        PLOT.0 + 12.0,
        PLOT.0 + 32.0,
        y + 4.5,
        100.0 * point.overhead,
        point.p50_ms,
        point.p95_ms,
        point.p99_ms,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::tradeoff::tests::outlook;

    #[test]
    fn draws_three_lines_and_two_points_inside_the_picture() {
        let svg = draw(&outlook(), "10 % <lost>");
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert_eq!((svg.matches("fill=\"none\"").count(), svg.matches("<circle").count()), (3, 8));
        assert!(svg.contains("&lt;lost&gt;") && !svg.contains("NaN") && !svg.contains("inf"));
    }
}
