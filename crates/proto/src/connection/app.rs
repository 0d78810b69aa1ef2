//! The application's interface to streams: open, write, read, reset.

use core::time::Duration;

use super::{Connection, State, StreamId};
use crate::Time;
use crate::lane::{STREAMS, Sending};
use crate::trace::TraceEvent;
use crate::wire::VARINT_MAX;

/// Data that may wait in the lane for its first transmission, as time at the pacing rate. Chosen: long enough
/// that a driver that wakes each millisecond never runs out of data, short enough that a key stroke does not
/// wait behind a bulk stream.
const QUEUE: Duration = Duration::from_micros(1_500);
/// Least number of symbols that may wait in the lane.
const LEAST_QUEUE: usize = 2;

/// Why a stream cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(clippy::exhaustive_enums, reason = "an application must handle every case")]
pub enum OpenError {
    /// The peer allows no more streams now. [`super::Event::StreamsAvailable`] tells when it does.
    #[error("the peer allows no more streams now")]
    Limit,
    /// The connection is not established, or it is closed.
    #[error("the connection is not established")]
    NotConnected,
}

/// Why bytes cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(clippy::exhaustive_enums, reason = "an application must handle every case")]
pub enum WriteError {
    /// There is no room now. [`super::Event::Writable`] tells when there is.
    #[error("no room to write now")]
    Blocked,
    /// This end finished or reset the stream, or it never existed.
    #[error("the stream was finished or reset by us")]
    Finished,
    /// The peer stopped reading the stream, with this code of the application.
    #[error("the peer reads no more of the stream (code {0})")]
    Stopped(u64),
    /// The connection is not established, or it is closed.
    #[error("the connection is not established")]
    NotConnected,
}

/// Why nothing can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(clippy::exhaustive_enums, reason = "an application must handle every case")]
pub enum ReadError {
    /// Nothing was received yet. [`super::Event::Readable`] tells when something was.
    #[error("nothing to read now")]
    Blocked,
    /// There is no such stream, or it was read to its end or stopped before.
    #[error("there is no such stream, or it is over")]
    UnknownStream,
    /// The peer reset the stream, with this code of the application. Unread data is lost.
    #[error("the peer gave the stream up (code {0})")]
    Reset(u64),
}

impl Connection {
    /// Opens a stream. The peer learns of it with its first bytes.
    pub fn open_stream(&mut self) -> Result<StreamId, OpenError> {
        if self.security.keys.is_none() || !matches!(self.state, State::Established { .. }) {
            return Err(OpenError::NotConnected);
        }
        self.streams.open().ok_or(OpenError::Limit)
    }

    /// Writes bytes to a stream, as many as can be sent within about 2 ms. Returns the number taken, which is
    /// never zero for a non-empty slice.
    pub fn write(&mut self, stream: StreamId, data: &[u8]) -> Result<usize, WriteError> {
        if data.is_empty() {
            return Ok(0);
        }
        let (taken, _) = self.write_or_finish(stream, data, false)?;
        if taken < data.len() {
            let wanted = (data.len() - taken).min(self.symbol_len(STREAMS));
            self.streams.wait_for_room(stream, wanted);
        }
        if taken == 0 { Err(WriteError::Blocked) } else { Ok(taken) }
    }

    /// Ends the stream: nothing more will be written. If this returns `Blocked`, try again when the stream is
    /// writable.
    pub fn finish(&mut self, stream: StreamId) -> Result<(), WriteError> {
        let (_, ended) = self.write_or_finish(stream, &[], true)?;
        if !ended {
            self.streams.wait_for_room(stream, 0);
            return Err(WriteError::Blocked);
        }
        self.forget_if_done(stream);
        Ok(())
    }

