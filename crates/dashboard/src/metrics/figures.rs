//! The figures of a job, and how events change them.
//!
//! Names and units follow Prometheus: base units, counters that end in `_total`. Invariant: every label has a
//! fixed set of values, so the number of time series does not grow with the number of connections. The state
//! of single connections is reported for the first [`SLOTS`] that are open, by the number of their slot.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};
use tidewire::CloseReason;
use tidewire::trace::{PacketContent, SymbolOrigin, TraceEvent};
use tidewire_proto::endpoint::ConnectionHandle;

use crate::consumer::Observed;

/// Most connections whose own state is reported. Chosen: enough for the peers of one person, and at most 160
/// time series.
const SLOTS: usize = 16;
/// Most connections whose slot is remembered. A listener has no more by default.
const MOST_CONNECTIONS: usize = 10_000;
/// Upper bounds of the delay histograms in seconds. Chosen: from a fraction of a frame of video to the delays
/// of a path that recovers from a blackout; Prometheus adds infinity.
const DELAYS: [f64; 15] = [0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 1.0, 3.0];

/// Values of the label `kind` for packets, symbols and ends of connections.
const CONTENTS: [&str; 8] =
    ["source", "source_again", "repair", "feedback_repair", "recoded", "base", "size_probe", "control"];
const ORIGINS: [&str; 4] = ["direct", "repaired", "resent", "given_up"];
const REASONS: [&str; 6] = ["local", "peer", "idle", "forgotten", "no_answer", "fault"];

/// One label with a fixed set of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Kind {
    kind: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Slot {
    slot: u32,
}

/// The phase of rate control of a slot. Only the present one has a series.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Phase {
    slot: u32,
    state: String,
}

type Kinds = Family<Kind, Counter>;
type Seconds = Family<Slot, Gauge<f64, AtomicU64>>;

/// Counters over all connections of the job.
#[derive(Debug)]
struct Totals {
    opened: Counter,
    closed: Kinds,
    sent: Kinds,
    sent_bytes: Counter,
    received: Kinds,
    received_bytes: Counter,
    redundant: Counter,
    acknowledged: Counter,
    lost: Counter,
    dropped: Counter,
    dropped_bytes: Counter,
    late: Counter,
    symbols: Kinds,
    missed: Counter,
}

/// The state of the connections that have a slot.
#[derive(Debug, Default)]
struct States {
    rtt: Seconds,
    least_rtt: Seconds,
    queueing: Seconds,
    loss: Seconds,
    planned: Seconds,
    window: Family<Slot, Gauge>,
    in_flight: Family<Slot, Gauge>,
    pacing: Family<Slot, Gauge>,
    phase: Family<Phase, Gauge>,
}

/// The figures of a job; see the module.
#[derive(Debug)]
pub struct Figures {
    totals: Totals,
    states: States,
    open: Gauge,
    delay: Histogram,
    queueing: Histogram,
    /// Slots in use, and the slot of each connection that has one.
    slots: [bool; SLOTS],
    /// The phase that each slot shows.
    phases: [Option<Phase>; SLOTS],
    connections: HashMap<(u32, ConnectionHandle), Option<u32>>,
}

impl Figures {
    /// Makes the figures of the job `job`, all zero, and registers them.
    pub fn new(registry: &mut Registry, job: &str) -> Self {
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION").to_owned()), ("verb", job.to_owned())]);
        registry.register("build", "Version of the program, and what it does", build);
        let delay = Histogram::new(DELAYS);
        let help = "In-order delay of source symbols that arrived, beyond the least one-way time";
        registry.register_with_unit("in_order_delay", help, Unit::Seconds, delay.clone());
        let queueing = Histogram::new(DELAYS);
        let help = "Estimated time that packets wait in queues of the path, one observation for each FEEDBACK";
        registry.register_with_unit("queueing", help, Unit::Seconds, queueing.clone());
        Self {
            totals: totals(registry),
            states: states(registry),
            open: kept(registry, "connections", "Connections that are established", Gauge::default()),
            delay,
            queueing,
            slots: [false; SLOTS],
            phases: Default::default(),
            connections: HashMap::new(),
        }
    }

    /// Counts events that were not seen.
    pub fn miss(&self, events: u64) {
        self.totals.missed.inc_by(events);
    }

