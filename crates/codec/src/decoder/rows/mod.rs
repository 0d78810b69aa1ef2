//! The decoding matrix: which missing symbols each unsolved row mixes, in reduced row echelon form.
//!
//! This module holds only coefficients. The bytes of a row lie in the ring, in the slot of the symbol that
//! the row will become; [`Decoder`](super::Decoder) repeats on them each operation that this module does.
//!
//! Every row has a *pivot*: the highest id it mentions, with coefficient 1. No other row mentions that id.
//! The other ids are *free*. Their coefficients are stored, one byte each, in columns that all rows share.
//! The decoder relies on three properties of this form:
//! - a row whose free coefficients are all zero is a decoded symbol, and no other combination of rows is;
//! - reducing a new row takes one pass over the rows whose pivots it mentions, in any order;
//! - the rows with pivots up to an id contain all that is known of the ids up to it, so that a full matrix
//!   can give up the other rows.
//!
//! Invariants: between receptions, every column is mentioned by a row. Columns are numbered without gaps. All
//! cells after the last column or the last row are zero. Pivots and free ids are missing ids, each in one
//! place, so rows and columns together never exceed the ring's capacity. The first row allocates exactly the
//! memory for all rows; only growth of the ring allocates more.

mod give_up;

use alloc::vec::Vec;

use super::Terms;
use crate::field::gf256;
use crate::kernel::{Kernel, LINE};
use crate::mix;
use crate::{Code, DecodeError, RepairId};

/// The repair that became a row, if it has a name.
pub(super) type Name = Option<(Code, RepairId)>;

pub(super) struct Rows {
    max_rows: usize,
    max_free: usize,
    /// Slots of the ring, a power of two.
    capacity: usize,
    /// What the matrix knows about the id of each slot; empty before the first row.
    places: Vec<Place>,
    /// The pivot of each row.
    pivots: Vec<u64>,
    names: Vec<Name>,
    /// The id of each column.
    free: Vec<u64>,
    /// Coefficients of the free ids: row after row, `stride` columns each.
    cells: Vec<u8>,
    stride: usize,
    /// The row that is being reduced; not part of the matrix.
    candidate: Vec<u8>,
    /// Not zero where a column is mentioned; see [`mention`](Self::mention).
    mentions: Vec<u8>,
    /// A number for each column, valid within one call only. Kept to reuse its memory.
    columns: Vec<u32>,
}

/// The place of an id in the matrix.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Unmentioned,
    /// It is the pivot of this row.
    Pivot(u32),
    /// It is free, and its coefficients are in this column.
    Free(u32),
}

/// The highest id of the candidate. It becomes the pivot when the candidate becomes a row.
#[derive(Clone, Copy)]
pub(super) struct Lead {
    pub id: u64,
    column: usize,
    /// The candidate mentions nothing else: it is a decoded symbol.
    pub is_alone: bool,
}

impl Rows {
    /// An empty matrix for a ring of `capacity` slots. It holds at most `max_rows` rows, which mention at
    /// most `max_free` ids besides their pivots.
    pub fn new(max_rows: usize, max_free: usize, capacity: usize) -> Self {
        Self {
            max_rows,
            max_free,
            capacity,
            places: Vec::new(),
            pivots: Vec::new(),
            names: Vec::new(),
            free: Vec::new(),
            cells: Vec::new(),
            stride: 0,
            candidate: Vec::new(),
            mentions: Vec::new(),
            columns: Vec::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.pivots.len()
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        let a_row = size_of::<u64>() + size_of::<Name>();
        let a_column = size_of::<u64>() + size_of::<u32>() + 2;
        size_of_val(&self.places[..])
            + self.cells.capacity()
            + self.pivots.capacity() * a_row
            + self.free.capacity() * a_column
    }

    /// The pivot of each row.
    pub fn pivots(&self) -> impl Iterator<Item = u64> + '_ {
        self.pivots.iter().copied()
    }

