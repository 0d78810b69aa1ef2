//! The picture in a terminal: braille dots, two by four per character, one colour per curve. Without colours
//! the curves have different dashes.

use std::fmt::Write;

use super::{Axis, Curve};

/// Rows of the plot, 4 dots each. Every third row is a quarter.
pub const ROWS: usize = 13;
/// Columns left of the plot: `100 % |`.
pub const MARGIN: usize = 7;
/// Least readable width of a plot.
pub const LEAST_WIDTH: usize = 40;
/// Greatest width that can be seen at a glance.
pub const MOST_WIDTH: usize = 120;

/// ANSI colours of the curves: red, yellow, cyan. Most colour-blind readers can distinguish them.
const COLOURS: [u8; 3] = [31, 33, 36];
/// Dots that a curve draws and leaves out, in turn: dotted, dashed, solid.
pub const DASHES: [(usize, usize); 3] = [(1, 2), (4, 3), (1, 0)];

/// How to draw the picture.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Width of the terminal, in characters.
    pub columns: usize,
    /// Whether to use colours.
    pub colour: bool,
}

impl Style {
    /// The style for the environment: `COLUMNS` or the width of the terminal, and colours at a terminal
    /// unless `NO_COLOR` is set.
    pub fn from_environment() -> Self {
        let terminal = console::Term::stdout();
        let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let columns = columns.unwrap_or_else(|| usize::from(terminal.size().1));
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { columns, colour: terminal.is_term() && !refused }
    }
}

/// A plot in progress: the dots of each character, and the curve that drew there last.
pub struct Canvas {
    width: usize,
    cells: Vec<(u8, usize)>,
}

impl Canvas {
    /// An empty plot of `width` characters per row.
    pub fn new(width: usize) -> Self {
        Self { width, cells: vec![(0, 0); width * ROWS] }
    }

    /// Dots across and down.
    pub fn dots(&self) -> (usize, usize) {
        (2 * self.width, 4 * ROWS)
    }

    /// The characters, row by row: the dots of each, and the curve that drew there last.
    pub fn rows(&self) -> impl Iterator<Item = &[(u8, usize)]> {
        self.cells.chunks(self.width)
    }

    /// Draws one dot, counted from the upper left corner.
    pub fn dot(&mut self, x: usize, y: usize, curve: usize) {
        // Unicode braille: dots 1-3 and 7 are the left column, 4-6 and 8 the right one.
        const BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
        let cell = &mut self.cells[(y / 4) * self.width + x / 2];
        cell.0 |= BITS[y % 4][x % 2];
        cell.1 = curve;
    }

    fn draw(&mut self, index: usize, curve: &Curve, axis: Axis) {
        let (across, down) = self.dots();
        let (on, off) = DASHES[index % DASHES.len()];
        let mut previous = down - 1;
        let mut drawn = 0;
        for x in 0..across {
            let share = curve.delay.share(axis.at((x as f64 + 0.5) / across as f64));
            let y = ((1.0 - share) * (down - 1) as f64).round() as usize;
            for y in (y..=previous.max(y)).rev() {
                if drawn % (on + off) < on {
                    self.dot(x, y, index);
                }
                drawn += 1;
            }
            previous = y;
        }
    }
}

/// The picture, with axes and legend, ending in a line break.
pub fn draw(curves: &[Curve], style: Style) -> String {
    let width = style.columns.saturating_sub(MARGIN + 1).clamp(LEAST_WIDTH, MOST_WIDTH);
    let axis = Axis::covering(curves);
    let mut canvas = Canvas::new(width);
    for (index, curve) in curves.iter().enumerate() {
        canvas.draw(index, curve, axis);
    }
    let mut out = String::from("  share of symbols delivered in order within\n");
    for (row, cells) in canvas.rows().enumerate() {
        let percent = 100.0 * (1.0 - row as f64 / (ROWS - 1) as f64);
        let label = if row % 3 == 0 { format!("{percent:3.0} %") } else { String::new() };
        let _ = write!(out, "{label:>5} \u{2502}");
        cells.iter().for_each(|&(dots, curve)| push_cell(&mut out, dots, curve, style.colour));
        out.push('\n');
    }
    push_axis(&mut out, axis, width);
    for (index, curve) in curves.iter().enumerate() {
        push_legend(&mut out, index, curve, style.colour);
    }
    out
}

