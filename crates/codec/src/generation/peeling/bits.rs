//! Elimination over GF(2), 64 coefficients a word.
//!
//! [`Echelon`] counts the rank of what arrives, from coefficients alone. [`Matrix`] solves for the
//! symbols that peeling left over. Both belong to one [`PeelingDecoder`](super::PeelingDecoder).

use alloc::vec;
use alloc::vec::Vec;

/// Rows in echelon form: each has a pivot, its lowest column, that no other row has as its lowest.
#[derive(Clone, Debug)]
pub(super) struct Echelon {
    /// The row of each pivot.
    row_of: Vec<Option<u32>>,
    rows: Vec<u64>,
    /// Words of a row.
    words: usize,
    rank: usize,
    /// The row being added.
    reduced: Vec<u64>,
}

impl Echelon {
    pub fn new(columns: usize) -> Self {
        let words = columns.div_ceil(64);
        Self { row_of: vec![None; columns], rows: Vec::new(), words, rank: 0, reduced: vec![0; words] }
    }

    /// Adds the row with ones in these columns. Returns whether it raised the rank.
    pub fn add(&mut self, columns: impl Iterator<Item = u16>) -> bool {
        self.reduced.fill(0);
        columns.for_each(|column| self.reduced[usize::from(column) / 64] ^= 1 << (column % 64));
        for word in 0..self.words {
            while self.reduced[word] != 0 {
                let pivot = word * 64 + self.reduced[word].trailing_zeros() as usize;
                let Some(row) = self.row_of[pivot] else {
                    self.row_of[pivot] = Some(self.rank as u32);
                    self.rows.extend_from_slice(&self.reduced);
                    self.rank += 1;
                    return true;
                };
                let row = &self.rows[row as usize * self.words..][..self.words];
                add_words(&mut self.reduced[word..], &row[word..]);
            }
        }
        false
    }

    pub fn rank(&self) -> usize {
        self.rank
    }

    pub fn memory(&self) -> usize {
        let words = self.rows.capacity() + self.reduced.capacity();
        words * size_of::<u64>() + self.row_of.capacity() * size_of::<Option<u32>>()
    }
}

/// Equations over some columns, each with the place of its payload.
pub(super) struct Matrix {
    columns: usize,
    words: usize,
    rows: Vec<u64>,
    places: Vec<usize>,
}

impl Matrix {
    pub fn new(columns: usize) -> Self {
        Self { columns, words: columns.div_ceil(64), rows: Vec::new(), places: Vec::new() }
    }

    /// Adds an equation with ones in these columns.
    pub fn push(&mut self, place: usize, columns: impl Iterator<Item = usize>) {
        let begin = self.rows.len();
        self.rows.resize(begin + self.words, 0);
        columns.for_each(|column| self.rows[begin + column / 64] ^= 1 << (column % 64));
        self.places.push(place);
    }

    /// Solves for the columns by Gauss-Jordan elimination. `add(to, from)` adds payload `from` to payload
    /// `to`. Returns the place of each column's payload, or nothing if the equations do not determine all
    /// columns.
    pub fn solve(mut self, mut add: impl FnMut(usize, usize)) -> Vec<usize> {
        for column in 0..self.columns {
            let Some(pivot) = (column..self.places.len()).find(|&row| self.has(row, column)) else {
                return Vec::new();
            };
            self.places.swap(pivot, column);
            (0..self.words).for_each(|word| self.rows.swap(pivot * self.words + word, column * self.words + word));
            let begin = column * self.words;
            let pivot: Vec<u64> = self.rows[begin..begin + self.words].to_vec();
            for row in 0..self.places.len() {
                if row != column && self.has(row, column) {
                    add_words(&mut self.rows[row * self.words..][..self.words], &pivot);
                    add(self.places[row], self.places[column]);
                }
            }
        }
        self.places.truncate(self.columns);
        self.places
    }

    fn has(&self, row: usize, column: usize) -> bool {
        self.rows[row * self.words + column / 64] >> (column % 64) & 1 == 1
    }
}

fn add_words(to: &mut [u64], from: &[u64]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to ^= from);
}
