//! The end of a tunnel that has a link: it connects, and connects again whenever the connection is lost.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidewire::{CloseReason, Config, Connection, Endpoint};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::report::Console;
use tidewire_tunnel::{Answer, GreetError, Hub, Outer, REPLACED, Routes, greet};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::state::Event;
use crate::reconnect::{Ended, Patience, Reconnect};
use crate::way::Way;

/// Time to find the far side's addresses again, before the known ones are tried. Chosen: most names take
/// less, and a resolver behind a tunnel that is down does not answer.
const RESOLVER_PATIENCE: Duration = Duration::from_secs(2);

/// The end with the link.
pub struct Dialer {
    way: Way,
    passage: Mutex<Passage>,
    config: Config,
    hub: Arc<Hub>,
    console: Console,
    reconnect: Reconnect,
}

/// Where our datagrams go, past the device.
pub struct Passage {
    /// Addresses of the far side, or of the relay before it, as far as known.
    pub addresses: Vec<SocketAddr>,
    /// They lead datagrams to these addresses past the device, and the others into it.
    pub routes: Arc<Routes>,
}

/// Our datagrams to these addresses.
pub fn outer(addresses: &[SocketAddr]) -> Vec<Outer> {
    addresses.iter().copied().map(Outer::To).collect()
}

impl Dialer {
    /// An end that will connect over `way`. The only peer of `hub` is the listener.
    pub fn new(way: Way, passage: Passage, config: Config, hub: &Arc<Hub>, console: &Console) -> Self {
        let (passage, hub) = (Mutex::new(passage), Arc::clone(hub));
        Self { way, passage, config, hub, console: console.clone(), reconnect: Reconnect::new(console) }
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
        self.reconnect.run(Patience::Endless, || self.connect(), carry).await
    }

    /// Connects and greets. Returns the connection, and the listener's longest packet.
    async fn connect(&self) -> Result<(Endpoint, Connection, u16), Failure> {
        let addresses = self.find().await?;
        let Self { config, console, .. } = self;
        let (endpoint, connection) = self.way.connect_at(&addresses, config, console).await?;
        let mtu = greet(&connection, self.hub.mtu()).await.map_err(failure)?;
        let most = mtu.min(self.hub.mtu());
        console.say(&format!("connected to {}; packets of at most {most} bytes", connection.remote()));
        Ok((endpoint, connection, mtu))
    }

    /// The addresses of the far side, or of the relay before it. Those known before count if the name is not
    /// resolved in time.
    async fn find(&self) -> Result<Vec<SocketAddr>, Failure> {
        let found = timeout(RESOLVER_PATIENCE, self.way.first_hop().resolve()).await;
        let found = found.ok().and_then(Result::ok).unwrap_or_default();
        let mut passage = self.passage.lock().await;
        if !found.is_empty() {
            passage.routes.pass(outer(&found)).await.or_exit(Exit::LocalIo)?;
            passage.addresses = found;
        }
        Ok(passage.addresses.clone())
    }

    /// Takes the routes back, closes the connection, if there is one, and reports its summary as the last
    /// line.
    ///
    /// # Errors
    /// The failure in `ended`.
    pub async fn close(&self, ended: Result<(), Failure>) -> Result<(), Failure> {
        self.passage.lock().await.routes.close().await;
        self.reconnect.close(ended).await
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
