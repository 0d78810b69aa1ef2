//! The picture in a terminal, in braille dots like the picture of delays.

use std::fmt::Write;

use tidewire_figures::chart::terminal::{
    Canvas, DASHES, LEAST_WIDTH, MARGIN, MOST_WIDTH, ROWS, Style, push_cell, push_sample,
};

use super::{LINES, Plane, Quantile, between, covering};
use crate::probe::outlook::{Outlook, Point};

/// Marks of the two points.
const ASKING: char = 'A';
const CHOSEN: char = 'X';

/// The picture, with axes and legend, ending in a line break.
pub fn draw(outlook: &Outlook, style: Style) -> String {
    let width = style.columns.saturating_sub(MARGIN + 1).clamp(LEAST_WIDTH, MOST_WIDTH);
    let plane = covering(outlook);
    let mut canvas = Canvas::new(width);
    for (index, (_, delay)) in LINES.iter().enumerate() {
        line(&mut canvas, index, plane, &outlook.code, *delay);
    }
    let mut out = String::from("  in-order delay beyond the one-way time, ms (logarithmic)\n");
    let labels: Vec<(usize, f64)> =
        plane.delay.decades().map(|delay| (row(plane.place(0.0, delay).1), delay)).collect();
    for (number, cells) in canvas.rows().enumerate() {
        let label =
            labels.iter().find(|(at, _)| *at == number).map_or_else(String::new, |(_, delay)| delay.to_string());
        let _ = write!(out, "{label:>5} \u{2502}");
        for (column, &(dots, curve)) in cells.iter().enumerate() {
            match mark(outlook, plane, width, (number, column)) {
                Some(mark) => out.push(mark),
                None => push_cell(&mut out, dots, curve, style.colour),
            }
        }
        out.push('\n');
    }
    push_axis(&mut out, plane, width);
    for (index, (name, _)) in LINES.iter().enumerate() {
        out.push_str("       ");
        push_sample(&mut out, index, style.colour);
        let _ = writeln!(out, " {name}, by the overhead");
    }
    let _ = writeln!(out, "       {ASKING}    p95 and p99, {}", legend("asked for only", &outlook.asking));
    let _ = writeln!(out, "       {CHOSEN}    p95 and p99, {}", legend("what would be chosen", &outlook.chosen));
    out
}

fn legend(name: &str, point: &Point) -> String {
    format!("{name}: {:.1} and {:.1} ms at {:.1} % overhead", point.p95_ms, point.p99_ms, 100.0 * point.overhead)
}

fn row(up: f64) -> usize {
    ((1.0 - up) * (ROWS - 1) as f64).round() as usize
}

/// The mark of a point in this character, if there is one.
fn mark(outlook: &Outlook, plane: Plane, width: usize, at: (usize, usize)) -> Option<char> {
    let lies = |point: &Point| {
        [point.p95_ms, point.p99_ms].into_iter().any(|delay| {
            let (right, up) = plane.place(point.overhead, delay);
            (row(up), (right * (width - 1) as f64).round() as usize) == at
        })
    };
    if lies(&outlook.chosen) { Some(CHOSEN) } else { lies(&outlook.asking).then_some(ASKING) }
}

fn line(canvas: &mut Canvas, index: usize, plane: Plane, code: &[Point], delay: Quantile) {
    let (across, down) = canvas.dots();
    let (on, off) = DASHES[index % DASHES.len()];
    let mut previous = None;
    let mut drawn = 0;
    for x in 0..across {
        let overhead = plane.overhead * (x as f64 + 0.5) / across as f64;
        let Some(delay) = between(code, overhead, delay) else { continue };
        let y = ((1.0 - plane.place(overhead, delay).1) * (down - 1) as f64).round() as usize;
        let from = previous.map_or(y, |previous: usize| previous.min(y));
        for y in from..=y {
            if drawn % (on + off) < on {
                canvas.dot(x, y, index);
            }
            drawn += 1;
        }
        previous = Some(y);
    }
}

fn push_axis(out: &mut String, plane: Plane, width: usize) {
    let mut line = vec!['\u{2500}'; width];
    let mut labels = vec![' '; width + 8];
    for overhead in plane.overheads() {
        let column = (overhead / plane.overhead * (width - 1) as f64) as usize;
        line[column] = '\u{252c}';
        for (slot, letter) in labels.iter_mut().skip(column).zip(format!("{:.0} %", 100.0 * overhead).chars()) {
            *slot = letter;
        }
    }
    let labels: String = labels.into_iter().collect();
    let _ = writeln!(out, "{:>5} \u{2514}{}", "", line.into_iter().collect::<String>());
    let _ = writeln!(out, "{:>6} {}  repairs per source symbol", "", labels.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::tradeoff::tests::outlook;

    #[test]
    fn shows_lines_marks_and_axes() {
        let outlook = outlook();
        let plain = draw(&outlook, Style { columns: 80, colour: false });
        assert!(!plain.contains('\x1b'));
        let plot: Vec<&str> = plain.lines().skip(1).take(ROWS).collect();
        for mark in [ASKING, CHOSEN] {
            assert!(plot.iter().any(|row| row.contains(mark)), "{mark} is missing in\n{plain}");
        }
        for text in ["p50", "p95", "p99", "100 %", "0.1 ", "repairs per source symbol"] {
            assert!(plain.contains(text), "{text} is missing in\n{plain}");
        }
        assert!(plot.iter().any(|row| row.chars().any(|c| ('\u{2801}'..='\u{28ff}').contains(&c))));
        assert!(draw(&outlook, Style { columns: 80, colour: true }).contains("\x1b["));
    }
}
