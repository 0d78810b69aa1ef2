//! Quantiles of all systems, and what they depend on. A point counts the arrivals of all seeds together,
//! without those of the start.
//!
//! Of a latency or jitter, `value` is the 95th percentile in milliseconds. Invariant: the systems of a point
//! carry the same video over links of the same seed.

use super::bound::{self, Path};
use super::nodes::Place;
use super::runs::{Load, Outcome, SEEDS, START, Setting, System, fixed, quantile, run, tunnel as in_tunnel, variable};
use crate::row::{How, Row};
use crate::{Case, cases};
use std::sync::Arc;
use tidewire_sim::tcp::bucket::{Coding, Confirms, Rule};

/// Plain TCP.
pub(super) const TCP: System = System::Tcp;
/// The redundancy of the figures: the upper end of the paper's "between 1 and 1.5". It names none.
pub(super) const GAMMA: f64 = 1.5;
/// The usual run. The paper states neither rate nor loss. Chosen: the lowest rate of OFDM, which the NIST
/// error model is for, and a loss per hop at which TCP still carries the video.
pub(super) const BASE: Setting = Setting {
    place: Place::Line,
    system: TCP,
    load: Load::Vbr,
    loss: 0.02,
    arq: false,
    mbit: 6,
    codel: false,
    seconds: 100,
};
const PAPER_SECONDS: u64 = 300;

/// The usual run over a network. The flows of Table 2 need 20 Mbit/s of the channel for their hops, so the
/// large network has the highest rate of OFDM, and hops that send again as 802.11 does: at 6 Mbit/s without
/// that, every system's latency grows to a minute.
pub(super) fn over(place: Place) -> Setting {
    let line = Setting { place, ..BASE };
    if place == Place::Line { line } else { Setting { mbit: 54, arq: true, ..line } }
}

/// The usual run, as long as the paper's with `full`.
fn base(full: bool) -> Setting {
    Setting { seconds: if full { PAPER_SECONDS } else { BASE.seconds }, ..BASE }
}

/// A point of a table: its curve, its abscissa and its run.
struct Point {
    curve: String,
    parameter: f64,
    setting: Setting,
}

/// The outcomes of all seeds.
struct All(Vec<Arc<Outcome>>);

impl All {
    fn of(setting: Setting) -> Self {
        Self(SEEDS.map(|seed| run(setting, seed)).to_vec())
    }

    fn latencies(&self) -> Vec<f64> {
        self.0.iter().flat_map(|outcome| outcome.latencies(START)).collect()
    }

    fn jitters(&self) -> Vec<f64> {
        let all = self.0.iter().flat_map(|outcome| outcome.jitters());
        all.filter(|jitter| jitter.0 >= START.as_secs_f64()).map(|jitter| jitter.1).collect()
    }

    fn sum(&self, count: impl Fn(&Outcome) -> u64) -> f64 {
        self.0.iter().map(|outcome| count(outcome) as f64).sum()
    }
}

/// A row with the quantiles of some values.
fn quantiles(point: &Point, name: &str, values: &[f64]) -> Row {
    let row = Row::new(format!("{name}, {}", point.curve), How::Code, point.setting.loss, point.parameter, 0.0);
    let [p50, p95, p99] = [0.5, 0.95, 0.99].map(|q| quantile(values, q));
    Row { p50: Some(p50), value: p95, p99: Some(p99), ..row }
}

fn count(point: &Point, name: &str, value: f64) -> Row {
    Row::new(format!("{name}, {}", point.curve), How::Code, point.setting.loss, point.parameter, value)
}

/// Latency, jitter, the largest latency, and what the code did.
fn all_of(point: &Point) -> Vec<Row> {
    let all = All::of(point.setting);
    let (latencies, jitters) = (all.latencies(), all.jitters());
    let mean = jitters.iter().sum::<f64>() / jitters.len().max(1) as f64;
    vec![
        quantiles(point, "latency", &latencies),
        quantiles(point, "jitter", &jitters),
        count(point, "mean jitter", mean),
        count(point, "largest latency", quantile(&latencies, 1.0)),
        count(point, "not arrived", all.sum(|outcome| (outcome.made - outcome.arrivals.len()) as u64)),
        count(point, "zero-payload packets", all.sum(|outcome| outcome.buckets.sender.empty)),
    ]
}

/// The systems that are compared.
fn systems(gamma: f64) -> Vec<(String, System)> {
    let fixed = [2, 4, 15].map(|size| (format!("fixed {size}"), fixed(size, gamma)));
    let ends = [("TCP".to_owned(), TCP), ("variable".to_owned(), variable(gamma))];
    ends.into_iter().chain(fixed).collect()
}

