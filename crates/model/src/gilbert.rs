//! Exact in-order delay of the streaming code under losses in bursts: the state of a Gilbert channel and the
//! deficit form a Markov chain.
//!
//! The channel is good or bad. Packets in the good state arrive and packets in the bad state are lost (paper
//! K section IV-A, K-A6): `p` is the probability of a loss after an arrival, `q` of a loss after a loss.
//! Independent losses have `p = q`. As in [`streaming`](super::streaming), a group is `l - 1` source symbols
//! and their repair.
//!
//! The deficit falls only when a repair arrives, and the channel is then good. The time in groups until the
//! deficit falls by one therefore has one generating function `x(z)` from a good start and one `y(z)` from a
//! bad start. From deficit d it is `x^d` or `y x^(d-1)`:
//!
//! `x = z (u_gg + y u_gb)`, `y = z (u_bg + y u_bb)`, where `u = M(x)^(l-1) M(1)` and `M(x) = [[1-p, p x],
//! [1-q, q x]]`
//!
//! counts lost source symbols. `x` is the only root inside the unit circle. All other results are expressions
//! in `x` and `y`. Taylor polynomials at `z = 1` give the moments, and numerical inversion gives the
//! distribution. docs/coding.md section 3 has the derivation.

use super::algebra::{Complex, Matrix, Number, Taylor, mixed_powers, power, product};
use super::inversion::{FINE, Points, QUICK, coefficient};
use super::{MAX_BURST, OutOfModel, check};

/// The code on one Gilbert channel. The constructor takes some microseconds and rejects parameters without a
/// model.
///
/// ```
/// use tidewire_model::gilbert::Gilbert;
/// let code = Gilbert::new(0.1, 4.0, 5)?; // 10 % loss in bursts of 4, one repair after four source symbols
/// assert!((code.mean_delay() - 25.6).abs() < 0.5); // slots
/// # Ok::<(), tidewire_model::OutOfModel>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gilbert {
    loss: f64,
    /// Probability of a loss after an arrival, and after a loss.
    after: [f64; 2],
    /// One packet in `length` is a repair.
    length: u32,
    /// Distribution of the channel's state before a group that begins with no deficit: good, bad.
    start: [f64; 2],
    /// Mean number of groups of a renewal beyond its first.
    further: f64,
}

/// `x(z)` and `y(z)`, for a deficit that falls by one.
#[derive(Clone, Copy)]
struct Passage<N> {
    from_good: N,
    from_bad: N,
}

impl Gilbert {
    /// One repair in `spacing` packets, loss rate `loss`, mean length `burst` of a run of losses. Independent
    /// losses have `burst = 1/(1 - loss)`.
    ///
    /// # Errors
    /// [`OutOfModel`] if `loss` is not in `[0, 1)`, `spacing` is not in `2 ..= 4096`, `loss * spacing >= 1`,
    /// or no channel has such bursts.
    pub fn new(loss: f64, burst: f64, spacing: u32) -> Result<Self, OutOfModel> {
        check(loss, spacing.into())?;
        let after_arrival = loss / (1.0 - loss) / burst;
        if !(1.0..=MAX_BURST).contains(&burst) || after_arrival > 1.0 {
            return Err(OutOfModel::Burst(burst));
        }
        let after = [after_arrival, 1.0 - 1.0 / burst];
        // No deficit and the channel is bad: only the group's repair was lost.
        let only_repair = after.map(|lost| (1.0 - lost) * (1.0 - after[0]).powi(spacing as i32 - 2) * after[0]);
        let bad = only_repair[0] / (1.0 + only_repair[0] - only_repair[1]);
        let mut code = Self { loss, after, length: spacing, start: [1.0 - bad, bad], further: 0.0 };
        code.further = code.further(code.passage_moments()).0[1];
        Ok(code)
    }

    /// Mean in-order delay of a source symbol in slots, exact. O(l): some 20 ns times `l`.
    pub fn mean_delay(&self) -> f64 {
        let passage = self.passage_moments();
        let length = f64::from(self.length);
        // E(X) and E(X (X-1)) / 2 of the groups X beyond the first. In each of them all symbols wait, X-1,
        // X-2, .. groups before the end.
        let [_, groups, pairs] = self.further(passage).0;
        let whole = (length - 1.0) * (length * pairs + length / 2.0 * groups);
        let waits = (1..self.length).map(|j| f64::from(self.length - j) * (1.0 - self.arrive(j)));
        let first = length * self.first_groups(passage, 1).0[1] + waits.sum::<f64>();
        (whole + first) / self.symbols()
    }

    /// Fraction of source symbols without delay.
    pub fn no_delay(&self) -> f64 {
        self.all_arrive() / self.symbols()
    }