    /// The most rows that the matrix can hold.
    pub fn limit(&self) -> usize {
        self.max_rows.min(self.capacity)
    }

    pub fn place(&self, id: u64) -> Place {
        if self.free.is_empty() { Place::Unmentioned } else { self.places[self.slot(id)] }
    }

    /// Pivots of the rows that mention an id.
    pub fn mentioning(&self, id: u64) -> impl Iterator<Item = u64> + '_ {
        let place = self.place(id);
        let rows = if place == Place::Unmentioned { 0 } else { self.len() };
        (0..rows).filter(move |&row| self.is_mentioned(row, place)).map(|row| self.pivots[row])
    }

    /// A missing id without a row, if the matrix still holds a row that came from this repair. The slot of
    /// that id holds no bytes in use.
    pub fn spare_slot_beside(&self, name: (Code, RepairId)) -> Option<u64> {
        if self.names.contains(&Some(name)) { self.free.first().copied() } else { None }
    }

    /// Builds the candidate from a repair and reduces it by the rows. `missing` are the missing ids in the
    /// repair's span, ascending; `row` has their factors and begins with that of `first`. Returns the
    /// candidate's lead, or `None` if the rows already knew all of it. Afterwards `row` says what to subtract
    /// from the repair's payload: known symbols keep their factors, pivots keep those of their rows, and free
    /// ids have zero. `used` lends its memory.
    ///
    /// When the matrix is full, a repair of earlier symbols replaces rows of later ones. Otherwise a window
    /// with losses everywhere could fill the matrix with rows that solve nothing yet, and its lowest gap
    /// would never close. The candidate needs none of the dropped rows: neither it nor what is subtracted
    /// from it mentions an id above its highest.
    ///
    /// # Errors
    /// There is no room for the row or its columns; nothing is changed.
    pub fn reduce(
        &mut self,
        missing: impl Iterator<Item = u64> + Clone,
        first: u64,
        row: &mut [u8],
        used: &mut Terms,
    ) -> Result<Option<Lead>, DecodeError> {
        self.allocate();
        self.candidate.fill(0);
        used.clear();
        let (mut highest, mut added) = (0, 0);
        let Self { places, capacity, candidate, .. } = self;
        // Not a `for` loop: the iterator would keep its state in memory.
        missing.clone().for_each(|id| {
            let factor = &mut row[(id - first) as usize];
            if *factor == 0 {
                return;
            }
            highest = id;
            match places[id as usize & (*capacity - 1)] {
                Place::Unmentioned => added += 1,
                Place::Free(column) => candidate[column as usize] = core::mem::take(factor),
                Place::Pivot(_) => used.push((id, *factor)),
            }
        });
        self.make_columns(added, highest)?;
        if added > 0 {
            self.add_columns(missing, first, row);
        }
        let width = self.width();
        let Self { places, capacity, cells, stride, candidate, .. } = self;
        let rows = used.iter().filter_map(|&(id, factor)| match places[id as usize & (*capacity - 1)] {
            Place::Pivot(row) => Some((factor, &cells[row as usize * *stride..][..width])),
            _ => None,
        });
        mix::add(&mut candidate[..width], rows);

        let lead = self.lead();
        if self.len() < self.limit() || lead.is_none_or(|lead| lead.is_alone) {
            return Ok(lead);
        }
        let Some(row) = self.highest_row(highest) else {
            self.forget_last_columns(added);
            return Err(DecodeError::TooManyRows { limit: self.max_rows });
        };
        self.remove(row);
        self.forget_unmentioned();
        Ok(self.lead())
    }

    /// Makes the candidate the symbol of a free column that has become known.
    pub fn load_known(&mut self, id: u64, column: u32) -> Lead {
        let column = column as usize;
        self.candidate.fill(0);
        self.candidate[column] = 1;
        Lead { id, column, is_alone: true }
    }

    /// Takes a row whose pivot became known out of the matrix. The rest of the row becomes the candidate.
    pub fn load_row(&mut self, row: u32) -> (Option<Lead>, Name) {
        let (row, width) = (row as usize, self.free.len());
        self.candidate.fill(0);
        self.candidate[..width].copy_from_slice(&self.cells[row * self.stride..][..width]);
        let name = self.names[row];
        self.remove(row);
        (self.lead(), name)
    }

    /// Scales the candidate so that its lead has coefficient 1, and returns the factor.
    pub fn normalise(&mut self, lead: Lead) -> u8 {
        let factor = gf256::inv(self.candidate[lead.column]);
        let width = self.width();
        Kernel::active().scale(&mut self.candidate[..width], factor);
        factor
    }

    /// Makes the normalised candidate a row with its lead as pivot. A candidate that mentions only its lead
    /// is a decoded symbol, and its column is forgotten instead. The candidate is subtracted from every row
    /// that mentions the lead: `targets` receives their pivots and factors. Rows that this solves are
    /// removed, and their pivots added to `solved`.
    pub fn settle(&mut self, lead: Lead, name: Name, targets: &mut Terms, solved: &mut Vec<u64>) {
        targets.clear();
        let (width, last, kernel) = (self.width(), self.free.len() - 1, Kernel::active());
        // The last column takes the place of the lead's in the same pass: each cell of a column lies in
        // another cache line.
        for row in (0..self.len()).rev() {
            let cells = &mut self.cells[row * self.stride..][..width];
            let factor = cells[lead.column];
            match factor {
                0 => {}
                _ if lead.is_alone => cells[lead.column] = 0,
                _ => kernel.mul_add(cells, factor, &self.candidate[..width]),
            }
            // Before the exchange: a register that is read over a byte just written waits for it.
            let is_solved = factor != 0 && is_zero(cells);
            cells.swap(lead.column, last);
            if factor != 0 {
                targets.push((self.pivots[row], factor));
            }
            if is_solved {
                solved.push(self.pivots[row]);
                // The row that takes its place was already visited.
                self.remove(row);
            }
        }
        self.candidate[lead.column] = 0;
        self.candidate.swap(lead.column, last);
        self.forget_column(lead.column);
        if !lead.is_alone {
            let row = self.len();
            self.cells[row * self.stride..][..self.stride].copy_from_slice(&self.candidate);
            self.set_place(lead.id, Place::Pivot(row as u32));
            self.pivots.push(lead.id);
            self.names.push(name);
        }
    }

    /// Adapts the matrix to a ring of `capacity` slots.
    pub fn grow(&mut self, capacity: usize) {
        self.capacity = capacity;
        if self.stride > 0 {
            self.resize();
        }
    }

    /// The highest id that the candidate mentions; `None` if it mentions none, because the rows already knew
    /// all of it.
    fn lead(&self) -> Option<Lead> {
        let mentioned = self.candidate.iter().zip(&self.free).enumerate().filter(|(_, (cell, _))| **cell != 0);
        let mut lead: Option<Lead> = None;
        for (column, (_, &id)) in mentioned {
            lead = Some(match lead {
                None => Lead { id, column, is_alone: true },
                Some(lead) if lead.id > id => Lead { is_alone: false, ..lead },
                Some(_) => Lead { id, column, is_alone: false },
            });
        }
        lead
    }

    /// Adds a column for each id that no row mentions yet, with its coefficient in the candidate.
    fn add_columns(&mut self, missing: impl Iterator<Item = u64>, first: u64, row: &mut [u8]) {
        for id in missing {
            let factor = &mut row[(id - first) as usize];
            if *factor != 0 && self.places[self.slot(id)] == Place::Unmentioned {
                let column = self.free.len();
                self.set_place(id, Place::Free(column as u32));
                self.candidate[column] = core::mem::take(factor);
                self.free.push(id);
            }
        }
    }

    /// Forgets the columns added last, which no row mentions.
    fn forget_last_columns(&mut self, count: usize) {
        for _ in 0..count {
            if let Some(id) = self.free.pop() {
                self.set_place(id, Place::Unmentioned);
            }
        }
    }

    /// Forgets the id of a column. The id of the last column, whose cells the caller has moved, takes its
    /// place.
    fn forget_column(&mut self, column: usize) {
        self.set_place(self.free[column], Place::Unmentioned);
        self.free.swap_remove(column);
        if let Some(&moved) = self.free.get(column) {
            self.set_place(moved, Place::Free(column as u32));
        }
    }

    /// Removes a row and the place of its pivot. The last row takes its place.
    fn remove(&mut self, row: usize) {
        let (last, stride) = (self.len() - 1, self.stride);
        self.set_place(self.pivots[row], Place::Unmentioned);
        self.pivots.swap_remove(row);
        self.names.swap_remove(row);
        if row < last {
            self.set_place(self.pivots[row], Place::Pivot(row as u32));
            self.cells.copy_within(last * stride..(last + 1) * stride, row * stride);
        }
        self.cells[last * stride..][..stride].fill(0);
    }

    fn is_mentioned(&self, row: usize, place: Place) -> bool {
        match place {
            Place::Unmentioned => false,
            Place::Pivot(pivot) => pivot as usize == row,
            Place::Free(column) => self.cells[row * self.stride + column as usize] != 0,
        }
    }

    /// The number of cells to work on in a row: the columns, then zeros up to a whole register, so that the
    /// kernels need no slow loop at the end.
    fn width(&self) -> usize {
        self.free.len().next_multiple_of(LINE).min(self.stride)
    }

    fn slot(&self, id: u64) -> usize {
        // Truncation is harmless: the number of slots is a power of two.
        id as usize & (self.capacity - 1)
    }

    fn set_place(&mut self, id: u64, place: Place) {
        let slot = self.slot(id);
        self.places[slot] = place;
    }

    fn allocate(&mut self) {
        if self.stride == 0 {
            self.resize();
        }
    }

    /// Allocates memory for the most rows and columns, and moves existing ones to their new places.
    fn resize(&mut self) {
        let (rows, columns, old) = (self.limit(), self.max_free.min(self.capacity).max(1), self.stride);
        self.stride = columns;
        fit(&mut self.cells, rows * columns, 0);
        if columns > old {
            for row in (0..self.len()).rev() {
                self.cells.copy_within(row * old..(row + 1) * old, row * columns);
                self.cells[row * columns + old..(row + 1) * columns].fill(0);
            }
        }
        fit(&mut self.candidate, columns, 0);
        fit(&mut self.mentions, columns, 0);
        fit(&mut self.columns, columns, 0);
        self.pivots.reserve_exact(rows - self.pivots.len());
        self.names.reserve_exact(rows - self.names.len());
        self.free.reserve_exact(columns - self.free.len());
        self.places.clear();
        fit(&mut self.places, self.capacity, Place::Unmentioned);
        for row in 0..self.len() {
            self.set_place(self.pivots[row], Place::Pivot(row as u32));
        }
        for column in 0..self.free.len() {
            self.set_place(self.free[column], Place::Free(column as u32));
        }
    }
}

/// Whether all cells are zero. It checks a line at a time, which the compiler does in registers: a check by
/// cell would be most of the work in a matrix whose rows have few coefficients left.
fn is_zero(cells: &[u8]) -> bool {
    // Most rows have a coefficient among the first.
    let begins_with_zeros = cells.first_chunk().is_none_or(|first| *first == [0; 8]);
    begins_with_zeros && cells.chunks(LINE).all(|line| line.iter().fold(0, |sum, cell| sum | cell) == 0)
}

/// Lengthens a list without spare capacity.
fn fit<T: Copy>(list: &mut Vec<T>, len: usize, value: T) {
    list.reserve_exact(len.saturating_sub(list.len()));
    list.resize(len, value);
}
