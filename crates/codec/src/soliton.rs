//! The robust soliton distribution of the degrees of LT codes (M. Luby, "LT codes", 2002) in integer
//! arithmetic.
//!
//! [`Neighbours`](crate::Neighbours) asks for the degree of each repair symbol. Two machines must draw
//! the same one, so nothing here depends on floating point. The distribution is a table of cumulative
//! weights, in units of 2^-48, of the degrees 1 to k (docs/sphinx.md section 4):
//!
//! - The ideal soliton has the weights `1/k` for degree 1 and `1/(d (d-1))` for others. Up to degree d
//!   they add up to `1/k + 1 - 1/d`.
//! - With `R = c ln(k/delta) sqrt(k)` and `m = k/R`, the robust part adds `R/(d k)` to each degree below
//!   m, and `R ln(R/delta)/k` to degree m.
//!
//! Luby divides by the sum of all weights. Here a draw is multiplied by that sum instead. Each division
//! rounds down, `m` too. `m` is at least 1 and at most k; a logarithm below 0 counts as 0.

/// The distribution for one number of symbols and one pair of parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RobustSoliton {
    /// Symbols to choose from, `k`.
    count: u16,
    /// `R`, in units of 2^-48.
    ripple: u64,
    /// `m`.
    spike_at: u16,
    /// What the robust part adds to degree m.
    spike: u64,
    /// Sum of all weights.
    total: u64,
}

impl RobustSoliton {
    /// The distribution over `count` symbols, at least one. `c` and `delta` are in thousandths, 1 to 1,000.
    pub fn new(count: u16, c: u16, delta: u16) -> Self {
        let (k, c, delta) = (u64::from(count.max(1)), u128::from(c), u64::from(delta.max(1)));
        // sqrt(k) in units of 2^-24, and so the product with a logarithm in units of 2^-56.
        let root = u128::from((k << 48).isqrt());
        // At most 4,700, for 65,535 symbols and the extreme parameters: 61 bits.
        let ripple = ((c * u128::from(ln(k * 1_000, delta)) * root / 1_000) >> 8) as u64;
        let spike_at = ((k << 48) / ripple.max(1)).clamp(1, k) as u16;
        // R / delta, both in units of 2^-32.
        let ln_ratio = ln((ripple >> 16) * 1_000, delta << 32);
        let spike = (((u128::from(ripple) * u128::from(ln_ratio)) >> 32) / u128::from(k)) as u64;
        let mut soliton = Self { count: k as u16, ripple, spike_at, spike, total: 0 };
        soliton.total = ONE + (1..spike_at).map(|degree| soliton.robust(degree)).sum::<u64>() + spike;
        soliton
    }

    /// The degree for a draw that is uniform over 64 bits.
    pub fn degree(&self, draw: u64) -> u16 {
        let target = ((u128::from(draw) * u128::from(self.total)) >> 64) as u64;
        let degree = self.cumulative().position(|weight| weight > target);
        // The last cumulative weight is the total, and the target is below it.
        degree.map_or(self.count, |before| before as u16 + 1)
    }

    /// The cumulative weight of each degree from 1 to k.
    pub fn cumulative(&self) -> impl Iterator<Item = u64> {
        let first = ONE / u64::from(self.count);
        let mut robust = 0;
        (1..=self.count).map(move |degree| {
            robust += self.robust(degree);
            first + (ONE - ONE / u64::from(degree)) + robust
        })
    }

    /// What the robust part adds to the weight of a degree.
    fn robust(&self, degree: u16) -> u64 {
        if degree < self.spike_at {
            self.ripple / (u64::from(degree) * u64::from(self.count))
        } else if degree == self.spike_at {
            self.spike
        } else {
            0
        }
    }
}

/// The natural logarithm of a fraction in units of 2^-32, rounded down; 0 for fractions below 1.
/// Numerator and denominator are at least 1.
fn ln(numerator: u64, denominator: u64) -> u64 {
    let log2 = log2(numerator).saturating_sub(log2(denominator));
    ((u128::from(log2) * u128::from(LN_2)) >> 32) as u64
}

/// The logarithm to base 2 in units of 2^-32, rounded down; 0 for 0. One bit of the fraction for each
/// squaring.
fn log2(x: u64) -> u64 {
    let Some(whole) = x.checked_ilog2() else { return 0 };
    // Between 1 and 2, in units of 2^-63.
    let mut x = x << (63 - whole);
    let mut bits = u64::from(whole);
    for _ in 0..32 {
        let square = (u128::from(x) * u128::from(x)) >> 63;
        let is_over_two = square >> 64;
        x = (square >> is_over_two) as u64;
        bits = bits << 1 | is_over_two as u64;
    }
    bits
}

