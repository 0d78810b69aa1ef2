//! One socket: its kind, its two directions and its modes.
//!
//! The functions of the edge call it with a socket of the table. Invariants: no lock is held while a thread
//! sleeps, so a socket can be closed while others wait on it; and a waker never owns a socket, so waking
//! or dropping it inside the driver frees nothing of ours.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tidewire::{Connection, Endpoint, ReadHalf, Stream, WriteHalf};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::task::{AbortHandle, JoinHandle};

use crate::code::*;
use crate::listener::Listener;
use crate::modes::Modes;
use crate::runtime::runtime;
use crate::settings::Settings;
use crate::signal::{Signal, lock};

/// See the module.
pub(crate) struct Socket {
    pub state: Mutex<State>,
    pub input: Side<ReadHalf>,
    pub output: Side<WriteHalf>,
    /// Count of `output`'s signal when a write last had to wait, or [`READY`].
    blocked: AtomicU64,
    pub modes: Mutex<Modes>,
    /// The task that ends the stream after `tw_shutdown`.
    pub ending: Mutex<Option<JoinHandle<()>>>,
}

/// What kind of socket it is now.
pub(crate) enum State {
    New(Box<Settings>),
    Listening(Arc<Listener>),
    Connecting(AbortHandle),
    /// The halves are in the sides.
    Open(Arc<Peer>),
    /// The attempt to connect failed.
    Failed(Failure),
    Closed,
}

/// One direction: its half of the stream while there is one, and its signal.
pub(crate) struct Side<T> {
    pub half: Mutex<Option<T>>,
    pub signal: Arc<Signal>,
    waker: Waker,
}

/// A connection, shared by the sockets of its streams.
pub(crate) struct Peer {
    pub connection: Connection,
    /// The endpoint of a connection that we opened. Those that we accepted belong to the listener's.
    pub _endpoint: Option<Endpoint>,
}

impl<T> Side<T> {
    fn new(half: Option<T>) -> Self {
        let signal = Arc::<Signal>::default();
        Self { half: Mutex::new(half), waker: Waker::from(Arc::clone(&signal)), signal }
    }
}

/// No write has to wait.
const READY: u64 = u64::MAX;

impl Socket {
    /// A socket as `tw_socket` makes it.
    pub fn new() -> Self {
        Self::with(State::New(Box::default()), None, Modes::default())
    }

    /// A socket for a stream.
    pub fn open(peer: Arc<Peer>, stream: Stream, modes: Modes) -> Self {
        Self::with(State::Open(peer), Some(stream.split()), modes)
    }

    fn with(state: State, halves: Option<(ReadHalf, WriteHalf)>, modes: Modes) -> Self {
        let (reader, writer) = halves.unzip();
        Self {
            state: Mutex::new(state),
            input: Side::new(reader),
            output: Side::new(writer),
            blocked: AtomicU64::new(READY),
            modes: Mutex::new(modes),
            ending: Mutex::default(),
        }
    }

    /// Wakes everybody who waits on the socket.
    pub fn raise(&self) {
        self.input.signal.raise();
        self.output.signal.raise();
    }

    /// Takes the stream of an attempt to connect, or its failure. Does nothing if the socket was closed.
    pub fn on_connected(&self, result: Outcome<(Peer, Stream)>) {
        let mut state = lock(&self.state);
        if !matches!(*state, State::Connecting(_)) {
            return;
        }
        *state = match result {
            Ok((peer, stream)) => {
                let (reader, writer) = stream.split();
                *lock(&self.input.half) = Some(reader);
                *lock(&self.output.half) = Some(writer);
                State::Open(Arc::new(peer))
            }
            Err(failure) => State::Failed(failure),
        };
        drop(state);
        self.raise();
    }

    /// Receives bytes; zero at the end of the stream.
    pub fn receive(&self, buffer: &mut [u8]) -> Outcome<usize> {
        let modes = *lock(&self.modes);
        let received =
            wait(&self.input.signal, modes.is_blocking, modes.receive_deadline(), || self.try_receive(buffer));
        self.show_input();
        received
    }

