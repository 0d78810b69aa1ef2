//! The network of Figure 3 in real time: kernels that forward, the kernel's TCP, and our tunnels and
//! connections as programs; each beside the simulated run of the same plan and seed.
//!
//! [`PAPER`](super::PAPER) lists the experiments. NewReno is the kernel's reno without SACK, CUBIC the
//! kernel's with SACK. Invariant: plan, settings and seed are those of the simulated runs.

use std::cell::RefCell;
use std::collections::BTreeMap;

use tidewire_proto::profile::STREAM;
use tidewire_sim::network::{Control, Network};

use super::runs::{Measured, SEED, Setting, System, cross, throughputs};
use super::{Point, TWO, both_of, row};
use crate::lab::Runs;
use crate::row::{How, Row};
use crate::{LabCase, LabExperiment, lab_cases};

/// The experiments of the paper that are measured in real time.
pub(super) const EXPERIMENTS: [LabExperiment; 3] = [
    LabExperiment { name: "figure-4", title: "Both flows against R, kernel NewReno", cases: figure_4 },
    LabExperiment { name: "cost", title: "What a flow of ours costs the kernel's NewReno", cases: cost },
    LabExperiment { name: "cost-cubic", title: "What a flow of ours costs the kernel's CUBIC", cases: cost_cubic },
];

/// Both flows for twenty seconds, once. Chosen: an experiment ends within four minutes.
const SHORT: Setting = Setting { seconds: 20, seeds: 1, ..TWO };
/// The link in the middle of [`cross`].
const MIDDLE: usize = 2;
/// p of the costs.
const LOSSES: [f64; 3] = [0.0, 0.01, 0.05];

/// Values of R with the paper's system, R = 1.25 under a rate control, and the default.
fn figure_4() -> Vec<LabCase> {
    let paper = [1.0, 1.1, 1.25, 1.5].map(|redundancy| (String::new(), Setting { redundancy, ..SHORT }));
    let others = [(" (rate control)", System::Controlled), (" (default)", System::Default)];
    let others = others.map(|(name, system)| (name.to_owned(), Setting { system, ..SHORT }));
    lab_cases([Vec::from_iter(paper.into_iter().chain(others))], |settings, runs| compared(settings, runs))
}

fn costs(control: Control) -> Vec<LabCase> {
    let systems = [(" (tunnel)", System::Default), (" (stream)", System::Ours(STREAM))];
    let at = move |loss| {
        let of = |(name, system): (&str, System)| (name.to_owned(), Setting { system, loss, control, ..SHORT });
        systems.map(of).to_vec()
    };
    lab_cases(LOSSES.map(at), |settings, runs| compared(settings, runs))
}

fn cost() -> Vec<LabCase> {
    costs(Control::NewReno)
}

fn cost_cubic() -> Vec<LabCase> {
    costs(Control::Cubic)
}

/// The rows of settings in real time and simulated. The settings of the runs without code run once.
fn compared(settings: &[(String, Setting)], runs: &mut Runs<'_>) -> Vec<Row> {
    let runs = RefCell::new(runs);
    let in_real_time = |name: &str, setting: Setting| {
        let plan = cross(setting, SEED);
        let outcome = runs.borrow_mut().network(name, setting.loss, &plan, MIDDLE)?;
        Some(throughputs(&outcome.report))
    };
    let simulated = |_: &str, setting: Setting| Some(throughputs(&Network::new(&cross(setting, SEED)).run()));
    let ways: [(How, Way<'_>); 2] = [(How::Lab, &in_real_time), (How::Code, &simulated)];
    ways.into_iter().flat_map(|(how, way)| rows(settings, how, way)).collect()
}

/// Runs a setting under a name, and returns the goodput of each flow in Mbit/s; `None` if the run failed.
type Way<'a> = &'a dyn Fn(&str, Setting) -> Option<Vec<f64>>;

fn rows(settings: &[(String, Setting)], how: How, way: Way<'_>) -> Vec<Row> {
    let (mut without, mut rows) = (BTreeMap::new(), Vec::new());
    for (name, setting) in settings {
        let none = setting.without_code();
        let alone = without.entry(format!("{none:?}")).or_insert_with(|| way("none coded", none)).clone();
        let flows = way(&format!("R {}{name}", setting.redundancy), *setting);
        let Some((flows, alone)) = flows.zip(alone) else { continue };
        let measured = Measured::new(*setting, flows, &alone);
        let point = Point { setting: *setting, parameter: setting.redundancy, system: name.clone() };
        rows.extend(both_of(&point, &measured));
        rows.push(row(&point, "kept", measured.uncoded() / measured.alone));
    }
    rows.iter_mut().for_each(|row| row.how = how);
    rows
}
