//! The rank of an open generation: how many more symbols its receiver needs, computed from symbol names
//! alone.
//!
//! A receiver adds each source and repair symbol of a generation, also while the generation still grows, and
//! reports the deficit to the sender. Once the generation has ended and the deficit is 0, the received
//! symbols suffice for a [`DecodePlan`](crate::DecodePlan). Then the sender can stop.
//!
//! A source symbol is *lacking* until its own packet arrives. The rows are the innovative repair symbols, in
//! reduced row echelon form over the lacking symbols. Each row has a pivot, a lacking symbol that no other
//! row mentions. The other lacking symbols that rows mention are the *free* columns. A row stores only its
//! coefficients of the free columns. For [`ShortDecoder`](crate::ShortDecoder) each row also stores its
//! payload, before the coefficients. Invariants: the number of rows plus free columns is at most the number
//! of lacking symbols. The cells of a row beyond the free columns are 0.
//!
//! `Code::RsFft` has no rows. Any `count` of its symbols decode a generation, so its rank is the number of
//! different symbols that were received, at most `count`.

use alloc::vec::Vec;

use super::row::{RowField, eliminate, get, set, take};
use super::{Generation, RankError};
use crate::RepairId;
use crate::kernel::LINE;
use crate::mix::{Field, Gf256, Gf65536};

/// Counts the independent symbols received of a generation whose end may still be unknown.
///
/// ```
/// use tidewire_codec::{Code, Generation, Rank};
///
/// // A generation of at most 100 symbols that ends with 3.
/// let mut rank = Rank::new(Generation::new(Code::Rlc16, 100)?);
/// assert!(rank.add_source(1)?);
/// assert!(rank.add_repair(2, 0)?); // over the first two symbols: determines symbol 0
/// assert!(!rank.add_source(0)?);
/// rank.end(3)?;
/// assert_eq!((rank.deficit(), rank.is_recovered()), (1, false));
/// assert!(rank.add_repair(3, 1)?);
/// assert!(rank.is_recovered());
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
///
/// A repair symbol costs the computation of its coefficients and two passes over the rows. With r rows and f
/// free columns these are 2 r f products of coefficients, where `r + f` is at most the number of lacking
/// symbols. A source symbol that arrives after a repair symbol that mixes it costs the same. Memory is at
/// most `(lacking + 64)^2` bytes (half of that over GF(2^8)) plus 32 bytes for each symbol of the generation.
/// Here `lacking` is the largest number of symbols that were lacking at once. That is 1.2 MB for a generation
/// of 1,024 symbols. A caller that takes the length of a generation from a peer must limit it.
#[derive(Clone, Debug)]
pub struct Rank {
    /// The generation at its maximum length.
    longest: Generation,
    /// Number of symbols known to exist; all of them once the generation has ended.
    count: u16,
    has_ended: bool,
    /// Number of source symbols that arrived.
    arrived: u16,
    /// What is known of each of the `count` symbols.
    states: Vec<State>,
    /// The symbol of each free column.
    free: Vec<u16>,
    /// The pivot of each row.
    pivots: Vec<u16>,
    /// The rows, one after the other. Each is rounded up to whole cache lines.
    cells: Vec<u8>,
    /// Coefficients of a row in `cells`, the padding included.
    stride: usize,
    /// The row being taken, and a buffer for a multiple of it.
    reduced: Vec<u8>,
    scaled: Vec<u8>,
    /// The coefficients of a repair symbol over its whole span.
    span: Vec<u8>,
    /// Number of payload elements before the free columns of each row. 0 if rows carry no payload.
    payload: usize,
    /// Sorted keys of the repair symbols that count, for the code without rows.
    keys: Vec<u16>,
}

/// What is known of a source symbol.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Arrived,
    /// No row mentions it.
    Unmentioned,
    /// It is the free column with this index.
    Free(u16),
    /// It is the pivot of the row with this index.
    Pivot(u16),
}

impl Rank {
    /// An empty rank for a generation that has at most as many symbols as `longest`.
    pub fn new(longest: Generation) -> Self {
        Self::with_payload(longest, 0)
    }

