//! A stream as the application holds it: ordered bytes in both directions, in two halves that end separately.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use tidewire_proto::connection::{ReadError, StreamId, WriteError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop::poll_proceed;

use crate::connection::Handle;
#[cfg(doc)]
use crate::connection::{Connection, ConnectionLost};

/// An ordered stream of bytes in both directions. [`Stream::split`] separates the two halves.
///
/// `shutdown` ends what we send and leaves the other half open. [`Stream::reset`] gives up what we send, and
/// [`Stream::stop`] what the peer sends. A dropped stream ends what we send, and stops the peer if its data
/// was not read to the end. Writes are accepted as fast as the path carries them, and nothing is held back,
/// so `flush` has nothing to do. A written byte has not arrived: only an answer of the peer's application
/// shows that. A task that always finds data or room still yields now and then ([`tokio::task::coop`]), so
/// what it selects beside is heard. Reads and writes fail with an [`io::Error`] that contains a
/// [`StreamError`] or a [`ConnectionLost`].
#[derive(Debug)]
pub struct Stream {
    reader: ReadHalf,
    writer: WriteHalf,
}

/// The half of a stream that the peer writes. If it is dropped before its end was read, it stops the peer
/// with code 0.
pub struct ReadHalf {
    connection: Arc<Handle>,
    id: StreamId,
    ended: Option<Ended>,
}

/// The half of a stream that we write. When it is dropped, the peer reads the end of the stream.
pub struct WriteHalf {
    connection: Arc<Handle>,
    id: StreamId,
    /// The code with which the peer stopped us, if it did.
    stopped: Option<u64>,
}

/// How a read ended.
#[derive(Clone, Copy)]
enum Ended {
    End,
    Reset(u64),
}

/// Why a half of a stream ended early. The codes are those of the peer's application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The peer gave up what it sent. The error kind is [`io::ErrorKind::ConnectionReset`]. Data that was not
    /// read before is lost.
    #[error("the peer gave the stream up (code {0})")]
    Reset(u64),
    /// The peer stopped reading. The error kind is [`io::ErrorKind::BrokenPipe`].
    #[error("the peer reads no more of the stream (code {0})")]
    Stopped(u64),
    /// We ended the half or gave it up before. The error kind is [`io::ErrorKind::BrokenPipe`].
    #[error("the stream was finished or reset by us")]
    Finished,
}

impl From<StreamError> for io::Error {
    fn from(error: StreamError) -> Self {
        let kind = match error {
            StreamError::Reset(_) => io::ErrorKind::ConnectionReset,
            StreamError::Stopped(_) | StreamError::Finished => io::ErrorKind::BrokenPipe,
        };
        Self::new(kind, error)
    }
}

impl Stream {
    pub(crate) fn new(connection: Arc<Handle>, id: StreamId) -> Self {
        let reader = ReadHalf { connection: Arc::clone(&connection), id, ended: None };
        Self { reader, writer: WriteHalf { connection, id, stopped: None } }
    }

    /// Separates the two halves, which can be used and dropped independently.
    pub fn split(self) -> (ReadHalf, WriteHalf) {
        (self.reader, self.writer)
    }

    /// See [`WriteHalf::reset`].
    pub fn reset(&mut self, code: u64) {
        self.writer.reset(code);
    }

    /// See [`ReadHalf::stop`].
    pub fn stop(&mut self, code: u64) {
        self.reader.stop(code);
    }
}

impl ReadHalf {
    /// Stops reading. Data that has arrived is discarded, later reads find the end, and the peer's writes
    /// fail with [`StreamError::Stopped`] and this code, which is at most 2^62-1.
    pub fn stop(&mut self, code: u64) {
        self.ended.get_or_insert(Ended::End);
        self.connection.shared.stop_reader(self.connection.id, self.id, code);
    }

    /// Waits until a read would return at once, with bytes, the end of the stream or an error. Takes nothing.
    pub fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.ended.is_some() {
            return Poll::Ready(());
        }
        let found = self.connection.shared.poll(
            self.connection.id,
            self.id,
            |connection, _| match connection.chunk(self.id) {
                Ok(_) | Err(ReadError::UnknownStream) => Some(None),
                Err(ReadError::Reset(code)) => Some(Some(Ended::Reset(code))),
                Err(ReadError::Blocked) => None,
            },
            |waiting| register(&mut waiting.reader, cx),
            false,
        );
        // The protocol tells a reset only once, so the next read gets it from here.
        if let Ok(Some(reset)) = ready!(found) {
            self.ended = Some(reset);
        }
        Poll::Ready(())
    }
}

