//! Why a connection ends: the codes of the wire, and what the application is told. The lowest floor, which
//! every room may use.

use core::fmt;

/// Codes of a CLOSE frame (wire.md section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
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
    /// A relay changed symbols.
    Polluted,
    /// The path from the sender does not carry full packets.
    PathTooNarrow,
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
            Self::Polluted => 8,
            Self::PathTooNarrow => 9,
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
            8 => Self::Polluted,
            9 => Self::PathTooNarrow,
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
    /// A relay changed symbols on the way: who may have done it.
    Polluted(String),
    /// The path to the peer drops full packets and passes shorter ones.
    PathTooNarrow {
        /// UDP payload in bytes that it carries, about.
        carries: u16,
        /// UDP payload in bytes that it must carry.
        needed: u16,
    },
    /// The connection ran over a hop to a relay or from one, which is over for this reason.
    Hop(Box<CloseReason>),
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
            Self::Polluted(suspects) => f.write_str(suspects),
            Self::PathTooNarrow { carries, needed } => {
                let (ipv4, ipv6) = (u32::from(*needed) + 28, u32::from(*needed) + 48);
                write!(
                    f,
                    "the path drops packets with more than about {carries} bytes of UDP payload, and {needed} are \
                     needed: raise the MTU of the link or tunnel on the way to {ipv4} bytes (IPv6: {ipv6})"
                )
            }
            Self::Hop(reason) => write!(f, "the hop to the relay is over: {reason}"),
        }
    }
}
