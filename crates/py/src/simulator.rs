//! The simulator: one run of a scenario as a row, one of a network as a row for each flow, and the links of
//! the grid.
//!
//! `tidewire.simulator` turns its arguments into the text of a scenario file and calls these functions.
//! Invariants: the row depends only on scenario, seed and limit; a run is done without the GIL, and Ctrl-C
//! ends it between two steps of virtual time.

use std::path::Path;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tidewire_proto::Time;
use tidewire_sim::grid::{self, Cell};
use tidewire_sim::network::{FlowReport, Network, Plan, Report as Outcome};
use tidewire_sim::report::Report;
use tidewire_sim::scenario::Scenario;

use crate::error::SCENARIO;
use crate::interrupt::Pulse;
use crate::transport::stats::of_delays;

/// Virtual time between two looks for a signal. Chosen: at 1 Gbit/s, 20 ms are 2,000 datagrams, which take a
/// few milliseconds.
const STEP: Duration = Duration::from_millis(20);

/// Runs a scenario for at most `limit` virtual seconds, and returns its row.
#[pyfunction]
pub fn simulate<'py>(
    py: Python<'py>,
    text: &str,
    file: &str,
    seed: Option<u64>,
    limit: f64,
) -> PyResult<Bound<'py, PyDict>> {
    let mut scenario = Scenario::parse(text, Path::new(file)).map_err(|error| SCENARIO.raise(py, error))?;
    if let Some(seed) = seed {
        scenario.seed = seed;
        scenario.link.set_seed(seed);
    }
    if scenario.flows.is_empty() {
        return Err(SCENARIO.raise(py, format!("{file}: no flow: add [[flow]] with from and bytes")));
    }
    let limit = limit_of(py, limit)?;
    let seed = scenario.seed;
    let report = py.detach(|| run(&scenario, limit))?;
    let row = row(py, &report)?;
    row.set_item("seed", seed)?;
    Ok(row)
}

fn run(scenario: &Scenario, limit: Duration) -> PyResult<Report> {
    let mut trial = scenario.trial();
    trial.limit = limit;
    // The near end of a scenario need not ask the far end for a policy: both have their own settings.
    if let Ok(near) = trial.near.to_builder().asks_peer(false).build() {
        trial.near = near;
    }
    let mut run = trial.start();
    let (mut at, end) = (run.began(), run.began() + limit);
    let mut pulse = Pulse::new();
    while at < end {
        at = end.min(at + STEP);
        if run.until(at) {
            break;
        }
        pulse.check()?;
    }
    Ok(run.report())
}

/// The row of a report: flat. `loss_rate` has no shorter name, because a cell of a sweep
/// often has a column `loss`.
fn row<'py>(py: Python<'py>, report: &Report) -> PyResult<Bound<'py, PyDict>> {
    let (sending, receiving, link) = (report.sending(), report.receiving(), report.outward());
    let (packets, symbols) = (sending.packets, receiving.symbols);
    let row = PyDict::new(py);
    row.set_item("done", report.done)?;
    row.set_item("errors", report.errors.join("; "))?;
    row.set_item("seconds", report.seconds)?;
    row.set_item("bytes", report.bytes)?;
    row.set_item("goodput_bps", report.goodput_bps)?;
    row.set_item("steady_goodput_bps", report.steady_goodput_bps)?;
    row.set_item("sent_per_byte", report.sent_per_byte())?;
    row.set_item("returned_per_byte", report.returned_per_byte())?;
    row.set_item("loss_rate", sending.loss.rate)?;
    row.set_item("rtt_min_ms", sending.rtt.least.as_secs_f64() * 1e3)?;
    row.set_item("rtt_mean_ms", sending.rtt.mean.as_secs_f64() * 1e3)?;
    for (name, value) in of_delays(py, report.delay())? {
        row.set_item(format!("delay_{name}_ms"), value)?;
    }
    let counts = [
        ("packets_sent", packets.sent),
        ("packets_source", packets.source),
        ("packets_repair", packets.repair),
        ("packets_feedback_repair", packets.feedback_repair),
        ("packets_redundant", receiving.packets.redundant),
        ("packets_lost", packets.lost),
        ("packets_dropped_at_own_rate", sending.loss.at_own_rate.packets),
        ("symbols_delivered", symbols.delivered),
        ("symbols_direct", symbols.direct),
        ("symbols_repaired", symbols.repaired),
        ("symbols_resent", symbols.resent),
        ("symbols_expired", symbols.expired),
        ("link_offered", link.offered),
        ("link_lost", link.lost),
        ("link_queue_dropped", link.queue_dropped),
        ("link_policed", link.policed()),
        ("link_delivered", link.delivered),
    ];
    counts.into_iter().try_for_each(|(name, count)| row.set_item(name, count))?;
    row.set_item("link_queueing_ms", link.mean_queueing().as_secs_f64() * 1e3)?;
    Ok(row)
}

