//! The streaming code with one repair after every `l - 1` source symbols, on a path that loses each packet
//! independently with probability `e`, without feedback and with unlimited span (Karzand, Leith, Cloud,
//! Médard: "Design of FEC for low delay in 5G", here K).
//!
//! A *group* is `l - 1` source symbols and the repair after them. The receiver's deficit is a queue: a lost
//! source symbol adds one, a received repair removes one. A *busy period* lasts from the group whose first
//! loss stops delivery to the repair that empties the queue. `S` is its length in groups, 0 for a group
//! without a lost source symbol. [`Streaming`] has the distribution of `S` and its consequences. `delay.rs`
//! has the distribution of the delay, `ending.rs` the end of a stream, and [`printed`] the formulas of the
//! paper that differ.
//!
//! The formulas hold for whole `l`. Most are analytic in `l`. At real `l` they closely describe evenly spread
//! repairs (a repair whenever the sum of `1/l` passes a whole number): the mean is within 3 % of simulation
//! for `l >= 3.3` (`crates/sim/tests/model.rs`).

pub(super) mod binomial;
mod delay;
mod ending;
pub mod printed;
#[cfg(test)]
mod tests;

use super::{OutOfModel, check};
use binomial::{binomial, stirling_error};
pub use ending::Ending;

/// The code at one loss rate and spacing. The constructor checks both, so later calls cannot fail because of
/// them.
///
/// ```
/// use tidewire_model::streaming::Streaming;
/// let code = Streaming::new(0.1, 5.0)?; // 10 % loss, one repair after four source symbols
/// assert!((code.mean_delay() - 2.603948).abs() < 1e-6);
/// assert_eq!(code.quantile(0.99), Some(36.0)); // slots
/// # Ok::<(), tidewire_model::OutOfModel>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Streaming {
    /// Loss rate, in `[0, 1)`.
    e: f64,
    /// One packet in `l` is a repair.
    l: f64,
}

impl Streaming {
    /// One repair in `spacing` packets at loss rate `loss`.
    ///
    /// # Errors
    /// [`OutOfModel`] if `loss` is not in `[0, 1)`, `spacing` is not in `(1, 4096]`, or `loss * spacing >=
    /// 1`.
    pub fn new(loss: f64, spacing: f64) -> Result<Self, OutOfModel> {
        check(loss, spacing)?;
        Ok(Self { e: loss, l: spacing })
    }

    /// Source symbols divided by all packets, `1 - 1/l`.
    pub fn rate(&self) -> f64 {
        1.0 - 1.0 / self.l
    }

    /// Capacity of the repairs that remains after the losses, `1 - l e`.
    fn slack(&self) -> f64 {
        1.0 - self.l * self.e
    }

    /// `P(S = s)`, K Theorem 1 (K-1): `(1-e)^(l-1)` at 0, else `(l-1)/s e^s (1-e)^(s(l-1)) C((s-1) l, s-1)`.
    /// Constant time.
    pub fn busy(&self, groups: u32) -> f64 {
        match groups {
            0 => self.received(self.l - 1.0),
            s => (self.l - 1.0) / f64::from(s) * self.lone_loss() * self.balance(f64::from(s - 1)),
        }
    }

    /// `P(S+ = s)`, where `S+ = max(S, 1)` counts the groups from one renewal to the next (K Corollary 1,
    /// K-4). Constant time.
    pub fn cycle(&self, groups: u32) -> f64 {
        match groups {
            0 => 0.0,
            1 => self.busy(0) + self.busy(1),
            s => self.busy(s),
        }
    }

    /// E(S) (K-2).
    pub fn mean_busy(&self) -> f64 {
        (self.l - 1.0) * self.lone_loss() / self.slack()
    }

    /// E(S²) (K-3).
    pub fn second_moment(&self) -> f64 {
        self.mean_busy() + self.spread() / self.slack().powi(3)
    }

    /// E(S³). The paper's (8) has a different bracket ([`printed::third_moment`]). This one is K-9 and agrees
    /// with direct summation.
    pub fn third_moment(&self) -> f64 {
        let (e, l) = (self.e, self.l);
        let bracket = 2.0 - 2.0 * e - l * e * e + l * l * e * e;
        self.second_moment() + self.spread() * bracket / self.slack().powi(5)
    }

    /// E(S+), the mean number of groups from one renewal to the next (K-4).
    pub fn mean_cycle(&self) -> f64 {
        self.received(self.l) / self.slack()
    }

    /// Ratio by which `P(S = s)` falls per further group, `e (1-e)^(l-1) l^l / (l-1)^(l-1)` (K-8).
    pub fn tail_ratio(&self) -> f64 {
        self.ln_tail_ratio().exp()
    }

    /// `P(S > groups)`: the fraction of groups whose losses a code that mixes only the last `groups` groups
    /// cannot repair (K section III-D). `None` beyond [`MAX_GROUPS`] groups. Takes some 30 ns per group
    /// summed, at most 3 ms.
    pub fn failure(&self, groups: u32) -> Option<f64> {
        if groups > MAX_GROUPS {
            return None;
        }
        let within: f64 = (0..=groups).map(|s| self.busy(s)).sum();
        if 1.0 - within > SUBTRACTED {
            return Some(1.0 - within);
        }
        // A small value is summed from its own terms, since a difference would lose its digits. The omitted
        // terms fall at least geometrically.
        let ratio = self.tail_ratio();
        let (mut sum, mut last) = (0.0, 0.0);
        for s in groups + 1..=groups + MAX_GROUPS {
            last = self.busy(s);
            sum += last;
            if last <= sum * f64::EPSILON * (1.0 - ratio) {
                return Some(sum);
            }
        }
        Some(sum + last * ratio / (1.0 - ratio))
    }

