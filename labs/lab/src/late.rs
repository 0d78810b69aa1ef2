//! Lateness of events: counts in steps of 10 us, which can be read while they are taken.
//!
//! The emulator counts how late each packet was handed on. The check counts how much longer packets took than
//! the link model says.

use std::time::Duration;

use tidewire_figures::Distribution;

/// Width of a step, in nanoseconds. Chosen: a thirtieth of the lateness that is allowed.
const STEP: u64 = 10_000;
/// Number of steps. Anything later counts in the last step.
const STEPS: usize = 1_000;

/// A distribution of lateness.
#[derive(Clone, Debug)]
pub struct Late {
    counts: Box<[u64; STEPS]>,
    sum: Duration,
    total: u64,
    max: Duration,
}

impl Default for Late {
    fn default() -> Self {
        Self { counts: Box::new([0; STEPS]), sum: Duration::ZERO, total: 0, max: Duration::ZERO }
    }
}

impl Late {
    /// Counts one event that was `late`.
    pub fn add(&mut self, late: Duration) {
        let step = usize::try_from(late.as_nanos() / u128::from(STEP)).unwrap_or(usize::MAX).min(STEPS - 1);
        self.counts[step] += 1;
        self.total += 1;
        self.sum += late;
        self.max = self.max.max(late);
    }

    /// The same as a distribution.
    pub fn distribution(&self) -> Distribution {
        let upper = |step: usize| Duration::from_nanos(STEP * (step as u64 + 1));
        let mean = self.sum.checked_div(u32::try_from(self.total).unwrap_or(u32::MAX)).unwrap_or_default();
        Distribution::new(self.counts.iter().enumerate().map(|(step, &count)| (upper(step), count)), mean, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_upper_ends_of_steps_and_never_above_the_latest() {
        let mut late = Late::default();
        (1..=100).for_each(|n| late.add(Duration::from_micros(n)));
        late.add(Duration::from_secs(1));
        let delays = late.distribution();
        let microseconds = |q| delays.quantile(q).map(|ms| (1e3 * ms).round());
        assert_eq!([0.5, 0.95, 1.0].map(microseconds), [Some(60.0), Some(100.0), Some(10_000.0)]);
        assert_eq!(delays.max(), Some(1_000.0));
        assert_eq!(Late::default().distribution().mean(), None);
    }
}