    /// Mean number of groups from one moment without deficit to the next, E(S+).
    pub fn mean_cycle(&self) -> f64 {
        1.0 + self.further
    }

    /// `P(D > slots)`, the fraction of source symbols delivered later than that; `None` beyond 1,048,576
    /// groups. The absolute error is below 1e-9. Takes some 0.1 ms for any delay.
    pub fn late(&self, slots: f64) -> Option<f64> {
        self.late_to(FINE, slots)
    }

    fn late_to(&self, points: Points, slots: f64) -> Option<f64> {
        if slots.is_nan() {
            return None;
        }
        if slots < 0.0 {
            return Some(1.0);
        }
        if self.loss == 0.0 {
            return Some(0.0);
        }
        let (group, into) = (slots / f64::from(self.length), slots % f64::from(self.length));
        (group < f64::from(MAX_GROUPS)).then(|| self.late_after(points, group as u32, into as u32))
    }

    /// The delay in slots that a fraction `q` of source symbols does not exceed. `None` if `q` is not in `[0,
    /// 1 - 1e-7]`, the limit of the arithmetic, or if the delay is beyond 1,048,576 groups. Takes some 30
    /// times as long as [`Self::late`].
    pub fn quantile(&self, q: f64) -> Option<f64> {
        if !(0.0..=1.0 - MIN_LATE).contains(&q) {
            return None;
        }
        let allowed = 1.0 - q;
        if 1.0 - self.no_delay() <= allowed {
            return Some(0.0);
        }
        // Finds the first group after which enough symbols are delivered, then the first slot.
        let mut after = 1;
        while self.late_after(FINE, after, 0) > allowed {
            after *= 2;
            if after > MAX_GROUPS {
                return None;
            }
        }
        let group = first_where(after / 2, after, |m| self.late_after(FINE, m + 1, 0) <= allowed);
        let into = first_where(0, self.length - 1, |slot| self.late_after(FINE, group, slot) <= allowed);
        Some(f64::from(group) * f64::from(self.length) + f64::from(into))
    }

    /// Fraction of source symbols that wait for more than `groups` groups and `slots < l` slots.
    fn late_after(&self, points: Points, groups: u32, slots: u32) -> f64 {
        let one = Complex::from(1.0);
        let group = f64::from(self.length - 1);
        let waiting = group * (self.further + 1.0) - self.all_arrive();
        let mut last = Complex::from(0.0);
        let mut bound = 1.0;
        let inverted = coefficient(groups + 1, points, |z| {
            let passage = self.passage(z, last, bound);
            last = passage.from_good;
            if z.im == 0.0 && z.re > 0.0 {
                bound = last.re;
            }
            // Generating functions of the groups to the end of the busy period: for the symbols of groups
            // that wait as a whole, and for those in the first group.
            let whole = (one - self.further(passage)) / (one - z);
            let all = Complex::from(group) * whole + self.first_groups(passage, 1);
            let soon = match slots {
                0 => Complex::from(0.0),
                _ => Complex::from(f64::from(slots)) * whole + self.first_groups(passage, self.length - slots),
            };
            // Sums over all groups from here on, minus the symbols of this group that wait at most `slots`
            // slots.
            z * ((Complex::from(waiting) - z * all) / (one - z) - soon)
        });
        (inverted / self.symbols()).clamp(0.0, 1.0)
    }

    /// Source symbols per renewal.
    fn symbols(&self) -> f64 {
        f64::from(self.length - 1) * self.mean_cycle()
    }

    /// Probability that the first `j >= 1` symbols arrive, in a group that begins without deficit.
    fn arrive(&self, j: u32) -> f64 {
        let good = |before: usize| self.start[before] * (1.0 - self.after[before]);
        (good(0) + good(1)) * (1.0 - self.after[0]).powi(j as i32 - 1)
    }

    /// The sum of [`Self::arrive`] over a group: mean number of symbols in a renewal's first group that are
    /// delivered at once.
    fn all_arrive(&self) -> f64 {
        (1..self.length).map(|j| self.arrive(j)).sum()
    }

    /// `M(x)`: one slot, with a factor `x` for a loss.
    fn slot<N: Number>(&self, x: N) -> Matrix<N> {
        self.after.map(|lost| [N::from(1.0 - lost), N::from(lost) * x])
    }

    /// The right-hand sides of the equations for `x` and `y`, with `y` eliminated.
    fn step<N: Number>(&self, x: N, z: N) -> Passage<N> {
        let u = product(&power(&self.slot(x), self.length - 1), &self.slot(1.0.into()));
        let from_bad = z * u[1][0] / (N::from(1.0) - z * u[1][1]);
        Passage { from_good: z * (u[0][0] + from_bad * u[0][1]), from_bad }
    }

