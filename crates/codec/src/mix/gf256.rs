//! Sums over GF(2^8): an element is a byte, and a symbol needs no special layout.

use core::cmp::Reverse;
use core::ops::Range;

use super::{BATCH, Coefficients, FEW, Field, combine, part};
use crate::code::{Hashes, cauchy_row};
use crate::kernel::{FourTerm, Kernel};
use crate::{Code, RepairId, Row};

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
            let cells = row.next_cells::<TERMS>(terms.len());
            columns.iter_mut().zip(cells).for_each(|(column, cell)| *column |= u32::from(cell) << shift);
        }
        terms.iter_mut().zip(columns).for_each(|(term, column)| term.0 = column.to_le_bytes());
    }

    #[inline]
    fn is_even(terms: &[FourTerm], out: &&mut [u8]) -> bool {
        terms.iter().fold(0, |differ, (_, symbol)| differ | symbol.len() ^ out.len()) == 0
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

/// Makes `outs[j]` the repair symbol with the span of `id` and the key `id.key + j`, for every `j`, in the
/// first `len` bytes of each. `symbols` are those of the span; each is at most `len` bytes.
pub(crate) fn combine_repairs<'a, R, S>(code: Code, id: RepairId, outs: &mut [R], len: usize, symbols: S)
where
    R: AsMut<[u8]>,
    S: Iterator<Item = &'a [u8]> + Clone,
{
    let key = |j: usize| id.key + j as u16;
    // A `Row` can belong to any code, and moving it costs more than a coefficient. The two frequent codes
    // have smaller forms.
    match code {
        Code::Cauchy if id.count > 1 => combine::<Gf256, _, _, _>(outs, len, symbols, |j| cauchy_row(key(j))),
        Code::Rlc if id.count > 1 => {
            combine::<Gf256, _, _, _>(outs, len, symbols, |j| Hashes::new(key(j), id.first));
        }
        _ => combine::<Gf256, _, _, _>(outs, len, symbols, |j| code.row(RepairId { key: key(j), ..id })),
    }
}

impl Coefficients<u8> for Row {
    #[inline]
    fn next_cells<const N: usize>(&mut self, count: usize) -> [u8; N] {
        let mut cells = [0; N];
        self.fill(&mut cells[..count]);
        cells
    }
}

impl Coefficients<u8> for Hashes {
    #[inline]
    fn next_cells<const N: usize>(&mut self, count: usize) -> [u8; N] {
        let mut cells = [0; N];
        self.fill(&mut cells[..count]);
        cells
    }
}

/// Coefficients that were computed before.
impl Coefficients<u8> for &[u8] {
    #[inline]
    fn next_cells<const N: usize>(&mut self, count: usize) -> [u8; N] {
        let cells = self.first_chunk().copied().unwrap_or_else(|| {
            let mut cells = [0; N];
            cells[..self.len()].copy_from_slice(self);
            cells
        });
        *self = &self[count.min(self.len())..];
        cells
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
