//! The codes of paper K without a protocol: one packet per slot, feedback exact, each innovative packet worth
//! one symbol.
//!
//! What the mathematics of `tidewire_proto::model` is held to, and the middle ground between it and the real
//! code in the papers' reproductions. Delay is in slots: the slot of a source symbol's in-order delivery
//! minus the slot that it was sent in.

mod closed;

pub use closed::{Outcome, block, block_open, retransmission, streaming};

use crate::link::{Loss, LossProcess};

/// How many source symbols waited how many slots.
#[derive(Clone, Debug, Default)]
pub struct Delays {
    counts: Vec<u64>,
}

impl Delays {
    /// Takes one delay; beyond a million slots it counts as a million.
    pub fn record(&mut self, slots: u64) {
        let slot = slots.min(LONGEST) as usize;
        if slot >= self.counts.len() {
            self.counts.resize(slot + 1, 0);
        }
        self.counts[slot] += 1;
    }

    /// Source symbols counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Arithmetic mean; NaN when nothing was counted.
    pub fn mean(&self) -> f64 {
        let sum: u64 = (0..).zip(&self.counts).map(|(slots, count)| slots * count).sum();
        sum as f64 / self.count() as f64
    }

    /// The delay that a fraction `q` does not exceed.
    pub fn quantile(&self, q: f64) -> u64 {
        let rank = (q * self.count() as f64).ceil() as u64;
        let mut below = 0;
        let found = self.counts.iter().position(|count| {
            below += count;
            below >= rank
        });
        found.unwrap_or(0) as u64
    }

    /// Delays and their counts, ascending.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        (0..).zip(self.counts.iter().copied()).filter(|&(_, count)| count > 0)
    }

    /// Both together.
    pub fn merge(&mut self, other: &Self) {
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum += count);
    }
}

/// Whether each packet in turn is lost.
pub fn losses(loss: &Loss, seed: u64) -> impl FnMut() -> bool + use<> {
    let mut process = LossProcess::new(loss, seed);
    let mut serial = 0..;
    move || serial.next().is_some_and(|serial| process.loses(serial))
}

/// The streaming code, open loop: one repair in `spacing > 1` packets, evenly placed as by the policy
/// `every`, over all that was sent.
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

/// Longest delay told apart.
const LONGEST: u64 = 1 << 20;
/// The fifth repair of `every:5` must not come a slot late.
const ROUNDING: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_waits_for_the_next_repair_that_arrives() {
        // One repair after two symbols; symbol 1 and the first repair are lost: slots 0 1 [2] 3 4 [5].
        let mut fates = [false, true, true, false, false, false].into_iter();
        let delays = open_loop(3.0, 5, || fates.next().unwrap_or(false));
        let counts: Vec<_> = delays.counts().collect();
        assert_eq!(counts, [(0, 2), (1, 1), (2, 1), (4, 1)]);
        assert_eq!((delays.mean(), delays.quantile(0.4), delays.quantile(0.5), delays.quantile(1.0)), (1.4, 0, 1, 4));
    }
}
