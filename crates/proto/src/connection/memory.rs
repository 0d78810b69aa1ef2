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
    /// Bytes of its rings, those included that the peer was given credit for, and what every connection takes.
    pub fn memory(&self) -> usize {
        let sending = self.lanes.iter().map(|(_, lane)| lane.sender.memory());
        let receiving = self.inbound.values().map(|inbound| inbound.receiver.memory());
        IDLE + self.receiver.memory() + sending.chain(receiving).sum::<usize>()
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
        self.receiver = LaneReceiver::new(slot_len, config.max_span, config.ring_memory);
        self.lanes = Lanes::new(LaneSender::new(slot_len, config.ring_memory, 0), config.redundancy);
        self.inbound.clear();
    }
}
