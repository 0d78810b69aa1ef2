//! The near end: its ports, which stay open, and one connection to the far side after another.
//!
//! `acceptor` carries what the ports of `-L` and `-D` accept, `remote` what the far side accepts for `-R`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tidewire::{CloseReason, Connection, Stream};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::acceptor::{Acceptor, Leads};
use crate::error::{Asked, ForwardError};
use crate::header::{Answer, Request, read_answer, write_request};
use crate::news::{News, Report};
use crate::places::Places;
use crate::remote::Remote;
use crate::sockets::Port;
use crate::target::{PortForward, SocksForward, Target};

/// What a near end forwards, in the words of ssh's options.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    /// `-L`: ports of this side, and targets of the far side.
    pub local: Vec<PortForward>,
    /// `-D`: ports of this side for SOCKS clients.
    pub socks: Vec<SocksForward>,
    /// `-R`: ports of the far side, and targets of this side.
    pub remote: Vec<PortForward>,
}

/// The near end of a forwarding. Dropping it closes its ports, and resets the TCP connections that it
/// carries.
pub struct Near {
    ports: Vec<(Arc<Port>, Leads)>,
    targets: Vec<Target>,
    remote: Arc<Remote>,
    report: Report,
    /// The current connection, or `None` while it is lost.
    current: watch::Sender<Option<Connection>>,
    /// Streams that keep the ports of the far side open, from [`Near::begin`] to the first [`Near::run`].
    opened: Vec<Option<Stream>>,
    tasks: JoinSet<()>,
}

impl Near {
    /// Opens the ports of this side. TCP connections to them wait until [`Near::begin`] has succeeded.
    ///
    /// # Errors
    /// [`ForwardError::Listen`] if a port is in use.
    pub fn bind(wanted: &Ports, report: Report) -> Result<Self, ForwardError> {
        let local = wanted.local.iter().map(|forward| (forward.listen, Leads::To(forward.target.clone())));
        let socks = wanted.socks.iter().map(|socks| (socks.0, Leads::Socks));
        let listen = |(address, leads): (SocketAddr, Leads)| {
            let port = Port::listen(address).map_err(|error| ForwardError::Listen { address, error })?;
            Ok((Arc::new(port), leads))
        };
        Ok(Self {
            ports: local.chain(socks).map(listen).collect::<Result<_, _>>()?,
            targets: wanted.local.iter().map(|forward| forward.target.clone()).collect(),
            remote: Arc::new(Remote::new(&wanted.remote, &report)),
            report,
            current: watch::Sender::new(None),
            opened: Vec::new(),
            tasks: JoinSet::new(),
        })
    }

    /// Checks over the first connection that every target is allowed, lets the far side open its ports, and
    /// begins to accept at the ports of this side. [`Near::run`] with the same connection is called next.
    ///
    /// # Errors
    /// [`ForwardError::Refused`] if a target or port is not allowed, or a port cannot be opened at the far
    /// side; [`ForwardError::Lost`] if the connection is lost. A port that is in use there is no error: it is
    /// asked for until it is free.
    pub async fn begin(&mut self, connection: &Connection) -> Result<(), ForwardError> {
        for target in &self.targets {
            check(connection, target).await?;
        }
        // A port of `-D` has no target to ask about. An answer shows that the far side forwards.
        if self.targets.is_empty() && self.remote.is_empty() {
            drained(connection).await.map_err(|error| ForwardError::of(Asked::Socks, error))?;
        }
        self.opened = self.remote.open_all(connection).await?;
        let room = Places::new();
        for (port, leads) in &self.ports {
            port.follow(connection.share());
            (self.report)(&News::Listening { port: port.address(), to: &leads.to_string() });
            let (current, room) = (self.current.subscribe(), room.clone());
            let acceptor = Acceptor { current, port: Arc::clone(port), report: Arc::clone(&self.report), room };
            self.tasks.spawn(acceptor.accept(leads.clone()));
        }
        Ok(())
    }

    /// Forwards over `connection` until it is lost, and returns the reason. The ports stay open then, and new
    /// TCP connections wait ten seconds for the next call. Over a later connection, the ports of the far side
    /// are asked for until they are open.
    pub async fn run(&mut self, connection: &Connection) -> CloseReason {
        for (port, _) in &self.ports {
            port.follow(connection.share());
        }
        self.tasks.spawn(Arc::clone(&self.remote).run(connection.clone(), std::mem::take(&mut self.opened)));
        self.current.send_replace(Some(connection.clone()));
        let reason = connection.closed().await;
        self.current.send_replace(None);
        // Tasks of lost connections have ended.
        while self.tasks.try_join_next().is_some() {}
        reason
    }
}

/// Asks the far side whether it would connect to a target, so that a mistyped target is an error at the
/// start.
async fn check(connection: &Connection, target: &Target) -> Result<(), ForwardError> {
    let answer = ask(connection, &Request::Check(target.clone())).await;
    let ready = answer.and_then(|answer| if answer.is_ready() { Ok(()) } else { Err(io::Error::other(answer)) });
    ready.map_err(|error| ForwardError::of(Asked::Target(target.clone()), error))
}

/// Waits until all TCP connections of CONNECT streams have ended in order at the far side.
///
/// # Errors
/// The [`Answer`] if one has not; the error of the stream.
pub(crate) async fn drained(connection: &Connection) -> io::Result<()> {
    let answer = ask(connection, &Request::Drain).await?;
    if answer.is_ready() { Ok(()) } else { Err(io::Error::other(answer)) }
}

/// Sends a request on a new stream and waits for the answer.
async fn ask(connection: &Connection, request: &Request) -> io::Result<Answer> {
    let mut stream = connection.open().await?;
    write_request(&mut stream, request).await?;
    // This may fail, because the far side may have answered already and stopped reading.
    let _ = stream.shutdown().await;
    read_answer(&mut stream).await
}