impl WriteHalf {
    /// Gives up what we send. Data that was not sent yet is never sent, and the peer's reads fail with
    /// [`StreamError::Reset`] and this code, which is at most 2^62-1. Has no effect if the end of the stream
    /// has arrived.
    pub fn reset(&mut self, code: u64) {
        self.connection.shared.reset_writer(self.connection.id, self.id, code);
    }

    /// See [`Connection::share`].
    pub fn share(&self) -> usize {
        self.connection.share()
    }

    /// Calls `write` on the connection, and registers the task if it has to wait.
    fn poll_half<R>(
        &mut self,
        cx: &mut Context<'_>,
        mut write: impl FnMut(&mut tidewire_proto::connection::Connection, StreamId) -> Result<R, WriteError>,
    ) -> Poll<io::Result<R>> {
        if let Some(code) = self.stopped {
            return Poll::Ready(Err(StreamError::Stopped(code).into()));
        }
        let turn = ready!(poll_proceed(cx));
        let result = self.connection.shared.poll(
            self.connection.id,
            self.id,
            |connection, _| match write(connection, self.id) {
                Ok(written) => Some(Ok(written)),
                Err(WriteError::Finished) => Some(Err(StreamError::Finished)),
                Err(WriteError::Stopped(code)) => Some(Err(StreamError::Stopped(code))),
                Err(WriteError::Blocked | WriteError::NotConnected) => None,
            },
            |waiting| register(&mut waiting.writer, cx),
            true,
        );
        let result = ready!(result)?;
        turn.made_progress();
        if let Err(StreamError::Stopped(code)) = result {
            self.stopped = Some(code);
        }
        Poll::Ready(result.map_err(io::Error::from))
    }
}

impl AsyncRead for ReadHalf {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match this.ended {
            Some(Ended::End) => return Poll::Ready(Ok(())),
            Some(Ended::Reset(code)) => return Poll::Ready(Err(StreamError::Reset(code).into())),
            None if buffer.remaining() == 0 => return Poll::Ready(Ok(())),
            None => {}
        }
        let turn = ready!(poll_proceed(cx));
        let unfilled = buffer.initialize_unfilled();
        let read = this.connection.shared.poll(
            this.connection.id,
            this.id,
            |connection, now| match connection.read(now, this.id, unfilled) {
                Ok(read) => Some(Ok(read)),
                // Both directions had ended, and the last byte was read before.
                Err(ReadError::UnknownStream) => Some(Ok(0)),
                Err(ReadError::Reset(code)) => Some(Err(code)),
                Err(ReadError::Blocked) => None,
            },
            |waiting| register(&mut waiting.reader, cx),
            false,
        );
        let read = ready!(read)?;
        turn.made_progress();
        let ended = match read {
            Ok(0) => Ended::End,
            Err(code) => Ended::Reset(code),
            Ok(read) => {
                buffer.advance(read);
                return Poll::Ready(Ok(()));
            }
        };
        this.ended = Some(ended);
        match ended {
            Ended::End => Poll::Ready(Ok(())),
            Ended::Reset(code) => Poll::Ready(Err(StreamError::Reset(code).into())),
        }
    }
}

impl AsyncWrite for WriteHalf {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_half(cx, |connection, id| connection.write(id, data))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_half(cx, |connection, id| match connection.finish(id) {
            // The stream was ended before.
            Err(WriteError::Finished) => Ok(()),
            result => result,
        })
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().reader).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().writer).poll_write(cx, data)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().writer).poll_shutdown(cx)
    }
}

impl Drop for ReadHalf {
    fn drop(&mut self) {
        self.connection.shared.drop_reader(self.connection.id, self.id);
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        self.connection.shared.drop_writer(self.connection.id, self.id);
    }
}

impl fmt::Debug for ReadHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadHalf").field("id", &self.id.0).finish_non_exhaustive()
    }
}

impl fmt::Debug for WriteHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteHalf").field("id", &self.id.0).finish_non_exhaustive()
    }
}

fn register(place: &mut Option<Waker>, cx: &Context<'_>) {
    if !place.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
        *place = Some(cx.waker().clone());
    }
}
