//! The door of the dashboard's server: how many connections it keeps, and for how long.
//!
//! The server accepts through a [`Gate`]. Connections beyond [`MOST`] are closed at once, and a connection on
//! which nothing moves for [`IDLE`] ends. So neither a flood of connections nor clients that stall hold more
//! than a fixed number of descriptors and buffers.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// Most connections at a time. Chosen: several pages, each with the six connections of a browser.
pub const MOST: usize = 48;
/// A connection on which nothing was read or written for this long ends. Chosen: ten times the interval at
/// which the channel of a page is written at least.
pub const IDLE: Duration = Duration::from_secs(10);
/// Pause after the system refuses to accept, for example because descriptors are used up. Chosen.
const PAUSE: Duration = Duration::from_millis(100);

/// A listener with a bounded number of connections.
#[derive(Debug)]
pub struct Gate {
    listener: TcpListener,
    places: Arc<Semaphore>,
    idle: Duration,
}

impl Gate {
    /// Opens the gate.
    pub fn new(listener: TcpListener) -> Self {
        Self { listener, places: Arc::new(Semaphore::new(MOST)), idle: IDLE }
    }
}

impl Listener for Gate {
    type Io = Visit;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Visit, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, from)) => {
                    // Without a place, dropping the stream closes it.
                    if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
                        let visit = Visit { stream, quiet: Box::pin(sleep(self.idle)), idle: self.idle, _place: place };
                        return (visit, from);
                    }
                }
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that holds a place.
#[derive(Debug)]
pub struct Visit {
    stream: TcpStream,
    quiet: Pin<Box<Sleep>>,
    idle: Duration,
    _place: OwnedSemaphorePermit,
}

impl Visit {
    /// Puts the end off after progress. Without any, fails when the time is over.
    fn watch<T>(&mut self, cx: &mut Context<'_>, moved: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if moved.is_ready() {
            self.quiet.as_mut().reset(Instant::now() + self.idle);
            return moved;
        }
        match self.quiet.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Visit {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let moved = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.watch(cx, moved)
    }
}

impl AsyncWrite for Visit {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let moved = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watch(cx, moved)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
