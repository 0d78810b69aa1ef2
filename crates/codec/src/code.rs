//! The coefficients of a code. A linear code over GF(2^8) or GF(2^16) is a rule that gives the coefficient of
//! each source symbol in each repair symbol.
//!
//! Encoder, decoder and recoder use the same rule, so a repair symbol travels with its [`RepairId`] and
//! without its coefficients. A rule gives one coefficient for each symbol, in the order of the span, as a
//! [`Row`]: some codes derive each from the one before. The coefficients depend only on the name.

use core::iter::FusedIterator;

use crate::field::gf256;
use crate::id::span;
use crate::kernel::Kernel;
use crate::neighbours::Degrees;
#[cfg(feature = "raptorq")]
use crate::raptorq;
use crate::soliton::RobustSoliton;
use crate::tinymt::TinyMt32;
use crate::{Neighbours, RepairId, Row16, SourceId, SpanError, SplitMix64};

/// A rule for coefficients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// Random linear code. The coefficient is a hash of key and source id, never 0. It works for sliding
    /// spans and for generations of any length: k repair symbols over the same k missing symbols decode them
    /// with probability about 0.996.
    Rlc,
    /// Random linear code of RFC 8681 over GF(2^8) with density threshold 15, compatible with its other
    /// implementations. TinyMT32 (RFC 8682), seeded with the key (Repair_Key), draws the coefficients of a
    /// span one after the other; none is 0. It decodes as well as [`Code::Rlc`]. The RFC makes no exception
    /// for a span of one, so here such a repair is a multiple of the source symbol. Spans over 4,095 have
    /// coefficients, but do not fit the RFC's payload id (NSS, 12 bits).
    Rlc8681,
    /// Cauchy matrix. Any `count` of the source and repair symbols over one span decode it (MDS), as long as
    /// `count` plus the number of keys is at most 256. It guarantees nothing for spans that overlap without
    /// being equal; use [`Code::Rlc`] there.
    Cauchy,
    /// [`Code::Rlc`] over GF(2^16), for generations only ([`Generation`](crate::Generation)): the sliding
    /// [`Encoder`](crate::Encoder), [`Decoder`](crate::Decoder) and [`Recoder`](crate::Recoder) refuse it.
    /// The coefficient is a hash of key and source id, never 0: k repair symbols over the same k missing
    /// symbols decode them with probability about 0.999985. Repair symbols have an even length: their first
    /// half is the low bytes of their elements, the second half the high bytes (`docs/coding.md` section 1).
    /// A product costs about 1.5 times that of GF(2^8).
    Rlc16,
    /// LT code (Luby, "LT codes", 2002), for generations only: each repair symbol is the XOR of a random
    /// number of random source symbols. The number has the robust soliton distribution. The code is not
    /// systematic: a sender sends repair symbols only, as many as the receiver needs, because the
    /// distribution assumes that no source symbol is known. [`PeelingDecoder`](crate::PeelingDecoder)
    /// decodes it.
    Lt {
        /// The constant c of the robust soliton distribution in thousandths, 1 to 1,000. More gives more
        /// repair symbols of degree 1.
        c_milli: u16,
        /// The distribution's bound of the failure probability in thousandths, 1 to 1,000.
        delta_milli: u16,
    },
    /// Semi-random LT code (Li and others, "Sphinx", 2019, section III-B), for generations only: each repair
    /// symbol is the XOR of `degree` different random source symbols, which are sent too.
    SemiRandomLt {
        /// Source symbols that a repair symbol adds up, at least 1; all of a span that is shorter. With the
        /// length of the span and more, all repair symbols are the same.
        degree: u16,
    },
    /// Reed-Solomon code over GF(2^16) by fast Fourier transforms (Lin and others, 2014), for generations
    /// only. Any `count` of the source and repair symbols decode a generation (MDS). Encoding and decoding
    /// cost O(n log n) for n symbols, where the other codes cost a product for each pair of source and repair
    /// symbol. The keys are below 65,536 minus the next power of two of `count`. Every repair symbol mixes
    /// its whole generation. Repair symbols have an even length. Field and layout are those of the crate
    /// `reed-solomon-simd` (`docs/coding.md` section 1.2). Its first use in a process computes tables of
    /// 8.5 MB.
    #[cfg(feature = "rs-fft")]
    RsFft,
    /// RaptorQ code of RFC 6330, for generations of up to 1,024 symbols only: key x is the RFC's encoding
    /// symbol id `count + x`, in a block of `count` symbols without sub-blocks. Any `count` symbols decode a
    /// generation with probability about 0.994, and each further one fails 200 times less often. Every symbol
    /// length is possible. One coefficient in about 256 is 0. A span of one is the symbol itself, as under
    /// `Rlc`, where the RFC has a multiple of it that may be 0 (`docs/coding.md` section 1.3).
    ///
    /// The coefficients come from the crate `raptorq` and are kept for the whole process: 256 bytes for each
    /// symbol of a generation, padded to a size of the RFC, and eight times that for the longest generations
    /// once they use keys from 256 up. The first repair symbol of each size computes them. 83 MB bound those
    /// of all sizes. Many repair symbols or losses at once go through the crate.
    #[cfg(feature = "raptorq")]
    RaptorQ,
}

