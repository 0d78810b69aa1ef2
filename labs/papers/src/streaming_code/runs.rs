//! Runs of the points of the streaming-code paper: the same scheme without a protocol and with the real one,
//! over the paper's link.
//!
//! The experiments of this folder call it. Each function takes a [`Point`] and returns its result. Invariant:
//! nothing else influences a simulated run, so the result is the same everywhere.

use std::time::Duration;

use tidewire_figures::milliseconds;
use tidewire_proto::config::Config;
use tidewire_proto::profile::Profile;
use tidewire_proto::rate::RateControl;
use tidewire_proto::redundancy::Proactive;
use tidewire_proto::stats::Stats;
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::ideal::{self, Delays, Outcome};
use tidewire_sim::link::{Gilbert, Loss};
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::report::{Report, Trial};
use tidewire_units::Probability;

use crate::row::{How, Row};

/// The paper's link: 25 Mbit/s, 60 ms, packets of 1,500 bytes, files of 25 MB.
pub const RATE: u64 = 25_000_000;
/// Milliseconds that one packet takes.
pub const SLOT_MS: f64 = 0.48;
/// Slots of a round trip.
pub const ROUND_TRIP: usize = 125;
const ROUND_TRIP_TIME: Duration = Duration::from_millis(60);
/// Bytes of a file.
pub const FILE: u64 = 25_000_000;

/// A loss rate, with or without bursts.
#[derive(Clone, Copy, Debug)]
pub struct Losses {
    /// Fraction of packets lost.
    pub rate: f64,
    /// Mean burst, if losses are not independent.
    pub burst: Option<f64>,
}

impl Losses {
    /// Independent losses.
    pub fn iid(rate: f64) -> Self {
        Self { rate, burst: None }
    }

    /// Mean number of packets lost in a row. Independent losses have neighbours too.
    pub fn mean_burst(self) -> f64 {
        self.burst.unwrap_or(1.0 / (1.0 - self.rate))
    }

    /// The loss model for the simulator; no loss if there is no such channel, which never happens with the
    /// experiments' constants.
    pub fn simulated(self) -> Loss {
        let rate = Probability::new(self.rate).unwrap_or(Probability::ZERO);
        match self.burst {
            None => Loss::Iid(rate),
            Some(burst) => Gilbert::new(rate, burst).map_or(Loss::None, Loss::Gilbert),
        }
    }
}

/// A point of a figure: the scheme, the losses, and how much is simulated.
#[derive(Clone, Debug)]
pub struct Point {
    /// Its curve.
    pub curve: String,
    /// The scheme that carries the data.
    pub scheme: Profile,
    /// The losses of the link.
    pub losses: Losses,
    /// The figure's parameter: block size, repairs or spacing.
    pub parameter: f64,
    /// Source symbols of a run without a protocol.
    pub symbols: u64,
    /// Runs of the real protocol, with seeds from 1 on.
    pub seeds: u64,
}

impl Point {
    /// A point of two million symbols and three seeds, or of ten times the symbols and twenty seeds if
    /// `full`.
    pub fn new(curve: impl Into<String>, scheme: Profile, losses: Losses, parameter: f64, full: bool) -> Self {
        let (symbols, seeds) = if full { (20_000_000, 20) } else { (2_000_000, 3) };
        Self { curve: curve.into(), scheme, losses, parameter, symbols, seeds }
    }

    /// A row of this point.
    pub fn row(&self, how: How, value: f64) -> Row {
        Row { burst: self.losses.burst, ..Row::new(&self.curve, how, self.losses.rate, self.parameter, value) }
    }
}

/// The rows of a point: without a protocol, and with the real one if its runs succeeded.
pub fn both(point: &Point) -> Vec<Row> {
    [Some(ideal_row(point)), real_row(point)].into_iter().flatten().collect()
}

/// Runs the scheme of a point without a protocol, with feedback.
pub fn ideal(point: &Point) -> Outcome {
    let lost = ideal::losses(&point.losses.simulated(), 1);
    match point.scheme.redundancy.proactive {
        Proactive::Block { k, r } => ideal::block(k.into(), r.into(), ROUND_TRIP, point.symbols, lost),
        Proactive::Every { spacing } => ideal::streaming(spacing, ROUND_TRIP, point.symbols, lost),
        _ => ideal::retransmission(ROUND_TRIP, point.symbols, lost),
    }
}

/// The paper's link, except its rate, to which the sender keeps.
pub fn link(losses: Losses, seed: u64) -> DuplexConfig {
    let mut link = DuplexConfig::default();
    link.set_rtt(ROUND_TRIP_TIME);
    link.forward.loss = losses.simulated();
    link.set_seed(seed);
    link
}

/// The sender and the receiver of a scheme.
pub fn ends(scheme: Profile) -> [Config; 2] {
    // The paper's code mixes everything that is not acknowledged, so use the longest span of the wire format.
    let far = Config::builder().max_span(1_024);
    let near = far.clone().profile(scheme).max_overhead(1.0);
    let near = near.rate_control(RateControl::Fixed { bits_per_second: RATE });
    [near, far].map(|end| end.build().expect("the paper's settings are valid"))
}

/// Runs the real protocol once for each seed of a point: one file of 25 MB at the link's rate, no congestion.
pub fn real(point: &Point) -> Vec<Report> {
    let run = |seed: u64| {
        let mut trial = Trial::new(link(point.losses, seed), vec![Flow::bulk(End::Near, FILE)], seed);
        [trial.near, trial.far] = ends(point.scheme);
        Some(trial.run()).filter(|report| report.done && report.errors.is_empty())
    };
    (1..=point.seeds).filter_map(run).collect()
}

/// The row of a point without a protocol.
pub fn ideal_row(point: &Point) -> Row {
    let Outcome { delays, rate } = ideal(point);
    Row { rate: Some(rate), ..delay_row(point, &delays) }
}

/// The row of simulated delays, in slots.
pub fn delay_row(point: &Point, delays: &Delays) -> Row {
    let quantile = |q| Some(delays.quantile(q) as f64 * SLOT_MS);
    Row { p50: quantile(0.5), p99: quantile(0.99), ..point.row(How::Ideal, delays.mean() * SLOT_MS) }
}

/// The row of the real protocol: means over its runs; `None` if no run succeeded.
pub fn real_row(point: &Point) -> Option<Row> {
    let reports = real(point);
    let runs: Vec<_> = reports.iter().map(|report| (&report.near, &report.far)).collect();
    stats_row(point, How::Code, &runs)
}

/// The row of the statistics of senders and receivers: means over the runs; `None` if there are no runs.
pub fn stats_row(point: &Point, how: How, runs: &[(&Stats, &Stats)]) -> Option<Row> {
    if runs.is_empty() {
        return None;
    }
    let mean = |of: &dyn Fn(&Stats, &Stats) -> f64| {
        runs.iter().map(|(sender, receiver)| of(sender, receiver)).sum::<f64>() / runs.len() as f64
    };
    let quantile = |q| Some(mean(&|_, receiver| milliseconds(receiver.delay.quantile(q))));
    let rate = mean(&|sender, _| {
        let packets = &sender.packets;
        packets.source as f64 / (packets.source + packets.repair + packets.feedback_repair) as f64
    });
    let value = mean(&|_, receiver| milliseconds(receiver.delay.mean()));
    Some(Row { rate: Some(rate), p50: quantile(0.5), p99: quantile(0.99), ..point.row(how, value) })
}
