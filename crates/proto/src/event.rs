//! What a connection tells the application. Streams and the connection fill it; the lowest floor, which every
//! room may use.

use crate::close::CloseReason;
use crate::ids::{LaneId, StreamId};

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
    /// A message is to be taken: [`crate::connection::Connection::take_message`].
    MessageReadable,
    /// A lane that had no room for a message may have some.
    LaneWritable(LaneId),
    /// Much more was sent for a byte delivered than a path shall carry, at the rate that the user vouched
    /// for: `fixed` is too fast for this path. It comes once, and [`crate::stats::FloorStats::exceeded`]
    /// counts on.
    Overrun,
    /// The connection is over.
    Closed(CloseReason),
}