impl Code {
    /// Whether [`Encoder`](crate::Encoder), [`Decoder`](crate::Decoder) and [`Recoder`](crate::Recoder)
    /// accept the code. The other codes, those over GF(2^16) and the sparse ones, are for
    /// [`Generation`](crate::Generation) only.
    pub const fn is_sliding(self) -> bool {
        matches!(self, Self::Rlc | Self::Rlc8681 | Self::Cauchy)
    }

    /// Whether a sender also sends the source symbols. A generation of another code is decoded from repair
    /// symbols alone.
    pub const fn is_systematic(self) -> bool {
        !matches!(self, Self::Lt { .. })
    }

    /// Whether a repair symbol mixes only some symbols of its span, so that peeling decodes the code.
    pub const fn is_sparse(self) -> bool {
        matches!(self, Self::Lt { .. } | Self::SemiRandomLt { .. })
    }

    /// Whether the coefficients are elements of GF(2^8); otherwise they are elements of GF(2^16).
    pub(crate) const fn is_over_gf256(self) -> bool {
        !matches!(self, Self::Rlc16) && !self.is_rs_fft()
    }

    /// Whether the code is `RsFft`, which has no rows of coefficients. Without the feature no code is.
    pub(crate) const fn is_rs_fft(self) -> bool {
        #[cfg(feature = "rs-fft")]
        return matches!(self, Self::RsFft);
        #[cfg(not(feature = "rs-fft"))]
        return false;
    }

    /// The coefficients of the repair symbol `id` over GF(2^8), in the order of its span. None is 0, except
    /// those of a sparse code, which are 1 for the [neighbours](Self::neighbours) and 0 for others, and some
    /// of `RaptorQ`. A code
    /// over GF(2^16) has no row here: see [`row_16`](Self::row_16). `RsFft` has no row at all.
    ///
    /// Defined for ids that pass [`check`](Self::check). For others the values have no meaning, but the call
    /// does not panic.
    #[inline]
    pub fn row(self, id: RepairId) -> Row {
        let rule = match self {
            Self::Rlc8681 => Rule::Drawn(TinyMt32::new(id.key.into())),
            Self::Rlc | Self::Cauchy if id.count == 1 => Rule::One,
            Self::Rlc => return Row::hashed(id.key, id.first, id.count),
            Self::Cauchy => Rule::Listed { row: cauchy_row(id.key), column: 0 },
            Self::Rlc16 | Self::Lt { .. } | Self::SemiRandomLt { .. } => match self.neighbours(id) {
                Some(neighbours) => Rule::Chosen(neighbours),
                None => return Row { left: 0, rule: Rule::One },
            },
            #[cfg(feature = "rs-fft")]
            Self::RsFft => return Row { left: 0, rule: Rule::One },
            #[cfg(feature = "raptorq")]
            Self::RaptorQ if id.count == 1 => Rule::One,
            #[cfg(feature = "raptorq")]
            Self::RaptorQ => match raptorq::Coefficients::new(id.count, id.key) {
                Some(coefficients) => Rule::Read(coefficients),
                None => return Row { left: 0, rule: Rule::One },
            },
        };
        Row { left: id.count, rule }
    }

