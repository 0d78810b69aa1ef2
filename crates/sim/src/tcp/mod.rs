//! One flow of TCP as two state machines: NewReno as Linux runs it without SACK, and CUBIC.
//!
//! [`Sender`] and [`Receiver`] take segments and times and give segments. They own neither link nor clock, so
//! a network of nodes or a tunnel can lie between them. [`TcpPair`] joins both by a
//! [`DuplexLink`](crate::duplex::DuplexLink), and several pairs and runs of ours can share its queues.
//!
//! Slow start, congestion avoidance, fast retransmit, partial ACKs and limited transmit are those of RFC
//! 5681, RFC 6582 and RFC 3042. Where Linux differs, the model follows Linux (`net/ipv4/tcp_input.c`, names
//! as in version 6.18): it counts segments and not bytes, reduces the window by proportional rate reduction
//! (RFC 6937), times by timestamps (RFC 7323), and answers a timeout with F-RTO (RFC 5682), also without
//! SACK. `docs/networks.md` compares both. Invariant: a run depends only on its settings and seeds.
//!
//! Left out: the handshake and the end of a connection, windows that shrink or close, urgent data, path MTU
//! discovery, and reduction of the window of an application that is limited by itself (RFC 2861) but for
//! idle times.

mod board;
pub mod bucket;
mod control;
mod cubic;
mod flow;
mod receiver;
mod recovery;
mod rto;
mod sender;
mod source;

#[cfg(test)]
mod tests;

use tidewire_codec::SplitMix64;
use tidewire_proto::Time;

pub use control::{Control, Moment, Reno, Window};
pub use cubic::Cubic;
pub use flow::{Outcome, Packet, Sample, TcpPair, together};
pub use receiver::{Receiver, ReceiverStats};
pub use recovery::State;
pub use sender::{Sender, SenderConfig, SenderStats};
pub use source::Source;

/// Largest payload of a segment: 1,500 bytes of Ethernet without 20 of IPv4, 20 of TCP and 12 of timestamps.
pub const SEGMENT_BYTES: u32 = 1_448;
/// Bytes of the headers of a packet: IPv4 (RFC 791), TCP (RFC 9293) and timestamps with padding (RFC 7323
/// appendix A).
pub const HEADERS: usize = 20 + 20 + 12;

/// A segment with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Number of its first byte, from 0.
    pub start: u64,
    /// Number of bytes, at least 1.
    pub bytes: u32,
    /// The oracle's digest of the bytes; see [`content`].
    pub digest: u64,
    /// When it was sent (TSval of RFC 7323).
    pub stamp: Time,
    /// Whether the sender supports congestion marks (ECT of RFC 3168).
    pub supports_marks: bool,
    /// Whether a congestion mark was applied on the way (CE of RFC 3168).
    pub marked: bool,
    /// Whether the sender reduced its window for a mark (CWR of RFC 3168).
    pub reduced: bool,
}

impl Segment {
    /// Number of the byte after its last.
    pub fn end(&self) -> u64 {
        self.start + u64::from(self.bytes)
    }

    /// Length of its IP packet.
    pub fn ip_bytes(&self) -> usize {
        HEADERS + self.bytes as usize
    }
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Number of the next byte that is missing.
    pub next: u64,
    /// Number of bytes after `next` that the receiver has room for.
    pub window: u64,
    /// The stamp of the segment that caused it, as RFC 7323 section 4.3 chooses it (TSecr).
    pub echo: Time,
    /// Whether a congestion mark arrived that the sender has not confirmed (ECE of RFC 3168).
    pub echoes_mark: bool,
}

impl Ack {
    /// Length of its IP packet.
    pub fn ip_bytes(&self) -> usize {
        HEADERS
    }
}

/// Digest of the bytes `start..end` of a stream. Digests of adjacent ranges add up to that of their union, so
/// the sum over all delivered segments tells whether each byte came once and whether it was the right one.
pub fn content(start: u64, end: u64) -> u64 {
    SplitMix64::mix(end).wrapping_sub(SplitMix64::mix(start))
}
