//! One run of the protocol over one link, and its result.
//!
//! A [`Trial`] is a link, two configurations, the flows and a seed. [`Trial::run`] returns a [`Report`].
//! `tidewire-lab sim`, the snapshot tables and the swarm use the same two types, so they measure the same
//! way. A caller that wants to act during a run takes the [`Run`] and advances it.

use core::time::Duration;

use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::CloseReason;
use tidewire_proto::endpoint::EndpointStats;
use tidewire_proto::stats::{DelayHistogram, Stats};

use crate::clock::Clock;
use crate::duplex::DuplexConfig;
use crate::link::LinkStats;
use crate::load::{Flow, Load};
use crate::nonces::Sealed;
use crate::pair::{Counted, End, Pair};
use crate::rebinding::Rebinding;

/// A run to be made.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Both directions of the link, with their seeds.
    pub link: DuplexConfig,
    /// The end that connects.
    pub near: Config,
    /// The end that listens.
    pub far: Config,
    /// The flows.
    pub flows: Vec<Flow>,
    /// How the near end's address changes, if it does.
    pub rebinding: Option<Rebinding>,
    /// Longest time by which results of coding jobs are late; they arrive in any order. `None` means that
    /// they arrive at once.
    pub jobs: Option<Duration>,
    /// The clock of the far end. That of the near end shows the virtual time.
    pub far_clock: Clock,
    /// The source of the endpoints' randomness and of the flows' bytes.
    pub seed: u64,
    /// The run ends after this time, whatever is left.
    pub limit: Duration,
}

impl Trial {
    /// Default endpoints over `link` with these flows, for at most ten virtual minutes.
    pub fn new(link: DuplexConfig, flows: Vec<Flow>, seed: u64) -> Self {
        let (near, far) = (Config::default(), Config::default());
        let far_clock = Clock { ahead: FAR_AHEAD, drift_ppm: 0 };
        Self { link, near, far, flows, rebinding: None, jobs: None, far_clock, seed, limit: DEFAULT_LIMIT }
    }

    /// Starts to connect. Nothing has arrived yet.
    pub fn start(&self) -> Run {
        self.start_beside(None)
    }

    /// Starts to connect over a link that shares its queues and rate with that of `other`, for [`together`].
    pub fn start_beside(&self, other: Option<&Run>) -> Run {
        self.start_with(|pair| other.into_iter().for_each(|other| pair.share_queues(&other.pair)))
    }

    /// Starts to connect at `now` through open ends, which the caller has to serve; see
    /// [`Link::open`](crate::link::Link::open).
    pub(crate) fn start_open(&self, now: Time) -> Run {
        self.start_with(|pair| {
            pair.begin_at(now);
            pair.link_mut().open();
        })
    }

    fn start_with(&self, prepare: impl FnOnce(&mut Pair)) -> Run {
        let mut pair = Pair::new(self.near.clone(), self.far.clone(), &self.link, self.seed);
        pair.set_clock(End::Far, self.far_clock);
        prepare(&mut pair);
        let mut load = Load::new(&self.flows, self.seed).with_clocks([Clock::default(), self.far_clock]);
        let began = pair.now();
        self.jobs.into_iter().for_each(|most| pair.delay_jobs(self.seed, most));
        pair.connect(&mut load);
        pair.rebind_every(self.rebinding);
        Run { pair, load, began, limit: began + self.limit, sender: busier(&self.flows) }
    }

    /// Runs until every flow has ended, an error was found, or the time is over.
    pub fn run(&self) -> Report {
        let mut run = self.start();
        run.until(run.limit);
        run.report()
    }
}

/// The end that has more to send; the near end if both have the same.
fn busier(flows: &[Flow]) -> End {
    let bytes = |end| flows.iter().filter(|flow| flow.from == end).map(|flow| flow.bytes).sum::<u64>();
    if bytes(End::Far) > bytes(End::Near) { End::Far } else { End::Near }
}

/// A trial in progress.
#[derive(Debug)]
pub struct Run {
    /// The two ends and the link.
    pub pair: Pair,
    /// The flows.
    pub load: Load,
    began: Time,
    limit: Time,
    sender: End,
}

impl Run {
    /// When the run began. The clocks of the ends do not start at zero.
    pub fn began(&self) -> Time {
        self.began
    }

    /// Advances to `at`, but not beyond the limit of the trial. Returns whether nothing is left to do.
    pub fn until(&mut self, at: Time) -> bool {
        self.pair.run(&mut self.load, at.min(self.limit), Load::is_over)
    }

    /// Statistics of one end, also after its connection ended. All zero before there is a connection.
    pub fn stats(&mut self, end: End) -> Stats {
        let endpoint = self.pair.endpoint(end);
        let live = self.load.handle(end).and_then(|handle| endpoint.connection(handle)).map(|c| c.stats());
        live.or_else(|| self.load.last_stats(end).cloned()).unwrap_or_default()
    }

