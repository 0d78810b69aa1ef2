//! The near end: accepts TCP connections and opens a stream for each, over one connection that it makes anew
//! when it is lost.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidewire::link::Link;
use tidewire::{Config, Connection, Credentials, Endpoint, Stream};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::header::{Answer, Request, read_answer, write_request};
use super::sockets::{self, Port};
use super::target::{LocalForward, Target};
use super::{MAX_CONNECTIONS, Relayed, abandon, report, stream_to_tcp, tcp_to_stream};
use crate::exit::{Exit, Failure};
use crate::explain::Watch;
use crate::report::{Console, Event, Summary};
use crate::session::{self, CUT_OFF, DONE, Role};

/// How long a new TCP connection waits for a lost connection to come back, before it is reset. Chosen:
/// shorter than what browsers wait for, longer than most outages.
const OUTAGE_PATIENCE: Duration = Duration::from_secs(10);
/// Time before the first new attempt to connect. It doubles with each attempt. Chosen: short for a server
/// that restarts.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Longest time between attempts. Chosen: one packet in this time for a server that is switched off.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Pause after the system failed to accept a connection, for example because no more files can be opened.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// A connection to the far side, and its socket.
struct Live {
    endpoint: Endpoint,
    connection: Connection,
    begun: Instant,
    _explained: Watch,
}

/// The near end of a forwarding.
pub struct Client {
    link: Link,
    credentials: Credentials,
    config: Config,
    console: Console,
    /// The current connection, or `None` while it is lost.
    current: watch::Sender<Option<Arc<Live>>>,
}

impl Client {
    /// Creates a client that will connect to the host of `link`.
    pub fn new(link: Link, credentials: Credentials, config: Config, console: &Console) -> Self {
        Self { link, credentials, config, console: console.clone(), current: watch::Sender::new(None) }
    }

    /// Forwards while it is polled. The first connection must succeed and every target must be allowed.
    /// Later, it connects again whenever the connection is lost, without a limit of attempts.
    ///
    /// # Errors
    /// [`Exit::LocalIo`] if a port is in use, [`Exit::Unreachable`] if nothing answers at first,
    /// [`Exit::Authentication`] if a target is not allowed.
    pub async fn run(&self, forwards: &[LocalForward]) -> Result<(), Failure> {
        let ports = bind(forwards)?;
        let mut live = self.connect().await?;
        for (_, target) in &ports {
            check(&live.connection, target).await?;
        }
        let mut accepting = JoinSet::new();
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        for (port, target) in &ports {
            port.follow(live.connection.share());
            let listening = port.address().to_string();
            self.console.say(&format!("{listening} leads to {target}"));
            self.console.event(&Event::Listening { listening, to: target.to_string() });
            let (port, target) = (Arc::clone(port), target.clone());
            let gate = Gate { current: self.current.subscribe(), port, target, console: self.console.clone() };
            accepting.spawn(gate.accept(Arc::clone(&room)));
        }
        let mut pause = FIRST_PAUSE;
        loop {
            let reason = live.connection.closed().await;
            self.current.send_replace(None);
            self.console.warn(&format!("the connection is lost: {reason}; trying to connect again"));
            self.console.summary(&live.summary());
            // A server that is shutting down still answers a HELLO once and then closes. The pause must keep
            // growing then.
            if live.begun.elapsed() > LONGEST_PAUSE {
                pause = FIRST_PAUSE;
            }
            live = self.connect_again(&mut pause).await;
            for (port, _) in &ports {
                port.follow(live.connection.share());
            }
        }
    }

    async fn connect(&self) -> Result<Arc<Live>, Failure> {
        let (endpoint, connection) =
            session::connect(&self.link, &self.credentials, self.config.clone(), &self.console).await?;
        self.console.event(&Event::Connected { peer: connection.remote().to_string() });
        let explained = Watch::begin(connection.clone(), self.console.clone());
        let live = Arc::new(Live { endpoint, connection, begun: Instant::now(), _explained: explained });
        self.current.send_replace(Some(Arc::clone(&live)));
        Ok(live)
    }

    async fn connect_again(&self, pause: &mut Duration) -> Arc<Live> {
        loop {
            sleep(*pause).await;
            *pause = (2 * *pause).min(LONGEST_PAUSE);
            match self.connect().await {
                Ok(live) => {
                    self.console.say("connected again");
                    return live;
                }
                Err(failure) => self.console.say(&format!("cannot connect yet: {failure}")),
            }
        }
    }

