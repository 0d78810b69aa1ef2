//! What a flow of ours leaves to TCP beside it: each redundancy rule below TCP, and each profile and rate
//! controller.
//!
//! [`PAPER`](super::PAPER) lists the experiments, which the paper leaves open. `docs/fairness.md` has what
//! follows from them. Invariant: a profile that is added to the list of profiles gets its rows here.

use std::time::Duration;

use tidewire_proto::profile::{Profile, STREAM};
use tidewire_proto::rate::{AimdSteps, RateControl, TrainSteps};
use tidewire_proto::redundancy::Ratio;
use tidewire_sim::network::Control;

use super::runs::{Measured, Setting, System};
use super::{Point, TWO, both_of, points, row};
use crate::row::Row;
use crate::{Case, cases};

/// The loss rates for which the goals hold.
const LOSSES: [f64; 4] = [0.0, 0.01, 0.02, 0.05];
/// The paper's network with seven times the delay, and half the rate: a round trip of 42 ms, and a queue of
/// about as much.
const WIDE: Setting = Setting { mbit: 25, delay: Duration::from_millis(7), queue: 88, ..TWO };

/// The rules that compute R, without a rate control as in the paper and with the tunnel's.
const RULES: [(&str, System); 9] = [
    (" (min)", System::Rule(Ratio::Least, RateControl::Open)),
    (" (combo)", System::Rule(Ratio::Combo, RateControl::Open)),
    (" (combo-printed)", System::Rule(Ratio::ComboPrinted, RateControl::Open)),
    (" (adaptive)", System::Rule(Ratio::Planned, RateControl::Open)),
    (" (min, rate control)", System::Rule(Ratio::Least, RateControl::Share)),
    (" (combo, rate control)", System::Rule(Ratio::Combo, RateControl::Share)),
    (" (combo-printed, rate control)", System::Rule(Ratio::ComboPrinted, RateControl::Share)),
    (" (adaptive, rate control)", System::Rule(Ratio::Planned, RateControl::Share)),
    (" (default)", System::Default),
];

/// The controllers beside that of the default profile. Those that keep a rate whatever is lost (`fixed`,
/// `open`) are no choice beside others.
const CONTROLLERS: [RateControl; 4] = [
    RateControl::Cubic,
    RateControl::NewReno,
    RateControl::Aimd(AimdSteps::MARKED),
    RateControl::Train(TrainSteps::CHOSEN),
];

/// The tunnel, each profile with its own controller, and the default profile with the others.
fn systems() -> Vec<(String, System)> {
    let profile = |text: &str, profile| (format!(" ({text})"), System::Ours(profile));
    // A name alone is a profile with its usual parameters; a test of the profiles holds it.
    let named = Profile::NAMED.iter().filter_map(|named| Some(profile(named.name, named.name.parse().ok()?)));
    let controlled = CONTROLLERS.map(|rate_control| {
        let stream = Profile { rate_control, ..STREAM };
        profile(&format!("stream, {rate_control}"), stream)
    });
    [(" (tunnel)".to_owned(), System::Default)].into_iter().chain(named).chain(controlled).collect()
}

/// Both goodputs, both indices, and the share of x' that the flow beside ours keeps.
fn rows(point: &Point) -> Vec<Row> {
    let measured = Measured::of(point.setting);
    let mut rows = both_of(point, &measured);
    rows.push(row(point, "kept", measured.uncoded() / measured.alone));
    rows
}

fn over_loss(base: Setting, full: bool, systems: &[(String, System)]) -> Vec<Case> {
    let systems: Vec<_> = systems.iter().map(|(name, system)| (name.as_str(), *system)).collect();
    cases(points(base, full, &systems, &LOSSES, |base, loss| Setting { loss, ..base }), rows)
}

/// J' of each redundancy rule.
pub(super) fn rules(full: bool) -> Vec<Case> {
    over_loss(TWO, full, &RULES.map(|(name, system)| (name.to_owned(), system)))
}

/// One flow of ours beside one of NewReno.
pub(super) fn cost(full: bool) -> Vec<Case> {
    over_loss(TWO, full, &systems())
}

/// One flow of ours beside one of CUBIC. In a tunnel, CUBIC runs too.
pub(super) fn cost_cubic(full: bool) -> Vec<Case> {
    over_loss(Setting { control: Control::Cubic, ..TWO }, full, &systems())
}

/// The default, as a connection and as a tunnel, over a longer way, beside both.
pub(super) fn cost_wide(full: bool) -> Vec<Case> {
    let both = [(Control::NewReno, "NewReno"), (Control::Cubic, "CUBIC")];
    let beside = both.map(|(control, name)| {
        let systems = [("tunnel", System::Default), ("stream", System::Ours(STREAM))];
        let systems = systems.map(|(ours, system)| (format!(" ({ours}, {name})"), system));
        over_loss(Setting { control, ..WIDE }, full, &systems)
    });
    beside.into_iter().flatten().collect()
}
