//! Theorem 3 at finite length: the goodput of a stream that ends after a given number of groups, with and
//! without repairs at its end.
//!
//! The stream starts without deficit and renews whenever the queue is empty. It ends `a` groups into a busy
//! period with probability `u(n - a) P(S > a)`, where `u` is the renewal sequence of S+. The symbols before
//! that busy period's first loss are delivered. Those after it are not, unless enough repairs of the tail
//! arrive to cover the deficit.

use super::{Streaming, binomial};

/// The end of a stream of whole groups, for the computation of its goodput.
#[derive(Clone, Debug)]
pub struct Ending {
    code: Streaming,
    groups: u32,
    tail: u32,
    /// `u(m)`: probability that the queue is empty after `m` groups.
    empty: Vec<f64>,
    /// Probability that more symbols are missing than the `tail` repairs can restore, by deficit.
    unrepaired: Vec<f64>,
}

impl Streaming {
    /// A stream of `groups` groups, followed by `tail` repairs over all missing symbols. `None` if `l` is not
    /// whole, if the stream is longer than 65,536 packets, or if the tail is longer than the stream.
    /// O(groups² + groups l deficit): for analysis, not for policies.
    pub fn ending(&self, groups: u32, tail: u32) -> Option<Ending> {
        let packets = f64::from(groups) * self.l;
        if self.l.fract() != 0.0 || groups == 0 || packets > MAX_PACKETS || f64::from(tail) > packets {
            return None;
        }
        let cycle: Vec<f64> = (0..=groups).map(|s| self.cycle(s)).collect();
        let mut empty = vec![1.0];
        for m in 1..=groups as usize {
            let again = (1..=m).map(|s| cycle[s] * empty[m - s]).sum();
            empty.push(again);
        }
        // P(Bin(tail, 1-e) < deficit), for deficits up to the tail. For larger deficits it is certain.
        let mut fewer = 0.0;
        let unrepaired = (0..=tail)
            .map(|arrived| {
                let below = fewer;
                fewer += binomial(tail.into(), (tail - arrived).into(), self.e);
                below
            })
            .collect();
        Some(Ending { code: *self, groups, tail, empty, unrepaired })
    }
}

impl Ending {
    /// Mean of delivered source symbols divided by packets sent, including the tail.
    pub fn mean_goodput(&self) -> f64 {
        let lengths = self.code.l as u32 - 1;
        let open = self.open(|_| 1.0);
        let delivered_at_start = self.open(|first| f64::from(first - 1));
        let lost = open.iter().zip(&delivered_at_start).enumerate();
        let lost: f64 = lost.map(|(n, (open, start))| f64::from(lengths) * (n + 1) as f64 * open - start).sum();
        (f64::from(lengths) * f64::from(self.groups) - lost) / self.packets()
    }

    /// `P(GT > rate)`: the probability that more than `rate` source symbols are delivered per packet sent.
    pub fn goodput_exceeds(&self, rate: f64) -> f64 {
        let per_group = self.code.l - 1.0;
        let wanted = rate * self.packets();
        if wanted.is_nan() || wanted >= per_group * f64::from(self.groups) {
            return 0.0;
        }
        // The stream falls short: the whole groups before the busy period and the symbols before its first
        // loss do not exceed the rate.
        let open = self.open(|_| 1.0);
        let mut probability = 0.0;
        for (age, open) in (1u32..).zip(&open) {
            let before = per_group * f64::from(self.groups - age);
            let most = (wanted - before).floor() + 1.0;
            if most >= per_group {
                probability += open;
            } else if most >= 1.0 {
                probability += self.open(|first| if f64::from(first) <= most { 1.0 } else { 0.0 })[age as usize - 1];
            }
        }
        1.0 - probability
    }

    /// Probability that some symbol is missing at the end.
    pub fn incomplete(&self) -> f64 {
        self.open(|_| 1.0).iter().sum()
    }

    fn packets(&self) -> f64 {
        f64::from(self.groups) * self.code.l + f64::from(self.tail)
    }

    /// For each age 1, 2, .. of the busy period in which the stream ends: the probability of that age without
    /// repair by the tail, weighted by the position (1 .. l-1) of the busy period's first loss.
    fn open(&self, weight: impl Fn(u32) -> f64) -> Vec<f64> {
        let (length, e) = (self.code.l as u32, self.code.e);
        // By deficit at the end of the busy period's first group: the losses among the packets after its
        // first loss.
        let mut deficits = vec![0.0; length as usize];
        for first in 1..length {
            for more in 1..=length - first {
                let lost = binomial((length - first).into(), more.into(), e);
                deficits[more as usize] += weight(first) * e * self.code.received(f64::from(first - 1)) * lost;
            }
        }
        let steps: Vec<f64> = (0..=length).map(|lost| binomial(length.into(), lost.into(), e)).collect();
        let mut open = Vec::with_capacity(self.groups as usize);
        for age in 1..=self.groups {
            let missing: f64 = deficits.iter().enumerate().skip(1).map(|(q, p)| p * self.unrepaired(q)).sum();
            open.push(missing * self.empty[(self.groups - age) as usize]);
            deficits = advance(&deficits, &steps);
        }
        open
    }

    fn unrepaired(&self, deficit: usize) -> f64 {
        self.unrepaired.get(deficit).copied().unwrap_or(1.0)
    }
}

/// Deficits one group later, without those that the group's repair brings to zero.
fn advance(deficits: &[f64], steps: &[f64]) -> Vec<f64> {
    let mut next = vec![0.0; deficits.len() + steps.len() - 2];
    for (deficit, p) in deficits.iter().enumerate().skip(1).filter(|&(_, &p)| p > NEGLIGIBLE) {
        for (lost, step) in steps.iter().enumerate() {
            next[deficit + lost - 1] += p * step;
        }
    }
    let used = next.iter().rposition(|&p| p > NEGLIGIBLE).map_or(1, |last| last + 1);
    next.truncate(used);
    next[0] = 0.0;
    next
}

/// Bounds the quadratic time. The end of a longer stream has the same distribution.
const MAX_PACKETS: f64 = 65_536.0;
/// Deficits less likely than this are ignored. With 65,536 groups that is an error below 1e-14.
const NEGLIGIBLE: f64 = 1e-20;
