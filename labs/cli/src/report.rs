//! What `sim` and `tidewire-lab run` print about a network: a line for each flow, each end of a tunnel and
//! each direction of a link, or the events of `--json`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use tidewire_command::exit::{Exit, Failure};
use tidewire_command::report::{Console, Delay, rate};
use tidewire_command::stdout;
use tidewire_figures::chart::over_time::{self, Panel, Trace};
use tidewire_figures::{Distribution, milliseconds};
use tidewire_proto::Time;
use tidewire_proto::stats::DelayHistogram;
use tidewire_sim::network::{DROPS, FlowReport, LinkReport, LinkSample, Report, TunnelEnd, TunnelReport};

use crate::link_counts::{LinkCounts, counts};
use crate::sim::{playback, video_rows};

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[expect(clippy::enum_variant_names, reason = "the names are those of the events")]
enum Event<'a> {
    /// What one flow of a network had.
    NetworkFlow {
        name: &'a str,
        /// What carried it.
        kind: &'a str,
        /// The node that sent.
        from: &'a str,
        /// The node that received.
        to: &'a str,
        /// Bytes that reached the receiving application.
        bytes: u64,
        /// Whether all arrived. Null if the flow has no end.
        whole: Option<bool>,
        /// From its start to its end, or to the end of the run.
        seconds: f64,
        /// Bytes over seconds.
        goodput_bps: f64,
        /// From the sending to the receiving application.
        latency_ms: Delay,
        /// Differences of the latencies of consecutive packets.
        jitter_ms: Delay,
        /// Packets with data.
        packets: u64,
        /// Of these, sent again or repairs.
        repeated: u64,
        /// Datagrams that arrived with a changed byte.
        damaged: u64,
        /// Pairs of a time in seconds and the congestion window: in segments, of ours in packets of 1,500
        /// bytes.
        window: Vec<[f64; 2]>,
    },
    /// What one tunnel of a network did.
    NetworkTunnel {
        name: &'a str,
        /// The node that connected.
        from: &'a str,
        /// The node that listened.
        to: &'a str,
        /// The end at `from`, and the end at `to`.
        ends: [EndOfTunnel; 2],
    },
    /// What one link of a network did.
    NetworkLink {
        name: &'a str,
        /// Counts from its first to its second node.
        forward: LinkCounts,
        /// Counts from its second to its first node.
        back: LinkCounts,
        /// The queue forward: time in seconds, packets, bytes, packets dropped and marked so far.
        forward_queue: Vec<[f64; 5]>,
        /// The same back.
        back_queue: Vec<[f64; 5]>,
    },
}

/// What one end of a tunnel did with packets.
#[derive(Serialize)]
struct EndOfTunnel {
    /// Smoothed round trip in milliseconds.
    rtt_ms: Option<f64>,
    /// Share of its datagrams that were lost lately.
    loss: Option<f64>,
    /// Datagrams with source symbols.
    source: u64,
    /// Datagrams with repairs sent before a loss was known.
    repair: u64,
    /// Datagrams sent because of a reported loss.
    feedback_repair: u64,
    /// Packets given to the transport.
    sent_packets: u64,
    sent_bytes: u64,
    /// Packets that came from the other end.
    received_packets: u64,
    received_bytes: u64,
    /// Packets that its queue marked.
    marked: u64,
    /// Packets that it dropped, by reason.
    dropped: BTreeMap<&'static str, u64>,
}

