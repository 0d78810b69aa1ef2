//! Karzand, Leith, Cloud, Médard: "Design of FEC for low delay in 5G": Figures 1, 2, 5 to 10 and Table I.
//!
//! The figures are not in the text that this was made from, so that parameters which only they show are chosen here:
//! `papers/streaming-code-5g/README.md` names them. The streaming code of the closed-loop figures is `every:L` with repairs for deficits, at
//! fixed spacing, not the adaptive policy.

use tidewire_proto::model::gilbert::Gilbert;
use tidewire_proto::model::streaming::{Streaming, printed};
use tidewire_proto::profile::{ARQ, Profile, STREAM, block};
use tidewire_proto::redundancy::{Answer, Redundancy};
use tidewire_sim::ideal;

use super::row::{How, Row};
use super::streaming_runs::{Losses, SLOT_MS, delay_row, ideal, ideal_row, points, real, real_row};
use super::{Experiment, Paper};

/// See the module.
pub const PAPER: Paper = Paper {
    name: "streaming-code-5g",
    title: "Karzand, Leith, Cloud, Medard: Design of FEC for Low Delay in 5G",
    experiments: &[
        Experiment {
            name: "figure-1",
            title: "Histogram of in-order delay, ARQ and block code, 20 % loss",
            run: figure_1,
        },
        Experiment { name: "figure-2", title: "Mean delay against block size, ARQ and block code", run: figure_2 },
        Experiment { name: "figure-5", title: "Mean delay and its bound against rate", run: figure_5 },
        Experiment { name: "figure-6", title: "Bound, exact mean, simulation and real code", run: figure_6 },
        Experiment {
            name: "figure-7a",
            title: "Open loop: streaming and block code against rate, iid",
            run: figure_7a,
        },
        Experiment { name: "figure-7b", title: "The same with losses in bursts", run: figure_7b },
        Experiment { name: "figure-8", title: "Closed loop: delay against effective rate, bursts", run: figure_8 },
        Experiment { name: "figure-9", title: "Closed loop: delay against block size, redundancy 15 %", run: figure_9 },
        Experiment {
            name: "figure-10",
            title: "Closed loop: delay against effective rate, many block sizes",
            run: figure_10,
        },
        Experiment { name: "table-1", title: "Decoder operations per source symbol", run: table_1 },
    ],
    #[cfg(target_os = "linux")]
    lab: &super::streaming_lab::EXPERIMENTS,
};

/// Symbols of a run without a protocol.
fn symbols(full: bool) -> u64 {
    if full { 20_000_000 } else { 2_000_000 }
}

/// Runs of the real protocol for each point.
fn seeds(full: bool) -> u64 {
    if full { 20 } else { 3 }
}

/// One point both without a protocol and with the real one.
fn both(curve: &str, scheme: Profile, losses: Losses, parameter: f64, full: bool) -> Vec<Row> {
    let ideal = ideal_row(curve, scheme, losses, parameter, symbols(full));
    [Some(ideal), real_row(curve, scheme, losses, parameter, seeds(full))].into_iter().flatten().collect()
}

fn every(spacing: f64) -> Profile {
    Profile { redundancy: Redundancy::every(spacing), ..STREAM }
}

/// Loss rate of Figure 1.
pub(super) const FIGURE_1_LOSS: f64 = 0.2;
/// Its schemes: the paper's two, and the block code with as many repairs as it takes to see what the paper says of it.
pub(super) const FIGURE_1: [(&str, Profile); 3] =
    [("arq", ARQ), ("block 32", block(32, 8)), ("block 32 + 14", block(32, 14))];

fn figure_1(full: bool) -> Vec<Row> {
    let losses = Losses::iid(FIGURE_1_LOSS);
    points(&FIGURE_1, |&(curve, scheme)| {
        let outcome = ideal(scheme, losses, symbols(full));
        let simulated = outcome.delays.counts().map(|(slots, count)| (slots as f64 * SLOT_MS, count));
        let mut rows = histogram(curve, How::Ideal, losses, simulated);
        let reports = real(scheme, losses, seeds(full));
        let measured = reports.iter().flat_map(|report| report.delay().buckets());
        rows.extend(histogram(curve, How::Code, losses, measured.map(|(ms, count)| (1e3 * ms.as_secs_f64(), count))));
        rows
    })
}

/// Fractions of symbols by bins of [`BIN_MS`].
pub(super) fn histogram(curve: &str, how: How, losses: Losses, delays: impl Iterator<Item = (f64, u64)>) -> Vec<Row> {
    let mut bins: Vec<u64> = Vec::new();
    for (ms, count) in delays {
        let bin = (ms / BIN_MS) as usize;
        bins.resize(bins.len().max(bin + 1), 0);
        bins[bin] += count;
    }
    let all: u64 = bins.iter().sum();
    let fractions = bins.iter().enumerate().map(|(bin, &count)| (bin as f64 * BIN_MS, count as f64 / all as f64));
    fractions.map(|(ms, fraction)| losses.row(curve, how, ms, fraction)).collect()
}

