//! GF(2^16): numbers `low + 256 * high` that stand for `low + high * y`, where `low` and `high` are elements
//! of GF(2^8) and y^2 = y + 0x22.
//!
//! This field is an extension of the GF(2^8) in use, instead of polynomials over GF(2) modulo, for example,
//! 0x1100B. A product of two elements is then three products in GF(2^8) (Karatsuba). So the kernels need only
//! the tables of GF(2^8), and a whole symbol costs 1.5 times its product in GF(2^8). Another polynomial costs
//! four products of halves by 8 x 8 bit matrices, and the matrices of 65,536 factors take 2 MiB.
//!
//! With `c = c0 + c1 y` and `x = x0 + x1 y`: `c x = (P + Q) + (P + R) y`, where `P = c0 x0`,
//! `Q = 0x22 c1 x1`, `R = (c0 + c1)(x0 + x1)`.

use super::gf256;

/// y^2 + y. The polynomial y^2 + y + c is irreducible over GF(2^8) if the trace of c is 1; 0x22 is the least
/// such c for which y generates the group.
pub const Y_SQUARED_PLUS_Y: u8 = 0x22;

/// Product of two elements.
#[inline]
pub const fn mul(a: u16, b: u16) -> u16 {
    let [p, q, r] = multipliers(a);
    let [low, high] = b.to_le_bytes();
    let (p, q, r) = (gf256::mul(p, low), gf256::mul(q, high), gf256::mul(r, low ^ high));
    u16::from_le_bytes([p ^ q, p ^ r])
}

/// The element whose product with `a` is 1; 0 for 0, which has none.
#[inline]
pub const fn inv(a: u16) -> u16 {
    let [low, high] = a.to_le_bytes();
    // The conjugate of a is (low + high) + high y. Its product with a, the norm, is in GF(2^8).
    let norm = gf256::mul(low, low ^ high) ^ gf256::mul(Y_SQUARED_PLUS_Y, gf256::mul(high, high));
    let inverse = gf256::inv(norm);
    u16::from_le_bytes([gf256::mul(low ^ high, inverse), gf256::mul(high, inverse)])
}

/// The factors of P, Q and R (see the head of this file): for the low byte, the high byte and the sum of
/// both.
#[inline]
pub(crate) const fn multipliers(factor: u16) -> [u8; 3] {
    let [low, high] = factor.to_le_bytes();
    [low, gf256::mul(Y_SQUARED_PLUS_Y, high), low ^ high]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Product in GF(2^8) by shift and add.
    fn bitwise_256(a: u16, b: u16) -> u16 {
        let bits = (0..8).filter(|bit| b >> bit & 1 == 1);
        let mut product = bits.fold(0, |sum, bit| sum ^ (a << bit));
        for bit in (8..15).rev() {
            if product >> bit & 1 == 1 {
                product ^= gf256::POLYNOMIAL << (bit - 8);
            }
        }
        product
    }

    /// Schoolbook product of polynomials in y. Shares nothing with the code above but the two polynomials.
    fn bitwise(a: u16, b: u16) -> u16 {
        let (a0, a1, b0, b1) = (a & 0xFF, a >> 8, b & 0xFF, b >> 8);
        let squares = bitwise_256(a1, b1);
        let low = bitwise_256(a0, b0) ^ bitwise_256(squares, 0x22);
        let high = bitwise_256(a0, b1) ^ bitwise_256(a1, b0) ^ squares;
        high << 8 | low
    }

    /// Elements that look random, none of them twice in a row.
    fn sample(count: u32) -> impl Iterator<Item = u16> + Clone {
        (1..=count).map(|i| (i.wrapping_mul(0x9E37_79B9) >> 16) as u16)
    }

    #[test]
    #[cfg_attr(miri, ignore = "slow there, and no unsafe code in it")]
    fn products_are_the_bitwise_ones() {
        for a in sample(64).chain([0, 1, 0x100, 0xFFFF]) {
            for b in 0..=u16::MAX {
                assert_eq!(mul(a, b), bitwise(a, b), "{a} * {b}");
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "slow there, and no unsafe code in it")]
    fn every_element_but_zero_has_its_inverse() {
        assert_eq!(inv(0), 0);
        for a in 1..=u16::MAX {
            assert_eq!(mul(a, inv(a)), 1, "1 / {a}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "slow there, and no unsafe code in it")]
    fn products_commute_distribute_and_associate() {
        for a in sample(24).chain([0, 1, 0x100, 0xFFFF]) {
            let c = a.rotate_left(5) ^ 0x35A7;
            for b in 0..=u16::MAX {
                assert_eq!(mul(a, b), mul(b, a), "{a} * {b}");
                assert_eq!(mul(a, b ^ c), mul(a, b) ^ mul(a, c), "{a} * ({b} + {c})");
                assert_eq!(mul(mul(a, b), c), mul(a, mul(b, c)), "{a} * {b} * {c}");
            }
        }
    }

    /// So the polynomial is irreducible, and no element is a product of zero divisors.
    #[test]
    #[cfg_attr(miri, ignore = "slow there, and no unsafe code in it")]
    fn y_generates_the_group() {
        let mut power = 1;
        for exponent in 1..65_535 {
            power = mul(power, 0x100);
            assert_ne!(power, 1, "y^{exponent}");
        }
        assert_eq!(mul(power, 0x100), 1);
    }

    /// The format of symbols depends on these: other implementations must compute them. They were computed
    /// separately, by shift and add.
    #[test]
    fn some_products_are_pinned() {
        assert_eq!(mul(0x0100, 0x0100), 0x0122);
        assert_eq!(mul(0x1234, 0x5678), 0xD8DB);
        assert_eq!(inv(0x1234), 0x667B);
        assert_eq!((mul(7, 9), inv(7)), (gf256::mul(7, 9).into(), gf256::inv(7).into()));
    }
}
