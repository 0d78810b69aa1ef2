//! `Code::RsFft`: Reed-Solomon over the field, the transforms and the layout of `reed-solomon-simd`.
//!
//! [`Generation::encode`](super::Generation::encode) and [`DecodePlan`](super::DecodePlan) call it with
//! symbols that they have checked. The symbols of a generation are values of a polynomial of a degree below
//! `chunk`, the next power of two of `count`: source symbol i at the point i, zeros from there to the point
//! `chunk`, and the repair symbol with key j at the point `chunk + j`. The repair symbols are those of the
//! crate's `LowRateEncoder`, which this module does not call, because it computes all keys from 0 on.
//!
//! Both directions have two ways with the same result. The transforms cost O(n log n) for n points. A sum
//! over all symbols for each wanted one costs `count` products, whatever the keys are. The cheaper way is
//! taken, so a peer that uses high keys causes at most one product for each pair of lost and received symbol.
//!
//! Invariant: every point is below 65,536, because [`Code::check`](crate::Code::check) has passed the keys.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use reed_solomon_simd::engine::tables::{Log, get_exp_log};
use reed_solomon_simd::engine::{DefaultEngine, Engine, GF_MODULUS, GF_ORDER, ShardsRefMut};

use crate::kernel::Kernel;

/// Bytes of a block: 32 low bytes of elements, then their 32 high bytes. The crate's constant.
const BLOCK: usize = 64;

type Block = [u8; BLOCK];

/// Writes the repair symbols of `len` bytes with the keys from `first_key` on.
pub(super) fn encode<S: AsRef<[u8]>, R: AsMut<[u8]>>(sources: &[S], first_key: u16, repairs: &mut [R], len: usize) {
    let (count, chunk) = (sources.len(), sources.len().next_power_of_two());
    let points = chunk + usize::from(first_key)..chunk + usize::from(first_key) + repairs.len();
    let chunks = points.start / chunk..(points.end - 1) / chunk + 1;
    let engine = DefaultEngine::new();
    let sources = sources.iter().map(S::as_ref);
    if PRODUCT * repairs.len() * count <= (1 + chunks.len()) * butterflies(chunk) {
        let sum = EncodingSum::new(chunk);
        let shards = Shards::filled(count, len, (0..).zip(sources));
        let mut of_chunk = sum.of_chunk(points.start);
        for (point, repair) in points.zip(repairs) {
            if point % chunk == 0 {
                of_chunk = sum.of_chunk(point);
            }
            shards.sum(&engine, |index| sum.log(of_chunk, point, index), repair.as_mut());
        }
        return;
    }
    let mut shards = Shards::filled(2 * chunk, len, (0..).zip(sources));
    engine.ifft(&mut shards.part(0..chunk), 0, chunk, count, 0);
    let mut repairs = repairs.iter_mut();
    for begin in chunks.map(|number| number * chunk) {
        let wanted = points.start.max(begin)..points.end.min(begin + chunk);
        shards.data.copy_within(..chunk * shards.blocks, chunk * shards.blocks);
        engine.fft(&mut shards.part(chunk..2 * chunk), 0, chunk, wanted.end - begin, begin);
        for (point, repair) in wanted.zip(&mut repairs) {
            shards.read(chunk + point - begin, repair.as_mut());
        }
    }
}

/// Number of butterflies of a transform over this many points, a power of two. It also stands for the cost of
/// the copies where there is no butterfly.
fn butterflies(points: usize) -> usize {
    (points / 2 * points.trailing_zeros() as usize).max(1)
}

/// The coefficients of repair symbols, by their logarithms. In repair symbol r, source symbol i has the
/// coefficient product(r - q) / ((r - i) product(i - q)), over all q != i below `chunk`.
struct EncodingSum {
    log: &'static Log,
    chunk: usize,
    /// Sum of the logarithms of all points below `chunk` but 0. The differences of one of these points to the
    /// others are these points, because they are a group under addition.
    of_points: u64,
}

impl EncodingSum {
    fn new(chunk: usize) -> Self {
        let log = &get_exp_log().log;
        Self { log, chunk, of_points: log[1..chunk].iter().map(|&log| u64::from(log)).sum() }
    }