    /// Counts an event.
    pub fn take(&mut self, observed: &Observed) {
        let totals = &self.totals;
        match &observed.event {
            TraceEvent::Connected { .. } => self.open(observed),
            TraceEvent::Closed(reason) => self.close(observed, reason),
            TraceEvent::PacketSent { bytes, content, .. } => {
                totals.sent.get_or_create(&Kind { kind: content_name(content) }).inc();
                totals.sent_bytes.inc_by(u64::from(*bytes));
            }
            TraceEvent::PacketReceived { bytes, content, .. } => {
                totals.received.get_or_create(&Kind { kind: content_name(content) }).inc();
                totals.received_bytes.inc_by(u64::from(*bytes));
            }
            TraceEvent::PacketRedundant { .. } => {
                totals.redundant.inc();
            }
            TraceEvent::PacketAcked { was_lost, .. } => {
                totals.acknowledged.inc();
                totals.late.inc_by(u64::from(*was_lost));
            }
            TraceEvent::PacketLost { bytes, at_own_rate: true, .. } => {
                totals.dropped.inc();
                totals.dropped_bytes.inc_by(u64::from(*bytes));
            }
            TraceEvent::PacketLost { .. } => {
                totals.lost.inc();
            }
            TraceEvent::SymbolPassed { origin, delay, .. } => {
                totals.symbols.get_or_create(&Kind { kind: origin_name(*origin) }).inc();
                if *origin != SymbolOrigin::GivenUp {
                    self.delay.observe(delay.as_secs_f64());
                }
            }
            TraceEvent::Rate { .. } => self.rate(observed),
            TraceEvent::RateState { state } => {
                if let Some(Slot { slot }) = self.slot(observed) {
                    self.enter(slot, Some(Phase { slot, state: state.as_ref().into() }));
                }
            }
            TraceEvent::Planned { planned, .. } => {
                if let Some(slot) = self.slot(observed) {
                    self.states.planned.get_or_create(&slot).set(planned.share);
                }
            }
            _ => {}
        }
    }

    fn slot(&self, observed: &Observed) -> Option<Slot> {
        let slot = *self.connections.get(&(observed.endpoint, observed.connection))?;
        slot.map(|slot| Slot { slot })
    }

    fn open(&mut self, observed: &Observed) {
        self.totals.opened.inc();
        self.open.inc();
        if self.connections.len() < MOST_CONNECTIONS {
            let free = self.slots.iter().position(|used| !used);
            free.into_iter().for_each(|free| self.slots[free] = true);
            let slot = free.and_then(|free| u32::try_from(free).ok());
            self.connections.insert((observed.endpoint, observed.connection), slot);
        }
    }

    fn close(&mut self, observed: &Observed, reason: &CloseReason) {
        self.totals.closed.get_or_create(&Kind { kind: reason_name(reason) }).inc();
        // An attempt that nobody answered was never open.
        let Some(slot) = self.connections.remove(&(observed.endpoint, observed.connection)) else { return };
        self.open.dec();
        let Some(slot) = slot else { return };
        self.slots[slot as usize] = false;
        self.enter(slot, None);
        let (states, slot) = (&self.states, Slot { slot });
        for seconds in [&states.rtt, &states.least_rtt, &states.queueing, &states.loss, &states.planned] {
            seconds.remove(&slot);
        }
        for bytes in [&states.window, &states.in_flight, &states.pacing] {
            bytes.remove(&slot);
        }
    }

    /// Shows another phase of a slot, or none.
    fn enter(&mut self, slot: u32, phase: Option<Phase>) {
        let shown = &mut self.phases[slot as usize];
        if let Some(before) = shown {
            self.states.phase.remove(before);
        }
        if let Some(phase) = &phase {
            self.states.phase.get_or_create(phase).set(1);
        }
        *shown = phase;
    }

