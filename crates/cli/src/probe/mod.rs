//! The properties of a path, and what follows from them: how `tidewire probe` measures, predicts and advises.
//!
//! The verb calls [`phase::measure`] twice, each time over a new connection, so that neither phase is
//! affected by the other. Then it calls [`outlook::predict`] and [`advice::advise`], which are functions of
//! the measured values; [`police`] recognises a policer from the packets that [`follow`] followed. The far
//! end is `tidewire bench -s`: a phase is a bench with another reader. docs/probe.md says how each figure is
//! measured. Invariant: the light phase comes first, while queues are empty and no policer limits us. Only
//! the full phase may leave a queue behind.

pub mod advice;
pub mod follow;
pub mod outlook;
pub mod phase;
pub mod police;
pub mod tradeoff;
pub mod words;

use serde::Serialize;
use tidewire::Stats;
use tidewire_figures::milliseconds;

use follow::Followed;
use police::{Dropped, Policer};
use tidewire_command::report::{RateControl, Reordering};

/// The result of one load.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Phase {
    /// `light` or `full`.
    pub name: &'static str,
    /// How long the load ran.
    pub seconds: f64,
    /// Our packets with a known fate, without those dropped at our own rate.
    pub packets: u64,
    /// Packets among them that the medium lost, which redundancy may answer.
    pub lost: u64,
    /// `lost / packets`.
    pub loss: f64,
    /// 95 % confidence interval of the medium's loss rate.
    pub loss_interval: [f64; 2],
    /// What was dropped at our own rate, with what a policer dropped.
    pub rate_control: RateControl,
    /// Runs of lost packets.
    pub bursts: Bursts,
    /// Round trips; `None` if no answer arrived.
    pub rtt_ms: Option<Spread>,
    /// IP bytes of the longest packet that passed the path.
    pub packet_bytes: u16,
    /// IP bits sent per second, after the rate was found.
    pub rate_bps: f64,
    /// Bits of records received per second.
    pub goodput_bps: f64,
    /// Reordering, as the receiving end counted it; `None` if that end does not report it.
    pub reordering: Option<Reordering>,
}

/// Runs of lost packets.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Bursts {
    /// Mean length; 1 if nothing was lost.
    pub mean: f64,
    /// Maximum length.
    pub longest: u64,
    /// Number of runs by length from 1. The last number is for 16 and more.
    pub runs: Vec<u64>,
}

/// Distribution of round trips, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Minimum.
    pub min: f64,
    /// 5th percentile.
    pub p5: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// Mean difference between consecutive round trips.
    pub jitter: f64,
}

impl Spread {
    /// The distribution of round trips in the order in which they were measured; `None` if there are none.
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
    /// Losses and packet size from the statistics of the connection.
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
            rate_control: RateControl::of(stats),
            bursts,
            packet_bytes: stats.datagram_size + IP_UDP_HEADER,
            ..Self::default()
        }
    }

    /// Counts these packets of ours, which were taken for lost, as dropped at our own rate.
    fn attribute(&mut self, dropped: Dropped) {
        let packets = dropped.packets.min(self.lost);
        self.packets -= packets;
        self.lost -= packets;
        self.loss = self.lost as f64 / self.packets.max(1) as f64;
        self.loss_interval = interval(self.lost, self.packets, self.bursts.mean);
        self.rate_control.dropped_packets += packets;
        self.rate_control.dropped_bytes += dropped.bytes;
    }

    /// Lost packets whatever the cause, and of how many.
    fn all_lost(&self) -> (u64, u64) {
        let dropped = self.rate_control.dropped_packets;
        (self.lost + dropped, self.packets + dropped)
    }

    /// Part of the packets that did not arrive, whatever the cause.
    pub fn all_loss(&self) -> f64 {
        let (lost, packets) = self.all_lost();
        lost as f64 / packets.max(1) as f64
    }

    /// Median round trip, minus the least round trip without load.
    pub fn queueing_ms(&self, light: &Self) -> Option<f64> {
        Some((self.rtt_ms?.p50 - light.rtt_ms?.min).max(0.0))
    }
}

/// The policer that both phases met, if there is one. What it dropped is then no loss of theirs.
pub fn recognise(light: (&mut Phase, &[Followed]), full: (&mut Phase, &[Followed])) -> Option<Policer> {
    let policer = police::recognise(light.1, full.1)?;
    let [of_light, of_full] = policer.dropped(light.1, full.1);
    light.0.attribute(of_light);
    full.0.attribute(of_full);
    Some(policer)
}

const IP_UDP_HEADER: u16 = tidewire_proto::path::IP_UDP_HEADER as u16;
/// Two-sided 95 % quantile of the normal distribution.
const Z: f64 = 1.96;

/// Wilson's interval for a rate (1927), valid also for few losses or none. Losses in runs count as fewer
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

/// The latest round trip of a connection with its number; `None` before the first.
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
