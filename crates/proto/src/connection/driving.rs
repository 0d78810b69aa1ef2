//! Types that a driver passes to a connection and gets from it.

use core::net::{IpAddr, SocketAddr};

use crate::Time;
use crate::path::Ecn;

/// A received datagram.
#[derive(Debug)]
pub struct Received<'a> {
    /// When the datagram was received, not when the driver woke up. It may lie before other times that the
    /// endpoint was given, but not before that of an earlier datagram.
    pub at: Time,
    /// The source address.
    pub from: SocketAddr,
    /// The local address it was sent to, if this host may have several. The answer is sent from this address.
    pub to: Option<IpAddr>,
    /// Its ECN mark.
    pub ecn: Option<Ecn>,
    /// The UDP payload. It is decrypted in place.
    pub datagram: &'a mut [u8],
}

/// Datagrams to send: `len` bytes, in segments of `segment_size` bytes (the last may be shorter). Each
/// segment is one datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The destination address.
    pub destination: SocketAddr,
    /// The local address to send from, if not the one that the system chooses: a peer that sent to this
    /// address accepts packets only from it.
    pub source: Option<IpAddr>,
    /// ECN mark to set.
    pub ecn: Option<Ecn>,
    /// Number of bytes written.
    pub len: usize,
    /// Size of each datagram except the last, if there is more than one.
    pub segment_size: Option<usize>,
}

/// Why a connection wants to be woken. Helps to debug too frequent wake-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WakeReason {
    /// A handshake packet is due.
    Handshake,
    /// The pacer allows the next packet.
    Pace,
    /// The pacer allows the next packet of a packet train, or the next train. The peer measures the train, so
    /// the driver should be exact.
    Train,
    /// Bytes were held back long enough to share a packet.
    Coalesce,
    /// FEEDBACK is due.
    Feedback,
    /// A packet is declared lost.
    Loss,
    /// Nothing was received for too long, so a probe is sent.
    Probe,
    /// The redundancy policy asked to be called.
    Redundancy,
    /// The next MTU probe is due.
    PacketSize,
    /// The deadline of a message has passed.
    Deadline,
    /// An address at which the peer may be must be challenged.
    Challenge,
    /// The peer must be told that this end is still there.
    KeepAlive,
    /// The connection ends because of silence, or has finished closing.
    Idle,
}

/// Why the system did not send a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a driver makes it and handles every case")]
pub enum SendFailure {
    /// The datagram is longer than the outgoing interface allows (EMSGSIZE).
    TooLong,
    /// This machine has no route to the destination.
    NoRoute,
    /// A rule of this machine forbids it.
    NotPermitted,
    /// No buffer, or an error for an earlier datagram. The next datagram may be sent.
    Other,
}
