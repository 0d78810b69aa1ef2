//! Rows of coefficients: the operations in which matrices over the two fields differ.
//!
//! A row of n coefficients has the memory layout of a symbol of n elements, so the kernels add rows as they
//! add symbols. [`get`] and [`set`] access one coefficient, as a 16-bit number in both fields.

use crate::field::{gf256, gf65536};
use crate::kernel::{Kernel, LINE};
use crate::mix::{self, Field, Gf256, Gf65536};
use crate::{Code, RepairId};

/// A field with the operations that matrices need.
pub(super) trait RowField: Field {
    /// Writes the coefficients of a repair symbol and fills the rest of the row with 0.
    fn write(row: &mut [u8], code: Code, id: RepairId);

    /// The element whose product with `a` is 1; 0 for 0.
    fn inv(a: u16) -> u16;

    /// `to = factor * from`.
    fn multiply(to: &mut [u8], factor: u16, from: &[u8]);

    /// `to += factor * from`.
    fn mul_add(to: &mut [u8], factor: u16, from: &[u8]);

    /// Adds `factor * from` to the first `count` elements of `to`. `from` has exactly `count` elements.
    fn mul_add_front(to: &mut [u8], count: usize, factor: u16, from: &[u8]);

    /// Adds the sum of `factor * from` over (factor, from) to the first `count` elements of `to`. Each `from`
    /// has exactly `count` elements.
    fn mul_add_many<'a>(to: &mut [u8], count: usize, terms: impl Iterator<Item = (u16, &'a [u8])>);

    /// `to[d] += factors[d] * from`.
    fn mul_add_four(to: [&mut [u8]; 4], factors: [u16; 4], from: &[u8]);
}

impl RowField for Gf256 {
    fn write(row: &mut [u8], code: Code, id: RepairId) {
        let (cells, rest) = row.split_at_mut(id.count.into());
        code.row(id).fill(cells);
        rest.fill(0);
    }

    fn inv(a: u16) -> u16 {
        gf256::inv(a as u8).into()
    }

    fn multiply(to: &mut [u8], factor: u16, from: &[u8]) {
        to.copy_from_slice(from);
        Kernel::active().scale(to, factor as u8);
    }

    #[inline]
    fn mul_add(to: &mut [u8], factor: u16, from: &[u8]) {
        Kernel::active().mul_add(to, factor as u8, from);
    }

    #[inline]
    fn mul_add_front(to: &mut [u8], count: usize, factor: u16, from: &[u8]) {
        Kernel::active().mul_add(&mut to[..count], factor as u8, from);
    }

    fn mul_add_many<'a>(to: &mut [u8], count: usize, terms: impl Iterator<Item = (u16, &'a [u8])>) {
        mix::add(&mut to[..count], terms.map(|(factor, from)| (factor as u8, from)));
    }

    #[inline]
    fn mul_add_four(to: [&mut [u8]; 4], factors: [u16; 4], from: &[u8]) {
        Kernel::active().mul_add_four(to, &[(factors.map(|factor| factor as u8), from)]);
    }
}

impl RowField for Gf65536 {
    fn write(row: &mut [u8], code: Code, id: RepairId) {
        let (low, high) = row.split_at_mut(row.len() / 2);
        let mut coefficients = code.row_16(id);
        let mut cells = [0; LINE];
        for (low, high) in low.chunks_mut(LINE).zip(high.chunks_mut(LINE)) {
            cells.fill(0);
            coefficients.fill(&mut cells);
            for ((low, high), cell) in low.iter_mut().zip(high).zip(cells) {
                [*low, *high] = cell.to_le_bytes();
            }
        }
    }

    fn inv(a: u16) -> u16 {
        gf65536::inv(a)
    }

    fn multiply(to: &mut [u8], factor: u16, from: &[u8]) {
        let all = 0..to.len() / 2;
        let term = ([factor, 0, 0, 0].into(), Self::source(from, from.len(), &all));
        Kernel::active().mul_halves(&mut [Self::out(to, &all)], &[term]);
    }

    fn mul_add(to: &mut [u8], factor: u16, from: &[u8]) {
        Self::mul_add_front(to, to.len() / 2, factor, from);
    }

    fn mul_add_front(to: &mut [u8], count: usize, factor: u16, from: &[u8]) {
        if factor != 0 {
            let front = 0..count;
            let term = ([factor, 0, 0, 0].into(), Self::source(from, from.len(), &front));
            Kernel::active().mul_add_halves(&mut [Self::out(to, &front)], &[term]);
        }
    }

    fn mul_add_many<'a>(to: &mut [u8], count: usize, terms: impl Iterator<Item = (u16, &'a [u8])>) {
        let front = 0..count;
        let terms = terms.map(|(factor, from)| (factor, Self::source(from, from.len(), &front)));
        mix::add_halves(Self::out(to, &front), terms);
    }

    fn mul_add_four(to: [&mut [u8]; 4], factors: [u16; 4], from: &[u8]) {
        let all = 0..from.len() / 2;
        let term = (factors.into(), Self::source(from, from.len(), &all));
        Kernel::active().mul_add_halves(&mut to.map(|to| Self::out(to, &all)), &[term]);
    }
}

/// Coefficient `at` of a row.
#[inline]
pub(super) fn get<F: Field>(row: &[u8], at: usize) -> u16 {
    let count = row.len() / F::BYTES;
    (0..F::BYTES).fold(0, |value, byte| value | u16::from(row[byte * count + at]) << (8 * byte))
}

/// Sets coefficient `at` of a row.
#[inline]
pub(super) fn set<F: Field>(row: &mut [u8], at: usize, value: u16) {
    let count = row.len() / F::BYTES;
    for (byte, value) in value.to_le_bytes().into_iter().enumerate().take(F::BYTES) {
        row[byte * count + at] = value;
    }
}

/// Sets coefficient `at` of a row to 0 and returns its old value.
#[inline]
pub(super) fn take<F: Field>(row: &mut [u8], at: usize) -> u16 {
    let value = get::<F>(row, at);
    set::<F>(row, at, 0);
    value
}

/// Eliminates a column from all rows. `pivot` has the length of a row and expresses the column by the other
/// columns. Each row adds its coefficient of the column times `pivot`. Four adjacent rows often all have
/// coefficient 0, because pivots come in order.
pub(super) fn eliminate<F: RowField>(rows: &mut [u8], column: usize, pivot: &[u8]) {
    let len = pivot.len();
    let mut fours = rows.chunks_exact_mut(4 * len);
    for four in &mut fours {
        let mut factors = [0; 4];
        for (factor, row) in factors.iter_mut().zip(four.chunks_exact_mut(len)) {
            *factor = take::<F>(row, column);
        }
        if factors != [0; 4] {
            let (a, rest) = four.split_at_mut(len);
            let (b, rest) = rest.split_at_mut(len);
            let (c, d) = rest.split_at_mut(len);
            F::mul_add_four([a, b, c, d], factors, pivot);
        }
    }
    for row in fours.into_remainder().chunks_exact_mut(len) {
        let factor = take::<F>(row, column);
        F::mul_add(row, factor, pivot);
    }
}
