//! The coefficients of a repair symbol over GF(2^16), in the order of its span.
//!
//! [`Code::row_16`](crate::Code::row_16) makes them; [`Generation`](crate::Generation) mixes symbols with
//! them.

use core::iter::FusedIterator;

use crate::code::{ID_STEP, hash_counter};
use crate::kernel::Kernel;
use crate::{SourceId, SplitMix64};

/// The coefficients of one repair symbol of [`Code::Rlc16`](crate::Code::Rlc16), in the order of its span.
/// Owns no memory.
#[derive(Clone, Debug)]
pub struct Row16 {
    left: u16,
    rule: Rule,
}

/// How the next coefficient is computed.
#[derive(Clone, Debug)]
enum Rule {
    /// A span of one: the repair symbol is the source symbol.
    One,
    Hashed {
        counter: u64,
    },
}

impl Row16 {
    /// The row of a code that is not over this field: it has no coefficients.
    pub(crate) fn empty() -> Self {
        Self { left: 0, rule: Rule::One }
    }

    pub(crate) fn hashed(key: u16, first: SourceId, count: u16) -> Self {
        let rule = if count == 1 { Rule::One } else { Rule::Hashed { counter: hash_counter(key, first) } };
        Self { left: count, rule }
    }

    /// Fills `cells` with the next coefficients. It is faster than taking them one by one.
    pub(crate) fn fill(&mut self, cells: &mut [u16]) {
        let count = cells.len().min(self.left.into());
        let cells = &mut cells[..count];
        match &mut self.rule {
            Rule::One => cells.fill(1),
            Rule::Hashed { counter } => {
                Kernel::active().hash_16(*counter, cells);
                *counter = counter.wrapping_add(ID_STEP.wrapping_mul(count as u64));
            }
        }
        self.left -= count as u16;
    }
}

impl Iterator for Row16 {
    type Item = u16;

    #[inline]
    fn next(&mut self) -> Option<u16> {
        self.left = self.left.checked_sub(1)?;
        Some(match &mut self.rule {
            Rule::One => 1,
            Rule::Hashed { counter } => {
                let coefficient = hashed(*counter);
                *counter = counter.wrapping_add(ID_STEP);
                coefficient
            }
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.left), Some(usize::from(self.left)))
    }
}

impl ExactSizeIterator for Row16 {}
impl FusedIterator for Row16 {}

/// Hashes a counter onto 1..=65,535. The upper 32 bits are scaled to 65,535 values: one gets 65,538 of the
/// 2^32, each other 65,537.
#[inline(always)]
fn hashed(counter: u64) -> u16 {
    (((SplitMix64::mix(counter) >> 32) * 65_535) >> 32) as u16 + 1
}

/// The hashes of a counter and of those that follow it in steps of one source id. It is a function of its own
/// so that each kernel can compile it for its instructions.
#[inline(always)]
pub(crate) fn hash_all_16(counter: u64, hashes: &mut [u16]) {
    for (i, hash) in (0..).zip(hashes) {
        *hash = hashed(counter.wrapping_add(ID_STEP.wrapping_mul(i)));
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use crate::{Code, RepairId, SpanError};

    fn id(first: u64, count: u16, key: u16) -> RepairId {
        RepairId { first: SourceId(first), count, key }
    }

    fn row(id: RepairId) -> Vec<u16> {
        Code::Rlc16.row_16(id).collect()
    }

    /// The wire format of `Rlc16`: other implementations must compute these values. They were computed
    /// separately, with unbounded integers.
    #[test]
    fn hashed_coefficients_are_pinned() {
        assert_eq!(row(id(0, 4, 0)), [13_669, 25_552, 56_327, 2_087]);
        assert_eq!(row(id(1 << 40, 4, 65_535)), [52_942, 6_232, 40_756, 48_843]);
        // The middle of a longer span, and its end: a coefficient depends on key and source id alone.
        assert_eq!(row(id((1 << 40) - 300, 304, 65_535))[300..], [52_942, 6_232, 40_756, 48_843]);
        assert_eq!(row(id(5, 1, 9)), [1]);
    }

    #[test]
    fn a_row_has_one_non_zero_coefficient_for_each_symbol_and_can_be_written_in_parts() {
        for id in [id(0, 1, 5), id(3, 100, 9), id(1 << 40, 300, 200), id(0, 0, 3)] {
            let expected = row(id);
            assert_eq!((expected.len(), Code::Rlc16.row_16(id).len()), (id.count.into(), id.count.into()));
            assert!(expected.iter().all(|&coefficient| coefficient != 0));
            for part in [1, 16, 33, 400] {
                let mut rest = Code::Rlc16.row_16(id);
                let mut cells = vec![0; expected.len() + part];
                cells.chunks_mut(part).for_each(|cells| rest.fill(cells));
                assert_eq!(cells[..expected.len()], expected, "{id:?} by {part}");
                assert_eq!((cells[expected.len()..].iter().max(), rest.len()), (Some(&0), 0));
            }
        }
    }

    #[test]
    fn every_kernel_hashes_alike() {
        let counter = hash_counter(7, SourceId(1 << 50));
        let expected: Vec<u16> = (0..70).map(|i| hashed(counter.wrapping_add(ID_STEP.wrapping_mul(i)))).collect();
        for kernel in Kernel::available() {
            for len in 0..=expected.len() {
                let mut hashes = vec![0; len];
                kernel.hash_16(counter, &mut hashes);
                assert_eq!(hashes, expected[..len], "{}", kernel.name());
            }
        }
    }

    #[test]
    fn each_code_has_rows_over_its_own_field_only() {
        let id = id(7, 20, 3);
        for code in [Code::Rlc, Code::Rlc8681, Code::Cauchy] {
            assert_eq!((code.row(id).len(), code.row_16(id).len(), code.check_sliding()), (20, 0, Ok(())));
        }
        assert_eq!((Code::Rlc16.row(id).len(), Code::Rlc16.row_16(id).len()), (0, 20));
        assert_eq!(Code::Rlc16.check_sliding(), Err(SpanError::GenerationsOnly { code: Code::Rlc16 }));
        assert_eq!(Code::Rlc16.check(id), Ok(()));
    }
}
