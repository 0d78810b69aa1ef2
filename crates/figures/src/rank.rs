//! Medians and quantiles of values: what p50 and p99 mean in every table, test and picture.
//!
//! The laboratory, the simulator and everything that measures use it. Invariant: a quantile is a value that
//! was measured, never one between two values; only [`median`] takes the mean of the two middle ones.

/// The place, from 0 on, of the quantile `q` among `count` ascending values: the nearest rank, so the least
/// value that a fraction of at least `q` does not exceed.
pub fn rank(q: f64, count: usize) -> usize {
    (q * count as f64).ceil().max(1.0) as usize - 1
}

/// Values in ascending order.
pub fn ascending(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The quantile `q` of ascending values; `None` if there are none.
pub fn quantile<T: Copy>(ascending: &[T], q: f64) -> Option<T> {
    ascending.get(rank(q, ascending.len())).copied()
}

/// The quantile `q` of values in ascending order with the number of each; `None` if there are none.
pub fn quantile_of_counts<T>(ascending: impl IntoIterator<Item = (T, u64)>, total: u64, q: f64) -> Option<T> {
    let at = rank(q, total as usize) as u64;
    let mut below = 0;
    let found = ascending.into_iter().find(|(_, count)| {
        below += count;
        below > at
    });
    found.map(|(value, _)| value)
}

/// The middle value, or the mean of the two middle ones; NaN without values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let values = ascending(values);
    match values.len().checked_sub(1) {
        None => f64::NAN,
        Some(last) => f64::midpoint(values[last / 2], values[values.len() / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_the_nearest_ranks() {
        let values = ascending([4.0, 1.0, 3.0, 2.0]);
        let of_values = [0.0, 0.25, 0.26, 0.5, 0.99, 1.0].map(|q| quantile(&values, q));
        assert_eq!(of_values, [1.0, 1.0, 2.0, 2.0, 4.0, 4.0].map(Some));
        let counts = [('a', 1), ('b', 2), ('c', 1)];
        let of_counts = [0.0, 0.25, 0.26, 0.75, 0.76].map(|q| quantile_of_counts(counts, 4, q));
        assert_eq!(of_counts, ['a', 'a', 'b', 'b', 'c'].map(Some));
        assert_eq!((quantile::<u8>(&[], 0.5), quantile_of_counts([('a', 0)], 0, 0.5)), (None, None));
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!((median([9.0, 1.0, 3.0]), median([0.75, 0.5])), (3.0, 0.625));
        assert!(median([]).is_nan());
    }
}
