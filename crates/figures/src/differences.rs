//! The distribution of a difference between two clocks that need not agree. The least difference is known
//! only at the end.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Distribution;

/// Initial width of a bucket: a tenth of the finest figure that is reported.
const WIDTH: i64 = 10_000;
/// Maximum number of buckets. If more are needed, buckets become twice as wide. At the first width they span
/// 0.6 s.
const MAX_BUCKETS: usize = 1 << 16;

/// Differences, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Delays {
    counts: BTreeMap<i64, u64>,
    width: i64,
    count: u64,
    sum: i128,
    least: i64,
    greatest: i64,
}

impl Default for Delays {
    fn default() -> Self {
        Self { counts: BTreeMap::new(), width: WIDTH, count: 0, sum: 0, least: i64::MAX, greatest: i64::MIN }
    }
}

impl Delays {
    /// Adds a difference in nanoseconds.
    pub fn record(&mut self, difference: i64) {
        *self.counts.entry(difference.div_euclid(self.width)).or_default() += 1;
        self.count += 1;
        self.sum += i128::from(difference);
        self.least = self.least.min(difference);
        self.greatest = self.greatest.max(difference);
        while self.counts.len() > MAX_BUCKETS {
            self.width *= 2;
            let mut wider = BTreeMap::new();
            for (bucket, count) in std::mem::take(&mut self.counts) {
                *wider.entry(bucket.div_euclid(2)).or_default() += count;
            }
            self.counts = wider;
        }
    }

    /// Number of differences.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The least difference; `None` if empty.
    pub fn least(&self) -> Option<i64> {
        (self.count > 0).then_some(self.least)
    }

    /// The differences minus `least`; those below it count as 0.
    pub fn beyond(&self, least: i64) -> Distribution {
        if self.count == 0 {
            return Distribution::default();
        }
        let beyond = |ns: i128| Duration::from_nanos(u64::try_from(ns - i128::from(least)).unwrap_or(0));
        // A count stands for the upper end of its bucket.
        let counts = self
            .counts
            .iter()
            .map(|(&bucket, &count)| (beyond((i128::from(bucket) + 1) * i128::from(self.width)), count));
        let mean = beyond(self.sum / i128::from(self.count));
        Distribution::new(counts, mean, beyond(self.greatest.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_differ_by_years_give_the_same_delays() {
        for offset in [0, -1_000_000_000_000_000_000, 7, 1_000_000_000_000_000_000] {
            let mut delays = Delays::default();
            (0..1_000).for_each(|n| delays.record(offset + 30_000_000 + n * 100_000));
            assert_eq!(delays.least(), Some(offset + 30_000_000));
            let beyond = delays.beyond(delays.least().unwrap());
            for (q, ms) in [(0.5, 49.9), (0.95, 94.9), (0.99, 98.9)] {
                let got = beyond.quantile(q).unwrap();
                assert!((ms..ms + 0.02).contains(&got), "{q}: {got}");
            }
            assert!((beyond.mean().unwrap() - 49.95).abs() < 1e-3);
            assert!((beyond.max().unwrap() - 99.9).abs() < 1e-3);
        }
        assert_eq!(Delays::default().beyond(0).mean(), None);
    }

    #[test]
    fn any_spread_fits_into_bounded_memory() {
        let mut delays = Delays::default();
        (0..3 * MAX_BUCKETS as i64).for_each(|n| delays.record(n * n * 1_000));
        assert!(delays.counts.len() <= MAX_BUCKETS);
        assert_eq!(delays.counts.values().sum::<u64>(), delays.count());
        delays.record(i64::MIN);
        delays.record(i64::MAX);
        assert!(delays.beyond(i64::MIN).quantile(0.0).unwrap() <= delays.width as f64 / 1e6);
    }
}
