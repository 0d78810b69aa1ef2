//! Writes a recording.

use core::time::Duration;
use std::io::{self, Write};

use tidewire_proto::endpoint::ConnectionHandle;

use super::block::{self, Kind, MAGIC, PREFIX, VERSION};
use super::bytes::{Encoder, micros};
use super::{Entry, Header, MAX_BODY, event};

/// A block ends after this many bytes. Chosen: larger blocks compress no better.
const FULL: usize = 256 * 1024;
/// A block ends this long after its first entry, so that a crash loses at most a second: this, the wait for
/// the next entry or call of [`Writer::tick`], and the buffers before the writer.
const OPEN_FOR: Duration = Duration::from_millis(500);
/// Bound of one entry in bytes: two texts of 1,024 bytes and less than that of numbers.
const MOST_ENTRY: usize = 4_096;
const _: () = assert!(FULL + MOST_ENTRY <= MAX_BODY, "a reader takes every block");

/// Why a recording ends early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The file cannot be written.
    #[error("the file cannot be written: {0}")]
    Io(io::Error),
    /// The file has its greatest length.
    #[error("the file has its greatest length of {limit} bytes")]
    Full {
        /// The length in bytes.
        limit: u64,
    },
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Writes a recording. Memory is bounded by one block.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    open: Encoder,
    /// Time of the first entry of the open block, and of the last one. Microseconds.
    first: u64,
    last: u64,
    source: (u32, ConnectionHandle),
    written: u64,
    limit: u64,
    events: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a recording that never gets longer than about `limit` bytes.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn new(mut out: W, header: &Header, limit: u64) -> Result<Self, WriteError> {
        out.write_all(&MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        out.write_all(&[0; 2])?;
        let mut body = Encoder::default();
        let Header { program, verb, began_unix_ms } = header;
        super::reader::visit_header(&mut program.clone(), &mut verb.clone(), &mut { *began_unix_ms }, &mut body);
        let written = PREFIX as u64 + block::write(&mut out, Kind::Header, &body.bytes)?;
        let (open, source) = (Encoder::default(), (0, ConnectionHandle(0)));
        Ok(Self { out, open, first: 0, last: 0, source, written, limit, events: 0 })
    }

    /// Adds an event.
    ///
    /// # Errors
    /// The file cannot be written, or has its greatest length.
    pub fn push(&mut self, entry: &Entry) -> Result<(), WriteError> {
        // An event that this format does not know is left out.
        let Some(tag) = event::tag(&entry.event) else { return Ok(()) };
        self.begin(entry.at);
        let source = (entry.endpoint, entry.connection);
        if source != self.source {
            self.head(0, entry.at);
            super::bytes::put_number(&mut self.open.bytes, source.0.into());
            super::bytes::put_number(&mut self.open.bytes, source.1.0);
            self.source = source;
        }
        self.head(tag, entry.at);
        event::put(&mut self.open, &entry.event);
        self.events += 1;
        self.tick(entry.at)
    }

    /// Notes that `events` events were not recorded.
    ///
    /// # Errors
    /// The same as [`Self::push`].
    pub fn missed(&mut self, at: Duration, events: u64) -> Result<(), WriteError> {
        self.begin(at);
        self.head(1, at);
        super::bytes::put_number(&mut self.open.bytes, events);
        self.tick(at)
    }

    /// Writes the open block if it is full or was open for long.
    ///
    /// # Errors
    /// The same as [`Self::push`].
    pub fn tick(&mut self, now: Duration) -> Result<(), WriteError> {
        let is_old = micros(now) >= self.first.saturating_add(micros(OPEN_FOR));
        if self.open.bytes.len() >= FULL || (is_old && !self.open.bytes.is_empty()) { self.flush() } else { Ok(()) }
    }

    /// Ends the recording: writes what is open and the end.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn end(mut self) -> Result<W, WriteError> {
        self.flush()?;
        let mut body = Vec::new();
        super::bytes::put_number(&mut body, self.events);
        block::write(&mut self.out, Kind::End, &body)?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Gives up the recording without its end, as a kill does after the last write.
    pub(super) fn into_inner(mut self) -> Result<W, WriteError> {
        self.flush()?;
        Ok(self.out)
    }

    /// Begins a block, unless one is open.
    fn begin(&mut self, at: Duration) {
        if self.open.bytes.is_empty() {
            (self.first, self.last) = (micros(at), micros(at));
            self.source = (0, ConnectionHandle(0));
            super::bytes::put_number(&mut self.open.bytes, self.first);
        }
    }

    /// Begins an entry.
    fn head(&mut self, tag: u8, at: Duration) {
        let now = micros(at);
        self.open.bytes.push(tag);
        self.open.signed(now.wrapping_sub(self.last) as i64);
        self.last = now;
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        if self.open.bytes.is_empty() {
            return Ok(());
        }
        // The limit leaves room for the end of the file.
        if self.written + (self.open.bytes.len() + 2 * MOST_ENTRY) as u64 > self.limit {
            self.open.clear();
            return Err(WriteError::Full { limit: self.limit });
        }
        self.written += block::write(&mut self.out, Kind::Events, &self.open.bytes)?;
        self.open.clear();
        Ok(self.out.flush()?)
    }
}