    fn try_receive(&self, buffer: &mut [u8]) -> Poll<Outcome<usize>> {
        if let Some(reader) = &mut *lock(&self.input.half) {
            let mut buffer = ReadBuf::new(buffer);
            let read = Pin::new(reader).poll_read(&mut Context::from_waker(&self.input.waker), &mut buffer);
            return read.map(|read| read.map(|()| buffer.filled().len()).map_err(Failure::from));
        }
        self.without_half()
    }

    /// Sends bytes. If the socket blocks, all of them, unless the stream or the time ends before.
    pub fn send(&self, data: &[u8]) -> Outcome<usize> {
        let modes = *lock(&self.modes);
        let deadline = modes.send_deadline();
        let mut sent = 0;
        let result = loop {
            let rest = &data[sent..];
            match wait(&self.output.signal, modes.is_blocking, deadline, || self.try_send(rest)) {
                Ok(taken) => sent += taken,
                Err(failure) => break Err(failure),
            }
            if sent == data.len() || !modes.is_blocking {
                break Ok(sent);
            }
        };
        self.show_output();
        if sent > 0 { Ok(sent) } else { result }
    }

    fn try_send(&self, data: &[u8]) -> Poll<Outcome<usize>> {
        let count = self.output.signal.count();
        if let Some(writer) = &mut *lock(&self.output.half) {
            if data.is_empty() {
                return Poll::Ready(Ok(0));
            }
            let written = Pin::new(writer).poll_write(&mut Context::from_waker(&self.output.waker), data);
            self.blocked.store(if written.is_pending() { count } else { READY }, Ordering::Release);
            return written.map(|written| written.map_err(Failure::from));
        }
        self.without_half()
    }

    /// What a read or a write means without its half. The caller holds no lock: whoever connects or closes
    /// the socket takes the lock of the state before those of the halves.
    fn without_half<T>(&self) -> Poll<Outcome<T>> {
        match &*lock(&self.state) {
            State::Connecting(_) => Poll::Pending,
            // The halves have come in between, and the signal with them: the caller looks again. Only the
            // writing half can be taken out again.
            State::Open(_) if lock(&self.ending).is_none() => Poll::Pending,
            State::Open(_) => Poll::Ready(Err(Failure::new(TW_EPIPE, "this end shut its half of the stream down"))),
            State::New(_) => Poll::Ready(Err(not_connected())),
            State::Listening(_) => Poll::Ready(Err(Failure::new(
                TW_EOPNOTSUPP,
                "a listener carries no bytes: take streams from it with tw_accept",
            ))),
            State::Failed(failure) => Poll::Ready(Err(failure.clone())),
            State::Closed => Poll::Ready(Err(closed_meanwhile())),
        }
    }

    /// Whether a receive or an accept would not wait. Otherwise the input's signal will be raised when that
    /// changes.
    pub fn is_readable(&self) -> bool {
        if let State::Listening(listener) = &*lock(&self.state) {
            return listener.is_ready();
        }
        if let Some(reader) = &mut *lock(&self.input.half) {
            return reader.poll_readable(&mut Context::from_waker(&self.input.waker)).is_ready();
        }
        self.without_half::<()>().is_ready()
    }

    /// Whether a send would not wait, as far as the last send tells. Otherwise the output's signal will be
    /// raised when that changes.
    pub fn is_writable(&self) -> bool {
        if lock(&self.output.half).is_none() {
            return self.without_half::<()>().is_ready();
        }
        let blocked = self.blocked.load(Ordering::Acquire);
        blocked == READY || blocked != self.output.signal.count()
    }

    /// Makes the input's descriptor show whether the socket is readable.
    pub fn show_input(&self) {
        show(&self.input.signal, || self.is_readable());
    }

    /// Makes the output's descriptor show whether the socket is writable.
    pub fn show_output(&self) {
        show(&self.output.signal, || self.is_writable());
    }

