//! The end of a tunnel that has a link: it connects, and connects again whenever the connection is lost.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidewire::link::Link;
use tidewire::{CloseReason, Config, Connection, Credentials};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::report::Console;
use tokio::io::AsyncWriteExt;
use tokio::sync::{Mutex, oneshot, watch};
use tokio::time::timeout;

use super::REPLACED;
use super::greeting::{Answer, read_answer, write_greeting};
use super::hub::Hub;
use super::routes::{Outer, Routes};
use super::state::Event;
use crate::live::{Attempts, Live};
use crate::session;
use crate::via::Through;

/// Time for the answer to the greeting, beyond its round trip and repair.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
/// Time to find the far side's addresses again, before the known ones are tried. Chosen: most names take
/// less, and a resolver behind a tunnel that is down does not answer.
const RESOLVER_PATIENCE: Duration = Duration::from_secs(2);

/// The end with the link.
pub struct Dialer {
    link: Link,
    through: Option<Through>,
    credentials: Credentials,
    config: Config,
    hub: Arc<Hub>,
    way: Mutex<Way>,
    console: Console,
    latest: watch::Sender<Option<Arc<Live>>>,
}

/// The way of our datagrams.
struct Way {
    /// Addresses of the far side, or of the relay before it, as far as known.
    addresses: Vec<SocketAddr>,
    routes: Routes,
}

/// The far side, as the link names it.
pub struct Far {
    /// As the user named it.
    pub link: Link,
    /// The relay on the way to it, if there is one.
    pub through: Option<Through>,
    /// The secret of the link, or our private key.
    pub credentials: Credentials,
    /// Where our datagrams go: its addresses, or those of the relay, when the tunnel began.
    pub addresses: Vec<SocketAddr>,
}

impl Far {
    /// Our datagrams to it.
    pub fn outer(addresses: &[SocketAddr]) -> Vec<Outer> {
        addresses.iter().copied().map(Outer::To).collect()
    }
}

impl Dialer {
    /// An end that will connect to `far`. The only peer of `hub` is the listener.
    pub fn new(far: Far, config: Config, hub: &Arc<Hub>, routes: Routes, console: &Console) -> Self {
        let Far { link, through, credentials, addresses } = far;
        let (hub, console) = (Arc::clone(hub), console.clone());
        let way = Mutex::new(Way { addresses, routes });
        Self { link, through, credentials, config, hub, way, console, latest: watch::Sender::new(None) }
    }

    /// Carries packets while it is polled. The first attempt to connect must succeed.
    ///
    /// # Errors
    /// [`Exit::Unreachable`] if nothing answers at first, [`Exit::Authentication`] if the listener has no
    /// networks for our key, [`Exit::Other`] if another end took over with the same key or secret.
    pub async fn run(&self) -> Result<(), Failure> {
        let listener = self.hub.peers().with_key(None).map(|listed| Arc::clone(&listed.peer));
        let listener = listener.ok_or_else(|| Failure::message(Exit::Other, "the tunnel has no peer"))?;
        let (mut live, mut mtu) = self.connect().await?;
        let mut attempts = Attempts::default();
        loop {
            let reason = self.hub.carry(&listener, &live.connection, mtu).await;
            let peer = live.connection.remote().to_string();
            self.console.event(&Event::Lost { peer: &peer, reason: reason.to_string() });
            if matches!(&reason, CloseReason::Peer { code: REPLACED, .. }) {
                return Err(Failure::message(Exit::Other, TAKEN_OVER));
            }
            self.latest.send_replace(None);
            self.console.summary(&live.summary());
            self.console.warn(&format!("the connection is lost: {reason}; trying to connect again"));
            attempts.on_lost(&live);
            (live, mtu) = attempts.until_connected(&self.console, || self.connect()).await;
        }
    }

    /// Connects and greets. Returns the connection, and the listener's longest packet.
    async fn connect(&self) -> Result<(Arc<Live>, u16), Failure> {
        let addresses = self.find().await?;
        let Self { link, credentials, config, console, .. } = self;
        let (endpoint, connection) = match &self.through {
            Some(through) => session::connect(link, Some(through), credentials, config.clone(), console).await?,
            None => session::connect_in_turn(&addresses, link, credentials, config, console).await?,
        };
        let mtu = self.greet(&connection).await?;
        let most = mtu.min(self.hub.mtu());
        self.console.say(&format!("connected to {}; packets of at most {most} bytes", connection.remote()));
        let live = Arc::new(Live::begin(endpoint, connection, &self.console));
        self.latest.send_replace(Some(Arc::clone(&live)));
        Ok((live, mtu))
    }

    /// The addresses of the far side, or of the relay before it. Those known before count if the name is not
    /// resolved in time.
    async fn find(&self) -> Result<Vec<SocketAddr>, Failure> {
        let (tell, told) = oneshot::channel();
        let link = self.through.as_ref().map_or(&self.link, Through::link).clone();
        // A thread of its own: the runtime would wait for one of its own before the program ends.
        std::thread::spawn(move || tell.send(link.resolve().unwrap_or_default()));
        let found = timeout(RESOLVER_PATIENCE, told).await.ok().and_then(Result::ok).unwrap_or_default();
        let mut way = self.way.lock().await;
        if !found.is_empty() {
            way.routes.pass(Far::outer(&found)).await.or_exit(Exit::LocalIo)?;
            way.addresses = found;
        }
        Ok(way.addresses.clone())
    }

    /// Greets, and returns the listener's longest packet.
    async fn greet(&self, connection: &Connection) -> Result<u16, Failure> {
        let greeting = async {
            let mut stream = connection.open().await?;
            write_greeting(&mut stream, self.hub.mtu()).await?;
            let answer = read_answer(&mut stream).await;
            // The stream has done its work; the end of its other direction follows by itself.
            let _ = stream.shutdown().await;
            answer
        };
        match timeout(ANSWER_PATIENCE, greeting).await {
            Ok(Ok(Answer::Ready { mtu })) => Ok(mtu),
            Ok(Ok(answer @ Answer::NoPeer)) => Err(Failure::message(Exit::Authentication, answer)),
            Ok(Ok(answer)) => Err(Failure::message(Exit::Other, answer)),
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::InvalidData => Err(Failure::new(Exit::Other, error)),
            Ok(Err(error)) => Err(Failure::new(Exit::Unreachable, error)),
            Err(_) => Err(Failure::message(Exit::Unreachable, "the far side does not answer the greeting of a tunnel")),
        }
    }

    /// Takes the routes back, closes the connection, if there is one, and reports its summary as the last
    /// line.
    ///
    /// # Errors
    /// The failure in `ended`.
    pub async fn close(&self, ended: Result<(), Failure>) -> Result<(), Failure> {
        self.way.lock().await.routes.close().await;
        match self.latest.send_replace(None) {
            Some(live) => live.close(&self.console, ended).await,
            None => ended,
        }
    }
}

const TAKEN_OVER: &str =
    "another machine has connected with our key or secret, and has the tunnel now; give each machine a key of its own";
