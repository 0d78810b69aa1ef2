//! A listening port of the near end: accepts TCP connections, and opens a stream for each.
//!
//! [`crate::near`] makes one acceptor for each `-L` and `-D`. Invariants: a TCP connection waits at
//! most ten seconds for a stream. A SOCKS client takes a place among the carried connections only when its
//! request is whole, so clients that stall delay no other port.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tidewire::{Connection, Stream};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::copy::{Copied, Copier};
use crate::header::{Request, read_answer, write_request};
use crate::news::{News, Report, tell};
use crate::places::Places;
use crate::sockets::Port;
use crate::socks::{self, Reply};
use crate::target::Target;
use crate::{ACCEPT_PAUSE, OUTAGE_PATIENCE};

/// Limit of SOCKS clients whose request is not whole, for each port. Chosen: a browser opens some dozens of
/// connections at once.
const MAX_REQUESTS: usize = 128;

/// Where the TCP connections of a port lead.
#[derive(Clone, Debug)]
pub(crate) enum Leads {
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
pub(crate) struct Acceptor {
    pub(crate) current: watch::Receiver<Option<Connection>>,
    pub(crate) port: Arc<Port>,
    pub(crate) report: Report,
    /// Places of carried connections, which all acceptors share.
    pub(crate) room: Places,
}

impl Acceptor {
    /// Accepts TCP connections without end.
    pub(crate) async fn accept(self, leads: Leads) {
        let mut carrying = JoinSet::new();
        let requests = Arc::new(Semaphore::new(MAX_REQUESTS));
        loop {
            let place = match &leads {
                Leads::To(_) => self.room.take(&self.report).await,
                Leads::Socks => Arc::clone(&requests).acquire_owned().await.ok(),
            };
            let Some(place) = place else { return };
            tokio::select! {
                accepted = self.port.accept() => match accepted {
                    Ok((tcp, peer)) => {
                        carrying.spawn(self.clone().carry(tcp, peer, leads.clone(), place));
                    }
                    Err(error) => {
                        (self.report)(&News::CannotAccept { port: &leads.to_string(), error: &error });
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = carrying.join_next() => {}
            }
        }
    }

    /// Carries one TCP connection, from its acceptance to its end.
    async fn carry(mut self, tcp: TcpStream, peer: SocketAddr, leads: Leads, place: OwnedSemaphorePermit) {
        let carried = Copied::default();
        let (target, ended) = match leads {
            Leads::To(target) => {
                let ended = self.carry_to(tcp, &target, &carried).await;
                (target.to_string(), ended)
            }
            Leads::Socks => self.carry_socks(tcp, &carried, place).await,
        };
        tell(&self.report, peer, &target, &carried, ended.map_err(Into::into));
    }

    async fn carry_to(&mut self, tcp: TcpStream, target: &Target, carried: &Copied) -> io::Result<()> {
        match self.open().await {
            Ok(stream) => {
                let request = Request::Connect(target.clone());
                Copier::new(tcp, stream).open(&request, carried, |share| self.port.follow(share)).await
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
        carried: &Copied,
        request_place: OwnedSemaphorePermit,
    ) -> (String, io::Result<()>) {
        let target = match socks::request(&mut tcp).await {
            Ok(target) => target,
            Err(error) => return (SOCKS.to_owned(), Err(error)),
        };
        let Some(_place) = self.room.take(&self.report).await else {
            return (target.to_string(), Err(io::ErrorKind::Interrupted.into()));
        };
        drop(request_place);
        let name = target.to_string();
        let ended = match self.connect(target, &mut tcp).await {
            Ok(stream) => Copier::new(tcp, stream).copy(carried, |share| self.port.follow(share)).await,
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
            let connection = self.current.wait_for(Option::is_some).await.map_err(gone)?.clone();
            let Some(connection) = connection else { continue };
            match connection.open().await {
                Ok(stream) => return Ok(stream),
                // The connection has just been lost: wait for the next one.
                Err(_) => self.current.changed().await.map_err(gone)?,
            }
        }
    }
}
