//! The far half of `-R`: a port that this side opens for a client, and the streams of what it accepts.
//!
//! [`crate::far`] calls it for each LISTEN stream. Invariants: the port is closed when the client
//! ends its stream or the connection is lost. A TCP connection that was accepted before goes on.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use tidewire::{Connection, Stream};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::copy::{Copied, Copier};
use crate::error::CarryError;
use crate::header::{Answer, Code, Request, write_answer};
use crate::news::{News, Report, tell};
use crate::openings::{Opening, Openings, Session};
use crate::places::Places;
use crate::sockets::Port;
use crate::{ACCEPT_PAUSE, MAX_PORTS, OUTAGE_PATIENCE, outward};

/// One client's session, and the limits of its ports.
pub(crate) struct Limits {
    session: Session,
    openings: Arc<Openings>,
    /// Places of open ports.
    ports: Arc<Semaphore>,
    /// Places of carried connections, for all ports together.
    room: Places,
}

impl Limits {
    /// The limits of a new session.
    pub(crate) fn new(session: Session, openings: &Arc<Openings>) -> Self {
        let ports = Arc::new(Semaphore::new(MAX_PORTS));
        Self { session, openings: Arc::clone(openings), ports, room: Places::new() }
    }
}

/// What the TCP connections of an open port need. They do not keep the port open.
struct Accepted {
    connection: Connection,
    report: Report,
    id: u16,
    address: SocketAddr,
    port: Weak<Port>,
}

/// Opens a port that is allowed, and accepts TCP connections until the client lets it go, or takes it over in
/// a later session. A refusal is returned after it was sent.
///
/// # Errors
/// [`CarryError::NotOpened`] if the port is in use, or there are too many.
pub(crate) async fn listen(
    mut stream: Stream,
    connection: &Connection,
    (id, address): (u16, SocketAddr),
    limits: &Limits,
    report: &Report,
) -> Result<(), CarryError> {
    let opened = match Arc::clone(&limits.ports).try_acquire_owned() {
        Ok(place) => limits.openings.open(limits.session, address).await.map(|opening| (place, opening)),
        Err(_) => Err(Answer::new(Code::NotListening, format!("it has {MAX_PORTS} open ports"))),
    };
    let (place, opening) = match opened {
        Ok(opened) => opened,
        Err(answer) => {
            outward::end(stream, &answer).await;
            return Err(CarryError::NotOpened(answer.detail));
        }
    };
    let (address, peer) = (opening.port.address(), connection.remote().to_string());
    if write_answer(&mut stream, &Answer::new(Code::Ready, address.to_string())).await.is_err() {
        return Ok(());
    }
    report(&News::Listening { port: address, to: &peer });
    let (connection, report) = (connection.clone(), Arc::clone(report));
    let accepted = Arc::new(Accepted { connection, report, id, address, port: Arc::downgrade(&opening.port) });
    let carrying = accepted.accept(stream, opening, &limits.room).await;
    drop(place);
    carrying.join_all().await;
    Ok(())
}

impl Accepted {
    /// Accepts until the client's direction of `stream` ends, or the client wants the port in a later
    /// session. Then it closes the port, and returns the tasks of the TCP connections.
    async fn accept(self: Arc<Self>, mut stream: Stream, opening: Opening, room: &Places) -> JoinSet<()> {
        let mut carrying = JoinSet::new();
        // The client sends nothing after its request.
        let mut over = [0];
        loop {
            let accepted = async {
                let place = room.take(&self.report).await.ok_or(io::ErrorKind::Interrupted)?;
                opening.port.accept().await.map(|(tcp, peer)| (tcp, peer, place))
            };
            tokio::select! {
                _ = stream.read(&mut over) => break,
                () = opening.wanted() => break,
                accepted = accepted => match accepted {
                    Ok((tcp, peer, place)) => {
                        carrying.spawn(Arc::clone(&self).carry(tcp, peer, place));
                    }
                    Err(error) => {
                        (self.report)(&News::CannotAccept { port: &self.address.to_string(), error: &error });
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = carrying.join_next() => {}
            }
        }
        drop((opening, stream));
        (self.report)(&News::Closed { port: self.address });
        carrying
    }

    async fn carry(self: Arc<Self>, tcp: TcpStream, peer: SocketAddr, _place: OwnedSemaphorePermit) {
        let carried = Copied::default();
        let ended = self.copy(tcp, peer, &carried).await.map_err(CarryError::from);
        tell(&self.report, self.connection.remote(), &self.address.to_string(), &carried, ended);
    }

    async fn copy(&self, tcp: TcpStream, peer: SocketAddr, carried: &Copied) -> io::Result<()> {
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no stream to the client: it carries too many");
        let opened = timeout(OUTAGE_PATIENCE, self.connection.open()).await.map_err(late);
        let stream = match opened.and_then(|opened| opened.map_err(io::Error::from)) {
            Ok(stream) => stream,
            Err(error) => {
                // A reset tells the application that nobody has read its bytes.
                let _ = tcp.set_zero_linger();
                return Err(error);
            }
        };
        let request = Request::Accepted { id: self.id, peer };
        let follow = |share| self.port.upgrade().into_iter().for_each(|port| port.follow(share));
        Copier::new(tcp, stream).open(&request, carried, follow).await
    }
}
