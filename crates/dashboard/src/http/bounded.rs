//! A listener that keeps a bounded number of connections, and that clients which ask for nothing cannot lock.
//!
//! Each connection carries one request ([`one_request`]). Until the head of its request is whole it must
//! hurry, and it gives way: if no place is free, the one that waits longest ends. A connection whose request
//! is answered gives way to nobody; it ends when nothing moves. Invariant: a client that sends its request at
//! once is answered, however many others send none, unless more than [`Bounded`]'s places connect before its
//! request is read.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use axum::response::Response;
use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::yield_now;
use tokio::time::{Instant, Sleep, sleep};

/// Time for the head of a request, from the first byte of TCP on. Chosen: two retransmissions of a lost
/// segment at the far side of the world.
const HEAD: Duration = Duration::from_secs(2);
/// A connection on which nothing was read or written for this long ends. Chosen: ten times the interval at
/// which the channel of a page is written at least.
const IDLE: Duration = Duration::from_secs(10);
/// Pause after the system refuses to accept, for example because descriptors are used up. Chosen.
const PAUSE: Duration = Duration::from_millis(100);
/// The end of a head (RFC 9112 section 2.1).
const END_OF_HEAD: &[u8] = b"\r\n\r\n";

/// Marks a response as the last of its connection: the next request could come as slowly as it likes.
pub async fn one_request(mut response: Response) -> Response {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// The listener; see the module.
#[derive(Debug)]
pub struct Bounded {
    listener: TcpListener,
    places: Arc<Places>,
    /// Time for the head of a request.
    patience: Duration,
}

impl Bounded {
    /// At most `most` connections of `listener` at a time, and of them half for one other machine.
    pub fn new(listener: TcpListener, most: usize) -> Self {
        Self { listener, places: Arc::new(Places { most, taken: Mutex::default() }), patience: HEAD }
    }
}

impl Listener for Bounded {
    type Io = Held;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Held, SocketAddr) {
        loop {
            // The task of the connection before reads its request first: it may be whole already.
            yield_now().await;
            match self.listener.accept().await {
                // Without a place, dropping the stream closes it.
                Ok((stream, from)) => {
                    if let Some(place) = self.places.take(from.ip().to_canonical()) {
                        return (Held::new(stream, place, self.patience), from);
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

/// The connections that there are, the oldest first.
#[derive(Debug)]
struct Places {
    most: usize,
    taken: Mutex<Vec<Arc<Mutex<State>>>>,
}

/// What the listener knows of a connection.
#[derive(Debug)]
struct State {
    from: IpAddr,
    /// The head of its request is whole.
    is_asking: bool,
    /// It had to give way.
    is_over: bool,
    /// The task that serves it.
    waker: Option<Waker>,
}

/// Every change is a single store, so poisoned state is still consistent.
fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Places {
    /// A place for a connection from this address. If none is free for it, the oldest connection that has
    /// not asked gives way: of the same address if that has too many, else of any.
    fn take(self: &Arc<Self>, from: IpAddr) -> Option<Place> {
        let mut taken = lock(&self.taken);
        let own = taken.iter().filter(|state| lock(state).from == from).count();
        let is_greedy = !from.is_loopback() && own >= self.most.div_ceil(2);
        if is_greedy || taken.len() >= self.most {
            let gives_way = |state: &State| !state.is_asking && (!is_greedy || state.from == from);
            let place = taken.iter().position(|state| gives_way(&lock(state)))?;
            let state = taken.remove(place);
            let mut state = lock(&state);
            state.is_over = true;
            state.waker.take().into_iter().for_each(Waker::wake);
        }
        let state = Arc::new(Mutex::new(State { from, is_asking: false, is_over: false, waker: None }));
        taken.push(Arc::clone(&state));
        Some(Place { places: Arc::clone(self), state })
    }
}

/// A place, which is free again when this is dropped.
#[derive(Debug)]
struct Place {
    places: Arc<Places>,
    state: Arc<Mutex<State>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.places.taken).retain(|state| !Arc::ptr_eq(state, &self.state));
    }
}

/// A connection that holds a place.
#[derive(Debug)]
pub struct Held {
    stream: TcpStream,
    ends: Pin<Box<Sleep>>,
    /// Bytes of [`END_OF_HEAD`] that the bytes so far end with; all of them when the head is whole.
    head: usize,
    place: Place,
}

impl Held {
    fn new(stream: TcpStream, place: Place, patience: Duration) -> Self {
        Self { stream, ends: Box::pin(sleep(patience)), head: 0, place }
    }

    fn is_asking(&self) -> bool {
        self.head == END_OF_HEAD.len()
    }

    /// Looks for the end of the head.
    fn on_read(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.is_asking() {
                break;
            }
            self.head = match *byte {
                byte if byte == END_OF_HEAD[self.head] => self.head + 1,
                b'\r' => 1,
                _ => 0,
            };
        }
        if self.is_asking() {
            lock(&self.place.state).is_asking = true;
        }
    }

    /// Runs `move_bytes` unless the connection is over. After the head, progress prolongs it.
    fn unless_over<T>(
        &mut self,
        cx: &mut Context<'_>,
        move_bytes: impl FnOnce(&mut Self, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        {
            let mut state = lock(&self.place.state);
            if state.is_over {
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
            state.waker = Some(cx.waker().clone());
        }
        let moved = move_bytes(self, cx);
        if moved.is_ready() && self.is_asking() {
            self.ends.as_mut().reset(Instant::now() + IDLE);
        } else if self.ends.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        moved
    }
}

impl AsyncRead for Held {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.unless_over(cx, |held, cx| {
            let before = buffer.filled().len();
            let read = Pin::new(&mut held.stream).poll_read(cx, buffer);
            held.on_read(&buffer.filled()[before..]);
            read
        })
    }
}

impl AsyncWrite for Held {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.unless_over(cx, |held, cx| Pin::new(&mut held.stream).poll_write(cx, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::middleware::map_response;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A server of four places, which answers `/` at once and `/stream` never, with its places. `patience` is
    /// the time for a head.
    async fn server(patience: Duration) -> (SocketAddr, Arc<Places>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let never = || async { std::future::pending::<&str>().await };
        let router = Router::new().route("/", get(|| async { "here" })).route("/stream", get(never));
        let router = router.layer(map_response(one_request));
        let bounded = Bounded { patience, ..Bounded::new(listener, 4) };
        let places = Arc::clone(&bounded.places);
        tokio::spawn(async move { axum::serve(bounded, router).await });
        (address, places)
    }

    async fn connect(address: SocketAddr, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    async fn answer(mut stream: TcpStream) -> String {
        let mut text = String::new();
        // A connection that gave way is reset or ends.
        let _ = stream.read_to_string(&mut text).await;
        text
    }

    const HOUR: Duration = Duration::from_secs(3_600);
    const ASKS: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

    #[tokio::test]
    async fn those_that_ask_for_nothing_give_way_the_oldest_first() {
        let (address, _) = server(HOUR).await;
        let mut held = Vec::new();
        for n in 0..40 {
            held.push(connect(address, "GET / HT").await);
            let said = answer(connect(address, ASKS).await).await;
            assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("here"), "{n}: {said}");
        }
        // The newest are still there, and are answered when they ask.
        let mut newest = held.pop().unwrap();
        newest.write_all(b"TP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        assert!(answer(newest).await.ends_with("here"));
        assert_eq!(answer(held.remove(0)).await, "");
    }

    #[tokio::test]
    async fn those_that_are_answered_give_way_to_nobody() {
        let (address, places) = server(HOUR).await;
        let asks = "GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let mut streams = Vec::new();
        for _ in 0..4 {
            streams.push(connect(address, asks).await);
        }
        // Their heads are read before the next one comes.
        while lock(&places.taken).iter().filter(|state| lock(state).is_asking).count() < 4 {
            yield_now().await;
        }
        assert_eq!(answer(connect(address, ASKS).await).await, "");
        let mut byte = [0];
        let first = tokio::time::timeout(Duration::from_millis(50), streams[0].read(&mut byte)).await;
        assert!(first.is_err(), "the first stream ended");
        drop(streams);
    }

    #[tokio::test]
    async fn a_head_that_comes_byte_by_byte_ends_the_connection() {
        let mut slow = connect(server(Duration::from_millis(100)).await.0, "GET / HT").await;
        // Without a deadline, this goes on until the head is too long for the server, after minutes.
        let mut ticks = tokio::time::interval(Duration::from_millis(5));
        let mut byte = [0];
        let ended = loop {
            tokio::select! {
                ended = slow.read(&mut byte) => break ended,
                _ = ticks.tick() => drop(slow.write_all(b"T").await),
            }
        };
        assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    }
}