    /// The source symbols that the repair symbol `id` of a sparse code adds up, as places in its span. Other
    /// codes mix every symbol of the span: `None`.
    ///
    /// Defined for ids that pass [`check`](Self::check). For others the values have no meaning, but the call
    /// does not panic. [`Code::Lt`] computes its distribution in each call: a division for each degree up to
    /// k/R and up to the one drawn.
    pub fn neighbours(self, id: RepairId) -> Option<Neighbours> {
        self.degrees(id.count).map(|degrees| degrees.neighbours(id))
    }

    /// How the repair symbols over `count` source symbols get their degree. `None` for codes that are not
    /// sparse.
    pub(crate) fn degrees(self, count: u16) -> Option<Degrees> {
        match self {
            Self::Lt { c_milli, delta_milli } => {
                Some(Degrees::Soliton(RobustSoliton::new(count, c_milli, delta_milli)))
            }
            Self::SemiRandomLt { degree } => Some(Degrees::Fixed(degree)),
            Self::Rlc | Self::Rlc8681 | Self::Cauchy | Self::Rlc16 => None,
            #[cfg(feature = "rs-fft")]
            Self::RsFft => None,
            #[cfg(feature = "raptorq")]
            Self::RaptorQ => None,
        }
    }

    /// The coefficients of the repair symbol `id` over GF(2^16), in the order of its span; none is 0. A code
    /// over GF(2^8) has none: see [`row`](Self::row). `RsFft` has none either: it is over another GF(2^16).
    ///
    /// Defined for ids that pass [`check`](Self::check). For others the values have no meaning, but the call
    /// does not panic.
    #[inline]
    pub fn row_16(self, id: RepairId) -> Row16 {
        match self {
            Self::Rlc16 => Row16::hashed(id.key, id.first, id.count),
            _ => Row16::empty(),
        }
    }

    /// Whether the code has a repair symbol of this name.
    ///
    /// # Errors
    /// The span is empty, runs past the last source id or is too long for `RaptorQ`, the key is beyond the
    /// rows of a Cauchy matrix or the field of `RsFft`, or a parameter of the code is out of range.
    pub fn check(self, id: RepairId) -> Result<(), SpanError> {
        let RepairId { first, count, key } = id;
        span(first, count)?;
        match self {
            Self::Rlc | Self::Rlc8681 | Self::Rlc16 => Ok(()),
            Self::Cauchy if u32::from(key) + u32::from(count) < 256 => Ok(()),
            Self::Cauchy => Err(SpanError::KeyTooLarge { key, count }),
            #[cfg(feature = "rs-fft")]
            Self::RsFft if u32::from(count).next_power_of_two() + u32::from(key) < 1 << 16 => Ok(()),
            #[cfg(feature = "rs-fft")]
            Self::RsFft => Err(SpanError::KeyPastField { key, count }),
            #[cfg(feature = "raptorq")]
            Self::RaptorQ if count <= raptorq::MOST_SYMBOLS => Ok(()),
            #[cfg(feature = "raptorq")]
            Self::RaptorQ => Err(SpanError::TooManySymbols { count, limit: raptorq::MOST_SYMBOLS }),
            Self::Lt { c_milli: 1..=1_000, delta_milli: 1..=1_000 } | Self::SemiRandomLt { degree: 1.. } => Ok(()),
            Self::Lt { .. } | Self::SemiRandomLt { .. } => Err(SpanError::CodeParameter { code: self }),
        }
    }

    /// Whether the code has `repairs` repair symbols over one span, with keys from that of `id` upwards.
    pub(crate) fn check_keys(self, id: RepairId, repairs: usize) -> Result<(), SpanError> {
        let last = usize::from(id.key) + repairs.saturating_sub(1);
        let last = u16::try_from(last).map_err(|_| SpanError::PastLastKey { key: id.key, repairs })?;
        self.check(RepairId { key: last, ..id })
    }

    /// Checks that the code can be used in a sliding window.
    pub(crate) fn check_sliding(self) -> Result<(), SpanError> {
        if self.is_sliding() { Ok(()) } else { Err(SpanError::GenerationsOnly { code: self }) }
    }
}

/// The coefficients of one repair symbol, in the order of its span. Made by [`Code::row`]. It owns no memory,
/// except under `RaptorQ` with a key from 256 up.
#[derive(Clone, Debug)]
pub struct Row {
    left: u16,
    rule: Rule,
}

