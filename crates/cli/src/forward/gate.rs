//! A listening port of `forward`: accepts TCP connections, and opens a stream for each.
//!
//! [`client`](super::client) makes one gate for each `-L` and `-D`. Invariants: a TCP connection waits at
//! most ten seconds for a stream. A SOCKS client takes a place among the carried connections only when its
//! request is whole, so clients that stall delay no other port.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tidewire::Stream;
use tidewire_command::report::Console;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::header::{Request, read_answer, write_request};
use super::relay::{Relay, Relayed};
use super::sockets::Port;
use super::socks::{self, Reply};
use super::target::Target;
use super::{ACCEPT_PAUSE, OUTAGE_PATIENCE, report};
use crate::live::Live;

/// Limit of SOCKS clients whose request is not whole, for each port. Chosen: a browser opens some dozens of
/// connections at once.
const MAX_REQUESTS: usize = 128;

/// Where the TCP connections of a port lead.
#[derive(Clone, Debug)]
pub(super) enum Leads {
    /// All to one target (`-L`).
    To(Target),
    /// Each to the target that its SOCKS client asks for (`-D`).
    Socks,
}

/// The destination that reports name for a port of `-D`, and for a SOCKS client that named none.
const SOCKS: &str = "socks5";

impl std::fmt::Display for Leads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::To(target) => target.fmt(f),
            Self::Socks => f.write_str(SOCKS),
        }
    }
}

/// One listening port.
#[derive(Clone)]
pub(super) struct Gate {
    pub(super) current: watch::Receiver<Option<Arc<Live>>>,
    pub(super) port: Arc<Port>,
    pub(super) console: Console,
    /// Places of carried connections, which all gates share.
    pub(super) room: Arc<Semaphore>,
}

impl Gate {
    /// Accepts TCP connections without end.
    pub(super) async fn accept(self, leads: Leads) {
        let mut carrying = JoinSet::new();
        let places = match &leads {
            Leads::To(_) => Arc::clone(&self.room),
            Leads::Socks => Arc::new(Semaphore::new(MAX_REQUESTS)),
        };
        loop {
            // Without a place, TCP connections wait in the queue of the kernel.
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            tokio::select! {
                accepted = self.port.accept() => match accepted {
                    Ok((tcp, peer)) => {
                        carrying.spawn(self.clone().carry(tcp, peer, leads.clone(), place));
                    }
                    Err(error) => {
                        self.console.warn(&format!("{leads}: cannot accept: {error}"));
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = carrying.join_next() => {}
            }
        }
    }

    /// Carries one TCP connection, from its acceptance to its end.
    async fn carry(mut self, tcp: TcpStream, peer: SocketAddr, leads: Leads, place: OwnedSemaphorePermit) {
        let carried = Relayed::default();
        let (target, ended) = match leads {
            Leads::To(target) => {
                let ended = self.carry_to(tcp, &target, &carried).await;
                (target.to_string(), ended)
            }
            Leads::Socks => self.carry_socks(tcp, &carried, place).await,
        };
        report(&self.console, peer, &target, &carried, ended.err().map(|error| error.to_string()).as_deref());
    }

    async fn carry_to(&mut self, tcp: TcpStream, target: &Target, carried: &Relayed) -> io::Result<()> {
        match self.open().await {
            Ok(stream) => {
                let request = Request::Connect(target.clone());
                Relay::new(tcp, stream).open(&request, carried, |share| self.port.follow(share)).await
            }
            Err(error) => {
                // A reset tells the application that nobody has read its bytes.
                let _ = tcp.set_zero_linger();
                Err(error)
            }
        }
    }

    /// Reads the target that a SOCKS client asks for, and carries its connection. Returns the target too.
    async fn carry_socks(
        &mut self,
        mut tcp: TcpStream,
        carried: &Relayed,
        request_place: OwnedSemaphorePermit,
    ) -> (String, io::Result<()>) {
        let target = match socks::request(&mut tcp).await {
            Ok(target) => target,
            Err(error) => return (SOCKS.to_owned(), Err(error)),
        };
        let Ok(_place) = Arc::clone(&self.room).acquire_owned().await else {
            return (target.to_string(), Err(io::ErrorKind::Interrupted.into()));
        };
        drop(request_place);
        let name = target.to_string();
        let ended = match self.connect(target, &mut tcp).await {
            Ok(stream) => Relay::new(tcp, stream).copy(carried, |share| self.port.follow(share)).await,
            Err(error) => Err(error),
        };
        (name, ended)
    }

    /// Opens a stream to the target, waits until the target has accepted, and tells the SOCKS client.
    async fn connect(&mut self, target: Target, client: &mut TcpStream) -> io::Result<Stream> {
        let asked = async {
            let mut stream = self.open().await?;
            write_request(&mut stream, &Request::Connect(target)).await?;
            let answer = read_answer(&mut stream).await?;
            Ok((stream, answer))
        };
        match asked.await {
            Ok((stream, answer)) => {
                socks::reply(client, Reply::of(&answer)).await?;
                if answer.is_ready() { Ok(stream) } else { Err(io::Error::other(answer)) }
            }
            Err(error) => {
                // The client is told that the connection is lost, if it is still there.
                let _ = socks::reply(client, Reply::NetworkUnreachable).await;
                Err(error)
            }
        }
    }

    /// Opens a stream over the current connection, or over the next one if that is lost.
    async fn open(&mut self) -> io::Result<Stream> {
        let late = "no stream to the far side: the connection is lost, or it carries too many";
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, late);
        timeout(OUTAGE_PATIENCE, self.open_late()).await.map_err(late)?
    }

    async fn open_late(&mut self) -> io::Result<Stream> {
        loop {
            let gone = |_| io::Error::from(io::ErrorKind::Interrupted);
            let live = self.current.wait_for(Option::is_some).await.map_err(gone)?.clone();
            let Some(live) = live else { continue };
            match live.connection.open().await {
                Ok(stream) => return Ok(stream),
                // The connection has just been lost: wait for the next one.
                Err(_) => self.current.changed().await.map_err(gone)?,
            }
        }
    }
}
