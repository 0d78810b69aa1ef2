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

/// The least number of draws from `symbols` symbols after which the probability that none of the `lost` is
/// left exceeds `threshold`, which is in the range of thresholds.
pub(super) fn draws_until(symbols: u16, lost: u16, threshold: f64) -> u32 {
    let (n, q) = (f64::from(symbols), f64::from(lost));
    if lost == 0 {
        return 0;
    }
    // The mean number that is left is q (1 - 1/n)^k, and at least the probability that some are.
    let missed = (-n.recip()).ln_1p();
    let mut low = u32::from(lost);
    let mut high = ((((1.0 - threshold) / q).ln() / missed).ceil() as u32).saturating_add(1).max(low);
    while low < high {
        let middle = low + (high - low) / 2;
        if exceeds(n, q, middle.into(), threshold) { high = middle } else { low = middle + 1 }
    }
    low
}

/// Whether `draws >= lost` draws leave none with a probability above `threshold`.
fn exceeds(n: f64, lost: f64, draws: f64, threshold: f64) -> bool {
    let mean = lost * (draws * (-n.recip()).ln_1p()).exp();
    // The events that a symbol was drawn are negatively associated, so the probability is at most e^-mean.
    if (-mean).exp() <= threshold {
        return false;
    }
    let (mut left, mut choose, mut sign) = (0.0, 1.0, 1.0);
    for j in 1..=lost as u32 {
        let j = f64::from(j);
        choose *= (lost - j + 1.0) / j;
        let term = choose * (draws * (-j / n).ln_1p()).exp();
        left += sign * term;
        sign = -sign;
        if j > mean && term < LAST_TERM {
            break;
        }
    }
    // Compares the smaller of the probability and its complement, because that one has more digits.
    if threshold < 0.5 { 1.0 - left > threshold * (1.0 + EQUAL) } else { left < (1.0 - threshold) * (1.0 - EQUAL) }
}

/// Probabilities that differ by a smaller part are equal, and an equal one does not exceed. With one lost
/// symbol of 100 and one draw, the probability is 0.01, and rounding may make it larger.
const EQUAL: f64 = 1e-12;
/// Smaller terms do not change a sum of which the least threshold is a part.
const LAST_TERM: f64 = 1e-18;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_finds_what_walking_finds() {
        for symbols in [1, 2, 3, 7, 20, 64, 100, 256, 1_024] {
            for lost in (1..=symbols).filter(|lost| *lost < 12 || lost % 61 == 0 || *lost == symbols) {
                for threshold in [1e-3, 0.01, 0.1, 0.5, 0.9, 0.99, 1.0 - 1e-6, 1.0 - 1e-9] {
                    let mut walked = Uncovered::new(symbols, lost);
                    let mut draws = 0;
                    let exceeds = |walked: &Uncovered| match threshold < 0.5 {
                        true => walked.covered() > threshold,
                        false => walked.left() < 1.0 - threshold,
                    };
                    while !exceeds(&walked) {
                        walked.draw();
                        draws += 1;
                    }
                    assert_eq!(draws_until(symbols, lost, threshold), draws, "{symbols} {lost} {threshold}");
                }
            }
        }
    }
}
