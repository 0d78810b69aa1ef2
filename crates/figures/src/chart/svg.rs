//! The picture as an SVG file: the same curves and axis, with marks at p50 and p99. It needs only the fonts
//! that every viewer has, and no scripts.

use std::fmt::Write;

use super::{Axis, Curve};

/// Width of a picture.
pub const WIDTH: f64 = 800.0;
/// Height without the legend, and of each line of the legend.
const HEIGHT: f64 = 446.0;
const LINE: f64 = 22.0;
/// The plot inside the picture: left, top, right, bottom.
pub const PLOT: (f64, f64, f64, f64) = (64.0, 56.0, 776.0, 380.0);
/// Points along the axis at which a curve is sampled; more than its pixels.
const SAMPLES: usize = 1000;
/// Colours of the curves (Okabe and Ito's palette, which colour-blind readers can distinguish).
pub const COLOURS: [&str; 6] = ["#d55e00", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#000000"];
/// The colour of the same palette that is kept for Tidewire.
const OURS: &str = "#0072b2";

/// The texts of a picture.
#[derive(Clone, Copy, Debug)]
pub struct Caption<'a> {
    /// What was measured.
    pub title: &'a str,
    /// The link, in a few words.
    pub conditions: &'a str,
    /// The things whose delay is drawn, for example "records".
    pub what: &'a str,
    /// What the reader should see, in one sentence.
    pub see: &'a str,
}

/// The whole file.
pub fn draw(curves: &[Curve], caption: &Caption<'_>) -> String {
    let axis = Axis::covering(curves);
    let height = HEIGHT + LINE * (1 + curves.len()) as f64;
    let mut out = begin((WIDTH, height), caption.title);
    heading(&mut out, caption.title, caption.conditions);
    let _ =
        writeln!(out, "<text x=\"{}\" y=\"{}\" fill=\"#222\">{}</text>", PLOT.0, height - 14.0, escape(caption.see));
    grid(&mut out, axis, caption.what);
    for (index, curve) in curves.iter().enumerate() {
        line(&mut out, index, curve, axis);
    }
    for (index, curve) in curves.iter().enumerate() {
        legend(&mut out, index, curve);
    }
    out.push_str("</svg>\n");
    out
}

/// Begins a picture of a width and a height: its title for readers that cannot see it, and a white ground.
/// The caller draws, and ends it with `</svg>`.
pub fn begin((width, height): (f64, f64), title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"system-ui, sans-serif\" \
         font-size=\"13\">\n<title>{}</title>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n",
        escape(title)
    )
}

/// Draws a title above the plot, and what is below it unless that is empty.
pub fn heading(out: &mut String, title: &str, below: &str) {
    let (left, title, below) = (PLOT.0, escape(title), escape(below));
    let _ =
        writeln!(out, "<text x=\"{left}\" y=\"24\" font-size=\"16\" font-weight=\"600\" fill=\"#222\">{title}</text>");
    if !below.is_empty() {
        let _ = writeln!(out, "<text x=\"{left}\" y=\"42\" fill=\"#555\">{below}</text>");
    }
}

/// Tidewire's curve has the same colour in every picture. The others take the rest of the palette in turn.
fn colour(index: usize, label: &str) -> &'static str {
    if label.to_lowercase().starts_with("tidewire") { OURS } else { COLOURS[index % COLOURS.len()] }
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
         delay of {what} in order, beyond the one-way time (logarithmic); up: the share that has arrived</text>",
        (left + right) / 2.0,
        bottom + 42.0,
    );
}

fn line(out: &mut String, index: usize, curve: &Curve, axis: Axis) {
    let colour = colour(index, &curve.label);
    let mut path = String::new();
    let mut drawn = f64::NAN;
    for sample in 0..=SAMPLES {
        let place = sample as f64 / SAMPLES as f64;
        let (x, y) = (PLOT.0 + place * (PLOT.2 - PLOT.0), y(curve.delay.share(axis.at(place))));
        // A distribution is a staircase: only the steps are drawn.
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
    let colour = colour(index, &curve.label);
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

/// A text as XML.
pub fn escape(text: &str) -> String {
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
        let caption =
            Caption { title: "Half load", conditions: "25 Mbit/s", what: "records", see: "Lower is <earlier>." };
        let svg = draw(&curves, &caption);
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("fill=\"none\"").count(), 3);
        assert_eq!(svg.matches("<circle").count(), 6);
        assert!(svg.contains("viewBox=\"0 0 800 534\"") && svg.contains(">delay of records in order"));
        assert!(svg.contains("&lt;&amp;&gt;") && !svg.contains("<&>"));
        assert!(svg.contains("default p99: 4.0 ms"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        assert!(!draw(&[], &caption).contains("NaN"));
    }
}