/// The source of the next coefficient.
#[derive(Clone, Debug)]
enum Rule {
    /// A span of one: the repair symbol is the source symbol, so that a retransmission needs no separate
    /// code.
    One,
    Drawn(TinyMt32),
    Hashed(Hashes),
    /// A row of a precomputed matrix.
    Listed {
        row: &'static [u8],
        column: u8,
    },
    /// A sparse row of ones.
    Chosen(Neighbours),
    #[cfg(feature = "raptorq")]
    Read(raptorq::Coefficients),
}

impl Row {
    /// The coefficients that [`Code::Rlc`] gives the symbols from `first` in the repair symbol of this key.
    /// They hold for every span except a span of one.
    pub(crate) fn hashed(key: u16, first: SourceId, count: u16) -> Self {
        Self { left: count, rule: Rule::Hashed(Hashes::new(key, first)) }
    }

    /// Fills `cells` with the next coefficients. The result is the same as from taking them one by one, in
    /// half the time or less.
    pub(crate) fn fill(&mut self, cells: &mut [u8]) {
        let count = cells.len().min(self.left.into());
        let cells = &mut cells[..count];
        match &mut self.rule {
            Rule::Hashed(hashes) => hashes.fill(cells),
            Rule::Listed { row, column } if usize::from(*column) + count <= row.len() => {
                cells.copy_from_slice(&row[usize::from(*column)..][..count]);
                *column = column.wrapping_add(count as u8);
            }
            #[cfg(feature = "raptorq")]
            Rule::Read(coefficients) => cells.copy_from_slice(coefficients.take(count)),
            _ => return cells.iter_mut().zip(self).for_each(|(cell, coefficient)| *cell = coefficient),
        }
        self.left -= count as u16;
    }
}

impl Iterator for Row {
    type Item = u8;

    #[inline]
    fn next(&mut self) -> Option<u8> {
        self.left = self.left.checked_sub(1)?;
        Some(match &mut self.rule {
            Rule::One => 1,
            Rule::Drawn(generator) => drawn(generator),
            Rule::Hashed(hashes) => hashes.next(),
            Rule::Listed { row, column } => {
                let coefficient = row[usize::from(*column)];
                *column = column.wrapping_add(1);
                coefficient
            }
            Rule::Chosen(neighbours) => neighbours.visit().into(),
            #[cfg(feature = "raptorq")]
            Rule::Read(coefficients) => coefficients.take(1).first().copied().unwrap_or_default(),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.left), Some(usize::from(self.left)))
    }
}

impl ExactSizeIterator for Row {}
impl FusedIterator for Row {}

/// The coefficients of [`Code::Rlc`] for one key, from a source id on and without an end.
#[derive(Clone, Debug)]
pub(crate) struct Hashes {
    counter: u64,
}

impl Hashes {
    #[inline]
    pub fn new(key: u16, first: SourceId) -> Self {
        Self { counter: hash_counter(key, first) }
    }

    /// Fills `cells` with the next coefficients.
    #[inline]
    pub fn fill(&mut self, cells: &mut [u8]) {
        Kernel::active().hash(self.counter, cells);
        self.counter = self.counter.wrapping_add(ID_STEP.wrapping_mul(cells.len() as u64));
    }

    #[inline]
    fn next(&mut self) -> u8 {
        let coefficient = hashed(self.counter);
        self.counter = self.counter.wrapping_add(ID_STEP);
        coefficient
    }
}

/// What the next source id adds to the counter that is hashed.
pub(crate) const ID_STEP: u64 = SplitMix64::STEP;
/// What the next key adds: the fractional bits of the square root of 2, made odd. Any odd constant unrelated
/// to `ID_STEP` would do.
const KEY_STEP: u64 = 0x6A09_E667_F3BC_C909;

/// The counter that is hashed. Source id and key step it by different odd constants.
#[inline]
pub(crate) fn hash_counter(key: u16, source: SourceId) -> u64 {
    source.0.wrapping_mul(ID_STEP).wrapping_add((u64::from(key) + 1).wrapping_mul(KEY_STEP))
}

/// Hashes a counter onto 1..=255. The upper 32 bits are scaled to 255 values, each of which gets 2^32 / 255
/// of them, rounded up or down. The result is uniform within one part in 2^24 if the hash is.
#[inline(always)]
fn hashed(counter: u64) -> u8 {
    (((SplitMix64::mix(counter) >> 32) * 255) >> 32) as u8 + 1
}

