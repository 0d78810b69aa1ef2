//! The codes of the streaming-code paper without a protocol: one packet per slot, exact feedback, and each
//! innovative packet worth one symbol.
//!
//! It checks the mathematics of `tidewire_model`, and stands between that and the real code in the
//! papers' reproductions. Delay is in slots: the slot in which a source symbol is delivered in order, minus
//! the slot in which it was sent.

mod closed;

pub use closed::{Outcome, block, block_open, retransmission, streaming};

use tidewire_figures::rank::quantile_of_counts;

use crate::link::{Loss, LossProcess};

/// Number of source symbols by delay in slots.
#[derive(Clone, Debug, Default)]
pub struct Delays {
    counts: Vec<u64>,
}

impl Delays {
    /// Adds one delay. Delays above a million slots count as a million.
    pub fn record(&mut self, slots: u64) {
        let slot = slots.min(LONGEST) as usize;
        if slot >= self.counts.len() {
            self.counts.resize(slot + 1, 0);
        }
        self.counts[slot] += 1;
    }

    /// Number of source symbols counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Arithmetic mean; NaN if nothing was counted.
    pub fn mean(&self) -> f64 {
        let sum: u64 = (0..).zip(&self.counts).map(|(slots, count)| slots * count).sum();
        sum as f64 / self.count() as f64
    }

    /// The delay that a fraction `q` does not exceed.
    pub fn quantile(&self, q: f64) -> u64 {
        quantile_of_counts(self.counts(), self.count(), q).unwrap_or(0)
    }

    /// Delays and their counts, ascending.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        (0..).zip(self.counts.iter().copied()).filter(|&(_, count)| count > 0)
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum += count);
    }
}

/// Tells for each packet in turn whether it is lost.
pub fn losses(loss: &Loss, seed: u64) -> impl FnMut() -> bool + use<> {
    let mut process = LossProcess::new(loss, seed);
    let mut serial = 0..;
    move || serial.next().is_some_and(|serial| process.loses(serial))
}

/// The streaming code without feedback: one repair in `spacing > 1` packets over everything that was sent,
/// evenly placed as by the policy `every`.
pub fn open_loop(spacing: f64, symbols: u64, mut lost: impl FnMut() -> bool) -> Delays {
    let mut delays = Delays::default();
    let (mut due, mut deficit, mut waiting) = (0.0, 0u64, Vec::new());
    let (mut slot, mut sent) = (0u64, 0);
    while sent < symbols {
        if due + ROUNDING >= 1.0 {
            due -= 1.0;
            deficit -= u64::from(!lost() && deficit > 0);
        } else {
            due += 1.0 / (spacing - 1.0);
            sent += 1;
            deficit += u64::from(lost());
            waiting.push(slot);
        }
        if deficit == 0 {
            waiting.drain(..).for_each(|at| delays.record(slot - at));
        }
        slot += 1;
    }
    delays
}

/// Longest delay that is counted separately.
const LONGEST: u64 = 1 << 20;
/// Tolerance for rounding: the fifth repair of `every:5` must not come a slot late.
const ROUNDING: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_waits_for_the_next_repair_that_arrives() {
        // One repair after two symbols. Symbol 1 and the first repair are lost: slots 0 1 [2] 3 4 [5].
        let mut fates = [false, true, true, false, false, false].into_iter();
        let delays = open_loop(3.0, 5, || fates.next().unwrap_or(false));
        let counts: Vec<_> = delays.counts().collect();
        assert_eq!(counts, [(0, 2), (1, 1), (2, 1), (4, 1)]);
        assert_eq!((delays.mean(), delays.quantile(0.4), delays.quantile(0.5), delays.quantile(1.0)), (1.4, 0, 1, 4));
    }
}
