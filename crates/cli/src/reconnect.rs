//! A connection that a verb keeps for as long as it runs, and makes anew when it is lost.
//!
//! `forward` and `tunnel` call [`Reconnect`], `live` what that is made of. Invariant: attempts to connect come
//! ever more rarely while they fail, or while connections end soon.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidewire::{Connection, Endpoint};
use tidewire_command::exit::{Exit, Failure};
use tidewire_command::report::{self, Console, Event, Role, Summary};
use tokio::time::{sleep, timeout};

use crate::explain::Explainer;
use crate::session::{self, CUT_OFF, DONE};

/// Time before the first new attempt to connect. It doubles with each attempt. Chosen: short for a peer that
/// restarts.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest time between attempts. Chosen: one packet in this time for a machine that is switched off.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The one connection of a job, which is made anew whenever it is lost.
pub struct Reconnect {
    console: Console,
    /// The current connection, or `None` while it is lost.
    current: Mutex<Option<Arc<Connected>>>,
}

/// How a job over one connection ended.
pub enum Ended {
    /// The job is done.
    Done,
    /// The connection was lost for this reason.
    Lost(String),
}

impl Reconnect {
    /// No connection yet.
    pub fn new(console: &Console) -> Self {
        Self { console: console.clone(), current: Mutex::default() }
    }

    /// Runs `job` over the connection that `connect` makes, and again over a new one whenever it is lost,
    /// until it is done. The job gets what `connect` has found out. The first attempt to connect must
    /// succeed. `silence` is the time without a packet after which the far end has ended by itself, if it
    /// does.
    ///
    /// # Errors
    /// The failure of the first attempt, or of the job; [`Exit::Unreachable`] after a silence.
    pub async fn run<T>(
        &self,
        silence: Option<Duration>,
        connect: impl AsyncFn() -> Result<(Endpoint, Connection, T), Failure>,
        mut job: impl AsyncFnMut(&Connection, T) -> Result<Ended, Failure>,
    ) -> Result<(), Failure> {
        let begin = async || {
            let (endpoint, connection, found) = connect().await?;
            let connected = Arc::new(Connected::begin(endpoint, connection, &self.console));
            self.replace(Some(Arc::clone(&connected)));
            Ok((connected, found))
        };
        let mut attempts = Attempts::default();
        let (mut connected, mut found) = begin().await?;
        loop {
            let Ended::Lost(reason) = job(&connected.connection, found).await? else { return Ok(()) };
            self.replace(None);
            self.console.summary(&connected.summary());
            self.console.warn(&format!("the connection is lost: {reason}; trying to connect again"));
            attempts.on_lost(&connected);
            let again = attempts.until_connected(&self.console, &begin);
            (connected, found) = match silence {
                Some(silence) => timeout(silence, again).await.map_err(|_| gone(silence))?,
                None => again.await,
            };
        }
    }

    /// Closes the connection, if there is one, and reports its summary as the last line.
    ///
    /// # Errors
    /// The failure in `ended`.
    pub async fn close(&self, ended: Result<(), Failure>) -> Result<(), Failure> {
        match self.replace(None) {
            Some(connected) => connected.close(&self.console, ended).await,
            None => ended,
        }
    }

    fn replace(&self, connected: Option<Arc<Connected>>) -> Option<Arc<Connected>> {
        std::mem::replace(&mut *self.current.lock().unwrap_or_else(PoisonError::into_inner), connected)
    }
}

fn gone(silence: Duration) -> Failure {
    Failure::message(
        Exit::Unreachable,
        format_args!(
            "no connection for {} s: the far end has ended by itself; run the same command again, and let it wait for \
         longer with --linger",
            silence.as_secs()
        ),
    )
}

/// A connection, and its socket.
pub struct Connected {
    endpoint: Endpoint,
    /// Its clones are the same connection.
    pub connection: Connection,
    begun: Instant,
    _explained: Explainer,
}

impl Connected {
    /// Reports a connection that was just made.
    pub fn begin(endpoint: Endpoint, connection: Connection, console: &Console) -> Self {
        console.event(&Event::Connected { peer: connection.remote().to_string() });
        let explained = Explainer::begin(connection.clone(), console.clone());
        Self { endpoint, connection, begun: Instant::now(), _explained: explained }
    }

    /// Bytes of both directions; the time counts from the connecting.
    pub fn summary(&self) -> Summary {
        let stats = self.connection.stats();
        report::summary(&stats, Role::Both, stats.bytes.app_sent + stats.bytes.app_received, self.begun.elapsed())
    }

    /// Closes the connection, and reports its summary as the last line.
    ///
    /// # Errors
    /// The failure in `ended`, marked as reported.
    pub async fn close(&self, console: &Console, ended: Result<(), Failure>) -> Result<(), Failure> {
        self.connection.close(if ended.is_ok() { DONE } else { CUT_OFF }, "");
        let summary = self.summary();
        session::close(&self.endpoint).await;
        console.conclude(&summary, ended)
    }
}

/// The pauses between attempts to connect.
#[derive(Debug)]
pub struct Attempts {
    pause: Duration,
}

impl Default for Attempts {
    fn default() -> Self {
        Self { pause: FIRST_PAUSE }
    }
}

impl Attempts {
    /// A connection was lost. A peer that is shutting down still answers a HELLO once and then closes. The
    /// pause must keep growing then.
    pub fn on_lost(&mut self, connected: &Connected) {
        if connected.begun.elapsed() > LONGEST_PAUSE {
            self.pause = FIRST_PAUSE;
        }
    }

    /// Repeats `connect`, after pauses that double up to [`LONGEST_PAUSE`].
    pub async fn until_connected<T, C: Future<Output = Result<T, Failure>>>(
        &mut self,
        console: &Console,
        mut connect: impl FnMut() -> C,
    ) -> T {
        loop {
            sleep(self.pause).await;
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
            match connect().await {
                Ok(connected) => {
                    console.say("connected again");
                    return connected;
                }
                Err(failure) => console.say(&format!("cannot connect yet: {failure}")),
            }
        }
    }
}
