//! Karzand, Leith, Cloud, Médard: "Design of FEC for low delay in 5G": Figures 1, 2, 5 to 10 and Table I.
//!
//! Parameters that only the paper's drawings show are chosen here; `papers/streaming-code-5g/README.md` names
//! them. The streaming code of the closed-loop figures is `every:L` with repairs for deficits, at fixed
//! spacing, not the adaptive policy.
//!
//! [`PAPERS`](crate::PAPERS) holds [`PAPER`], whose functions make the cases of its experiments: one per
//! [`Point`], or one per loss rate if a formula gives a whole curve. Invariant: the arguments of a case
//! determine its result.

#[cfg(target_os = "linux")]
mod lab;
pub mod runs;

use tidewire_figures::milliseconds;
use tidewire_model::gilbert::Gilbert;
use tidewire_model::streaming::{Streaming, printed};
use tidewire_proto::profile::{ARQ, Profile, STREAM, block};
use tidewire_proto::redundancy::{Answer, Proactive, Redundancy};
use tidewire_sim::ideal;

use self::runs::{Losses, Point, SLOT_MS, both, delay_row, ideal, real, real_row};
use crate::row::{How, Row};
use crate::{Case, Experiment, Paper, cases};

/// The paper with all its experiments.
pub const PAPER: Paper = Paper {
    name: "streaming-code-5g",
    title: "Karzand, Leith, Cloud, Medard: Design of FEC for Low Delay in 5G",
    experiments: &[
        Experiment {
            name: "figure-1",
            title: "Histogram of in-order delay, ARQ and block code, 20 % loss",
            cases: figure_1,
        },
        Experiment { name: "figure-2", title: "Mean delay against block size, ARQ and block code", cases: figure_2 },
        Experiment { name: "figure-5", title: "Mean delay and its bound against rate", cases: figure_5 },
        Experiment { name: "figure-6", title: "Bound, exact mean, simulation and real code", cases: figure_6 },
        Experiment {
            name: "figure-7a",
            title: "Open loop: streaming and block code against rate, iid",
            cases: figure_7a,
        },
        Experiment { name: "figure-7b", title: "The same with losses in bursts", cases: figure_7b },
        Experiment { name: "figure-8", title: "Closed loop: delay against effective rate, bursts", cases: figure_8 },
        Experiment {
            name: "figure-9",
            title: "Closed loop: delay against block size, redundancy 15 %",
            cases: figure_9,
        },
        Experiment {
            name: "figure-10",
            title: "Closed loop: delay against effective rate, many block sizes",
            cases: figure_10,
        },
        Experiment { name: "table-1", title: "Decoder operations per source symbol", cases: table_1 },
    ],
    #[cfg(target_os = "linux")]
    lab: &lab::EXPERIMENTS,
};

fn every(spacing: f64) -> Profile {
    Profile { redundancy: Redundancy::every(spacing), ..STREAM }
}

/// Loss rate of Figure 1.
const FIGURE_1_LOSS: f64 = 0.2;
/// Its schemes: the two of the paper, and the block code with as many repairs as it needs to behave as the
/// paper says.
const FIGURE_1: [(&str, Profile); 3] = [("arq", ARQ), ("block 32", block(32, 8)), ("block 32 + 14", block(32, 14))];

fn figure_1(full: bool) -> Vec<Case> {
    cases(figure_1_points(full), histograms)
}

/// The points of Figure 1, one per scheme.
fn figure_1_points(full: bool) -> impl Iterator<Item = Point> {
    FIGURE_1.into_iter().map(move |(curve, scheme)| Point::new(curve, scheme, Losses::iid(FIGURE_1_LOSS), 0.0, full))
}

/// The delays of a point, without a protocol and with the real one.
fn histograms(point: &Point) -> Vec<Row> {
    let outcome = ideal(point);
    let simulated = outcome.delays.counts().map(|(slots, count)| (slots as f64 * SLOT_MS, count));
    let reports = real(point);
    let measured = reports.iter().flat_map(|report| report.delay().buckets());
    let measured = measured.map(|(delay, count)| (milliseconds(delay), count));
    let row = |how| move |(ms, share)| Row { parameter: ms, ..point.row(how, share) };
    let simulated = histogram(simulated).into_iter().map(row(How::Ideal));
    simulated.chain(histogram(measured).into_iter().map(row(How::Code))).collect()
}