    /// Ends what we send.
    pub fn end_writing(&self) -> Outcome<()> {
        self.peer()?;
        let writer = lock(&self.output.half).take();
        if let Some(mut writer) = writer {
            // An error says that the stream or the connection is over.
            let ending = runtime()?.spawn(async move { writer.shutdown().await.unwrap_or_default() });
            *lock(&self.ending) = Some(ending);
        }
        self.output.signal.raise();
        self.show_output();
        Ok(())
    }

    /// Reads no more: later receives find the end.
    pub fn end_reading(&self) -> Outcome<()> {
        self.peer()?;
        if let Some(reader) = &mut *lock(&self.input.half) {
            reader.stop(0);
        }
        self.input.signal.raise();
        self.show_input();
        Ok(())
    }

    /// Opens one more stream in the connection of this socket.
    pub fn open_stream(&self) -> Outcome<Self> {
        let (peer, modes) = (self.peer()?, *lock(&self.modes));
        let opening = peer.connection.open();
        let stream = if modes.is_blocking {
            let deadline = modes.send_deadline();
            runtime()?.block_on(async {
                match deadline {
                    None => opening.await.map_err(Failure::from),
                    Some(deadline) => match tokio::time::timeout_at(deadline.into(), opening).await {
                        Ok(opened) => opened.map_err(Failure::from),
                        Err(_) => Err(timed_out()),
                    },
                }
            })?
        } else {
            let mut opening = pin!(opening);
            match opening.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(opened) => opened?,
                Poll::Pending => {
                    return Err(Failure::new(
                        TW_EAGAIN,
                        "the peer allows no more streams now: close one, or try later",
                    ));
                }
            }
        };
        Ok(Self::open(Arc::clone(&peer), stream, modes))
    }

    /// The connection of an open socket.
    pub fn peer(&self) -> Outcome<Arc<Peer>> {
        match &*lock(&self.state) {
            State::Open(peer) => Ok(Arc::clone(peer)),
            State::New(_) | State::Connecting(_) => Err(not_connected()),
            State::Failed(failure) => Err(failure.clone()),
            State::Listening(_) => {
                Err(Failure::new(TW_EOPNOTSUPP, "a listener has no stream: take one from it with tw_accept"))
            }
            State::Closed => Err(closed_meanwhile()),
        }
    }

    /// The listener of a listening socket.
    pub fn listener(&self) -> Outcome<Arc<Listener>> {
        match &*lock(&self.state) {
            State::Listening(listener) => Ok(Arc::clone(listener)),
            State::Closed => Err(closed_meanwhile()),
            _ => Err(Failure::new(TW_EOPNOTSUPP, "the handle is not a listener: call tw_listen first")),
        }
    }
}

/// Repeats `attempt` until it is ready. If it has to wait, the signal will be raised.
pub(crate) fn wait<T>(
    signal: &Signal,
    is_blocking: bool,
    deadline: Option<Instant>,
    mut attempt: impl FnMut() -> Poll<Outcome<T>>,
) -> Outcome<T> {
    loop {
        let seen = signal.count();
        if let Poll::Ready(result) = attempt() {
            return result;
        }
        if !is_blocking {
            return Err(Failure::new(TW_EAGAIN, "the call would wait: wait with tw_poll or the descriptor of tw_fd"));
        }
        if !signal.sleep(seen, deadline) {
            return Err(timed_out());
        }
    }
}

/// Makes the descriptor of a signal show what `is_ready` finds. The descriptor is cleared only if no wake-up
/// came in between.
fn show(signal: &Signal, mut is_ready: impl FnMut() -> bool) {
    if !signal.has_descriptor() {
        return;
    }
    loop {
        let seen = signal.count();
        let found = is_ready();
        if signal.show(seen, found) {
            return;
        }
    }
}

fn not_connected() -> Failure {
    Failure::new(TW_ENOTCONN, "the socket is not connected: call tw_connect, or tw_listen and tw_accept")
}

fn closed_meanwhile() -> Failure {
    Failure::new(TW_EBADF, "the handle was closed by another thread")
}

fn timed_out() -> Failure {
    Failure::new(TW_ETIMEDOUT, "the timeout of the socket has passed (options receive_timeout and send_timeout)")
}
