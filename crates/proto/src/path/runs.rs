//! Lengths of runs of lost packets, for reports. It keeps the whole distribution;
//! [`LossEstimator`](super::LossEstimator) keeps a mean.
//!
//! The connection reports the fate of every packet in the order of sending, once the fates of all earlier
//! packets are known. Packets that were dropped at the sender's own rate are left out. Unlike the estimator,
//! it counts what arrived while the path was congested. The estimator, not this module, decides about
//! redundancy.

/// Runs of lost packets by their length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossRuns {
    packets: u64,
    lost: u64,
    lengths: [u64; LONGEST_COUNTED],
    /// Losses since the last arrival.
    open: u64,
    longest: u64,
}

/// Runs of this length and longer are counted together. Chosen: with a mean burst of 4, one run in a hundred
/// is longer.
const LONGEST_COUNTED: usize = 16;

impl LossRuns {
    /// Takes the fate of the next packet in the order of sending.
    pub(crate) fn on_fate(&mut self, lost: bool) {
        self.packets += 1;
        if lost {
            self.lost += 1;
            self.open += 1;
            self.longest = self.longest.max(self.open);
        } else if self.open > 0 {
            self.lengths[(self.open as usize).min(LONGEST_COUNTED) - 1] += 1;
            self.open = 0;
        }
    }

    /// A packet that was declared lost arrived after all. Its run is not known. A late packet is usually late
    /// alone, so the shortest run shrinks.
    pub(crate) fn on_spurious(&mut self) {
        self.lost = self.lost.saturating_sub(1);
        if let Some(shortest) = (0..LONGEST_COUNTED).find(|&length| self.lengths[length] > 0) {
            self.lengths[shortest] -= 1;
            if let Some(rest) = shortest.checked_sub(1) {
                self.lengths[rest] += 1;
            }
        }
    }

    /// Packets whose fate is known, without those dropped at our own rate, and how many of them were lost.
    pub fn packets(&self) -> (u64, u64) {
        (self.packets, self.lost)
    }

    /// Finished runs by length, from 1; the last entry counts all runs of 16 and more.
    pub fn lengths(&self) -> &[u64] {
        &self.lengths
    }

    /// Packets lost per run; 1 without any loss.
    pub fn mean(&self) -> f64 {
        let runs = self.lengths.iter().sum::<u64>() + u64::from(self.open > 0);
        if runs == 0 { 1.0 } else { (self.lost as f64 / runs as f64).max(1.0) }
    }

    /// Length of the longest run.
    pub fn longest(&self) -> u64 {
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(fates: &str) -> LossRuns {
        let mut runs = LossRuns::default();
        fates.chars().for_each(|fate| runs.on_fate(fate == 'x'));
        runs
    }

    #[test]
    fn runs_are_counted_by_length() {
        let seen = runs(".x.xx..xx.xxxxxxxxxxxxxxxxxxxx.");
        assert_eq!((seen.packets(), seen.longest()), ((31, 25), 20));
        assert_eq!((seen.lengths()[..3].to_vec(), seen.lengths()[15]), (vec![1, 2, 0], 1));
        assert_eq!(seen.mean(), 25.0 / 4.0);
        assert_eq!((runs("...").mean(), runs(".xx").mean()), (1.0, 2.0));
    }

    #[test]
    fn what_arrives_after_all_is_taken_back() {
        let mut seen = runs(".x.xx.");
        (0..3).for_each(|_| seen.on_spurious());
        assert_eq!((seen.packets(), seen.lengths().iter().sum::<u64>(), seen.mean()), ((6, 0), 0, 1.0));
        seen.on_spurious();
        assert_eq!(seen.packets(), (6, 0));
    }
}