/// Hashes computed at a time. With a fixed number, the compiler keeps the multiples of the step as constants
/// and needs no loop for the rest. Measured with 16, 32 and 64 (`docs/performance.md`, "What was tried").
const HASHED: usize = 32;

/// The hashes of a counter and of those that follow it in steps of one source id. It is a function of its own
/// so that each kernel can compile it for its instructions.
#[inline(always)]
pub(crate) fn hash_all(counter: u64, hashes: &mut [u8]) {
    let mut start = counter;
    for part in hashes.chunks_mut(HASHED) {
        let mut all = [0; HASHED];
        for (i, hash) in (0..).zip(&mut all) {
            *hash = hashed(start.wrapping_add(ID_STEP.wrapping_mul(i)));
        }
        // A whole part is copied by register moves, the last one by a call.
        if let Ok(part) = <&mut [u8; HASHED]>::try_from(&mut *part) {
            *part = all;
        } else {
            part.copy_from_slice(&all[..part.len()]);
        }
        start = start.wrapping_add(ID_STEP.wrapping_mul(HASHED as u64));
    }
}

/// An endless sequence of multipliers for a recoded symbol, none of them 0. It is SplitMix64, started at a
/// hash of the key. If it started at a counter like that of a coefficient, a relay that holds source symbols
/// would repeat the sender's own repair symbol of the same key.
pub(crate) fn multipliers(key: u64) -> impl Iterator<Item = u8> {
    let start = SplitMix64::mix(key.wrapping_add(1).wrapping_mul(KEY_STEP));
    (0..).map(move |index: u64| hashed(start.wrapping_add(index.wrapping_mul(ID_STEP))))
}

/// RFC 8681 sections 3.5 and 3.6 with m = 8 and dt = 15: the low 8 bits of an output (tinymt32_rand256),
/// drawn again while they are 0. One coefficient in 255 needs a second draw.
#[inline]
fn drawn(generator: &mut TinyMt32) -> u8 {
    loop {
        let coefficient = generator.draw() as u8;
        if coefficient != 0 {
            return coefficient;
        }
    }
}

/// Entry (row, column) of the Cauchy matrix 1 / (x + y), with x = column and y = 255 - row, which differ
/// while row + column < 255. Each column is scaled by its entry of row 0. Scaling a column keeps every minor
/// non-zero, so the code stays MDS, and row 0 becomes all ones: the first repair symbol is a plain XOR.
const fn cauchy(row: u8, column: u8) -> u8 {
    gf256::mul(column ^ 255, gf256::inv(column ^ (255 - row)))
}

/// The row of the Cauchy matrix for a key, from the first symbol of a span on. It is longer than any span of
/// the code.
#[inline]
pub(crate) fn cauchy_row(key: u16) -> &'static [u8] {
    &CAUCHY[usize::from(key as u8)]
}

