//! The near end: its connection to the far side, which it makes anew when it is lost, and its ports.
//!
//! The verb `forward` calls it. `gate` carries what the ports of `-L` and `-D` accept, `remote` what the far
//! side accepts for `-R`.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tidewire::{Config, Connection, Credentials};
use tidewire_command::exit::{Exit, Failure};
use tidewire_command::report::{Console, Event};
use tokio::io::AsyncWriteExt;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::gate::{Gate, Leads};
use super::header::{Answer, Request, read_answer, write_request};
use super::remote::{Remote, exit_of};
use super::sockets::Port;
use super::target::{PortForward, SocksForward, Target};
use super::{MAX_CONNECTIONS, single};
use crate::live::{Attempts, Live};
use crate::ssh::Way;

/// What the options `-L`, `-D` and `-R` ask for.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    /// `-L`: ports of this side, and targets of the far side.
    pub local: Vec<PortForward>,
    /// `-D`: ports of this side for SOCKS clients.
    pub socks: Vec<SocksForward>,
    /// `-R`: ports of the far side, and targets of this side.
    pub remote: Vec<PortForward>,
}

impl Ports {
    /// Opens the ports of this side. TCP connections to them wait until a client runs.
    ///
    /// # Errors
    /// [`Exit::LocalIo`] if a port is in use.
    pub fn bind(&self) -> Result<Bound, Failure> {
        let local = self.local.iter().map(|forward| (forward.listen, Leads::To(forward.target.clone())));
        let socks = self.socks.iter().map(|socks| (socks.0, Leads::Socks));
        let listen = |(address, leads): (SocketAddr, Leads)| {
            let port = Port::listen(address).map_err(|error| {
                Failure::message(Exit::LocalIo, format_args!("cannot listen on {address}: {error}; try another port"))
            })?;
            Ok((Arc::new(port), leads))
        };
        local.chain(socks).map(listen).collect::<Result<_, _>>().map(Bound)
    }
}

/// Ports of this side that listen, and what they lead to.
pub struct Bound(Vec<(Arc<Port>, Leads)>);

/// The near end of a forwarding.
pub struct Client {
    way: Way,
    credentials: Credentials,
    config: Config,
    console: Console,
    /// The current connection, or `None` while it is lost.
    current: watch::Sender<Option<Arc<Live>>>,
}

impl Client {
    /// Creates a client that will connect over `way`.
    pub fn new(way: Way, credentials: Credentials, config: Config, console: &Console) -> Self {
        Self { way, credentials, config, console: console.clone(), current: watch::Sender::new(None) }
    }

