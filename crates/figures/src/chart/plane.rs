//! The plane of delay against overhead, and its lines in an SVG file.
//!
//! `tidewire probe` draws predictions in it, [`super::runs`] runs. The delay axis is logarithmic, the
//! overhead axis linear. Invariant: a point that the plane covers lies inside the picture.

use std::fmt::Write;

use super::svg::PLOT;
use super::{Axis, LEAST_MS};

/// The two axes.
#[derive(Clone, Copy, Debug)]
pub struct Plane {
    /// The greatest overhead.
    pub overhead: f64,
    /// The axis of delays.
    pub delay: Axis,
}

impl Plane {
    /// Axes that cover points of an overhead and a delay in milliseconds. Delays that are not finite are left
    /// out.
    pub fn covering(points: impl Iterator<Item = (f64, f64)>) -> Self {
        let (mut overhead, mut high) = (0.01, 10.0 * LEAST_MS);
        for (right, up) in points {
            overhead = right.max(overhead);
            high = if up.is_finite() { up.max(high) } else { high };
        }
        Self { overhead, delay: Axis { low: LEAST_MS, high: high * 1.2 } }
    }

    /// The place of a point, from 0 to 1 to the right and from 0 to 1 upwards.
    pub fn place(&self, overhead: f64, delay_ms: f64) -> (f64, f64) {
        ((overhead / self.overhead).clamp(0.0, 1.0), self.delay.place(delay_ms.max(LEAST_MS)))
    }

    /// Overheads that get a number.
    pub fn overheads(&self) -> [f64; 5] {
        [0.0, 0.25, 0.5, 0.75, 1.0].map(|part| part * self.overhead)
    }

    /// The place of a point in an SVG file.
    pub fn at(&self, overhead: f64, delay_ms: f64) -> (f64, f64) {
        let (right, up) = self.place(overhead, delay_ms);
        (PLOT.0 + right * (PLOT.2 - PLOT.0), PLOT.3 - up * (PLOT.3 - PLOT.1))
    }

    /// Draws the lines with their numbers, and what the overhead counts.
    pub fn grid(&self, out: &mut String, counts: &str) {
        let (left, top, right, bottom) = PLOT;
        for delay in self.delay.decades() {
            let y = self.at(0.0, delay).1;
            // Lower values are drawn there too.
            let sign = if delay <= LEAST_MS { "\u{2264} " } else { "" };
            let _ = writeln!(
                out,
                "<path d=\"M{left} {y:.1}H{right}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{sign}{delay} ms</text>",
                left - 8.0,
                y + 4.5,
            );
        }
        for overhead in self.overheads() {
            let x = self.at(overhead, 1.0).0;
            let _ = writeln!(
                out,
                "<path d=\"M{x:.1} {top}V{bottom}\" stroke=\"#ddd\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">{:.1} %</text>",
                bottom + 18.0,
                100.0 * overhead,
            );
        }
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">{counts}</text>",
            (left + right) / 2.0,
            bottom + 42.0,
        );
    }
}