    /// Like [`new`](Self::new), with rows that carry `payload` elements of their symbol.
    pub(super) fn with_payload(longest: Generation, payload: usize) -> Self {
        Self {
            longest,
            count: 0,
            has_ended: false,
            arrived: 0,
            states: Vec::new(),
            free: Vec::new(),
            pivots: Vec::new(),
            cells: Vec::new(),
            stride: 0,
            reduced: Vec::new(),
            scaled: Vec::new(),
            span: Vec::new(),
            payload,
            keys: Vec::new(),
        }
    }

    /// Counts a source symbol, by its index from 0 within the generation. Returns whether it raised the rank.
    ///
    /// # Errors
    /// The index is not below [`most`](Self::most). Nothing is changed.
    pub fn add_source(&mut self, index: u16) -> Result<bool, RankError> {
        self.take_source(index, &[])
    }

    /// Like [`add_source`](Self::add_source), with the payload of the symbol.
    pub(super) fn take_source(&mut self, index: u16, symbol: &[u8]) -> Result<bool, RankError> {
        let limit = self.most();
        if index >= limit {
            return Err(RankError::SourceOutside { index, limit });
        }
        self.extend(index + 1);
        if self.deficit() == 0 && self.states[usize::from(index)] == State::Unmentioned && self.keys.pop().is_some() {
            // The symbol takes the place of a repair symbol, of which there were enough.
            self.states[usize::from(index)] = State::Arrived;
            self.arrived += 1;
            return Ok(false);
        }
        let state = core::mem::replace(&mut self.states[usize::from(index)], State::Arrived);
        self.arrived += u16::from(state != State::Arrived);
        let is_over_gf256 = self.longest.code().is_over_gf256();
        Ok(match state {
            State::Arrived => false,
            State::Unmentioned => true,
            State::Free(column) if is_over_gf256 => self.take_column::<Gf256>(column, symbol),
            State::Free(column) => self.take_column::<Gf65536>(column, symbol),
            State::Pivot(row) if is_over_gf256 => self.replace_pivot::<Gf256>(row, symbol),
            State::Pivot(row) => self.replace_pivot::<Gf65536>(row, symbol),
        })
    }

    /// Counts the repair symbol with this key over the first `count` symbols of the generation. Returns
    /// whether it raised the rank.
    ///
    /// # Errors
    /// `count` is 0 or more than [`most`](Self::most), or the code has no such repair symbol. `RsFft` has
    /// only repair symbols over all symbols of a generation. Nothing is changed.
    pub fn add_repair(&mut self, count: u16, key: u16) -> Result<bool, RankError> {
        self.take_repair(count, key, &[], &[])
    }

    /// Like [`add_repair`](Self::add_repair), with the payload of the repair symbol. `sources` holds the
    /// payloads of all source symbols, one after the other. Only those of arrived symbols are read.
    pub(super) fn take_repair(
        &mut self,
        count: u16,
        key: u16,
        symbol: &[u8],
        sources: &[u8],
    ) -> Result<bool, RankError> {
        let id = RepairId { count, ..self.longest.repair_id(key) };
        let limit = self.most();
        if count > limit {
            return Err(RankError::RepairOutside { count, limit });
        }
        let is_rs_fft = self.longest.code().is_rs_fft();
        self.longest.code().check(id)?;
        if is_rs_fft && count != limit {
            return Err(RankError::RepairOfPart { count, expected: limit });
        }
        self.extend(count);
        if self.deficit() == 0 {
            return Ok(false);
        }
        if is_rs_fft {
            let place = self.keys.binary_search(&key);
            return Ok(place.map_err(|place| self.keys.insert(place, key)).is_err());
        }
        Ok(if self.longest.code().is_over_gf256() {
            self.add_row::<Gf256>(id, symbol, sources)
        } else {
            self.add_row::<Gf65536>(id, symbol, sources)
        })
    }

    /// Ends the generation: it has exactly `count` symbols.
    ///
    /// # Errors
    /// `count` is 0, smaller than a received symbol proves, or larger than [`most`](Self::most); or the
    /// generation already ended with another number. Nothing is changed.
    pub fn end(&mut self, count: u16) -> Result<(), RankError> {
        let (least, most) = (self.count.max(1), self.most());
        if !(least..=most).contains(&count) {
            return Err(RankError::EndContradicts { count, least, most });
        }
        self.extend(count);
        self.has_ended = true;
        Ok(())
    }

    /// The generation with as many symbols as it may have.
    pub fn longest(&self) -> Generation {
        self.longest
    }

    /// The number of symbols known to exist, from the received symbols; all of them once the generation has
    /// ended.
    pub fn count(&self) -> u16 {
        self.count
    }