    /// Forwards while it is polled. The first connection must succeed, every target must be allowed, and the
    /// far side must open its ports. Later, it connects again whenever the connection is lost, without a
    /// limit of attempts. A far end that ssh started ends by itself after a long silence, and this ends then
    /// too.
    ///
    /// # Errors
    /// [`Exit::LocalIo`] if a port is in use at the far side, [`Exit::Unreachable`] if
    /// nothing answers at first, [`Exit::Authentication`] if a target or port is not allowed.
    pub async fn run(&self, wanted: &Ports, Bound(ports): Bound) -> Result<(), Failure> {
        let mut live = self.connect().await?;
        for forward in &wanted.local {
            check(&live.connection, &forward.target).await?;
        }
        // A port of `-D` has no target to ask about. An answer shows that the far side forwards.
        if wanted.local.is_empty() && wanted.remote.is_empty() {
            drained(&live.connection).await.map_err(|error| refused("-D", error))?;
        }
        let remote = Arc::new(Remote::new(&wanted.remote, &self.console));
        let opened = remote.open_all(&live.connection).await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&remote).run(live.connection.clone(), opened));
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        for (port, leads) in &ports {
            port.follow(live.connection.share());
            let (listening, to) = (port.address().to_string(), leads.to_string());
            self.console.say(&format!("{listening} leads to {to}"));
            self.console.event(&Event::Listening { listening, to, far: false });
            let (current, room) = (self.current.subscribe(), Arc::clone(&room));
            let gate = Gate { current, port: Arc::clone(port), console: self.console.clone(), room };
            tasks.spawn(gate.accept(leads.clone()));
        }
        let mut attempts = Attempts::default();
        loop {
            let reason = live.connection.closed().await;
            self.current.send_replace(None);
            self.console.warn(&format!("the connection is lost: {reason}; trying to connect again"));
            self.console.summary(&live.summary());
            attempts.on_lost(&live);
            live = self.connect_again(&mut attempts).await?;
            tasks.spawn(Arc::clone(&remote).run(live.connection.clone(), remote.none_open()));
            for (port, _) in &ports {
                port.follow(live.connection.share());
            }
            // Tasks of lost connections have ended.
            while tasks.try_join_next().is_some() {}
        }
    }

    /// Connects, and carries standard input and output to `target` over this one connection.
    ///
    /// # Errors
    /// Those of [`single::run`], and [`Exit::Unreachable`] if nothing answers.
    pub async fn run_single(&self, target: &Target) -> Result<(), Failure> {
        let live = self.connect().await?;
        single::run(&live.connection, target).await
    }

    async fn connect(&self) -> Result<Arc<Live>, Failure> {
        let (endpoint, connection) = self.way.connect(&self.credentials, &self.config, &self.console).await?;
        let live = Arc::new(Live::begin(endpoint, connection, &self.console));
        self.current.send_replace(Some(Arc::clone(&live)));
        Ok(live)
    }

    async fn connect_again(&self, attempts: &mut Attempts) -> Result<Arc<Live>, Failure> {
        let connected = attempts.until_connected(&self.console, || self.connect());
        let Some(silence) = self.way.silence() else { return Ok(connected.await) };
        timeout(silence, connected).await.map_err(|_| {
            let gone = format!(
                "no connection for {} s: the far end has ended by itself; run the same command again, and let it \
                 wait for longer with --linger",
                silence.as_secs()
            );
            Failure::message(Exit::Unreachable, gone)
        })
    }

    /// Closes the connection, if there is one, and reports its summary as the last line.
    pub async fn close(&self, ended: Result<(), Failure>) -> Result<(), Failure> {
        match self.current.send_replace(None) {
            Some(live) => live.close(&self.console, ended).await,
            None => ended,
        }
    }
}

/// Asks the far side whether it would connect to a target, so that a mistyped target is an error at the
/// start.
async fn check(connection: &Connection, target: &Target) -> Result<(), Failure> {
    let answer = ask(connection, &Request::Check(target.clone())).await;
    let ready = answer.and_then(|answer| if answer.is_ready() { Ok(()) } else { Err(io::Error::other(answer)) });
    ready.map_err(|error| refused(target, error))
}

/// Waits until all TCP connections of CONNECT streams have ended in order at the far side.
///
/// # Errors
/// The [`Answer`] if one has not; the error of the stream.
pub(super) async fn drained(connection: &Connection) -> io::Result<()> {
    let answer = ask(connection, &Request::Drain).await?;
    if answer.is_ready() { Ok(()) } else { Err(io::Error::other(answer)) }
}

/// The failure for an answer, or for a stream that ended before it. `what` was asked for.
pub(super) fn refused(what: impl Display, error: io::Error) -> Failure {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Answer>()) {
        Some(answer) => Failure::message(exit_of(answer), format_args!("{what}: {answer}")),
        None if error.kind() == io::ErrorKind::InvalidData => Failure::new(Exit::Other, error),
        None => Failure::new(Exit::Unreachable, error),
    }
}

/// Sends a request on a new stream and waits for the answer.
async fn ask(connection: &Connection, request: &Request) -> io::Result<Answer> {
    let mut stream = connection.open().await?;
    write_request(&mut stream, request).await?;
    // This may fail, because the far side may have answered already and stopped reading.
    let _ = stream.shutdown().await;
    read_answer(&mut stream).await
}
