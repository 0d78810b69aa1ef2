//! What only the trace needs to know: choices of this end, its writes, and what a received packet carries.
//!
//! Nothing here has an effect or a cost without a trace.

use tidewire_codec::SourceId;

use super::{Connection, StreamId};
use crate::Time;
use crate::ids::LaneId;
use crate::trace::{Choices, PacketContent, TraceEvent};
use crate::wire::{Frame, Frames};

/// Number of streams whose writes are gathered until the driver looks. Chosen: more than write within one
/// turn of a driver; further writes are told at once.
const MOST_WRITTEN: usize = 64;

/// Writes to one stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    stream: StreamId,
    bytes: u64,
    end: bool,
}

impl Connection {
    /// How this end codes, for the trace.
    pub(super) fn choices(&self) -> TraceEvent {
        let config = &self.config;
        TraceEvent::Agreed(Choices {
            profile: self.agreed.profile,
            latency: config.latency(),
            deliver: config.deliver(),
            max_overhead: config.max_overhead(),
            max_rate: config.max_rate(),
        })
    }

    /// Remembers a write until the driver looks, because the application writes without a clock.
    pub(super) fn note_written(&mut self, stream: StreamId, bytes: usize, end: bool) {
        if !self.tracer.is_on() || (bytes == 0 && !end) {
            return;
        }
        let bytes = bytes as u64;
        if let Some(written) = self.scratch.written.iter_mut().find(|written| written.stream == stream) {
            written.bytes += bytes;
            written.end |= end;
            return;
        }
        if self.scratch.written.len() >= MOST_WRITTEN {
            self.tell_written(self.contact.last_asked);
        }
        self.scratch.written.push(Written { stream, bytes, end });
    }

    /// Tells the trace what was written since the last call.
    pub(super) fn tell_written(&mut self, now: Time) {
        for Written { stream, bytes, end } in self.scratch.written.drain(..) {
            self.tracer.record(now, || TraceEvent::StreamWritten { stream, bytes, end });
        }
    }

    /// Tells the trace that a packet arrived.
    pub(super) fn trace_received(&self, now: Time, number: u64, bytes: u32, payload: &[u8]) {
        self.tracer.record(now, || TraceEvent::PacketReceived { number, bytes, content: received_content(payload) });
    }
}

/// What a packet with this payload carries. Frames that cannot be parsed carry nothing.
fn received_content(payload: &[u8]) -> PacketContent {
    let contents = Frames::new(payload).map_while(Result::ok).filter_map(|frame| match frame {
        Frame::Source { lane, id, again, .. } => Some(PacketContent::Source { lane: LaneId(lane), id, again }),
        Frame::Slice { lane, id, .. } => Some(PacketContent::Source { lane: LaneId(lane), id, again: false }),
        Frame::Repair { lane, id, on_feedback, .. } => {
            let (first, count) = (SourceId(id.first.0), id.count);
            Some(PacketContent::Repair { lane: LaneId(lane), first, count, on_feedback })
        }
        Frame::Recoded(recoded) => Some(PacketContent::Recoded { generation: recoded.generation }),
        Frame::Base { lane, .. } => Some(PacketContent::Base { lane: LaneId(lane) }),
        _ => None,
    });
    // A packet has one frame of data, and a base beside it says less.
    contents
        .reduce(|first, next| if matches!(first, PacketContent::Base { .. }) { next } else { first })
        .unwrap_or(PacketContent::Control)
}
