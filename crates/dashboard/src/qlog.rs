//! The events of connections as JSON text sequences, for tools that read qlog (docs/qlog.md).
//!
//! The file has the frame of qlog's main schema and events of our own schema, because QUIC's events have no
//! symbols. Invariant: docs/qlog.md has a row for each event and a name for each of its values.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use qlog::events::{EventImportance, Eventable};
use qlog::streamer::{EventTimePrecision, QlogStreamer};
use qlog::{CommonFields, ReferenceTime, TraceSeq, VantagePoint, VantagePointType};
use serde::Serialize;
use serde_json::{Value, json};
use tidewire::trace::{PacketContent, SymbolOrigin, TraceEvent};
use tidewire_proto::connection::Side;

use crate::consumer::{Batch, Consumer, ConsumerError, Observed};

/// Names and describes our events. Another number is another meaning of some event.
const SCHEMA: &str = "https://github.com/tidewire/tidewire/blob/main/docs/qlog.md#1";

/// Writes the events of a job.
pub struct Qlog {
    streamer: QlogStreamer,
    file: Shared,
}

/// An event in the frame of qlog's main schema.
#[derive(Serialize)]
struct Line {
    /// Milliseconds since the job began.
    time: f64,
    name: &'static str,
    /// Endpoint and connection.
    group_id: String,
    data: Value,
}

impl Eventable for Line {
    fn importance(&self) -> EventImportance {
        EventImportance::Core
    }

    fn set_time(&mut self, time: f64) {
        self.time = time;
    }
}

impl Qlog {
    /// Creates the file, or empties it. `job` names the job in its header.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path, job: &str) -> io::Result<Self> {
        let file = File::create(path)?;
        let file = Shared(Arc::new(Mutex::new(Out { file: BufWriter::new(file), failed: None })));
        let vantage = VantagePoint { name: Some(job.into()), ty: VantagePointType::Unknown, flow: None };
        let reference_time = ReferenceTime::new_monotonic(Some(SystemTime::now()));
        let protocol_types = Some(vec!["TIDEWIRE".into()]);
        let common = CommonFields { protocol_types, reference_time, ..CommonFields::default() };
        let trace = TraceSeq::new(None, None, Some(common), Some(vantage), vec![SCHEMA.into()]);
        let title = Some(format!("tidewire {} {job}", env!("CARGO_PKG_VERSION")));
        let precision = EventTimePrecision::MicroSeconds;
        let writer = Box::new(file.clone());
        let mut streamer =
            QlogStreamer::new(title, None, Instant::now(), trace, EventImportance::Extra, precision, writer);
        streamer.start_log().map_err(io::Error::other)?;
        Ok(Self { streamer, file })
    }

    fn write(&mut self, line: Line) -> Result<(), ConsumerError> {
        // The error of the streamer does not say what failed.
        self.streamer.add_event(line).map_err(|_| self.file.why())
    }
}

impl Consumer for Qlog {
    fn name(&self) -> &'static str {
        "the qlog"
    }

    fn take(&mut self, batch: &Batch, missed: u64) -> Result<(), ConsumerError> {
        if missed > 0 {
            let (time, group_id) = (milliseconds(batch.now), String::new());
            self.write(Line { time, name: "tidewire:events_missed", group_id, data: json!({ "count": missed }) })?;
        }
        for observed in &batch.events {
            if let Some(line) = line(observed) {
                self.write(line)?;
            }
        }
        self.file.flush().map_err(|_| self.file.why())
    }

    fn end(&mut self) -> Result<(), ConsumerError> {
        self.file.flush().map_err(|_| self.file.why())
    }
}

/// The file. The streamer has one clone; the other flushes it after each batch, and knows its first error.
#[derive(Clone)]
struct Shared(Arc<Mutex<Out>>);

struct Out {
    file: BufWriter<File>,
    failed: Option<io::ErrorKind>,
}

impl Shared {
    fn with<T>(&self, act: impl FnOnce(&mut BufWriter<File>) -> io::Result<T>) -> io::Result<T> {
        let out = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kind) = out.failed {
            return Err(kind.into());
        }
        act(&mut out.file).inspect_err(|error| out.failed = Some(error.kind()))
    }
}