    /// Closes the connection, if there is one, and reports its summary as the last line.
    pub async fn close(&self, ended: Result<(), Failure>) -> Result<(), Failure> {
        let Some(live) = self.current.send_replace(None) else { return ended };
        live.connection.close(if ended.is_ok() { DONE } else { CUT_OFF }, "");
        let summary = live.summary();
        session::close(&live.endpoint).await;
        self.console.conclude(&summary, ended)
    }
}

impl Live {
    fn summary(&self) -> Summary {
        let stats = self.connection.stats();
        session::summary(&stats, Role::Both, stats.bytes.app_sent + stats.bytes.app_received, self.begun.elapsed())
    }
}

fn bind(forwards: &[LocalForward]) -> Result<Vec<(Arc<Port>, Target)>, Failure> {
    let mut ports = Vec::new();
    for LocalForward { listen, target } in forwards {
        let port = Port::listen(*listen).map_err(|error| {
            Failure::message(Exit::LocalIo, format_args!("cannot listen on {listen}: {error}; try another port"))
        })?;
        ports.push((Arc::new(port), target.clone()));
    }
    Ok(ports)
}

/// Asks the far side whether it would connect to a target, so that a mistyped target is an error at the
/// start.
async fn check(connection: &Connection, target: &Target) -> Result<(), Failure> {
    match ask(connection, &Request::Check(target.clone())).await {
        Ok(answer) if answer.is_ready() => Ok(()),
        Ok(answer) => {
            let exit = if answer.is_not_allowed() { Exit::Authentication } else { Exit::Other };
            Err(Failure::message(exit, format_args!("{target}: {answer}")))
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(Failure::new(Exit::Other, error)),
        Err(error) => Err(Failure::new(Exit::Unreachable, error)),
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

/// One listening port.
#[derive(Clone)]
struct Gate {
    current: watch::Receiver<Option<Arc<Live>>>,
    port: Arc<Port>,
    target: Target,
    console: Console,
}

impl Gate {
    /// Accepts TCP connections without end. All gates share `room`.
    async fn accept(self, room: Arc<Semaphore>) {
        let mut carrying = JoinSet::new();
        loop {
            // Without room, TCP connections wait in the queue of the kernel.
            let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
            tokio::select! {
                accepted = self.port.accept() => match accepted {
                    Ok((tcp, peer)) => {
                        carrying.spawn(self.clone().carry(tcp, peer, place));
                    }
                    Err(error) => {
                        self.console.warn(&format!("{}: cannot accept: {error}", self.target));
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = carrying.join_next() => {}
            }
        }
    }

    /// Carries one TCP connection, from its acceptance to its end.
    async fn carry(mut self, mut tcp: TcpStream, peer: SocketAddr, _place: OwnedSemaphorePermit) {
        sockets::tune(&tcp);
        let carried = Relayed::default();
        let failure = self.relay(&mut tcp, &carried).await.err().map(|error| error.to_string());
        if failure.is_some() {
            // A reset tells the application that the bytes it received may be incomplete.
            let _ = tcp.set_zero_linger();
        }
        drop(tcp);
        let target = self.target.to_string();
        report(&self.console, peer, &target, &carried, failure.as_deref());
    }

    async fn relay(&mut self, tcp: &mut TcpStream, carried: &Relayed) -> io::Result<()> {
        let late = "no stream to the far side: the connection is lost, or it carries too many";
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, late);
        let stream = timeout(OUTAGE_PATIENCE, self.open()).await.map_err(late)??;
        let (mut stream_reader, mut stream_writer) = stream.split();
        let (mut tcp_reader, mut tcp_writer) = tcp.split();
        let there = async {
            // The first bytes of the application are sent with the request, and wait at the far side until
            // the target has accepted.
            write_request(&mut stream_writer, &Request::Connect(self.target.clone())).await?;
            let port = &self.port;
            tcp_to_stream(&mut tcp_reader, &mut stream_writer, &carried.there, |share| port.follow(share)).await
        };
        let back = async {
            let answer = read_answer(&mut stream_reader).await?;
            if !answer.is_ready() {
                return Err(io::Error::other(answer));
            }
            stream_to_tcp(&mut stream_reader, &mut tcp_writer, &carried.back).await
        };
        let both = tokio::try_join!(there, back);
        if both.is_err() {
            abandon(&mut stream_reader, &mut stream_writer);
        }
        both.map(|_| ())
    }

    /// Opens a stream over the current connection, or over the next one if that is lost.
    async fn open(&mut self) -> io::Result<Stream> {
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
