//! Drops rows of the matrix that would take more room or work than the limits allow.
//!
//! This is a part of [`Rows`]. [`reduce`](Rows::reduce) drops rows of later symbols to make room for a
//! repair, and [`Decoder::skip_before`](crate::Decoder::skip_before) takes ids that were given up out of the
//! rows. Both keep the invariants of the matrix. Only exchanges touch payloads; the caller repeats them
//! there.
//!
//! The lowest gap always closes. A repair whose span begins at or below the decoder's edge is never refused
//! for want of columns. It is not refused for want of rows either if the limit of rows is at least the length
//! of a span. It drops only rows with pivots above its own span. So each such repair adds to the rank over
//! the ids in its span, until all of them are known.

use super::{Place, Rows};
use crate::DecodeError;
use crate::decoder::Terms;
use crate::field::gf256;
use crate::kernel::Kernel;

impl Rows {
    /// Gives up the ids below `id`, and loses one row for each free id among them. The remaining rows keep
    /// what they say about the other ids, as long as that takes at most [`limit`](Self::limit) row
    /// operations. Beyond that bound, all rows that mention the id are dropped. `exchanged` receives the
    /// pivot of each dropped row, and the pivots and factors of the rows it was added to. Returns how many
    /// rows the bound on row operations cost.
    pub fn give_up_below(&mut self, id: u64, targets: &mut Terms, mut exchanged: impl FnMut(u64, &Terms)) -> usize {
        if self.free.is_empty() {
            return 0;
        }
        for row in (0..self.len()).rev() {
            if self.pivots[row] < id {
                self.remove(row);
            }
        }
        let (mut budget, mut lost) = (self.limit(), 0);
        for column in 0..self.free.len() {
            if self.free[column] >= id {
                continue;
            }
            let mentioning = (0..self.len()).filter(|&row| self.cells[row * self.stride + column] != 0);
            let count = mentioning.clone().count();
            // Take the row with the lowest pivot, so that the pivot of every other row stays above all ids it
            // mentions.
            let Some(row) = mentioning.min_by_key(|&row| self.pivots[row]) else { continue };
            if count - 1 <= budget {
                budget -= count - 1;
                let pivot = self.pivots[row];
                self.exchange(row, column, targets);
                exchanged(pivot, targets);
            } else {
                lost += count - 1;
                for row in (0..self.len()).rev() {
                    if self.cells[row * self.stride + column] != 0 {
                        self.remove(row);
                    }
                }
            }
        }
        self.candidate.fill(0);
        self.forget_unmentioned();
        lost
    }

    /// Makes room for `added` more columns: drops the rows with the highest pivots, only those above
    /// `highest`, and no more than needed. Columns that the candidate mentions stay. The work is a few passes
    /// over the coefficients however many rows are dropped, and touches no payload.
    ///
    /// This always succeeds for a repair whose span begins at or below the decoder's edge. Its candidate, and
    /// the rows with pivots up to `highest`, mention only missing ids of that span, and the limit of columns
    /// is at least a whole span.
    ///
    /// # Errors
    /// The rows with pivots up to `highest` and the candidate mention too many ids. Nothing is changed.
    pub(super) fn make_columns(&mut self, added: usize, highest: u64) -> Result<(), DecodeError> {
        let limit = self.max_free.min(self.capacity);
        if self.free.len() + added <= limit {
            return Ok(());
        }
        let least = limit.checked_sub(added).map_or(0, |room| self.least_to_drop(room, highest));
        if least == 0 {
            return Err(DecodeError::TooManyColumns { limit: self.max_free });
        }
        for row in (0..self.len()).rev() {
            if distance(self.pivots[row], highest) >= least {
                self.remove(row);
            }
        }
        self.forget_unmentioned();
        Ok(())
    }

