//! Pictures of cumulative delay distributions over a logarithmic axis, for the terminal and as SVG.
//!
//! `demo` draws both from its measurements, `tidewire-lab run --peer` the second. Both share one axis, whose
//! ends come from the data, so that no curve is cut off. [`over_time`] has windows and queues over time,
//! [`plane`] the axes of delay against overhead, and [`runs`] the pictures of `replay`.

pub mod over_time;
pub mod plane;
pub mod runs;
pub mod svg;
pub mod terminal;

use crate::distribution::Distribution;

/// One curve of a picture.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its name, in a few words.
    pub label: String,
    /// The measured distribution.
    pub delay: Distribution,
}

/// Delays below this are drawn at the left edge. Chosen: a logarithmic axis has no zero, and nobody feels a
/// shorter delay.
const LEAST_MS: f64 = 0.1;

/// A logarithmic axis of milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    /// An axis from [`LEAST_MS`] to the greatest delay of the curves, at least one decade.
    fn covering(curves: &[Curve]) -> Self {
        let high = curves.iter().filter_map(|curve| curve.delay.max()).fold(10.0 * LEAST_MS, f64::max);
        Self { low: LEAST_MS, high: high * 1.05 }
    }

    /// The place of `milliseconds`, from 0 (left) to 1.
    fn place(&self, milliseconds: f64) -> f64 {
        ((milliseconds / self.low).ln() / (self.high / self.low).ln()).clamp(0.0, 1.0)
    }

    /// Milliseconds: the inverse of [`Self::place`].
    fn at(&self, place: f64) -> f64 {
        self.low * (self.high / self.low).powf(place)
    }

    /// The delays that get a number: powers of ten.
    pub fn decades(&self) -> impl Iterator<Item = f64> {
        let (low, high) = (self.low.log10().round() as i32, self.high.log10().floor() as i32);
        (low..=high).map(|power| 10f64.powi(power))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    pub(super) fn curves() -> Vec<Curve> {
        let curve = |label: &str, slow: u64| Curve {
            label: label.into(),
            delay: Distribution::new(
                [(Duration::ZERO, 900), (Duration::from_millis(slow), 95), (Duration::from_millis(3 * slow), 5)],
                Duration::from_millis(slow / 9),
                Duration::from_millis(3 * slow),
            ),
        };
        vec![curve("ARQ", 90), curve("block 32+8", 20), curve("default", 4)]
    }

    #[test]
    fn the_axis_covers_all_curves() {
        let axis = Axis::covering(&curves());
        assert_eq!(axis.place(0.0), 0.0);
        assert!(axis.place(270.0) < 1.0);
        assert!((axis.at(axis.place(7.0)) - 7.0).abs() < 1e-9);
        assert_eq!(axis.decades().collect::<Vec<_>>(), [0.1, 1.0, 10.0, 100.0]);
        assert_eq!(Axis::covering(&[]).decades().count(), 2);
    }
}
