//! Sums over GF(2^16): the first half of a symbol is the low bytes of its elements, the second half the high
//! bytes.

use core::ops::Range;

use super::gf256::sum_ragged;
use super::{BATCH, Coefficients, FEW, Field, part};
use crate::Row16;
use crate::kernel::{HIGH, Halves, HalvesFactors, HalvesMut, HalvesTerm, Kernel, LOW};

/// GF(2^16).
pub(crate) struct Gf65536;

impl Field for Gf65536 {
    const BYTES: usize = 2;
    type Cell = u16;
    type Factors = HalvesFactors;
    type Source<'a> = Halves<'a>;
    type Out<'a> = HalvesMut<'a>;

    #[inline]
    fn source<'a>(symbol: &'a [u8], len: usize, piece: &Range<usize>) -> Halves<'a> {
        let half = len / 2;
        [part(symbol, piece.clone()), part(symbol, half + piece.start..half + piece.end)]
    }

    #[inline]
    fn out<'a>(symbol: &'a mut [u8], piece: &Range<usize>) -> HalvesMut<'a> {
        let (low, high) = symbol.split_at_mut(symbol.len() / 2);
        [&mut low[piece.clone()], &mut high[piece.clone()]]
    }

    #[inline]
    fn load<const TERMS: usize>(terms: &mut [HalvesTerm], rows: &mut [Option<impl Coefficients<u16>>]) {
        let mut columns = [[0; FEW]; TERMS];
        for (d, row) in rows.iter_mut().flatten().enumerate() {
            let cells = row.next_cells::<TERMS>(terms.len());
            columns.iter_mut().zip(cells).for_each(|(column, cell)| column[d] = cell);
        }
        terms.iter_mut().zip(columns).for_each(|(term, column)| term.0 = column.into());
    }

    #[inline]
    fn is_even(terms: &[HalvesTerm], out: &HalvesMut) -> bool {
        let len = out[LOW].len();
        terms.iter().all(|(_, [low, high])| low.len() == len && high.len() == len)
    }

    #[inline]
    fn sum(few: &mut [HalvesMut], terms: &[HalvesTerm], is_even: bool, is_first: bool) {
        match (is_even, is_first) {
            (true, true) => Kernel::active().mul_halves(few, terms),
            (true, false) => Kernel::active().mul_add_halves(few, terms),
            (false, _) => sum_ragged_halves(few, terms, is_first),
        }
    }
}

impl Coefficients<u16> for Row16 {
    #[inline]
    fn next_cells<const N: usize>(&mut self, count: usize) -> [u16; N] {
        let mut cells = [0; N];
        self.fill(&mut cells[..count]);
        cells
    }
}

/// Coefficients that were computed before.
impl Coefficients<u16> for Halves<'_> {
    #[inline]
    fn next_cells<const N: usize>(&mut self, count: usize) -> [u16; N] {
        let mut cells = [0; N];
        let count = count.min(self[LOW].len());
        let [(low, rest_low), (high, rest_high)] = self.map(|half| half.split_at(count));
        for (cell, (low, high)) in cells.iter_mut().zip(low.iter().zip(high)) {
            *cell = u16::from_le_bytes([*low, *high]);
        }
        *self = [rest_low, rest_high];
        cells
    }
}

/// Sums terms that differ in length. It treats halves as symbols over GF(2^8), with four products for each
/// term. Two outputs are four sums: first of the low bytes of all terms, then of the high bytes.
#[inline(never)]
fn sum_ragged_halves(few: &mut [HalvesMut], terms: &[HalvesTerm], is_first: bool) {
    for (pair, outs) in few.chunks_mut(2).enumerate() {
        let count = 2 * outs.len();
        let mut halves = outs.iter_mut().flatten();
        let mut halves = [(); FEW].map(|()| halves.next().map(|half| &mut **half).unwrap_or_default());
        for which in [LOW, HIGH] {
            let mut parts = [([0; FEW], &[][..]); BATCH];
            for (part, (HalvesFactors { products }, symbol)) in parts.iter_mut().zip(terms) {
                let mut factors = [0; FEW];
                for (at, factors) in factors.chunks_mut(2).enumerate() {
                    let [low, high, both] = products.map(|factors| factors[2 * pair + at]);
                    factors.copy_from_slice(&if which == LOW { [low, low ^ both] } else { [high, both] });
                }
                *part = (factors, symbol[which]);
            }
            sum_ragged(&mut halves[..count], &parts[..terms.len()], is_first && which == LOW);
        }
    }
}