    fn rate(&self, observed: &Observed) {
        let TraceEvent::Rate { window, in_flight, pacing_bps, rtt, least_rtt, queueing, loss, .. } = &observed.event
        else {
            return;
        };
        self.queueing.observe(queueing.as_secs_f64());
        let Some(slot) = self.slot(observed) else { return };
        let states = &self.states;
        states.rtt.get_or_create(&slot).set(rtt.as_secs_f64());
        states.least_rtt.get_or_create(&slot).set(least_rtt.as_secs_f64());
        states.queueing.get_or_create(&slot).set(queueing.as_secs_f64());
        states.loss.get_or_create(&slot).set(*loss);
        let set = |family: &Family<Slot, Gauge>, value: u64| {
            family.get_or_create(&slot).set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        set(&states.window, *window);
        set(&states.in_flight, *in_flight);
        set(&states.pacing, *pacing_bps / 8);
    }
}

/// Registers a metric and returns it.
fn kept<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

fn totals(registry: &mut Registry) -> Totals {
    let bytes = |registry: &mut Registry, name: &str, help: &str| {
        let counter = Counter::default();
        registry.register_with_unit(name, help, Unit::Bytes, counter.clone());
        counter
    };
    // Every series is there from the start: Prometheus sees no increase in one that begins with 1.
    let kinds = |registry: &mut Registry, name: &str, help: &str, kinds: &[&'static str]| {
        let family = kept(registry, name, help, Kinds::default());
        kinds.iter().for_each(|&kind| drop(family.get_or_create(&Kind { kind })));
        family
    };
    let counter = |registry: &mut Registry, name: &str, help: &str| kept(registry, name, help, Counter::default());
    Totals {
        opened: counter(registry, "connections_opened", "Connections that were established"),
        closed: kinds(registry, "connections_closed", "Connections and attempts that ended, by reason", &REASONS),
        sent: kinds(registry, "packets_sent", "Packets sent, by what they carry", &CONTENTS),
        sent_bytes: bytes(registry, "sent", "Bytes sent, with IP and UDP headers"),
        received: kinds(registry, "packets_received", "Authentic packets received, by what they carry", &CONTENTS),
        received_bytes: bytes(registry, "received", "Bytes of authentic packets, with IP and UDP headers"),
        redundant: counter(registry, "packets_redundant", "Received packets whose symbol was not needed any more"),
        acknowledged: counter(registry, "packets_acknowledged", "Packets that the peer received"),
        lost: counter(
            registry,
            "packets_lost",
            "Packets that were declared lost, without those dropped at our own rate",
        ),
        dropped: counter(registry, "packets_dropped_at_own_rate", "Packets that were dropped at our own rate"),
        dropped_bytes: bytes(registry, "dropped_at_own_rate", "Bytes of these, with IP and UDP headers"),
        late: counter(registry, "packets_late", "Packets that were declared lost and arrived after all"),
        symbols: kinds(
            registry,
            "symbols_passed",
            "Source symbols received in order, by how they became known",
            &ORIGINS,
        ),
        missed: counter(
            registry,
            "events_missed",
            "Events that these figures leave out, because the machine is too slow",
        ),
    }
}

fn states(registry: &mut Registry) -> States {
    let states = States::default();
    let mut seconds = |name: &str, help: &str, family: &Seconds| {
        registry.register_with_unit(name, help, Unit::Seconds, family.clone());
    };
    seconds("path_rtt", "Smoothed round trip of a connection", &states.rtt);
    seconds("path_least_rtt", "Least round trip of a connection", &states.least_rtt);
    seconds("path_queueing", "Newest estimate of the queueing delay of a connection", &states.queueing);
    registry.register("path_loss_ratio", "Estimated loss rate of a connection", states.loss.clone());
    let help = "Proactive repairs per source symbol that are planned for a lane of a connection";
    registry.register("planned_redundancy_ratio", help, states.planned.clone());
    let mut bytes = |name: &str, help: &str, family: &Family<Slot, Gauge>| {
        registry.register_with_unit(name, help, Unit::Bytes, family.clone());
    };
    bytes("congestion_window", "Bytes that a connection may have in flight", &states.window);
    bytes("in_flight", "Bytes that a connection has in flight", &states.in_flight);
    let help = "Pacing rate of a connection";
    registry.register("pacing_bytes_per_second", help, states.pacing.clone());
    let help = "Phase of the rate control of a connection, always 1";
    registry.register("rate_control_state", help, states.phase.clone());
    states
}

/// Every name of this function is a value of the label `kind`.
const fn content_name(content: &PacketContent) -> &'static str {
    match content {
        PacketContent::SizeProbe => "size_probe",
        PacketContent::Base { .. } => "base",
        PacketContent::Source { again: false, .. } => "source",
        PacketContent::Source { again: true, .. } => "source_again",
        PacketContent::Repair { on_feedback: false, .. } => "repair",
        PacketContent::Repair { on_feedback: true, .. } => "feedback_repair",
        PacketContent::Recoded { .. } => "recoded",
        _ => "control",
    }
}

const fn origin_name(origin: SymbolOrigin) -> &'static str {
    match origin {
        SymbolOrigin::Direct => "direct",
        SymbolOrigin::Resent => "resent",
        SymbolOrigin::Repaired => "repaired",
        _ => "given_up",
    }
}