    /// Mean in-order delay of a source symbol in slots, exact (K-6). O(l), some 10 ns times `l`.
    pub fn mean_delay(&self) -> f64 {
        let (e, l) = (self.e, self.l);
        let whole = (l - 1.0).floor();
        let term = |j: f64| {
            let ahead = (j - 1.0) * l * (1.0 + (l - j) * e / self.slack()) - j * (j - 1.0) / 2.0;
            e * self.received(j - 1.0) * ahead
        };
        let mut early = 0.0;
        let mut j = 1.0;
        while j <= whole {
            early += term(j);
            j += 1.0;
        }
        // At real l the last term counts in proportion.
        early += (l - 1.0 - whole) * term(whole + 1.0);
        let all = l * (l - 1.0) / 2.0 * self.second_moment();
        (all - early) / ((l - 1.0) * self.mean_cycle())
    }

    /// Upper bound of the mean delay, `l E(S²) / (2 E(S+))`. It counts every symbol of a busy period as if
    /// the first loss were the first symbol. The paper's Theorem 2 has `l - 1` instead of `l`
    /// ([`printed::mean_delay_bound`]).
    pub fn mean_delay_bound(&self) -> f64 {
        self.l * self.second_moment() / (2.0 * self.mean_cycle())
    }

    /// Fraction of source symbols without delay.
    pub fn no_delay(&self) -> f64 {
        if self.e == 0.0 {
            return 1.0;
        }
        // Sum over j = 1 .. l-1 of P(the first j symbols of a group arrive), for the groups that begin with
        // an empty queue.
        let keep = 1.0 - self.e;
        let sum = keep * -((self.l - 1.0) * (-self.e).ln_1p()).exp_m1() / self.e;
        sum / ((self.l - 1.0) * self.mean_cycle())
    }

    /// Operations of the decoder per source symbol, if a busy period of `S` groups costs `3/2 S³` (K (7),
    /// K-10). Table I of the paper is this value with [`printed::operations`].
    pub fn operations(&self) -> f64 {
        self.operations_from(self.third_moment())
    }

    fn operations_from(&self, third_moment: f64) -> f64 {
        1.5 * third_moment / ((self.l - 1.0) * self.mean_cycle())
    }

    /// Probability that `n` packets in a row arrive.
    fn received(&self, n: f64) -> f64 {
        (n * (-self.e).ln_1p()).exp()
    }

    /// `e (1-e)^(l-1)`: the probability that one given packet of a group is lost and no other.
    fn lone_loss(&self) -> f64 {
        self.e * self.received(self.l - 1.0)
    }

    /// `l (l-1) e² (1-e)^l`, a term of the higher moments.
    fn spread(&self) -> f64 {
        self.l * (self.l - 1.0) * self.e * self.e * self.received(self.l)
    }

    /// `ln ρ = ln(l e) + (l-1) ln(l (1-e)/(l-1))`, expressed by the slack as the small quantity, because near
    /// capacity both terms almost cancel.
    fn ln_tail_ratio(&self) -> f64 {
        (-self.slack()).ln_1p() + (self.l - 1.0) * (self.slack() / (self.l - 1.0)).ln_1p()
    }

    /// `P(Bin(k l, e) = k)`: k groups lose exactly as many packets as their repairs can restore. Stirling's
    /// formula with its exact error avoids cancellation and allows real `l`: `ρ^k √(l / (2π k (l-1)))
    /// exp(δ(kl) - δ(k) - δ(k(l-1)))`.
    fn balance(&self, k: f64) -> f64 {
        if k == 0.0 {
            return 1.0;
        }
        let (all, kept) = (k * self.l, k * (self.l - 1.0));
        let root = (self.l / (core::f64::consts::TAU * kept)).sqrt();
        root * (k * self.ln_tail_ratio() + stirling_error(all) - stirling_error(k) - stirling_error(kept)).exp()
    }
}

/// `P(the queue empties after exactly `groups` groups)`, from `deficit` pending losses at the start of a
/// group: `(r/k) P(Bin(l k, e) = k - r)` (K Lemma 5, Tanner; K-7). Constant time.
///
/// # Errors
/// [`OutOfModel`], as in [`Streaming::new`].
pub fn passage(loss: f64, spacing: u32, deficit: u32, groups: u32) -> Result<f64, OutOfModel> {
    check(loss, spacing.into())?;
    if deficit == 0 || deficit > groups {
        return Ok(if groups == 0 && deficit == 0 { 1.0 } else { 0.0 });
    }
    let (slots, lost) = (f64::from(spacing) * f64::from(groups), f64::from(groups - deficit));
    Ok(f64::from(deficit) / f64::from(groups) * binomial(slots, lost, loss))
}

/// Longest busy period considered, in groups. At 10 % loss and one repair in nine packets the p999 of the
/// delay is 615 groups.
pub const MAX_GROUPS: u32 = 65_536;
/// Above this a difference from 1 still has 12 digits.
const SUBTRACTED: f64 = 1e-4;
