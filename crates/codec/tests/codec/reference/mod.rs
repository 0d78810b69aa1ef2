//! A naive decoder, the reference for the real one: a dense matrix over a few ids, eliminated anew each time.
//!
//! It holds only coefficients; the test knows the true bytes from the sender. Source symbols are unit rows.

pub mod pair;

use tidewire_codec::field::gf256::{inv, mul};

/// Rows in reduced row echelon form, each as wide as there are ids.
#[derive(Clone)]
pub struct Reference {
    rows: Vec<Vec<u8>>,
    /// Whether each id was given up. A row that mentions such an id is useless.
    given_up: Vec<bool>,
}

impl Reference {
    pub fn new(ids: usize) -> Self {
        Self { rows: Vec::new(), given_up: vec![false; ids] }
    }

    /// Adds a row. Returns true if the rank rose.
    pub fn receive(&mut self, row: Vec<u8>) -> bool {
        let before = self.rows.len();
        self.rows.push(row);
        self.rows = reduced(std::mem::take(&mut self.rows), self.given_up.len());
        self.forget_given_up();
        self.rows.len() > before
    }

    /// Gives up the ids below `id` that are not decoded.
    pub fn skip_before(&mut self, id: usize) {
        for id in 0..id {
            self.given_up[id] = !self.is_decoded(id);
        }
        self.forget_given_up();
    }

    pub fn is_decoded(&self, id: usize) -> bool {
        self.rows.iter().any(|row| is_unit(row) && row[id] != 0)
    }

    pub fn is_given_up(&self, id: usize) -> bool {
        self.given_up[id]
    }

    /// Rows that are not decoded symbols.
    pub fn unsolved(&self) -> usize {
        self.rows.iter().filter(|row| !is_unit(row)).count()
    }

    /// Ids that are given up are the lowest that are not decoded. So a row that mentions one has one as its
    /// pivot, and no other row mentions that pivot: dropping the row takes nothing from the others.
    fn forget_given_up(&mut self) {
        let given_up = &self.given_up;
        self.rows.retain(|row| row.iter().zip(given_up).all(|(&c, &given_up)| c == 0 || !given_up));
    }
}

/// Whether the row is a decoded symbol.
fn is_unit(row: &[u8]) -> bool {
    row.iter().filter(|&&c| c != 0).count() == 1
}

/// Gauss and Jordan, column by column.
fn reduced(mut rows: Vec<Vec<u8>>, ids: usize) -> Vec<Vec<u8>> {
    let mut rank = 0;
    for column in 0..ids {
        let Some(found) = (rank..rows.len()).find(|&row| rows[row][column] != 0) else { continue };
        rows.swap(rank, found);
        let scale = inv(rows[rank][column]);
        rows[rank].iter_mut().for_each(|c| *c = mul(*c, scale));
        let pivot = rows[rank].clone();
        for (i, row) in rows.iter_mut().enumerate() {
            let factor = row[column];
            if i != rank && factor != 0 {
                row.iter_mut().zip(&pivot).for_each(|(c, p)| *c ^= mul(factor, *p));
            }
        }
        rank += 1;
    }
    rows.truncate(rank);
    rows
}