/// Prints a report, and draws it into the file `svg`. Fails if a flow had a wrong byte, or did not arrive
/// whole.
///
/// # Errors
/// [`Exit::Integrity`] for a wrong byte, [`Exit::Unreachable`] if bytes are missing.
pub fn conclude(report: &Report, console: &Console, svg: Option<&Path>) -> Result<(), Failure> {
    if let Some(path) = svg {
        std::fs::write(path, picture(report)).map_err(|error| {
            Failure::message(Exit::LocalIo, format_args!("cannot write `{}`: {error}; try --svg FILE", path.display()))
        })?;
    }
    report.flows.iter().for_each(|flow| console.event(&event_of_flow(flow)));
    report.tunnels.iter().for_each(|tunnel| console.event(&event_of_tunnel(tunnel)));
    report.links.iter().for_each(|link| console.event(&event_of_link(link)));
    let seen = report.flows.iter().zip(1..).filter_map(|(flow, number)| Some((number, flow.viewing.clone()?)));
    let videos: Vec<_> = seen.collect();
    videos.iter().for_each(|(flow, viewing)| console.event(&playback(*flow, viewing)));
    if !console.json() {
        stdout::write(&format!("{}{}", table(report), video_rows(&videos)));
    }
    let wrong = |flow: &FlowReport| Some(format!("{}: {}", flow.name, flow.errors.first()?));
    let broken = |tunnel: &TunnelReport| Some(format!("tunnel {}: {}", tunnel.name, tunnel.errors.first()?));
    if let Some(error) = report.flows.iter().find_map(wrong).or(report.tunnels.iter().find_map(broken)) {
        return Err(Failure::message(Exit::Integrity, error));
    }
    // UDP may lose packets, and so may peers that carry it.
    match report.flows.iter().find(|flow| flow.whole == Some(false) && !flow.kind.ends_with("udp")) {
        Some(flow) => Err(Failure::message(
            Exit::Unreachable,
            format_args!(
                "flow {} did not arrive whole: give the network more time, or the flow fewer bytes",
                flow.name
            ),
        )),
        None => Ok(()),
    }
}

fn event_of_flow(flow: &FlowReport) -> Event<'_> {
    Event::NetworkFlow {
        name: &flow.name,
        kind: flow.kind,
        from: &flow.from,
        to: &flow.to,
        bytes: flow.bytes,
        whole: flow.whole,
        seconds: flow.seconds,
        goodput_bps: flow.goodput_bps(),
        latency_ms: delay(&flow.latencies.latency),
        jitter_ms: delay(&flow.latencies.jitter),
        packets: flow.packets,
        repeated: flow.repeated,
        damaged: flow.damaged,
        window: flow.window.iter().map(|&(at, window)| [seconds(at), window]).collect(),
    }
}

fn event_of_tunnel(tunnel: &TunnelReport) -> Event<'_> {
    let end = |end: &TunnelEnd| EndOfTunnel {
        rtt_ms: end.rtt.map(milliseconds),
        loss: end.loss,
        source: end.source,
        repair: end.repair,
        feedback_repair: end.feedback_repair,
        sent_packets: end.sent[0],
        sent_bytes: end.sent[1],
        received_packets: end.received[0],
        received_bytes: end.received[1],
        marked: end.marked,
        dropped: DROPS.into_iter().zip(end.dropped).collect(),
    };
    let ends = tunnel.ends.each_ref().map(end);
    Event::NetworkTunnel { name: &tunnel.name, from: &tunnel.from, to: &tunnel.to, ends }
}

fn event_of_link(link: &LinkReport) -> Event<'_> {
    let samples = |samples: &[LinkSample]| samples.iter().map(queue).collect();
    Event::NetworkLink {
        name: &link.name,
        forward: counts(&link.stats[0]),
        back: counts(&link.stats[1]),
        forward_queue: samples(&link.samples[0]),
        back_queue: samples(&link.samples[1]),
    }
}

fn queue(sample: &LinkSample) -> [f64; 5] {
    let &LinkSample { at, packets, bytes, dropped, marked, .. } = sample;
    [seconds(at), packets as f64, bytes as f64, dropped as f64, marked as f64]
}

/// Windows and queues over time. A direction whose queue was always empty is left out.
fn picture(report: &Report) -> String {
    let windows = report.flows.iter().filter(|flow| !flow.window.is_empty()).map(|flow| Trace {
        label: format!("{} ({})", flow.name, flow.kind),
        points: flow.window.iter().map(|&(at, window)| (seconds(at), window)).collect(),
    });
    let mut queues = Vec::new();
    for link in &report.links {
        for (samples, way) in link.samples.iter().zip(["", " back"]) {
            if samples.iter().any(|sample| sample.bytes > 0) {
                let points = samples.iter().map(|sample| (seconds(sample.at), sample.bytes as f64 / 1e3)).collect();
                queues.push(Trace { label: format!("{}{way}", link.name), points });
            }
        }
    }
    let windows = Panel { title: "congestion window in segments", traces: windows.collect() };
    over_time::draw("Flows and queues", &[windows, Panel { title: "queue in kB", traces: queues }])
}

