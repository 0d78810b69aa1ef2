//! The picture as an SVG file: the same curves and axis, with marks at p50 and p99. Written by hand; needs no
//! fonts or scripts beyond what every viewer has.

use std::fmt::Write;

use super::{Axis, Curve};

pub(super) const WIDTH: f64 = 800.0;
/// Without the legend, and what each of its lines adds.
const HEIGHT: f64 = 446.0;
const LINE: f64 = 22.0;
/// The plot inside the picture: left, top, right, bottom.
pub(super) const PLOT: (f64, f64, f64, f64) = (64.0, 56.0, 776.0, 380.0);
/// Points along the axis where a curve is sampled; more than pixels across.
const SAMPLES: usize = 1000;
/// Colours of the curves (Okabe and Ito's palette, told apart by colour-blind readers).
pub(super) const COLOURS: [&str; 7] = ["#d55e00", "#e69f00", "#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#000000"];

/// The whole file; `what` has the delays that the curves show.
pub fn draw(curves: &[Curve], title: &str, what: &str) -> String {
    let axis = Axis::covering(curves);
    let height = HEIGHT + LINE * curves.len() as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"system-ui, sans-serif\" \
         font-size=\"13\">\n<title>{0}</title>\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"{1}\" y=\"24\" font-size=\"16\" font-weight=\"600\" fill=\"#222\">In-order delivery delay</text>\n\
         <text x=\"{1}\" y=\"42\" fill=\"#555\">{0}</text>\n",
        escape(title),
        PLOT.0,
    );
    grid(&mut out, axis, what);
    for (index, curve) in curves.iter().enumerate() {
        line(&mut out, index, curve, axis);
    }
    for (index, curve) in curves.iter().enumerate() {
        legend(&mut out, index, curve);
    }
    out.push_str("</svg>\n");
    out
}

fn x(axis: Axis, milliseconds: f64) -> f64 {
    PLOT.0 + axis.place(milliseconds) * (PLOT.2 - PLOT.0)
}

fn y(share: f64) -> f64 {
    PLOT.3 - share * (PLOT.3 - PLOT.1)
}

fn grid(out: &mut String, axis: Axis, what: &str) {
    let (left, top, right, bottom) = PLOT;
    for delay in axis.decades() {
        let x = x(axis, delay);
        let _ = writeln!(
            out,
            "<path d=\"M{x:.1} {top}V{bottom}\" stroke=\"#ddd\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">{delay} ms</text>",
            bottom + 18.0,
        );
    }
    for percent in [0, 25, 50, 75, 100] {
        let y = y(f64::from(percent) / 100.0);
        let _ = writeln!(
            out,
            "<path d=\"M{left} {y:.1}H{right}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{percent} %</text>",
            left - 8.0,
            y + 4.5,
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">\
         share of {what} delivered in order within (logarithmic)</text>",
        (left + right) / 2.0,
        bottom + 42.0,
    );
}

fn line(out: &mut String, index: usize, curve: &Curve, axis: Axis) {
    let colour = COLOURS[index % COLOURS.len()];
    let mut path = String::new();
    let mut drawn = f64::NAN;
    for sample in 0..=SAMPLES {
        let place = sample as f64 / SAMPLES as f64;
        let (x, y) = (PLOT.0 + place * (PLOT.2 - PLOT.0), y(curve.delay.share(axis.at(place))));
        // A distribution is a staircase: a step is drawn where it happens, and nothing in between.
        if y != drawn {
            let _ = if path.is_empty() { write!(path, "M{x:.1} {y:.1}") } else { write!(path, "H{x:.1}V{y:.1}") };
            drawn = y;
        }
    }
    let _ = write!(path, "H{:.1}", PLOT.2);
    let _ = writeln!(out, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>");
    for (q, name) in [(0.5, "p50"), (0.99, "p99")] {
        if let Some(delay) = curve.delay.quantile(q) {
            let _ = writeln!(
                out,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"#fff\" stroke=\"{colour}\" stroke-width=\"2\">\
                 <title>{} {name}: {delay:.1} ms</title></circle>",
                x(axis, delay),
                y(q),
                escape(&curve.label),
            );
        }
    }
}

/// A line of the legend, below the axis, where no curve can cross it.
fn legend(out: &mut String, index: usize, curve: &Curve) {
    let colour = COLOURS[index % COLOURS.len()];
    let (left, y) = (PLOT.0, PLOT.3 + 70.0 + LINE * index as f64);
    let ms = |q| curve.delay.quantile(q).map_or_else(|| "-".into(), |delay| format!("{delay:.1} ms"));
    let _ = writeln!(
        out,
        "<path d=\"M{left} {y}h24\" stroke=\"{colour}\" stroke-width=\"3\"/>\
         <text x=\"{0}\" y=\"{1}\" fill=\"#222\">{2}</text>\
         <text x=\"{3}\" y=\"{1}\" text-anchor=\"end\" fill=\"#222\">p50 {4}</text>\
         <text x=\"{5}\" y=\"{1}\" text-anchor=\"end\" fill=\"#222\">p99 {6}</text>",
        left + 32.0,
        y + 4.5,
        escape(&curve.label),
        left + 276.0,
        ms(0.5),
        left + 392.0,
        ms(0.99),
    );
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::tests::curves;

    #[test]
    fn draws_every_curve_with_its_marks_inside_the_picture() {
        let mut curves = curves();
        curves[0].label = "<&>".into();
        let svg = draw(&curves, "25 Mbit/s", "records");
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("fill=\"none\"").count(), 3);
        assert_eq!(svg.matches("<circle").count(), 6);
        assert!(svg.contains("viewBox=\"0 0 800 512\"") && svg.contains(">share of records delivered"));
        assert!(svg.contains("&lt;&amp;&gt;") && !svg.contains("<&>"));
        assert!(svg.contains("default p99: 4.0 ms"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        assert!(!draw(&[], "", "").contains("NaN"));
    }
}
