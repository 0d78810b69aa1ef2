//! The table of decisions, as comma-separated values whose cells are Markdown.

use tidewire_figures::csv;

use crate::decision::{BURSTS, Decision, Flow, RTTS_MS};

/// Fractions of packets lost.
const LOSSES: [f64; 8] = [0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3];
/// Stated latencies of the last columns, at a round trip of 60 ms: half of the round trip, and just more than
/// a retransmission takes.
const LATENCIES_MS: [f64; 2] = [30.0, 80.0];

/// Writes a row for each loss and mean run, with a column for each flow.
pub fn draw() -> String {
    let flows = flows();
    let head = ["loss".to_owned(), String::new()].into_iter().chain(flows.iter().map(head));
    let rows = LOSSES.iter().flat_map(|loss| BURSTS.iter().map(move |burst| (*loss, *burst)));
    let rows = rows.map(|(loss, burst)| {
        let names = [format!("{} %", 100.0 * loss), burst.name()];
        csv::line(names.into_iter().chain(flows.iter().map(|flow| cell(&flow.decide(loss, burst)))))
    });
    csv::line(head) + &rows.collect::<String>()
}

fn flows() -> Vec<Flow> {
    let by_default = |saturated| move |rtt_ms| Flow { rtt_ms, saturated, latency_ms: None };
    let stated = LATENCIES_MS.map(|latency| Flow { rtt_ms: 60, saturated: false, latency_ms: Some(latency) });
    // From 60 ms on, the decisions for a saturated flow do not change.
    [&RTTS_MS.map(by_default(false))[..], &[10, 60].map(by_default(true)), &stated].concat()
}

fn head(flow: &Flow) -> String {
    match flow {
        Flow { latency_ms: Some(latency), rtt_ms, .. } => format!("`--latency {latency}ms`, {rtt_ms} ms"),
        Flow { saturated: true, rtt_ms, .. } => format!("saturated, {rtt_ms} ms"),
        Flow { rtt_ms, .. } => format!("half load, {rtt_ms} ms"),
    }
}

fn cell(decision: &Decision) -> String {
    if decision.asks_only() {
        return "asks".into();
    }
    let text = format!("{:.1} % / {:.1}", 100.0 * decision.share, 1.0 + 1.0 / decision.share);
    match decision.falls_short() {
        Some(kept) => format!("**{text}**, {:.1} % by repair", 100.0 * kept),
        None => text,
    }
}
