//! A listener that keeps a bounded number of connections, none of which stays for ever.
//!
//! Each server states its [`Bounds`]. A connection holds a place until it ends.

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

/// Pause after the system refuses to accept, for example because descriptors are used up. Chosen.
const PAUSE: Duration = Duration::from_millis(100);

/// How many connections a server keeps, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most connections at a time.
    pub most: usize,
    /// What becomes of connections beyond that.
    pub surplus: Surplus,
    /// When a connection ends at the latest.
    pub life: Life,
}

/// What becomes of a connection that finds no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surplus {
    /// It waits in the system's queue.
    Waits,
    /// It is closed at once.
    IsClosed,
}

/// When a connection ends at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// This long after it began, so that clients that ask for nothing cannot lock others out.
    Whole(Duration),
    /// When nothing was read or written for this long.
    Idle(Duration),
}

impl Life {
    const fn time(self) -> Duration {
        match self {
            Self::Whole(time) | Self::Idle(time) => time,
        }
    }
}

/// The listener; see the module.
#[derive(Debug)]
pub struct Bounded {
    listener: TcpListener,
    places: Arc<Semaphore>,
    bounds: Bounds,
}

impl Bounded {
    /// Bounds the connections of `listener`.
    pub fn new(listener: TcpListener, bounds: Bounds) -> Self {
        Self { listener, places: Arc::new(Semaphore::new(bounds.most)), bounds }
    }

    /// A place before a connection is accepted, if connections wait for one.
    async fn place(&self) -> Option<OwnedSemaphorePermit> {
        match self.bounds.surplus {
            // Nobody closes the semaphore.
            Surplus::Waits => Arc::clone(&self.places).acquire_owned().await.ok(),
            Surplus::IsClosed => None,
        }
    }
}

impl Listener for Bounded {
    type Io = Held;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Held, SocketAddr) {
        let mut place = self.place().await;
        loop {
            match self.listener.accept().await {
                Ok((stream, from)) => {
                    // Without a place, dropping the stream closes it.
                    let taken = place.take().or_else(|| Arc::clone(&self.places).try_acquire_owned().ok());
                    if let Some(place) = taken {
                        return (Held::new(stream, self.bounds.life, place), from);
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
pub struct Held {
    stream: TcpStream,
    ends: Pin<Box<Sleep>>,
    life: Life,
    _place: OwnedSemaphorePermit,
}

impl Held {
    fn new(stream: TcpStream, life: Life, place: OwnedSemaphorePermit) -> Self {
        Self { stream, ends: Box::pin(sleep(life.time())), life, _place: place }
    }

    /// Runs `move_bytes` unless the life of the connection is over. Progress prolongs [`Life::Idle`].
    fn watch<T>(
        &mut self,
        cx: &mut Context<'_>,
        move_bytes: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let is_over = |ends: &mut Pin<Box<Sleep>>, cx: &mut Context<'_>| ends.as_mut().poll(cx).is_ready();
        let over = || Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        match self.life {
            Life::Whole(_) if is_over(&mut self.ends, cx) => over(),
            Life::Whole(_) => move_bytes(Pin::new(&mut self.stream), cx),
            Life::Idle(time) => {
                let moved = move_bytes(Pin::new(&mut self.stream), cx);
                if moved.is_ready() {
                    self.ends.as_mut().reset(Instant::now() + time);
                } else if is_over(&mut self.ends, cx) {
                    return over();
                }
                moved
            }
        }
    }
}

impl AsyncRead for Held {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.watch(cx, |stream, cx| stream.poll_read(cx, buffer))
    }
}

impl AsyncWrite for Held {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.watch(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
