//! What the matrix gives up: rows that would take more room or more work than there may be.
//!
//! A part of [`Rows`]: [`reduce`](Rows::reduce) makes room for a repair at the cost of rows of later symbols, and
//! [`Decoder::skip_before`](crate::Decoder::skip_before) takes given up ids out of the rows. Both leave the invariants of
//! the matrix as they were; only exchanges touch payloads, which the caller repeats.

use super::{Place, Rows};
use crate::DecodeError;
use crate::decoder::Terms;
use crate::field::gf256;
use crate::kernel::Kernel;

/// Rows that one repair may push out of a full matrix: bounds the work of a datagram; a repair that needs more room is
/// refused. Chosen: a repair of few missing ids needs one or two.
const MOST_GIVEN_UP: usize = 8;

impl Rows {
    /// Gives up the ids below `id`, with one row for each of them that is free; what the other rows say about the ids
    /// that are left is kept, as long as that takes no more than [`limit`](Self::limit) row operations. Beyond that, all
    /// rows that mention the id are dropped. `exchanged` is told the pivot of each dropped row, and the pivots and
    /// factors of the rows it was added to. Returns how many rows were dropped for want of row operations.
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

    /// Sees to it that `added` columns more can be had, at the cost of rows with pivots above `highest`: what is needed
    /// first has the better claim to a bounded matrix. Keeps the columns that the candidate mentions.
    ///
    /// # Errors
    /// As many rows as may be given up are not enough; nothing is changed.
    pub(super) fn make_columns(&mut self, added: usize, highest: u64) -> Result<(), DecodeError> {
        let limit = self.max_free.min(self.capacity);
        if self.free.len() + added <= limit {
            return Ok(());
        }
        let mut least = u64::MAX;
        for _ in 0..MOST_GIVEN_UP {
            let Some(row) = self.highest_row(highest, least) else { break };
            least = self.pivots[row];
        }
        if self.mention(|pivot| pivot < least) + added > limit {
            return Err(DecodeError::TooManyColumns { limit: self.max_free });
        }
        // Enough, so no more than needed: one after the other.
        while self.free.len() + added > limit
            && let Some(row) = self.highest_row(highest, u64::MAX)
        {
            self.remove(row);
            self.forget_unmentioned();
        }
        Ok(())
    }

    /// The row with the highest pivot between two ids.
    pub(super) fn highest_row(&self, above: u64, below: u64) -> Option<usize> {
        let rows = self.pivots.iter().enumerate().filter(|&(_, pivot)| (above + 1..below).contains(pivot));
        rows.max_by_key(|&(_, &pivot)| pivot).map(|(row, _)| row)
    }

    /// Solves a row for the id of a free column, puts that into the other rows, and drops the row: its pivot is free
    /// from now on, in the column that the id leaves.
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

    /// Marks the columns that the candidate mentions or a row whose pivot passes the filter, and counts them.
    fn mention(&mut self, filter: impl Fn(u64) -> bool) -> usize {
        let Self { mentions, candidate, cells, stride, pivots, free, .. } = self;
        let mentions = &mut mentions[..free.len()];
        mentions.copy_from_slice(&candidate[..free.len()]);
        for (cells, _) in cells.chunks_exact(*stride).zip(pivots).filter(|(_, pivot)| filter(**pivot)) {
            mentions.iter_mut().zip(cells).for_each(|(mention, cell)| *mention |= cell);
        }
        mentions.iter().filter(|&&mention| mention != 0).count()
    }

    /// Forgets the columns that neither a row nor the candidate mentions.
    pub(super) fn forget_unmentioned(&mut self) {
        if self.free.len() == self.mention(|_| true) {
            return;
        }
        for column in (0..self.free.len()).rev() {
            if self.mentions[column] == 0 {
                self.forget_column(column);
            }
        }
    }
}