const fn reason_name(reason: &CloseReason) -> &'static str {
    match reason {
        CloseReason::Local => "local",
        CloseReason::Peer { .. } => "peer",
        CloseReason::Idle => "idle",
        CloseReason::Forgotten => "forgotten",
        CloseReason::NoAnswer => "no_answer",
        _ => "fault",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prometheus_client::encoding::text::encode;
    use tidewire::LaneId;
    use tidewire::SourceId;

    use super::*;

    fn observed(connection: u64, event: TraceEvent) -> Observed {
        Observed { at: Duration::ZERO, endpoint: 0, connection: ConnectionHandle(connection), event }
    }

    fn connected(connection: u64) -> Observed {
        let (remote, side) = ("192.0.2.1:7700".parse().unwrap(), tidewire_proto::connection::Side::Initiator);
        observed(connection, TraceEvent::Connected { remote, side })
    }

    fn rate(connection: u64) -> Observed {
        let ms = Duration::from_millis;
        observed(
            connection,
            TraceEvent::Rate {
                window: 30_000,
                in_flight: 1_400,
                pacing_bps: 8_000_000,
                rtt: ms(60),
                latest_rtt: ms(70),
                least_rtt: ms(50),
                queueing: ms(20),
                loss: 0.125,
            },
        )
    }

    fn passed(origin: SymbolOrigin, delay_ms: u64) -> Observed {
        let (lane, id, delay) = (LaneId(0), SourceId(1), Duration::from_millis(delay_ms));
        observed(1, TraceEvent::SymbolPassed { lane, id, origin, delay })
    }

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn events_become_figures_with_base_units() {
        let mut registry = Registry::with_prefix("tidewire");
        let mut figures = Figures::new(&mut registry, "bench");
        figures.take(&connected(1));
        figures.take(&rate(1));
        let content = PacketContent::Repair { lane: LaneId(0), first: SourceId(0), count: 4, on_feedback: true };
        figures.take(&observed(1, TraceEvent::PacketSent { number: 3, bytes: 1_400, content }));
        for (origin, delay) in [(SymbolOrigin::Direct, 0), (SymbolOrigin::Repaired, 40), (SymbolOrigin::GivenUp, 0)] {
            figures.take(&passed(origin, delay));
        }
        for (bytes, at_own_rate) in [(1_000, true), (1_400, true), (1_400, false)] {
            figures.take(&observed(1, TraceEvent::PacketLost { number: 3, bytes, at_own_rate }));
        }
        for state in ["startup", "cruise"] {
            figures.take(&observed(1, TraceEvent::RateState { state: state.into() }));
        }
        figures.miss(7);
        let text = text(&registry);
        assert!(!text.contains("startup"), "only the present phase is shown: {text}");
        for line in [
            "tidewire_connections 1",
            "tidewire_sent_bytes_total 1400",
            "tidewire_packets_sent_total{kind=\"feedback_repair\"} 1",
            "tidewire_path_rtt_seconds{slot=\"0\"} 0.06",
            "tidewire_path_loss_ratio{slot=\"0\"} 0.125",
            "tidewire_pacing_bytes_per_second{slot=\"0\"} 1000000",
            "tidewire_in_order_delay_seconds_count 2",
            "tidewire_in_order_delay_seconds_bucket{le=\"0.03\"} 1",
            "tidewire_in_order_delay_seconds_bucket{le=\"0.05\"} 2",
            "tidewire_symbols_passed_total{kind=\"given_up\"} 1",
            "tidewire_events_missed_total 7",
            "tidewire_packets_lost_total 1",
            "tidewire_packets_dropped_at_own_rate_total 2",
            "tidewire_dropped_at_own_rate_bytes_total 2400",
            "tidewire_rate_control_state{slot=\"0\",state=\"cruise\"} 1",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "no line {line} in\n{text}");
        }
    }

    #[test]
    fn a_thousand_connections_have_as_many_series_as_sixteen() {
        let mut registry = Registry::with_prefix("tidewire");
        let mut figures = Figures::new(&mut registry, "serve");
        let mut lines = Vec::new();
        for connections in [16, 1_000] {
            (0..connections).for_each(|connection| figures.take(&connected(connection)));
            (0..connections).for_each(|connection| figures.take(&rate(connection)));
            let state = || TraceEvent::RateState { state: "cruise".into() };
            (0..connections).for_each(|connection| figures.take(&observed(connection, state())));
            lines.push(text(&registry).lines().count());
            (0..connections).for_each(|one| figures.take(&observed(one, TraceEvent::Closed(CloseReason::Local))));
        }
        assert_eq!(lines[0], lines[1]);
        let text = text(&registry);
        assert!(text.contains("tidewire_connections 0") && !text.contains("slot=\""), "{text}");
        assert!(text.contains("tidewire_connections_closed_total{kind=\"local\"} 1016"));
        // A slot that became free is used again.
        figures.take(&connected(7));
        assert_eq!(figures.slot(&rate(7)), Some(Slot { slot: 0 }));
    }
}
