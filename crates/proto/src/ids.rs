//! The two ends of a connection, and the names of its lanes and streams: the lowest level, which every room
//! may use.

/// Which end opened the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a connection has two ends")]
pub enum Side {
    /// The one that sent the HELLO.
    Initiator,
    /// The one that answered.
    Responder,
}

/// Names a lane of messages of a connection, 1 to 15. Each end numbers its own lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub u32);

/// Names a stream of a connection: even ids are the initiator's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);
