//! Loss of a path: the loss rate with an upper confidence bound and a deviation, and the mean burst length.
//!
//! The path reports the fate of every packet in the order of sending, as soon as it is settled. The path
//! leaves out losses during a full queue, because redundancy never answers congestion.
//!
//! Two parts work together. A fading memory averages while the path stays the same. A test for change (Page's
//! CUSUM, 1954) detects when the path changes; the memory then restarts from the beginning of the change. The
//! average can therefore be long, and the estimate still follows a step within some hundred packets.

use core::cell::Cell;

/// Memory in packets for independent losses: older packets have the weight 1/e after this many. Chosen: the
/// estimate of a 10 % loss is then accurate to 1.3 percentage points (one sigma), and follows a change within
/// a second at 25 Mbit/s.
const MEMORY: f64 = 512.0;
/// Upper limit of the factor by which the memory grows for losses in bursts, since a packet then carries less
/// information ([`correlation`]). At a Gilbert loss of 10 % in bursts of 4, a memory of 512 is accurate to
/// 3.5 percentage points only, which costs 1 % of goodput on a saturated link.
const LONGEST: f64 = 8.0;
/// One-sided 95 % normal quantile of the upper bound.
const Z: f64 = 1.645;
/// Longest mean burst that the estimate reports. Beyond it the path is down rather than lossy.
const BURST_LIMIT: f64 = 64.0;

/// The test looks for a change by this factor in how often runs of losses begin. It detects a larger change
/// sooner.
const CHANGE: f64 = 3.0;
/// The test looks for an increase to at least this probability. On a nearly clean path any loss that matters
/// is a change, and a larger change needs fewer losses to be detected.
const LEAST_MORE: f64 = 0.05;
/// Log-likelihood ratio at which the test reports a change. On a path that stays the same, chance alone
/// reaches it at most once in 10,000 packets (Lorden 1971: `e^h`).
const BELIEVED: f64 = 9.2;
/// Minimum probability, in the test, that a run begins. Below it the path counts as clean despite a few
/// losses.
const RARE: f64 = 0.002;
/// Packets between two computations of the test's steps. The logarithms cost more than all other steps.
const REVIEW: u64 = 16;

/// Packets of a block over which the deviation is measured. Chosen: the order of the blocks that block codes
/// use (32 to 256 packets), and 0.03 s at 25 Mbit/s.
pub(crate) const DEVIATION_BLOCK: u32 = 64;
/// Memory of the deviation in blocks: 2,048 packets, the order of the estimator's memory. Weights of 1/32 are
/// worth 63 independent blocks, so the deviation is accurate to 9 % (one sigma, `1/sqrt(2 * 62)`).
const DEVIATION_BLOCKS: f64 = 32.0;

/// The estimate of a path's loss.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LossEstimate {
    /// Fraction of packets lost, exponentially weighted over 512 packets, more where losses come in bursts.
    pub rate: f64,
    /// Upper confidence bound of `rate` (95 %, widened for bursts).
    pub upper: f64,
    /// Standard deviation of the fraction lost in [`DEVIATION_BLOCK`] consecutive packets, exponentially
    /// weighted over 32 such blocks. It shows how far the loss of one block differs from `rate`. For blocks
    /// of n packets it is `sqrt(64 / n)` times as large, as long as n is larger than a burst. Before two
    /// blocks have passed, it is the value that `rate` and `burst` predict.
    pub(crate) deviation: f64,
    /// Mean length of a run of lost packets; 1 without any loss.
    pub burst: f64,
    /// Number of packets behind the estimate (at most 512, 4,096 where losses come in bursts).
    pub(crate) weight: f64,
}

impl LossEstimate {
    /// Estimate from `packets` packets, of which a fraction `rate` was lost in runs of mean length `burst`.
    fn of(rate: f64, burst: f64, packets: f64) -> Self {
        let deviation_over = |packets: f64| (rate * (1.0 - rate) * correlation(burst) / packets).sqrt();
        let upper = (rate + Z * deviation_over(packets)).min(1.0);
        Self { rate, upper, deviation: deviation_over(f64::from(DEVIATION_BLOCK)), burst, weight: packets }
    }

    /// The estimate after a long time on a path that always lost `rate` in runs of mean length `burst`.
    /// Predictions of a policy's behaviour use it.
    pub fn settled(rate: f64, burst: f64) -> Self {
        let burst = burst.clamp(1.0, BURST_LIMIT);
        Self::of(rate.clamp(0.0, 1.0), burst, memory(burst))
    }
}

/// Packets counted by a fading memory, or since a given moment.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    packets: f64,
    lost: f64,
    /// Runs of lost packets.
    runs: f64,
}

/// The likelihood ratio of a change since its most likely beginning.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    score: f64,
    /// Packets since that beginning.
    since: Counts,
    /// Score of a packet that follows an arrival: the first value if it arrives too, the second if it is
    /// lost.
    gain: [f64; 2],
}

