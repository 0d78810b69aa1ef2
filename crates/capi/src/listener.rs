//! Listening: a task takes the connections of peers and their streams, and `tw_accept` takes the streams.
//!
//! Invariant: at most `backlog` streams wait. While that many do, others stay in the protocol, which bounds
//! them by the configuration.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;

use tidewire::link::Link;
use tidewire::{Connection, Endpoint, Stream, link};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};

use crate::code::*;
use crate::runtime::runtime;
use crate::signal::{Signal, lock};
use crate::socket::{Peer, Socket, State};

/// A socket that listens.
pub(crate) struct Listener {
    queue: Arc<Queue>,
    /// Dropped when the task ends.
    address: SocketAddr,
    credentials: link::Peer,
    task: AbortHandle,
}

/// Streams that wait for `tw_accept`.
struct Queue {
    streams: Mutex<VecDeque<(Arc<Peer>, Stream)>>,
    /// A permit for each stream that may still wait.
    room: Semaphore,
    signal: Arc<Signal>,
}

/// Makes a new socket listen.
pub(crate) fn listen(socket: &Socket, backlog: i32) -> Outcome<()> {
    let room = usize::try_from(backlog).ok().filter(|room| (1..=MOST_WAITING).contains(room));
    let room =
        room.ok_or_else(|| Failure::new(TW_EINVAL, format_args!("backlog is {backlog}: give 1 to {MOST_WAITING}")))?;
    let mut state = lock(&socket.state);
    let settings = match &*state {
        State::New(settings) => settings,
        State::Closed => return Err(Failure::new(TW_EBADF, "the handle was closed by another thread")),
        _ => return Err(Failure::new(TW_EISCONN, "the socket listens or is connected already")),
    };
    let (credentials, link_end) = settings.to_listen()?;
    let (config, runtime) = (settings.config(None)?, runtime()?);
    let _entered = runtime.enter();
    let endpoint = Endpoint::bind(settings.address.unwrap_or(ANY), credentials, config)?;
    let address = endpoint.local_addr();
    let queue = Arc::new(Queue {
        streams: Mutex::default(),
        room: Semaphore::new(room),
        signal: Arc::clone(&socket.input.signal),
    });
    let task = runtime.spawn(take_connections(endpoint, Arc::clone(&queue))).abort_handle();
    *state = State::Listening(Arc::new(Listener { queue, address, credentials: link_end, task }));
    Ok(())
}

impl Listener {
    /// The next stream, if one waits.
    pub fn take(&self) -> Poll<Outcome<(Arc<Peer>, Stream)>> {
        let taken = lock(&self.queue.streams).pop_front();
        match taken {
            Some(stream) => {
                self.queue.room.add_permits(1);
                Poll::Ready(Ok(stream))
            }
            None if self.task.is_finished() => {
                Poll::Ready(Err(Failure::new(TW_EIO, "the listener has stopped: close it and listen again")))
            }
            None => Poll::Pending,
        }
    }

    /// Whether a stream waits, or the listener has stopped.
    pub fn is_ready(&self) -> bool {
        !lock(&self.queue.streams).is_empty() || self.task.is_finished()
    }

    /// Accepts no more, and drops the streams that wait.
    pub fn stop(&self) {
        self.task.abort();
        let waiting = std::mem::take(&mut *lock(&self.queue.streams));
        drop(waiting);
    }

    /// The link of this listener, for peers that know this machine as `host`.
    pub fn link(&self, host: Option<&str>) -> Outcome<String> {
        let (ip, port) = (self.address.ip(), self.address.port());
        let Some(host) = host else {
            if ip.is_unspecified() {
                let wanted = "the listener has every address of this machine: give the host that peers know it by";
                return Err(Failure::new(TW_EINVAL, wanted));
            }
            let peer = self.credentials.clone();
            return Ok(Link { host: ip.to_string(), port, query: Vec::new(), peer }.reveal());
        };
        let host = match host.parse::<IpAddr>() {
            Ok(IpAddr::V6(_)) => format!("[{host}]"),
            _ => host.to_owned(),
        };
        // Parsing refuses what the other side could not parse.
        let link: Link = format!("tidewire://{host}:{port}/#{}", self.credentials.reveal())
            .parse()
            .map_err(|error| Failure::new(TW_EINVAL, error))?;
        Ok(link.reveal())
    }
}

/// Takes connections until the endpoint ends or the task is aborted.
async fn take_connections(endpoint: Endpoint, queue: Arc<Queue>) {
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            accepted = endpoint.accept() => match accepted {
                Ok(connection) => drop(tasks.spawn(take_streams(connection, Arc::clone(&queue)))),
                Err(_) => break,
            },
            Some(_) = tasks.join_next() => {}
        }
    }
    queue.signal.raise();
}

/// Takes the streams of a connection until it ends.
async fn take_streams(connection: Connection, queue: Arc<Queue>) {
    // Not owned here: the connection ends with the last socket of it.
    let mut known = Weak::<Peer>::new();
    while let Ok(stream) = connection.accept().await {
        let Ok(room) = queue.room.acquire().await else { return };
        room.forget();
        let peer =
            known.upgrade().unwrap_or_else(|| Arc::new(Peer { connection: connection.clone(), _endpoint: None }));
        known = Arc::downgrade(&peer);
        lock(&queue.streams).push_back((peer, stream));
        queue.signal.raise();
    }
}

/// Any port of every IPv4 address.
const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// Largest backlog: Linux's default for a listening TCP socket.
const MOST_WAITING: usize = 4_096;
