//! Sphinx's figures over the lab's link in real time: the schemes as programs (`forward` and `serve`), kernel
//! TCP beside them, five pairs at once, and the video.
//!
//! [`PAPER`](super::PAPER) lists the experiments. An experiment is cut into parts of at most three minutes.
//! The links are those of the simulated runs. Kernel TCP does not ask for congestion marks, as the kernel's
//! default is, so the link's queue drops its packets instead of marking them.

use std::path::Path;
use std::time::Duration;

use tidewire_figures::milliseconds;
use tidewire_lab::contest::{Contest, OURS};
use tidewire_lab::peer::Table;
use tidewire_lab::trial::{Measured, Traffic, Trial};
use tidewire_lab::video::{Showing, Transport};

use super::runs::{COUNTED, Link, OFFERED, PAIRS, SETTLE, SHARED, config, content, duplex, jain};
use super::{BLOCK, PAYLOAD, VIDEO_LINK, buffered, schemes};
use crate::lab::Runs;
use crate::row::{How, Row};
use crate::{LabCase, LabExperiment, lab_cases};

/// The experiments of the paper that are measured in real time.
pub(super) const EXPERIMENTS: [LabExperiment; 9] = [
    LabExperiment { name: "figure-9-low-loss", title: "Goodput at 0 and 2 % loss, 10 ms", cases: goodput_low },
    LabExperiment { name: "figure-9-high-loss", title: "Goodput at 4 and 6 % loss, 10 ms", cases: goodput_high },
    LabExperiment { name: "figure-9-other-rtt", title: "Goodput at 6 % loss, 1 and 50 ms", cases: goodput_rtt },
    LabExperiment { name: "figure-10-low-loss", title: "Time of a block at 0 and 2 % loss, 10 ms", cases: blocks_low },
    LabExperiment {
        name: "figure-10-high-loss",
        title: "Time of a block at 4 and 6 % loss, 10 ms",
        cases: blocks_high,
    },
    LabExperiment { name: "figure-10-other-rtt", title: "Time of a block at 6 % loss, 1 and 50 ms", cases: blocks_rtt },
    LabExperiment { name: "figure-11", title: "Buffered video over time, 2 % loss", cases: videos },
    LabExperiment { name: "pairs", title: "Five pairs on one link, 0 and 6 % loss", cases: pairs },
    LabExperiment { name: "pairs-tcp", title: "The same with kernel TCP", cases: pairs_tcp },
];

/// Peers that only this paper has.
const PEERS: &str = include_str!("peers.toml");

/// The schemes: curve of the simulated figure, name of the peer, and its kind.
const SCHEMES: [(&str, &str, How); 8] = [
    ("basic Sphinx", "sphinx-printed", How::Lab),
    ("with LT", "sphinx-lt", How::Lab),
    ("with RS", "sphinx-rs", How::Lab),
    ("without ICM", "sphinx-no-icm", How::Lab),
    ("sphinx", "sphinx", How::Lab),
    ("stream", "tidewire", How::Lab),
    ("CUBIC", "tcp-cubic", How::KernelTcp),
    ("BBR", "tcp-bbr", How::KernelTcp),
];

/// Rate of the link in Mbit/s.
const MBIT: u64 = 100;
/// Duration of a run whose goodput counts, without its first quarter.
const BULK: Duration = Duration::from_secs(8);
/// Duration of a run of single blocks, whose first quarter does not count.
const SINGLE: Duration = Duration::from_secs(6);
/// Duration and content of a video.
const SHOWN: Duration = Duration::from_secs(40);

/// A scheme over one of the links.
struct Point {
    curve: &'static str,
    peer: &'static str,
    how: How,
    link: Link,
}

/// All schemes at each loss in percent and each round trip in milliseconds.
fn points(losses: &[f64], round_trips: &[u64]) -> Vec<Point> {
    let mut points = Vec::new();
    for percent in losses {
        for &ms in round_trips {
            let link = Link { mbit: MBIT, rtt: Duration::from_millis(ms), loss: percent / 1e2 };
            points.extend(SCHEMES.map(|(curve, peer, how)| Point { curve, peer, how, link }));
        }
    }
    points
}

impl Point {
    /// Runs the peer with a load of records of `record` bytes.
    fn run(&self, runs: &mut Runs<'_>, load: Traffic, record: Option<usize>, time: Duration) -> Option<Measured> {
        let table = Table::with(PEERS, Path::new("sphinx/peers.toml")).expect("the peers of this folder are valid");
        let peer = table.named(self.peer).expect("each scheme is a peer");
        let trial = Trial { link: duplex(self.link), program: runs.program(), peer, load, record, time };
        runs.trial(&format!("{} {} ms", self.curve, self.link.rtt.as_millis()), self.link.loss, &trial)
    }

