//! Binomial probabilities without tables and without cancellation: Stirling's formula with its exact error
//! (the method of C. Loader, "Fast and accurate computation of binomial probabilities", 2000). Arguments may
//! be real.

use core::f64::consts::TAU;

/// `P(Bin(n, p) = k)`, `0 <= k <= n`, `0 <= p < 1`.
pub(crate) fn binomial(n: f64, k: f64, p: f64) -> f64 {
    let rest = n - k;
    if k == 0.0 {
        return (n * (-p).ln_1p()).exp();
    }
    if p == 0.0 {
        return 0.0;
    }
    if rest == 0.0 {
        return (n * p.ln()).exp();
    }
    let deviance = k * (k / (n * p)).ln() + rest * (rest / (n * (1.0 - p))).ln();
    let root = (n / (TAU * k * rest)).sqrt();
    root * (stirling_error(n) - stirling_error(k) - stirling_error(rest) - deviance).exp()
}

/// `ln Γ(x+1) - (x + 1/2) ln x + x - ln(2π)/2` for `x > 0`, to double precision.
pub(super) fn stirling_error(x: f64) -> f64 {
    let (mut x, mut error) = (x, 0.0);
    while x < SERIES_FROM {
        error += (x + 0.5) * x.recip().ln_1p() - 1.0;
        x += 1.0;
    }
    let square = (x * x).recip();
    let series = SERIES.iter().rev().fold(0.0, |sum, coefficient| sum * square + coefficient);
    error + series / x
}

/// From here on the first omitted term of the series is below 2^-52.
const SERIES_FROM: f64 = 16.0;
/// Coefficients of `x^-1, x^-3, ...`: `B_2n / (2n (2n-1))` with the Bernoulli numbers.
const SERIES: [f64; 5] = [1.0 / 12.0, -1.0 / 360.0, 1.0 / 1_260.0, -1.0 / 1_680.0, 1.0 / 1_188.0];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binomial_probabilities_are_pascals() {
        for n in 1..60u32 {
            for p in [1e-3f64, 0.1, 0.5, 0.9] {
                // Row n of the triangle, each entry computed from the previous one.
                let mut expected = (1.0 - p).powi(n as i32);
                for k in 0..=n {
                    let got = binomial(n.into(), k.into(), p);
                    assert!((got / expected - 1.0).abs() < 1e-12, "n={n} k={k} p={p}: {got} {expected}");
                    expected *= f64::from(n - k) / f64::from(k + 1) * p / (1.0 - p);
                }
            }
        }
        assert_eq!((binomial(5.0, 0.0, 0.0), binomial(5.0, 1.0, 0.0), binomial(5.0, 5.0, 0.0)), (1.0, 0.0, 0.0));
    }

    #[test]
    fn stirlings_error_at_a_half_is_that_of_the_gamma_function() {
        // Γ(3/2) = √π / 2, so the error at 1/2 is ln(√π / 2) - ln(1/2) + 1/2 - ln(2π)/2 = (1 - ln 2) / 2.
        assert!((stirling_error(0.5) - (1.0 - core::f64::consts::LN_2) / 2.0).abs() < 1e-15);
    }
}
