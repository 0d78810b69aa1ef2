//! In-order delay of the streaming code with one repair after every `l - 1` source symbols on a path that loses each packet
//! with probability `e` independently (Karzand, Leith, Cloud, Médard; rows K-1 to K-8 of the papers' catalogue in
//! docs/coding.md). Time is in slots: one packet, source or repair. All need `l e < 1` and `l > 1`, and give
//! infinity or `None` elsewhere.
//!
//! The formulas hold for whole `l`; read at real `l` they interpolate evenly placed repairs.

/// `P(S = 0)`: no source symbol of a group is lost, so the queue of pending erasures never starts (K-1).
fn clean_group(e: f64, l: f64) -> f64 {
    (1.0 - e).powf(l - 1.0)
}

/// E(S), E(S²): mean and second moment of the groups that a busy period lasts (K-2, K-3).
fn busy_moments(e: f64, l: f64) -> (f64, f64) {
    let slack = 1.0 - l * e;
    let first = (l - 1.0) * e * clean_group(e, l) / slack;
    let second = first + l * (l - 1.0) * e * e * (1.0 - e).powf(l) / slack.powi(3);
    (first, second)
}

/// E(S+), S+ = max(S, 1): mean groups from one renewal to the next (K-4).
fn cycle_groups(e: f64, l: f64) -> f64 {
    (1.0 - e).powf(l) / (1.0 - l * e)
}

/// Whether a queue with one repair in `l` packets is stable at loss `e`.
fn is_stable(e: f64, l: f64) -> bool {
    (0.0..1.0).contains(&e) && l > 1.0 && l * e < 1.0
}

/// Exact mean in-order delay of a source symbol in slots, for whole `l >= 2` (K-6).
pub fn mean_delay(e: f64, l: u32) -> Option<f64> {
    let length = f64::from(l);
    if !is_stable(e, length) {
        return None;
    }
    let (_, second) = busy_moments(e, length);
    let slack = 1.0 - length * e;
    let correction: f64 = (1..l)
        .map(f64::from)
        .map(|j| {
            let first_loss = e * (1.0 - e).powf(j - 1.0);
            let ahead = (j - 1.0) * length * (1.0 + (length - j) * e / slack) - j * (j - 1.0) / 2.0;
            first_loss * ahead
        })
        .sum();
    Some((length * (length - 1.0) / 2.0 * second - correction) / ((length - 1.0) * cycle_groups(e, length)))
}

/// Fraction of source symbols that wait for nothing.
pub fn no_delay(e: f64, l: f64) -> f64 {
    if !is_stable(e, l) {
        return 0.0;
    }
    if e == 0.0 {
        return 1.0;
    }
    let (keep, sources) = (1.0 - e, l - 1.0);
    // In the first group of a cycle, the symbols before its first loss; all of them when there is none.
    let before_loss = keep * (1.0 - sources * keep.powf(sources - 1.0) + (sources - 1.0) * keep.powf(sources)) / e;
    (before_loss + sources * keep.powf(sources)) / (sources * cycle_groups(e, l))
}

/// Ratio by which `P(S = s)` falls with each further group (K-8).
pub fn tail_ratio(e: f64, l: f64) -> f64 {
    if !is_stable(e, l) {
        return 1.0;
    }
    if e == 0.0 {
        return 0.0;
    }
    (e.ln() + (l - 1.0) * (1.0 - e).ln() + l * l.ln() - (l - 1.0) * (l - 1.0).ln()).exp()
}

/// In-order delay in slots that a fraction `q` of source symbols does not exceed, approximately: the geometric tail of the
/// busy period, scaled by a constant to the exact p99 (within one slot or 15 % of it at e = 0.1, l = 2 .. 9).
pub fn quantile(e: f64, l: f64, q: f64) -> f64 {
    if !is_stable(e, l) {
        return f64::INFINITY;
    }
    let above = (1.0 - no_delay(e, l)) / (1.0 - q);
    if above <= 1.0 {
        return 0.0;
    }
    TAIL_SCALE * l * above.ln() / -tail_ratio(e, l).ln()
}

/// Fitted to the exact p99 of the papers' catalogue, e = 0.1, l = 2 .. 9 (see the test).
const TAIL_SCALE: f64 = 0.45;

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference values at e = 0.1: l, exact mean, P(D = 0), exact p99 (catalogue of paper K, checked by Monte Carlo there).
    const REFERENCE: [(u32, f64, f64, f64); 8] = [
        (2, 0.142_361, 0.889, 3.0),
        (3, 0.412_069, 0.821, 7.0),
        (4, 1.058_070, 0.744, 15.0),
        (5, 2.603_948, 0.655, 36.0),
        (6, 6.495_176, 0.555, 80.0),
        (7, 17.527_940, 0.441, 197.0),
        (8, 57.582_165, 0.312, 586.0),
        (9, 326.038_216, 0.165, 3009.0),
    ];

    #[test]
    fn mean_and_no_delay_match_the_reference() {
        for (l, mean, zero, _) in REFERENCE {
            let got = mean_delay(0.1, l).expect("stable");
            assert!((got - mean).abs() < 1e-5 * mean.max(1.0), "l={l}: {got} {mean}");
            assert!((no_delay(0.1, f64::from(l)) - zero).abs() < 6e-4, "l={l}");
        }
    }

    #[test]
    fn quantile_is_near_the_exact_p99() {
        for (l, _, _, p99) in REFERENCE {
            let got = quantile(0.1, f64::from(l), 0.99);
            assert!((got - p99).abs() < (0.15 * p99).max(1.0), "l={l}: {got} {p99}");
        }
    }

    #[test]
    fn unstable_and_lossless_ends() {
        assert_eq!(mean_delay(0.1, 10), None);
        assert_eq!(quantile(0.1, 10.0, 0.99), f64::INFINITY);
        assert_eq!(quantile(0.0, 10.0, 0.99), 0.0);
        assert_eq!(mean_delay(0.0, 10), Some(0.0));
    }
}
