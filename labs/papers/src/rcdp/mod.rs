//! Báguena, Toh, Calafate, Cano, Manzoni: "RCDP: Raptor-based Content Delivery Protocol for unicast
//! communication in wireless networks for ITS", 2013: Figures 4 to 6, the equations, and a study of its rate
//! control that the paper lacks.
//!
//! [`PAPERS`](crate::PAPERS) holds [`PAPER`]. `papers/rcdp/README.md` says what the paper has and why the
//! results differ. Invariant: the arguments of a case determine its result.

#[cfg(target_os = "linux")]
mod lab;
mod runs;

use std::time::Duration;

use tidewire_proto::profile::{ARQ, Profile, STREAM, rcdp, rcdp_basic};
use tidewire_proto::rate::{RateControl, TrainSteps};

use self::runs::{CONTENT, Link, bulk, shares, wire_rates};
use crate::row::{How, Row};
use crate::{Case, Experiment, Paper, cases};

/// The paper with all its experiments.
pub const PAPER: Paper = Paper {
    name: "rcdp",
    title: "Baguena and others: RCDP, Raptor-based Content Delivery Protocol for unicast communication",
    experiments: &[
        Experiment { name: "figure-4", title: "Throughput against bandwidth, no loss", cases: figure_4 },
        Experiment { name: "figure-5", title: "Throughput against loss, 50 Mbit/s", cases: figure_5 },
        Experiment { name: "figure-6", title: "Throughput against the size of the content", cases: figure_6 },
        Experiment { name: "equations", title: "Equations (1), (4) and (5)", cases: equations },
        Experiment { name: "wire-rate", title: "Rate on the wire in windows of 100 ms", cases: windows },
        Experiment { name: "estimator", title: "Rate beside a constant rate: model and measurement", cases: estimator },
        Experiment { name: "two-flows", title: "Shares of two flows, and beside CUBIC and share", cases: two_flows },
    ],
    #[cfg(target_os = "linux")]
    lab: &lab::EXPERIMENTS,
};

/// The first reading of the paper's "10 ms end-to-end delay": one way. The second reading: the round trip.
const ROUND_TRIPS: [(&str, Duration); 2] = [("", Duration::from_millis(20)), (" 10 ms", Duration::from_millis(10))];
/// The bandwidth of Figure 5 in Mbit/s.
const MBIT: u64 = 50;
/// Symbols of a block: equation (5) for 20 ms at 50 Mbit/s.
const BLOCK: u16 = 84;

/// The paper's estimator, which does not yield to queues.
const PRINTED: RateControl = RateControl::Train(TrainSteps { yields: false, ..TrainSteps::CHOSEN });

