//! A measured distribution of delays: counts by value, as the transport's histogram gives them.
//!
//! Trials of the laboratory, experiments of papers and reports of the commands use it. Invariant:
//! counts are in ascending order of delay, and none is zero.

use std::time::Duration;

use crate::rank::quantile_of_counts;

/// Counts of delays, in ascending order of delay.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    /// Delay in milliseconds, and number of symbols with that delay.
    counts: Vec<(f64, u64)>,
    total: u64,
    mean: Option<f64>,
    max: Option<f64>,
}

impl Distribution {
    /// From pairs of delay and count in any order. Mean and maximum were measured separately.
    pub fn new(counts: impl IntoIterator<Item = (Duration, u64)>, mean: Duration, max: Duration) -> Self {
        let counts = counts.into_iter().filter(|(_, count)| *count > 0);
        let mut counts: Vec<_> = counts.map(|(delay, count)| (milliseconds(delay), count)).collect();
        counts.sort_by(|a, b| a.0.total_cmp(&b.0));
        let total = counts.iter().map(|(_, count)| count).sum();
        let known = total > 0;
        Self { counts, total, mean: known.then(|| milliseconds(mean)), max: known.then(|| milliseconds(max)) }
    }

    /// Joins several distributions.
    pub fn of_all<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let (mut all, mut sum) = (Self::default(), 0.0);
        for part in parts {
            all.counts.extend(&part.counts);
            all.total += part.total;
            sum += part.mean.unwrap_or(0.0) * part.total as f64;
            all.max = all.max.into_iter().chain(part.max).reduce(f64::max);
        }
        all.counts.sort_by(|a, b| a.0.total_cmp(&b.0));
        all.mean = (all.total > 0).then(|| sum / all.total as f64);
        all
    }

    /// Delays in milliseconds with their counts, ascending.
    pub fn counts(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        self.counts.iter().copied()
    }

    /// Mean in milliseconds; `None` if empty.
    pub fn mean(&self) -> Option<f64> {
        self.mean
    }

    /// Maximum in milliseconds; `None` if empty.
    pub fn max(&self) -> Option<f64> {
        self.max
    }

    /// The least delay in milliseconds that a fraction of at least `q` does not exceed; `None` if empty.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let delay = quantile_of_counts(self.counts(), self.total, q)?;
        // A count stands for the upper end of its bucket, which may be above the maximum.
        Some(self.max.map_or(delay, |max| delay.min(max)))
    }

    /// The fraction with a delay of at most `milliseconds`, from 0 to 1.
    pub fn share(&self, milliseconds: f64) -> f64 {
        let below: u64 =
            self.counts.iter().take_while(|(delay, _)| *delay <= milliseconds).map(|(_, count)| count).sum();
        if self.total == 0 { 0.0 } else { below as f64 / self.total as f64 }
    }
}

/// A duration in milliseconds.
pub fn milliseconds(duration: Duration) -> f64 {
    1e3 * duration.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_and_shares_are_inverse() {
        let ms = Duration::from_millis;
        let delays = Distribution::new([(ms(40), 1), (ms(0), 89), (ms(2), 10), (ms(7), 0)], ms(1), ms(41));
        assert_eq!(delays.quantile(0.5), Some(0.0));
        assert_eq!(delays.quantile(0.9), Some(2.0));
        assert_eq!(delays.quantile(0.99), Some(2.0));
        assert_eq!(delays.quantile(0.999), Some(40.0));
        assert_eq!(
            (delays.share(-1.0), delays.share(0.0), delays.share(39.9), delays.share(40.0)),
            (0.0, 0.89, 0.99, 1.0)
        );
        assert_eq!((delays.mean(), delays.max()), (Some(1.0), Some(41.0)));
        assert_eq!(Distribution::default().quantile(0.5), None);
        let late = Distribution::new([(ms(50), 300)], ms(50), ms(50));
        let all = Distribution::of_all([&delays, &late, &Distribution::default()]);
        assert_eq!((all.quantile(0.25), all.quantile(0.26), all.max()), (Some(40.0), Some(50.0), Some(50.0)));
        assert_eq!((all.mean(), Distribution::of_all([]).mean()), (Some(37.75), None));
    }
}
