//! What a connection tells its driver, and the small types of its interface.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use crate::Time;
use crate::path::Ecn;

/// Which end opened the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that sent the HELLO.
    Initiator,
    /// The one that answered.
    Responder,
}

/// Names a stream of a connection: even ids are the initiator's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// A message that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The peer's lane that carried it.
    pub lane: u32,
    /// Its bytes.
    pub data: Vec<u8>,
}

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

/// Datagrams to be sent: `len` bytes, in segments of `segment_size` (the last may be shorter), each a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// To where.
    pub destination: SocketAddr,
    /// From which address of ours, if not from the one that the system picks: a peer that sent to this one takes nothing from another.
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

/// Something the application should know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Keys are agreed and the peer proved that it has them.
    Connected,
    /// The peer opened a stream.
    StreamOpened(StreamId),
    /// A stream has bytes, or its end, to read.
    Readable(StreamId),
    /// A stream that could not write may try again.
    Writable(StreamId),
    /// The peer allows more streams.
    StreamsAvailable,
    /// A message is to be taken: [`super::Connection::take_message`].
    MessageReadable,
    /// A lane that had no room for a message may have some.
    LaneWritable(u32),
    /// The connection is over.
    Closed(CloseReason),
}

/// Why the system did not take a datagram that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendFailure {
    /// It is longer than the way out takes (EMSGSIZE).
    TooLong,
    /// No buffer, no route, forbidden, an older datagram was refused: the next one may go.
    Other,
}

/// Codes of a CLOSE frame (wire.md section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseCode {
    /// All is done.
    Done,
    /// A frame could not be parsed.
    Malformed,
    /// A frame contradicts what was agreed or said before.
    Protocol,
    /// More was sent than credit was given for.
    FlowControl,
    /// More streams were opened than allowed.
    TooManyStreams,
    /// A bug of the sender.
    Internal,
    /// The application does not want the connection.
    Refused,
    /// The application's own code, from 256 up.
    Application(u64),
}

impl CloseCode {
    pub(crate) fn to_wire(self) -> u64 {
        match self {
            Self::Done => 0,
            Self::Malformed => 2,
            Self::Protocol => 3,
            Self::FlowControl => 4,
            Self::TooManyStreams => 5,
            Self::Internal => 6,
            Self::Refused => 7,
            Self::Application(code) => code.max(256),
        }
    }

    pub(crate) fn from_wire(code: u64) -> Self {
        match code {
            0 => Self::Done,
            2 => Self::Malformed,
            4 => Self::FlowControl,
            5 => Self::TooManyStreams,
            6 => Self::Internal,
            7 => Self::Refused,
            256.. => Self::Application(code),
            _ => Self::Protocol,
        }
    }
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// We closed it.
    Local,
    /// The peer closed it.
    Peer {
        /// Its code.
        code: CloseCode,
        /// Its words.
        reason: String,
    },
    /// The peer broke the protocol; we closed it with this code.
    Fault(CloseCode),
    /// Nothing was heard for the idle timeout.
    Idle,
    /// The peer says that it does not know the connection: it was restarted, or has closed it.
    Forgotten,
    /// Nobody answered the handshake.
    NoAnswer,
    /// The peer does not decode the code of our profile, which has this name.
    UnknownCode(&'static str),
    /// The key sealed as many packets as it may.
    KeyExhausted,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("closed by us"),
            Self::Peer { code, reason } if reason.is_empty() => write!(f, "closed by the peer ({code:?})"),
            Self::Peer { code, reason } => write!(f, "closed by the peer ({code:?}): {reason}"),
            Self::Fault(code) => write!(f, "closed since the peer broke the protocol ({code:?})"),
            Self::Idle => f.write_str("nothing was heard from the peer for the idle timeout"),
            Self::Forgotten => f.write_str("the peer was restarted, or has closed the connection: it does not know it"),
            Self::NoAnswer => f.write_str("no answer: wrong host, port or secret"),
            Self::UnknownCode(name) => {
                write!(f, "the peer does not decode {name}: choose another profile or code, or update the peer")
            }
            Self::KeyExhausted => {
                f.write_str("the keys have sealed or refused as many packets as they may: connect again")
            }
        }
    }
}
