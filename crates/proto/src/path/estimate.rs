//! How lossy the path is: loss rate with an upper confidence bound, and mean burst length.
//!
//! A fading memory averages what stays the same, and a test for change (Page's CUSUM, 1954) tells when it no longer does: what is remembered then
//! is what was seen since the change began. So the average may be long and a step is followed within some hundred packets all the same.
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

/// The change that is looked for: runs of losses begin this many times more, or less, often. A larger change is found sooner.
const CHANGE: f64 = 3.0;
/// ... but at least to this: from nearly nothing any loss that matters is a change, and a larger one sought is found with fewer losses.
const LEAST_MORE: f64 = 0.05;
/// Log-likelihood ratio at which a change is believed: on a path that stays the same chance alone reaches it once in 10,000 packets at most (Lorden 1971: `e^h`).
const BELIEVED: f64 = 9.2;
/// Least probability that a run begins, in the test: below it the path is clean, whatever the few losses.
const RARE: f64 = 0.002;
/// The test's steps are worked out anew after so many packets: logarithms cost more than all the rest.
const REVIEW: u64 = 16;

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

/// What was counted: of a fading memory, or since a moment.
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
    /// What was counted since that beginning.
    since: Counts,
    /// What the score gains by a packet after one that arrived: if that arrives too, and if it is the first of a run of losses.
    gain: [f64; 2],
}

/// Estimator state.
#[derive(Clone, Debug, Default)]
pub struct LossEstimator {
    memory: Counts,
    /// To more losses, and to fewer.
    changes: [Change; 2],
    in_run: bool,
    total: u64,
    total_lost: u64,
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

impl Change {
    /// Runs begin with probability `before`, and after the change with `after`.
    fn expect(&mut self, before: f64, after: f64) {
        self.gain = [((1.0 - after) / (1.0 - before)).ln(), (after / before).ln()];
    }

    /// Whether the change is believed now.
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
    /// The fate of the next packet in sending order.
    pub fn on_fate(&mut self, lost: bool) {
        if self.total.is_multiple_of(REVIEW) {
            let begins = self.memory.begins();
            self.changes[0].expect(begins, (begins * CHANGE).clamp(LEAST_MORE, 0.75));
            self.changes[1].expect(begins, begins / CHANGE);
        }
        let after_loss = core::mem::replace(&mut self.in_run, lost);
        self.memory.fade(1.0 - 1.0 / memory(self.memory.burst()));
        self.memory.add(lost, lost && !after_loss);
        self.total += 1;
        self.total_lost += u64::from(lost);
        let [more, fewer] = &mut self.changes;
        let (more_believed, fewer_believed) = (more.on_fate(lost, after_loss), fewer.on_fate(lost, after_loss));
        if more_believed || fewer_believed {
            // What there is less of began after a loss: that one is counted too, since none at all says no rate.
            fewer.since.add(true, true);
            self.memory = if more_believed { more.since } else { fewer.since };
            // Until the steps are worked out anew nothing is gained.
            self.changes = [Change::default(); 2];
        }
    }

    /// A packet given up as lost did arrive.
    pub fn on_spurious(&mut self) {
        self.memory.lost = (self.memory.lost - 1.0).max(0.0);
        self.total_lost = self.total_lost.saturating_sub(1);
    }

    /// Fraction lost of all packets ever: for reports.
    pub fn overall(&self) -> f64 {
        if self.total == 0 { 0.0 } else { self.total_lost as f64 / self.total as f64 }
    }

    /// The estimate now.
    pub fn estimate(&self) -> LossEstimate {
        let Counts { packets, lost, .. } = self.memory;
        if packets < 1.0 {
            return LossEstimate { rate: 0.0, upper: 0.0, burst: 1.0, weight: 0.0 };
        }
        LossEstimate::of((lost / packets).clamp(0.0, 1.0), self.memory.burst(), packets)
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

    /// Draws of a Gilbert channel: `(loss, mean burst)`, as the simulator makes them, from a linear congruential generator.
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
        // Independent losses have runs of 1/(1-p).
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
