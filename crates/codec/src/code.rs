//! Which coefficients: a linear code over GF(2^8) is a rule that gives the coefficient of each source symbol in each
//! repair symbol.
//!
//! Encoder and decoder ask the same rule, so a repair symbol travels with its [`RepairId`] and without its
//! coefficients. Each coefficient costs O(1) and depends on nothing but the names, and a repair symbol over a span of
//! one is the source symbol itself in every code: a retransmission needs no code of its own.

use crate::field::gf256;
use crate::{RepairId, SourceId, SpanError};

/// A rule for coefficients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// Random linear code: the coefficient is a hash of key and source id, never 0. For sliding spans and generations
    /// of any length: k repair symbols over the same k missing symbols decode them with probability about 0.996.
    Rlc,
    /// Cauchy matrix: any `count` of the source and repair symbols over one span decode it (MDS), as long as `count`
    /// plus the number of keys is at most 256. It promises nothing for spans that overlap without being equal; use
    /// [`Code::Rlc`] there.
    Cauchy,
}

impl Code {
    /// Coefficient of `source` in the repair symbol `id`; 0 outside its span, never 0 inside.
    ///
    /// Meaningful for ids that pass [`check`](Self::check); others get some value without panic.
    #[inline]
    pub fn coefficient(self, id: RepairId, source: SourceId) -> u8 {
        if !id.span().contains(&source.0) {
            return 0;
        }
        if id.count == 1 {
            return 1;
        }
        match self {
            Self::Rlc => hashed(id.key, source),
            Self::Cauchy => cauchy(id.key as u8, (source.0 - id.first.0) as u8),
        }
    }

    /// Whether the code has a repair symbol of this name.
    ///
    /// # Errors
    /// The span is empty or runs past the last source id, or the key is beyond the rows of a Cauchy matrix.
    pub fn check(self, id: RepairId) -> Result<(), SpanError> {
        let RepairId { first, count, key } = id;
        if count == 0 {
            return Err(SpanError::Empty);
        }
        if first.0.checked_add(u64::from(count)).is_none() {
            return Err(SpanError::PastLastId { first, count });
        }
        match self {
            Self::Rlc => Ok(()),
            Self::Cauchy if u32::from(key) + u32::from(count) < 256 => Ok(()),
            Self::Cauchy => Err(SpanError::KeyTooLarge { key, count }),
        }
    }
}

/// Hash of (key, source id) onto 1..=255: the SplitMix64 output function over a counter in which key and id step by
/// different odd constants. The upper 32 bits are scaled to 255 values, each of which has a share of 2^32 / 255
/// rounded up or down: uniform within one part in 2^24 if the hash is.
#[inline]
fn hashed(key: u16, source: SourceId) -> u8 {
    // 2^64 over the golden ratio (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014), and the
    // fractional bits of the square root of 2, made odd: any odd constant unrelated to the first would do.
    const ID_STEP: u64 = 0x9E37_79B9_7F4A_7C15;
    const KEY_STEP: u64 = 0x6A09_E667_F3BC_C909;
    let mut z = source.0.wrapping_mul(ID_STEP).wrapping_add((u64::from(key) + 1).wrapping_mul(KEY_STEP));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    (((z >> 32) * 255) >> 32) as u8 + 1
}

/// Entry (row, column) of the Cauchy matrix 1 / (x + y) with x = column and y = 255 - row, which never meet while
/// row + column < 255, each column scaled by its entry of row 0. Scaling a column keeps every minor non-zero, hence
/// the code MDS, and makes row 0 all ones: the first repair symbol is a plain XOR.
#[inline]
fn cauchy(row: u8, column: u8) -> u8 {
    gf256::mul(column ^ 255, gf256::inv(column ^ (255 - row)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(first: u64, count: u16, key: u16) -> RepairId {
        RepairId { first: SourceId(first), count, key }
    }

    #[test]
    fn coefficients_are_non_zero_in_the_span_and_zero_outside() {
        for (code, count, key) in [(Code::Rlc, 300, 65_535), (Code::Cauchy, 255, 0), (Code::Cauchy, 2, 253)] {
            let id = id(1_000, count, key);
            assert_eq!(code.check(id), Ok(()));
            for source in 990..2_000 {
                let inside = (1_000..1_000 + u64::from(count)).contains(&source);
                assert_eq!(code.coefficient(id, SourceId(source)) != 0, inside, "{code:?} {source}");
            }
        }
    }

    #[test]
    fn a_span_of_one_is_the_symbol_itself_and_cauchy_key_0_the_sum() {
        assert_eq!(Code::Rlc.coefficient(id(5, 1, 9), SourceId(5)), 1);
        assert_eq!(Code::Cauchy.coefficient(id(5, 1, 9), SourceId(5)), 1);
        assert!((0..255).all(|i| Code::Cauchy.coefficient(id(0, 255, 0), SourceId(i)) == 1));
    }

    /// The wire format of `Rlc`: other implementations must find these (computed apart, with unbounded integers).
    #[test]
    fn hashed_coefficients_are_pinned() {
        let row = |key, first| [0, 1, 2, 3].map(|i| Code::Rlc.coefficient(id(first, 4, key), SourceId(first + i)));
        assert_eq!(row(0, 0), [54, 100, 220, 9]);
        assert_eq!(row(65_535, 1 << 40), [206, 25, 159, 191]);
    }

    /// Pearson's chi-squared over 255 values has mean 254 and deviation 22.5; the seedless hash sits where it sits.
    #[test]
    #[cfg_attr(miri, ignore = "slow there, and no unsafe code in it")]
    fn hashed_coefficients_are_spread_evenly_over_keys_and_over_ids() {
        for over_keys in [false, true] {
            let mut seen = [0u32; 256];
            for i in 0..51_000u32 {
                let (key, source) = if over_keys { (i as u16, 77) } else { (77, u64::from(i)) };
                seen[usize::from(hashed(key, SourceId(source)))] += 1;
            }
            assert_eq!(seen[0], 0);
            let chi: f64 = seen[1..].iter().map(|&n| (f64::from(n) - 200.0).powi(2) / 200.0).sum();
            assert!((254.0 - 90.0..254.0 + 90.0).contains(&chi), "over keys: {over_keys}, chi-squared {chi}");
        }
    }

    #[test]
    fn impossible_names_are_refused() {
        assert_eq!(Code::Rlc.check(id(0, 0, 0)), Err(SpanError::Empty));
        let first = SourceId(u64::MAX - 2);
        assert_eq!(Code::Rlc.check(id(first.0, 3, 0)), Err(SpanError::PastLastId { first, count: 3 }));
        assert_eq!(Code::Rlc.check(id(first.0, 2, 0)), Ok(()));
        assert_eq!(Code::Cauchy.check(id(0, 200, 56)), Err(SpanError::KeyTooLarge { key: 56, count: 200 }));
        assert_eq!(Code::Cauchy.check(id(0, 200, 55)), Ok(()));
        assert_eq!(Code::Cauchy.check(id(0, 256, 0)), Err(SpanError::KeyTooLarge { key: 0, count: 256 }));
    }
}
