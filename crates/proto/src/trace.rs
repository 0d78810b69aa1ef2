//! The trace of a connection: what becomes of its packets and symbols, and what it decides.
//!
//! An application that wants to watch its connections implements [`Trace`] and sets it in the configuration
//! ([`crate::config::ConfigBuilder::trace`]). Logs, recordings and displays all use this one interface.
//! Without a trace each place that would report costs one branch.
//!
//! Invariants: a trace sees every packet once as sent, and then once as acknowledged or lost; a packet that
//! was declared lost and arrives after all is acknowledged too. The time of what a datagram caused is
//! that of its arrival. A driver that is late may have recorded later times before. At the receiver, what a
//! packet causes is recorded after its [`TraceEvent::PacketReceived`].

use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
use std::borrow::Cow;
use std::sync::Arc;

use tidewire_codec::SourceId;

use crate::Time;
use crate::close::CloseReason;
use crate::ids::{ConnectionHandle, LaneId, Side, StreamId};
use crate::profile::Profile;
use crate::redundancy::Planned;

/// Receives what happens on connections. All connections of an endpoint share one.
///
/// The endpoint calls it while it handles a datagram, a timer or a call of the application, so it must return
/// quickly and must not call the endpoint.
pub trait Trace: fmt::Debug + Send + Sync {
    /// Called once for each event, in the order in which the connection handles them.
    fn record(&self, now: Time, connection: ConnectionHandle, event: &TraceEvent);

    /// Returns the trace for the connections of one endpoint, if it is not this one. A driver calls it once
    /// for each endpoint, or shard of one, when the clock of that endpoint shows `now`. Endpoints number
    /// their connections independently, and each has a clock of its own.
    fn of_endpoint(&self, now: Time) -> Option<Arc<dyn Trace>> {
        let _ = now;
        None
    }
}

/// Something that happened on a connection.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TraceEvent {
    /// Keys are agreed, and the peer proved that it has them.
    Connected {
        /// Address of the peer.
        remote: SocketAddr,
        /// Which end this is.
        side: Side,
    },
    /// How this end codes and paces what it sends: after [`Self::Connected`], and again when it follows the
    /// peer's POLICY.
    Agreed(Choices),
    /// The connection ended.
    Closed(CloseReason),
    /// A packet was sent.
    PacketSent {
        /// Packet number.
        number: u64,
        /// Length in bytes, IP and UDP headers included.
        bytes: u32,
        /// What it carries.
        content: PacketContent,
    },
    /// The peer received a packet of ours.
    PacketAcked {
        /// Packet number.
        number: u64,
        /// Whether the packet had been declared lost.
        was_lost: bool,
    },
    /// A packet of ours was declared lost.
    PacketLost {
        /// Packet number.
        number: u64,
        /// Length in bytes, IP and UDP headers included.
        bytes: u32,
        /// Whether it was dropped at our own rate ([`crate::stats::AtOwnRate`]), not by the medium.
        at_own_rate: bool,
    },
    /// An authentic packet of the peer arrived.
    PacketReceived {
        /// Packet number.
        number: u64,
        /// Length in bytes, IP and UDP headers included.
        bytes: u32,
        /// What it carries. A probe of the packet size is [`PacketContent::Control`] here.
        content: PacketContent,
    },
    /// A packet of the peer told a lane nothing new: its symbol was known, or its repair was not needed.
    PacketRedundant {
        /// Packet number.
        number: u64,
    },
    /// A repair made a lost source symbol known.
    SymbolRepaired {
        /// Lane of the peer.
        lane: LaneId,
        /// The symbol.
        id: SourceId,
        /// The packet that completed it. If a worker solved for the symbol, it is the newest packet of the
        /// lane by then.
        packet: u64,
    },
    /// The receiver's edge passed a source symbol: all symbols of the lane up to it are known or given up.
    SymbolPassed {
        /// Lane of the peer.
        lane: LaneId,
        /// The symbol.
        id: SourceId,
        /// How it became known.
        origin: SymbolOrigin,
        /// In-order delay beyond the least one-way time; zero for a symbol that was given up.
        delay: Duration,
    },
    /// State of rate control, after each FEEDBACK that acknowledged a packet.
    Rate {
        /// Bytes that may be in flight, IP and UDP headers included.
        window: u64,
        /// Bytes in flight.
        in_flight: u64,
        /// Pacing rate, in bits per second.
        pacing_bps: u64,
        /// Smoothed round trip.
        rtt: Duration,
        /// The newest round trip, less the time that the peer waited before it answered.
        latest_rtt: Duration,
        /// Least round trip of the path.
        least_rtt: Duration,
        /// Estimate of the time that packets wait in queues of the path: the newest round trip beyond the
        /// least.
        queueing: Duration,
        /// Estimated loss rate of about the last 512 packets.
        loss: f64,
    },
    /// The rate controller entered another phase: its name, as [`crate::path::RateController::state`] gives
    /// it. It follows the [`Self::Rate`] of the acknowledgement that caused it.
    RateState {
        /// The name; empty for a controller without phases.
        state: Cow<'static, str>,
    },
    /// The planner changed the share of proactive repair of a lane of ours.
    Planned {
        /// The lane.
        lane: LaneId,
        /// The decision.
        planned: Planned,
    },
    /// FEEDBACK of the peer arrived. Fates of packets and [`Self::LaneReported`] follow.
    FeedbackReceived {
        /// The packet of the peer that carries it.
        packet: u64,
        /// Time from the arrival of the newest packet at the peer until the FEEDBACK left.
        delay: Duration,
    },
    /// What FEEDBACK says about a lane of ours.
    LaneReported {
        /// The lane.
        lane: LaneId,
        /// All lower symbols are known to the peer or given up.
        edge: SourceId,
        /// End of what the peer has heard of.
        end: SourceId,
        /// Number of independent symbols that the peer needs to decode all below `end`.
        deficit: u64,
    },
    /// FEEDBACK was written.
    FeedbackSent {
        /// The packet that carries it.
        packet: u64,
        /// Sum of the deficits that it reports.
        deficit: u64,
    },
    /// The application wrote to a stream. Several writes to one stream between two looks of the driver are
    /// one event. Its time is that of the second look, or of the first if the list of streams is full.
    StreamWritten {
        /// The stream.
        stream: StreamId,
        /// Number of bytes that were taken.
        bytes: u64,
        /// Whether the stream ends after them.
        end: bool,
    },
    /// The application sent a message.
    MessageWritten {
        /// The lane.
        lane: LaneId,
        /// Its length in bytes.
        bytes: u32,
        /// How long it is useful to the peer.
        lifetime: Duration,
        /// Whether the peer delivers it after all earlier messages of the lane.
        in_order: bool,
    },
    /// The application used bytes of a stream of the peer.
    StreamRead {
        /// The stream.
        stream: StreamId,
        /// Their number.
        bytes: u64,
    },
    /// The application took a message of the peer.
    MessageRead {
        /// Its length in bytes.
        bytes: u32,
    },
    /// Our key was renewed.
    KeyUpdated,
    /// Both ends took fresh keys into use.
    FreshKeys,
    /// This end followed the peer to another address.
    Moved {
        /// The new address.
        remote: SocketAddr,
    },
}

