//! The probability that random draws cover all lost symbols of a block, equation (4).
//!
//! The paper's sum has factorials and Stirling numbers, which overflow, and inclusion-exclusion cancels where
//! the probability is small. Here each draw advances the distribution of the number of lost symbols that no
//! draw has chosen yet: with `i` of them left, a draw from `n` symbols chooses one of them with probability
//! `i/n`. All terms are positive, so nothing cancels. Both [`Block`](super::Block)'s probabilities and its
//! search for `k` walk it.

/// The distribution of the number of lost symbols that no draw has chosen.
pub(super) struct Uncovered {
    /// Symbols that a draw chooses from.
    symbols: f64,
    /// The probability of each number. Invariant: those outside `low..=high` are 0.
    masses: Vec<f64>,
    low: usize,
    high: usize,
}

impl Uncovered {
    /// Before the first draw: all of `lost` symbols, at most `symbols`.
    pub fn new(symbols: u16, lost: u16) -> Self {
        let all = usize::from(lost);
        let mut masses = vec![0.0; all + 1];
        masses[all] = 1.0;
        Self { symbols: symbols.into(), masses, low: all, high: all }
    }

    /// The probability that this many draws leave none.
    pub fn after(mut self, draws: u32) -> f64 {
        for _ in 0..draws {
            if self.high == 0 {
                break;
            }
            self.draw();
        }
        self.covered()
    }

    /// The least number of draws after which the probability that none is left exceeds `threshold`.
    pub fn until(mut self, threshold: f64) -> u32 {
        let mut draws = 0;
        while !self.exceeds(threshold) {
            self.draw();
            draws += 1;
        }
        draws
    }

    /// Compares the smaller of the probability and its complement, because that one has more digits.
    fn exceeds(&self, threshold: f64) -> bool {
        if threshold < 0.5 { self.covered() > threshold } else { self.left() < 1.0 - threshold }
    }

    /// The probability that none is left.
    fn covered(&self) -> f64 {
        let left = self.left();
        if left < 0.5 { 1.0 - left } else { self.masses[0] }
    }

    /// The probability that some are left.
    fn left(&self) -> f64 {
        self.masses[self.low.max(1).min(self.high + 1)..=self.high].iter().sum()
    }

    fn draw(&mut self) {
        self.low = self.low.saturating_sub(1);
        for left in self.low..=self.high {
            let (stays, falls) = (self.symbols - left as f64, (left + 1) as f64);
            let above = if left < self.high { self.masses[left + 1] } else { 0.0 };
            self.masses[left] = (self.masses[left] * stays + above * falls) / self.symbols;
        }
        while self.high > 0 && self.masses[self.high] < NEGLIGIBLE {
            self.masses[self.high] = 0.0;
            self.high -= 1;
        }
        while self.low < self.high && self.masses[self.low] < NEGLIGIBLE {
            self.masses[self.low] = 0.0;
            self.low += 1;
        }
    }
}

/// Smaller probabilities count as 0, so that only the numbers near the mean cost time. The longest search
/// takes 120,000 draws and drops two of them per draw, together below 1e-34.
const NEGLIGIBLE: f64 = 1e-40;
