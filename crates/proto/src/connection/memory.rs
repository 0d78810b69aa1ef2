//! What a connection takes of the memory that all connections of an endpoint share.
//!
//! The endpoint asks after each change how much it is, and says before how much more it may be. Invariant: without leave a connection grows by no more
//! than the credit of the handshake, and by messages.

use super::lanes::Lanes;
use super::{CloseCode, Connection};
use crate::Time;
use crate::lane::{LaneReceiver, LaneSender};

/// What a connection takes beside its rings: less than this where it is idle (`crates/proto/tests/hostile/memory.rs`).
const IDLE: usize = 32 << 10;

impl Connection {
    /// Bytes of memory held for what the peer sent and for what it may still lack: rings, decoding matrices and
    /// unread bytes. All other state is bounded by some ten KiB a connection and 150 bytes a packet in flight.
    /// Costs a few additions per lane.
    pub fn memory(&self) -> usize {
        self.rings(LaneReceiver::memory)
    }

    /// Bytes that the connection counts for in its endpoint: what it holds, or what it must hold once the peer uses
    /// the credit that it was given, and what every connection takes.
    pub(crate) fn granted(&self) -> usize {
        IDLE + self.rings(LaneReceiver::granted)
    }

    fn rings(&self, receiving: impl Fn(&LaneReceiver) -> usize) -> usize {
        let outbound = self.lanes.iter().map(|(_, lane)| lane.sender.memory());
        let inbound = self.inbound.values().map(|inbound| receiving(&inbound.receiver) + inbound.messages.memory());
        receiving(&self.receiver) + self.streams.memory() + outbound.chain(inbound).sum::<usize>()
    }

    /// It may take so many bytes more.
    pub(crate) fn allow_memory(&mut self, spare: usize) {
        self.receiver.spare = spare;
        self.lanes.streams.sender.spare = spare;
        self.inbound.values_mut().for_each(|inbound| inbound.receiver.spare = spare);
    }

    /// Closes the connection since there is no memory for what it takes, and gives the memory of its rings back at once: what was not read is lost, and a
    /// reader finds nothing more before it learns that the connection was closed.
    pub(crate) fn refuse_memory(&mut self, now: Time) {
        self.close(now, CloseCode::Refused, "no memory is left");
        let (config, slot_len) = (&self.config, self.config.slot_len());
        self.receiver = LaneReceiver::new(slot_len, config.max_span, config.ring_memory, config.inline());
        self.lanes = Lanes::new(
            LaneSender::new((config.profile.layout, config.max_span), slot_len, config.ring_memory, 0),
            config.profile.redundancy,
        );
        self.inbound.clear();
    }
}
