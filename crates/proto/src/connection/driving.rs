//! What a driver hands to a connection and takes from it.

use core::net::{IpAddr, SocketAddr};

use crate::Time;
use crate::path::Ecn;

/// A datagram that came.
#[derive(Debug)]
pub struct Received<'a> {
    /// When it came: its own time, not that of the driver's wake-up.
    pub at: Time,
    /// From where.
    pub from: SocketAddr,
    /// To which address of ours, if we may have several: the answer leaves from there.
    pub to: Option<IpAddr>,
    /// Its congestion mark.
    pub ecn: Option<Ecn>,
    /// The UDP payload; it is opened in place.
    pub datagram: &'a mut [u8],
}

/// Datagrams to be sent: `len` bytes, in segments of `segment_size` (the last may be shorter), each a
/// datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// To where.
    pub destination: SocketAddr,
    /// From which address of ours, if not from the one that the system picks: a peer that sent to this one
    /// takes nothing from another.
    pub source: Option<IpAddr>,
    /// Mark to set.
    pub ecn: Option<Ecn>,
    /// Bytes written.
    pub len: usize,
    /// Size of each datagram but the last, when there is more than one.
    pub segment_size: Option<usize>,
}

/// Why a connection wants to be woken; for debugging wake-up storms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WakeReason {
    /// A handshake flight is due.
    Handshake,
    /// The pacer lets the next packet go.
    Pace,
    /// Bytes have waited long enough for more to share their packet.
    Coalesce,
    /// FEEDBACK is due.
    Feedback,
    /// A packet will count as lost.
    Loss,
    /// Nothing was heard for too long: ask.
    Probe,
    /// The redundancy policy asked.
    Redundancy,
    /// The next probe of the packet size is due.
    PacketSize,
    /// The time of a message is over.
    Deadline,
    /// An address at which the peer may be is to be challenged.
    Challenge,
    /// The peer is to hear that this end is still there.
    KeepAlive,
    /// The connection ends for silence, or has finished ending.
    Idle,
}

/// Why the system did not take a datagram that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendFailure {
    /// It is longer than the way out takes (EMSGSIZE).
    TooLong,
    /// No buffer, no route, forbidden, an older datagram was refused: the next one may go.
    Other,
}
