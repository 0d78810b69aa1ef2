//! What the matrix gives up: rows that would take more room or more work than there may be.
//!
//! A part of [`Rows`]: [`reduce`](Rows::reduce) makes room for a repair by dropping rows of later symbols,
//! and [`Decoder::skip_before`](crate::Decoder::skip_before) takes given up ids out of the rows. Both keep
//! the invariants of the matrix; only exchanges touch payloads, which the caller repeats.
//!
//! The lowest gap always closes: a repair whose span begins at or below the decoder's edge is never refused
//! for want of columns, nor for want of rows if there may be as many rows as a span is long. It drops only
//! rows with pivots above its own span, so that the rank of what is known of the ids in the span grows with
//! each such repair until all of them are known.

use super::{Place, Rows};
use crate::DecodeError;
use crate::decoder::Terms;
use crate::field::gf256;
use crate::kernel::Kernel;

impl Rows {
    /// Gives up the ids below `id`, with one row for each of them that is free; what the other rows say about
    /// the ids that are left is kept, as long as that takes no more than [`limit`](Self::limit) row
    /// operations. Beyond that, all rows that mention the id are dropped. `exchanged` is told the pivot of
    /// each dropped row, and the pivots and factors of the rows it was added to. Returns how many rows were
    /// dropped for want of row operations.
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
            // The row of the lowest pivot: the others keep a pivot above all they mention.
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

    /// Makes room for `added` more columns by dropping rows with pivots above `highest`: those with the
    /// highest pivots, and no more of them than needed. The columns that the candidate mentions stay. The
    /// work is a few passes over the coefficients however many rows go, and touches no payload.
    ///
    /// This always succeeds for a repair whose span begins at or below the decoder's edge. Its candidate, and
    /// the rows with pivots up to `highest`, mention only missing ids of that span, and there are columns for
    /// the ids of a whole span.
    ///
    /// # Errors
    /// The rows with pivots up to `highest` and the candidate mention too many ids; nothing is changed.
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

    /// How far above `highest` the lowest pivot is whose row must be dropped with all above it, so that at
    /// most `room` columns, fewer than there are, stay mentioned. 0 if not even dropping all rows above
    /// `highest` gives so much room.
    fn least_to_drop(&mut self, room: usize, highest: u64) -> u32 {
        if self.pivots.iter().all(|&pivot| pivot <= highest) {
            return 0;
        }
        let Self { columns, candidate, cells, stride, pivots, free, .. } = self;
        let columns = &mut columns[..free.len()];
        // Of each column: how far above `highest` the lowest pivot of the rows is that mention it.
        columns.iter_mut().zip(&*candidate).for_each(|(least, &cell)| *least = if cell == 0 { u32::MAX } else { 0 });
        for (cells, &pivot) in cells.chunks_exact(*stride).zip(&*pivots) {
            let above = distance(pivot, highest);
            columns.iter_mut().zip(cells).for_each(|(least, &cell)| {
                *least = (*least).min(if cell == 0 { u32::MAX } else { above });
            });
        }
        *columns.select_nth_unstable(room).1
    }

    /// The row with the highest pivot, if that is above an id.
    pub(super) fn highest_row(&self, above: u64) -> Option<usize> {
        let rows = self.pivots.iter().enumerate().filter(|&(_, &pivot)| pivot > above);
        rows.max_by_key(|&(_, &pivot)| pivot).map(|(row, _)| row)
    }

    /// Solves a row for the id of a free column, puts that into the other rows, and drops the row: its pivot
    /// is free from now on, in the column that the id leaves.
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

    /// Marks the columns that the candidate or a row mentions, and counts them.
    fn mention(&mut self) -> usize {
        let Self { mentions, candidate, cells, stride, pivots, free, .. } = self;
        let mentions = &mut mentions[..free.len()];
        mentions.copy_from_slice(&candidate[..free.len()]);
        for cells in cells.chunks_exact(*stride).take(pivots.len()) {
            mentions.iter_mut().zip(cells).for_each(|(mention, cell)| *mention |= cell);
        }
        mentions.iter().filter(|&&mention| mention != 0).count()
    }

    /// Forgets the columns that neither a row nor the candidate mentions: the last columns that are mentioned
    /// take their places.
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

/// How far a pivot lies above an id; 0 if it does not. Both lie in the ring, which has fewer slots than the
/// type has numbers.
fn distance(pivot: u64, highest: u64) -> u32 {
    u32::try_from(pivot.saturating_sub(highest)).unwrap_or(u32::MAX)
}
