//! A lane: one coded sequence of source symbols, with its own code, policy and delivery rule.
//!
//! Lane 0 carries the streams. The sender turns what streams write into source symbols and keeps them until the peer has
//! decoded them; the receiver turns source and repair symbols back into streams. Neither knows of packets: they are told
//! fates by source id, and the connection keeps the books of packet numbers.

mod receiver;
mod sender;
mod stream;
mod streams;

pub(crate) use receiver::{INITIAL_CAPACITY, LaneReceiver};
pub(crate) use sender::LaneSender;
pub(crate) use streams::Streams;

/// Lane 0: reliable streams.
pub(crate) const STREAMS: u32 = 0;