    /// The most symbols that the generation may have.
    pub fn most(&self) -> u16 {
        if self.has_ended { self.count } else { self.longest.count() }
    }

    /// Whether the number of its symbols is known.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The number of independent symbols that the receiver still needs for the first [`count`](Self::count)
    /// symbols.
    pub fn deficit(&self) -> u16 {
        self.count - self.arrived - self.pivots.len() as u16 - self.keys.len() as u16
    }

    /// Whether the generation has ended and the received symbols determine all of it.
    pub fn is_recovered(&self) -> bool {
        self.has_ended && self.deficit() == 0
    }

    /// Those of the first [`count`](Self::count) source symbols that did not arrive themselves. A plan takes
    /// them as lost.
    pub fn lacking(&self) -> impl Iterator<Item = u16> {
        (0..).zip(&self.states).filter(|(_, state)| **state != State::Arrived).map(|(index, _)| index)
    }

    /// The decoded symbols with their bytes. Call it only once the generation is recovered.
    pub(super) fn decoded(&self) -> impl Iterator<Item = (u16, Vec<u8>)> {
        let bytes = if self.longest.code().is_over_gf256() { Gf256::BYTES } else { Gf65536::BYTES };
        let rows = self.cells.chunks_exact((self.stride * bytes).max(1)).zip(&self.pivots);
        rows.map(move |(row, &pivot)| {
            let mut symbol = Vec::with_capacity(bytes * self.payload);
            (0..bytes).for_each(|byte| symbol.extend_from_slice(&row[byte * self.stride..][..self.payload]));
            (pivot, symbol)
        })
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        let Self { states, free, pivots, cells, reduced, scaled, span, keys, .. } = self;
        let bytes = [cells, reduced, scaled, span].map(Vec::capacity).iter().sum::<usize>();
        let names = free.capacity() + pivots.capacity() + keys.capacity();
        bytes + states.capacity() * size_of::<State>() + names * size_of::<u16>()
    }

    /// Makes room for the states of the first `count` symbols.
    fn extend(&mut self, count: u16) {
        self.count = self.count.max(count);
        self.states.resize(self.count.into(), State::Unmentioned);
    }

    /// Takes the row of a repair symbol. Returns whether it raised the rank.
    fn add_row<F: RowField>(&mut self, id: RepairId, symbol: &[u8], sources: &[u8]) -> bool {
        let count = usize::from(id.count);
        self.span.resize(count * F::BYTES, 0);
        F::write(&mut self.span, self.longest.code(), id);
        self.mention(count);
        self.fit_stride::<F>();
        if self.free.is_empty() {
            return false;
        }
        self.reduced.clear();
        self.reduced.resize(self.stride * F::BYTES, 0);
        for byte in 0..F::BYTES {
            let cells = &mut self.reduced[byte * self.stride + self.payload..][..self.free.len()];
            let span = &self.span[byte * count..][..count];
            for (cell, &symbol) in cells.iter_mut().zip(&self.free) {
                *cell = span.get(usize::from(symbol)).copied().unwrap_or(0);
            }
        }
        if self.payload > 0 {
            self.subtract_sources::<F>(symbol, sources);
        }
        self.subtract_rows::<F>();
        self.insert::<F>()
    }

    /// Makes free columns of those of the first `count` symbols that are lacking and that no row mentions.
    fn mention(&mut self, count: usize) {
        let known = usize::from(self.arrived) + self.free.len() + self.pivots.len();
        if known == usize::from(self.count) {
            return;
        }
        for (index, state) in self.states[..count].iter_mut().enumerate() {
            if *state == State::Unmentioned {
                *state = State::Free(self.free.len() as u16);
                self.free.push(index as u16);
            }
        }
    }

    /// Adds the repair symbol minus the arrived source symbols that it mixes to the payload of `reduced`.
    fn subtract_sources<F: RowField>(&mut self, symbol: &[u8], sources: &[u8]) {
        let (len, payload) = (symbol.len(), self.payload);
        F::mul_add_front(&mut self.reduced, payload, 1, symbol);
        if self.arrived == 0 {
            return;
        }
        let count = self.span.len() / F::BYTES;
        let arrived = self.states[..count].iter().enumerate().filter(|(_, state)| **state == State::Arrived);
        let terms = arrived.map(|(index, _)| (get::<F>(&self.span, index), &sources[index * len..][..len]));
        F::mul_add_many(&mut self.reduced, payload, terms);
    }

