//! A loss process in continuous time, for the moments at which the recording sent nothing.
//!
//! The path is good or bad (Gilbert: Capacity of a burst-noise channel, BSTJ 39, 1960), and a packet is lost
//! if it is sent while the path is bad. The share of bad time and the time for which a state lasts are those
//! of the recorded fates. Between two recorded packets the state is drawn under the condition of both
//! ([`Process::chance`]): inside of a burst an added packet is lost too, and far from all recorded packets it
//! is lost with the mean rate. Without bursts it is lost with the mean rate everywhere.

use core::time::Duration;

use super::{NEAR, Sent};

/// The two-state process; see the module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Process {
    /// Share of the packets that were lost.
    loss: f64,
    /// Mean time between two packets in a row.
    gap: f64,
    /// Correlation of the states of two packets in a row.
    kept: f64,
}

/// Packets in a row that are equally far apart and have the same fates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub gap: Duration,
    /// Whether the first and the second were lost.
    pub lost: (bool, bool),
    /// Number of such pairs.
    pub times: u64,
}

impl Process {
    /// The process that fits these fates, which are in the order of their times.
    pub fn of(fates: &[Sent]) -> Self {
        let lost = fates.iter().filter(|sent| sent.lost).count();
        let pair = |pair: &[Sent]| Pair {
            gap: pair[1].at.saturating_sub(pair[0].at),
            lost: (pair[0].lost, pair[1].lost),
            times: 1,
        };
        Self::fit(lost as u64, fates.len() as u64, fates.windows(2).map(pair))
    }

    /// The process that fits `all` packets, of which so many were lost, and their pairs of packets in a row.
    pub fn fit(lost: u64, all: u64, pairs: impl Iterator<Item = Pair>) -> Self {
        let loss = lost as f64 / all.max(1) as f64;
        let (mut count, mut gaps, mut first, mut both) = (0u64, 0.0, 0u64, 0u64);
        for Pair { gap, lost: (before, after), times } in pairs.filter(|pair| pair.gap <= NEAR) {
            count += times;
            gaps += gap.as_secs_f64() * times as f64;
            first += if before { times } else { 0 };
            both += if before && after { times } else { 0 };
        }
        let again = both as f64 / first.max(1) as f64;
        let kept = if loss < 1.0 { ((again - loss) / (1.0 - loss)).clamp(0.0, 1.0) } else { 1.0 };
        Self { loss, gap: gaps / count.max(1) as f64, kept }
    }

    /// Mean time between two packets in a row.
    pub fn gap(&self) -> Duration {
        Duration::from_secs_f64(self.gap)
    }

    /// Probability that a packet is lost, given the fates of the packets before and after it and the times
    /// to them.
    pub fn chance(&self, before: Option<(Duration, bool)>, after: Option<(Duration, bool)>) -> f64 {
        let weight = |lost: bool| {
            let mut weight = if lost { self.loss } else { 1.0 - self.loss };
            // The chain is reversible: the past and the future of a state follow the same law.
            for (time, other) in [before, after].into_iter().flatten() {
                weight *= self.turns(lost, other, time);
            }
            weight
        };
        let (lost, carried) = (weight(true), weight(false));
        if lost + carried > 0.0 { lost / (lost + carried) } else { self.loss }
    }

    /// Probability that a state is followed by another after this time.
    fn turns(&self, from: bool, to: bool, after: Duration) -> f64 {
        // Packets of one instant are as far apart as packets in a row can be without changing their order.
        let gaps = if self.gap > 0.0 { (after.as_secs_f64() / self.gap).max(0.5) } else { 1.0 };
        let kept = self.kept.powf(gaps);
        let settled = if to { self.loss } else { 1.0 - self.loss };
        settled * (1.0 - kept) + if from == to { kept } else { 0.0 }
    }
}

#[cfg(test)]
impl Process {
    /// Whether both are equal, but for the rounding of sums.
    pub fn is_like(&self, other: &Self) -> bool {
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
        near(self.loss, other.loss) && near(self.gap, other.gap) && near(self.kept, other.kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn fates(lost: impl Fn(u32) -> bool) -> Vec<Sent> {
        (0..10_000).map(|n| Sent { at: n * MS, lost: lost(n) }).collect()
    }

    #[test]
    fn an_added_packet_is_lost_inside_of_bursts_and_seldom_beside_them() {
        // Bursts of ten packets, one in twenty.
        let bursts = Process::of(&fates(|n| n / 10 % 20 == 0));
        assert_eq!(bursts.gap(), MS);
        assert!((bursts.loss - 0.05).abs() < 0.001 && (bursts.kept - 0.89).abs() < 0.01, "{bursts:?}");
        let half = MS / 2;
        assert!(bursts.chance(Some((half, true)), Some((half, true))) > 0.95);
        assert!(bursts.chance(Some((half, false)), Some((half, false))) < 0.01);
        let edge = bursts.chance(Some((half, false)), Some((half, true)));
        assert!((0.3..0.7).contains(&edge), "{edge}");
        // Far from all, the mean rate.
        let far = bursts.chance(Some((1_000 * MS, true)), Some((1_000 * MS, true)));
        assert!((far - bursts.loss).abs() < 1e-6 && (bursts.chance(None, None) - bursts.loss).abs() < 1e-9);
    }

    #[test]
    fn without_bursts_the_neighbours_say_nothing() {
        // Every twentieth packet, so none after another.
        let single = Process::of(&fates(|n| n % 20 == 0));
        assert!((single.chance(Some((MS, true)), Some((Duration::ZERO, true))) - 0.05).abs() < 0.001);
        let all = Process::of(&fates(|_| true));
        assert_eq!(all.chance(Some((MS, true)), None), 1.0);
        let none = Process::of(&[]);
        assert_eq!(none.chance(None, None), 0.0);
    }
}
