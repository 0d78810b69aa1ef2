//! Li, Li, Wu, Ramakrishnan, Geng, Gui, Wang, Zheng: "Sphinx: A Transport Protocol for High-Speed and Lossy
//! Mobile Networks", 2019: Figures 7, 9, 10 and 11.
//!
//! [`PAPERS`](crate::PAPERS) holds [`PAPER`]. `papers/sphinx/README.md` says what the paper has and why the
//! results differ. Figure 8 is a time, so `crates/codec/examples/coding_time.rs` measures it. Invariant: the
//! arguments of a case determine its result.

#[cfg(target_os = "linux")]
mod lab;
mod redundancy;
mod runs;

use std::time::Duration;

use tidewire_codec::{Code, Elimination};
use tidewire_proto::profile::{ARQ, Profile, SPHINX_PRINTED, STREAM, sphinx};
use tidewire_proto::rate::RateControl;
use tidewire_proto::redundancy::{Answer, Redundancy, Trigger};
use tidewire_sim::video::Viewing;

use self::runs::{COUNTED, Link, SHARED, bulk, completion, each_second, jain, playing, shares, video};
use crate::row::{How, Row};
use crate::{Case, Experiment, Paper, cases};

/// The paper with all its experiments.
pub const PAPER: Paper = Paper {
    name: "sphinx",
    title: "Li and others: Sphinx, a Transport Protocol for High-Speed and Lossy Mobile Networks",
    experiments: &[
        Experiment { name: "figure-7", title: "Redundancy against loss, and blocks not decoded", cases: figure_7 },
        Experiment { name: "figure-9", title: "Goodput against loss, 100 Mbit/s", cases: figure_9 },
        Experiment { name: "figure-9-200", title: "Goodput against loss, 200 Mbit/s", cases: figure_9_200 },
        Experiment { name: "figure-10", title: "Completion of a block against loss, 100 Mbit/s", cases: figure_10 },
        Experiment { name: "figure-10-200", title: "The same at 200 Mbit/s", cases: figure_10_200 },
        Experiment { name: "figure-11", title: "Buffered video over time, 2 % loss", cases: figure_11 },
        Experiment { name: "pairs", title: "Five pairs on one link, 0 and 6 % loss", cases: pairs },
    ],
    #[cfg(target_os = "linux")]
    lab: &lab::EXPERIMENTS,
};

/// Luby's code with the constants of docs/sphinx.md section 5.
const LT: Code = Code::Lt { c_milli: 100, delta_milli: 500 };

/// Bytes of a block: 500 MB in 5,000 blocks (section IV-B).
const BLOCK: u64 = 100_000;
/// Bytes of a packet's payload in the paper's goodput.
const PAYLOAD: f64 = 1_000.0;