/// All systems over both networks and for both loads; the parameter is 1 with CoDel. The third network has no
/// cross traffic.
pub(super) fn headline(full: bool) -> Vec<Case> {
    let places = [("line", Place::Line), ("20 nodes", Place::Twenty), ("20 nodes alone", Place::TwentyAlone)];
    let loads = [("VBR", Load::Vbr), ("on-off", Load::OnOff), ("trace", Load::Trace)];
    let mut points = Vec::new();
    for (place_name, place) in places {
        for (load_name, load) in loads {
            for (name, system) in systems(GAMMA) {
                points.extend([false, true].map(|codel| Point {
                    curve: format!("{name}, {load_name}, {place_name}"),
                    parameter: f64::from(u8::from(codel)),
                    setting: Setting { load, system, codel, seconds: base(full).seconds, ..over(place) },
                }));
            }
        }
    }
    cases(points, all_of)
}

/// The share of the 95th percentile that the variable bucket saves, over loss and rate: compared with TCP,
/// and with the fixed bucket of four. Also where each hop sends again.
pub(super) fn links(full: bool) -> Vec<Case> {
    let mut points = Vec::new();
    for (name, arq) in [("", false), (" with repetition", true)] {
        for mbit in [3, 6, 12, 24] {
            for loss in [0.0, 0.005, 0.01, 0.02, 0.05, 0.1] {
                let setting = Setting { loss, mbit, arq, ..base(full) };
                points.push(Point { curve: format!("{mbit} Mbit/s{name}"), parameter: loss, setting });
            }
        }
    }
    cases(points, |point| {
        let of = |system| All::of(Setting { system, ..point.setting });
        let [ours, tcp, four] = [variable(GAMMA), TCP, fixed(4, GAMMA)].map(of);
        let p95 = |values: Vec<f64>| quantile(&values, 0.95);
        let [own, alone, filled] = [&ours, &tcp, &four].map(|all| p95(all.latencies()));
        let [own_jitter, alone_jitter, filled_jitter] = [&ours, &tcp, &four].map(|all| p95(all.jitters()));
        // A system that delivered nothing has no row.
        let saved = |(name, own, other): (&str, f64, f64)| (other > 0.0).then(|| count(point, name, 1.0 - own / other));
        let all = [
            ("latency below TCP", own, alone),
            ("latency below fixed 4", own, filled),
            ("jitter below TCP", own_jitter, alone_jitter),
            ("jitter below fixed 4", own_jitter, filled_jitter),
        ];
        all.into_iter().filter_map(saved).collect()
    })
}

/// Latency and jitter over Gamma.
pub(super) fn gamma(full: bool) -> Vec<Case> {
    let mut points = Vec::new();
    for parameter in [1.0, 1.1, 1.2, 1.25, 1.3, 1.4, 1.5] {
        let systems =
            [("variable", variable(parameter)), ("fixed 2", fixed(2, parameter)), ("fixed 4", fixed(4, parameter))];
        for (load_name, load) in [("VBR", Load::Vbr), ("trace", Load::Trace)] {
            points.extend(systems.map(|(name, system)| Point {
                curve: format!("{name}, {load_name}"),
                parameter,
                setting: Setting { system, load, ..base(full) },
            }));
        }
    }
    cases(points, |point| {
        let all = All::of(point.setting);
        vec![quantiles(point, "latency", &all.latencies()), quantiles(point, "jitter", &all.jitters())]
    })
}

/// Latency of large pictures over the cap, and the timeouts. The link loses nothing and its queue has room,
/// so each timeout is spurious. With `Buckets` the receiver confirms what it decoded only.
pub(super) fn cap(full: bool) -> Vec<Case> {
    let mut points = Vec::new();
    for (name, confirms) in [("confirmed by degrees", Confirms::Degrees), ("confirmed by buckets", Confirms::Buckets)] {
        for cap in [1, 2, 4, 8, 12, 15, 16, 20, 24, 32, 48, 64] {
            let system = System::Coded(Coding { rule: Rule::Right, cap, gamma: 1.0, confirms });
            let setting = Setting { load: Load::Pictures, system, loss: 0.0, mbit: 2, ..base(full) };
            points.push(Point { curve: name.to_owned(), parameter: cap.into(), setting });
        }
    }
    cases(points, |point| {
        let all = All::of(point.setting);
        vec![
            quantiles(point, "latency", &all.latencies()),
            count(point, "timeouts", all.sum(|outcome| outcome.buckets.tcp.timeouts)),
            count(point, "repeated for nothing", all.sum(|outcome| outcome.buckets.receiver.useless_repeats)),
            count(point, "lost packets", all.sum(|outcome| outcome.lost + outcome.dropped)),
            count(point, "largest bucket", largest_bucket(&all)),
        ]
    })
}

