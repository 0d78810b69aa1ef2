//! Coefficients of a generating function from its values on a circle (J. Abate, W. Whitt: "Numerical inversion of probability generating
//! functions", Operations Research Letters 12, 1992).
//!
//! With `z_k = r e^(πik/n)`, `q_n = (Q(r) + 2 Σ_{k=1..n-1} (-1)^k Re Q(z_k) + (-1)^n Q(-r)) / (2 n r^n)` up to `q_3n r^2n + ..`, a
//! relative error of `r^2n` where the coefficients fall. For large n only the first points are taken and Euler's transformation
//! finds the limit of the alternating sum: the cost does not grow with n.

use super::algebra::Complex;

/// Coefficient `n >= 1` of the function; it is asked at points of falling angle distance, so that a solver may go on from its last root.
pub(super) fn coefficient(n: u32, mut function: impl FnMut(Complex) -> Complex) -> f64 {
    let turns = f64::from(n);
    let radius = 10f64.powf(-DIGITS / (2.0 * turns));
    let mut term = |k: u32| {
        let value = function(Complex::polar(radius, core::f64::consts::PI * f64::from(k) / turns)).re;
        if k.is_multiple_of(2) { 2.0 * value } else { -2.0 * value }
    };
    let first = term(0) / 2.0;
    let sum = if n <= DIRECT + EULER {
        let inner: f64 = (1..n).map(&mut term).sum();
        first + inner + term(n) / 2.0
    } else {
        let mut partial: f64 = first + (1..=DIRECT).map(&mut term).sum::<f64>();
        // The mean of the partial sums, weighted by the binomial distribution of EULER throws of a coin.
        let mut weight = 0.5f64.powi(EULER as i32);
        let mut mean = 0.0;
        for k in 0..=EULER {
            mean += weight * partial;
            weight *= f64::from(EULER - k) / f64::from(k + 1);
            partial += term(DIRECT + k + 1);
        }
        mean
    };
    sum / (2.0 * turns * radius.powi(n as i32))
}

/// `-log10` of the relative error by the other coefficients; rounding grows by half as many digits.
const DIGITS: f64 = 10.0;
/// Points summed as they are, and points that Euler's transformation averages over; chosen by the errors that the test prints: half as
/// many of both give 1e-7.
const DIRECT: u32 = 32;
const EULER: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geometric_coefficients() {
        let one = Complex::from(1.0);
        for n in [1, 2, 5, 50, 51, 52, 53, 54, 100, 1_000, 100_000] {
            // 1/(1 - a z): a^n.
            let ratio = 1.0 - 3.0 / f64::from(n).max(4.0);
            let got = coefficient(n, |z| one / (one - Complex::from(ratio) * z));
            let expected = ratio.powi(n as i32);
            // Rounding grows with n: the function is large near 1.
            let precision = 1e-9 + 1e-12 * f64::from(n);
            assert!((got / expected - 1.0).abs() < precision, "{n}: {got} {expected}");
        }
    }
}
