//! Linear combinations of symbols: the loop under every repair symbol and every decoded generation.
//!
//! Encoder, generation and decode plan pass symbols, and one row of coefficients for each output. This file
//! divides the work so that the kernel is fastest: symbols in batches that stay in the cache for all outputs,
//! four outputs per pass where there are four, long symbols in pieces. It allocates nothing, and does not
//! depend on how symbols or rows are stored. `gf256.rs` and `gf65536.rs` contain what differs between the
//! fields.

mod gf256;
mod gf65536;

use core::ops::Range;

use crate::kernel::{Halves, HalvesFactors, HalvesMut, Kernel, LINE, Term};
pub(crate) use gf256::{Gf256, combine_repairs};
pub(crate) use gf65536::Gf65536;

/// Number of sources in one call of the kernel. Outputs are loaded and stored once per batch, 1/32 of the
/// traffic. Chosen: 32 packets of 1,408 bytes fill an L1 cache, and 16 to 64 differed by under 5 % (AVX2, Zen
/// 3).
const BATCH: usize = 32;

/// Number of sources in one call if the span has no more and one pass makes all outputs, as for short blocks.
/// Clearing places for more sources and outputs took 5 % of the time there (k = 16).
const SMALL_BATCH: usize = 16;

/// Outputs of one pass over a batch: the most that the kernel keeps in registers.
const FEW: usize = 4;

/// Outputs that are made of one batch before the next batch is read. With 16, a source from beyond the L2
/// cache has the time of 16 products to arrive. 8 to 32 differed by under 5 %, and each output has its row on
/// the stack.
const MANY: usize = 16;

/// Most bytes in a batch, so that it stays in an L2 cache from one pass to the next, together with the
/// outputs. Chosen for the 512 KiB of Zen 2 and later; Intel has more.
const TILE: usize = 192 << 10;

/// A field, as sums of symbols need it: the layout of elements in a symbol, and the kernel that adds
/// products.
///
/// A symbol of `n * BYTES` bytes has n elements. Byte p of all elements comes before byte p + 1 of any.
pub(crate) trait Field {
    /// Bytes of an element.
    const BYTES: usize;
    /// A coefficient.
    type Cell: Copy + Default;
    /// Four coefficients, one for each output of a pass, in the form that the kernel takes.
    type Factors: Copy + Default;
    /// A piece of a symbol, or a row of coefficients with the layout of a symbol.
    type Source<'a>: Copy + Default + Coefficients<Self::Cell>;
    /// A piece of an output.
    type Out<'a>: Default;

