//! Figures 1, 2 and 6 of the streaming-code paper over the lab's link in real time: our transport over real
//! sockets with the settings of the simulated runs and one seed, and kernel TCP over the same path.
//!
//! The paper has no TCP; its ARQ is its own transport. The TCP source is saturated like the paper's file. The
//! delay of a record counts from the time when TCP's socket, which holds hardly any unsent data, accepted it.

use std::time::Duration;

use tidewire_figures::{Distribution, milliseconds};
use tidewire_lab::pair::Carried;
use tidewire_lab::trial::Measured;
use tidewire_sim::link::Capacity;
use tidewire_units::Rate;

use super::runs::{FILE, Losses, Point, RATE, ends, link, stats_row};
use super::{FIGURE_1_LOSS, FIGURE_2_LOSSES, figure_1_points, figure_2_points, figure_6_points, histogram, in_slots};
use crate::lab::Runs;
use crate::row::{How, Row};
use crate::{LabCase, LabExperiment, lab_cases};

/// The experiments of the paper that are measured in real time.
pub(super) const EXPERIMENTS: [LabExperiment; 5] = [
    LabExperiment { name: "figure-1", title: "ARQ and block code, 20 % loss", cases: figure_1 },
    LabExperiment { name: "figure-1-tcp", title: "Kernel TCP, 20 % loss", cases: figure_1_tcp },
    LabExperiment { name: "figure-2", title: "ARQ and block codes", cases: figure_2 },
    LabExperiment { name: "figure-2-tcp", title: "Kernel TCP", cases: figure_2_tcp },
    LabExperiment { name: "figure-6", title: "The streaming code, open loop", cases: figure_6 },
];

/// The first seed of the simulated runs.
const SEED: u64 = 1;
/// Longest time for a file: several times what retransmission takes at 20 % loss.
const FILE_LIMIT: Duration = Duration::from_secs(60);
/// Congestion controls of the kernel's TCP.
const CONTROLS: [&str; 3] = ["cubic", "reno", "bbr"];
/// Duration of a TCP run: about the time of the file, which CUBIC and Reno would not finish at these losses.
const TCP_TIME: Duration = Duration::from_secs(10);
/// TCP runs per histogram, because one run has only a few hundred records.
const TCP_SEEDS: usize = 3;

fn figure_1() -> Vec<LabCase> {
    lab_cases(figure_1_points(false), our_histogram)
}

fn our_histogram(point: &Point, runs: &mut Runs<'_>) -> Vec<Row> {
    let carried = ours(runs, &point.curve, point);
    let delays = carried.iter().flat_map(|carried| carried.far.delay.buckets());
    let bins = histogram(delays.map(|(delay, count)| (milliseconds(delay), count)));
    bins.into_iter().map(|(ms, share)| Row { parameter: ms, ..point.row(How::Lab, share) }).collect()
}

fn figure_1_tcp() -> Vec<LabCase> {
    let losses = Losses::iid(FIGURE_1_LOSS);
    lab_cases(CONTROLS.map(|control| Tcp { control, losses }), tcp_histogram)
}

fn tcp_histogram(tcp: &Tcp, runs: &mut Runs<'_>) -> Vec<Row> {
    let measured: Vec<_> = (SEED..).take(TCP_SEEDS).filter_map(|seed| tcp.run(runs, seed)).collect();
    let delay = Distribution::of_all(measured.iter().map(|run| &run.delay));
    histogram(delay.counts()).into_iter().map(|(ms, share)| tcp.row(ms, share)).collect()
}

fn figure_2() -> Vec<LabCase> {
    lab_cases(figure_2_points(false), |point, runs| {
        our_row(runs, &format!("{} {}", point.curve, point.parameter), point).into_iter().collect()
    })
}

fn figure_2_tcp() -> Vec<LabCase> {
    let all = FIGURE_2_LOSSES.map(Losses::iid);
    lab_cases(all.into_iter().flat_map(|losses| CONTROLS.map(|control| Tcp { control, losses })), tcp_mean)
}

fn tcp_mean(tcp: &Tcp, runs: &mut Runs<'_>) -> Vec<Row> {
    let row = |run: Measured| {
        // The abscissa of ARQ, which has no block size either.
        Some(Row {
            rate: run.sent_per_app.map(f64::recip),
            p50: run.delay.quantile(0.5),
            p99: run.delay.quantile(0.99),
            ..tcp.row(1.0, run.delay.mean()?)
        })
    };
    tcp.run(runs, SEED).and_then(row).into_iter().collect()
}

fn figure_6() -> Vec<LabCase> {
    lab_cases(figure_6_points(false), |point, runs| {
        let row = our_row(runs, &format!("streaming {}", point.parameter), point);
        // The rate of the code alone, as in the other curves of this figure.
        row.map(|row| Row { rate: Some(1.0 - point.parameter.recip()), ..in_slots(row) }).into_iter().collect()
    })
}

/// Carries a file with the scheme of a point, with the first seed.
fn ours(runs: &mut Runs<'_>, name: &str, point: &Point) -> Option<Carried> {
    let Point { scheme, losses, .. } = *point;
    runs.file(name, losses.rate, &link(losses, SEED), ends(scheme), FILE, FILE_LIMIT)
}

fn our_row(runs: &mut Runs<'_>, name: &str, point: &Point) -> Option<Row> {
    let Carried { near, far, .. } = ours(runs, name, point)?;
    stats_row(point, How::Lab, &[(&near, &far)])
}

/// The settings of a kernel TCP run, and the losses.
struct Tcp {
    /// Its congestion control.
    control: &'static str,
    losses: Losses,
}

impl Tcp {
    fn run(&self, runs: &mut Runs<'_>, seed: u64) -> Option<Measured> {
        let mut link = link(self.losses, seed);
        // Here the link limits the rate, with a queue of one round trip.
        let rate = Rate::from_bits_per_second(RATE).map_or(Capacity::Unlimited, Capacity::Fixed);
        (link.forward.capacity, link.back.capacity) = (rate.clone(), rate);
        runs.peer(&format!("tcp-{}-notsent", self.control), self.losses.rate, link, TCP_TIME)
    }

    fn row(&self, parameter: f64, value: f64) -> Row {
        Row::new(format!("tcp-{}", self.control), How::KernelTcp, self.losses.rate, parameter, value)
    }
}