impl Shared {
    fn why(&self) -> ConsumerError {
        let failed = self.0.lock().unwrap_or_else(PoisonError::into_inner).failed;
        let kind = failed.unwrap_or(io::ErrorKind::Other);
        format!("the file cannot be written: {kind}").into()
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.with(|file| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.with(BufWriter::flush)
    }
}

fn milliseconds(time: Duration) -> f64 {
    // Whole microseconds, so that the text is short.
    time.as_micros() as f64 / 1_000.0
}

fn line(observed: &Observed) -> Option<Line> {
    let (name, data) = described(&observed.event)?;
    let group_id = format!("{}-{}", observed.endpoint, observed.connection.0);
    Some(Line { time: milliseconds(observed.at), name, group_id, data })
}

/// Name and values of an event; `None` if the schema has none for it.
fn described(event: &TraceEvent) -> Option<(&'static str, Value)> {
    let (name, data) = match event {
        TraceEvent::Connected { remote, side } => {
            let side = if *side == Side::Initiator { "initiator" } else { "responder" };
            ("tidewire:connected", json!({ "remote": remote.to_string(), "side": side }))
        }
        TraceEvent::Closed(reason) => ("tidewire:closed", json!({ "reason": reason.to_string() })),
        TraceEvent::Moved { remote } => ("tidewire:moved", json!({ "remote": remote.to_string() })),
        TraceEvent::KeyUpdated => ("tidewire:key_updated", json!({ "fresh": false })),
        TraceEvent::FreshKeys => ("tidewire:key_updated", json!({ "fresh": true })),
        TraceEvent::PacketSent { number, bytes, content } => ("tidewire:packet_sent", packet(*number, *bytes, content)),
        TraceEvent::PacketReceived { number, bytes, content } => {
            ("tidewire:packet_received", packet(*number, *bytes, content))
        }
        TraceEvent::PacketRedundant { number } => ("tidewire:packet_redundant", json!({ "number": number })),
        TraceEvent::PacketAcked { number, was_lost } => {
            ("tidewire:packet_acknowledged", json!({ "number": number, "was_lost": was_lost }))
        }
        TraceEvent::PacketLost { number, bytes, at_own_rate } => {
            ("tidewire:packet_lost", json!({ "number": number, "bytes": bytes, "at_own_rate": at_own_rate }))
        }
        TraceEvent::SymbolRepaired { lane, id, packet } => {
            ("tidewire:symbol_repaired", json!({ "lane": lane.0, "id": id.0, "packet": packet }))
        }
        TraceEvent::SymbolPassed { lane, id, origin, delay } => (
            "tidewire:symbol_passed",
            json!({
                "lane": lane.0, "id": id.0, "origin": origin_name(*origin), "delay_ms": milliseconds(*delay),
            }),
        ),
        TraceEvent::StreamWritten { stream, bytes, end } => {
            ("tidewire:stream_written", json!({ "stream": stream.0, "bytes": bytes, "end": end }))
        }
        TraceEvent::MessageWritten { lane, bytes, lifetime, in_order } => (
            "tidewire:message_written",
            json!({
                "lane": lane.0, "bytes": bytes, "lifetime_ms": milliseconds(*lifetime), "in_order": in_order,
            }),
        ),
        other => return decided(other),
    };
    Some((name, data))
}

/// The same for what rate control, planner and feedback say.
fn decided(event: &TraceEvent) -> Option<(&'static str, Value)> {
    let (name, data) = match event {
        TraceEvent::Rate { window, in_flight, pacing_bps, rtt, latest_rtt, least_rtt, queueing, loss } => (
            "tidewire:rate",
            json!({
                "window_bytes": window, "in_flight_bytes": in_flight, "pacing_bps": pacing_bps,
                "rtt_ms": milliseconds(*rtt), "latest_rtt_ms": milliseconds(*latest_rtt),
                "least_rtt_ms": milliseconds(*least_rtt), "queueing_ms": milliseconds(*queueing), "loss": loss,
            }),
        ),
        // The name and the value of the draft for QUIC, so that its tools show it.
        TraceEvent::RateState { state } => ("recovery:congestion_state_updated", json!({ "new": state })),
        TraceEvent::Planned { lane, planned } => {
            ("tidewire:planned", json!({ "lane": lane.0, "share": planned.share, "saturated": planned.saturated }))
        }
        TraceEvent::Agreed(choices) => (
            "tidewire:agreed",
            json!({
                "latency_ms": choices.latency.map(milliseconds), "deliver": choices.deliver,
                "max_overhead": choices.max_overhead, "max_rate_bps": choices.max_rate,
            }),
        ),
        TraceEvent::FeedbackReceived { packet, delay } => {
            ("tidewire:feedback_received", json!({ "packet": packet, "delay_ms": milliseconds(*delay) }))
        }
        TraceEvent::LaneReported { lane, edge, end, deficit } => (
            "tidewire:lane_reported",
            json!({
                "lane": lane.0, "edge": edge.0, "end": end.0, "deficit": deficit,
            }),
        ),
        TraceEvent::FeedbackSent { packet, deficit } => {
            ("tidewire:feedback_sent", json!({ "packet": packet, "deficit": deficit }))
        }
        _ => return None,
    };
    Some((name, data))
}

/// A packet: its content names the other values that it has.
fn packet(number: u64, bytes: u32, content: &PacketContent) -> Value {
    let mut data = json!({ "number": number, "bytes": bytes });
    let mut put = |name: &str, value: Value| data[name] = value;
    match content {
        PacketContent::SizeProbe => put("content", "size_probe".into()),
        PacketContent::Base { lane } => {
            put("content", "base".into());
            put("lane", lane.0.into());
        }
        PacketContent::Source { lane, id, again } => {
            put("content", "source".into());
            put("lane", lane.0.into());
            put("id", id.0.into());
            put("again", (*again).into());
        }
        PacketContent::Repair { lane, first, count, on_feedback } => {
            put("content", "repair".into());
            put("lane", lane.0.into());
            put("first", first.0.into());
            put("count", (*count).into());
            put("on_feedback", (*on_feedback).into());
        }
        PacketContent::Recoded { generation } => {
            put("content", "recoded".into());
            put("generation", (*generation).into());
        }
        _ => put("content", "control".into()),
    }
    data
}

const fn origin_name(origin: SymbolOrigin) -> &'static str {
    match origin {
        SymbolOrigin::Direct => "direct",
        SymbolOrigin::Resent => "resent",
        SymbolOrigin::Repaired => "repaired",
        _ => "given_up",
    }
}