/// Writes a character of the canvas.
pub fn push_cell(out: &mut String, dots: u8, curve: usize, colour: bool) {
    let braille = char::from_u32(0x2800 + u32::from(dots)).unwrap_or(' ');
    if dots == 0 {
        out.push(' ');
    } else {
        push_coloured(out, &braille.to_string(), curve, colour);
    }
}

fn push_coloured(out: &mut String, text: &str, curve: usize, colour: bool) {
    let _ = match colour {
        true => write!(out, "\x1b[{}m{text}\x1b[0m", COLOURS[curve % COLOURS.len()]),
        false => write!(out, "{text}"),
    };
}

fn push_axis(out: &mut String, axis: Axis, width: usize) {
    let mut line = vec!['\u{2500}'; width];
    let mut labels = vec![' '; width + 8];
    for delay in axis.decades() {
        let column = (axis.place(delay) * width as f64) as usize;
        if let Some(tick) = line.get_mut(column) {
            *tick = '\u{252c}';
        }
        for (slot, letter) in labels.iter_mut().skip(column).zip(format!("{delay} ms").chars()) {
            *slot = letter;
        }
    }
    let labels: String = labels.into_iter().collect();
    let _ = writeln!(out, "{:>5} \u{2514}{}", "", line.into_iter().collect::<String>());
    let _ = writeln!(out, "{:>6} {}", "", labels.trim_end());
}

/// A sample of a curve, for a legend.
pub fn push_sample(out: &mut String, curve: usize, colour: bool) {
    const SAMPLES: [&str; 3] =
        ["\u{2802}\u{2810}\u{2802}\u{2810}", "\u{2812}\u{2802}\u{2812}\u{2802}", "\u{2812}\u{2812}\u{2812}\u{2812}"];
    push_coloured(out, SAMPLES[curve % SAMPLES.len()], curve, colour);
}

fn push_legend(out: &mut String, index: usize, curve: &Curve, colour: bool) {
    out.push_str("       ");
    push_sample(out, index, colour);
    let ms = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.1} ms"));
    let (p50, p99) = (ms(curve.delay.quantile(0.5)), ms(curve.delay.quantile(0.99)));
    let _ = writeln!(out, " {:<22} p50 {p50:>10}   p99 {p99:>10}", curve.label);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::tests::curves;

    #[test]
    fn fits_the_terminal_and_keeps_colours_out_when_told() {
        let plain = draw(&curves(), Style { columns: 80, colour: false });
        assert!(!plain.contains('\x1b'));
        assert!(plain.lines().all(|line| line.chars().count() <= 80), "{plain}");
        for text in ["100 %", "  0 %", "0.1 ms", "100 ms", "default", "p99"] {
            assert!(plain.contains(text), "{text} is missing in\n{plain}");
        }
        let coloured = draw(&curves(), Style { columns: 80, colour: true });
        for colour in COLOURS {
            assert!(coloured.contains(&format!("\x1b[{colour}m")));
        }
        assert!(draw(&curves(), Style { columns: 0, colour: false }).lines().count() > ROWS);
        assert!(draw(&[], Style { columns: 80, colour: false }).contains("100 %"));
    }

    #[test]
    fn a_faster_curve_is_left_of_a_slower_one() {
        let curves = curves();
        let axis = Axis::covering(&curves);
        let rise = |index: usize| {
            let mut canvas = Canvas::new(60);
            canvas.draw(2, &curves[index], axis);
            // The first column whose topmost row has a dot.
            canvas.cells[..60].iter().position(|(dots, _)| *dots & 0x09 != 0).unwrap()
        };
        assert!(rise(2) < rise(1) && rise(1) < rise(0));
    }
}
