//! Logs connections with `tracing`: one span for each connection, with its events inside.
//!
//! An endpoint uses it if its configuration has no trace and the program has set a subscriber. Connections,
//! moves, keys and plans are logged at level DEBUG, packets, symbols and rates at TRACE.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

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
    pub fn is_wanted() -> bool {
        LevelFilter::current() >= LevelFilter::DEBUG
    }

    /// The span of a connection. It is made when the connection is, and forgotten when the connection ends.
    fn span(&self, connection: ConnectionHandle, event: &TraceEvent) -> Span {
        let mut spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            TraceEvent::Connected { remote, .. } => {
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
    fn of_endpoint(&self, _now: Time) -> Option<Arc<dyn Trace>> {
        // Another endpoint has other connections with the same handles.
        Some(Arc::<Self>::default())
    }

    fn record(&self, _now: Time, connection: ConnectionHandle, event: &TraceEvent) {
        let is_rare = matches!(
            event,
            TraceEvent::Connected { .. }
                | TraceEvent::Agreed(_)
                | TraceEvent::Closed(_)
                | TraceEvent::Planned { .. }
                | TraceEvent::KeyUpdated
                | TraceEvent::FreshKeys
                | TraceEvent::Moved { .. }
        );
        if !is_rare && LevelFilter::current() < LevelFilter::TRACE {
            return;
        }
        let _entered = self.span(connection, event).entered();
        match event {
            TraceEvent::Connected { .. } => debug!("connected"),
            TraceEvent::Closed(reason) => debug!(%reason, "closed"),
            TraceEvent::PacketSent { number, bytes, content } => trace!(number, bytes, ?content, "packet sent"),
            TraceEvent::PacketAcked { number, was_lost } => trace!(number, was_lost, "packet acknowledged"),
            TraceEvent::PacketLost { number, bytes, at_own_rate } => {
                trace!(number, bytes, at_own_rate, "packet lost");
            }
            TraceEvent::PacketReceived { number, bytes, content } => {
                trace!(number, bytes, ?content, "packet received");
            }
            TraceEvent::SymbolPassed { lane, id, origin, delay } => {
                trace!(lane = lane.0, id = id.0, ?origin, ?delay, "symbol passed");
            }
            TraceEvent::Rate { window, in_flight, pacing_bps, rtt, least_rtt, queueing, loss, .. } => {
                trace!(window, in_flight, pacing_bps, ?rtt, ?least_rtt, ?queueing, loss, "rate");
            }
            TraceEvent::RateState { state } => trace!(%state, "rate control"),
            TraceEvent::Planned { lane, planned } => {
                debug!(lane = lane.0, share = planned.share, saturated = planned.saturated, "planned");
            }
            TraceEvent::KeyUpdated => debug!("key updated"),
            TraceEvent::FreshKeys => debug!("fresh keys"),
            TraceEvent::Moved { remote } => debug!(%remote, "moved"),
            TraceEvent::Agreed(choices) => debug!(profile = ?choices.profile, latency = ?choices.latency, "agreed"),
            other => trace!(event = ?other, "event"),
        }
    }
}