    /// Sum of the logarithms of the differences of a repair symbol to all points below `chunk`. It is the
    /// same for all points of one chunk.
    fn of_chunk(&self, point: usize) -> u64 {
        let begin = point / self.chunk * self.chunk;
        self.log[begin..begin + self.chunk].iter().map(|&log| u64::from(log)).sum()
    }

    fn log(&self, of_chunk: u64, point: usize, index: usize) -> u16 {
        quotient(of_chunk, self.of_points + u64::from(self.log[point ^ index]))
    }
}

/// The logarithm of a quotient, from the logarithms of products. Each is at most 2^16 logarithms long.
fn quotient(dividend: u64, divisor: u64) -> u16 {
    let order = u64::from(GF_MODULUS);
    ((dividend + order - divisor % order) % order) as u16
}

/// How to compute the lost symbols of a generation: Lagrange's interpolation through the received points.
#[derive(Debug, Default)]
pub(super) struct Interpolation {
    chunk: usize,
    /// The point of each column: a source symbol, or the repair symbol in the place of a lost one.
    points: Vec<u16>,
    /// For each point of a column, then for each lost symbol: the logarithm of the product of its differences
    /// to all known points except itself. Symbols between `count` and `chunk` are known.
    locators: Vec<u16>,
}

impl Interpolation {
    /// Replaces it by that of another pattern of losses. There is a key for each lost symbol.
    pub fn renew(&mut self, count: u16, lost: &[u16], keys: impl Iterator<Item = u16>) {
        self.chunk = usize::from(count).next_power_of_two();
        self.points.clear();
        self.points.extend(0..count);
        for (&index, key) in lost.iter().zip(keys) {
            self.points[usize::from(index)] = self.chunk as u16 + key;
        }
        let Self { chunk, points, locators } = self;
        locators.clear();
        let wanted = points.iter().chain(lost);
        let known = || points.iter().copied().chain((usize::from(count)..*chunk).map(|point| point as u16));
        if (points.len() + lost.len()) * *chunk <= MOST_LOOKUPS {
            let log = &get_exp_log().log;
            locators.extend(wanted.map(|&point| {
                let differences = known().map(|other| point ^ other).filter(|&difference| difference != 0);
                quotient(differences.map(|difference| u64::from(log[usize::from(difference)])).sum(), 0)
            }));
        } else {
            // The product of all differences of a point is 1, so those to the known points are the inverse of
            // those to the others, which the crate computes.
            let mut others = Box::new([1; GF_ORDER]);
            known().for_each(|point| others[usize::from(point)] = 0);
            DefaultEngine::eval_poly(&mut others, GF_ORDER);
            locators.extend(wanted.map(|&point| GF_MODULUS - others[usize::from(point)]));
        }
    }

    /// Writes the lost symbols, of `len` bytes each. `symbols` are those of the columns.
    pub fn decode<'a, D: AsMut<[u8]>>(
        &self,
        lost: &[u16],
        symbols: impl Iterator<Item = &'a [u8]>,
        decoded: &mut [D],
        len: usize,
    ) {
        let engine = DefaultEngine::new();
        let (of_points, of_lost) = self.locators.split_at(self.points.len());
        let lost = lost.iter().map(|&index| usize::from(index)).zip(of_lost);
        let end = self.points.iter().max().map_or(0, |&last| usize::from(last) + 1);
        let size = end.next_power_of_two();
        if PRODUCT * decoded.len() * self.points.len() <= 2 * butterflies(size) {
            let log = &get_exp_log().log;
            let shards = Shards::filled(self.points.len(), len, (0..).zip(symbols));
            for ((index, &of_lost), decoded) in lost.zip(decoded) {
                let coefficient = |column: usize| {
                    let difference = usize::from(self.points[column]) ^ index;
                    quotient(of_lost.into(), u64::from(of_points[column]) + u64::from(log[difference]))
                };
                shards.sum(&engine, coefficient, decoded.as_mut());
            }
            return;
        }
        // Algorithm 2 of the paper, as in the crate's `LowRateDecoder`.
        let points = || self.points.iter().map(|&point| usize::from(point));
        let mut shards = Shards::filled(size, len, points().zip(symbols));
        for (point, locator) in points().zip(of_points) {
            engine.mul(shards.shard(point), GF_MODULUS - locator);
        }
        engine.ifft(&mut shards.part(0..size), 0, size, end, 0);
        shards.differentiate();
        engine.fft(&mut shards.part(0..size), 0, size, self.points.len(), 0);
        for ((index, &locator), decoded) in lost.zip(decoded) {
            engine.mul(shards.shard(index), locator);
            shards.read(index, decoded.as_mut());
        }
    }
}

