//! What an end tells its program while it runs.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tidewire::{CloseReason, LaneError, Stats};

use super::counts::{Received, Sent};
use super::meeting::MeetError;
use super::wire::Side;

/// Takes events, on the threads of the runtime. It must not block for long.
pub type Tell = dyn Fn(Event) + Send + Sync;

/// What happened at an end.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A peer has connected to the endpoint on which this end listens.
    Connected {
        /// The peer's address.
        peer: SocketAddr,
    },
    /// A session has begun.
    Session {
        /// What this end does in it.
        side: Side,
        /// The peer's address.
        peer: SocketAddr,
        /// The latency that both ends use.
        latency: Duration,
    },
    /// The bitrate that an encoder may have for this receiver has changed.
    Target {
        /// The receiver's address.
        peer: SocketAddr,
        /// Bits of the stream in each second, without what repair and headers take.
        bitrate_bps: u64,
    },
    /// An input failed; the others go on.
    InputFailed {
        /// The input.
        name: String,
        /// Why.
        error: io::Error,
    },
    /// The system has refused the datagrams of an input or output for a second, or from the beginning. It
    /// goes on.
    Refused {
        /// The input or output.
        name: String,
        /// What the system says.
        error: io::Error,
    },
    /// An input has joined its multicast group again, which the system had forgotten with a device.
    Rejoined {
        /// The input.
        name: String,
    },
    /// A connection that was accepted has ended before its session was whole. [`Self::Over`] follows.
    Lost {
        /// The peer's address.
        peer: SocketAddr,
        /// Why.
        reason: SessionError,
    },
    /// A connection that was accepted is over.
    Over(Box<Over>),
}

/// The figures of a connection that is over.
#[derive(Debug)]
pub struct Over {
    /// Counts of this end so far, over all its sessions.
    pub counts: Counts,
    /// The statistics of the connection.
    pub stats: Stats,
    /// Time since the connection was accepted.
    pub elapsed: Duration,
}

/// Counts of either end.
#[derive(Clone, Copy, Debug)]
pub enum Counts {
    /// Of a sender.
    Sent(Sent),
    /// Of a receiver.
    Received(Received),
}

/// Why a session ended before it was whole.
#[derive(Debug)]
#[non_exhaustive]
pub enum SessionError {
    /// The ends did not meet.
    Meeting(MeetError),
    /// The connection has no lane for the datagrams.
    Lane(LaneError),
    /// The connection is over.
    Closed(CloseReason),
    /// The receiver did not report what it played out.
    NoReport,
    /// This end was stopped.
    Stopped,
    /// Another sender connected, and has the outputs now.
    Replaced,
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Meeting(error) => error.fmt(f),
            Self::Lane(error) => error.fmt(f),
            Self::Closed(reason) => reason.fmt(f),
            Self::NoReport => f.write_str("it did not report what it played out"),
            Self::Stopped => f.write_str("stopped"),
            Self::Replaced => f.write_str("another sender connected"),
        }
    }
}

impl std::error::Error for SessionError {}

impl From<MeetError> for SessionError {
    fn from(error: MeetError) -> Self {
        Self::Meeting(error)
    }
}
