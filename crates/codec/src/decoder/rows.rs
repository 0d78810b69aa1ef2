//! The decoding matrix: which missing symbols each unsolved row mixes, in reduced row echelon form.
//!
//! Only coefficients live here; the bytes of a row lie in the ring, in the slot of the symbol the row will become, and
//! [`Decoder`](super::Decoder) repeats there what this module does to the coefficients.
//!
//! Every row has a *pivot*, the highest id it mentions, with coefficient 1, and no other row mentions that id. The
//! other ids are *free*; only their coefficients are stored, one byte each, in columns that rows share. From this form
//! follow the three things the decoder relies on:
//! - a row whose free coefficients are all zero is a decoded symbol, and no other combination of rows is;
//! - reducing a new row takes one pass over the rows whose pivots it mentions, in any order;
//! - the rows with pivots up to some id are all that is known of the ids up to it: a full matrix can give up the others.

use alloc::vec::Vec;

use crate::DecodeError;
use crate::field::gf256;
use crate::kernel::Kernel;

/// Columns are added this many at a time at first, then doubled: one cache line of coefficients a row.
const FIRST_WIDTH: usize = 64;

pub(super) struct Rows {
    /// Every id that a row mentions, ascending.
    mentioned: Vec<Mentioned>,
    /// The pivot of each row.
    pivots: Vec<u64>,
    /// Coefficients of the free ids: row after row, `width` columns each.
    cells: Vec<u8>,
    width: usize,
    /// The row being worked in, not part of the matrix.
    candidate: Vec<u8>,
    /// Ids that only the candidate mentions.
    added: Vec<u64>,
    /// Columns below `columns` that no id uses.
    unused: Vec<u32>,
    columns: u32,
    max_rows: usize,
    max_free: usize,
}

/// Rows that one repair may push out of a full matrix: bounds the work of a datagram; a repair that needs more room is refused.
const MOST_GIVEN_UP: usize = 8;

struct Mentioned {
    id: u64,
    place: Place,
}

/// Where a mentioned id is found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// It is the pivot of this row.
    Pivot(usize),
    /// It is free, and its coefficients are in this column.
    Free(u32),
}

/// The highest free id of the candidate: its pivot, once it is a row.
#[derive(Clone, Copy)]
pub(super) struct Lead {
    pub id: u64,
    column: u32,
    /// The candidate mentions nothing else: it is a decoded symbol.
    pub is_alone: bool,
}

impl Rows {
    /// An empty matrix of at most `max_rows` rows that mention at most `max_free` ids besides their pivots. Allocates
    /// when rows come, and keeps what it has for later ones.
    pub fn new(max_rows: usize, max_free: usize) -> Self {
        Self {
            mentioned: Vec::new(),
            pivots: Vec::new(),
            cells: Vec::new(),
            width: 0,
            candidate: Vec::new(),
            added: Vec::new(),
            unused: Vec::new(),
            columns: 0,
            max_rows,
            max_free,
        }
    }

    pub fn len(&self) -> usize {
        self.pivots.len()
    }

    pub fn place(&self, id: u64) -> Option<Place> {
        self.find(id).ok().map(|at| self.mentioned[at].place)
    }

    /// Reduces a repair by the rows; its lead, or `None` when the rows know it already.
    ///
    /// Where the matrix is full, rows of later symbols give way to a repair for earlier ones: else a window with losses all over it could
    /// fill the matrix with rows that help nobody yet, and its lowest gap would never close.
    ///
    /// # Errors
    /// No room for the row or its columns; nothing but rows that gave way is changed.
    pub fn reduce(
        &mut self,
        terms: impl Iterator<Item = (u64, u8)> + Clone,
        used: &mut Vec<(u64, u8)>,
    ) -> Result<Option<Lead>, DecodeError> {
        let highest = terms.clone().last().map_or(u64::MAX, |(id, _)| id);
        let mut given_up = 0;
        loop {
            let error = match self.load(terms.clone(), used) {
                Ok(()) => match self.lead() {
                    Some(lead) if !lead.is_alone && self.pivots.len() >= self.max_rows => {
                        self.forget_added();
                        DecodeError::TooManyRows { limit: self.max_rows }
                    }
                    lead => return Ok(lead),
                },
                Err(error) => error,
            };
            // Only a row that says something of symbols above the span: one within it would be swapped for its equal.
            if given_up == MOST_GIVEN_UP || !self.make_way(highest) {
                return Err(error);
            }
            given_up += 1;
        }
    }

