//! The share of a connection in the memory that all connections of an endpoint use.
//!
//! After each change the endpoint asks how much memory the connection uses, and it sets beforehand how much
//! more is allowed. Invariant: without permission a connection grows by no more than the credit of the
//! handshake, and by messages.

use super::lanes::{Lanes, lane_receiver};
use super::{CloseCode, Connection};
use crate::Time;
use crate::lane::{LaneReceiver, LaneSender, STREAMS};

/// Memory of a connection beside its rings. An idle connection uses less than this
/// (`crates/proto/tests/hostile/memory.rs`).
const IDLE: usize = 32 << 10;

impl Connection {
    /// Bytes of memory held for data received and for data the peer may lack: rings, decoding matrices and
    /// unread bytes. All other state is bounded by about ten KiB per connection and 150 bytes per packet in
    /// flight. Costs a few additions per lane.
    pub fn memory(&self) -> usize {
        self.rings(LaneReceiver::memory)
    }

    /// Bytes that the endpoint counts for this connection: what it holds, or will hold when the peer uses its
    /// credit, and the fixed part of every connection.
    pub(crate) fn granted(&self) -> usize {
        IDLE + self.rings(LaneReceiver::granted)
    }

    fn rings(&self, receiving: impl Fn(&LaneReceiver) -> usize) -> usize {
        let outbound = self.lanes.iter().map(|(_, lane)| lane.sender.memory());
        let inbound =
            self.receiving.inbound.values().map(|inbound| receiving(&inbound.receiver) + inbound.messages.memory());
        let recoding = self.lanes.recoding.as_ref().map_or(0, |recoding| recoding.memory());
        receiving(&self.receiving.receiver) + self.streams.memory() + recoding + outbound.chain(inbound).sum::<usize>()
    }

    /// Allows the connection to use `spare` bytes more.
    pub(crate) fn allow_memory(&mut self, spare: usize) {
        self.receiving.receiver.allow_memory(spare);
        self.lanes.streams.sender.spare = spare;
        self.streams.allow_memory(spare);
        self.receiving.inbound.values_mut().for_each(|inbound| inbound.receiver.allow_memory(spare));
    }

    /// Closes the connection because there is no memory for it, and frees its rings at once. Unread data is
    /// lost: a reader finds no more data before it learns that the connection was closed.
    pub(crate) fn refuse_memory(&mut self, now: Time) {
        self.close(now, CloseCode::Refused, "no memory is left");
        let (config, slot_len) = (&self.config, self.config.slot_len());
        self.receiving.receiver = lane_receiver(config, STREAMS, config.limits.ring_memory);
        self.lanes = Lanes::new(
            LaneSender::new(config.profile.layout, config.repair.max_span, slot_len, config.limits.ring_memory, 0),
            config.profile.redundancy,
        );
        self.receiving.inbound.clear();
    }
}
