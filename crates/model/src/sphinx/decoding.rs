//! How many repairs of half a block a receiver needs that eliminates: what (4) and (5) leave out.
//!
//! Equations (4) and (5) count how often the repairs cover the lost symbols. A receiver decodes as soon as
//! the repairs that arrived are independent over the lost symbols. If each repair mixes half of the block,
//! its coefficients over the lost symbols are nearly fair coins, so the probability of that is known
//! ([`independent`]), and no code over GF(2) needs fewer repairs.

use super::super::streaming::binomial::binomial;
use super::{Block, OutOfRange, Plan};

/// Losses and arrivals less likely than this are left out. Chosen: far below any useful target.
const NEGLIGIBLE: f64 = 1e-12;
/// Repairs beyond the losses after which more do not matter: `2^-64` is below the precision of a number.
const ENOUGH: usize = 64;

impl Block {
    /// The probability that a receiver decodes the block with `repairs` repairs of half the block each, by
    /// elimination. Packets are lost independently, but `burst` at a time: 1 for independent losses. For
    /// losses in runs it is the factor by which the variance of the losses of a block is larger.
    pub fn decoded(&self, repairs: u32, burst: f64) -> f64 {
        let lost = Lost::new(self, burst);
        let arrival = 1.0 - self.loss;
        let mut sum = 0.0;
        for gone in 0..=repairs {
            let weight = binomial(repairs.into(), gone.into(), 1.0 - arrival);
            sum += weight * lost.decoded_by((repairs - gone) as usize);
            if weight < NEGLIGIBLE && f64::from(gone) > f64::from(repairs) * self.loss {
                break;
            }
        }
        sum.min(1.0)
    }

    /// The fewest repairs of half the block with which a receiver that eliminates decodes it with probability
    /// `target`. `burst` as in [`decoded`](Self::decoded). As many repairs as the block has symbols are the
    /// most that it returns.
    ///
    /// # Errors
    /// [`OutOfRange::Threshold`] if `target` is not in the range of thresholds.
    pub fn plan_for_elimination(&self, target: f64, burst: f64) -> Result<Plan, OutOfRange> {
        let samples = |degree: u32, repairs: u32| degree.saturating_mul(repairs);
        super::check_threshold(target)?;
        let (degree, most) = (u32::from(self.symbols / 2).max(1), u32::from(self.symbols));
        let repairs = (0..most).find(|&repairs| self.decoded(repairs, burst) >= target).unwrap_or(most);
        Ok(Plan { degree, lost: self.lost(), samples: samples(degree, repairs), repairs })
    }
}

/// Probabilities of the number of lost source symbols.
struct Lost {
    /// By the number of lost symbols, from 0 up.
    probabilities: Vec<f64>,
}

impl Lost {
    fn new(block: &Block, burst: f64) -> Self {
        let symbols = f64::from(block.symbols);
        // Lost together, `burst` symbols at a time, so that mean and variance are those of the path.
        let groups = symbols / burst.max(1.0);
        let mut probabilities = Vec::new();
        for lost in 0..=block.symbols {
            let of_groups = f64::from(lost) / burst.max(1.0);
            let probability = if of_groups > groups { 0.0 } else { binomial(groups, of_groups, block.loss) };
            if probability < NEGLIGIBLE && f64::from(lost) > symbols * block.loss {
                break;
            }
            probabilities.push(probability);
        }
        let total: f64 = probabilities.iter().sum();
        probabilities.iter_mut().for_each(|probability| *probability /= total);
        Self { probabilities }
    }

    fn decoded_by(&self, arrived: usize) -> f64 {
        let of = |(lost, probability): (usize, &f64)| {
            probability * arrived.checked_sub(lost).map_or(0.0, |spare| independent(lost, spare))
        };
        self.probabilities.iter().enumerate().map(of).sum()
    }
}

/// The probability that random columns over GF(2), each with `spare` more rows than there are columns, are
/// independent: a column is in the span of `c` others with probability `2^(c - rows)`.
fn independent(columns: usize, spare: usize) -> f64 {
    (spare + 1..=(spare + columns).min(ENOUGH)).map(|j| 1.0 - (-(j as f64)).exp2()).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clean_path_needs_no_repair_and_more_loss_needs_more() {
        let repairs = |loss, burst| {
            let plan = Block::new(100, loss, 0.0).expect("in range").plan_for_elimination(0.95, burst);
            plan.expect("in range").repairs
        };
        assert_eq!(repairs(0.0, 1.0), 0);
        let counts = [0.005, 0.01, 0.02, 0.06, 0.1, 0.2].map(|loss| repairs(loss, 1.0));
        assert!(counts.is_sorted() && counts[0] > 0, "{counts:?}");
        assert!(repairs(0.06, 4.0) > repairs(0.06, 1.0));
        assert!((0.9..1.0).contains(&Block::new(100, 0.06, 0.0).expect("in range").decoded(repairs(0.06, 1.0), 1.0)));
    }

    #[test]
    fn the_share_of_full_rank_is_that_of_small_matrices() {
        // All 64 matrices of 2 columns and 3 rows: (1 - 2^-3)(1 - 2^-2) of them have rank 2.
        let mut full = 0;
        for bits in 0..64_u32 {
            let rows = [bits & 3, bits >> 2 & 3, bits >> 4];
            let spans = |a: u32, b: u32| a != 0 && b != 0 && a != b;
            full += u32::from(spans(rows[0], rows[1]) || spans(rows[0], rows[2]) || spans(rows[1], rows[2]));
        }
        assert_eq!(f64::from(full) / 64.0, independent(2, 1));
        assert!(independent(0, 0) == 1.0 && independent(100, 20) > 1.0 - 2e-6);
    }
}