    /// The lowest distance above `highest` from which rows must be dropped, so that at most `room` columns
    /// stay mentioned. `room` is less than the present number of columns. Returns 0 if dropping all rows
    /// above `highest` is not enough.
    fn least_to_drop(&mut self, room: usize, highest: u64) -> u32 {
        if self.pivots.iter().all(|&pivot| pivot <= highest) {
            return 0;
        }
        let Self { columns, candidate, cells, stride, pivots, free, .. } = self;
        let columns = &mut columns[..free.len()];
        // For each column: the least distance above `highest` of the pivots of rows that mention it.
        columns.iter_mut().zip(&*candidate).for_each(|(least, &cell)| *least = if cell == 0 { u32::MAX } else { 0 });
        for (cells, &pivot) in cells.chunks_exact(*stride).zip(&*pivots) {
            let above = distance(pivot, highest);
            columns.iter_mut().zip(cells).for_each(|(least, &cell)| {
                *least = (*least).min(if cell == 0 { u32::MAX } else { above });
            });
        }
        *columns.select_nth_unstable(room).1
    }

    /// The row with the highest pivot, if that pivot is above the id `above`.
    pub(super) fn highest_row(&self, above: u64) -> Option<usize> {
        let rows = self.pivots.iter().enumerate().filter(|&(_, &pivot)| pivot > above);
        rows.max_by_key(|&(_, &pivot)| pivot).map(|(row, _)| row)
    }

    /// Solves a row for the id of a free column, substitutes the result into the other rows, and drops the
    /// row. Its pivot becomes free and takes over the column of that id.
    fn exchange(&mut self, row: usize, column: usize, targets: &mut Terms) {
        targets.clear();
        let (width, pivot) = (self.free.len(), self.pivots[row]);
        self.candidate[..width].copy_from_slice(&self.cells[row * self.stride..][..width]);
        let inverse = gf256::inv(self.candidate[column]);
        for other in 0..self.len() {
            let cells = &mut self.cells[other * self.stride..][..width];
            if other != row && cells[column] != 0 {
                let factor = gf256::mul(cells[column], inverse);
                Kernel::active().mul_add(cells, factor, &self.candidate[..width]);
                cells[column] = factor;
                targets.push((self.pivots[other], factor));
            }
        }
        self.remove(row);
        self.set_place(self.free[column], Place::Unmentioned);
        self.free[column] = pivot;
        self.set_place(pivot, Place::Free(column as u32));
    }

    /// Marks the columns that the candidate or a row mentions. Returns their number.
    fn mention(&mut self) -> usize {
        let Self { mentions, candidate, cells, stride, pivots, free, .. } = self;
        let mentions = &mut mentions[..free.len()];
        mentions.copy_from_slice(&candidate[..free.len()]);
        for cells in cells.chunks_exact(*stride).take(pivots.len()) {
            mentions.iter_mut().zip(cells).for_each(|(mention, cell)| *mention |= cell);
        }
        mentions.iter().filter(|&&mention| mention != 0).count()
    }

    /// Forgets the columns that neither a row nor the candidate mentions. The last mentioned columns take
    /// their places.
    pub(super) fn forget_unmentioned(&mut self) {
        let (width, kept) = (self.free.len(), self.mention());
        let mut moves = 0;
        let mut from = width;
        for column in 0..width {
            if self.mentions[column] != 0 {
                continue;
            }
            self.set_place(self.free[column], Place::Unmentioned);
            if column < kept {
                from = (kept..from).rev().find(|&from| self.mentions[from] != 0).unwrap_or(kept);
                (self.columns[moves], self.columns[moves + 1]) = (column as u32, from as u32);
                moves += 2;
            }
        }
        let Self { columns, candidate, cells, stride, pivots, .. } = self;
        let rows = cells.chunks_exact_mut(*stride).take(pivots.len());
        for cells in rows.chain([&mut candidate[..]]) {
            for step in columns[..moves].chunks_exact(2) {
                cells[step[0] as usize] = core::mem::take(&mut cells[step[1] as usize]);
            }
        }
        for step in (0..moves).step_by(2) {
            let (to, from) = (self.columns[step], self.columns[step + 1] as usize);
            self.free[to as usize] = self.free[from];
            self.set_place(self.free[from], Place::Free(to));
        }
        self.free.truncate(kept);
    }
}

/// How far a pivot lies above an id; 0 if it does not. Both lie in the ring, which has fewer slots than a
/// `u32` can count.
fn distance(pivot: u64, highest: u64) -> u32 {
    u32::try_from(pivot.saturating_sub(highest)).unwrap_or(u32::MAX)
}