/// The paper's protocol and its optimised form, then ours, the default, and CUBIC without a code, which
/// stands for TCP in the simulator.
fn schemes() -> [(&'static str, Profile); 5] {
    [
        ("basic RCDP", Profile { rate_control: PRINTED, ..rcdp_basic(BLOCK) }),
        ("optimised RCDP", Profile { rate_control: PRINTED, ..rcdp(BLOCK) }),
        ("rcdp", rcdp(BLOCK)),
        ("stream", STREAM),
        ("CUBIC", Profile { rate_control: RateControl::Cubic, ..ARQ }),
    ]
}

/// A scheme over a link, and what it carries.
struct Point {
    curve: String,
    profile: Profile,
    link: Link,
    parameter: f64,
    bytes: u64,
}

/// Stream bytes per second in Mbit/s, and as `rate` their share of what the link delivers.
fn throughput(point: &Point) -> Vec<Row> {
    let goodput = bulk(&point.profile, point.link, point.bytes);
    let row = Row::new(&*point.curve, How::Code, point.link.loss, point.parameter, goodput / 1e6);
    vec![Row { rate: Some(goodput / point.link.delivers()), ..row }]
}

/// Each scheme and reading of the delay over the links and bytes of `at`.
fn points(at: impl Fn(Duration) -> Vec<(Link, f64, u64)>) -> Vec<Point> {
    let mut points = Vec::new();
    for (name, profile) in schemes() {
        for (reading, rtt) in ROUND_TRIPS {
            let of =
                |(link, parameter, bytes)| Point { curve: format!("{name}{reading}"), profile, link, parameter, bytes };
            points.extend(at(rtt).into_iter().map(of));
        }
    }
    points
}

/// Duration of a transfer of Figures 4 and 5 at the full rate, in seconds.
fn seconds(full: bool) -> u64 {
    if full { 60 } else { 10 }
}

fn figure_4(full: bool) -> Vec<Case> {
    let at = |rtt| {
        let link = |mbit| (Link { mbit, rtt, loss: 0.0 }, mbit as f64, mbit * 125_000 * seconds(full));
        [10, 20, 30, 40, 50, 60, 70, 80, 90, 100].map(link).to_vec()
    };
    cases(points(at), throughput)
}

fn figure_5(full: bool) -> Vec<Case> {
    let at = |rtt| {
        let link = |percent: f64| {
            let link = Link { mbit: MBIT, rtt, loss: percent / 1e2 };
            (link, percent, MBIT * 125_000 * seconds(full))
        };
        [0.0, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0].map(link).to_vec()
    };
    cases(points(at), throughput)
}

fn figure_6(_: bool) -> Vec<Case> {
    let at = |rtt| {
        let link = Link { mbit: MBIT, rtt, loss: 0.0 };
        [100, 300, 1_000, 3_000, 10_000, 30_000, 100_000].map(|kilo| (link, kilo as f64 / 1e3, kilo * 1_000)).to_vec()
    };
    cases(points(at), throughput)
}

/// The equations: (1) for none to two symbols more than the block has, (4) in milliseconds for the chosen N
/// at rates of Figure 4, and (5) in packets for coding times of 1 to 20 ms at 50 Mbit/s.
fn equations(_: bool) -> Vec<Case> {
    const PACKET_BITS: f64 = 8.0 * 1_500.0;
    let mut all = cases([0, 1, 2], |&more| {
        vec![Row::new("(1)", How::Printed, 0.0, f64::from(more), 1.0 - 1e-2_f64.powi(more + 1))]
    });
    all.extend(cases([10.0, 50.0, 100.0], |&mbit| {
        let bits = f64::from(TrainSteps::CHOSEN.packets) * PACKET_BITS;
        vec![Row::new("(4) ms", How::Printed, 0.0, mbit, bits / (mbit * 1e3))]
    }));
    all.extend(cases([1.0, 5.0, 20.0], |&ms| {
        let bits = ms * MBIT as f64 * 1e3;
        vec![Row::new("(5) packets", How::Printed, 0.0, ms, (bits / PACKET_BITS).ceil())]
    }));
    all
}

fn windows(_: bool) -> Vec<Case> {
    let profiles = [("basic RCDP", schemes()[0].1), ("optimised RCDP", schemes()[1].1), ("rcdp", rcdp(BLOCK))];
    let points = profiles.into_iter().flat_map(|scheme| [0.0, 5.0].map(|percent| (scheme, percent / 1e2)));
    cases(points, |&((name, profile), loss)| {
        let link = Link { mbit: MBIT, rtt: ROUND_TRIPS[0].1, loss };
        let window = Duration::from_millis(100);
        let rates = wire_rates(&profile, link, window, [2, 6].map(Duration::from_secs));
        let row = |(n, rate): (u32, f64)| Row::new(name, How::Code, loss, f64::from(n) / 10.0, rate / 1e6);
        (20..).zip(rates).map(row).collect()
    })
}

/// Share of the link that the constant rate takes.
const CROSS: [f64; 6] = [0.0, 0.1, 0.25, 0.5, 0.65, 0.75];

fn estimator(_: bool) -> Vec<Case> {
    cases(CROSS, |&cross| {
        let TrainSteps { alpha_percent, beta_percent, .. } = TrainSteps::CHOSEN;
        let [alpha, beta] = [alpha_percent, beta_percent].map(|percent| f64::from(percent) / 1e2);
        let link = Link { mbit: MBIT, rtt: ROUND_TRIPS[0].1, loss: 0.0 };
        let mut rows = vec![
            Row::new("printed fixed point", How::Model, 0.0, cross, beta - alpha * cross),
            Row::new("available", How::Model, 0.0, cross, 1.0 - cross),
        ];
        let others: Vec<Profile> = (cross > 0.0)
            .then(|| {
                let bits_per_second = (cross * link.delivers()) as u64;
                Profile { rate_control: RateControl::Fixed { bits_per_second }, ..ARQ }
            })
            .into_iter()
            .collect();
        for (name, rate_control) in [("printed", PRINTED), ("rcdp", rcdp(BLOCK).rate_control)] {
            let flows: Vec<Profile> = [Profile { rate_control, ..ARQ }].into_iter().chain(others.clone()).collect();
            let shares = shares(&flows, link, Duration::from_millis(40));
            // `rate` is what the constant rate keeps of its own.
            let kept = shares.get(1).map(|share| share / CONTENT / cross);
            rows.push(Row { rate: kept, ..Row::new(name, How::Code, 0.0, cross, shares[0] / CONTENT) });
        }
        rows
    })
}

fn two_flows(_: bool) -> Vec<Case> {
    let ours = rcdp(BLOCK).rate_control;
    let pairs = [
        ("printed beside printed", [PRINTED, PRINTED]),
        ("rcdp beside rcdp", [ours, ours]),
        ("printed beside CUBIC", [PRINTED, RateControl::Cubic]),
        ("rcdp beside CUBIC", [ours, RateControl::Cubic]),
        ("printed beside share", [PRINTED, RateControl::Share]),
        ("rcdp beside share", [ours, RateControl::Share]),
    ];
    let points = pairs.into_iter().flat_map(|pair| [5, 10, 20, 40].map(|queue| (pair, queue)));
    cases(points, |&((name, controls), queue_ms)| {
        let link = Link { mbit: MBIT, rtt: ROUND_TRIPS[0].1, loss: 0.0 };
        let flows = controls.map(|rate_control| Profile { rate_control, ..ARQ });
        let shares = shares(&flows, link, Duration::from_millis(queue_ms));
        // `rate` is the share of the other flow.
        vec![Row { rate: Some(shares[1]), ..Row::new(name, How::Code, 0.0, queue_ms as f64, shares[0]) }]
    })
}
