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
        Elimination::new(self, burst).decoded(repairs)
    }

    /// The fewest repairs of half the block with which a receiver that eliminates decodes it with probability
    /// `target`. `burst` as in [`decoded`](Self::decoded). As many repairs as the block has symbols are the
    /// most that it returns.
    ///
    /// A sender calls this when its peer reports losses, so the work is bounded: `n` binomial probabilities
    /// for the losses of the block, and for each of at most 12 numbers of repairs one product for each
    /// number of them that may arrive.
    ///
    /// # Errors
    /// [`OutOfRange::Threshold`] if `target` is not in the range of thresholds.
    pub fn plan_for_elimination(&self, target: f64, burst: f64) -> Result<Plan, OutOfRange> {
        super::check_threshold(target)?;
        let (degree, most) = (u32::from(self.symbols / 2).max(1), u32::from(self.symbols));
        let repairs = Elimination::new(self, burst).fewest(target, most);
        Ok(Plan { degree, lost: self.lost(), samples: degree.saturating_mul(repairs), repairs })
    }
}

/// A receiver that eliminates, of one block and one path.
struct Elimination {
    /// Probability that a repair is lost.
    loss: f64,
    lost: Lost,
    /// `full[m]` is the probability that the columns of a random matrix over GF(2) with `m` rows and `m`
    /// columns are independent.
    full: [f64; ENOUGH + 1],
    /// The probability of decoding, for each number of repairs that arrive.
    by_arrivals: Vec<f64>,
    /// Terms that were added after the construction.
    #[cfg(test)]
    steps: usize,
}

impl Elimination {
    fn new(block: &Block, burst: f64) -> Self {
        let mut full = [1.0; ENOUGH + 1];
        for rows in 1..=ENOUGH {
            full[rows] = full[rows - 1] * (1.0 - (-(rows as f64)).exp2());
        }
        Self {
            loss: block.loss,
            lost: Lost::new(block, burst),
            full,
            by_arrivals: Vec::new(),
            #[cfg(test)]
            steps: 0,
        }
    }

    /// The least number of repairs below `most` with which the probability reaches `target`, else `most`. It
    /// grows with the number.
    fn fewest(&mut self, target: f64, most: u32) -> u32 {
        let (mut low, mut high) = (0, most);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.decoded(middle) >= target { high = middle } else { low = middle + 1 }
        }
        low
    }

    /// Sums over the number of repairs that are lost, from the likeliest number to both sides.
    fn decoded(&mut self, repairs: u32) -> f64 {
        let likeliest = ((f64::from(repairs) + 1.0) * self.loss).min(repairs.into()) as u32;
        let weight = binomial(repairs.into(), likeliest.into(), self.loss);
        let mut sum = weight * self.decoded_by((repairs - likeliest) as usize);
        let odds = self.loss / (1.0 - self.loss);
        let mut below = weight;
        for gone in (0..likeliest).rev() {
            below *= f64::from(gone + 1) / f64::from(repairs - gone) / odds;
            sum += below * self.decoded_by((repairs - gone) as usize);
            if below < NEGLIGIBLE {
                break;
            }
        }
        let mut above = weight;
        for gone in likeliest + 1..=repairs {
            above *= f64::from(repairs - gone + 1) / f64::from(gone) * odds;
            sum += above * self.decoded_by((repairs - gone) as usize);
            if above < NEGLIGIBLE {
                break;
            }
        }
        sum.min(1.0)
    }

    fn decoded_by(&mut self, arrived: usize) -> f64 {
        #[cfg(test)]
        {
            self.steps += 1;
        }
        for next in self.by_arrivals.len()..=arrived {
            let (probabilities, most) = (&self.lost.probabilities, next.min(self.lost.probabilities.len() - 1));
            // Spare repairs beyond `ENOUGH` do not matter.
            let ample = next.checked_sub(ENOUGH).map_or(0, |lost| (lost + 1).min(probabilities.len()));
            let of = |lost: usize| probabilities[lost] * self.independent(lost, next - lost);
            let decoded = self.lost.up_to(ample) + (ample..=most).map(of).sum::<f64>();
            #[cfg(test)]
            {
                self.steps += (most + 1).saturating_sub(ample);
            }
            self.by_arrivals.push(decoded);
        }
        self.by_arrivals[arrived]
    }

    /// The probability that random columns over GF(2), each with `spare` more rows than there are columns,
    /// are independent: a column is in the span of `c` others with probability `2^(c - rows)`.
    fn independent(&self, columns: usize, spare: usize) -> f64 {
        self.full[(spare + columns).min(ENOUGH)] / self.full[spare.min(ENOUGH)]
    }
}