fn largest_bucket(all: &All) -> f64 {
    let largest = all.0.iter().map(|outcome| outcome.buckets.sender.sizes.iter().rposition(|count| *count > 0));
    largest.flatten().max().unwrap_or(0) as f64
}

/// The best first bucket of n segments that wait, by the model of `bound`.
pub(super) fn bound(_: bool) -> Vec<Case> {
    const MOST: usize = 64;
    // Two hops of 6 Mbit/s on one channel, and the timeout of TCP.
    let path = |loss, gamma| Path { loss, gamma, each_ms: 4.0, recovery_ms: 220.0 };
    let curves =
        [0.0, 0.01, 0.02, 0.04, 0.08].into_iter().flat_map(move |loss| [1.25, 1.5].map(|gamma| path(loss, gamma)));
    cases(curves, |path| {
        let name = format!("Gamma {}", path.gamma);
        let sizes = bound::best(*path, MOST).into_iter().enumerate();
        let row = |(n, (size, mean)): (usize, (usize, f64))| Row {
            p50: Some(mean),
            ..Row::new(&name, How::Model, path.loss, (n + 1) as f64, size as f64)
        };
        sizes.map(row).collect()
    })
}

/// The printed rule beside the right one: the parameter is 0 for the right one and 1 for the printed one.
pub(super) fn rule(full: bool) -> Vec<Case> {
    let rules = [(0.0, Rule::Right), (1.0, Rule::Printed)];
    let loads = [("VBR", Load::Vbr), ("trace", Load::Trace), ("pictures", Load::Pictures)];
    let points = loads.into_iter().flat_map(move |(name, load)| {
        rules.map(|(parameter, rule)| {
            let system = System::Coded(Coding { rule, cap: 15, gamma: GAMMA, confirms: Confirms::Degrees });
            Point { curve: name.to_owned(), parameter, setting: Setting { system, load, ..base(full) } }
        })
    });
    cases(points, |point| {
        let all = All::of(point.setting);
        vec![
            quantiles(point, "latency", &all.latencies()),
            count(point, "segments beyond the window", all.sum(|outcome| outcome.buckets.sender.beyond)),
            count(point, "dropped by queues", all.sum(|outcome| outcome.dropped)),
        ]
    })
}

/// The video over kernel-like TCP in a tunnel of ours with the profile `bucket`, with and without answers.
pub(super) fn tunnel(full: bool) -> Vec<Case> {
    let of = |name: &str, system| (name.to_owned(), system);
    let systems = [
        of("TCP", TCP),
        of("variable", variable(GAMMA)),
        of("tunnel, answered", in_tunnel(15, GAMMA, false, true)),
        of("tunnel, not answered", in_tunnel(15, GAMMA, false, false)),
        of("tunnel of fixed 4, answered", in_tunnel(4, GAMMA, true, true)),
    ];
    let loads = [("VBR", Load::Vbr), ("trace", Load::Trace)];
    let points = loads.into_iter().flat_map(move |(load_name, load)| {
        systems.clone().map(|(name, system)| Point {
            curve: format!("{name}, {load_name}"),
            parameter: 0.0,
            setting: Setting { system, load, ..base(full) },
        })
    });
    cases(points, |point| {
        let all = All::of(point.setting);
        vec![quantiles(point, "latency", &all.latencies()), quantiles(point, "jitter", &all.jitters())]
    })
}

/// The example of section 3.2: 2,048 bytes wait, a bucket of two segments with 512 bytes each is acknowledged
/// and 512 bytes are added. The paper has 1,584 bytes left.
pub(super) fn example(_: bool) -> Vec<Case> {
    const PAYLOAD: f64 = 512.0;
    const SEGMENT: f64 = 536.0;
    let left = |each: f64| 4.0 * PAYLOAD - 2.0 * each + PAYLOAD;
    let segments = (left(SEGMENT) / SEGMENT).ceil();
    let rows = [
        ("bytes left", How::Printed, 2.0 * SEGMENT + PAYLOAD),
        ("bytes left", How::Model, left(SEGMENT)),
        ("bytes left, payload only", How::Model, left(PAYLOAD)),
        ("segments left", How::Model, segments),
        ("zero-payload packets of two buckets of two", How::Model, 4.0 - segments),
        ("zero-payload packets of a variable bucket", How::Model, 0.0),
    ];
    cases([rows], |rows| rows.map(|(name, how, value)| Row::new(name, how, 0.0, 2.0, value)).to_vec())
}