    fn row(&self, value: f64) -> Row {
        let curve = format!("{} {} ms", self.curve, self.link.rtt.as_millis());
        Row::new(curve, self.how, self.link.loss, milliseconds(self.link.rtt), value)
    }
}

fn goodput_low() -> Vec<LabCase> {
    lab_cases(points(&[0.0, 2.0], &[10]), goodput)
}

fn goodput_high() -> Vec<LabCase> {
    lab_cases(points(&[4.0, 6.0], &[10]), goodput)
}

fn goodput_rtt() -> Vec<LabCase> {
    lab_cases(points(&[6.0], &[1, 50]), goodput)
}

/// Packets per second that are delivered, and as `rate` their bits over those that the link delivers.
fn goodput(point: &Point, runs: &mut Runs<'_>) -> Vec<Row> {
    let measured = point.run(runs, Traffic::Full, None, BULK);
    let row = |Measured { goodput_bps, .. }| Row {
        rate: Some(goodput_bps / point.link.delivers()),
        ..point.row(goodput_bps / 8.0 / PAYLOAD)
    };
    measured.map(row).into_iter().collect()
}

fn blocks_low() -> Vec<LabCase> {
    lab_cases(points(&[0.0, 2.0], &[10]), blocks)
}

fn blocks_high() -> Vec<LabCase> {
    lab_cases(points(&[4.0, 6.0], &[10]), blocks)
}

fn blocks_rtt() -> Vec<LabCase> {
    lab_cases(points(&[6.0], &[1, 50]), blocks)
}

/// Time from when a block was offered to when it was read, at 65 % of the link's rate: mean and quantiles. As
/// `rate` the share of the blocks that arrived before the run ended.
fn blocks(point: &Point, runs: &mut Runs<'_>) -> Vec<Row> {
    let row = |measured: Measured| {
        // The lab's delays leave the time of one way out.
        let whole = |ms: f64| ms + milliseconds(point.link.rtt) / 2.0;
        let quantile = |q| measured.settled.quantile(q).map(whole);
        let (p50, p99) = (quantile(0.5), quantile(0.99));
        let rate = Some(measured.delivered as f64 / measured.made as f64);
        Some(Row { rate, p50, p99, ..point.row(whole(measured.settled.mean()?)) })
    };
    let measured = point.run(runs, Traffic::Share(OFFERED), Some(BLOCK as usize), SINGLE);
    measured.and_then(row).into_iter().collect()
}

fn videos() -> Vec<LabCase> {
    let ours = schemes().into_iter().filter(|(name, _)| ["basic Sphinx", "sphinx", "stream"].contains(name));
    let ours = ours.map(|(name, profile)| {
        let config = config(&profile);
        (name, How::Lab, Transport::Ours(Box::new([config.clone(), config])))
    });
    lab_cases(ours.chain([("CUBIC", How::KernelTcp, Transport::Kernel("cubic".into()))]), video)
}

/// The rows of one transport.
fn video((name, how, transport): &(&'static str, How, Transport), runs: &mut Runs<'_>) -> Vec<Row> {
    let Some(video) = content(SHOWN) else { return Vec::new() };
    let (link, loss) = (duplex(VIDEO_LINK), VIDEO_LINK.loss);
    let shown = runs.video(name, loss, &Showing { link, transport: transport.clone(), video, time: SHOWN });
    shown.map_or_else(Vec::new, |shown| buffered(name, *how, shown.viewing, SHOWN))
}

fn pairs() -> Vec<LabCase> {
    let flows = [("basic Sphinx", "sphinx:printed"), ("sphinx", "sphinx"), ("stream", "stream")];
    shared(flows.map(|(name, profile)| (name, format!("{OURS}={profile}"), How::Lab)))
}

fn pairs_tcp() -> Vec<LabCase> {
    shared(["CUBIC", "BBR"].map(|name| (name, name.to_lowercase(), How::KernelTcp)))
}

/// Five alike flows at each loss.
fn shared(flows: impl IntoIterator<Item = (&'static str, String, How)> + Clone) -> Vec<LabCase> {
    let at = |loss| flows.clone().into_iter().map(move |(name, flow, how)| (name, flow, how, loss));
    lab_cases([0.0, 0.06].into_iter().flat_map(at), |(name, flow, how, loss), runs| {
        let link = Link { loss: *loss, ..SHARED };
        let flows = vec![flow.clone(); PAIRS];
        let contest =
            Contest { link: duplex(link), program: runs.program().to_owned(), flows, settle: SETTLE, time: COUNTED };
        let Some(outcome) = runs.contest(name, *loss, &contest) else { return Vec::new() };
        let shares = outcome.goodput_bps.iter().map(|goodput| goodput / link.delivers());
        let fairness = Some(jain(&outcome.goodput_bps));
        let row = |(pair, share)| Row { rate: fairness, ..Row::new(*name, *how, *loss, f64::from(pair), share) };
        (1..).zip(shares).map(row).collect()
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
