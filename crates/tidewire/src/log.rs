//! Logs connections with `tracing`: one span for each connection, with its events inside.
//!
//! An endpoint uses it if its configuration has no trace and the program has set a subscriber. Connections,
//! moves, keys and plans are logged at level DEBUG, packets, symbols and rates at TRACE.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tidewire_proto::Time;
use tidewire_proto::endpoint::ConnectionHandle;
use tidewire_proto::trace::{Trace, TraceEvent};
use tracing::level_filters::LevelFilter;
use tracing::{Span, debug, debug_span, trace};

/// A [`Trace`] that writes to the subscriber of `tracing`.
#[derive(Debug, Default)]
pub struct Log {
    /// The spans of connections that were made and have not ended.
    spans: Mutex<HashMap<ConnectionHandle, Span>>,
}

impl Log {
    /// Whether a subscriber wants any of the events.
    pub(crate) fn is_wanted() -> bool {
        LevelFilter::current() >= LevelFilter::DEBUG
    }

    /// The span of a connection. It is made when the connection is, and forgotten when the connection ends.
    fn span(&self, connection: ConnectionHandle, event: &TraceEvent) -> Span {
        let mut spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            TraceEvent::Connected { remote } => {
                let span = debug_span!("connection", id = connection.0, %remote);
                spans.insert(connection, span.clone());
                span
            }
            TraceEvent::Closed(_) => spans.remove(&connection).unwrap_or_else(Span::none),
            _ => spans.get(&connection).cloned().unwrap_or_else(Span::none),
        }
    }
}

impl Trace for Log {
    fn record(&self, _now: Time, connection: ConnectionHandle, event: &TraceEvent) {
        let is_detail = matches!(
            event,
            TraceEvent::PacketSent { .. }
                | TraceEvent::PacketAcked { .. }
                | TraceEvent::PacketLost { .. }
                | TraceEvent::PacketReceived { .. }
                | TraceEvent::SymbolPassed { .. }
                | TraceEvent::Rate { .. }
        );
        if is_detail && LevelFilter::current() < LevelFilter::TRACE {
            return;
        }
        let _entered = self.span(connection, event).entered();
        match event {
            TraceEvent::Connected { .. } => debug!("connected"),
            TraceEvent::Closed(reason) => debug!(%reason, "closed"),
            TraceEvent::PacketSent { number, bytes, content } => trace!(number, bytes, ?content, "packet sent"),
            TraceEvent::PacketAcked { number, was_lost } => trace!(number, was_lost, "packet acknowledged"),
            TraceEvent::PacketLost { number } => trace!(number, "packet lost"),
            TraceEvent::PacketReceived { number, bytes } => trace!(number, bytes, "packet received"),
            TraceEvent::SymbolPassed { lane, id, origin, delay } => {
                trace!(lane = lane.0, id = id.0, ?origin, ?delay, "symbol passed");
            }
            TraceEvent::Rate { window, in_flight, pacing_bps, rtt, least_rtt, loss } => {
                trace!(window, in_flight, pacing_bps, ?rtt, ?least_rtt, loss, "rate");
            }
            TraceEvent::Planned { lane, planned } => {
                debug!(lane = lane.0, share = planned.share, saturated = planned.saturated, "planned");
            }
            TraceEvent::KeyUpdated => debug!("key updated"),
            TraceEvent::FreshKeys => debug!("fresh keys"),
            TraceEvent::Moved { remote } => debug!(%remote, "moved"),
            other => debug!(event = ?other, "event"),
        }
    }
}
