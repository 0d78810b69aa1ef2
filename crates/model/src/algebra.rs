//! The two kinds of numbers at which generating functions are evaluated. Each function is written once for
//! both: complex numbers give its coefficients (`inversion.rs`), and Taylor polynomials of second order
//! around `z = 1` give its moments.

use core::ops::{Add, Div, Mul, Sub};

/// A number at which a generating function can be evaluated.
pub(super) trait Number:
    Copy + From<f64> + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
}

/// `re + im i`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Complex {
    pub(super) re: f64,
    pub(super) im: f64,
}

impl Complex {
    pub(super) fn polar(radius: f64, angle: f64) -> Self {
        let (sin, cos) = angle.sin_cos();
        Self { re: radius * cos, im: radius * sin }
    }

    pub(super) fn abs(self) -> f64 {
        self.re.hypot(self.im)
    }
}

impl From<f64> for Complex {
    fn from(re: f64) -> Self {
        Self { re, im: 0.0 }
    }
}

impl Add for Complex {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { re: self.re + other.re, im: self.im + other.im }
    }
}

impl Sub for Complex {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self { re: self.re - other.re, im: self.im - other.im }
    }
}

impl Mul for Complex {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        Self { re: self.re * other.re - self.im * other.im, im: self.re * other.im + self.im * other.re }
    }
}

impl Div for Complex {
    type Output = Self;
    fn div(self, other: Self) -> Self {
        let scale = (other.re * other.re + other.im * other.im).recip();
        self * Self { re: other.re * scale, im: -other.im * scale }
    }
}

impl Number for Complex {}

/// `self.0[0] + self.0[1] t + self.0[2] t²`, without higher terms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Taylor(pub(super) [f64; 3]);

impl From<f64> for Taylor {
    fn from(constant: f64) -> Self {
        Self([constant, 0.0, 0.0])
    }
}

impl Add for Taylor {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self([0, 1, 2].map(|n| self.0[n] + other.0[n]))
    }
}

impl Sub for Taylor {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self([0, 1, 2].map(|n| self.0[n] - other.0[n]))
    }
}

impl Mul for Taylor {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        let ([a, b, c], [d, e, f]) = (self.0, other.0);
        Self([a * d, a * e + b * d, a * f + b * e + c * d])
    }
}

impl Div for Taylor {
    type Output = Self;
    fn div(self, other: Self) -> Self {
        let ([a, b, c], [d, e, f]) = (self.0, other.0);
        let first = a / d;
        let second = (b - first * e) / d;
        Self([first, second, (c - first * f - second * e) / d])
    }
}

impl Number for Taylor {}

/// A 2 x 2 matrix by rows.
pub(super) type Matrix<N> = [[N; 2]; 2];

/// The matrix product.
pub(super) fn product<N: Number>(a: &Matrix<N>, b: &Matrix<N>) -> Matrix<N> {
    [0, 1].map(|i| [0, 1].map(|j| a[i][0] * b[0][j] + a[i][1] * b[1][j]))
}

/// `matrix^n` in O(log n).
pub(super) fn power<N: Number>(matrix: &Matrix<N>, n: u32) -> Matrix<N> {
    let (zero, one) = (N::from(0.0), N::from(1.0));
    let (mut result, mut square, mut left) = ([[one, zero], [zero, one]], *matrix, n);
    while left > 0 {
        if left & 1 == 1 {
            result = product(&result, &square);
        }
        square = product(&square, &square);
        left >>= 1;
    }
    result
}

/// `sum of k^i matrix^(n-1-i) over i = 0 .. n-1` in O(log n), from `S(a+b) = S(a) matrix^b + k^a S(b)`.
pub(super) fn mixed_powers<N: Number>(matrix: &Matrix<N>, k: f64, n: u32) -> Matrix<N> {
    let (zero, one) = (N::from(0.0), N::from(1.0));
    let add =
        |a: Matrix<N>, factor: f64, b: Matrix<N>| [0, 1].map(|i| [0, 1].map(|j| a[i][j] + N::from(factor) * b[i][j]));
    let unit = [[one, zero], [zero, one]];
    let (mut sum, mut raised, mut factor) = ([[zero; 2]; 2], unit, 1.0);
    for bit in (0..u32::BITS - n.leading_zeros()).rev() {
        sum = add(product(&sum, &raised), factor, sum);
        raised = product(&raised, &raised);
        factor *= factor;
        if n >> bit & 1 == 1 {
            sum = add(product(&sum, matrix), factor, unit);
            raised = product(&raised, matrix);
            factor *= k;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complex_numbers_divide_back() {
        let (a, b) = (Complex { re: 3.0, im: -2.0 }, Complex::polar(2.0, 1.0));
        let back = a * b / b - a;
        assert!(back.abs() < 1e-15 && (b.abs() - 2.0).abs() < 1e-15);
        assert_eq!(Complex { re: 0.0, im: 1.0 } * Complex { re: 0.0, im: 1.0 }, Complex::from(-1.0));
    }

    #[test]
    fn taylor_polynomials_divide_back_and_powers_multiply() {
        // 1 / (1 - t) = 1 + t + t² + ...
        assert_eq!(Taylor::from(1.0) / Taylor([1.0, -1.0, 0.0]), Taylor([1.0; 3]));
        let m = [[Taylor([1.0, 2.0, 0.5]), Taylor::from(3.0)], [Taylor([0.0, 1.0, 0.0]), Taylor::from(-1.0)]];
        let by_hand = (0..5).fold([[1.0.into(), 0.0.into()], [0.0.into(), 1.0.into()]], |p, _| product(&p, &m));
        assert_eq!(power(&m, 5), by_hand);
        for n in 0..9 {
            let sum = (0..n).fold([[0.0; 2]; 2], |sum, i| {
                let term = power(&m, n - 1 - i);
                [0, 1].map(|a| [0, 1].map(|b: usize| sum[a][b] + 0.5f64.powi(i as i32) * term[a][b].0[1]))
            });
            let got = mixed_powers(&m, 0.5, n).map(|row| row.map(|entry| entry.0[1]));
            assert_eq!(got, sum, "{n}");
        }
    }
}
