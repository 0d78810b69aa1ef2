//! The two ends of a connection and the names of its streams: the lowest floor, which every room may use.

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
