//! A stream as the application holds it: ordered bytes, both ways.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use tidewire_proto::connection::{ReadError, StreamId, WriteError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection::{ConnectionLost, Handle};

/// A stream of bytes in order, both ways at once; `tokio::io::split` parts the two.
///
/// `shutdown` says the end of what we send and leaves the other half open. A stream that is dropped says its end too; what the peer
/// still sends on it is thrown away. Writes are taken as fast as the path carries them, and nothing is held back, so `flush` has
/// nothing to do. A written byte has not arrived: only an answer of the peer's application tells.
pub struct Stream {
    connection: Arc<Handle>,
    id: StreamId,
    /// The peer's end was read.
    at_end: bool,
}

impl Stream {
    pub(crate) fn new(connection: Arc<Handle>, id: StreamId) -> Self {
        Self { connection, id, at_end: false }
    }

    fn poll_end(&self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionLost>> {
        self.connection.shared.poll(
            (self.connection.id, self.id),
            |connection, _| match connection.finish(self.id) {
                Ok(()) | Err(WriteError::Finished) => Some(()),
                Err(WriteError::Blocked | WriteError::NotConnected) => None,
            },
            |waiting| register(&mut waiting.writer, cx),
            true,
        )
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.at_end || buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let unfilled = buffer.initialize_unfilled();
        let read = this.connection.shared.poll(
            (this.connection.id, this.id),
            |connection, now| match connection.read(now, this.id, unfilled) {
                Ok(read) => Some(read),
                // Both ends were said, and the last byte was read before.
                Err(ReadError::UnknownStream) => Some(0),
                Err(ReadError::Blocked) => None,
            },
            |waiting| register(&mut waiting.reader, cx),
            false,
        );
        let read = ready!(read)?;
        this.at_end = read == 0;
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.connection.shared.poll(
            (self.connection.id, self.id),
            |connection, _| match connection.write(self.id, data) {
                Ok(written) => Some(Ok(written)),
                Err(WriteError::Finished) => Some(Err(io::Error::new(io::ErrorKind::BrokenPipe, WriteError::Finished))),
                Err(WriteError::Blocked | WriteError::NotConnected) => None,
            },
            |waiting| register(&mut waiting.writer, cx),
            true,
        );
        Poll::Ready(ready!(written)?)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(ready!(self.poll_end(cx))?))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let shared = &self.connection.shared;
        shared.lock().drop_stream(shared.clock.now(), self.connection.id, self.id);
        shared.wake_driver();
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("id", &self.id.0).finish_non_exhaustive()
    }
}

fn register(place: &mut Option<Waker>, cx: &Context<'_>) {
    if !place.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
        *place = Some(cx.waker().clone());
    }
}
