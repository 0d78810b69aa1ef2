//! Connections, their two ends, and the names of their lanes and streams: the lowest level, which every room
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

/// Identifies a connection of an endpoint. Never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionHandle(pub u64);

/// Names a lane of a connection: 0 carries the streams, 1 to 15 carry messages. Each end numbers its own
/// lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub u32);

/// Names a stream of a connection: even ids are the initiator's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);
