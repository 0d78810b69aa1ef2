//! One run of the protocol over one link, and what came of it.
//!
//! A [`Trial`] is a link, two configurations, the flows and a seed; [`Trial::run`] gives a [`Report`]. The
//! same two types serve `tidewire sim`, the snapshot tables and the swarm, so that they measure alike. Who
//! wants to act in mid-run takes the [`Run`] and advances it by hand.

use core::time::Duration;

use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::CloseReason;
use tidewire_proto::endpoint::EndpointStats;
use tidewire_proto::stats::{DelayHistogram, Stats};

use crate::duplex::DuplexConfig;
use crate::link::LinkStats;
use crate::load::{Flow, Load};
use crate::nonces::Sealed;
use crate::pair::{Counted, End, Pair};
use crate::rebinding::Rebinding;

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Both directions of the link, with seeds of their own.
    pub link: DuplexConfig,
    /// The end that connects.
    pub near: Config,
    /// The end that listens.
    pub far: Config,
    /// What is sent.
    pub flows: Vec<Flow>,
    /// How the near end's address changes, if it does.
    pub rebinding: Option<Rebinding>,
    /// How late the results of coding jobs come at most; they come in any order. Without it they come at
    /// once.
    pub jobs: Option<Duration>,
    /// Where the randomness of the endpoints and the bytes of the flows come from.
    pub seed: u64,
    /// The run is over after this long, whatever is left.
    pub limit: Duration,
}

impl Trial {
    /// Default endpoints over `link` with these flows, for at most ten virtual minutes.
    pub fn new(link: DuplexConfig, flows: Vec<Flow>, seed: u64) -> Self {
        let (near, far) = (Config::default(), Config::default());
        Self { link, near, far, flows, rebinding: None, jobs: None, seed, limit: DEFAULT_LIMIT }
    }

    /// Connects; nothing has arrived yet.
    pub fn start(&self) -> Run {
        self.start_beside(None)
    }

    /// Connects over a link whose queues and rate are those of `other`, for [`together`].
    pub fn start_beside(&self, other: Option<&Run>) -> Run {
        let mut pair = Pair::new(self.near.clone(), self.far.clone(), &self.link, self.seed);
        if let Some(other) = other {
            pair.share_queues(&other.pair);
        }
        let mut load = Load::new(&self.flows, self.seed);
        let began = pair.now();
        self.jobs.into_iter().for_each(|most| pair.delay_jobs(self.seed, most));
        pair.connect(&mut load);
        pair.rebind_every(self.rebinding);
        Run { pair, load, began, limit: began + self.limit, sender: busier(&self.flows) }
    }

    /// Runs until every flow has ended, something went wrong, or the time is over.
    pub fn run(&self) -> Report {
        let mut run = self.start();
        run.until(run.limit);
        run.report()
    }
}

/// The end that has more to send; the near one when both have the same.
fn busier(flows: &[Flow]) -> End {
    let bytes = |end| flows.iter().filter(|flow| flow.from == end).map(|flow| flow.bytes).sum::<u64>();
    if bytes(End::Far) > bytes(End::Near) { End::Far } else { End::Near }
}

/// A trial under way.
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
    /// When it began: the clocks of both ends do not start at zero.
    pub fn began(&self) -> Time {
        self.began
    }

    /// Advances to `at`, but not beyond the trial's limit. Returns whether nothing is left to do.
    pub fn until(&mut self, at: Time) -> bool {
        self.pair.run(&mut self.load, at.min(self.limit), Load::is_over)
    }

    /// The counts of one end, also of a connection that is gone; nothing was counted before there was one.
    pub fn stats(&mut self, end: End) -> Stats {
        let endpoint = self.pair.endpoint(end);
        let live = self.load.handle(end).and_then(|handle| endpoint.connection(handle)).map(|c| c.stats());
        live.or_else(|| self.load.last_stats(end).cloned()).unwrap_or_default()
    }

    /// What came of it so far.
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

/// Advances runs that share a link to `at` in the order of what happens: the one whose next moment is the
/// earliest goes first.
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

/// What came of a trial.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// Every flow arrived whole.
    pub done: bool,
    /// What the oracle found wrong; empty while all is well.
    pub errors: Vec<String>,
    /// Why the connection ended, as the near and the far end saw it, if it did.
    pub closed: [Option<CloseReason>; 2],
    /// The end that had more to send.
    pub sender: End,
    /// Virtual time from the first HELLO to the last byte read.
    pub seconds: f64,
    /// Bytes of all flows that were read.
    pub bytes: u64,
    /// Bits per second of [`Self::bytes`] over [`Self::seconds`].
    pub goodput_bps: f64,
    /// The same without the first three seconds; `None` when it was over before.
    pub steady_goodput_bps: Option<f64>,
    /// What the near end counted.
    pub near: Stats,
    /// What the far end counted.
    pub far: Stats,
    /// Datagrams that reached no connection, at the near and the far end.
    pub endpoints: [EndpointStats; 2],
    /// The link from near to far.
    pub forward: LinkStats,
    /// The link from far to near.
    pub back: LinkStats,
    /// What the pair counted.
    pub counted: Counted,
    /// Packets that both ends sealed, and how many of them under a nonce that their key had used before: must
    /// be none.
    pub sealed: Sealed,
}

impl Report {
    /// The counts of the end that had more to send.
    pub fn sending(&self) -> &Stats {
        if self.sender == End::Near { &self.near } else { &self.far }
    }

    /// The counts of the other end.
    pub fn receiving(&self) -> &Stats {
        if self.sender == End::Near { &self.far } else { &self.near }
    }

    /// The way of the larger flows.
    pub fn outward(&self) -> &LinkStats {
        if self.sender == End::Near { &self.forward } else { &self.back }
    }

    /// In-order delay of the source symbols of the larger direction.
    pub fn delay(&self) -> &DelayHistogram {
        &self.receiving().delay
    }

    /// IP bytes sent for each byte delivered, in the larger direction.
    pub fn sent_per_byte(&self) -> f64 {
        self.sending().bytes.wire_sent as f64 / self.receiving().bytes.app_received.max(1) as f64
    }

    /// IP bytes that came back for each byte delivered in the larger direction; only means something for
    /// one-way flows.
    pub fn returned_per_byte(&self) -> f64 {
        self.receiving().bytes.wire_sent as f64 / self.receiving().bytes.app_received.max(1) as f64
    }
}

/// Start-up of the rate controller is over by then; the steady state is measured from 3 s on.
const STEADY_AFTER: Duration = Duration::from_secs(3);
/// Longer than any trial that makes progress; a trial that stands still ends by the idle timeout long before.
const DEFAULT_LIMIT: Duration = Duration::from_secs(600);

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