/// How an end codes and paces what it sends.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs)]
pub struct Choices {
    /// The profile in use.
    pub profile: Profile,
    /// Target for the delay beyond the one-way time of the path, if the user stated one.
    pub latency: Option<Duration>,
    /// Fraction of the symbols that must meet the target.
    pub deliver: f64,
    /// Upper limit of proactive repairs per source symbol.
    pub max_overhead: f64,
    /// Upper limit of the rate, in bits per second.
    pub max_rate: Option<u64>,
}

/// What a packet carries besides control frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PacketContent {
    /// Control frames only.
    Control,
    /// A probe of the packet size.
    SizeProbe,
    /// The base of a lane.
    Base {
        /// The lane.
        lane: LaneId,
    },
    /// A source symbol, or a part of one that is longer than the path allows.
    Source {
        /// The lane.
        lane: LaneId,
        /// The symbol.
        id: SourceId,
        /// Whether the symbol was sent before.
        again: bool,
    },
    /// A repair over `count` source symbols from `first`.
    Repair {
        /// The lane.
        lane: LaneId,
        /// First symbol of the span.
        first: SourceId,
        /// Length of the span.
        count: u16,
        /// Whether it answers a reported deficit.
        on_feedback: bool,
    },
    /// A combination of the relayed lane.
    Recoded {
        /// Number of the generation.
        generation: u64,
    },
}

/// How a source symbol became known to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SymbolOrigin {
    /// In its first transmission.
    Direct,
    /// In a retransmission, or in parts.
    Resent,
    /// Computed from repair symbols.
    Repaired,
    /// Not at all: its deadline passed, and the sender gave it up.
    GivenUp,
}

/// The trace of what a lane receives, and the packet that it handles.
#[derive(Debug)]
pub(crate) struct LaneTracer {
    tracer: Tracer,
    lane: LaneId,
    packet: u64,
}

impl LaneTracer {
    pub(crate) fn new(lane: LaneId) -> Self {
        Self { tracer: Tracer::default(), lane, packet: 0 }
    }

    /// Sets the trace of the connection.
    pub(crate) fn trace_with(&mut self, tracer: &Tracer) {
        self.tracer = tracer.clone();
    }

    /// Packet `number` of the peer is the cause of what follows.
    pub(crate) fn on_packet(&mut self, number: u64) {
        self.packet = number;
    }

    /// The packet told nothing new.
    pub(crate) fn redundant(&self, now: Time) {
        self.tracer.record(now, || TraceEvent::PacketRedundant { number: self.packet });
    }

    /// A lost symbol became known.
    pub(crate) fn repaired(&self, now: Time, id: SourceId) {
        self.tracer.record(now, || TraceEvent::SymbolRepaired { lane: self.lane, id, packet: self.packet });
    }

    /// The edge passed a symbol. There is no delay if the symbol was given up.
    pub(crate) fn passed(&self, now: Time, id: SourceId, origin: SymbolOrigin, delay: Option<Duration>) {
        let delay = delay.unwrap_or_default();
        self.tracer.record(now, || TraceEvent::SymbolPassed { lane: self.lane, id, origin, delay });
    }
}

/// The trace of one connection, or none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tracer {
    trace: Option<Arc<dyn Trace>>,
    connection: ConnectionHandle,
}

impl Tracer {
    pub(crate) fn new(trace: Option<Arc<dyn Trace>>, connection: ConnectionHandle) -> Self {
        Self { trace, connection }
    }

    /// Whether there is a trace.
    pub(crate) fn is_on(&self) -> bool {
        self.trace.is_some()
    }

    /// Records the event that `make` returns, if there is a trace.
    #[inline]
    pub(crate) fn record(&self, now: Time, make: impl FnOnce() -> TraceEvent) {
        if let Some(trace) = &self.trace {
            trace.record(now, self.connection, &make());
        }
    }
}