    /// Makes the candidate of the missing ids and coefficients of a repair symbol and reduces it by the rows. `used`
    /// receives what was subtracted, as (pivot of the row, factor).
    ///
    /// # Errors
    /// Too many free ids; nothing is changed.
    fn load(&mut self, terms: impl Iterator<Item = (u64, u8)>, used: &mut Vec<(u64, u8)>) -> Result<(), DecodeError> {
        used.clear();
        self.added.clear();
        self.candidate.fill(0);
        for (id, factor) in terms {
            let place = match self.find(id) {
                Ok(at) => self.mentioned[at].place,
                Err(at) => self.mention(id, at)?,
            };
            match place {
                Place::Free(column) => self.candidate[column as usize] ^= factor,
                Place::Pivot(row) => {
                    let cells = &self.cells[row * self.width..][..self.width];
                    Kernel::active().mul_add(&mut self.candidate, factor, cells);
                    used.push((id, factor));
                }
            }
        }
        Ok(())
    }

    /// Makes the candidate the plain symbol of a free column, as it became known.
    pub fn load_known(&mut self, id: u64, column: u32) -> Lead {
        self.candidate.fill(0);
        self.candidate[column as usize] = 1;
        Lead { id, column, is_alone: true }
    }

    /// Takes a row out of the matrix, without its pivot, which became known: what is left is the candidate.
    pub fn load_row(&mut self, row: usize) {
        self.candidate.copy_from_slice(&self.cells[row * self.width..][..self.width]);
        self.remove(row);
    }

    /// The highest id that the candidate mentions; `None` when the rows already knew all it says.
    pub fn lead(&self) -> Option<Lead> {
        let mut mentioned = self.mentioned.iter().rev().filter_map(|&Mentioned { id, place }| match place {
            Place::Free(column) if self.candidate[column as usize] != 0 => Some((id, column)),
            _ => None,
        });
        let (id, column) = mentioned.next()?;
        Some(Lead { id, column, is_alone: mentioned.next().is_none() })
    }

    /// Scales the candidate so that its lead has coefficient 1, and returns the factor.
    pub fn normalise(&mut self, lead: Lead) -> u8 {
        let factor = gf256::inv(self.candidate[lead.column as usize]);
        Kernel::active().scale(&mut self.candidate, factor);
        factor
    }

    /// Subtracts the normalised candidate from every row that mentions its lead, telling `on_row` the row's pivot and
    /// the factor. Pivots of rows that are solved by it are added to `solved`.
    pub fn eliminate(&mut self, lead: Lead, solved: &mut Vec<u64>, mut on_row: impl FnMut(u64, u8)) {
        if self.width == 0 {
            return;
        }
        for (cells, &pivot) in self.cells.chunks_exact_mut(self.width).zip(&self.pivots) {
            let factor = cells[lead.column as usize];
            if factor != 0 {
                Kernel::active().mul_add(cells, factor, &self.candidate);
                on_row(pivot, factor);
                if cells.iter().all(|&cell| cell == 0) {
                    solved.push(pivot);
                }
            }
        }
    }

    /// Makes the candidate a row with its lead as pivot, or, when it mentions nothing else, forgets its lead.
    pub fn settle(&mut self, lead: Lead) {
        let Ok(at) = self.find(lead.id) else { return };
        self.unused.push(lead.column);
        if lead.is_alone {
            self.mentioned.remove(at);
        } else {
            self.mentioned[at].place = Place::Pivot(self.pivots.len());
            self.candidate[lead.column as usize] = 0;
            self.pivots.push(lead.id);
            self.cells.extend_from_slice(&self.candidate);
        }
    }

    /// Removes the row of a solved pivot.
    pub fn remove_solved(&mut self, pivot: u64) {
        if let Some(Place::Pivot(row)) = self.place(pivot) {
            self.remove(row);
        }
    }

    /// Gives up the lowest mentioned id if it is below `id`, with one row that mentions it; what the others say about the ids that
    /// are left is kept. `on_row` is told what was added to a row: (its pivot, pivot of the row that was dropped, factor). Returns
    /// whether there was such an id; call it until there is none.
    pub fn give_up_below(&mut self, id: u64, mut on_row: impl FnMut(u64, u64, u8)) -> bool {
        let Some(&Mentioned { id: lowest, place }) = self.mentioned.first().filter(|mentioned| mentioned.id < id)
        else {
            return false;
        };
        match place {
            Place::Pivot(row) => self.remove(row),
            Place::Free(column) => {
                // The row of the lowest pivot: the others keep a pivot above all they mention.
                let mentioning = (0..self.len()).filter(|&row| self.cells[row * self.width + column as usize] != 0);
                if let Some(row) = mentioning.min_by_key(|&row| self.pivots[row]) {
                    self.exchange(row, lowest, column, &mut on_row);
                }
            }
        }
        self.forget_unmentioned();
        true
    }

