//! The samples of the delivery rate that [`super::Bbr`] keeps.

use super::tuning::RATE_ROUNDS;

/// Delivery rates in bytes per second.
#[derive(Debug)]
pub(super) struct Rates {
    /// Best rate of each of the last rounds that had a sample, and the slot of the current round.
    best: [u64; RATE_ROUNDS],
    slot: usize,
    /// Whether the current round has a sample.
    sampled: bool,
    /// The rate that start-up or a probe must exceed to go on, and the rounds in which start-up did not.
    pub full: u64,
    pub full_rounds: u32,
    /// Best acknowledged rate. Start-up ends when it stops growing.
    pub acked: u64,
    /// The rate before it fell for losses that may turn out to be the medium's.
    doubted: u64,
    /// Value of the latest dispersion sample ([`crate::path::Dispersion::slowed`]).
    pub slowed: f64,
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            best: [0; RATE_ROUNDS],
            slot: 0,
            sampled: false,
            full: 0,
            full_rounds: 0,
            acked: 0,
            doubted: 0,
            slowed: 1.0,
        }
    }
}

impl Rates {
    /// The best rate of the last rounds.
    pub fn best(&self) -> u64 {
        self.best.iter().copied().max().unwrap_or(0)
    }

    /// Adds a sample to the current round.
    pub fn add(&mut self, rate: u64) {
        self.best[self.slot] = self.best[self.slot].max(rate);
        self.sampled = true;
    }

    /// Multiplies all rates by `gain`.
    pub fn lower(&mut self, gain: f64) {
        self.best.iter_mut().for_each(|rate| *rate = (*rate as f64 * gain) as u64);
    }

    /// Lowers the rates, and remembers the rate before for [`Self::restore`].
    pub fn doubt(&mut self, gain: f64) {
        self.doubted = self.best();
        self.lower(gain);
    }

    /// Makes the rate before the last [`Self::doubt`] valid again.
    pub fn restore(&mut self) {
        self.best[self.slot] = self.best[self.slot].max(self.doubted);
    }

    /// Limits all rates to the best acknowledged one.
    pub fn limit_to_acked(&mut self) {
        let full = self.acked;
        self.best.iter_mut().for_each(|rate| *rate = (*rate).min(full));
    }

    /// Ends a round trip. A round without a sample does not age the rates.
    pub fn end_round(&mut self) {
        if core::mem::take(&mut self.sampled) {
            self.slot = (self.slot + 1) % RATE_ROUNDS;
            self.best[self.slot] = 0;
        }
    }
}
