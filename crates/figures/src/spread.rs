//! The spread of a figure over several runs: median and range.
//!
//! The verb `tidewire-lab run --peer` prints one for each figure of a peer, in its table and with `--json`.
//! Invariant: a figure that is missing in one run has no spread.

use serde::Serialize;

use crate::rank::{ascending, median};

/// Median and range of several runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle value, or the mean of the two middle values.
    pub median: f64,
    /// The least value.
    pub least: f64,
    /// The greatest value.
    pub greatest: f64,
}

impl Spread {
    /// The spread of a figure that every run has; `None` if a value is missing or there are no runs.
    pub fn of(values: impl Iterator<Item = Option<f64>>) -> Option<Self> {
        let values = ascending(values.collect::<Option<Vec<f64>>>()?);
        let (least, greatest) = (*values.first()?, *values.last()?);
        Some(Self { median: median(values), least, greatest })
    }

    /// The median for a table, with the range if the values differ.
    pub fn print(self, decimals: usize) -> String {
        let [median, least, greatest] = [self.median, self.least, self.greatest].map(|v| format!("{v:.decimals$}"));
        if least == greatest { median } else { format!("{median} ({least}-{greatest})") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_middle_and_the_range() {
        let spread = |values: &[f64]| Spread::of(values.iter().copied().map(Some));
        assert_eq!(spread(&[3.0, 1.0, 9.0]), Some(Spread { median: 3.0, least: 1.0, greatest: 9.0 }));
        assert_eq!(spread(&[3.0, 1.0]).unwrap().median, 2.0);
        assert_eq!((spread(&[]), Spread::of([Some(1.0), None].into_iter())), (None, None));
        assert_eq!(spread(&[3.0, 1.0, 9.0]).unwrap().print(1), "3.0 (1.0-9.0)");
        assert_eq!(spread(&[1.01, 1.04]).unwrap().print(1), "1.0");
    }
}