    /// The elements `piece` of a symbol that counts as padded with zeros to `len` bytes. The result leaves
    /// the padding out.
    fn source<'a>(symbol: &'a [u8], len: usize, piece: &Range<usize>) -> Self::Source<'a>;

    /// The elements `piece` of an output.
    fn out<'a>(symbol: &'a mut [u8], piece: &Range<usize>) -> Self::Out<'a>;

    /// Writes the next coefficients of up to four rows into the terms.
    fn load<const TERMS: usize>(
        terms: &mut [(Self::Factors, Self::Source<'_>)],
        rows: &mut [Option<impl Coefficients<Self::Cell>>],
    );

    /// Whether the terms are all as long as the output.
    fn is_even(terms: &[(Self::Factors, Self::Source<'_>)], out: &Self::Out<'_>) -> bool;

    /// Adds the sum of the terms to up to four outputs. The first sum replaces their contents. `is_even` is
    /// the result of [`is_even`](Self::is_even) for the terms.
    fn sum(few: &mut [Self::Out<'_>], terms: &[(Self::Factors, Self::Source<'_>)], is_even: bool, is_first: bool);
}

/// Coefficients of one output, in the order of the symbols.
pub(crate) trait Coefficients<Cell> {
    /// The next `count` coefficients, at most `N`, and then any values. So an implementation may copy a whole
    /// array, which takes a few instructions instead of a call.
    fn next_cells<const N: usize>(&mut self, count: usize) -> [Cell; N];
}

/// `outs[j] = sum of row(j)[i] * symbols[i]` for every `j`, in the first `len` bytes of each. Symbols are at
/// most `len` bytes, shorter ones count as padded with zeros. `len` is a multiple of the bytes of an element.
pub(crate) fn combine<'a, F, R, S, C>(outs: &mut [R], len: usize, symbols: S, row: impl Fn(usize) -> C)
where
    F: Field,
    R: AsMut<[u8]>,
    S: Iterator<Item = &'a [u8]> + Clone,
    C: Coefficients<F::Cell>,
{
    let elements = len / F::BYTES;
    let each = piece_len::<F>(elements);
    for start in (0..elements).step_by(each) {
        let piece = start..elements.min(start + each);
        let outs = outs.iter_mut().map(|out| F::out(&mut out.as_mut()[..len], &piece));
        let symbols = symbols.clone().map(|symbol| F::source(symbol, len, &piece));
        combine_piece::<F, _, _>(outs, symbols, &row);
    }
}

/// [`combine`] for pieces of the same length, at most the length of one piece.
pub(crate) fn combine_piece<'a, 'b, F, S, C>(
    outs: impl ExactSizeIterator<Item = F::Out<'b>>,
    symbols: S,
    row: impl Fn(usize) -> C,
) where
    F: Field,
    S: Iterator<Item = F::Source<'a>> + Clone,
    C: Coefficients<F::Cell>,
{
    if outs.len() <= FEW && symbols.size_hint().1.is_some_and(|most| most <= SMALL_BATCH) {
        combine_batches::<F, FEW, SMALL_BATCH, _, _>(outs, symbols, row);
    } else if outs.len() <= FEW {
        combine_batches::<F, FEW, BATCH, _, _>(outs, symbols, row);
    } else {
        combine_batches::<F, MANY, BATCH, _, _>(outs, symbols, row);
    }
}

/// [`combine_piece`] with `OUTS` outputs and `TERMS` symbols at a time.
fn combine_batches<'a, 'b, F, const OUTS: usize, const TERMS: usize, S, C>(
    mut outs: impl Iterator<Item = F::Out<'b>>,
    symbols: S,
    row: impl Fn(usize) -> C,
) where
    F: Field,
    S: Iterator<Item = F::Source<'a>> + Clone,
    C: Coefficients<F::Cell>,
{
    let mut batch = [(F::Factors::default(), F::Source::default()); TERMS];
    for first in (0..).step_by(OUTS) {
        let mut many: [F::Out<'b>; OUTS] = core::array::from_fn(|_| Default::default());
        let count = many.iter_mut().zip(&mut outs).map(|(place, out)| *place = out).count();
        if count == 0 {
            return;
        }
        let mut rows: [Option<C>; OUTS] = core::array::from_fn(|j| (j < count).then(|| row(first + j)));
        let mut left = symbols.clone();
        for is_first in (0..).map(|turn| turn == 0) {
            let taken = batch.iter_mut().zip(&mut left).map(|(term, symbol)| term.1 = symbol).count();
            if taken == 0 && !is_first {
                break;
            }
            let terms = &mut batch[..taken];
            let is_even = F::is_even(terms, &many[0]);
            for (few, rows) in many[..count].chunks_mut(FEW).zip(rows.chunks_mut(FEW)) {
                F::load::<TERMS>(terms, rows);
                F::sum(few, terms, is_even, is_first);
            }
            if taken < TERMS {
                break;
            }
        }
    }
}

/// `out ^=` the sum of the terms over GF(2^8), all as long as `out`.
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

/// [`add`] over GF(2^16).
pub(crate) fn add_halves<'a>(out: HalvesMut<'_>, mut terms: impl Iterator<Item = (u16, Halves<'a>)>) {
    let mut out = [out];
    let mut batch = [(HalvesFactors::default(), Halves::default()); BATCH];
    loop {
        let places = batch.iter_mut().zip(&mut terms);
        let count = places.map(|(place, (factor, half))| *place = ([factor, 0, 0, 0].into(), half)).count();
        Kernel::active().mul_add_halves(&mut out, &batch[..count]);
        if count < BATCH {
            return;
        }
    }
}

/// The part of a symbol that lies in these bytes; usually all of them.
#[inline]
fn part(symbol: &[u8], bytes: Range<usize>) -> &[u8] {
    let start = bytes.start;
    symbol.get(bytes).unwrap_or_else(|| &symbol[start.min(symbol.len())..])
}

/// Elements of the pieces that symbols are cut into, so that a batch of them is at most a tile. All pieces
/// but the last have the same length, in whole cache lines. A symbol that fits a packet is never cut. Each
/// piece computes the coefficients again.
fn piece_len<F: Field>(elements: usize) -> usize {
    elements.div_ceil(elements.div_ceil(TILE / BATCH / F::BYTES).max(1)).next_multiple_of(LINE)
}
