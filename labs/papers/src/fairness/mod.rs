//! Ageneau, Boukhatem, Gerla: "Fairness Evaluation of Pipeline Coded and non Coded TCP Flows": Figures 2
//! and 4 to 9, the same with four flows, and the rates and queues that the paper does not state.
//!
//! [`PAPERS`](crate::PAPERS) holds [`PAPER`]. `papers/fairness/README.md` says what the paper has and why the
//! results differ; `docs/fairness.md` derives the index. Invariant: the arguments of a case determine its
//! result.

mod batch;
#[cfg(target_os = "linux")]
mod lab;
mod neighbours;
mod runs;

use std::time::Duration;

use tidewire_model::fairness::NoFairShare;
use tidewire_sim::network::Control;

use self::runs::{Measured, Setting, System, on_a_line};
use crate::row::{How, Row};
use crate::{Case, Experiment, Paper, cases};

/// The paper with all its experiments.
pub const PAPER: Paper = Paper {
    name: "fairness",
    title: "Ageneau and others: Fairness Evaluation of Pipeline Coded and non Coded TCP Flows",
    experiments: &[
        Experiment { name: "figure-2", title: "Windows and drops, coded and not", cases: figure_2 },
        Experiment { name: "figure-4", title: "Goodput of both flows against R", cases: figure_4 },
        Experiment { name: "figure-5", title: "Goodput of both flows against g", cases: figure_5 },
        Experiment { name: "figure-6", title: "Goodput of both flows against loss", cases: figure_6 },
        Experiment { name: "figure-7", title: "Use of a lossy link, with a coded flow and without", cases: figure_7 },
        Experiment { name: "figure-8", title: "Fairness against R", cases: figure_8 },
        Experiment { name: "figure-9", title: "Fairness against loss", cases: figure_9 },
        Experiment { name: "four-flows", title: "Two coded flows of four against R", cases: four_flows },
        Experiment { name: "four-flows-loss", title: "Two coded flows of four against loss", cases: four_flows_loss },
        Experiment { name: "batch-delay", title: "Delay of pipeline and batch coding against g", cases: batch::delay },
        Experiment { name: "batch-goodput", title: "Goodput of the same against g", cases: batch::goodput },
        Experiment { name: "links", title: "Fairness over rates and queues", cases: links },
        Experiment { name: "rules", title: "Fairness of each redundancy rule against loss", cases: neighbours::rules },
        Experiment { name: "cost", title: "What a flow of ours costs NewReno", cases: neighbours::cost },
        Experiment { name: "cost-cubic", title: "What a flow of ours costs CUBIC", cases: neighbours::cost_cubic },
        Experiment { name: "cost-wide", title: "The same over 42 ms", cases: neighbours::cost_wide },
    ],
    #[cfg(target_os = "linux")]
    lab: &lab::EXPERIMENTS,
};

/// Two flows, one of them coded. The paper states neither rate nor queue. Chosen: a rate that two flows
/// without code do not fill at 1 %, as in the paper's example, and a queue of 100 packets. The delay is in
/// the caption of Figure 3.
const TWO: Setting = Setting {
    flows: 2,
    coded: 1,
    system: System::Paper,
    generation: 16,
    redundancy: 1.25,
    loss: 0.01,
    mbit: 50,
    delay: Duration::from_millis(1),
    queue: 100,
    seconds: 30,
    seeds: 3,
    control: Control::NewReno,
};
/// Four flows, two of them coded, at twice the rate, so that flows without code do not fill the link either.
const FOUR: Setting = Setting { flows: 4, coded: 2, mbit: 100, seconds: 20, ..TWO };
/// Values of R. At p = 1 % the least that replaces the losses is 1.0101.
const REDUNDANCIES: [f64; 10] = [1.0, 1.005, 1.01, 1.02, 1.05, 1.1, 1.15, 1.25, 1.35, 1.5];
const LOSSES: [f64; 8] = [0.0, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1];

/// A setting, its abscissa, and what the names of its curves end in.
struct Point {
    setting: Setting,
    parameter: f64,
    system: String,
}

/// The systems to which R applies, and what their curves are called.
const CODED: [(&str, System); 2] = [("", System::Paper), (" (rate control)", System::Controlled)];
const DEFAULT: (&str, System) = (" (default)", System::Default);

/// The setting, or with `full` one run of ten minutes, as in the paper.
const fn lasting(base: Setting, full: bool) -> Setting {
    if full { Setting { seconds: 600, seeds: 1, ..base } } else { base }
}

/// Each system at each value that `at` makes a setting of.
fn points(
    base: Setting,
    full: bool,
    systems: &[(&str, System)],
    values: &[f64],
    at: fn(Setting, f64) -> Setting,
) -> Vec<Point> {
    let base = lasting(base, full);
    let of = |&(system, kind): &(&str, System)| {
        let system = system.to_owned();
        values.iter().map(move |&parameter| Point {
            setting: at(Setting { system: kind, ..base }, parameter),
            parameter,
            system: system.clone(),
        })
    };
    systems.iter().flat_map(of).collect()
}

/// The points of a figure over R, which does not apply to the default.
fn over_redundancy(base: Setting, full: bool) -> Vec<Point> {
    points(base, full, &CODED, &REDUNDANCIES, |base, redundancy| Setting { redundancy, ..base })
}

/// The points of a figure over p.
fn over_loss(base: Setting, full: bool) -> Vec<Point> {
    let systems = [CODED[0], CODED[1], DEFAULT];
    points(base, full, &systems, &LOSSES, |base, loss| Setting { loss, ..base })
}

/// Mean goodput of the coded flows and of the others, and what each has if none is coded, in Mbit/s.
fn goodputs(point: &Point) -> Vec<Row> {
    goodputs_of(point, &Measured::of(point.setting))
}

