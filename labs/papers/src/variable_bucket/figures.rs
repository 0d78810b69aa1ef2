//! The paper's figures over time: latencies, jitters, zero-payload packets and windows.
//!
//! A point is a second: `value` is the largest latency or jitter of what was made in it, `p50` the median.
//! Invariant: all curves of a figure have the same seed, so the same video and losses.

use std::collections::BTreeMap;

use super::nodes::Place;
use super::runs::{Load, Outcome, SEEDS, Setting, System, fixed, ms, quantile, run, variable};
use super::tables::{self, GAMMA, TCP};
use crate::row::{How, Row};
use crate::{Case, cases};

/// The seed of the figures.
const SEED: u64 = SEEDS[0];
/// Seconds of the paper's runs, and of its trace.
const PAPER_SECONDS: u64 = 300;
const TRACE_SECONDS: u64 = 100;

/// A curve: its name and its run.
type Curve = (String, Setting);

fn curve(name: &str, setting: Setting) -> Curve {
    (name.to_owned(), setting)
}

/// The setting over the paper's time.
fn long(place: Place, system: System) -> Setting {
    Setting { system, seconds: PAPER_SECONDS, ..tables::over(place) }
}

/// A row of a figure.
fn row(name: &str, setting: Setting, at: f64, value: f64) -> Row {
    Row::new(name, How::Code, setting.loss, at, value)
}

/// The largest and the median of the values of each second.
fn by_second(name: &str, setting: Setting, values: impl Iterator<Item = (f64, f64)>) -> Vec<Row> {
    let mut seconds = BTreeMap::<u64, Vec<f64>>::new();
    values.for_each(|(at, value)| seconds.entry(at as u64).or_default().push(value));
    let row = |(second, values): (&u64, &Vec<f64>)| Row {
        p50: Some(quantile(values, 0.5)),
        ..row(name, setting, *second as f64, quantile(values, 1.0))
    };
    seconds.iter().map(row).collect()
}

fn latencies((name, setting): &Curve) -> Vec<Row> {
    let outcome = run(*setting, SEED);
    let values = outcome.arrivals.iter().map(|arrival| (arrival.made.as_secs_f64(), ms(arrival.latency)));
    by_second(name, *setting, values)
}

fn jitters((name, setting): &Curve) -> Vec<Row> {
    by_second(name, *setting, run(*setting, SEED).jitters().into_iter())
}

/// Zero-payload packets sent until the end of each second.
fn zero_payload(name: &str, setting: Setting, outcome: &Outcome) -> Vec<Row> {
    let mut seconds = BTreeMap::new();
    for &(at, count) in &outcome.buckets.empty {
        seconds.insert(at.0 / 1_000_000_000, count as f64);
    }
    let name = format!("zero-payload packets, {name}");
    seconds.iter().map(|(&second, &count)| row(&name, setting, second as f64, count)).collect()
}

/// The window of each second, as it was at its end.
fn windows(name: &str, setting: Setting, outcome: &Outcome) -> Vec<Row> {
    let seconds: BTreeMap<u64, f64> = outcome.window.iter().map(|&(at, window)| (at as u64, window)).collect();
    let name = format!("window, {name}");
    seconds.iter().map(|(&second, &window)| row(&name, setting, second as f64, window)).collect()
}

/// Zero-payload packets and windows.
fn zeros_and_windows((name, setting): &Curve) -> Vec<Row> {
    let outcome = run(*setting, SEED);
    [zero_payload(name, *setting, &outcome), windows(name, *setting, &outcome)].concat()
}

/// Latency and zero-payload packets of a fixed bucket of four, over the line.
pub(super) fn figure_3(_: bool) -> Vec<Case> {
    cases([curve("latency", long(Place::Line, fixed(4, GAMMA)))], |curve| {
        let outcome = run(curve.1, SEED);
        [latencies(curve), zero_payload("fixed 4", curve.1, &outcome)].concat()
    })
}

/// Zero-payload packets and windows of a fixed bucket of two and of the variable one, over the line.
pub(super) fn figure_6(_: bool) -> Vec<Case> {
    over(Place::Line, &[2])
}

/// The same over the large network, also with a bucket of four.
pub(super) fn figure_7(_: bool) -> Vec<Case> {
    over(Place::Twenty, &[2, 4])
}

fn over(place: Place, sizes: &[u16]) -> Vec<Case> {
    let fixed = sizes.iter().map(|&size| curve(&format!("fixed {size}"), long(place, fixed(size, GAMMA))));
    let variable = curve("variable", long(place, variable(GAMMA)));
    cases(fixed.chain([variable]).collect::<Vec<_>>(), zeros_and_windows)
}

/// The three systems of the paper.
fn systems(setting: Setting) -> Vec<Curve> {
    let of = |name: &str, system| curve(name, Setting { system, ..setting });
    vec![of("TCP", TCP), of("fixed 4", fixed(4, GAMMA)), of("variable", variable(GAMMA))]
}

/// Latencies over the large network, without and with CoDel.
pub(super) fn figure_8(_: bool) -> Vec<Case> {
    let plain = systems(long(Place::Twenty, TCP));
    let codel = systems(Setting { codel: true, ..long(Place::Twenty, TCP) });
    let codel = codel.into_iter().map(|(name, setting)| (format!("{name} (CoDel)"), setting));
    cases(plain.into_iter().chain(codel).collect::<Vec<_>>(), latencies)
}

/// Latencies of the trace of Table 3 over 100 seconds, over the large network.
pub(super) fn figure_9(_: bool) -> Vec<Case> {
    let trace = Setting { load: Load::Trace, seconds: TRACE_SECONDS, ..long(Place::Twenty, TCP) };
    cases(systems(trace), latencies)
}

/// Jitters over the large network.
pub(super) fn figure_10(_: bool) -> Vec<Case> {
    cases(systems(long(Place::Twenty, TCP)), jitters)
}
