//! A bound of the bucket by dynamic programming, which the paper names as future work (section 5).
//!
//! The experiment `bound` is the caller. `n` segments wait at the sender, and a combination takes the time
//! `t` on the path. A bucket of `k` of them leaves as `k` combinations and those that Gamma adds. Its
//! segments are there after `k t`, the next bucket begins when all combinations have left. The bucket fails
//! if more are lost than Gamma added; then its segments and all later ones wait `recovery` longer. The least
//! sum of the waits is `V(n) = min over k of k k t + (n - k) m t + f n recovery + V(n - k)`, with the mean
//! `m` of the combinations and the probability `f` that the bucket fails. Invariant: the best bucket of `n`
//! is at most `n`.

/// The path of the model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    /// Loss of a combination, from end to end.
    pub loss: f64,
    /// Combinations per segment.
    pub gamma: f64,
    /// Time of a combination on the path in milliseconds.
    pub each_ms: f64,
    /// Time that a failed bucket costs in milliseconds.
    pub recovery_ms: f64,
}

/// The best sizes of the first bucket of 1 to `most` waiting segments, and the mean wait per segment in
/// milliseconds.
pub(super) fn best(path: Path, most: usize) -> Vec<(usize, f64)> {
    let mut sums = vec![0.0];
    let mut best = Vec::new();
    for n in 1..=most {
        let costs = (1..=n).map(|k| (k, cost(path, n, k) + sums[n - k]));
        let (k, sum) = costs.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((1, 0.0));
        sums.push(sum);
        best.push((k, sum / n as f64));
    }
    best
}

/// What the first bucket of `k` of `n` segments costs them all.
fn cost(path: Path, n: usize, k: usize) -> f64 {
    let (size, left) = (k as f64, (n - k) as f64);
    let waits = size * size * path.each_ms + left * size * path.gamma * path.each_ms;
    waits + failure(path, k) * n as f64 * path.recovery_ms
}

/// Probability that more combinations of a bucket of `k` are lost than Gamma adds. The fraction of a
/// combination is carried, so a bucket has one more with the probability of the fraction.
fn failure(path: Path, k: usize) -> f64 {
    let added = (path.gamma - 1.0) * k as f64;
    let (whole, fraction) = (added.floor(), added.fract());
    let fails = |added: f64| more_lost(k + added as usize, added as usize, path.loss);
    (1.0 - fraction) * fails(whole) + fraction * fails(whole + 1.0)
}

/// Probability that more than `spare` of `sent` are lost.
fn more_lost(sent: usize, spare: usize, loss: f64) -> f64 {
    let mut term = (1.0 - loss).powi(sent as i32);
    let mut within = term;
    for lost in 1..=spare {
        term *= (sent + 1 - lost) as f64 / lost as f64 * loss / (1.0 - loss);
        within += term;
    }
    (1.0 - within).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: Path = Path { loss: 0.04, gamma: 1.25, each_ms: 4.0, recovery_ms: 250.0 };

    #[test]
    fn failures_are_binomial() {
        // Four and one more: two or more of five are lost.
        let exact = 1.0 - 0.96f64.powi(5) - 5.0 * 0.04 * 0.96f64.powi(4);
        assert!((failure(PATH, 4) - exact).abs() < 1e-12);
        // One with a quarter of another: three of four times it is alone.
        assert!((failure(PATH, 1) - (0.75 * 0.04 + 0.25 * 0.0016)).abs() < 1e-12);
    }

    #[test]
    fn without_losses_one_is_best_and_slow_recovery_wants_long_buckets() {
        let sizes = |path| best(path, 30).iter().map(|best| best.0).collect::<Vec<_>>();
        assert!(sizes(Path { loss: 0.0, gamma: 1.0, ..PATH }).iter().all(|&size| size == 1));
        let [short, long] = [50.0, 5_000.0].map(|recovery_ms| sizes(Path { recovery_ms, ..PATH })[29]);
        assert!(short < long, "{short} {long}");
    }
}
