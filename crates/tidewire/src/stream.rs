//! A stream as the application holds it: ordered bytes, both ways, in two halves that end each on its own.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use tidewire_proto::connection::{ReadError, StreamId, WriteError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection::Handle;
#[cfg(doc)]
use crate::connection::{Connection, ConnectionLost};

/// A stream of bytes in order, both ways at once; [`Stream::split`] parts the two.
///
/// `shutdown` says the end of what we send and leaves the other half open; [`Stream::reset`] gives up what we
/// send, [`Stream::stop`] what the peer sends. A stream that is dropped says its end, and stops what was not
/// read to its own. Writes are taken as fast as the path carries them, and nothing is held back, so `flush`
/// has nothing to do. A written byte has not arrived: only an answer of the peer's application tells. Reads
/// and writes fail with an [`io::Error`] that carries a [`StreamError`] or a [`ConnectionLost`].
#[derive(Debug)]
pub struct Stream {
    reader: ReadHalf,
    writer: WriteHalf,
}

/// The half of a stream that the peer writes. Dropped before its end was read, it stops the peer with code 0.
pub struct ReadHalf {
    connection: Arc<Handle>,
    id: StreamId,
    ended: Option<Ended>,
}

/// The half of a stream that we write. When it is dropped the peer reads its end.
pub struct WriteHalf {
    connection: Arc<Handle>,
    id: StreamId,
    /// The peer's code, once it reads no more.
    stopped: Option<u64>,
}

/// How reading ended.
#[derive(Clone, Copy)]
enum Ended {
    End,
    Reset(u64),
}

/// A half of a stream is over before its end. Codes are the peer application's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamError {
    /// The peer gave up what it sent; as [`io::ErrorKind::ConnectionReset`]. What of it was not read is lost.
    Reset(u64),
    /// The peer reads no more; as [`io::ErrorKind::BrokenPipe`].
    Stopped(u64),
    /// We said the end, or gave the half up, before; as [`io::ErrorKind::BrokenPipe`].
    Finished,
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reset(code) => write!(f, "the peer gave the stream up (code {code})"),
            Self::Stopped(code) => write!(f, "the peer reads no more of the stream (code {code})"),
            Self::Finished => f.write_str("the stream was finished or reset by us"),
        }
    }
}

impl std::error::Error for StreamError {}

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

    /// The two halves, to be used and dropped each on its own.
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
    /// Reads no more: what has come is thrown away, further reads find the end, and the peer's writes fail
    /// with [`StreamError::Stopped`] and this code, of at most 2^62-1.
    pub fn stop(&mut self, code: u64) {
        self.ended.get_or_insert(Ended::End);
        self.connection.shared.stop_reader((self.connection.id, self.id), code);
    }
}

impl WriteHalf {
    /// Gives up what we send: what has not left yet never will, and the peer's reads fail with
    /// [`StreamError::Reset`] and this code, of at most 2^62-1. Without effect after the end was said and has
    /// arrived.
    pub fn reset(&mut self, code: u64) {
        self.connection.shared.reset_writer((self.connection.id, self.id), code);
    }

    /// See [`Connection::share`].
    pub fn share(&self) -> usize {
        self.connection.share()
    }

    /// Asks `connection` to write, or to say the end.
    fn poll_half<R>(
        &mut self,
        cx: &mut Context<'_>,
        mut write: impl FnMut(&mut tidewire_proto::connection::Connection, StreamId) -> Result<R, WriteError>,
    ) -> Poll<io::Result<R>> {
        if let Some(code) = self.stopped {
            return Poll::Ready(Err(StreamError::Stopped(code).into()));
        }
        let result = self.connection.shared.poll(
            (self.connection.id, self.id),
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
        let unfilled = buffer.initialize_unfilled();
        let read = this.connection.shared.poll(
            (this.connection.id, this.id),
            |connection, now| match connection.read(now, this.id, unfilled) {
                Ok(read) => Some(Ok(read)),
                // Both ends were said, and the last byte was read before.
                Err(ReadError::UnknownStream) => Some(Ok(0)),
                Err(ReadError::Reset(code)) => Some(Err(code)),
                Err(ReadError::Blocked) => None,
            },
            |waiting| register(&mut waiting.reader, cx),
            false,
        );
        let ended = match ready!(read)? {
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
            // Said before.
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
        self.connection.shared.drop_reader((self.connection.id, self.id));
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        self.connection.shared.drop_writer((self.connection.id, self.id));
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