    fn write_or_finish(&mut self, id: StreamId, data: &[u8], fin: bool) -> Result<(usize, bool), WriteError> {
        if !matches!(self.state, State::Established { .. }) {
            return Err(WriteError::NotConnected);
        }
        let (symbol_len, allowance) = (self.symbol_len(STREAMS), self.queue_allowance());
        let stream = self.streams.get_mut(id).ok_or(WriteError::Finished)?;
        let outgoing = &mut stream.outgoing;
        if let Some(code) = outgoing.stopped.filter(|_| outgoing.sending == Sending::Reset) {
            let news = !core::mem::replace(&mut outgoing.told_stopped, true);
            self.forget_if_done(id);
            return Err(if news { WriteError::Stopped(code) } else { WriteError::Finished });
        }
        match outgoing.sending {
            Sending::Open if fin => outgoing.sending = Sending::Ends,
            Sending::Open => {}
            Sending::Ends if fin => {}
            Sending::Ends | Sending::Finished | Sending::Reset => return Err(WriteError::Finished),
        }
        let credit = usize::try_from(outgoing.limit - outgoing.written).unwrap_or(usize::MAX);
        let (offset, served) = (outgoing.written, outgoing.served);
        let wanted = data.len().min(symbol_len);
        let share = self.streams.scheduler.share(id, served, wanted, self.lanes.streams.sender.room(allowance));
        if share == 0 {
            return Ok((0, false));
        }
        let data = &data[..data.len().min(credit).min(share * symbol_len)];
        let (taken, ended) = self.lanes.streams.sender.write(id.0, offset, data, fin, symbol_len, allowance);
        let served = self.streams.scheduler.take(id, served, taken);
        if let Some(stream) = self.streams.get_mut(id) {
            stream.outgoing.served = served;
            stream.outgoing.written += taken as u64;
            if ended {
                stream.outgoing.sending = Sending::Finished;
            }
        }
        self.stats.bytes.app_sent += taken as u64;
        self.note_written(id, taken, ended);
        Ok((taken, ended))
    }

    /// Resets our half of the stream. Data that was not sent yet is withdrawn, and the peer gets `code` (at
    /// most 2^62-1) in place of the rest. The other half continues.
    pub fn reset(&mut self, stream: StreamId, code: u64) -> Result<(), WriteError> {
        if !matches!(self.state, State::Established { .. }) {
            return Err(WriteError::NotConnected);
        }
        let outgoing = &mut self.streams.get_mut(stream).ok_or(WriteError::Finished)?.outgoing;
        outgoing.told_stopped = true;
        if outgoing.sending == Sending::Reset {
            self.forget_if_done(stream);
            return Err(WriteError::Finished);
        }
        self.give_up(stream, code.min(VARINT_MAX));
        Ok(())
    }

    /// Stops reading the stream. Received data is dropped, and the peer is asked to send no more, with `code`
    /// (at most 2^62-1).
    pub fn stop(&mut self, stream: StreamId, code: u64) -> Result<(), ReadError> {
        self.streams.get(stream).ok_or(ReadError::UnknownStream)?;
        let before = self.streams.remote_limit();
        self.streams.stop(stream, code.min(VARINT_MAX));
        self.say_control();
        self.tell_new_limit(before);
        Ok(())
    }

    /// Withdraws the unsent data of a stream and sends its RESET.
    fn give_up(&mut self, id: StreamId, code: u64) {
        let Some(written) = self.streams.get(id).map(|stream| stream.outgoing.written) else { return };
        let last = self.lanes.streams.sender.withdraw(id.0).unwrap_or(written);
        self.streams.give_up(id, code, last);
        self.say_control();
    }

    /// Resets the streams that the peer stopped, unless their end was sent already.
    pub(super) fn give_up_stopped(&mut self) {
        while let Some((id, code)) = self.streams.next_stopped() {
            let Some(stream) = self.streams.get_mut(id) else { continue };
            match stream.outgoing.sending {
                Sending::Open | Sending::Ends => {
                    self.give_up(id, code);
                    self.streams.tell_stopped(id);
                }
                // The writer has finished already, so it need not be told.
                Sending::Finished | Sending::Reset => {
                    stream.outgoing.told_stopped = true;
                    self.forget_if_done(id);
                }
            }
        }
    }