/// Lower ends of bins of [`BIN_MS`] in milliseconds, with the fraction of symbols in each. The input is
/// delays in milliseconds with their counts.
fn histogram(delays: impl Iterator<Item = (f64, u64)>) -> Vec<(f64, f64)> {
    let mut bins: Vec<u64> = Vec::new();
    for (ms, count) in delays {
        let bin = (ms / BIN_MS) as usize;
        bins.resize(bins.len().max(bin + 1), 0);
        bins[bin] += count;
    }
    let all: u64 = bins.iter().sum();
    bins.iter().enumerate().map(|(bin, &count)| (bin as f64 * BIN_MS, count as f64 / all as f64)).collect()
}

/// Loss rates of Figure 2.
const FIGURE_2_LOSSES: [f64; 3] = [0.05, 0.1, 0.2];

fn figure_2(full: bool) -> Vec<Case> {
    cases(figure_2_points(full), both)
}

/// The points of Figure 2.
fn figure_2_points(full: bool) -> Vec<Point> {
    let mut points = vec![];
    for loss in FIGURE_2_LOSSES {
        let losses = Losses::iid(loss);
        points.push(Point::new("arq", ARQ, losses, 1.0, full));
        for k in [4u16, 8, 16, 32, 64, 128] {
            // "Coding rate equal to the loss rate": as many repairs as packets are lost, k e / (1-e).
            let r = (f64::from(k) * loss / (1.0 - loss)).round().max(1.0) as u16;
            points.push(Point::new("block", block(k, r), losses, f64::from(k), full));
        }
    }
    points
}

fn figure_5(_full: bool) -> Vec<Case> {
    cases([0.01, 0.02, 0.05, 0.1, 0.2], bounds)
}

/// Mean delay and its bound at a loss rate, by the model.
fn bounds(&loss: &f64) -> Vec<Row> {
    let mut rows = vec![];
    for spacing in (2..100).map(f64::from) {
        let Ok(code) = Streaming::new(loss, spacing) else { break };
        let values = [
            ("mean", How::Model, code.mean_delay()),
            ("bound", How::Model, code.mean_delay_bound()),
            ("bound", How::Printed, printed::mean_delay_bound(&code)),
        ];
        rows.extend(
            values.map(|(curve, how, slots)| Row {
                rate: Some(code.rate()),
                ..Row::new(curve, how, loss, spacing, slots)
            }),
        );
    }
    rows
}

/// Loss and spacing of each point of Figure 6.
const FIGURE_6: [(f64, f64); 11] = [
    (0.02, 10.0),
    (0.02, 25.0),
    (0.02, 40.0),
    (0.1, 2.0),
    (0.1, 3.0),
    (0.1, 4.0),
    (0.1, 5.0),
    (0.1, 6.0),
    (0.1, 7.0),
    (0.1, 8.0),
    (0.1, 9.0),
];

fn figure_6(full: bool) -> Vec<Case> {
    cases(figure_6_points(full), modelled_and_run)
}

/// The points of Figure 6.
fn figure_6_points(full: bool) -> impl Iterator<Item = Point> {
    let point = move |(loss, spacing)| Point::new("mean", open_loop_every(spacing), Losses::iid(loss), spacing, full);
    FIGURE_6.into_iter().map(point)
}

/// A point of the streaming code: by its model, without a protocol and with the real one.
fn modelled_and_run(point: &Point) -> Vec<Row> {
    let (losses, spacing) = (point.losses, point.parameter);
    let Ok(code) = Streaming::new(losses.rate, spacing) else { return vec![] };
    // Without feedback a symbol is cheap: ten times as many take no longer.
    let delays = ideal::open_loop(spacing, 10 * point.symbols, ideal::losses(&losses.simulated(), 1));
    let bound = |how, slots| Row { curve: "bound".into(), ..point.row(how, slots) };
    let mut rows = vec![
        Row { p50: code.quantile(0.5), p99: code.quantile(0.99), ..point.row(How::Model, code.mean_delay()) },
        bound(How::Model, code.mean_delay_bound()),
        bound(How::Printed, printed::mean_delay_bound(&code)),
        in_slots(delay_row(point, &delays)),
    ];
    rows.extend(real_row(point).map(in_slots));
    rows.into_iter().map(|row| Row { rate: Some(code.rate()), ..row }).collect()
}

