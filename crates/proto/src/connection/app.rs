//! The application's side: streams opened, written, read.

use core::fmt;
use core::time::Duration;

use super::{Connection, State, StreamId};
use crate::Time;

/// What may wait in the lane for its first transmission, as time at the pacing rate: enough that a driver that wakes each
/// millisecond never runs dry, short enough that a key stroke does not wait behind a bulk stream (DESIGN section 4).
const QUEUE: Duration = Duration::from_millis(2);
/// ... and at least this many symbols.
const LEAST_QUEUE: usize = 2;

/// A stream cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The peer allows no more now; [`super::Event::StreamsAvailable`] tells when it does.
    Limit,
    /// The connection is not established, or over.
    NotConnected,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Limit => "the peer allows no more streams now",
            Self::NotConnected => "the connection is not established",
        })
    }
}

impl core::error::Error for OpenError {}

/// Bytes cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// No room now; [`super::Event::Writable`] tells when there is.
    Blocked,
    /// The stream was finished by us, or never was.
    Finished,
    /// The connection is not established, or over.
    NotConnected,
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Blocked => "no room to write now",
            Self::Finished => "the stream was finished",
            Self::NotConnected => "the connection is not established",
        })
    }
}

impl core::error::Error for WriteError {}

/// Nothing can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// Nothing has come yet; [`super::Event::Readable`] tells when it has.
    Blocked,
    /// There is no such stream, or it was read to its end before.
    UnknownStream,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Blocked => "nothing to read now",
            Self::UnknownStream => "there is no such stream",
        })
    }
}

impl core::error::Error for ReadError {}

impl Connection {
    /// Opens a stream; the peer hears of it with its first bytes.
    pub fn open_stream(&mut self) -> Result<StreamId, OpenError> {
        if self.keys.is_none() || !matches!(self.state, State::Established { .. }) {
            return Err(OpenError::NotConnected);
        }
        self.streams.open().ok_or(OpenError::Limit)
    }

    /// Takes bytes of a stream, as many as will leave within about 2 ms; never zero of a non-empty slice.
    pub fn write(&mut self, stream: StreamId, data: &[u8]) -> Result<usize, WriteError> {
        if data.is_empty() {
            return Ok(0);
        }
        let (taken, _) = self.write_or_finish(stream, data, false)?;
        if taken < data.len() {
            self.streams.wait_for_room(stream);
        }
        if taken == 0 { Err(WriteError::Blocked) } else { Ok(taken) }
    }

    /// Says that nothing more will be written to the stream. Blocked: try again when the stream is writable.
    pub fn finish(&mut self, stream: StreamId) -> Result<(), WriteError> {
        let (_, ended) = self.write_or_finish(stream, &[], true)?;
        if !ended {
            self.streams.wait_for_room(stream);
            return Err(WriteError::Blocked);
        }
        self.streams.forget_if_done(stream);
        Ok(())
    }

    fn write_or_finish(&mut self, id: StreamId, data: &[u8], fin: bool) -> Result<(usize, bool), WriteError> {
        if !matches!(self.state, State::Established { .. }) {
            return Err(WriteError::NotConnected);
        }
        let (symbol_len, allowance) = (self.symbol_len(), self.queue_allowance());
        let stream = self.streams.get_mut(id).ok_or(WriteError::Finished)?;
        if stream.outgoing.finished || (stream.outgoing.ends && !fin) {
            return Err(WriteError::Finished);
        }
        stream.outgoing.ends |= fin;
        let credit = usize::try_from(stream.outgoing.limit - stream.outgoing.written).unwrap_or(usize::MAX);
        let data = data.get(..credit).unwrap_or(data);
        let offset = stream.outgoing.written;
        let (taken, ended) = self.sender.write((id.0, offset), data, fin, symbol_len, allowance);
        stream.outgoing.written += taken as u64;
        stream.outgoing.finished |= ended;
        self.stats.app_bytes_sent += taken as u64;
        Ok((taken, ended))
    }

    /// Symbols that may wait in the lane.
    fn queue_allowance(&self) -> usize {
        let bytes = u128::from(self.pacing()) * QUEUE.as_nanos() / 1_000_000_000;
        (bytes as usize / self.symbol_len().max(1)).max(LEAST_QUEUE)
    }

    /// Tells streams that wait that there is room, if there is.
    pub(super) fn wake_writers(&mut self) {
        if self.streams.has_waiting() && self.sender.queued() < self.queue_allowance() {
            self.streams.wake_writers();
        }
    }

    /// Lends the next unread bytes of a stream. `Ok(&[])` is its end. What was used is given back by [`Self::consume`].
    pub fn chunk(&mut self, stream: StreamId) -> Result<&[u8], ReadError> {
        let state = self.streams.get(stream).ok_or(ReadError::UnknownStream)?;
        if state.incoming.is_at_end() {
            return Ok(&[]);
        }
        if !state.incoming.is_readable() {
            self.streams.wants_read(stream);
            return Err(ReadError::Blocked);
        }
        let state = self.streams.get(stream).ok_or(ReadError::UnknownStream)?;
        state.incoming.chunk(self.receiver.decoder()).ok_or(ReadError::Blocked)
    }

    /// The application has used the first `n` bytes of the chunk it was lent; 0 at the end of the stream, which is then forgotten.
    pub fn consume(&mut self, now: Time, stream: StreamId, n: usize) {
        self.streams.consume(stream, n);
        self.stats.app_bytes_received += n as u64;
        let moved = self.streams.update_limit(stream, now, self.path.rtt.smoothed());
        if moved || self.streams.forget_if_done(stream) {
            self.path.feedback.request(now);
        }
    }

    /// Copies unread bytes of a stream into `buffer`; zero at its end. A convenience over [`Self::chunk`] and [`Self::consume`].
    pub fn read(&mut self, now: Time, stream: StreamId, buffer: &mut [u8]) -> Result<usize, ReadError> {
        let mut copied = 0;
        while copied < buffer.len() {
            match self.chunk(stream) {
                Ok([]) => {
                    if copied == 0 {
                        self.consume(now, stream, 0);
                    }
                    break;
                }
                Ok(chunk) => {
                    let n = chunk.len().min(buffer.len() - copied);
                    buffer[copied..copied + n].copy_from_slice(&chunk[..n]);
                    copied += n;
                    self.consume(now, stream, n);
                }
                Err(error) if copied == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(copied)
    }
}
