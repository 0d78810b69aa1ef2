//! How lossy the path is: loss rate with an upper confidence bound, and mean burst length.
//!
//! Fed with the fate of every packet in the order of sending, by the connection, once it is settled. Losses while the
//! queue was full are not given to it: redundancy never answers congestion (DESIGN section 6).

/// Memory in packets where losses are independent: old packets count 1/e after this many. Long enough that the estimate of 10 % is good to
/// 1.3 percentage points (one sigma), short enough to follow a change within a second at 25 Mbit/s. Chosen.
const MEMORY: f64 = 512.0;
/// Bursts carry less information per packet (see [`LossEstimator::estimate`]): the memory grows by that factor up to this one, so that the estimate is as
/// good. At Gilbert 10 % x 4 a memory of 512 is good to 3.5 points only, which saturated costs 1 % of goodput.
const LONGEST: f64 = 8.0;
/// One-sided 95 % normal quantile of the upper bound.
const Z: f64 = 1.645;
/// Longest mean burst that is believed: beyond it the path is down rather than lossy.
const BURST_LIMIT: f64 = 64.0;

/// What is believed of a path's loss.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LossEstimate {
    /// Fraction of packets lost, exponentially weighted over 512 packets, more where losses come in bursts.
    pub rate: f64,
    /// Upper confidence bound of `rate` (95 %, widened for bursts).
    pub upper: f64,
    /// Mean length of a run of lost packets; 1 when none was seen.
    pub burst: f64,
    /// Packets that the estimate rests on (at most 512, 4,096 where losses come in bursts).
    pub weight: f64,
}

impl LossEstimate {
    /// What `packets` fates show that lose `rate` in runs of mean length `burst`.
    fn of(rate: f64, burst: f64, packets: f64) -> Self {
        let deviation = (rate * (1.0 - rate) * correlation(burst) / packets).sqrt();
        Self { rate, upper: (rate + Z * deviation).min(1.0), burst, weight: packets }
    }

    /// What an estimator comes to on a path that has always lost `rate` in runs of mean length `burst`: for predictions of what a policy will do.
    pub fn settled(rate: f64, burst: f64) -> Self {
        let burst = burst.clamp(1.0, BURST_LIMIT);
        Self::of(rate.clamp(0.0, 1.0), burst, memory(burst))
    }
}

/// Estimator state: three exponentially fading sums.
#[derive(Clone, Debug, Default)]
pub struct LossEstimator {
    packets: f64,
    lost: f64,
    runs: f64,
    in_run: bool,
    total: u64,
    total_lost: u64,
}

impl LossEstimator {
    /// The fate of the next packet in sending order.
    pub fn on_fate(&mut self, lost: bool) {
        let keep = 1.0 - 1.0 / memory(self.burst());
        self.packets = self.packets * keep + 1.0;
        self.lost = self.lost * keep + f64::from(u8::from(lost));
        self.runs = self.runs * keep + f64::from(u8::from(lost && !self.in_run));
        self.in_run = lost;
        self.total += 1;
        self.total_lost += u64::from(lost);
    }

    /// A packet given up as lost did arrive.
    pub fn on_spurious(&mut self) {
        self.lost = (self.lost - 1.0).max(0.0);
        self.total_lost = self.total_lost.saturating_sub(1);
    }

    /// Fraction lost of all packets ever: for reports.
    pub fn overall(&self) -> f64 {
        if self.total == 0 { 0.0 } else { self.total_lost as f64 / self.total as f64 }
    }

    fn burst(&self) -> f64 {
        if self.runs < 0.5 { 1.0 } else { (self.lost / self.runs).clamp(1.0, BURST_LIMIT) }
    }

    /// The estimate now.
    pub fn estimate(&self) -> LossEstimate {
        if self.packets < 1.0 {
            return LossEstimate { rate: 0.0, upper: 0.0, burst: 1.0, weight: 0.0 };
        }
        let rate = (self.lost / self.packets).clamp(0.0, 1.0);
        LossEstimate::of(rate, self.burst(), self.packets)
    }
}

/// Packets that the estimate rests on in the long run.
fn memory(burst: f64) -> f64 {
    MEMORY * correlation(burst).min(LONGEST)
}

/// Losses that come in runs of mean length `burst` carry the information of this many times fewer independent ones: the factor by which
/// they spread the loss count of a Gilbert channel (catalogue of paper K, near capacity).
pub fn correlation(burst: f64) -> f64 {
    2.0 * burst - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_rate_and_burst_of_a_regular_pattern() {
        let mut estimator = LossEstimator::default();
        for n in 0..10_000 {
            estimator.on_fate(n % 40 < 4);
        }
        let estimate = estimator.estimate();
        assert!((estimate.rate - 0.1).abs() < 0.01, "{estimate:?}");
        assert!((estimate.burst - 4.0).abs() < 0.2, "{estimate:?}");
        assert!(estimate.upper > estimate.rate && estimate.upper < 0.2, "{estimate:?}");
        assert!((estimator.overall() - 0.1).abs() < 1e-9);
        let settled = LossEstimate::settled(0.1, 4.0);
        assert!((settled.upper / estimate.upper - 1.0).abs() < 0.05, "{settled:?} {estimate:?}");
    }

    #[test]
    fn a_clean_path_is_clean() {
        let mut estimator = LossEstimator::default();
        (0..1_000).for_each(|_| estimator.on_fate(false));
        assert_eq!(estimator.estimate().upper, 0.0);
    }

    #[test]
    fn follows_a_step_within_its_memory() {
        let mut estimator = LossEstimator::default();
        (0..5_000).for_each(|_| estimator.on_fate(false));
        (0..1_024).for_each(|n| estimator.on_fate(n % 10 == 0));
        let rate = estimator.estimate().rate;
        assert!((0.08..0.1).contains(&rate), "{rate}");
    }
}