/// The streaming code without repairs for deficits.
fn open_loop_every(spacing: f64) -> Profile {
    let redundancy = Redundancy { answer: Answer::Open, ..Redundancy::every(spacing) };
    Profile { redundancy, ..STREAM }
}

/// Converts to slots, which are the paper's axis.
fn in_slots(row: Row) -> Row {
    let slots = |ms: f64| ms / SLOT_MS;
    Row { value: slots(row.value), p50: row.p50.map(slots), p99: row.p99.map(slots), ..row }
}

fn figure_7a(full: bool) -> Vec<Case> {
    open_loop(&[Losses::iid(0.05), Losses::iid(0.1)], full)
}

fn figure_7b(full: bool) -> Vec<Case> {
    let bursts = [2.0, 4.0].map(|burst| Losses { rate: 0.1, burst: Some(burst) });
    open_loop(&bursts, full)
}

/// The streaming code by the model, and block codes that lose a constant fraction: for each block size the
/// least number of repairs.
fn open_loop(all: &[Losses], full: bool) -> Vec<Case> {
    let mut points = vec![];
    for &losses in all {
        let streaming = |spacing: u32| {
            let spacing = f64::from(spacing);
            Point::new("streaming", open_loop_every(spacing), losses, spacing, full)
        };
        points.extend((2..20).map(streaming));
        for residual in [1e-2, 1e-3, 1e-4, 1e-6] {
            for k in (1..8).chain((8..240).step_by(8)) {
                if let Some(r) = least_repairs(losses.rate, losses.mean_burst(), k, residual) {
                    let curve = format!("block PER {residual:e}");
                    points.push(Point::new(curve, block(k, r), losses, k.into(), full));
                }
            }
        }
    }
    cases(points, modelled_or_run)
}

/// A point of the streaming code by its model, or a point of a block code without a protocol, in slots.
fn modelled_or_run(point: &Point) -> Vec<Row> {
    let losses = point.losses;
    let row = match point.scheme.redundancy.proactive {
        Proactive::Block { k, r } => {
            let generations = point.symbols / u64::from(k);
            let lost = ideal::losses(&losses.simulated(), 1);
            let (delays, _) = ideal::block_open(k.into(), r.into(), generations, lost);
            Row { rate: Some(f64::from(k) / f64::from(k + r)), ..in_slots(delay_row(point, &delays)) }
        }
        _ => {
            let spacing = point.parameter as u32;
            // Too few repairs for these losses, so there is no mean.
            let Ok(code) = Gilbert::new(losses.rate, losses.mean_burst(), spacing) else { return vec![] };
            Row {
                rate: Some(1.0 - 1.0 / f64::from(spacing)),
                p50: code.quantile(0.5),
                p99: code.quantile(0.99),
                ..point.row(How::Model, code.mean_delay())
            }
        }
    };
    vec![row]
}

/// The least number of repairs with which a generation of `k` loses at most a fraction `residual` of its
/// source symbols: the lost packets of a generation that is not decoded, spread evenly over it. At most four
/// times `k`, plus 64.
fn least_repairs(loss: f64, burst: f64, k: u16, residual: f64) -> Option<u16> {
    let after = [loss / (1.0 - loss) / burst, 1.0 - 1.0 / burst];
    // Indexed by the losses so far, and whether the last packet was lost.
    let mut law = vec![[1.0 - loss, loss]];
    for packets in 1..=5 * k + 64 {
        law.push([0.0; 2]);
        for losses in (0..law.len()).rev() {
            let from = |at: Option<&[f64; 2]>, lost: bool| {
                let take = |p: f64| if lost { p } else { 1.0 - p };
                at.map_or(0.0, |[arrived, lost]| arrived * take(after[0]) + lost * take(after[1]))
            };
            let before = losses.checked_sub(1).and_then(|fewer| law.get(fewer)).copied();
            law[losses] = [from(law.get(losses), false), from(before.as_ref(), true)];
        }
        if packets >= k {
            let repairs = packets - k;
            let beyond = law.iter().enumerate().skip(usize::from(repairs) + 1);
            let missing: f64 = beyond.map(|(losses, p)| losses as f64 * (p[0] + p[1])).sum();
            if missing / f64::from(packets) <= residual {
                return Some(repairs);
            }
        }
    }
    None
}

