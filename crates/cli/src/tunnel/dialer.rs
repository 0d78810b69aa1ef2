//! The end of a tunnel that has a link: it connects, and connects again whenever the connection is lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidewire::link::Link;
use tidewire::{CloseReason, Config, Connection, Credentials, Endpoint};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::REPLACED;
use super::greeting::{Answer, read_answer, write_greeting};
use super::hub::Hub;
use super::state::Event;
use crate::exit::{Exit, Failure};
use crate::explain::Watch;
use crate::report::{Console, Event as Common, Summary};
use crate::session::{self, CUT_OFF, DONE, Role};

/// Time before the first new attempt to connect. It doubles with each attempt. Chosen: short for a listener
/// that restarts.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest time between attempts. Chosen: one packet in this time for a machine that is switched off.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Time for the answer to the greeting, beyond its round trip and repair.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// The end with the link.
pub struct Dialer {
    link: Link,
    credentials: Credentials,
    config: Config,
    hub: Arc<Hub>,
    console: Console,
    /// The connection, while there is one.
    current: watch::Sender<Option<Arc<Live>>>,
}

/// A connection that is up.
struct Live {
    endpoint: Endpoint,
    connection: Connection,
    /// The listener's longest packet.
    mtu: u16,
    begun: Instant,
    _explained: Watch,
}

impl Dialer {
    /// An end that will connect to the host of `link`. The only peer of `hub` is the listener.
    pub fn new(link: Link, credentials: Credentials, config: Config, hub: &Arc<Hub>, console: &Console) -> Self {
        let (hub, console) = (Arc::clone(hub), console.clone());
        Self { link, credentials, config, hub, console, current: watch::Sender::new(None) }
    }

    /// Carries packets while it is polled. The first attempt to connect must succeed.
    ///
    /// # Errors
    /// [`Exit::Unreachable`] if nothing answers at first, [`Exit::Authentication`] if the listener has no
    /// networks for our key, [`Exit::Other`] if another end took over with the same key or secret.
    pub async fn run(&self) -> Result<(), Failure> {
        let mut live = self.connect().await?;
        let mut pause = FIRST_PAUSE;
        loop {
            let reason = self.hub.carry(0, &live.connection, live.mtu).await;
            self.current.send_replace(None);
            let peer = live.connection.remote().to_string();
            self.console.event(&Event::Lost { peer: &peer, reason: reason.to_string() });
            self.console.summary(&live.summary());
            if matches!(&reason, CloseReason::Peer { code: REPLACED, .. }) {
                return Err(Failure::message(Exit::Other, TAKEN_OVER));
            }
            self.console.warn(&format!("the connection is lost: {reason}; trying to connect again"));
            // A listener that is shutting down still answers a HELLO once and then closes. The pause must
            // keep growing then.
            if live.begun.elapsed() > LONGEST_PAUSE {
                pause = FIRST_PAUSE;
            }
            live = self.connect_again(&mut pause).await;
        }
    }

    async fn connect(&self) -> Result<Arc<Live>, Failure> {
        let (endpoint, connection) =
            session::connect(&self.link, &self.credentials, self.config.clone(), &self.console).await?;
        let mtu = self.greet(&connection).await?;
        let peer = connection.remote().to_string();
        self.console.say(&format!("connected to {peer}; packets of at most {} bytes", mtu.min(self.hub.mtu())));
        self.console.event(&Common::Connected { peer });
        let explained = Watch::begin(connection.clone(), self.console.clone());
        let live = Arc::new(Live { endpoint, connection, mtu, begun: Instant::now(), _explained: explained });
        self.current.send_replace(Some(Arc::clone(&live)));
        Ok(live)
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

    async fn connect_again(&self, pause: &mut Duration) -> Arc<Live> {
        loop {
            sleep(*pause).await;
            *pause = (2 * *pause).min(LONGEST_PAUSE);
            match self.connect().await {
                Ok(live) => return live,
                Err(failure) => self.console.say(&format!("cannot connect yet: {failure}")),
            }
        }
    }

    /// Closes the connection, if there is one, and reports its summary as the last line.
    ///
    /// # Errors
    /// The failure in `ended`.
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

const TAKEN_OVER: &str =
    "another machine has connected with our key or secret, and has the tunnel now; give each machine a key of its own";
