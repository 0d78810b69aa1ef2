//! One profile over one link, in virtual time: a file, records, and TCP in a tunnel. The experiment of this
//! folder calls it. Invariant: the arguments of a run determine its result.

use std::time::Duration;

use tidewire_figures::rank::{ascending, rank};
use tidewire_proto::config::Config;
use tidewire_proto::profile::Profile;
use tidewire_sim::load::Flow;
use tidewire_sim::network::topology::{Joint, Node, Role, Topology};
use tidewire_sim::network::{Carrier, Content, Control, FlowPlan, Network, Plan, TunnelPlan};
use tidewire_sim::pair::End;
use tidewire_sim::report::Trial;

use super::links::Link;

/// Duration of a run, its start included.
const TIME: Duration = Duration::from_secs(20);
/// Records that are made in the last part of a run do not count: some of them are still on the way. Longer
/// than three round trips of the longest link.
const TAIL: Duration = Duration::from_secs(2);
/// More bytes than any run carries.
const ENDLESS: u64 = 1 << 40;
/// Bytes of a record, as in `bench` and `docs/envelope.md`.
const RECORD: u64 = 1_200;

/// What a file has.
pub(super) struct Bulk {
    /// Stream bytes per second that were read, in bits, the start included.
    pub goodput_bps: f64,
    /// IP bytes sent toward the receiver, for each byte that was read.
    pub sent: f64,
}

/// What records at half of the link's rate have.
pub(super) struct Records {
    /// Delays beyond the least one-way time, in milliseconds. A record that is missing at the end of the run
    /// has none.
    pub delays: Vec<f64>,
    /// Records that were made, except in the tail of the run.
    pub made: usize,
    /// IP bytes sent toward the receiver, for each byte that was read.
    pub sent: f64,
}

impl Records {
    /// The share that arrived.
    pub fn arrived(&self) -> f64 {
        self.delays.len() as f64 / self.made.max(1) as f64
    }

    /// The delay that the part `q` of all records that were made keeps; `None` if fewer arrived.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        self.delays.get(rank(q, self.made)).copied()
    }

    /// Mean of those that arrived.
    pub fn mean(&self) -> f64 {
        self.delays.iter().sum::<f64>() / self.delays.len().max(1) as f64
    }
}

fn config(profile: Profile) -> Config {
    // Every profile of the list is valid with the other defaults; a test runs them.
    Config::builder().profile(profile).build().expect("a named profile")
}

fn trial(profile: Profile, link: &Link, seed: u64, flow: Flow) -> Trial {
    let mut trial = Trial::new(link.duplex(seed), vec![flow], seed);
    trial.near = config(profile);
    trial.far = trial.near.clone();
    trial.limit = TIME;
    trial
}

/// A file without end.
///
/// # Panics
/// Panics if a wrong byte arrived.
pub(super) fn bulk(profile: Profile, link: &Link, seed: u64) -> Bulk {
    let report = trial(profile, link, seed, Flow::bulk(End::Near, ENDLESS)).run();
    assert!(report.errors.is_empty(), "{}: {:?}", link.name, report.errors);
    let sent = report.forward.offered_bytes as f64 / report.bytes.max(1) as f64;
    Bulk { goodput_bps: 8.0 * report.bytes as f64 / TIME.as_secs_f64(), sent }
}

/// Records of 1,200 bytes at half of the link's rate.
///
/// # Panics
/// Panics if a wrong byte arrived.
pub(super) fn records(profile: Profile, link: &Link, seed: u64) -> Records {
    let flow = Flow { record: RECORD, ..Flow::paced(End::Near, ENDLESS, link.kbit * 1_000 / 8 / 2) };
    let trial = trial(profile, link, seed, flow);
    let mut run = trial.start();
    let until = run.began() + TIME;
    run.until(until);
    let report = run.report();
    assert!(report.errors.is_empty(), "{}: {:?}", link.name, report.errors);
    let least = trial.link.forward.delay;
    // The first record is made when the connection is there.
    let counted = until.since(run.load.began().unwrap_or(until)).saturating_sub(TAIL);
    let rate = link.kbit as f64 * 1e3 / 8.0 / 2.0 / RECORD as f64;
    let arrivals = run.load.arrivals().iter().filter(|arrival| arrival.made < counted);
    let delays = ascending(arrivals.map(|arrival| arrival.delay().saturating_sub(least).as_secs_f64() * 1e3));
    let made = (counted.as_secs_f64() * rate).ceil() as usize;
    Records { delays, made, sent: report.forward.offered_bytes as f64 / report.bytes.max(1) as f64 }
}

/// Goodput in bits per second of a flow of CUBIC: in a tunnel with this profile, or without a tunnel.
///
/// # Panics
/// Panics if a wrong byte arrived.
pub(super) fn tunnel(profile: Option<Profile>, link: &Link, seed: u64) -> f64 {
    let node = |name: &str| Node { name: name.to_owned(), role: Role::Host };
    let joint = Joint { name: "link".to_owned(), nodes: [0, 1], config: link.duplex(seed) };
    let mut plan = Plan::new(seed, Topology { nodes: vec![node("near"), node("far")], links: vec![joint] });
    plan = plan.with_seed(seed);
    plan.time = Some(TIME);
    plan.tunnels.extend(profile.map(|profile| {
        let (config, settings) = (Box::new(config(profile)), Vec::new());
        TunnelPlan { name: "t".to_owned(), from: 0, to: 1, config, settings, batch: None }
    }));
    let carrier = Carrier::Tcp { control: Control::Cubic, marks: false, content: Content::Bulk { bytes: None } };
    let (name, through) = ("cubic".to_owned(), profile.map(|_| 0));
    plan.flows.push(FlowPlan { name, from: 0, to: 1, through, start: Duration::ZERO, carrier });
    let report = Network::new(&plan).run();
    let faults = report.tunnels.iter().flat_map(|tunnel| &tunnel.errors);
    let faults: Vec<_> = faults.chain(report.flows.iter().flat_map(|flow| &flow.errors)).collect();
    assert!(faults.is_empty(), "{}: {faults:?}", link.name);
    report.flows[0].goodput_bps()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_later_than_all() {
        let records = Records { delays: (1..=98).map(f64::from).collect(), made: 100, sent: 1.0 };
        assert_eq!((records.quantile(0.5), records.quantile(0.98)), (Some(50.0), Some(98.0)));
        assert_eq!((records.quantile(0.99), records.arrived()), (None, 0.98));
    }
}
