//! Coefficients of a generating function from its values on a circle (J. Abate, W. Whitt: "Numerical
//! inversion of probability generating functions", Operations Research Letters 12, 1992).
//!
//! With `z_k = r e^(πik/n)`, `q_n = (Q(r) + 2 Σ_{k=1..n-1} (-1)^k Re Q(z_k) + (-1)^n Q(-r)) / (2 n r^n)` up
//! to `q_3n r^2n + ..`, a relative error of `r^2n` if the coefficients decrease. For large n only the first
//! points are used, and Euler's transformation gives the limit of the alternating sum. The cost therefore
//! does not grow with n.

use super::algebra::Complex;

/// Coefficient `n >= 1` of the function. The function is called at neighbouring points one after another, so
/// a solver may continue from its last root.
pub(super) fn coefficient(n: u32, points: Points, mut function: impl FnMut(Complex) -> Complex) -> f64 {
    let turns = f64::from(n);
    let radius = 10f64.powf(-DIGITS / (2.0 * turns));
    let mut term = |k: u32| {
        let value = function(Complex::polar(radius, core::f64::consts::PI * f64::from(k) / turns)).re;
        if k.is_multiple_of(2) { 2.0 * value } else { -2.0 * value }
    };
    let first = term(0) / 2.0;
    let Points { direct, euler } = points;
    let sum = if n <= direct + euler {
        let inner: f64 = (1..n).map(&mut term).sum();
        first + inner + term(n) / 2.0
    } else {
        let mut partial: f64 = first + (1..=direct).map(&mut term).sum::<f64>();
        // The mean of the partial sums, weighted by the binomial distribution of `euler` coin tosses.
        let mut weight = 0.5f64.powi(euler as i32);
        let mut mean = 0.0;
        for k in 0..=euler {
            mean += weight * partial;
            weight *= f64::from(euler - k) / f64::from(k + 1);
            partial += term(direct + k + 1);
        }
        mean
    };
    sum / (2.0 * turns * radius.powi(n as i32))
}

/// `-log10` of the relative error caused by the other coefficients. The rounding error grows by half as many
/// digits.
const DIGITS: f64 = 10.0;
/// Number of points summed directly, and of points that Euler's transformation averages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Points {
    direct: u32,
    euler: u32,
}

/// Accurate to 1e-9. Chosen by the errors that the test prints.
pub(super) const FINE: Points = Points { direct: 32, euler: 20 };
/// Fewer points of both kinds, accurate to 1e-6.
pub(super) const QUICK: Points = Points { direct: 16, euler: 12 };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geometric_coefficients() {
        let one = Complex::from(1.0);
        for (n, points) in
            [1, 2, 5, 26, 27, 50, 52, 53, 100, 1_000, 100_000].into_iter().flat_map(|n| [(n, FINE), (n, QUICK)])
        {
            // The coefficients of 1/(1 - a z) are a^n.
            let ratio = 1.0 - 3.0 / f64::from(n).max(4.0);
            let got = coefficient(n, points, |z| one / (one - Complex::from(ratio) * z));
            let expected = ratio.powi(n as i32);
            // The rounding error grows with n, because the function is large near 1.
            let precision = if points.direct == FINE.direct { 1e-9 } else { 1e-6 } + 1e-12 * f64::from(n);
            assert!((got / expected - 1.0).abs() < precision, "{n}: {got} {expected}");
        }
    }
}
