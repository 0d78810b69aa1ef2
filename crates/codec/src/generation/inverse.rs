//! The inverse of a square matrix, built row by row, so that dependent rows can be left out.
//!
//! Gauss-Jordan elimination in place. Each row that was taken belongs to one column, its *pivot*. A pivot
//! column would hold a unit vector; its cells hold the coefficients of the taken row instead. So the matrix
//! stays square. Once every column is a pivot, the matrix is the inverse.
//!
//! All calls between two `reset` calls use the same field.

use alloc::vec::Vec;

use super::row::{RowField, eliminate, get, set};
use crate::kernel::LINE;

#[derive(Debug, Default)]
pub(super) struct Inverse {
    size: usize,
    /// Row c belongs to column c. It is zero until column c is a pivot.
    cells: Vec<u8>,
    is_pivot: Vec<bool>,
    /// The row being taken: as given, and reduced.
    given: Vec<u8>,
    reduced: Vec<u8>,
}

impl Inverse {
    /// Clears the matrix for `size` rows and columns.
    pub fn reset<F: RowField>(&mut self, size: usize) {
        self.size = size;
        let len = self.row_len::<F>();
        refill(&mut self.cells, size * len);
        refill(&mut self.given, len);
        refill(&mut self.reduced, len);
        self.is_pivot.clear();
        self.is_pivot.resize(size, false);
    }

    /// Takes a row of the matrix and returns the column that became its pivot. Returns `None` and changes
    /// nothing if the row depends on the rows taken before.
    pub fn take<F: RowField>(&mut self, row: impl Iterator<Item = u16>) -> Option<usize> {
        let len = self.row_len::<F>();
        for (column, factor) in row.enumerate() {
            set::<F>(&mut self.given, column, factor);
            set::<F>(&mut self.reduced, column, if self.is_pivot[column] { 0 } else { factor });
        }
        for (column, row) in self.cells.chunks_exact(len).enumerate().filter(|(column, _)| self.is_pivot[*column]) {
            F::mul_add(&mut self.reduced, get::<F>(&self.given, column), row);
        }

        let is_next = |&column: &usize| !self.is_pivot[column] && get::<F>(&self.reduced, column) != 0;
        let pivot = (0..self.size).find(is_next)?;
        let scale = F::inv(get::<F>(&self.reduced, pivot));
        set::<F>(&mut self.reduced, pivot, 1);
        F::multiply(&mut self.given, scale, &self.reduced);
        core::mem::swap(&mut self.given, &mut self.reduced);
        eliminate::<F>(&mut self.cells, pivot, &self.reduced);
        self.cells[pivot * len..][..len].copy_from_slice(&self.reduced);
        self.is_pivot[pivot] = true;
        Some(pivot)
    }

    /// The row of the inverse for a column of the matrix. It holds a coefficient of each taken row, at the
    /// place of that row's pivot, and then zeros up to whole lines.
    pub fn row<F: RowField>(&self, column: usize) -> F::Source<'_> {
        let len = self.row_len::<F>();
        F::source(&self.cells[column * len..][..len], len, &(0..len / F::BYTES))
    }

    /// Bytes of a row.
    fn row_len<F: RowField>(&self) -> usize {
        self.size.next_multiple_of(LINE) * F::BYTES
    }
}

/// Resizes to `len` zeros.
fn refill(cells: &mut Vec<u8>, len: usize) {
    cells.clear();
    cells.resize(len, 0);
}