/// Symbols in the layout of the crate: whole blocks. In the last one of a symbol whose length is not a
/// multiple of 64, the first half of the rest is low bytes and the second half is high bytes.
struct Shards {
    /// Blocks of one symbol.
    blocks: usize,
    data: Vec<Block>,
}

impl Shards {
    /// This many symbols of zeros, of `len` bytes, except those given with their places. These may be
    /// shorter.
    fn filled<'a>(count: usize, len: usize, symbols: impl Iterator<Item = (usize, &'a [u8])>) -> Self {
        let blocks = len.div_ceil(BLOCK);
        let mut shards = Self { blocks, data: vec![[0; BLOCK]; count * blocks] };
        let whole = len - len % BLOCK;
        for (place, symbol) in symbols {
            let shard = shards.shard(place).as_flattened_mut();
            let (front, rest) = symbol.split_at(symbol.len().min(whole));
            let (low, high) = rest.split_at(rest.len().min((len - whole) / 2));
            shard[..front.len()].copy_from_slice(front);
            shard[whole..][..low.len()].copy_from_slice(low);
            if !high.is_empty() {
                shard[whole + BLOCK / 2..][..high.len()].copy_from_slice(high);
            }
        }
        shards
    }

    fn shard(&mut self, place: usize) -> &mut [Block] {
        &mut self.data[place * self.blocks..][..self.blocks]
    }

    /// Some of the symbols as the crate takes them.
    fn part(&mut self, places: core::ops::Range<usize>) -> ShardsRefMut<'_> {
        let data = &mut self.data[places.start * self.blocks..places.end * self.blocks];
        ShardsRefMut::new(places.len(), self.blocks, data)
    }

    /// Copies a symbol out.
    fn read(&self, place: usize, symbol: &mut [u8]) {
        read(&self.data[place * self.blocks..][..self.blocks], symbol);
    }

    /// Writes the sum of all symbols, each times the element with this logarithm.
    fn sum(&self, engine: &DefaultEngine, log: impl Fn(usize) -> u16, out: &mut [u8]) {
        let mut product = vec![[0; BLOCK]; self.blocks];
        let mut sum = product.clone();
        for (column, shard) in self.data.chunks_exact(self.blocks).enumerate() {
            product.copy_from_slice(shard);
            engine.mul(&mut product, log(column));
            Kernel::active().xor(sum.as_flattened_mut(), product.as_flattened());
        }
        read(&sum, out);
    }

    /// The formal derivative of the polynomial whose coefficients these are, in the basis of the paper.
    fn differentiate(&mut self) {
        for place in 1..self.data.len() / self.blocks {
            let width = 1 << place.trailing_zeros();
            let (before, after) = self.data.split_at_mut(place * self.blocks);
            let to = &mut before[(place - width) * self.blocks..];
            Kernel::active().xor(to.as_flattened_mut(), after[..width * self.blocks].as_flattened());
        }
    }
}

/// Copies a symbol out of its blocks.
fn read(blocks: &[Block], symbol: &mut [u8]) {
    let whole = symbol.len() - symbol.len() % BLOCK;
    let (front, rest) = symbol.split_at_mut(whole);
    let (low, high) = rest.split_at_mut(rest.len() / 2);
    let blocks = blocks.as_flattened();
    front.copy_from_slice(&blocks[..whole]);
    if !low.is_empty() {
        low.copy_from_slice(&blocks[whole..][..low.len()]);
        high.copy_from_slice(&blocks[whole + BLOCK / 2..][..high.len()]);
    }
}

/// A product of a symbol, copied and added, takes the time of this many butterflies. Measured on one core
/// with AVX2 for 20 to 1,000 symbols of 1,000 bytes: 85 ns and 25 to 40 ns.
const PRODUCT: usize = 3;

/// Most logarithms that are added up one by one, at 0.5 ns each: the crate's transform over all 65,536 points
/// takes 300 us (measured on the same core).
const MOST_LOOKUPS: usize = 1 << 19;
