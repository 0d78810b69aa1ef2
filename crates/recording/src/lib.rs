//! Recordings: files of what connections did, packet by packet (docs/recording.md).
//!
//! The command writes them with [`Writer`] while a job runs, and its `dash` and `replay` read them with
//! [`Reader`], after the job or while it runs; a program can do both (the example `long_recording`).
//! Invariant: whatever a file holds, reading it ends with entries or with an error that names the place; it
//! neither panics nor holds more than two blocks in memory.
//!
//! ```
//! use tidewire_recording::{Header, Reader, Writer};
//!
//! // `Writer::push` takes an `Entry` for each event of a trace; this recording has none.
//! let mut file = Vec::new();
//! Writer::new(&mut file, &Header::new("mine", "send", 0), u64::MAX)?.end()?;
//! let mut reader = Reader::open(&file[..])?;
//! assert_eq!(reader.header().verb, "send");
//! let (items, ended_early) = reader.read_all();
//! assert!(items.is_empty() && ended_early.is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod axes;
mod block;
mod bytes;
mod event;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

use core::time::Duration;

use tidewire_proto::endpoint::ConnectionHandle;
use tidewire_proto::trace::TraceEvent;

pub use bytes::Corrupt;
pub use reader::{ReadError, Reader};
pub use writer::{WriteError, Writer};

/// Length of the longest body of a block, in bytes, before compression. Chosen: what a reader may have to
/// hold for a hostile file.
pub const MAX_BODY: usize = 1 << 20;

/// About the job that was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Header {
    /// Version of the program.
    pub program: String,
    /// Name of the verb that was recorded.
    pub verb: String,
    /// When the job began, in milliseconds since 1970.
    pub began_unix_ms: u64,
}

impl Header {
    /// The header of a job of `verb` that began at this time.
    pub fn new(program: &str, verb: &str, began_unix_ms: u64) -> Self {
        Self { program: program.into(), verb: verb.into(), began_unix_ms }
    }
}

/// An event of a connection, as its job saw it.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Time since the job began. Events of one connection come in the order in which it handled them, and the
    /// time of an arrival may be a little earlier than that of the event before. Files keep microseconds.
    pub at: Duration,
    /// The endpoint, or shard of one, from 0 up: a verb that connects again makes a new one.
    pub endpoint: u32,
    /// The connection. Handles are unique within an endpoint.
    pub connection: ConnectionHandle,
    /// What happened.
    pub event: TraceEvent,
}

/// What a recording says next.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "nearly all items are events")]
pub enum Item {
    /// Something happened.
    Event(Entry),
    /// Something happened that was not recorded.
    Missed {
        /// Time since the job began.
        at: Duration,
        /// Number of events.
        events: u64,
    },
}

/// A recording with one block of events that has these bytes, with the right checksum. For fuzzing: a
/// mutation of a whole file hardly ever gets past the checksum.
pub fn file_of_block(body: &[u8]) -> Vec<u8> {
    let empty = Writer::new(Vec::new(), &Header::default(), u64::MAX).and_then(Writer::into_inner);
    let mut file = empty.unwrap_or_default();
    let body = &body[..body.len().min(MAX_BODY)];
    // Memory takes every byte.
    let _ = block::write(&mut file, block::Kind::Events, body);
    file
}