/// The fraction lost in blocks of [`DEVIATION_BLOCK`] packets: its mean and variance over the last blocks.
#[derive(Clone, Copy, Debug, Default)]
struct Blocks {
    /// Packets of the current block, and how many of them were lost.
    packets: u32,
    lost: u32,
    /// Number of blocks behind mean and variance.
    weight: f64,
    mean: f64,
    variance: f64,
}

/// State of the estimator.
#[derive(Clone, Debug, Default)]
pub(crate) struct LossEstimator {
    memory: Counts,
    blocks: Blocks,
    /// The tests for a change to more losses, and to fewer.
    changes: [Change; 2],
    /// Whether the previous packet was lost.
    in_run: bool,
    total: u64,
    total_lost: u64,
    /// The estimate, until the next fate. The policies ask for it more often than fates are known.
    estimate: Cell<Option<LossEstimate>>,
}

impl Counts {
    fn add(&mut self, lost: bool, begins: bool) {
        self.packets += 1.0;
        self.lost += f64::from(u8::from(lost));
        self.runs += f64::from(u8::from(begins));
    }

    fn fade(&mut self, keep: f64) {
        self.packets *= keep;
        self.lost *= keep;
        self.runs *= keep;
    }

    fn burst(&self) -> f64 {
        if self.runs < 0.5 { 1.0 } else { (self.lost / self.runs).clamp(1.0, BURST_LIMIT) }
    }

    /// Probability that a run begins after a packet that arrived.
    fn begins(&self) -> f64 {
        (self.runs / (self.packets - self.lost + self.runs).max(1.0)).clamp(RARE, 0.5)
    }
}

impl Blocks {
    fn add(&mut self, lost: bool) {
        self.packets += 1;
        self.lost += u32::from(lost);
        if self.packets < DEVIATION_BLOCK {
            return;
        }
        let rate = f64::from(self.lost) / f64::from(self.packets);
        (self.packets, self.lost) = (0, 0);
        self.weight = (self.weight + 1.0).min(DEVIATION_BLOCKS);
        // Weighted mean and variance in one pass (West 1979).
        let (share, off) = (1.0 / self.weight, rate - self.mean);
        self.mean += share * off;
        self.variance = (1.0 - share) * (self.variance + share * off * off);
    }

    /// The standard deviation, once two blocks have passed.
    fn deviation(&self) -> Option<f64> {
        (self.weight >= 2.0).then(|| (self.variance * self.weight / (self.weight - 1.0)).sqrt())
    }
}

impl Change {
    /// Sets the probability that a run begins to `before`, and to `after` once the change has happened.
    fn expect(&mut self, before: f64, after: f64) {
        self.gain = [((1.0 - after) / (1.0 - before)).ln(), (after / before).ln()];
    }

    /// Takes the fate of a packet. Returns whether the test now reports a change.
    fn on_fate(&mut self, lost: bool, after_loss: bool) -> bool {
        let begins = lost && !after_loss;
        self.since.add(lost, begins);
        if !after_loss {
            self.score += self.gain[usize::from(begins)];
        }
        if self.score <= 0.0 {
            (self.score, self.since) = (0.0, Counts::default());
        }
        self.score >= BELIEVED
    }
}

impl LossEstimator {
    /// Takes the fate of the next packet in sending order.
    pub(crate) fn on_fate(&mut self, lost: bool) {
        self.estimate.set(None);
        if self.total.is_multiple_of(REVIEW) {
            let begins = self.memory.begins();
            self.changes[0].expect(begins, (begins * CHANGE).clamp(LEAST_MORE, 0.75));
            self.changes[1].expect(begins, begins / CHANGE);
        }
        let after_loss = core::mem::replace(&mut self.in_run, lost);
        self.memory.fade(1.0 - 1.0 / memory(self.memory.burst()));
        self.memory.add(lost, lost && !after_loss);
        self.blocks.add(lost);
        self.total += 1;
        self.total_lost += u64::from(lost);
        let [more, fewer] = &mut self.changes;
        let (more_believed, fewer_believed) = (more.on_fate(lost, after_loss), fewer.on_fate(lost, after_loss));
        if more_believed || fewer_believed {
            // A decrease began after a loss. That loss is counted too: without any loss there would be no
            // rate.
            fewer.since.add(true, true);
            self.memory = if more_believed { more.since } else { fewer.since };
            // The blocks before belong to another rate.
            self.blocks = Blocks::default();
            // The scores stay at zero until the steps are computed again.
            self.changes = [Change::default(); 2];
        }
    }

    /// A packet that was declared lost arrived after all.
    pub(crate) fn on_spurious(&mut self) {
        self.estimate.set(None);
        self.memory.lost = (self.memory.lost - 1.0).max(0.0);
        self.total_lost = self.total_lost.saturating_sub(1);
    }

    /// Fraction of all packets that were lost, for reports.
    pub(crate) fn overall(&self) -> f64 {
        if self.total == 0 { 0.0 } else { self.total_lost as f64 / self.total as f64 }
    }

    /// The current estimate.
    pub(crate) fn estimate(&self) -> LossEstimate {
        let estimate = self.estimate.get().unwrap_or_else(|| self.compute());
        self.estimate.set(Some(estimate));
        estimate
    }

