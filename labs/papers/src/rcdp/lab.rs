//! RCDP's figures over the lab's link in real time: the forms as programs (`forward` and `serve`), kernel TCP
//! beside them, what the programs cost, and shares of one queue.
//!
//! [`PAPER`](super::PAPER) lists the experiments. The links are those of the simulated runs, at the first
//! reading of the paper's delay.

use std::path::Path;
use std::time::Duration;

use tidewire_lab::contest::{Contest, OURS};
use tidewire_lab::peer::Table;
use tidewire_lab::trial::{Measured, Traffic, Trial, Usage};
use tidewire_sim::link::Queue;

use super::runs::{Link, duplex};
use super::{MBIT, ROUND_TRIPS};
use crate::lab::Runs;
use crate::row::{How, Row};
use crate::{LabCase, LabExperiment, lab_cases};

/// The experiments of the paper that are measured in real time.
pub(super) const EXPERIMENTS: [LabExperiment; 5] = [
    LabExperiment { name: "figure-4", title: "Throughput against bandwidth, no loss", cases: bandwidths },
    LabExperiment { name: "figure-5", title: "Throughput at 0, 1 and 5 % loss", cases: losses },
    LabExperiment { name: "figure-5-high-loss", title: "Throughput at 10 and 20 % loss", cases: high_losses },
    LabExperiment { name: "table-1", title: "Processor and memory of both programs, 50 Mbit/s", cases: costs },
    LabExperiment { name: "two-flows", title: "Shares of one queue", cases: two_flows },
];

/// Peers that only this paper has.
const PEERS: &str = include_str!("peers.toml");

/// The schemes: curve of the simulated figure, name of the peer, and its kind.
const SCHEMES: [(&str, &str, How); 6] = [
    ("basic RCDP", "rcdp-basic", How::Lab),
    ("optimised RCDP", "rcdp-optimised", How::Lab),
    ("rcdp", "rcdp", How::Lab),
    ("stream", "tidewire", How::Lab),
    ("CUBIC", "tcp-cubic", How::KernelTcp),
    ("BBR", "tcp-bbr", How::KernelTcp),
];

/// Duration of a run. Its first quarter does not count.
const TIME: Duration = Duration::from_secs(8);
/// Times of a contest: until counting begins, and of counting.
const SETTLE: Duration = Duration::from_secs(5);
const COUNTED: Duration = Duration::from_secs(15);

/// A scheme over one of the links.
struct Point {
    scheme: (&'static str, &'static str, How),
    link: Link,
    parameter: f64,
}

fn link(mbit: u64, percent: f64) -> Link {
    Link { mbit, rtt: ROUND_TRIPS[0].1, loss: percent / 1e2 }
}

/// All schemes over each link.
fn points(links: impl IntoIterator<Item = (Link, f64)>) -> impl Iterator<Item = Point> {
    links.into_iter().flat_map(|(link, parameter)| SCHEMES.map(|scheme| Point { scheme, link, parameter }))
}

impl Point {
    fn run(&self, runs: &mut Runs<'_>) -> Option<Measured> {
        let (curve, peer, _) = self.scheme;
        let table = Table::with(PEERS, Path::new("rcdp/peers.toml")).expect("the peers of this folder are valid");
        let peer = table.named(peer).expect("each scheme is a peer");
        let (link, load) = (duplex(self.link), Traffic::Full);
        let trial = Trial { link, program: runs.program(), peer, load, record: None, time: TIME };
        runs.trial(&format!("{curve} {} Mbit/s", self.link.mbit), self.link.loss, &trial)
    }

    fn row(&self, curve: impl Into<String>, value: f64) -> Row {
        Row::new(curve, self.scheme.2, self.link.loss, self.parameter, value)
    }
}

/// Bytes per second that are delivered in Mbit/s, and as `rate` their share of what the link delivers.
fn throughput(point: &Point, runs: &mut Runs<'_>) -> Vec<Row> {
    let row = |Measured { goodput_bps, .. }| Row {
        rate: Some(goodput_bps / point.link.delivers()),
        ..point.row(point.scheme.0, goodput_bps / 1e6)
    };
    point.run(runs).map(row).into_iter().collect()
}

fn bandwidths() -> Vec<LabCase> {
    lab_cases(points([10, 50, 100].map(|mbit| (link(mbit, 0.0), mbit as f64))), throughput)
}

fn losses() -> Vec<LabCase> {
    lab_cases(points([0.0, 1.0, 5.0].map(|percent| (link(MBIT, percent), percent))), throughput)
}

fn high_losses() -> Vec<LabCase> {
    lab_cases(points([10.0, 20.0].map(|percent| (link(MBIT, percent), percent))), throughput)
}

/// Share of one processor (`value`) and resident memory in MB (`rate`) of the sending and the receiving
/// program, from their start to the end of the run. `parameter` is the loss in percent.
fn costs() -> Vec<LabCase> {
    let ours = |point: &Point| point.scheme.2 == How::Lab;
    let points = points([0.0, 5.0].map(|percent| (link(MBIT, percent), percent))).filter(ours);
    lab_cases(points, |point, runs| {
        let Some(usage) = point.run(runs).and_then(|measured| measured.usage) else { return Vec::new() };
        let sides = ["sender", "receiver"].into_iter().zip(usage);
        let row = |(side, usage): (&str, Usage)| Row {
            rate: Some(usage.memory as f64 / 1e6),
            ..point.row(format!("{} {side}", point.scheme.0), usage.processor.as_secs_f64() / TIME.as_secs_f64())
        };
        sides.map(row).collect()
    })
}

/// The share of the link's rate of each of two flows; `parameter` is the time that the queue holds in ms.
fn two_flows() -> Vec<LabCase> {
    let others = [("rcdp", format!("{OURS}=rcdp")), ("CUBIC", "cubic".into()), ("BBR", "bbr".into())];
    let points = others.into_iter().flat_map(|other| [20, 40].map(|queue| (other.clone(), queue)));
    lab_cases(points, |((other, flow), queue_ms), runs| {
        let mut link = duplex(link(MBIT, 0.0));
        link.forward.queue = Some(Queue::Time(Duration::from_millis(*queue_ms)));
        let flows = vec![format!("{OURS}=rcdp"), flow.clone()];
        let contest = Contest { link, program: runs.program().to_owned(), flows, settle: SETTLE, time: COUNTED };
        let name = format!("rcdp beside {other}");
        let Some(outcome) = runs.contest(&name, 0.0, &contest) else { return Vec::new() };
        let shares: Vec<f64> = outcome.shares().collect();
        // `rate` is the share of the other flow.
        vec![Row { rate: Some(shares[1]), ..Row::new(name, How::Lab, 0.0, *queue_ms as f64, shares[0]) }]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scheme_is_a_peer_of_the_lab() {
        let table = Table::with(PEERS, Path::new("peers.toml")).unwrap();
        for (_, peer, how) in SCHEMES {
            assert_eq!(table.named(peer).unwrap().programs().is_none(), how == How::KernelTcp, "{peer}");
        }
    }
}