    /// Puts waiting RESET and STOP frames into symbols.
    fn say_control(&mut self) {
        let (symbol_len, before) = (self.symbol_len(STREAMS), self.streams.remote_limit());
        self.streams.say(|frame| self.lanes.streams.sender.write_control(frame, symbol_len));
        self.tell_new_limit(before);
    }

    fn forget_if_done(&mut self, id: StreamId) {
        let before = self.streams.remote_limit();
        self.streams.forget_if_done(id);
        self.tell_new_limit(before);
    }

    /// If the peer may now open more streams than `before`, tells it soon.
    fn tell_new_limit(&mut self, before: u64) {
        if self.streams.remote_limit() > before {
            self.path.feedback.request(self.contact.last_asked);
        }
    }

    /// The smoothed round trip (RFC 9002 section 5.3); zero before the first sample.
    pub fn rtt(&self) -> Duration {
        if self.path.rtt.least_or_zero().is_zero() { Duration::ZERO } else { self.path.rtt.smoothed() }
    }

    /// Maximum number of bytes that [`Self::write`] takes at once: as many as can be sent within 1.5 ms at
    /// the present pacing rate, at least two symbols.
    pub fn share(&self) -> usize {
        self.queue_allowance() * self.symbol_len(STREAMS)
    }

    /// Whether the peer has reported that all bytes and ends that were written to streams arrived. Its
    /// application may not have read them yet. It says nothing about messages.
    pub fn has_delivered(&self) -> bool {
        self.lanes.streams.sender.has_delivered()
    }

    /// Number of symbols that may wait in the lane.
    fn queue_allowance(&self) -> usize {
        self.symbols_within(QUEUE, STREAMS)
    }

    /// Number of symbols of a lane that can be sent within `time` at the present pace, at least two.
    pub(super) fn symbols_within(&self, time: Duration, lane: u32) -> usize {
        let bytes = u128::from(self.pacing()) * time.as_nanos() / 1_000_000_000;
        (bytes as usize / self.symbol_len(lane).max(1)).max(LEAST_QUEUE)
    }

    /// Writes waiting control frames, then tells waiting writers if there is room.
    pub(super) fn wake_writers(&mut self, now: Time) {
        if self.streams.has_waiting() {
            self.say_control();
            let free = self.lanes.streams.sender.room(self.queue_allowance());
            self.streams.wake_writers(now, free);
        }
    }

    /// Lends the next unread bytes of a stream. `Ok(&[])` means its end. Report the used bytes with
    /// [`Self::consume`].
    pub fn chunk(&mut self, stream: StreamId) -> Result<&[u8], ReadError> {
        let incoming = &mut self.streams.get_mut(stream).ok_or(ReadError::UnknownStream)?.incoming;
        if incoming.is_stopped() {
            return Err(ReadError::UnknownStream);
        }
        if let Some(code) = incoming.reset_code() {
            incoming.told_end = true;
            self.forget_if_done(stream);
            return Err(ReadError::Reset(code));
        }
        if incoming.is_at_end() {
            return Ok(&[]);
        }
        if !incoming.is_readable() {
            self.streams.wants_read(stream);
            return Err(ReadError::Blocked);
        }
        self.streams.chunk(stream, self.receiving.receiver.store()).ok_or(ReadError::Blocked)
    }

    /// Tells that the application has used the first `n` bytes of the chunk. At the end of the stream, pass
    /// 0; the stream is then forgotten.
    pub fn consume(&mut self, now: Time, stream: StreamId, n: usize) {
        self.streams.consume(stream, n);
        self.stats.bytes.app_received += n as u64;
        if n > 0 {
            self.tracer.record(now, || TraceEvent::StreamRead { stream, bytes: n as u64 });
        }
        let moved = self.streams.update_limit(stream, now, self.path.rtt.smoothed());
        if moved || self.streams.forget_if_done(stream) {
            self.path.feedback.request(now);
        }
    }

    /// Copies unread bytes of a stream into `buffer`. Returns the number of bytes, zero at the end of the
    /// stream. This combines [`Self::chunk`] and [`Self::consume`].
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