    /// The result so far.
    pub fn report(&mut self) -> Report {
        let (near, far) = (self.stats(End::Near), self.stats(End::Far));
        let seconds = self.pair.now().since(self.began).as_secs_f64();
        let bytes = self.load.read();
        let settled = self.load.read_by(self.began + STEADY_AFTER);
        let steady_seconds = seconds - STEADY_AFTER.as_secs_f64();
        let bps = |bytes: u64, seconds: f64| if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 };
        let endpoints = [End::Near, End::Far].map(|end| self.pair.endpoint(end).stats());
        Report {
            done: self.load.is_done(),
            errors: self.load.errors.clone(),
            closed: self.load.closed.clone(),
            sender: self.sender,
            seconds,
            bytes,
            goodput_bps: bps(bytes, seconds),
            steady_goodput_bps: (steady_seconds > 0.0).then(|| bps(bytes - settled, steady_seconds)),
            near,
            far,
            endpoints,
            forward: *self.pair.link_mut().forward.stats(),
            back: *self.pair.link_mut().back.stats(),
            counted: self.pair.counted(),
            sealed: self.pair.sealed(),
        }
    }
}

/// Advances runs that share a link to `at`, in the order of events: the run with the earliest next event goes
/// first.
pub fn together(runs: &mut [Run], at: Time) {
    loop {
        let live = runs.iter_mut().filter(|run| !run.load.is_over());
        let next = live.filter_map(|run| Some((run.pair.next_moment()?, run))).min_by_key(|&(moment, _)| moment);
        let Some((moment, run)) = next.filter(|&(moment, _)| moment <= at) else { break };
        run.until(moment);
    }
    for run in runs {
        run.until(at);
    }
}

/// The result of a trial.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// Whether every flow arrived completely.
    pub done: bool,
    /// Errors that the oracle found; empty if all is well.
    pub errors: Vec<String>,
    /// Why the connection ended, as the near and the far end were told, if it did.
    pub closed: [Option<CloseReason>; 2],
    /// The end that had more to send.
    pub sender: End,
    /// Virtual time from the first HELLO to the last byte read.
    pub seconds: f64,
    /// Bytes of all flows that were read.
    pub bytes: u64,
    /// [`Self::bytes`] over [`Self::seconds`], in bits per second.
    pub goodput_bps: f64,
    /// The same without the first three seconds; `None` if the run was over before.
    pub steady_goodput_bps: Option<f64>,
    /// Statistics of the near end.
    pub near: Stats,
    /// Statistics of the far end.
    pub far: Stats,
    /// Datagrams that reached no connection, at the near and the far end.
    pub endpoints: [EndpointStats; 2],
    /// Counts of the link from near to far.
    pub forward: LinkStats,
    /// Counts of the link from far to near.
    pub back: LinkStats,
    /// Counts of the pair.
    pub counted: Counted,
    /// Packets that both ends sealed, and how many of them under a nonce that their key had used before. The
    /// second count must be zero.
    pub sealed: Sealed,
}

impl Report {
    /// Statistics of the end that had more to send.
    pub fn sending(&self) -> &Stats {
        if self.sender == End::Near { &self.near } else { &self.far }
    }

    /// Statistics of the other end.
    pub fn receiving(&self) -> &Stats {
        if self.sender == End::Near { &self.far } else { &self.near }
    }

    /// Counts of the link in the direction of the larger flows.
    pub fn outward(&self) -> &LinkStats {
        if self.sender == End::Near { &self.forward } else { &self.back }
    }

    /// In-order delay of the source symbols in the larger direction.
    pub fn delay(&self) -> &DelayHistogram {
        &self.receiving().delay
    }

    /// IP bytes sent for each byte delivered, in the larger direction.
    pub fn sent_per_byte(&self) -> f64 {
        self.sending().bytes.wire_sent as f64 / self.receiving().bytes.app_received.max(1) as f64
    }

    /// IP bytes sent back for each byte delivered in the larger direction. Meaningful only for flows in one
    /// direction.
    pub fn returned_per_byte(&self) -> f64 {
        self.receiving().bytes.wire_sent as f64 / self.receiving().bytes.app_received.max(1) as f64
    }
}

/// By this time the start-up of rate control is over. The steady state is measured from here on.
const STEADY_AFTER: Duration = Duration::from_secs(3);
/// Longer than any trial that makes progress. A trial without progress ends by the idle timeout long before.
const DEFAULT_LIMIT: Duration = Duration::from_secs(600);
/// Chosen: what compares the clocks of both ends is wrong by more than any delay of a trial.
const FAR_AHEAD: Duration = Duration::from_millis(7_500);

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::settings::Direction;

    #[test]
    fn a_small_flow_is_reported_whole() {
        let mut link = DuplexConfig::default();
        link.set(Direction::Both, "rate", "8mbit", Path::new("")).unwrap();
        link.set(Direction::Both, "rtt", "40ms", Path::new("")).unwrap();
        link.set(Direction::Back, "loss", "5%", Path::new("")).unwrap();
        let trial = Trial::new(link, vec![Flow::bulk(End::Far, 4_000_000), Flow::paced(End::Near, 20_000, 10_000)], 5);
        let report = trial.run();
        assert!(report.done, "{report:?}");
        assert_eq!((report.sender, report.bytes), (End::Far, 4_020_000));
        assert_eq!(report.receiving().bytes.app_received, 4_000_000);
        assert_eq!(report.delay().count(), report.near.symbols.delivered);
        assert!(report.goodput_bps < 8e6 && report.steady_goodput_bps.is_some_and(|bps| bps < 8e6));
        assert!(report.sent_per_byte() > 1.0 && report.outward().lost > 0 && report.forward.lost == 0);
        assert_eq!(report.counted.fingerprint, trial.run().counted.fingerprint);
        assert_ne!(report.counted.fingerprint, Trial { seed: 6, ..trial }.run().counted.fingerprint);
    }
}
