//! A lane: one coded sequence of source symbols, with its own code, policy and delivery rule.
//!
//! Lane 0 carries the streams, the other lanes carry messages. The sender puts written data into source
//! symbols, and keeps each until the peer has decoded it or its deadline has passed. The receiver turns
//! source and repair symbols back into the written data. Neither half handles packets: the connection maps
//! packet numbers to source ids, and tells the lane which ids were received or lost.

mod assembler;
mod job;
mod messages;
mod partial;
mod receiver;
mod scheduler;
mod sender;
mod store;
mod stream;
mod streams;

pub(crate) use job::{Decode, Decoded, Encode, Encoded};
pub use messages::Message;
pub(crate) use messages::{MAX_MESSAGE, Messages};
pub(crate) use receiver::{Arrival, LaneReceiver};
pub(crate) use sender::{LaneSender, Slice, SliceBytes};
pub(crate) use stream::Sending;
pub(crate) use streams::Streams;

/// Symbols of a lane that a receiver accepts from the start: the lane credit granted in the handshake.
pub(crate) const INITIAL_CREDIT: usize = 256;

/// Initial capacity of a ring, in symbols. The ring grows with its content, so an idle connection stays below
/// 32 KiB.
const SMALLEST_RING: usize = 2;

/// The largest capacity, in symbols, of a ring of at most `memory` bytes. It is a power of two, because rings
/// grow by doubling, and at least the initial credit.
fn most_symbols(slot_len: usize, memory: usize) -> usize {
    1 << (memory / slot_len.max(1)).max(INITIAL_CREDIT).ilog2()
}

/// Lane 0: reliable streams.
pub(crate) const STREAMS: u32 = 0;

/// Maximum number of lanes of a connection in each direction (docs/wire.md section 5).
pub(crate) const MAX_LANES: usize = 16;

/// Maximum number of symbols of a lane that may be in flight in parts, and that a receiver keeps parts of,
/// for a credit of `credit` symbols (docs/wire.md section 5). A receiver grants four times what arrives in a
/// round trip, so this is a bandwidth-delay product.
fn most_sliced(credit: u64) -> usize {
    usize::try_from(credit / 4).unwrap_or(usize::MAX)
}

/// Default of the bytes in the ring of a message lane: room for four messages of maximum length, and some
/// spare. The ring never has fewer than [`INITIAL_CREDIT`] symbols.
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
