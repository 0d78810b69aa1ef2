//! Connecting and closing: the tasks of a socket that go on in the runtime.
//!
//! Invariant: a connection that was closed by its last socket is closed at the peer too, and what was written
//! to it has arrived before, or `linger` has passed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;

use tidewire::link::Link;
use tidewire::{CloseCode, CloseReason, Config, ConnectError, Credentials, Endpoint, Stream, WriteHalf, names};
use tokio::io::AsyncWriteExt;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::code::*;
use crate::runtime::{Closing, runtime};
use crate::signal::lock;
use crate::socket::{Peer, Socket, State, wait};

/// Connects a new socket to the listener of a link.
pub(crate) fn connect(socket: &Arc<Socket>, link: &str) -> Outcome<()> {
    let link: Link = link.parse().map_err(|error| Failure::new(TW_EINVAL, error))?;
    let mut state = lock(&socket.state);
    let settings = match &*state {
        State::New(settings) => settings,
        State::Closed => return Err(Failure::new(TW_EBADF, "the handle was closed by another thread")),
        State::Connecting(_) => return Err(Failure::new(TW_EINPROGRESS, "the socket is connecting already")),
        State::Failed(failure) => return Err(failure.clone()),
        _ => return Err(Failure::new(TW_EISCONN, "the socket listens or is connected already")),
    };
    let attempt = Attempt {
        credentials: settings.to_open(&link)?,
        config: settings.config(Some(&link))?,
        from: settings.address,
        link,
    };
    // The task must not keep a socket that was closed.
    let caller: Weak<Socket> = Arc::downgrade(socket);
    let task = runtime()?.spawn(async move {
        let result = attempt.run().await;
        if let Some(socket) = caller.upgrade() {
            socket.on_connected(result);
        }
    });
    *state = State::Connecting(task.abort_handle());
    drop(state);
    socket.show_output();
    socket.show_input();
    if !lock(&socket.modes).is_blocking {
        return Err(Failure::new(TW_EINPROGRESS, "the connect goes on: wait until the socket is ready for TW_POLLOUT"));
    }
    wait(&socket.output.signal, true, None, || match socket.is_writable() {
        true => std::task::Poll::Ready(socket.peer().map(drop)),
        false => std::task::Poll::Pending,
    })
}

/// What an attempt to connect needs.
struct Attempt {
    link: Link,
    credentials: Credentials,
    config: Config,
    from: Option<SocketAddr>,
}

impl Attempt {
    /// Connects to the first address of the host that answers (RFC 8305), and opens a stream.
    async fn run(self) -> Outcome<(Peer, Stream)> {
        let host = &self.link.host;
        let unknown = |error: &dyn std::fmt::Display| {
            Failure::new(TW_EHOSTUNREACH, format_args!("no address of `{host}`: {error}; check the host in the link"))
        };
        let addresses = self.link.resolve().await.map_err(|error| unknown(&error))?;
        let none = || unknown(&"the name has none");
        match names::race(addresses, self.stagger(), |address| self.try_address(address)).await {
            Ok(connected) => connected.into_iter().next().ok_or_else(none),
            Err(failures) => Err(failures.into_iter().next_back().unwrap_or_else(none)),
        }
    }

    /// When the next address is tried beside the one before it. A fixed port has room for one attempt at a
    /// time.
    fn stagger(&self) -> Duration {
        if self.from.is_some_and(|from| from.port() != 0) { Duration::MAX } else { names::STAGGER }
    }

    async fn try_address(&self, address: SocketAddr) -> Outcome<(Peer, Stream)> {
        let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let from = self.from.unwrap_or(SocketAddr::new(any, 0));
        let endpoint = Endpoint::bind(from, self.credentials.clone(), self.config.clone())?;
        let connection = match self.link.peer.key() {
            Some(key) => endpoint.connect_to(address, key).await,
            None => endpoint.connect(address).await,
        };
        let connection = connection.map_err(|error| match error {
            ConnectError::NoAnswer => Failure::new(
                TW_ETIMEDOUT,
                format_args!("no answer from {address}: wrong host, port or secret, or UDP is blocked on the path"),
            ),
            error => error.into(),
        })?;
        let stream = connection.open().await?;
        Ok((Peer { connection, _endpoint: Some(endpoint) }, stream))
    }
}

/// Closes a socket that was taken out of the table.
pub(crate) fn close(socket: &Socket) -> Outcome<()> {
    let before = std::mem::replace(&mut *lock(&socket.state), State::Closed);
    let (reader, writer) = (lock(&socket.input.half).take(), lock(&socket.output.half).take());
    let ending = lock(&socket.ending).take();
    socket.raise();
    socket.input.signal.close_descriptor();
    socket.output.signal.close_descriptor();
    // What was not read is refused.
    drop(reader);
    let peer = match before {
        State::Open(peer) => peer,
        State::Listening(listener) => {
            listener.stop();
            return Ok(());
        }
        State::Connecting(task) => {
            task.abort();
            return Ok(());
        }
        _ => return Ok(()),
    };
    let modes = *lock(&socket.modes);
    let (told, delivered) = mpsc::channel();
    let closing = Closing::begin();
    runtime()?.spawn(async move {
        let is_delivered = finish(peer, writer, ending, modes.linger).await;
        // A non-blocking caller does not listen.
        let _ = told.send(is_delivered);
        drop(closing);
    });
    match modes.is_blocking.then(|| delivered.recv()) {
        None | Some(Ok(true)) => Ok(()),
        Some(_) if modes.linger.is_zero() => Ok(()),
        Some(_) => Err(Failure::new(
            TW_ETIMEDOUT,
            "the handle is closed, but the peer may lack bytes: the connection was lost, or the option linger is short",
        )),
    }
}

/// Ends a stream, and the connection with its last stream. Returns whether the peer has everything.
async fn finish(peer: Arc<Peer>, writer: Option<WriteHalf>, ending: Option<JoinHandle<()>>, linger: Duration) -> bool {
    let end = async {
        if let Some(mut writer) = writer {
            // An error says that the peer reads no more, or that the connection is over.
            let _ = writer.shutdown().await;
        }
        if let Some(ending) = ending {
            let _ = ending.await;
        }
    };
    let connection = peer.connection.clone();
    let delivered = async {
        end.await;
        let mut pause = FIRST_LOOK;
        while !connection.has_delivered() {
            sleep(pause).await;
            pause = (pause * 2).min(LAST_LOOK);
        }
    };
    let is_delivered = tokio::select! {
        ended = timeout(linger, delivered) => ended.is_ok(),
        // A peer that closes without an error wants no more, and may not have reported what it has.
        reason = connection.closed() => matches!(reason, CloseReason::Peer { code: CloseCode::Done, .. }),
    };
    if let Some(last) = Arc::into_inner(peer) {
        last.connection.close(CloseCode::Done, "");
        // Known when the peer was told.
        let _ = timeout(CLOSE_WAIT, last.connection.closed()).await;
    }
    is_delivered
}

/// Pauses between looks at whether the peer has everything. Chosen: short beside a round trip at first.
const FIRST_LOOK: Duration = Duration::from_micros(500);
const LAST_LOOK: Duration = Duration::from_millis(16);
/// How long the socket may take to send one packet. Chosen: it takes microseconds unless the system is stuck.
const CLOSE_WAIT: Duration = Duration::from_secs(1);
