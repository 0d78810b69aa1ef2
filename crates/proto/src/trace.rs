//! The trace of a connection: what becomes of its packets and symbols, and what it decides.
//!
//! An application that wants to watch its connections implements [`Trace`] and sets it in the configuration
//! ([`crate::config::ConfigBuilder::trace`]). Logs, recordings and displays all use this one interface.
//! Without a trace each place that would report costs one branch.
//!
//! Invariants: a trace sees every packet once as sent, and then once as acknowledged or lost; a packet that
//! was declared lost and arrives after all is acknowledged too. The time of what a datagram caused is
//! that of its arrival. A driver that is late may have recorded later times before.

use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use tidewire_codec::SourceId;

use crate::Time;
use crate::close::CloseReason;
use crate::ids::{ConnectionHandle, LaneId};
use crate::redundancy::Planned;

/// Receives what happens on connections. All connections of an endpoint share one.
///
/// The endpoint calls it while it handles a datagram, a timer or a call of the application, so it must return
/// quickly and must not call the endpoint.
pub trait Trace: fmt::Debug + Send + Sync {
    /// Called once for each event, in the order in which the connection handles them.
    fn record(&self, now: Time, connection: ConnectionHandle, event: &TraceEvent);
}

/// Something that happened on a connection.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TraceEvent {
    /// Keys are agreed, and the peer proved that it has them.
    Connected {
        /// Address of the peer.
        remote: SocketAddr,
    },
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
    },
    /// An authentic packet of the peer arrived.
    PacketReceived {
        /// Packet number.
        number: u64,
        /// Length in bytes, IP and UDP headers included.
        bytes: u32,
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
        /// Least round trip of the path.
        least_rtt: Duration,
        /// Estimated loss rate of about the last 512 packets.
        loss: f64,
    },
    /// The planner changed the share of proactive repair of a lane of ours.
    Planned {
        /// The lane.
        lane: LaneId,
        /// The decision.
        planned: Planned,
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

/// The trace of one connection, or none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tracer {
    trace: Option<Arc<dyn Trace>>,
    connection: ConnectionHandle,
}

impl Tracer {
    pub fn new(trace: Option<Arc<dyn Trace>>, connection: ConnectionHandle) -> Self {
        Self { trace, connection }
    }

    /// Records the event that `make` returns, if there is a trace.
    #[inline]
    pub fn record(&self, now: Time, make: impl FnOnce() -> TraceEvent) {
        if let Some(trace) = &self.trace {
            trace.record(now, self.connection, &make());
        }
    }
}