fn figure_8(full: bool) -> Vec<Case> {
    let mut points = vec![];
    for burst in [None, Some(2.0), Some(4.0)] {
        let losses = Losses { rate: 0.1, burst };
        let blocks =
            [0, 1, 2, 3, 4, 6, 8, 12].map(|r| Point::new("block 32", block(32, r), losses, f64::from(r), full));
        points.extend(blocks);
        points.extend(SPACINGS.map(|spacing| Point::new("streaming", every(spacing), losses, spacing, full)));
    }
    cases(points, both)
}

fn figure_9(full: bool) -> Vec<Case> {
    let losses = Losses::iid(0.1);
    // 15 % as repairs per source symbol, in whole repairs.
    let mut points = vec![Point::new("streaming", every(1.0 + 1.0 / 0.15), losses, 1.0, full)];
    for k in [7u16, 13, 20, 27, 40, 60, 80, 100, 127] {
        let r = (0.15 * f64::from(k)).round() as u16;
        points.push(Point::new("block", block(k, r), losses, f64::from(k), full));
    }
    cases(points, both)
}

fn figure_10(full: bool) -> Vec<Case> {
    let losses = Losses::iid(0.1);
    let mut points = vec![];
    for k in [8u16, 16, 32, 64, 128] {
        let mut repairs =
            [0.05, 0.125, 0.1875, 0.25, 0.375].map(|share| (share * f64::from(k)).round() as u16).to_vec();
        // Eight symbols have the same repairs for two shares.
        repairs.dedup();
        let point = |r| Point::new(format!("block {k}"), block(k, r), losses, f64::from(r), full);
        points.extend(repairs.into_iter().map(point));
    }
    points.extend(SPACINGS.map(|spacing| Point::new("streaming", every(spacing), losses, spacing, full)));
    cases(points, both)
}

fn table_1(_full: bool) -> Vec<Case> {
    cases([0.02, 0.1], operations)
}

/// Operations of the decoder at a loss rate, as printed and by the model.
fn operations(&loss: &f64) -> Vec<Row> {
    let mut rows = vec![];
    for load in [0.5, 0.6, 0.7, 0.8, 0.9] {
        let Ok(code) = Streaming::new(loss, load / loss) else { continue };
        rows.push(Row::new("operations", How::Printed, loss, load, printed::operations(&code)));
        rows.push(Row::new("operations", How::Model, loss, load, code.operations()));
    }
    rows
}

/// Spacings of the streaming code in Figures 8 and 10.
const SPACINGS: [f64; 7] = [3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
/// Width of a bin of Figure 1's histograms.
const BIN_MS: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repairs_of_constant_residual_loss_are_the_binomials() {
        // One symbol and independent losses: with r repairs it is lost if all r + 1 packets are.
        assert_eq!(
            [0.2, 0.02, 0.002, 2e-9].map(|residual| least_repairs(0.1, 1.0 / 0.9, 1, residual)),
            [0, 1, 2, 8].map(Some)
        );
        // Block sizes at rate 0.79, computed independently: 45, 81 and 161 for 1e-3, 1e-4, 1e-6.
        for (k, residual) in [(45, 1e-3), (81, 1e-4), (161, 1e-6)] {
            let r = least_repairs(0.1, 1.0 / 0.9, k, residual).unwrap();
            let rate = f64::from(k) / f64::from(k + r);
            assert!((rate - 0.79).abs() < 0.012, "{k}: {r}");
        }
    }

    #[test]
    fn a_histogram_sums_to_one() {
        let bins = histogram([(0.0, 3), (9.9, 1), (35.0, 4)].into_iter());
        assert_eq!(bins, [(0.0, 0.5), (10.0, 0.0), (20.0, 0.0), (30.0, 0.5)]);
    }
}