    /// `x(z)` by Steffensen's iteration from `guess`. The plain iteration converges inside the unit circle,
    /// and only the root `x` has an absolute value of at most `bound = x(|z|)`.
    fn passage(&self, z: Complex, guess: Complex, bound: f64) -> Passage<Complex> {
        let mut x = guess;
        for _ in 0..MAX_STEPS {
            let first = self.step(x, z).from_good;
            if (first - x).abs() <= PRECISION * first.abs() {
                break;
            }
            let second = self.step(first, z).from_good;
            let bend = second - first - first + x;
            let leap = x - (first - x) * (first - x) / bend;
            x = if leap.abs() <= bound * (1.0 + PRECISION) { leap } else { second };
        }
        Passage { from_good: x, from_bad: self.step(x, z).from_bad }
    }

    /// `x` and `y` around `z = 1 + t` to second order. Newton's method with the slope at 1 gains one order
    /// per step.
    fn passage_moments(&self) -> Passage<Taylor> {
        let z = Taylor([1.0, 1.0, 0.0]);
        let slope = self.step(z, 1.0.into()).from_good.0[1];
        let mut x = Taylor::from(1.0);
        for _ in 0..2 {
            x = x + (self.step(x, z).from_good - x) / Taylor::from(1.0 - slope);
        }
        Passage { from_good: x, from_bad: self.step(x, z).from_bad }
    }

    /// Generating function of the number of groups of a renewal beyond its first.
    fn further<N: Number>(&self, passage: Passage<N>) -> N {
        let whole = N::from(self.arrive(self.length - 1));
        // A group without a lost source symbol ends the renewal, whether its repair arrives or not.
        whole + (self.any_start(passage) - whole * self.repair(passage)[0]) / passage.from_good
    }

    /// Sum over the symbols `first ..= l-1` of a renewal's first group. Each term is the generating function
    /// of the groups to the end, for the case that a loss at or before the symbol makes it wait.
    fn first_groups<N: Number>(&self, passage: Passage<N>, first: u32) -> N {
        let count = self.length - first;
        // The case without a loss up to symbol j: j arrivals in a row, and any rest of the group.
        let rest = mixed_powers(&self.slot(passage.from_good), 1.0 - self.after[0], count);
        let repair = self.repair(passage);
        let clean = N::from(self.arrive(first)) * (rest[0][0] * repair[0] + rest[0][1] * repair[1]);
        (N::from(count.into()) * self.any_start(passage) - clean) / passage.from_good
    }

    /// A renewal's first group and everything after it, where each loss and the repair's slot count one
    /// passage.
    fn any_start<N: Number>(&self, passage: Passage<N>) -> N {
        let (sources, repair) = (power(&self.slot(passage.from_good), self.length - 1), self.repair(passage));
        let from = |state: usize| sources[state][0] * repair[0] + sources[state][1] * repair[1];
        N::from(self.start[0]) * from(0) + N::from(self.start[1]) * from(1)
    }

    /// The repair's slot, after a good and after a bad packet. A lost repair adds one passage from a bad
    /// start.
    fn repair<N: Number>(&self, passage: Passage<N>) -> [N; 2] {
        self.after.map(|lost| N::from(1.0 - lost) + N::from(lost) * passage.from_bad)
    }
}

/// `P(D > slots)` at a real spacing. Between two whole spacings it interpolates the logarithm. Returns 1
/// where there is no model. Accurate to 1e-6, in half the time of [`Gilbert::late`], because policies call it
/// many times per decision.
pub fn late(loss: f64, burst: f64, spacing: f64, slots: f64) -> f64 {
    let at = |spacing: f64| {
        let late = Gilbert::new(loss, burst, spacing as u32).ok().and_then(|code| code.late_to(QUICK, slots));
        late.unwrap_or(1.0).max(MIN_LATE * MIN_LATE)
    };
    let part = spacing.fract();
    if part == 0.0 || spacing.is_nan() {
        return at(spacing);
    }
    (at(spacing.floor()).ln() * (1.0 - part) + at(spacing.ceil()).ln() * part).exp()
}

/// The first value of `low .. high` for which `holds` is true; `high` if there is none. `holds` must stay
/// true for all later values.
fn first_where(low: u32, high: u32, holds: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (low, high);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// Longest busy period considered, in groups.
const MAX_GROUPS: u32 = 1 << 20;
/// Smallest probability that is used: ten times the error of the inversion.
const MIN_LATE: f64 = 1e-7;
/// Maximum number of steps. Steffensen's iteration converges in about 5 steps away from capacity; the worst
/// case needs more.
const MAX_STEPS: u32 = 64;
/// The iteration ends at this relative change of the root.
const PRECISION: f64 = 1e-15;

#[cfg(test)]
mod tests;