/// The weight 1.
const ONE: u64 = 1 << 48;
/// ln 2 in units of 2^-32, rounded.
const LN_2: u64 = 2_977_044_472;

#[cfg(test)]
mod tests {
    extern crate std;

    use alloc::vec::Vec;

    use super::*;

    /// The definition in floating point: the probability of each degree from 1 on.
    fn luby(k: u16, c: f64, delta: f64) -> Vec<f64> {
        let count = f64::from(k);
        let ripple = c * (count / delta).ln() * count.sqrt();
        let spike_at = (count / ripple).floor().clamp(1.0, count);
        let weights = (1..=k).map(f64::from).map(|d| {
            let ideal = if d == 1.0 { 1.0 / count } else { 1.0 / (d * (d - 1.0)) };
            let robust = if d < spike_at {
                ripple / (d * count)
            } else if d == spike_at {
                ripple * (ripple / delta).ln().max(0.0) / count
            } else {
                0.0
            };
            ideal + robust
        });
        let weights: Vec<f64> = weights.collect();
        let sum: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / sum).collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "slow there, and no unsafe code in it")]
    fn the_table_is_lubys_definition() {
        for (k, c, delta) in [(1, 100, 500), (2, 1_000, 1), (10, 30, 500), (100, 100, 500), (256, 30, 50)]
            .into_iter()
            .chain([(1_024, 1, 1_000), (4_096, 200, 10), (65_535, 1_000, 1)])
        {
            let soliton = RobustSoliton::new(k, c, delta);
            let table: Vec<u64> = soliton.cumulative().collect();
            assert_eq!((table.len(), table.last()), (k.into(), Some(&soliton.total)));
            let mut sum = 0.0;
            let expected = luby(k, f64::from(c) / 1e3, f64::from(delta) / 1e3);
            for (degree, (weight, probability)) in table.iter().zip(expected).enumerate() {
                sum += probability;
                let got = *weight as f64 / soliton.total as f64;
                assert!((got - sum).abs() < 3e-9, "k={k} c={c} delta={delta} degree {}: {got} {sum}", degree + 1);
            }
            assert!(table.windows(2).all(|pair| pair[0] <= pair[1]));
        }
    }

    /// Other implementations must compute these values. They were computed separately, with unbounded
    /// integers.
    #[test]
    fn the_table_is_pinned() {
        let table: Vec<u64> = RobustSoliton::new(10, 100, 500).cumulative().collect();
        assert_eq!(table[..5], [54812571295585, 208882596463173, 264683450456456, 294805966921807, 314212730482244]);
        assert_eq!(table[8..], [353782123742919, 373949760859087]);
        let soliton = RobustSoliton::new(256, 30, 50);
        assert_eq!((soliton.total, soliton.spike_at), (322507167329578, 62));
    }

    #[test]
    fn a_draw_gives_the_first_degree_above_it() {
        for k in [1, 2, 100, 1_000] {
            let soliton = RobustSoliton::new(k, 100, 500);
            let table: Vec<u64> = soliton.cumulative().collect();
            for (below, degree) in table.iter().zip(1..) {
                // The least draw that is scaled to at least the cumulative weight.
                let draw = ((u128::from(*below) << 64).div_ceil(soliton.total.into())).min(u64::MAX.into()) as u64;
                assert!(soliton.degree(draw - 1) <= degree, "k={k} degree {degree}");
                assert!(soliton.degree(draw) > degree || degree == k, "k={k} degree {degree}");
            }
            assert_eq!(soliton.degree(0), 1);
        }
    }

    #[test]
    fn logarithms_are_those_of_the_standard_library() {
        for x in [1, 2, 3, 10, 999, 1_000, 65_535_000, 1 << 52, u64::MAX >> 12] {
            for y in [1, 7, 1_000, 1 << 32] {
                let expected = ((x as f64).ln() - (y as f64).ln()).max(0.0);
                let got = ln(x, y) as f64 / 2f64.powi(32);
                assert!((got - expected).abs() < 2e-8, "ln({x}/{y}) = {got} instead of {expected}");
            }
        }
        assert_eq!((log2(0), log2(1), log2(1 << 40)), (0, 0, 40 << 32));
    }
}