fn seconds(at: Time) -> f64 {
    at.since(Time::ZERO).as_secs_f64()
}

fn delay(histogram: &DelayHistogram) -> Delay {
    Delay::from(&Distribution::new(histogram.buckets(), histogram.mean(), histogram.max()))
}

fn table(report: &Report) -> String {
    let ms = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.1}"));
    let mut out = format!("virtual or real time {:.2} s\n", report.seconds);
    let _ = writeln!(
        out,
        "{:<10} {:<9} {:<18} {:>14} {:>8} {:>8} {:>8} {:>8} {:>9}",
        "flow", "kind", "way", "goodput", "mean ms", "p95", "p99", "jitter", "repeated"
    );
    for flow in &report.flows {
        let (latency, jitter) = (delay(&flow.latencies.latency), delay(&flow.latencies.jitter));
        let _ = writeln!(
            out,
            "{:<10} {:<9} {:<18} {:>14} {:>8} {:>8} {:>8} {:>8} {:>9}",
            flow.name,
            flow.kind,
            format!("{} > {}", flow.from, flow.to),
            rate(flow.goodput_bps()),
            ms(latency.mean),
            ms(latency.p95),
            ms(latency.p99),
            ms(jitter.mean),
            flow.repeated
        );
    }
    out += &table_of_tunnels(&report.tunnels);
    let _ = writeln!(
        out,
        "{:<20} {:>9} {:>9} {:>7} {:>8} {:>7} {:>7} {:>7} {:>9} {:>9}",
        "link", "offered", "delivered", "lost", "dropped", "policed", "marked", "resent", "queue ms", "longest"
    );
    for link in &report.links {
        for (stats, way) in link.stats.iter().zip(["", " back"]) {
            let wait = |time: Duration| 1e3 * time.as_secs_f64();
            let _ = writeln!(
                out,
                "{:<20} {:>9} {:>9} {:>7} {:>8} {:>7} {:>7} {:>7} {:>9.1} {:>9.1}",
                format!("{}{way}", link.name),
                stats.offered,
                stats.delivered,
                stats.lost + stats.blacked_out + stats.too_long,
                stats.queue_dropped + stats.codel_dropped,
                stats.policed(),
                stats.marked,
                stats.attempts_repeated(),
                wait(stats.mean_queueing()),
                wait(stats.max_queueing())
            );
        }
    }
    out
}

/// A line for each end of each tunnel; nothing without tunnels.
fn table_of_tunnels(tunnels: &[TunnelReport]) -> String {
    let mut out = String::new();
    if !tunnels.is_empty() {
        let _ = writeln!(
            out,
            "{:<20} {:>8} {:>7} {:>9} {:>9} {:>7} {:>9} {:>9} {:>7}  dropped",
            "tunnel", "RTT ms", "loss", "source", "repair", "asked", "sent", "received", "marked"
        );
    }
    for tunnel in tunnels {
        for (end, node) in tunnel.ends.iter().zip([&tunnel.from, &tunnel.to]) {
            let known = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.1}"));
            let dropped = DROPS.iter().zip(end.dropped).filter(|(_, count)| *count > 0);
            let dropped: Vec<_> = dropped.map(|(reason, count)| format!("{count} {reason}")).collect();
            let _ = writeln!(
                out,
                "{:<20} {:>8} {:>7} {:>9} {:>9} {:>7} {:>9} {:>9} {:>7}  {}",
                format!("{} at {node}", tunnel.name),
                known(end.rtt.map(milliseconds)),
                known(end.loss.map(|loss| 100.0 * loss)) + " %",
                end.source,
                end.repair,
                end.feedback_repair,
                end.sent[0],
                end.received[0],
                end.marked,
                if dropped.is_empty() { "-".to_owned() } else { dropped.join(", ") }
            );
        }
    }
    out
}
