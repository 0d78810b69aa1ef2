//! The inverse of a square matrix over GF(2^8), taken row by row, so that rows which bring nothing new can be left out.
//!
//! Gauss and Jordan in place. A row that was taken stands for one column, its *pivot*, as the row of the inverse that
//! belongs to it; where the column would hold the unit vector that says so, there is room for the coefficient of the
//! taken row itself. So the matrix is never wider than it is high, and when every column is a pivot it is the inverse.

use alloc::vec::Vec;

use crate::field::gf256;
use crate::kernel::{Kernel, LINE};

#[derive(Debug, Default)]
pub(super) struct Inverse {
    size: usize,
    /// Row c stands for column c; all zero while that is no pivot.
    cells: Vec<u8>,
    is_pivot: Vec<bool>,
    /// The row being taken, as it was given and as it becomes.
    given: Vec<u8>,
    reduced: Vec<u8>,
}

impl Inverse {
    /// Starts anew, for a matrix of `size` rows and columns.
    pub fn reset(&mut self, size: usize) {
        self.size = size;
        let width = self.width();
        refill(&mut self.cells, size * width);
        refill(&mut self.given, width);
        refill(&mut self.reduced, width);
        self.is_pivot.clear();
        self.is_pivot.resize(size, false);
    }

    /// Takes a row of the matrix and returns the column that became its pivot; `None` when the row is a combination of
    /// those taken before, which changes nothing.
    pub fn take(&mut self, row: impl Iterator<Item = u8>) -> Option<usize> {
        let width = self.width();
        for (column, factor) in row.enumerate() {
            self.given[column] = factor;
            self.reduced[column] = if self.is_pivot[column] { 0 } else { factor };
        }
        let pivots = self.is_pivot.iter().zip(&self.given).zip(self.cells.chunks_exact(width));
        for ((_, &factor), row) in pivots.filter(|((is_pivot, _), _)| **is_pivot) {
            Kernel::active().mul_add(&mut self.reduced, factor, row);
        }

        let pivot = (0..self.size).find(|&column| !self.is_pivot[column] && self.reduced[column] != 0)?;
        let scale = gf256::inv(self.reduced[pivot]);
        self.reduced[pivot] = 1;
        Kernel::active().scale(&mut self.reduced, scale);
        self.eliminate(pivot);
        self.cells[pivot * width..][..width].copy_from_slice(&self.reduced);
        self.is_pivot[pivot] = true;
        Some(pivot)
    }

    /// The row of the inverse that belongs to a column of the matrix: coefficients of the taken rows, each at the place
    /// of its pivot.
    pub fn row(&self, column: usize) -> &[u8] {
        &self.cells[column * self.width()..][..self.size]
    }

    /// Puts what the reduced row says of its pivot into all rows. Those that mention it not at all are often all of
    /// four, since pivots come in order.
    fn eliminate(&mut self, pivot: usize) {
        let kernel = Kernel::active();
        let width = self.width();
        let mut fours = self.cells.chunks_exact_mut(4 * width);
        for four in &mut fours {
            let mut factors = [0; 4];
            for (factor, row) in factors.iter_mut().zip(four.chunks_exact_mut(width)) {
                *factor = core::mem::take(&mut row[pivot]);
            }
            if factors != [0; 4] {
                let (a, rest) = four.split_at_mut(width);
                let (b, rest) = rest.split_at_mut(width);
                let (c, d) = rest.split_at_mut(width);
                kernel.mul_add_four([a, b, c, d], &[(factors, &self.reduced)]);
            }
        }
        for row in fours.into_remainder().chunks_exact_mut(width) {
            let factor = core::mem::take(&mut row[pivot]);
            kernel.mul_add(row, factor, &self.reduced);
        }
    }

    fn width(&self) -> usize {
        self.size.next_multiple_of(LINE)
    }
}

/// Makes it `len` zeros.
fn refill(cells: &mut Vec<u8>, len: usize) {
    cells.clear();
    cells.resize(len, 0);
}
