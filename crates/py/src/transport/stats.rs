//! Statistics and plans as dictionaries, with the names of the command's JSON (`docs/json.md`).

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tidewire::{ByteStats, DelayHistogram, MessageStats, PacketStats, Plan, Stats, SymbolStats};

/// The statistics of a connection: a dictionary of dictionaries.
pub fn of_connection<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("packets", counts(py, &packets(&stats.packets))?)?;
    all.set_item("symbols", counts(py, &symbols(&stats.symbols))?)?;
    let MessageStats { sent, expired, delivered, dropped, .. } = stats.messages;
    let messages = [("sent", sent), ("expired", expired), ("delivered", delivered), ("dropped", dropped)];
    all.set_item("messages", counts(py, &messages)?)?;
    let ByteStats { wire_sent, wire_received, app_sent, app_received, .. } = stats.bytes;
    let bytes = [
        ("wire_sent", wire_sent),
        ("wire_received", wire_received),
        ("app_sent", app_sent),
        ("app_received", app_received),
    ];
    all.set_item("bytes", counts(py, &bytes)?)?;
    let known = |time: Duration| (!time.is_zero()).then(|| milliseconds(time));
    let rtt = PyDict::new(py);
    for (name, time) in [("min", stats.rtt.least), ("mean", stats.rtt.mean), ("latest", stats.rtt.latest)] {
        rtt.set_item(name, known(time))?;
    }
    all.set_item("rtt_ms", rtt)?;
    all.set_item("delay_ms", of_delays(py, &stats.delay)?)?;
    all.set_item("loss", stats.loss.rate)?;
    let control = PyDict::new(py);
    control.set_item("state", stats.rate.state)?;
    control.set_item("dropped_packets", stats.loss.at_own_rate.packets)?;
    control.set_item("dropped_bytes", stats.loss.at_own_rate.bytes)?;
    all.set_item("rate_control", control)?;
    all.set_item("pacing_bps", stats.rate.pacing_bps)?;
    all.set_item("window_bytes", stats.rate.window)?;
    Ok(all)
}

fn packets(packets: &PacketStats) -> [(&'static str, u64); 10] {
    [
        ("sent", packets.sent),
        ("source", packets.source),
        ("repair", packets.repair),
        ("feedback_repair", packets.feedback_repair),
        ("control", packets.control),
        ("received", packets.received),
        ("redundant", packets.redundant),
        ("acked", packets.acked),
        ("lost", packets.lost),
        ("reordered", packets.reordered),
    ]
}

fn symbols(symbols: &SymbolStats) -> [(&'static str, u64); 5] {
    [
        ("delivered", symbols.delivered),
        ("direct", symbols.direct),
        ("repaired", symbols.repaired),
        ("resent", symbols.resent),
        ("expired", symbols.expired),
    ]
}

fn counts<'py>(py: Python<'py>, named: &[(&str, u64)]) -> PyResult<Bound<'py, PyDict>> {
    let counts = PyDict::new(py);
    named.iter().try_for_each(|(name, count)| counts.set_item(name, count))?;
    Ok(counts)
}

/// Mean, quantiles and maximum; None for each if nothing was delivered.
pub fn of_delays<'py>(py: Python<'py>, delays: &DelayHistogram) -> PyResult<Bound<'py, PyDict>> {
    let of = PyDict::new(py);
    let is_known = delays.count() > 0;
    let known = |time: Duration| is_known.then(|| milliseconds(time));
    of.set_item("mean", known(delays.mean()))?;
    for (name, q) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)] {
        of.set_item(name, known(delays.quantile(q)))?;
    }
    of.set_item("max", known(delays.max()))?;
    Ok(of)
}

/// A plan with the names of the event `explain`.
pub fn of_plan<'py>(py: Python<'py>, plan: &Plan) -> PyResult<Bound<'py, PyDict>> {
    let explained = PyDict::new(py);
    explained.set_item("repair", plan.share)?;
    explained.set_item("late", plan.late)?;
    explained.set_item("feasible", plan.nearest.is_none())?;
    if let Some(nearest) = plan.nearest {
        explained.set_item("feasible_latency_ms", milliseconds(nearest.latency))?;
        explained.set_item("feasible_deliver", nearest.deliver)?;
        explained.set_item("feasible_max_overhead", nearest.max_overhead)?;
    }
    explained.set_item("words", plan.to_string())?;
    Ok(explained)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
