//! The rank of coding vectors, without payloads.
//!
//! A relay asks it whether a received symbol is innovative, and reports the rank upstream. A [`Recoder`] is
//! an `Echelon` and the payloads of the vectors that it took.
//!
//! Invariants: row p of `rows`, where `is_pivot[p]`, is 0 before column p and 1 there. The rows span the same
//! space as the vectors that were taken, so a vector is innovative if the rows do not reduce it to 0.
//!
//! [`Recoder`]: crate::Recoder

use alloc::vec;
use alloc::vec::Vec;

use crate::field::gf256;
use crate::kernel::Kernel;
use crate::ring::SymbolRing;

/// The coding vectors of one generation, in row echelon form.
///
/// ```
/// use tidewire_codec::Echelon;
///
/// let mut echelon = Echelon::new(4);
/// echelon.begin(3);
/// assert!(echelon.insert(0, [1, 2].into_iter()));
/// assert!(echelon.insert(1, [7].into_iter()));
/// assert!(!echelon.insert(0, [9].into_iter()), "two symbols are known");
/// assert_eq!(echelon.rank(), 2);
/// ```
pub struct Echelon {
    max_count: u16,
    count: u16,
    rank: u16,
    rows: SymbolRing,
    is_pivot: Vec<bool>,
    /// The vector that was taken last, with a coefficient for each symbol of the generation.
    inserted: Vec<u8>,
    /// The vector being reduced.
    candidate: Vec<u8>,
}

impl core::fmt::Debug for Echelon {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Echelon").field("count", &self.count).field("rank", &self.rank).finish_non_exhaustive()
    }
}

impl Echelon {
    /// An empty echelon for generations of up to `max_count` symbols. It allocates all its memory here:
    /// `max_count` rows of `max_count` bytes, each rounded up to a multiple of 64, and some bytes for each.
    pub fn new(max_count: u16) -> Self {
        let count = usize::from(max_count);
        Self {
            max_count,
            count: 0,
            rank: 0,
            rows: SymbolRing::with_all_slots(count, count),
            is_pivot: vec![false; count],
            inserted: Vec::with_capacity(count),
            candidate: Vec::with_capacity(count),
        }
    }

    /// Forgets everything and begins a generation of `count` symbols.
    ///
    /// # Panics
    /// `count` is more than there is room for.
    pub fn begin(&mut self, count: u16) {
        assert!(count <= self.max_count, "a generation of {count} symbols, with room for {}", self.max_count);
        (self.count, self.rank) = (count, 0);
        self.is_pivot.fill(false);
    }

    /// Number of independent vectors taken.
    pub fn rank(&self) -> u16 {
        self.rank
    }

    /// Takes a vector whose first coefficient belongs to symbol `at` of the generation. Coefficients beyond
    /// the generation are ignored. Returns whether it raised the rank.
    pub fn insert(&mut self, at: usize, vector: impl Iterator<Item = u8>) -> bool {
        let count = usize::from(self.count);
        if self.rank == self.count {
            return false;
        }
        self.inserted.clear();
        self.inserted.resize(count, 0);
        let places = self.inserted.get_mut(at..).unwrap_or_default();
        places.iter_mut().zip(vector).for_each(|(coefficient, value)| *coefficient = value);
        self.candidate.clear();
        self.candidate.extend_from_slice(&self.inserted);
        let innovative = self.reduce();
        self.rank += u16::from(innovative);
        innovative
    }

    /// The vector that [`insert`](Self::insert) was given last, over the whole generation.
    pub(crate) fn inserted(&self) -> &[u8] {
        &self.inserted
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.rows.memory() + self.is_pivot.capacity() + self.inserted.capacity() + self.candidate.capacity()
    }

    /// Reduces the candidate by the rows and makes what is left of it a row. Returns whether something was.
    fn reduce(&mut self) -> bool {
        let kernel = Kernel::active();
        for column in 0..self.candidate.len() {
            let factor = self.candidate[column];
            if factor == 0 {
                continue;
            }
            if !self.is_pivot[column] {
                kernel.scale(&mut self.candidate, gf256::inv(factor));
                self.rows.write(column as u64, &self.candidate);
                self.is_pivot[column] = true;
                return true;
            }
            kernel.mul_add(&mut self.candidate, factor, self.rows.symbol(column as u64));
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_independent_counts_and_a_new_generation_is_empty() {
        let mut echelon = Echelon::new(64);
        for count in [3_u16, 64, 1] {
            echelon.begin(count);
            for column in 0..count {
                let vector = move || (0..=column).map(move |at| (at + column) as u8 | 1);
                assert!(echelon.insert(0, vector()), "{count} {column}");
                assert!(!echelon.insert(0, vector()) && !echelon.insert(0, core::iter::repeat_n(0, 64)));
            }
            assert_eq!(echelon.rank(), count);
            assert!(!echelon.insert(0, core::iter::repeat_n(1, 200)));
        }
        echelon.begin(2);
        assert!(!echelon.insert(2, [1].into_iter()) && !echelon.insert(usize::MAX, [1].into_iter()));
    }
}
