//! A lane: one coded sequence of source symbols, with its own code, policy and delivery rule.
//!
//! Lane 0 carries the streams, the others messages. The sender turns what is written into source symbols and keeps them until the peer has
//! decoded them or their time is over; the receiver turns source and repair symbols back into what was written. Neither knows of packets: they are
//! told fates by source id, and the connection keeps the books of packet numbers.

mod job;
mod messages;
mod partial;
mod pieces;
mod receiver;
mod sender;
mod store;
mod stream;
mod streams;
mod turns;

pub(crate) use job::{Decode, Decoded, Encode, Encoded};
pub use messages::Message;
pub(crate) use messages::{MAX_MESSAGE, Messages};
pub(crate) use receiver::{Arrival, LaneReceiver};
pub(crate) use sender::{LaneSender, Slice};
pub(crate) use stream::Sending;
pub(crate) use streams::Streams;

/// Symbols of a lane that a receiver accepts from the start: the lane credit given in the handshake.
pub(crate) const INITIAL_CREDIT: usize = 256;

/// Symbols a ring begins with: it grows with what is in it, so that an idle connection stays below 32 KiB (RELIABILITY 2.3).
const SMALLEST_RING: usize = 2;

/// Symbols that a ring of at most `memory` bytes holds: rings double, so it is a power of two, and no less than the first credit.
fn most_symbols(slot_len: usize, memory: usize) -> usize {
    1 << (memory / slot_len.max(1)).max(INITIAL_CREDIT).ilog2()
}

/// Lane 0: reliable streams.
pub(crate) const STREAMS: u32 = 0;

/// Lanes of a connection, each way (wire.md section 5).
pub(crate) const MAX_LANES: usize = 16;

/// Symbols of a lane that are under way in parts at most, and that a receiver keeps parts of (wire.md section 5).
pub(crate) const MAX_SLICED: usize = 64;

/// Bytes of a ring of a lane of messages: four of the longest message, and some to spare. Never less than [`INITIAL_CREDIT`] symbols.
pub(crate) const MESSAGE_RING: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::most_symbols;

    #[test]
    fn a_full_grown_ring_is_within_its_memory() {
        for (slot_len, memory) in [(1_472, 1 << 20), (1_472, 64 << 20), (1_216, 3 << 20), (65_536, 16 << 20)] {
            let symbols = most_symbols(slot_len, memory);
            assert!(symbols.is_power_of_two() && slot_len * symbols <= memory, "{slot_len} {memory}: {symbols}");
        }
    }
}
