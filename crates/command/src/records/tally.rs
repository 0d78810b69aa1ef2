//! Counts the records of a run as they arrive: their delay over the whole run, and without its start.
//!
//! The side of a bench where records arrive uses it, and so does `tidewire-lab sim`, so both report the same
//! for the same records. Times are nanoseconds of the maker's and of the reader's clock, which need not
//! agree.

use std::time::Duration;

use tidewire_figures::{Delay, Delays};

use super::Records;

/// By this time rate and loss of the path are known (`docs/lab.md` also measures from the third second on).
const STEADY_AFTER: Duration = Duration::from_secs(3);

/// Counts of records; see the module.
#[derive(Debug, Default)]
pub struct Tally {
    /// When the first record that arrived was made.
    first_made: Option<u64>,
    all: Delays,
    /// Delays of records made [`STEADY_AFTER`] after the first or later.
    steady: Delays,
}

impl Tally {
    /// Adds a record. Returns how much later it arrived than it was made, by clocks that need not agree.
    pub fn record(&mut self, made: u64, arrived: u64) -> i64 {
        // Both clocks count from the start of their machine. Only a hostile peer causes a difference near the
        // limits.
        let difference = arrived.wrapping_sub(made) as i64;
        let first = *self.first_made.get_or_insert(made);
        self.all.record(difference);
        if u128::from(made.saturating_sub(first)) >= STEADY_AFTER.as_nanos() {
            self.steady.record(difference);
        }
        difference
    }

    /// The least difference so far; zero if there is none.
    pub fn least(&self) -> i64 {
        self.all.least().unwrap_or(0)
    }

    /// Figures of all records, each `bytes_each` long. `same_clock` tells whether the maker's clock is the
    /// reader's.
    pub fn records(&self, bytes_each: u32, same_clock: bool) -> Records {
        let least = self.least();
        Records {
            delivered: self.all.count(),
            bytes_each,
            delay_ms: Delay::from(&self.all.beyond(least)),
            steady_delay_ms: Delay::from(&self.steady.beyond(least)),
            one_way_ms: self.all.least().filter(|_| same_clock).map(|ns| ns as f64 / 1e6),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_counts_in_the_whole_run_only_and_both_begin_at_one_least_time() {
        let mut tally = Tally::default();
        let ms = 1_000_000;
        // A record each millisecond for ten seconds, one-way time 20 ms, 50 ms late in the first three
        // seconds, then 5 ms.
        for n in 0..10_000_u64 {
            let late = if n == 7 {
                0
            } else if n < 3_000 {
                50
            } else {
                5
            };
            tally.record((9 + n) * ms, (9 + n + 20 + late) * ms);
        }
        let records = tally.records(16, true);
        assert_eq!((records.delivered, records.one_way_ms), (10_000, Some(20.0)));
        let near =
            |value: Option<f64>, ms: f64| assert!(value.is_some_and(|value| (value - ms).abs() < 0.02), "{value:?}");
        near(records.delay_ms.p50, 5.0);
        near(records.delay_ms.p95, 50.0);
        near(records.steady_delay_ms.p99, 5.0);
        near(records.steady_delay_ms.max, 5.0);
        assert_eq!(Tally::default().records(16, false).steady_delay_ms.mean, None);
    }
}