/// Loss rates of Figure 2.
pub(super) const FIGURE_2_LOSSES: [f64; 3] = [0.05, 0.1, 0.2];

fn figure_2(full: bool) -> Vec<Row> {
    points(&figure_2_cells(), |&(loss, curve, k, scheme)| both(curve, scheme, Losses::iid(loss), k, full))
}

/// Loss, curve, block size and scheme of each point of Figure 2.
pub(super) fn figure_2_cells() -> Vec<(f64, &'static str, f64, Profile)> {
    let mut cells = vec![];
    for loss in FIGURE_2_LOSSES {
        cells.push((loss, "arq", 1.0, ARQ));
        for k in [4u16, 8, 16, 32, 64, 128] {
            // "Coding rate equal to the loss rate": as many repairs as are lost, k e / (1-e).
            let r = (f64::from(k) * loss / (1.0 - loss)).round().max(1.0) as u16;
            cells.push((loss, "block", f64::from(k), block(k, r)));
        }
    }
    cells
}

fn figure_5(_full: bool) -> Vec<Row> {
    let mut rows = vec![];
    for loss in [0.01, 0.02, 0.05, 0.1, 0.2] {
        for spacing in (2..100).map(f64::from) {
            let Ok(code) = Streaming::new(loss, spacing) else { break };
            let values = [
                ("mean", How::Model, code.mean_delay()),
                ("bound", How::Model, code.mean_delay_bound()),
                ("bound", How::Printed, printed::mean_delay_bound(&code)),
            ];
            rows.extend(values.map(|(curve, how, slots)| Row {
                rate: Some(code.rate()),
                ..Row::new(curve, how, loss, spacing, slots)
            }));
        }
    }
    rows
}

