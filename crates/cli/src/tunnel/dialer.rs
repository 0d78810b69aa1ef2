//! The end of a tunnel that has a link: it connects, and connects again whenever the connection is lost.

use std::sync::Arc;
use std::time::Duration;

use tidewire::link::Link;
use tidewire::{CloseReason, Config, Connection, Credentials};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::time::timeout;

use super::REPLACED;
use super::greeting::{Answer, read_answer, write_greeting};
use super::hub::Hub;
use super::state::Event;
use crate::exit::{Exit, Failure};
use crate::live::{Attempts, Live};
use crate::report::Console;
use crate::session;
use crate::via::Through;

/// Time for the answer to the greeting, beyond its round trip and repair.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// The end with the link.
pub struct Dialer {
    link: Link,
    through: Option<Through>,
    credentials: Credentials,
    config: Config,
    hub: Arc<Hub>,
    console: Console,
    /// The latest connection.
    latest: watch::Sender<Option<Arc<Live>>>,
}

impl Dialer {
    /// An end that will connect to the host of `link`, or through a relay. The only peer of `hub` is the
    /// listener.
    pub fn new(
        (link, through): (Link, Option<Through>),
        credentials: Credentials,
        config: Config,
        hub: &Arc<Hub>,
        console: &Console,
    ) -> Self {
        let (hub, console) = (Arc::clone(hub), console.clone());
        Self { link, through, credentials, config, hub, console, latest: watch::Sender::new(None) }
    }

    /// Carries packets while it is polled. The first attempt to connect must succeed.
    ///
    /// # Errors
    /// [`Exit::Unreachable`] if nothing answers at first, [`Exit::Authentication`] if the listener has no
    /// networks for our key, [`Exit::Other`] if another end took over with the same key or secret.
    pub async fn run(&self) -> Result<(), Failure> {
        let (mut live, mut mtu) = self.connect().await?;
        let mut attempts = Attempts::default();
        loop {
            let reason = self.hub.carry(0, &live.connection, mtu).await;
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
        let (endpoint, connection) =
            session::connect(&self.link, self.through.as_ref(), &self.credentials, self.config.clone(), &self.console)
                .await?;
        let mtu = self.greet(&connection).await?;
        let most = mtu.min(self.hub.mtu());
        self.console.say(&format!("connected to {}; packets of at most {most} bytes", connection.remote()));
        let live = Arc::new(Live::begin(endpoint, connection, &self.console));
        self.latest.send_replace(Some(Arc::clone(&live)));
        Ok((live, mtu))
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

    /// Closes the connection, if there is one, and reports its summary as the last line.
    ///
    /// # Errors
    /// The failure in `ended`.
    pub async fn close(&self, ended: Result<(), Failure>) -> Result<(), Failure> {
        match self.latest.send_replace(None) {
            Some(live) => live.close(&self.console, ended).await,
            None => ended,
        }
    }
}

const TAKEN_OVER: &str =
    "another machine has connected with our key or secret, and has the tunnel now; give each machine a key of its own";
