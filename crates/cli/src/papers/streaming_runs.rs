//! How the experiments of the streaming-code paper are run: the same scheme without a protocol and with the real one, over the paper's link.

use std::thread;
use std::time::Duration;

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
use tidewire_sim::units::Probability;

use super::row::{How, Row};
use crate::distribution::milliseconds;

/// The paper's link: 25 Mbit/s, 60 ms, packets of 1,500 bytes, files of 25 MB.
pub const RATE: u64 = 25_000_000;
/// Milliseconds that one packet takes.
pub const SLOT_MS: f64 = 0.48;
/// Slots of a round trip.
pub const ROUND_TRIP: usize = 125;
const ROUND_TRIP_TIME: Duration = Duration::from_millis(60);
/// Bytes of a file.
pub const FILE: u64 = 25_000_000;

/// A loss rate, in bursts or not.
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

    /// For the simulator; none where there is no such channel, which the constants of the experiments never are.
    pub fn simulated(self) -> Loss {
        let rate = Probability::new(self.rate).unwrap_or(Probability::ZERO);
        match self.burst {
            None => Loss::Iid(rate),
            Some(burst) => Gilbert::new(rate, burst).map_or(Loss::None, Loss::Gilbert),
        }
    }

    /// A point at these losses.
    pub fn row(self, curve: &str, how: How, parameter: f64, value: f64) -> Row {
        Row { burst: self.burst, ..Row::new(curve, how, self.rate, parameter, value) }
    }
}

/// Runs a scheme without a protocol: so many source symbols, with feedback.
pub fn ideal(scheme: Profile, losses: Losses, symbols: u64) -> Outcome {
    let lost = ideal::losses(&losses.simulated(), 1);
    match scheme.redundancy.proactive {
        Proactive::Block { k, r } => ideal::block(k.into(), r.into(), ROUND_TRIP, symbols, lost),
        Proactive::Every { spacing } => ideal::streaming(spacing, ROUND_TRIP, symbols, lost),
        _ => ideal::retransmission(ROUND_TRIP, symbols, lost),
    }
}

/// The paper's link but for its rate, which the sender keeps to.
pub fn link(losses: Losses, seed: u64) -> DuplexConfig {
    let mut link = DuplexConfig::default();
    link.set_rtt(ROUND_TRIP_TIME);
    link.forward.loss = losses.simulated();
    link.set_seed(seed);
    link
}

/// The sender and the receiver of a scheme.
pub fn ends(scheme: Profile) -> [Config; 2] {
    let (mut near, mut far) = (Config::default(), Config::default());
    near.profile = scheme;
    near.profile.rate_control = RateControl::Fixed { bits_per_second: RATE };
    near.max_overhead = 1.0;
    // The paper's code mixes all that is not acknowledged: the longest span there is on the wire.
    (near.max_span, far.max_span) = (1_024, 1_024);
    [near, far]
}

/// Runs the real protocol once for each seed from 1 on: one file of 25 MB at the link's rate, no congestion.
pub fn real(scheme: Profile, losses: Losses, seeds: u64) -> Vec<Report> {
    let run = |seed: u64| {
        let mut trial = Trial::new(link(losses, seed), vec![Flow::bulk(End::Near, FILE)], seed);
        [trial.near, trial.far] = ends(scheme);
        trial.run().ok().filter(|report| report.done && report.errors.is_empty())
    };
    (1..=seeds).filter_map(run).collect()
}

/// A point of an outcome without a protocol.
pub fn ideal_row(curve: &str, scheme: Profile, losses: Losses, parameter: f64, symbols: u64) -> Row {
    let Outcome { delays, rate } = ideal(scheme, losses, symbols);
    Row { rate: Some(rate), ..delay_row(curve, losses, parameter, &delays) }
}

/// A point of simulated delays.
pub fn delay_row(curve: &str, losses: Losses, parameter: f64, delays: &Delays) -> Row {
    let quantile = |q| Some(delays.quantile(q) as f64 * SLOT_MS);
    let row = losses.row(curve, How::Ideal, parameter, delays.mean() * SLOT_MS);
    Row { p50: quantile(0.5), p99: quantile(0.99), ..row }
}

/// A point of the real protocol: means over its runs; none where none of them ended well.
pub fn real_row(curve: &str, scheme: Profile, losses: Losses, parameter: f64, seeds: u64) -> Option<Row> {
    let reports = real(scheme, losses, seeds);
    let runs: Vec<_> = reports.iter().map(|report| (&report.near, &report.far)).collect();
    stats_row(curve, How::Code, losses, parameter, &runs)
}

/// A point of what senders and receivers counted: means over the runs; none of none.
pub fn stats_row(curve: &str, how: How, losses: Losses, parameter: f64, runs: &[(&Stats, &Stats)]) -> Option<Row> {
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
    let row = losses.row(curve, how, parameter, value);
    Some(Row { rate: Some(rate), p50: quantile(0.5), p99: quantile(0.99), ..row })
}

/// Points worked out on two threads, in their order.
pub fn points<T: Sync>(cells: &[T], point: impl Fn(&T) -> Vec<Row> + Sync) -> Vec<Row> {
    let (even, odd): (Vec<_>, Vec<_>) = thread::scope(|scope| {
        let half = |from| cells.iter().skip(from).step_by(2);
        let (cells, point) = (half(1), &point);
        let odd = scope.spawn(move || cells.map(point).collect());
        let even = half(0).map(point).collect();
        // A panic of the other thread is this one's.
        (even, odd.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let (mut even, mut odd) = (even.into_iter(), odd.into_iter());
    let next = (0..cells.len()).filter_map(|n| if n % 2 == 0 { even.next() } else { odd.next() });
    next.flatten().collect()
}