/// Loss and spacing of each point of Figure 6.
pub(super) const FIGURE_6: [(f64, f64); 11] = [
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

fn figure_6(full: bool) -> Vec<Row> {
    points(&FIGURE_6, |&(loss, spacing)| {
        let losses = Losses::iid(loss);
        let Ok(code) = Streaming::new(loss, spacing) else { return vec![] };
        let delays = ideal::open_loop(spacing, 10 * symbols(full), ideal::losses(&losses.simulated(), 1));
        let mut rows = vec![
            Row {
                p50: code.quantile(0.5),
                p99: code.quantile(0.99),
                ..Row::new("mean", How::Model, loss, spacing, code.mean_delay())
            },
            Row::new("bound", How::Model, loss, spacing, code.mean_delay_bound()),
            Row::new("bound", How::Printed, loss, spacing, printed::mean_delay_bound(&code)),
            in_slots(delay_row("mean", losses, spacing, &delays)),
        ];
        rows.extend(real_row("mean", open_loop_every(spacing), losses, spacing, seeds(full)).map(in_slots));
        rows.into_iter().map(|row| Row { rate: Some(code.rate()), ..row }).collect()
    })
}

/// The streaming code without repairs for deficits.
pub(super) fn open_loop_every(spacing: f64) -> Profile {
    let redundancy = Redundancy { answer: Answer::Open, ..Redundancy::every(spacing) };
    Profile { redundancy, ..STREAM }
}

/// The paper's axis is slots.
pub(super) fn in_slots(row: Row) -> Row {
    let slots = |ms: f64| ms / SLOT_MS;
    Row { value: slots(row.value), p50: row.p50.map(slots), p99: row.p99.map(slots), ..row }
}

fn figure_7a(full: bool) -> Vec<Row> {
    open_loop(&[Losses::iid(0.05), Losses::iid(0.1)], full)
}

fn figure_7b(full: bool) -> Vec<Row> {
    let bursts = [2.0, 4.0].map(|burst| Losses { rate: 0.1, burst: Some(burst) });
    open_loop(&bursts, full)
}

/// Streaming code by the model, and block codes that lose a constant fraction: for each block size the fewest repairs.
fn open_loop(all: &[Losses], full: bool) -> Vec<Row> {
    let mut rows = vec![];
    for &losses in all {
        let burst = losses.burst.unwrap_or(1.0 / (1.0 - losses.rate));
        for spacing in 2..20 {
            let Ok(code) = Gilbert::new(losses.rate, burst, spacing) else { break };
            let row = losses.row("streaming", How::Model, spacing.into(), code.mean_delay());
            rows.push(Row {
                rate: Some(1.0 - 1.0 / f64::from(spacing)),
                p50: code.quantile(0.5),
                p99: code.quantile(0.99),
                ..row
            });
        }
        for residual in [1e-2, 1e-3, 1e-4, 1e-6] {
            let cells: Vec<u16> = (1..8).chain((8..240).step_by(8)).collect();
            rows.extend(points(&cells, |&k| {
                let Some(r) = least_repairs(losses.rate, burst, k, residual) else { return vec![] };
                let generations = symbols(full) / u64::from(k);
                let lost = ideal::losses(&losses.simulated(), 1);
                let (delays, _) = ideal::block_open(k.into(), r.into(), generations, lost);
                let row = in_slots(delay_row(&format!("block PER {residual:e}"), losses, k.into(), &delays));
                vec![Row { rate: Some(f64::from(k) / f64::from(k + r)), ..row }]
            }));
        }
    }
    rows
}

/// Fewest repairs with which a generation of `k` loses at most a fraction `residual` of its source symbols: the lost packets of a generation that
/// does not decode, spread evenly over it. Up to four times `k` and 64.
fn least_repairs(loss: f64, burst: f64, k: u16, residual: f64) -> Option<u16> {
    let after = [loss / (1.0 - loss) / burst, 1.0 - 1.0 / burst];
    // By losses so far, and whether the last packet was lost.
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

fn figure_8(full: bool) -> Vec<Row> {
    let mut cells = vec![];
    for burst in [None, Some(2.0), Some(4.0)] {
        let losses = Losses { rate: 0.1, burst };
        for r in [0, 1, 2, 3, 4, 6, 8, 12] {
            cells.push((losses, "block 32", f64::from(r), block(32, r)));
        }
        for spacing in [3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0] {
            cells.push((losses, "streaming", spacing, every(spacing)));
        }
    }
    points(&cells, |&(losses, curve, parameter, scheme)| both(curve, scheme, losses, parameter, full))
}

fn figure_9(full: bool) -> Vec<Row> {
    // 15 % as repairs over source symbols, in whole repairs.
    let mut cells = vec![("streaming", 1.0, every(1.0 + 1.0 / 0.15))];
    for k in [7u16, 13, 20, 27, 40, 60, 80, 100, 127] {
        let r = (0.15 * f64::from(k)).round() as u16;
        cells.push(("block", f64::from(k), block(k, r)));
    }
    points(&cells, |&(curve, k, scheme)| both(curve, scheme, Losses::iid(0.1), k, full))
}

fn figure_10(full: bool) -> Vec<Row> {
    let mut cells = vec![];
    for (k, curve) in [(8u16, "block 8"), (16, "block 16"), (32, "block 32"), (64, "block 64"), (128, "block 128")] {
        for share in [0.05, 0.125, 0.1875, 0.25, 0.375] {
            let r = (share * f64::from(k)).round() as u16;
            cells.push((curve, f64::from(r), block(k, r)));
        }
    }
    // Eight symbols have the same repairs for two shares.
    cells.dedup_by_key(|cell| (cell.0, cell.1));
    for spacing in [3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0] {
        cells.push(("streaming", spacing, every(spacing)));
    }
    points(&cells, |&(curve, parameter, scheme)| both(curve, scheme, Losses::iid(0.1), parameter, full))
}

fn table_1(_full: bool) -> Vec<Row> {
    let mut rows = vec![];
    for loss in [0.02, 0.1] {
        for load in [0.5, 0.6, 0.7, 0.8, 0.9] {
            let Ok(code) = Streaming::new(loss, load / loss) else { continue };
            rows.push(Row::new("operations", How::Printed, loss, load, printed::operations(&code)));
            rows.push(Row::new("operations", How::Model, loss, load, code.operations()));
        }
    }
    rows
}

/// Width of a bin of Figure 1's histograms.
const BIN_MS: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repairs_of_constant_residual_loss_are_the_binomials() {
        // One symbol, independent losses: with r repairs it is lost when all r + 1 packets are.
        assert_eq!(
            [0.2, 0.02, 0.002, 2e-9].map(|residual| least_repairs(0.1, 1.0 / 0.9, 1, residual)),
            [0, 1, 2, 8].map(Some)
        );
        // The catalogue's block sizes at rate 0.79: 45, 81 and 161 for 1e-3, 1e-4, 1e-6.
        for (k, residual) in [(45, 1e-3), (81, 1e-4), (161, 1e-6)] {
            let r = least_repairs(0.1, 1.0 / 0.9, k, residual).unwrap();
            let rate = f64::from(k) / f64::from(k + r);
            assert!((rate - 0.79).abs() < 0.012, "{k}: {r}");
        }
    }

    #[test]
    fn a_histogram_sums_to_one() {
        let rows = histogram("x", How::Ideal, Losses::iid(0.1), [(0.0, 3), (9.9, 1), (35.0, 4)].into_iter());
        assert_eq!(rows.iter().map(|row| row.value).collect::<Vec<_>>(), [0.5, 0.0, 0.0, 0.5]);
        assert_eq!(rows[3].parameter, 30.0);
    }

    #[test]
    fn every_experiment_has_a_name_of_its_own() {
        let mut names: Vec<_> = PAPER.experiments.iter().map(|experiment| experiment.name).collect();
        names.dedup();
        assert_eq!(names.len(), 10);
    }
}