    /// Eliminates the pivots of all rows from `reduced`.
    fn subtract_rows<F: RowField>(&mut self) {
        let (len, count) = (self.stride * F::BYTES, self.span.len() / F::BYTES);
        let rows = self.pivots.iter().zip(self.cells.chunks_exact(len));
        let rows = rows.filter(|&(&pivot, _)| usize::from(pivot) < count);
        let terms = rows.map(|(&pivot, row)| (get::<F>(&self.span, pivot.into()), row));
        F::mul_add_many(&mut self.reduced, self.stride, terms);
    }

    /// Handles the arrival of a row's pivot: another symbol of the row becomes its pivot. Returns whether
    /// there is one.
    fn replace_pivot<F: RowField>(&mut self, row: u16, symbol: &[u8]) -> bool {
        let (len, at) = (self.stride * F::BYTES, usize::from(row));
        let last = self.pivots.len() - 1;
        self.reduced.clear();
        self.reduced.extend_from_slice(&self.cells[at * len..][..len]);
        self.cells.copy_within(last * len.., at * len);
        self.cells.truncate(last * len);
        self.pivots.swap_remove(at);
        if let Some(&moved) = self.pivots.get(at) {
            self.states[usize::from(moved)] = State::Pivot(row);
        }
        if self.payload > 0 {
            F::mul_add_front(&mut self.reduced, self.payload, 1, symbol);
        }
        self.insert::<F>()
    }

    /// Appends `reduced` as a row unless its coefficients are all 0. Returns whether it did.
    fn insert<F: RowField>(&mut self) -> bool {
        let payload = self.payload;
        let is_pivot = |&column: &usize| get::<F>(&self.reduced, payload + column) != 0;
        let Some(column) = (0..self.free.len()).rev().find(is_pivot) else { return false };
        let scale = F::inv(take::<F>(&mut self.reduced, payload + column));
        self.scaled.resize(self.reduced.len(), 0);
        F::multiply(&mut self.scaled, scale, &self.reduced);
        eliminate::<F>(&mut self.cells, payload + column, &self.scaled);
        let pivot = self.free[column];
        self.states[usize::from(pivot)] = State::Pivot(self.pivots.len() as u16);
        self.pivots.push(pivot);
        self.cells.extend_from_slice(&self.scaled);
        self.remove_column::<F>(column as u16)
    }

    /// Handles the arrival of a free column's symbol. Always returns `true`, because that raises the rank.
    fn take_column<F: RowField>(&mut self, column: u16, symbol: &[u8]) -> bool {
        for row in self.cells.chunks_exact_mut(self.stride * F::BYTES) {
            let factor = take::<F>(row, self.payload + usize::from(column));
            if self.payload > 0 {
                F::mul_add_front(row, self.payload, factor, symbol);
            }
        }
        self.remove_column::<F>(column)
    }

    /// Removes a free column that is 0 in all rows. Always returns `true`: its symbol arrived or became a
    /// pivot.
    fn remove_column<F: RowField>(&mut self, column: u16) -> bool {
        let (at, last) = (usize::from(column), self.free.len() - 1);
        if at != last {
            for row in self.cells.chunks_exact_mut(self.stride * F::BYTES) {
                let moved = take::<F>(row, self.payload + last);
                set::<F>(row, self.payload + at, moved);
            }
        }
        self.free.swap_remove(at);
        if let Some(&moved) = self.free.get(at) {
            self.states[usize::from(moved)] = State::Free(column);
        }
        self.fit_stride::<F>();
        true
    }

    /// Adapts the row length to the number of free columns.
    fn fit_stride<F: RowField>(&mut self) {
        let (old, new) = (self.stride, (self.payload + self.free.len()).next_multiple_of(LINE));
        let parts = self.pivots.len() * F::BYTES;
        if new < old {
            (0..parts).for_each(|part| self.cells.copy_within(part * old..part * old + new, part * new));
            self.cells.truncate(parts * new);
        } else if new > old {
            self.cells.resize(parts * new, 0);
            for part in (0..parts).rev() {
                self.cells.copy_within(part * old..(part + 1) * old, part * new);
                self.cells[part * new + old..(part + 1) * new].fill(0);
            }
        }
        self.stride = new;
    }
}