/// Runs all flows of a network together, and returns a row for each.
#[pyfunction]
pub fn simulate_network<'py>(
    py: Python<'py>,
    text: &str,
    file: &str,
    seed: Option<u64>,
    limit: f64,
) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let plan = Plan::parse(text, Path::new(file)).map_err(|error| SCENARIO.raise(py, error))?;
    let limit = limit_of(py, limit)?;
    let seed = seed.unwrap_or(plan.seed);
    let plan = plan.with_seed(seed);
    if let Some(flow) = plan.not_simulated() {
        let text =
            format!("{file}: flow {}: the simulator has neither BBR nor peers: write newreno or cubic", flow.name);
        return Err(SCENARIO.raise(py, text));
    }
    let report = py.detach(|| run_network(&plan, plan.time.unwrap_or(limit)))?;
    report.flows.iter().map(|flow| row_of_flow(py, flow, seed)).collect()
}

fn run_network(plan: &Plan, limit: Duration) -> PyResult<Outcome> {
    let mut network = Network::new(plan);
    let (mut at, end) = (Time::ZERO, Time::ZERO + limit);
    let mut pulse = Pulse::new();
    while at < end {
        at = end.min(at + STEP);
        network.until(at);
        if network.now() < at {
            // All flows have ended.
            break;
        }
        pulse.check()?;
    }
    Ok(network.report())
}

fn row_of_flow<'py>(py: Python<'py>, flow: &FlowReport, seed: u64) -> PyResult<Bound<'py, PyDict>> {
    let row = PyDict::new(py);
    row.set_item("name", &flow.name)?;
    row.set_item("kind", flow.kind)?;
    row.set_item("from", &flow.from)?;
    row.set_item("to", &flow.to)?;
    row.set_item("bytes", flow.bytes)?;
    row.set_item("whole", flow.whole)?;
    row.set_item("seconds", flow.seconds)?;
    row.set_item("goodput_bps", flow.goodput_bps())?;
    for (name, value) in of_delays(py, &flow.latencies.latency)? {
        row.set_item(format!("latency_{name}_ms"), value)?;
    }
    row.set_item("packets", flow.packets)?;
    row.set_item("repeated", flow.repeated)?;
    row.set_item("errors", flow.errors.join("; "))?;
    row.set_item("seed", seed)?;
    Ok(row)
}

fn limit_of(py: Python<'_>, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| SCENARIO.raise(py, format!("a limit of {seconds} s: give virtual seconds of at least 0")))
}

/// The cells of the grid: `core`, on which every change is judged, or `around` it.
#[pyfunction]
pub fn grid_cells<'py>(py: Python<'py>, part: &str) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let cells = match part {
        "core" => grid::core(),
        "around" => grid::around(),
        _ => return Err(SCENARIO.raise(py, format!("the grid has no part {part:?}: write core or around"))),
    };
    cells.iter().map(|cell| of_cell(py, cell)).collect()
}

fn of_cell<'py>(py: Python<'py>, cell: &Cell) -> PyResult<Bound<'py, PyDict>> {
    let of = PyDict::new(py);
    of.set_item("cell", cell.to_string())?;
    of.set_item("loss", cell.loss)?;
    of.set_item("burst", cell.burst)?;
    of.set_item("rtt_ms", cell.rtt_ms)?;
    of.set_item("load", cell.load)?;
    of.set_item("back_loss", cell.back_loss)?;
    of.set_item("max_span", cell.max_span)?;
    of.set_item("misjudged", cell.misjudged)?;
    Ok(of)
}