/// Probabilities of the number of lost source symbols.
struct Lost {
    /// By the number of lost symbols, from 0 up.
    probabilities: Vec<f64>,
    /// Their sums up to each number.
    sums: Vec<f64>,
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
        let mut sum = 0.0;
        let sums = probabilities.iter().map(|probability| {
            sum += probability;
            sum
        });
        Self { sums: sums.collect(), probabilities }
    }

    /// The probability that fewer than `count` are lost.
    fn up_to(&self, count: usize) -> f64 {
        count.checked_sub(1).map_or(0.0, |last| self.sums[last])
    }
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
        let receiver = Elimination::new(&Block::new(10, 0.1, 0.0).expect("in range"), 1.0);
        assert_eq!(f64::from(full) / 64.0, receiver.independent(2, 1));
        assert!(receiver.independent(0, 0) == 1.0 && receiver.independent(100, 20) > 1.0 - 2e-6);
    }

    /// The definition without tables: every number of lost symbols, of lost repairs and of columns.
    fn decoded_by_definition(block: &Block, repairs: u32, burst: f64) -> f64 {
        let lost = Lost::new(block, burst).probabilities;
        let independent = |columns: usize, spare: usize| -> f64 {
            (spare + 1..=(spare + columns).min(ENOUGH)).map(|j| 1.0 - (-(j as f64)).exp2()).product()
        };
        let by = |arrived: usize| -> f64 {
            let of = |(lost, probability): (usize, &f64)| {
                probability * arrived.checked_sub(lost).map_or(0.0, |spare| independent(lost, spare))
            };
            lost.iter().enumerate().map(of).sum()
        };
        (0..=repairs)
            .map(|gone| binomial(repairs.into(), gone.into(), block.loss) * by((repairs - gone) as usize))
            .sum()
    }

    #[test]
    fn the_sums_are_those_of_the_definition() {
        for (symbols, loss, burst) in
            [(1, 0.3, 1.0), (40, 0.01, 1.0), (100, 0.06, 4.0), (256, 0.5, 1.0), (256, 0.99, 32.0)]
        {
            let block = Block::new(symbols, loss, 0.0).expect("in range");
            for repairs in [0, 1, 2, 7, 20, 100, 255, 300] {
                let (sum, wanted) = (block.decoded(repairs, burst), decoded_by_definition(&block, repairs, burst));
                assert!((sum - wanted).abs() < 1e-9, "{symbols} {loss} {burst} {repairs}: {sum}, {wanted}");
            }
        }
    }

    /// A step takes some nanoseconds: 100 us at a peer's order would be 20,000 of them.
    #[test]
    fn planning_takes_a_bounded_number_of_steps() {
        for symbols in [1, 2, 32, 100, 255, 256] {
            for loss in [1e-6, 0.01, 0.1, 0.5, 0.9, 0.99] {
                for burst in [1.0, 3.0, 64.0, 512.0] {
                    let block = Block::new(symbols, loss, 0.0).expect("in range");
                    let mut receiver = Elimination::new(&block, burst);
                    let repairs = receiver.fewest(0.99, symbols.into());
                    let steps = receiver.lost.probabilities.len() + receiver.steps;
                    assert!(steps <= 80 * usize::from(symbols) + 12, "{symbols} {loss} {burst}: {steps}");
                    let plan = block.plan_for_elimination(0.99, burst).expect("in range");
                    assert_eq!(plan.repairs, repairs);
                    let is_enough = |repairs| decoded_by_definition(&block, repairs, burst) >= 0.99 - 1e-9;
                    assert!(repairs == u32::from(symbols) || is_enough(repairs));
                    assert!(repairs == 0 || !is_enough(repairs - 1), "{symbols} {loss} {burst}: {repairs}");
                }
            }
        }
    }
}