/// The Cauchy matrix, row after row, in 64 KiB. A coefficient is then one byte of a copy, instead of two
/// look-ups of which the second waits for the first.
static CAUCHY: [[u8; 256]; 256] = {
    let mut rows = [[0; 256]; 256];
    let mut row = 0;
    while row < 256 {
        let mut column = 0;
        while column < 256 {
            rows[row][column] = cauchy(row as u8, column as u8);
            column += 1;
        }
        row += 1;
    }
    rows
};

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    fn id(first: u64, count: u16, key: u16) -> RepairId {
        RepairId { first: SourceId(first), count, key }
    }

    fn row(code: Code, id: RepairId) -> Vec<u8> {
        code.row(id).collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "slow there, and no unsafe code in it")]
    fn a_row_has_one_non_zero_coefficient_for_each_symbol_of_the_span() {
        let most = u16::MAX;
        for (code, count, key) in [
            (Code::Rlc, 300, 65_535),
            (Code::Rlc, most, 0),
            (Code::Rlc8681, most, 0),
            (Code::Cauchy, 255, 0),
            (Code::Cauchy, 2, 253),
        ] {
            let id = id(1_000, count, key);
            assert_eq!(code.check(id), Ok(()));
            assert_eq!((code.row(id).len(), row(code, id).len()), (count.into(), count.into()));
            assert!(code.row(id).all(|coefficient| coefficient != 0), "{code:?} {id:?}");
        }
        assert_eq!(Code::Rlc.row(id(0, 0, 0)).next(), None);
    }

    /// It holds also at the end of a Cauchy matrix, and for names that `check` refuses.
    #[test]
    fn rows_written_in_parts_are_those_taken_one_by_one() {
        for code in [Code::Rlc, Code::Rlc8681, Code::Cauchy] {
            for id in [id(0, 1, 5), id(3, 100, 9), id(1 << 40, 300, 200)] {
                let expected = row(code, id);
                for part in [1, 16, 33, 400] {
                    let mut rest = code.row(id);
                    let mut cells = vec![0; expected.len() + part];
                    cells.chunks_mut(part).for_each(|cells| rest.fill(cells));
                    assert_eq!(cells[..expected.len()], expected, "{code:?} {id:?} by {part}");
                    assert_eq!((cells[expected.len()..].iter().max(), rest.len()), (Some(&0), 0));
                }
            }
        }
    }

    #[test]
    fn every_kernel_hashes_alike() {
        let counter = hash_counter(7, SourceId(1 << 50));
        let expected: Vec<u8> = (0..70).map(|i| hashed(counter.wrapping_add(ID_STEP.wrapping_mul(i)))).collect();
        for kernel in Kernel::available() {
            for len in 0..=expected.len() {
                let mut hashes = vec![0; len];
                kernel.hash(counter, &mut hashes);
                assert_eq!(hashes, expected[..len], "{}", kernel.name());
            }
        }
    }

    #[test]
    fn a_span_of_one_is_the_symbol_itself_and_cauchy_key_0_the_sum() {
        assert_eq!(row(Code::Rlc, id(5, 1, 9)), [1]);
        assert_eq!(row(Code::Cauchy, id(5, 1, 9)), [1]);
        assert_eq!(row(Code::Cauchy, id(0, 255, 0)), [1; 255]);
    }

    /// The wire format of `Rlc`: other implementations must compute these values. They were computed
    /// separately, with unbounded integers.
    #[test]
    fn hashed_coefficients_are_pinned() {
        assert_eq!(row(Code::Rlc, id(0, 4, 0)), [54, 100, 220, 9]);
        assert_eq!(row(Code::Rlc, id(1 << 40, 4, 65_535)), [206, 25, 159, 191]);
        // The middle of a longer span, and its end: a coefficient of `Rlc` depends only on key and source id.
        assert_eq!(row(Code::Rlc, id((1 << 40) - 300, 304, 65_535))[300..], [206, 25, 159, 191]);
    }

    /// RFC 8681 appendix A: the low bytes of the outputs for seed 1, none of which is 0. The sequence starts
    /// with the span, whatever its ids are, and even for a span of one.
    #[test]
    fn coefficients_of_rfc_8681_are_the_low_bytes_for_the_key() {
        assert_eq!(row(Code::Rlc8681, id(77, 10, 1)), [37, 225, 177, 176, 21, 246, 54, 139, 168, 237]);
        assert_eq!(row(Code::Rlc8681, id(u64::MAX - 1, 1, 1)), [37]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "slow there, and no unsafe code in it")]
    fn a_relay_does_not_repeat_the_repair_symbols_of_the_sender() {
        for key in 0..1_000 {
            let sender = Code::Rlc.row(id(0, 8, key));
            assert!(!multipliers(key.into()).take(8).eq(sender), "key {key}");
            assert!(multipliers(key.into()).take(1_000).all(|multiplier| multiplier != 0));
        }
    }

    /// Pearson's chi-squared over 255 values has mean 254 and deviation 22.5. The hash has no seed, so the
    /// value is fixed.
    #[test]
    #[cfg_attr(miri, ignore = "slow there, and no unsafe code in it")]
    fn hashed_coefficients_are_spread_evenly_over_keys_and_over_ids() {
        for over_keys in [false, true] {
            let mut seen = [0u32; 256];
            for i in 0..51_000u32 {
                let (key, source) = if over_keys { (i as u16, 77) } else { (77, u64::from(i)) };
                seen[usize::from(hashed(hash_counter(key, SourceId(source))))] += 1;
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
