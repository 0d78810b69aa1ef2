//! Figures 1, 2 and 6 of the streaming-code paper over the lab's link in real time: our transport over real sockets with the settings of the
//! simulated runs, one seed, and beside it what the kernel's TCP makes of the same path.
//!
//! The paper has no TCP: its ARQ is a transport of its own. The source is its file: saturated, so that a record's delay is from when TCP's socket,
//! with hardly anything unsent, took it.

use std::time::Duration;

use tidewire_proto::profile::Profile;
use tidewire_sim::link::Capacity;
use tidewire_sim::units::Rate;

use super::LabExperiment;
use super::lab_runs::Runs;
use super::row::{How, Row};
use super::streaming_code::{
    FIGURE_1, FIGURE_1_LOSS, FIGURE_2_LOSSES, FIGURE_6, figure_2_cells, histogram, in_slots, open_loop_every,
};
use super::streaming_runs::{FILE, Losses, RATE, ends, link, stats_row};
use crate::distribution::{Distribution, milliseconds};
use crate::lab::pair::Carried;
use crate::lab::trial::Measured;

/// See the module.
pub(super) const EXPERIMENTS: [LabExperiment; 5] = [
    LabExperiment { name: "figure-1", title: "ARQ and block code, 20 % loss", run: figure_1 },
    LabExperiment { name: "figure-1-tcp", title: "Kernel TCP, 20 % loss", run: figure_1_tcp },
    LabExperiment { name: "figure-2", title: "ARQ and block codes", run: figure_2 },
    LabExperiment { name: "figure-2-tcp", title: "Kernel TCP", run: figure_2_tcp },
    LabExperiment { name: "figure-6", title: "The streaming code, open loop", run: figure_6 },
];

/// The first of the simulated runs' seeds.
const SEED: u64 = 1;
/// How long a file may take: several times what retransmission takes at 20 % loss, without waiting for ever for what hangs.
const FILE_LIMIT: Duration = Duration::from_secs(60);
/// Congestion controls of the kernel's TCP.
const CONTROLS: [&str; 3] = ["cubic", "reno", "bbr"];
/// How long TCP sends: about the time of the file, which CUBIC and Reno would not get through at these losses.
const TCP_TIME: Duration = Duration::from_secs(10);
/// Runs of TCP for a histogram: one has a few hundred records only.
const TCP_SEEDS: u64 = 3;

fn figure_1(runs: &mut Runs<'_>) -> Vec<Row> {
    let losses = Losses::iid(FIGURE_1_LOSS);
    let mut rows = vec![];
    for (curve, scheme) in FIGURE_1 {
        let carried = ours(runs, curve, scheme, losses);
        let delays = carried.iter().flat_map(|carried| carried.far.delay.buckets());
        rows.extend(histogram(curve, How::Lab, losses, delays.map(|(delay, count)| (milliseconds(delay), count))));
    }
    rows
}

fn figure_1_tcp(runs: &mut Runs<'_>) -> Vec<Row> {
    let losses = Losses::iid(FIGURE_1_LOSS);
    let mut rows = vec![];
    for control in CONTROLS {
        let measured: Vec<_> =
            (SEED..).take(TCP_SEEDS as usize).filter_map(|seed| tcp(runs, control, losses, seed)).collect();
        let delay = Distribution::of_all(measured.iter().map(|run| &run.delay));
        rows.extend(histogram(&tcp_curve(control), How::KernelTcp, losses, delay.counts()));
    }
    rows
}

fn figure_2(runs: &mut Runs<'_>) -> Vec<Row> {
    let mut rows = vec![];
    for (loss, curve, k, scheme) in figure_2_cells() {
        let losses = Losses::iid(loss);
        rows.extend(our_row(runs, curve, &format!("{curve} {k}"), scheme, losses, k));
    }
    rows
}

fn figure_2_tcp(runs: &mut Runs<'_>) -> Vec<Row> {
    let mut rows = vec![];
    for loss in FIGURE_2_LOSSES {
        let losses = Losses::iid(loss);
        for control in CONTROLS {
            let Some(run) = tcp(runs, control, losses, SEED) else { continue };
            // The abscissa of ARQ, which has no block either.
            rows.extend(run.delay.mean().map(|mean| Row {
                rate: run.sent_per_app.map(f64::recip),
                p50: run.delay.quantile(0.5),
                p99: run.delay.quantile(0.99),
                ..losses.row(&tcp_curve(control), How::KernelTcp, 1.0, mean)
            }));
        }
    }
    rows
}

fn figure_6(runs: &mut Runs<'_>) -> Vec<Row> {
    let mut rows = vec![];
    for (loss, spacing) in FIGURE_6 {
        let name = format!("streaming {spacing}");
        let row = our_row(runs, "mean", &name, open_loop_every(spacing), Losses::iid(loss), spacing);
        // As of the other curves of this figure: that of the code alone.
        rows.extend(row.map(|row| Row { rate: Some(1.0 - spacing.recip()), ..in_slots(row) }));
    }
    rows
}

fn ours(runs: &mut Runs<'_>, name: &str, scheme: Profile, losses: Losses) -> Option<Carried> {
    runs.file(name, losses.rate, &link(losses, SEED), ends(scheme), FILE, FILE_LIMIT)
}

fn our_row(
    runs: &mut Runs<'_>,
    curve: &str,
    name: &str,
    scheme: Profile,
    losses: Losses,
    parameter: f64,
) -> Option<Row> {
    let Carried { near, far, .. } = ours(runs, name, scheme, losses)?;
    stats_row(curve, How::Lab, losses, parameter, &[(&near, &far)])
}

fn tcp(runs: &mut Runs<'_>, control: &str, losses: Losses, seed: u64) -> Option<Measured> {
    let mut link = link(losses, seed);
    // What keeps the rate here is the link, with a queue of one round trip.
    let rate = Rate::from_bits_per_second(RATE).map_or(Capacity::Unlimited, Capacity::Fixed);
    (link.forward.capacity, link.back.capacity) = (rate.clone(), rate);
    runs.peer(&format!("{}-notsent", tcp_curve(control)), losses.rate, link, TCP_TIME)
}

fn tcp_curve(control: &str) -> String {
    format!("tcp-{control}")
}
