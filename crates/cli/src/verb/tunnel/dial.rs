//! The end of a tunnel that has a link: it connects, and connects again whenever the connection is lost.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidewire::link::Link;
use tidewire::{CloseReason, Config, Connection, Credentials, Endpoint};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::report::Console;
use tidewire_tunnel::{Answer, GreetError, Hub, Outer, REPLACED, Routes, greet};
use tokio::sync::{Mutex, oneshot};
use tokio::time::timeout;

use super::state::Event;
use crate::live::{Ended, Kept};
use crate::session;
use crate::via::Through;

/// Time to find the far side's addresses again, before the known ones are tried. Chosen: most names take
/// less, and a resolver behind a tunnel that is down does not answer.
const RESOLVER_PATIENCE: Duration = Duration::from_secs(2);

/// The end with the link.
pub struct Dialer {
    far: Far,
    config: Config,
    hub: Arc<Hub>,
    way: Mutex<Way>,
    console: Console,
    kept: Kept,
}

/// The far side, as the link names it.
pub struct Far {
    /// As the user named it.
    pub link: Link,
    /// The relay on the way to it, if there is one.
    pub through: Option<Through>,
    /// The secret of the link, or our private key.
    pub credentials: Credentials,
}

/// The way of our datagrams.
struct Way {
    /// Addresses of the far side, or of the relay before it, as far as known.
    addresses: Vec<SocketAddr>,
    routes: Routes,
}

/// Our datagrams to these addresses.
pub fn outer(addresses: &[SocketAddr]) -> Vec<Outer> {
    addresses.iter().copied().map(Outer::To).collect()
}

impl Dialer {
    /// An end that will connect to `far`. `addresses` are where our datagrams went when the tunnel began. The
    /// only peer of `hub` is the listener.
    pub fn new(
        far: Far,
        addresses: Vec<SocketAddr>,
        config: Config,
        hub: &Arc<Hub>,
        routes: Routes,
        console: &Console,
    ) -> Self {
        let way = Mutex::new(Way { addresses, routes });
        Self { far, config, hub: Arc::clone(hub), way, console: console.clone(), kept: Kept::new(console) }
    }

    /// Carries packets while it is polled. The first attempt to connect must succeed.
    ///
    /// # Errors
    /// [`Exit::Unreachable`] if nothing answers at first, [`Exit::Authentication`] if the listener has no
    /// networks for our key, [`Exit::Other`] if another end took over with the same key or secret.
    pub async fn run(&self) -> Result<(), Failure> {
        let listener = self.hub.peers().with_key(None).map(|listed| Arc::clone(&listed.peer));
        let listener = listener.ok_or_else(|| Failure::message(Exit::Other, "the tunnel has no peer"))?;
        let carry = async |connection: &Connection, mtu| {
            let reason = self.hub.carry(&listener, connection, mtu).await;
            let peer = connection.remote().to_string();
            self.console.event(&Event::Lost { peer: &peer, reason: reason.to_string() });
            match reason {
                CloseReason::Peer { code: REPLACED, .. } => Err(Failure::message(Exit::Other, TAKEN_OVER)),
                reason => Ok(Ended::Lost(reason.to_string())),
            }
        };
        self.kept.run(None, || self.connect(), carry).await
    }

    /// Connects and greets. Returns the connection, and the listener's longest packet.
    async fn connect(&self) -> Result<(Endpoint, Connection, u16), Failure> {
        let addresses = self.find().await?;
        let Self { far: Far { link, through, credentials }, config, console, .. } = self;
        let (endpoint, connection) = match through {
            Some(through) => session::connect(link, Some(through), credentials, config.clone(), console).await?,
            None => session::connect_in_turn(&addresses, link, credentials, config, console).await?,
        };
        let mtu = greet(&connection, self.hub.mtu()).await.map_err(failure)?;
        let most = mtu.min(self.hub.mtu());
        console.say(&format!("connected to {}; packets of at most {most} bytes", connection.remote()));
        Ok((endpoint, connection, mtu))
    }

    /// The addresses of the far side, or of the relay before it. Those known before count if the name is not
    /// resolved in time.
    async fn find(&self) -> Result<Vec<SocketAddr>, Failure> {
        let (tell, told) = oneshot::channel();
        let link = self.far.through.as_ref().map_or(&self.far.link, Through::link).clone();
        // A thread of its own: the runtime would wait for one of its own before the program ends.
        std::thread::spawn(move || tell.send(link.resolve().unwrap_or_default()));
        let found = timeout(RESOLVER_PATIENCE, told).await.ok().and_then(Result::ok).unwrap_or_default();
        let mut way = self.way.lock().await;
        if !found.is_empty() {
            way.routes.pass(outer(&found)).await.or_exit(Exit::LocalIo)?;
            way.addresses = found;
        }
        Ok(way.addresses.clone())
    }

    /// Takes the routes back, closes the connection, if there is one, and reports its summary as the last
    /// line.
    ///
    /// # Errors
    /// The failure in `ended`.
    pub async fn close(&self, ended: Result<(), Failure>) -> Result<(), Failure> {
        self.way.lock().await.routes.close().await;
        self.kept.close(ended).await
    }
}

fn failure(error: GreetError) -> Failure {
    let exit = match &error {
        GreetError::Refused(Answer::NoPeer) => Exit::Authentication,
        GreetError::Refused(_) | GreetError::NoTunnel(_) => Exit::Other,
        GreetError::Lost(_) | GreetError::Silent => Exit::Unreachable,
    };
    Failure::new(exit, error)
}

const TAKEN_OVER: &str =
    "another machine has connected with our key or secret, and has the tunnel now; give each machine a key of its own";