    fn compute(&self) -> LossEstimate {
        let Counts { packets, lost, .. } = self.memory;
        if packets < 1.0 {
            return LossEstimate { burst: 1.0, ..LossEstimate::default() };
        }
        let predicted = LossEstimate::of((lost / packets).clamp(0.0, 1.0), self.memory.burst(), packets);
        LossEstimate { deviation: self.blocks.deviation().unwrap_or(predicted.deviation), ..predicted }
    }
}

/// Number of packets behind the estimate in the long run, where losses come in runs of mean length `burst`.
fn memory(burst: f64) -> f64 {
    MEMORY * correlation(burst).min(LONGEST)
}

/// The factor by which runs of mean length `burst` multiply the variance of the loss count, compared with
/// independent losses (Gilbert channel with a loss rate near zero). An equally good estimate needs this many
/// times more packets.
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

    /// Draws of a Gilbert channel with `loss` and mean `burst`, as in the simulator, from a linear
    /// congruential generator.
    fn draws(seed: u64, loss: f64, burst: f64) -> impl Iterator<Item = bool> {
        let (mut state, mut lost) = (seed, false);
        core::iter::repeat_with(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let next = if lost { 1.0 - 1.0 / burst } else { loss / (1.0 - loss) / burst };
            lost = ((state >> 11) as f64 / (1u64 << 53) as f64) < next;
            lost
        })
    }

    #[test]
    fn a_step_is_followed_within_some_hundred_packets() {
        // Independent losses have runs of mean length 1/(1-p).
        for (before, after, within) in [(0.0, 0.1, 100), (0.01, 0.1, 200), (0.1, 0.01, 250), (0.02, 0.3, 100)] {
            let mut late = 0;
            for seed in 0..100 {
                let mut estimator = LossEstimator::default();
                draws(seed, before, 1.0 / (1.0 - before)).take(4_000).for_each(|lost| estimator.on_fate(lost));
                draws(seed + 1_000, after, 1.0 / (1.0 - after)).take(within).for_each(|lost| estimator.on_fate(lost));
                let rate = estimator.estimate().rate;
                let near = if after > before { rate >= after / 2.0 } else { rate <= after * 4.0 };
                late += u32::from(!near);
            }
            assert!(late <= 10, "{before} to {after}: {late} of 100 later than {within} packets");
        }
    }

    #[test]
    fn the_deviation_is_that_of_blocks_of_packets() {
        let mut regular = LossEstimator::default();
        (0..10_000).for_each(|n| regular.on_fate(n % 8 == 0));
        assert!(regular.estimate().deviation < 1e-9, "{:?}", regular.estimate());
        // Independent losses have a deviation of sqrt(p(1-p)/64). Bursts multiply it by sqrt(2B-1), a little
        // less in blocks this short.
        for (loss, burst, expected) in [(0.1, 1.0 / 0.9, 0.0375), (0.02, 1.0 / 0.98, 0.0175), (0.1, 4.0, 0.0992)] {
            let deviations = (0..40).map(|seed| {
                let mut estimator = LossEstimator::default();
                draws(seed, loss, burst).take(20_000).for_each(|lost| estimator.on_fate(lost));
                estimator.estimate().deviation
            });
            let mean = deviations.sum::<f64>() / 40.0;
            assert!((0.85..1.1).contains(&(mean / expected)), "{loss} in bursts of {burst}: {mean}, not {expected}");
        }
    }

    #[test]
    fn a_step_is_no_deviation() {
        let mut estimator = LossEstimator::default();
        (0..4_000).for_each(|n| estimator.on_fate(n % 64 == 0));
        (0..4_000).for_each(|n| estimator.on_fate(n % 4 == 0));
        assert!(estimator.estimate().deviation < 0.005, "{:?}", estimator.estimate());
    }

    #[test]
    fn before_two_blocks_the_deviation_is_predicted() {
        let mut estimator = LossEstimator::default();
        (0..2 * DEVIATION_BLOCK - 1).for_each(|n| estimator.on_fate(n % 8 == 0));
        let LossEstimate { rate, burst, deviation, .. } = estimator.estimate();
        assert_eq!(deviation, LossEstimate::settled(rate, burst).deviation);
        assert!(deviation > 0.0);
    }

    #[test]
    fn what_stays_the_same_is_averaged() {
        for (loss, burst) in [(0.01, 1.0 / 0.99), (0.1, 1.0 / 0.9), (0.1, 4.0), (0.05, 8.0)] {
            let mut forgotten = 0;
            let mut off = 0.0;
            for seed in 0..20 {
                let mut estimator = LossEstimator::default();
                let mut weight = 0.0;
                for lost in draws(seed, loss, burst).take(20_000) {
                    estimator.on_fate(lost);
                    forgotten += u32::from(estimator.estimate().weight < weight - 100.0);
                    weight = estimator.estimate().weight;
                }
                off += (estimator.estimate().rate - loss) / 20.0;
            }
            println!("{loss} in runs of {burst}: {forgotten} changes believed in 400,000 packets, mean error {off}");
            assert!(forgotten <= 20 && off.abs() < loss / 4.0, "{loss} {burst}: {forgotten} {off}");
        }
    }
}