fn goodputs_of(point: &Point, measured: &Measured) -> Vec<Row> {
    let row = |name: &str, value: f64| row(point, name, value);
    vec![
        row("coded", measured.coded()),
        row("without code", measured.uncoded()),
        row("if none is coded", measured.alone),
        row("all flows", measured.total()),
    ]
}

/// Both indices. Where the modified one does not exist, a row of its own has lambda: above 1, or 0 where
/// nothing is left for the coded flows.
fn indices(point: &Point) -> Vec<Row> {
    indices_of(point, &Measured::of(point.setting))
}

fn indices_of(point: &Point, measured: &Measured) -> Vec<Row> {
    let mut rows = vec![row(point, "J", measured.jain())];
    rows.push(match measured.allocation() {
        Ok(shares) => Row { rate: Some(shares.lambda()), ..row(point, "J'", shares.index()) },
        Err(NoFairShare::Worse { lambda, .. }) => row(point, "no J': lambda", lambda),
        Err(_) => row(point, "no J': nothing left", 0.0),
    });
    rows
}

fn row(point: &Point, name: &str, value: f64) -> Row {
    let curve = format!("{name}{}", point.system);
    Row::new(curve, How::Code, point.setting.loss, point.parameter, value)
}

fn figure_4(full: bool) -> Vec<Case> {
    cases(over_redundancy(TWO, full), goodputs)
}

fn figure_5(full: bool) -> Vec<Case> {
    let at = |base, symbols: f64| Setting { generation: symbols as u16, ..base };
    cases(points(TWO, full, &CODED, &[4.0, 8.0, 16.0, 32.0, 64.0], at), goodputs)
}

fn figure_6(full: bool) -> Vec<Case> {
    cases(over_loss(TWO, full), goodputs)
}

fn figure_8(full: bool) -> Vec<Case> {
    cases(over_redundancy(TWO, full), indices)
}

fn figure_9(full: bool) -> Vec<Case> {
    cases(over_loss(TWO, full), indices)
}

/// How two flows share what the link delivers: one of them coded (`parameter` 1), and none (2). The paper
/// draws no scale. Here R = 1.1, where its index is best.
fn figure_7(full: bool) -> Vec<Case> {
    cases([lasting(Setting { redundancy: 1.1, ..TWO }, full)], |&setting| {
        let measured = Measured::of(setting);
        let delivers = setting.mbit as f64 * (1.0 - setting.loss);
        let bars = [[measured.coded(), measured.uncoded()], [measured.alone; 2]];
        let rows = (1..).zip(bars).flat_map(|(bar, [one, other])| {
            let parts = [("flow 1", one), ("flow 2", other), ("not used", delivers - one - other)];
            parts.map(|(name, mbit)| Row::new(name, How::Code, setting.loss, f64::from(bar), mbit))
        });
        rows.collect()
    })
}

/// Goodputs and indices of four flows.
fn both(point: &Point) -> Vec<Row> {
    both_of(point, &Measured::of(point.setting))
}

fn both_of(point: &Point, measured: &Measured) -> Vec<Row> {
    [goodputs_of(point, measured), indices_of(point, measured)].concat()
}

fn four_flows(full: bool) -> Vec<Case> {
    cases(over_redundancy(FOUR, full), both)
}

fn four_flows_loss(full: bool) -> Vec<Case> {
    cases(over_loss(FOUR, full), both)
}

/// The window in segments over time, and the drops of the queue, on the line of Figure 1 without losses,
/// g = 64: twenty seconds after the first ten.
fn figure_2(_: bool) -> Vec<Case> {
    const SHOWN: core::ops::RangeInclusive<f64> = 10.0..=30.0;
    cases([("coded", 1), ("without code", 0)], |&(name, coded)| {
        let report = on_a_line(Setting { coded, generation: 64, loss: 0.0, seconds: 30, ..TWO });
        let windows = report.flows[0].window.iter().map(|&(at, window)| (at.as_secs_f64(), window));
        let windows: Vec<_> = windows.filter(|(at, _)| SHOWN.contains(at)).collect();
        let drops = report.links[1].samples[0].iter().map(|sample| (sample.at.as_secs_f64(), sample.dropped as f64));
        let drops: Vec<_> = drops.filter(|(at, _)| SHOWN.contains(at)).collect();
        let before = drops.first().map_or(0.0, |&(_, dropped)| dropped);
        let row = |name: &str, at, value| Row::new(name, How::Code, 0.0, at, value);
        let windows = windows.iter().map(|&(at, window)| row(name, at, window));
        let dropped = format!("drops ({name})");
        windows.chain(drops.iter().map(|&(at, drops)| row(&dropped, at, drops - before))).collect()
    })
}

/// What the flow without code keeps of x', over rates and queues in packets. `rate` is J', if it exists.
fn links(full: bool) -> Vec<Case> {
    let rates = [10, 25, 50, 100].into_iter().flat_map(|mbit| CODED.map(|system| (mbit, system)));
    let settings = rates.flat_map(|(mbit, system)| [25, 50, 100, 200].map(|queue| (mbit, system, queue)));
    let settings = settings.map(move |point| (point, lasting(TWO, full)));
    cases(settings, |&((mbit, (name, system), queue), base)| {
        let measured = Measured::of(Setting { mbit, queue, system, ..base });
        let curve = format!("{mbit} Mbit/s{name}");
        let kept = Row::new(curve, How::Code, TWO.loss, queue as f64, measured.uncoded() / measured.alone);
        vec![Row { rate: measured.allocation().ok().map(|shares| shares.index()), ..kept }]
    })
}