    /// Solves a row for the id of a free column, puts that into the other rows, and drops the row: its pivot is free from now on, in
    /// the column that the id leaves.
    fn exchange(&mut self, row: usize, id: u64, column: u32, on_row: &mut impl FnMut(u64, u64, u8)) {
        let (column_at, pivot) = (column as usize, self.pivots[row]);
        self.candidate.copy_from_slice(&self.cells[row * self.width..][..self.width]);
        let factor = gf256::inv(self.candidate[column_at]);
        Kernel::active().scale(&mut self.candidate, factor);
        self.candidate[column_at] = factor;
        for (other, cells) in self.cells.chunks_exact_mut(self.width).enumerate() {
            let mentioned = core::mem::take(&mut cells[column_at]);
            if other != row && mentioned != 0 {
                Kernel::active().mul_add(cells, mentioned, &self.candidate);
                on_row(self.pivots[other], pivot, cells[column_at]);
            }
        }
        self.remove(row);
        if let Ok(at) = self.find(id) {
            self.mentioned.remove(at);
        }
        if let Err(at) = self.find(pivot) {
            self.mentioned.insert(at, Mentioned { id: pivot, place: Place::Free(column) });
        }
    }

    /// Drops the row with the highest pivot, if that lies above `highest`: what is needed first has the better claim to a bounded
    /// matrix. Returns whether it did.
    fn make_way(&mut self, highest: u64) -> bool {
        let Some((row, &pivot)) = self.pivots.iter().enumerate().max_by_key(|&(_, &pivot)| pivot) else { return false };
        if pivot <= highest {
            return false;
        }
        self.remove(row);
        self.forget_unmentioned();
        true
    }

    /// Forgets free ids that no row mentions any more.
    fn forget_unmentioned(&mut self) {
        let Self { mentioned, unused, cells, width, .. } = self;
        mentioned.retain(|&Mentioned { place, .. }| match place {
            Place::Pivot(_) => true,
            Place::Free(column) => {
                let is_used = cells.iter().skip(column as usize).step_by(*width).any(|&cell| cell != 0);
                if !is_used {
                    unused.push(column);
                }
                is_used
            }
        });
    }

    fn find(&self, id: u64) -> Result<usize, usize> {
        self.mentioned.binary_search_by_key(&id, |mentioned| mentioned.id)
    }

    /// Gives a new id a free column; `at` is its place among the mentioned.
    fn mention(&mut self, id: u64, at: usize) -> Result<Place, DecodeError> {
        if self.mentioned.len() - self.pivots.len() >= self.max_free {
            self.forget_added();
            return Err(DecodeError::TooManyColumns { limit: self.max_free });
        }
        let column = self.unused.pop().unwrap_or_else(|| {
            self.columns += 1;
            self.columns - 1
        });
        if column as usize >= self.width {
            self.widen();
        }
        let place = Place::Free(column);
        self.mentioned.insert(at, Mentioned { id, place });
        self.added.push(id);
        Ok(place)
    }

    /// Forgets the ids that only an abandoned candidate mentions.
    fn forget_added(&mut self) {
        while let Some(id) = self.added.pop() {
            if let Ok(at) = self.find(id)
                && let Place::Free(column) = self.mentioned[at].place
            {
                self.mentioned.remove(at);
                self.unused.push(column);
            }
        }
    }

    fn widen(&mut self) {
        let width = (2 * self.width).max(FIRST_WIDTH);
        let mut cells = Vec::with_capacity(self.pivots.len() * width);
        for row in 0..self.pivots.len() {
            cells.extend_from_slice(&self.cells[row * self.width..][..self.width]);
            cells.resize((row + 1) * width, 0);
        }
        self.cells = cells;
        self.candidate.resize(width, 0);
        self.width = width;
    }

    /// Removes a row and the mention of its pivot; the last row takes its place.
    fn remove(&mut self, row: usize) {
        if let Ok(at) = self.find(self.pivots[row]) {
            self.mentioned.remove(at);
        }
        let last = self.pivots.len() - 1;
        self.cells.copy_within(last * self.width..(last + 1) * self.width, row * self.width);
        self.cells.truncate(last * self.width);
        self.pivots.swap_remove(row);
        if row < last
            && let Ok(at) = self.find(self.pivots[row])
        {
            self.mentioned[at].place = Place::Pivot(row);
        }
    }
}