/// The paper's schemes without the multi-core one, which differs only where the processor is the limit, then
/// the corrected form and the default. CUBIC without a code stands for the paper's TCP.
fn schemes() -> [(&'static str, Profile); 7] {
    let blocks_alone = Redundancy { answer: Answer::Icm(Trigger::Blocks), ..SPHINX_PRINTED.redundancy };
    [
        ("basic Sphinx", SPHINX_PRINTED),
        ("with LT", Profile { code: LT, ..SPHINX_PRINTED }),
        ("with RS", Profile { code: Code::Cauchy, ..SPHINX_PRINTED }),
        ("without ICM", Profile { redundancy: blocks_alone, ..SPHINX_PRINTED }),
        ("CUBIC", Profile { rate_control: RateControl::Cubic, ..ARQ }),
        ("sphinx", sphinx(100)),
        ("stream", STREAM),
    ]
}

/// Loss rates in percent.
const LOSSES: [f64; 6] = [0.0, 1.0, 2.0, 4.0, 6.0, 10.0];
/// Round trips in milliseconds.
const ROUND_TRIPS: [u64; 3] = [1, 10, 50];

/// A scheme over one of the links.
struct Point {
    scheme: &'static str,
    profile: Profile,
    link: Link,
    blocks: u64,
}

fn points(mbit: u64, full: bool) -> impl Iterator<Item = Point> {
    let blocks = if full { 5_000 } else { 400 };
    schemes().into_iter().flat_map(move |(scheme, profile)| {
        ROUND_TRIPS.into_iter().flat_map(move |ms| {
            LOSSES.into_iter().map(move |percent| {
                let link = Link { mbit, rtt: Duration::from_millis(ms), loss: percent / 1e2 };
                Point { scheme, profile, link, blocks }
            })
        })
    })
}

fn figure_9(full: bool) -> Vec<Case> {
    cases(points(100, full), goodput)
}

fn figure_9_200(full: bool) -> Vec<Case> {
    cases(points(200, full), goodput)
}

/// Packets per second that are delivered, and as `rate` their bits over those that the link delivers.
fn goodput(point: &Point) -> Vec<Row> {
    let bits_per_second = bulk(&point.profile, point.link, point.blocks * BLOCK);
    vec![Row { rate: Some(bits_per_second / point.link.delivers()), ..row(point, bits_per_second / 8.0 / PAYLOAD) }]
}

fn figure_10(full: bool) -> Vec<Case> {
    cases(points(100, full), completions)
}

fn figure_10_200(full: bool) -> Vec<Case> {
    cases(points(200, full), completions)
}

/// Mean time between the completions of two blocks of a bulk transfer, and as quantiles the time that a block
/// takes that is offered at 65 % of the rate.
fn completions(point: &Point) -> Vec<Row> {
    let bits_per_second = bulk(&point.profile, point.link, point.blocks * BLOCK);
    let [p50, p99] = completion(&point.profile, point.link, point.blocks, BLOCK);
    vec![Row { p50, p99, ..row(point, BLOCK as f64 * 8e3 / bits_per_second) }]
}

fn row(point: &Point, value: f64) -> Row {
    let curve = format!("{} {} ms", point.scheme, point.link.rtt.as_millis());
    Row::new(curve, How::Code, point.link.loss, point.link.rtt.as_secs_f64() * 1e3, value)
}

/// Blocks of Figure 7.
const FIGURE_7_BLOCKS: [u16; 2] = [100, 256];

fn figure_7(full: bool) -> Vec<Case> {
    let runs = if full { 20_000 } else { 2_000 };
    let points = FIGURE_7_BLOCKS.into_iter().flat_map(move |symbols| {
        LOSSES.into_iter().filter(|percent| *percent > 0.0).map(move |percent| (symbols, percent / 1e2, runs))
    });
    cases(points, |&(symbols, loss, runs)| {
        let mut rows = redundancy::planned(symbols, loss, runs);
        for (name, elimination) in [("LT peeling", Elimination::Never), ("LT elimination", Elimination::WhenStuck)] {
            rows.push(redundancy::rateless(name, LT, elimination, symbols, loss, runs));
        }
        rows
    })
}

/// The link of the video.
const VIDEO_LINK: Link = Link { mbit: 25, rtt: Duration::from_millis(10), loss: 0.02 };

fn figure_11(full: bool) -> Vec<Case> {
    let seconds = if full { 300 } else { 60 };
    let schemes = schemes().into_iter().filter(|(name, _)| !name.starts_with("with"));
    cases(schemes.map(move |scheme| (scheme, seconds)), |&((name, profile), seconds)| {
        let length = Duration::from_secs(seconds);
        video(&profile, VIDEO_LINK, length).map_or_else(Vec::new, |viewing| buffered(name, How::Code, viewing, length))
    })
}

/// Seconds of buffered video, once a second, and as `rate` the share of the time in which it played.
fn buffered(curve: &str, how: How, viewing: Viewing, length: Duration) -> Vec<Row> {
    let rate = playing(&viewing, length);
    let row = |(at, buffered)| Row { rate, ..Row::new(curve, how, VIDEO_LINK.loss, at, buffered) };
    each_second(viewing.samples).into_iter().map(row).collect()
}

fn pairs(full: bool) -> Vec<Case> {
    let counted = if full { 6 * COUNTED } else { COUNTED };
    let alike = |name: &str| ["basic Sphinx", "sphinx", "stream", "CUBIC"].contains(&name);
    let schemes = schemes().into_iter().filter(move |(name, _)| alike(name));
    let points = schemes.flat_map(move |scheme| [0.0, 0.06].map(|loss| (scheme, loss, counted)));
    cases(points, |&((name, profile), loss, counted)| {
        let shares = shares(&profile, Link { loss, ..SHARED }, counted);
        let fairness = Some(jain(&shares));
        let row = |(pair, &share)| Row { rate: fairness, ..Row::new(name, How::Code, loss, f64::from(pair), share) };
        (1..).zip(&shares).map(row).collect()
    })
}
