//! What a path is like, and what follows from it: how `tidewire probe` measures, predicts and advises.
//!
//! The verb calls [`phase::measure`] twice, over a connection of its own each, so that neither sees what the
//! other left behind, then [`outlook::predict`] and [`advice::advise`], which are functions of what was
//! measured. The far end is `tidewire bench -s`: a phase is a bench with another reader. docs/probe.md says
//! what is measured how. Invariant: the light phase comes first, while queues are empty and whoever polices
//! the path has nothing against us; only the full phase may leave a queue behind.

pub mod advice;
pub mod outlook;
pub mod phase;
pub mod words;

use serde::Serialize;
use tidewire::Stats;
use tidewire_lab::distribution::milliseconds;

use crate::report::Reordering;

/// What one load showed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Phase {
    /// `light` or `full`.
    pub name: &'static str,
    /// How long it took.
    pub seconds: f64,
    /// Our packets whose fate is known.
    pub packets: u64,
    /// Of those, lost, of whatever cause.
    pub lost: u64,
    /// `lost / packets`.
    pub loss: f64,
    /// The interval that holds the path's own rate of loss with 95 %.
    pub loss_interval: [f64; 2],
    /// Fraction lost while no queue was long: what redundancy may answer.
    pub medium_loss: f64,
    /// Runs of lost packets.
    pub bursts: Bursts,
    /// Round trips; none when nothing was answered.
    pub rtt_ms: Option<Spread>,
    /// IP bytes of the longest packet that the path is known to take.
    pub packet_bytes: u16,
    /// IP bits that left in a second, once the rate was found.
    pub rate_bps: f64,
    /// Bits of records that arrived in a second.
    pub goodput_bps: f64,
    /// What came out of order, as counted where it came; none where that end does not say.
    pub reordering: Option<Reordering>,
}

/// Runs of lost packets.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Bursts {
    /// Mean length; 1 when nothing was lost.
    pub mean: f64,
    /// Greatest length.
    pub longest: u64,
    /// Runs by length from 1; the last are of 16 and more.
    pub runs: Vec<u64>,
}

/// How round trips are spread, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The least of all.
    pub min: f64,
    /// 5 % are shorter.
    pub p5: f64,
    /// Half are.
    pub p50: f64,
    /// 95 % are.
    pub p95: f64,
    /// Mean difference of one to the next.
    pub jitter: f64,
}

impl Spread {
    /// Of round trips in the order they were measured; `None` of nothing.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |q: f64| sorted[((q * sorted.len() as f64) as usize).min(sorted.len() - 1)];
        let changes = samples.windows(2).map(|pair| (pair[1] - pair[0]).abs());
        let jitter = changes.sum::<f64>() / (samples.len().max(2) - 1) as f64;
        (!sorted.is_empty()).then(|| Self { min: sorted[0], p5: at(0.05), p50: at(0.5), p95: at(0.95), jitter })
    }
}

impl Phase {
    /// What the statistics of its connection say of losses and packet size.
    fn of(name: &'static str, stats: &Stats) -> Self {
        let (packets, lost) = stats.loss.runs.packets();
        let bursts = Bursts {
            mean: stats.loss.runs.mean(),
            longest: stats.loss.runs.longest(),
            runs: stats.loss.runs.lengths().to_vec(),
        };
        Self {
            name,
            packets,
            lost,
            loss: lost as f64 / packets.max(1) as f64,
            loss_interval: interval(lost, packets, bursts.mean),
            medium_loss: stats.loss.rate,
            bursts,
            packet_bytes: stats.datagram_size + IP_UDP_HEADER,
            ..Self::default()
        }
    }

    /// How much longer half of the round trips were than the least without load.
    pub fn queueing_ms(&self, light: &Self) -> Option<f64> {
        Some((self.rtt_ms?.p50 - light.rtt_ms?.min).max(0.0))
    }
}

const IP_UDP_HEADER: u16 = tidewire_proto::path::IP_UDP_HEADER as u16;
/// Two-sided 95 % quantile of the normal distribution.
const Z: f64 = 1.96;

/// Wilson's interval for a rate (1927): right for few losses and for none. Losses in runs count for fewer
/// ([`tidewire_proto::path::correlation`]).
fn interval(lost: u64, packets: u64, burst: f64) -> [f64; 2] {
    if packets == 0 {
        return [0.0, 1.0];
    }
    let n = packets as f64 / tidewire_proto::path::correlation(burst);
    let rate = lost as f64 / packets as f64;
    let (middle, scale) = (rate + Z * Z / (2.0 * n), 1.0 + Z * Z / n);
    let half = Z * (rate * (1.0 - rate) / n + Z * Z / (4.0 * n * n)).sqrt();
    [((middle - half) / scale).max(0.0), ((middle + half) / scale).min(1.0)]
}

/// The latest round trip of a connection with its number; none before the first.
fn latest_rtt(stats: &Stats) -> Option<(u32, f64)> {
    (stats.rtt.samples > 0).then(|| (stats.rtt.samples, milliseconds(stats.rtt.latest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_holds_the_rate_and_narrows() {
        let [low, high] = interval(100, 1_000, 1.0);
        assert!((0.08..0.085).contains(&low) && (0.118..0.122).contains(&high), "{low} {high}");
        let wide = interval(100, 1_000, 4.0);
        assert!(wide[0] < low && wide[1] > high);
        assert!(interval(0, 5_000, 1.0)[0] == 0.0 && interval(0, 5_000, 1.0)[1] < 0.001);
        assert_eq!(interval(0, 0, 1.0), [0.0, 1.0]);
    }

    #[test]
    fn the_spread_of_round_trips() {
        let samples: Vec<f64> = (0..100).map(|n| 60.0 + f64::from(n % 2) * 4.0).collect();
        let spread = Spread::of(&samples).unwrap();
        assert_eq!((spread.min, spread.p5, spread.p95, spread.jitter), (60.0, 60.0, 64.0, 4.0));
        assert_eq!(Spread::of(&[60.0]).unwrap().jitter, 0.0);
        assert_eq!(Spread::of(&[]), None);
    }
}
