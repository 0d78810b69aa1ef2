//! Linear combinations of symbols: the loop under every repair symbol and every decoded generation.
//!
//! Encoder, generation and decode plan hand over symbols and one row of coefficients for each output; this file cuts
//! the work so that the kernel runs at its best: symbols in batches that stay in the cache for all outputs, four
//! outputs a pass while there are four, long symbols in pieces. Nothing here allocates, and nothing asks how symbols
//! or rows are stored.

use core::cmp::Reverse;
use core::ops::Range;

use crate::Row;
use crate::kernel::{FourTerm, Kernel, LINE, Term};

/// Sources handed to the kernel at once; outputs are loaded and stored once per batch, 1/32 of the traffic. Chosen: 32
/// packets of 1,408 bytes fill an L1 cache, and 16 to 64 differed by under 5 % (AVX2, Zen 3).
const BATCH: usize = 32;

/// Sources handed over at once where one pass makes all outputs. Short blocks are of this kind, and there the clearing of
/// places for more of both took 5 % of the time (k = 16).
const SMALL_BATCH: usize = 16;

/// Outputs of one pass over a batch: the most that the kernel keeps in registers.
const FEW: usize = 4;

/// Outputs that are made of one batch before the next is read. At 16 a source that comes from beyond the L2 cache has
/// all the time of 16 products to arrive; 8 to 32 differed by under 5 %, and each has its row on the stack.
const MANY: usize = 16;

/// Most bytes in a batch, so that it stays in an L2 cache from one pass to the next, beside the outputs. Chosen for the
/// 512 KiB of Zen 2 and later; Intel has more.
const TILE: usize = 192 << 10;

/// Coefficients of one output, in the order of the symbols.
pub(crate) trait Coefficients {
    /// Writes the next ones, as many as there is room for.
    fn fill(&mut self, cells: &mut [u8]);
}

impl Coefficients for Row {
    #[inline]
    fn fill(&mut self, cells: &mut [u8]) {
        Row::fill(self, cells);
    }
}

/// Those that were made before.
impl Coefficients for &[u8] {
    #[inline]
    fn fill(&mut self, cells: &mut [u8]) {
        let (next, rest) = self.split_at(cells.len().min(self.len()));
        cells[..next.len()].copy_from_slice(next);
        *self = rest;
    }
}

/// `outs[j] = sum of row(j)[i] * symbols[i]` for every `j`, in the first `len` bytes of each. Symbols are at most `len`
/// bytes, shorter ones count as padded with zeros.
pub(crate) fn combine<'a, R, S, C>(outs: &mut [R], len: usize, symbols: S, row: impl Fn(usize) -> C)
where
    R: AsMut<[u8]>,
    S: Iterator<Item = &'a [u8]> + Clone,
    C: Coefficients,
{
    let each = piece_len(len);
    for start in (0..len).step_by(each) {
        let piece = start..len.min(start + each);
        let outs = outs.iter_mut().map(|out| &mut out.as_mut()[piece.clone()]);
        let symbols = symbols.clone().map(|symbol| part(symbol, &piece));
        combine_piece(outs, symbols, &row);
    }
}

/// What a symbol has of a piece: mostly all.
#[inline]
fn part<'a>(symbol: &'a [u8], piece: &Range<usize>) -> &'a [u8] {
    symbol.get(piece.clone()).unwrap_or_else(|| &symbol[piece.start.min(symbol.len())..])
}

/// [`combine`] for outputs that are whole slices, of one length and no longer than a piece should be.
pub(crate) fn combine_piece<'a, 'b, S, C>(
    outs: impl ExactSizeIterator<Item = &'b mut [u8]>,
    symbols: S,
    row: impl Fn(usize) -> C,
) where
    S: Iterator<Item = &'a [u8]> + Clone,
    C: Coefficients,
{
    if outs.len() <= FEW {
        combine_batches::<FEW, SMALL_BATCH, _, _>(outs, symbols, row);
    } else {
        combine_batches::<MANY, BATCH, _, _>(outs, symbols, row);
    }
}

/// [`combine_piece`] by `OUTS` outputs and `TERMS` symbols at a time.
fn combine_batches<'a, 'b, const OUTS: usize, const TERMS: usize, S, C>(
    mut outs: impl Iterator<Item = &'b mut [u8]>,
    symbols: S,
    row: impl Fn(usize) -> C,
) where
    S: Iterator<Item = &'a [u8]> + Clone,
    C: Coefficients,
{
    let mut batch = [([0; FEW], &[][..]); TERMS];
    for first in (0..).step_by(OUTS) {
        let mut many: [&mut [u8]; OUTS] = core::array::from_fn(|_| Default::default());
        let count = many.iter_mut().zip(&mut outs).map(|(place, out)| *place = out).count();
        if count == 0 {
            return;
        }
        let len = many[0].len();
        let mut rows = [const { None }; OUTS];
        rows[..count].iter_mut().enumerate().for_each(|(j, place)| *place = Some(row(first + j)));
        let mut left = symbols.clone();
        for is_first in (0..).map(|turn| turn == 0) {
            let taken = batch.iter_mut().zip(&mut left).map(|(term, symbol)| term.1 = symbol).count();
            if taken == 0 && !is_first {
                break;
            }
            let terms = &mut batch[..taken];
            let is_even = terms.iter().all(|(_, symbol)| symbol.len() == len);
            for (few, rows) in many[..count].chunks_mut(FEW).zip(rows.chunks_mut(FEW)) {
                load::<TERMS>(terms, rows);
                match (is_even, is_first) {
                    (true, true) => Kernel::active().mul_few(few, terms),
                    (true, false) => Kernel::active().mul_add_few(few, terms),
                    (false, _) => sum_ragged(few, terms, is_first),
                }
            }
            if taken < TERMS {
                break;
            }
        }
    }
}

/// Gives the terms the next coefficients of each row. Four bytes as one number, which the compiler can do for several
/// terms at once.
#[inline]
fn load<const TERMS: usize>(terms: &mut [FourTerm], rows: &mut [Option<impl Coefficients>]) {
    let mut columns = [0; TERMS];
    for (row, shift) in rows.iter_mut().flatten().zip([0, 8, 16, 24]) {
        let mut cells = [0; TERMS];
        row.fill(&mut cells[..terms.len()]);
        columns.iter_mut().zip(cells).for_each(|(column, cell)| *column |= u32::from(cell) << shift);
    }
    terms.iter_mut().zip(columns).for_each(|(term, column)| term.0 = column.to_le_bytes());
}

/// The sum of terms that differ in length: the bytes that all have, then those that all but the shortest have, and so
/// on. The padding costs nothing, the number of products is that of the bytes there are.
#[inline(never)]
fn sum_ragged(few: &mut [&mut [u8]], terms: &[FourTerm], is_first: bool) {
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

/// `out ^=` the sum of the terms, all as long as `out`.
pub(crate) fn add<'a>(out: &mut [u8], mut terms: impl Iterator<Item = Term<'a>>) {
    let mut batch = [(0, &[][..]); BATCH];
    loop {
        let count = batch.iter_mut().zip(&mut terms).map(|(place, term)| *place = term).count();
        Kernel::active().mul_add_many(out, &batch[..count]);
        if count < BATCH {
            return;
        }
    }
}

/// Length of the pieces that symbols of `len` bytes are cut into, so that a batch of them is no more than a tile: all
/// but the last the same, whole cache lines. No symbol that fits a packet is ever cut; each piece asks for the
/// coefficients anew.
fn piece_len(len: usize) -> usize {
    len.div_ceil(len.div_ceil(TILE / BATCH).max(1)).next_multiple_of(LINE)
}
