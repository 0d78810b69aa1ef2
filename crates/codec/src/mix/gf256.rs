//! Sums over GF(2^8): an element is a byte, and a symbol needs no special layout.

use core::cmp::Reverse;
use core::ops::Range;

use super::{BATCH, Coefficients, FEW, Field, part};
use crate::Row;
use crate::kernel::{FourTerm, Kernel};

/// GF(2^8).
pub(crate) struct Gf256;

impl Field for Gf256 {
    const BYTES: usize = 1;
    type Cell = u8;
    type Factors = [u8; FEW];
    type Source<'a> = &'a [u8];
    type Out<'a> = &'a mut [u8];

    #[inline]
    fn source<'a>(symbol: &'a [u8], _: usize, piece: &Range<usize>) -> &'a [u8] {
        part(symbol, piece.clone())
    }

    #[inline]
    fn out<'a>(symbol: &'a mut [u8], piece: &Range<usize>) -> &'a mut [u8] {
        &mut symbol[piece.clone()]
    }

    /// Four bytes form one number, so that the compiler can handle several terms at once.
    #[inline]
    fn load<const TERMS: usize>(terms: &mut [FourTerm], rows: &mut [Option<impl Coefficients<u8>>]) {
        let mut columns = [0; TERMS];
        for (row, shift) in rows.iter_mut().flatten().zip([0, 8, 16, 24]) {
            let mut cells = [0; TERMS];
            row.fill(&mut cells[..terms.len()]);
            columns.iter_mut().zip(cells).for_each(|(column, cell)| *column |= u32::from(cell) << shift);
        }
        terms.iter_mut().zip(columns).for_each(|(term, column)| term.0 = column.to_le_bytes());
    }

    #[inline]
    fn is_even(terms: &[FourTerm], out: &&mut [u8]) -> bool {
        terms.iter().all(|(_, symbol)| symbol.len() == out.len())
    }

    #[inline]
    fn sum(few: &mut [&mut [u8]], terms: &[FourTerm], is_even: bool, is_first: bool) {
        match (is_even, is_first) {
            (true, true) => Kernel::active().mul_few(few, terms),
            (true, false) => Kernel::active().mul_add_few(few, terms),
            (false, _) => sum_ragged(few, terms, is_first),
        }
    }
}

impl Coefficients<u8> for Row {
    #[inline]
    fn fill(&mut self, cells: &mut [u8]) {
        Row::fill(self, cells);
    }
}

/// Coefficients that were computed before.
impl Coefficients<u8> for &[u8] {
    #[inline]
    fn fill(&mut self, cells: &mut [u8]) {
        let (next, rest) = self.split_at(cells.len().min(self.len()));
        cells[..next.len()].copy_from_slice(next);
        *self = rest;
    }
}

/// Sums terms that differ in length: first the bytes that all terms have, then those that all but the
/// shortest have, and so on. Padding costs nothing: only existing bytes are multiplied.
#[inline(never)]
pub(super) fn sum_ragged(few: &mut [&mut [u8]], terms: &[FourTerm], is_first: bool) {
    if is_first {
        few.iter_mut().for_each(|out| out.fill(0));
    }
    let count = few.len();
    let mut sorted = [([0; FEW], &[][..]); BATCH];
    let sorted = &mut sorted[..terms.len()];
    sorted.copy_from_slice(terms);
    sorted.sort_unstable_by_key(|(_, symbol)| Reverse(symbol.len()));
    let mut parts = [([0; FEW], &[][..]); BATCH];
    let (mut start, mut left) = (0, sorted.len());
    while let Some(&(_, shortest)) = sorted[..left].last() {
        let bytes = start..shortest.len();
        for (part, &(factors, symbol)) in parts.iter_mut().zip(&sorted[..left]) {
            *part = (factors, &symbol[bytes.clone()]);
        }
        let mut outs = few.iter_mut();
        let mut outs = [(); FEW].map(|()| outs.next().map(|out| &mut out[bytes.clone()]).unwrap_or_default());
        Kernel::active().mul_add_few(&mut outs[..count], &parts[..left]);
        start = bytes.end;
        left = sorted[..left].partition_point(|(_, symbol)| symbol.len() > start);
    }
}
