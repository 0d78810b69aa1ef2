//! GF(2^8): bytes as polynomials over GF(2) modulo x^8 + x^4 + x^3 + x^2 + 1.
//!
//! The kernels read their tables here; the codes and the decoder multiply and invert single coefficients. The
//! compiler computes the tables from [`POLYNOMIAL`] alone. Addition is XOR and needs no function.

/// The reduction polynomial, with its x^8 term: that of RaptorQ (RFC 6330 section 5.7), RFC 8681 and most
/// Reed-Solomon codes, so that one set of kernels serves them all. x is primitive for it: 2 generates the
/// group.
pub const POLYNOMIAL: u16 = 0x11D;

/// Product of two elements.
#[inline]
pub const fn mul(a: u8, b: u8) -> u8 {
    PRODUCTS[a as usize][b as usize]
}

/// The element whose product with `a` is 1; 0 for 0, which has none.
#[inline]
pub const fn inv(a: u8) -> u8 {
    INVERSES[a as usize]
}

/// A table that begins on a cache line, so that no register load crosses two lines. Plain bytes may begin
/// anywhere.
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon")))]
#[repr(align(64))]
pub(crate) struct Aligned<T>(pub T);

/// Row c holds c times every byte: the scalar kernel's table.
pub(crate) static PRODUCTS: [[u8; 256]; 256] = products();

static INVERSES: [u8; 256] = inverses();

/// Row c holds c times 0..16, then c times 16 * (0..16): a product is one entry of each half, by nibble. This
/// is the form that a byte shuffle instruction looks up in registers.
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon")))]
pub(crate) static NIBBLES: Aligned<[[u8; 32]; 256]> = Aligned(nibbles());

/// Entry c is multiplication by c as an 8 x 8 bit matrix in the order of GF2P8AFFINEQB: byte 7 - i holds the
/// row that makes bit i of the product.
#[cfg(target_arch = "x86_64")]
pub(crate) static MATRICES: [u64; 256] = matrices();

const fn double(a: u8) -> u8 {
    let carry = if a & 0x80 != 0 { (POLYNOMIAL & 0xFF) as u8 } else { 0 };
    (a << 1) ^ carry
}

const fn products() -> [[u8; 256]; 256] {
    let mut table = [[0; 256]; 256];
    let mut c = 0;
    while c < 256 {
        // Products with the powers of two by doubling, all others by adding two smaller products.
        let mut power = c as u8;
        let mut x = 1;
        while x < 256 {
            if x & (x - 1) == 0 {
                table[c][x] = power;
                power = double(power);
            } else {
                table[c][x] = table[c][x & (x - 1)] ^ table[c][x & x.wrapping_neg()];
            }
            x += 1;
        }
        c += 1;
    }
    table
}

const fn inverses() -> [u8; 256] {
    let mut powers = [0; 255];
    let mut power = 1;
    let mut i = 0;
    while i < 255 {
        powers[i] = power;
        power = double(power);
        i += 1;
    }
    // The inverse of 2^i is 2^(255 - i), since 2^255 = 1.
    let mut table = [0; 256];
    let mut i = 0;
    while i < 255 {
        table[powers[i] as usize] = powers[(255 - i) % 255];
        i += 1;
    }
    table
}

#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon")))]
const fn nibbles() -> [[u8; 32]; 256] {
    let mut table = [[0; 32]; 256];
    let mut c = 0;
    while c < 256 {
        let mut x = 0;
        while x < 16 {
            table[c][x] = PRODUCTS[c][x];
            table[c][16 + x] = PRODUCTS[c][x << 4];
            x += 1;
        }
        c += 1;
    }
    table
}

#[cfg(target_arch = "x86_64")]
const fn matrices() -> [u64; 256] {
    let mut table = [0; 256];
    let mut c = 0;
    while c < 256 {
        let mut matrix = 0u64;
        let mut input = 0;
        while input < 8 {
            let column = PRODUCTS[c][1 << input];
            let mut output = 0;
            while output < 8 {
                let bit = (column >> output) & 1;
                matrix |= (bit as u64) << ((7 - output) * 8 + input);
                output += 1;
            }
            input += 1;
        }
        table[c] = matrix;
        c += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Schoolbook product: shift, add, reduce. Shares nothing with the tables but the polynomial.
    fn bitwise(a: u8, b: u8) -> u8 {
        let mut product = 0u16;
        for bit in 0..8 {
            if b >> bit & 1 == 1 {
                product ^= u16::from(a) << bit;
            }
        }
        for bit in (8..15).rev() {
            if product >> bit & 1 == 1 {
                product ^= POLYNOMIAL << (bit - 8);
            }
        }
        product as u8
    }

    fn elements() -> impl Iterator<Item = u8> + Clone {
        0..=u8::MAX
    }

    #[test]
    #[cfg_attr(miri, ignore = "slow there, and no unsafe code in it")]
    fn all_products_are_the_bitwise_ones() {
        for a in elements() {
            for b in elements() {
                assert_eq!(mul(a, b), bitwise(a, b), "{a} * {b}");
            }
        }
    }

    #[test]
    fn every_element_but_zero_has_its_inverse() {
        assert_eq!(inv(0), 0);
        for a in 1..=u8::MAX {
            assert_eq!(mul(a, inv(a)), 1, "1 / {a}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "slow there, and no unsafe code in it")]
    fn products_distribute_and_associate() {
        for a in elements() {
            for b in elements() {
                for c in elements() {
                    assert_eq!(mul(a, b ^ c), mul(a, b) ^ mul(a, c), "{a} * ({b} + {c})");
                    assert_eq!(mul(mul(a, b), c), mul(a, mul(b, c)), "{a} * {b} * {c}");
                }
            }
        }
    }

    #[test]
    fn two_generates_the_group() {
        let mut power = 1;
        for exponent in 1..255 {
            power = mul(power, 2);
            assert_ne!(power, 1, "2^{exponent}");
        }
        assert_eq!(mul(power, 2), 1);
    }
}
