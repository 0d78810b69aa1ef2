//! Connects again after a connection was lost: the one retry of `forward`, `tunnel`, `live` and `send`.
//!
//! The first three call [`Reconnect`], which keeps a connection for as long as the job runs. `send` sums up a
//! job of several connections itself, and calls [`Attempts`]. Invariant: attempts to connect come ever more
//! rarely while they fail, or while connections end soon.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidewire::{CloseCode, CloseReason, Connection, Endpoint};
use tidewire_command::exit::{Exit, Failure};
use tidewire_command::report::{self, Console, Event, Role, Summary};
use tidewire_live::Stop;
use tokio::time::{sleep, timeout};

use crate::explain::Explainer;
use crate::link;
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

/// What ends the attempts to connect, other than a connection. Except with [`Patience::Once`], a name that
/// cannot be resolved and a missing route are no reason to end, also at the start: services start before
/// networks do.
pub enum Patience<'a> {
    /// The first failure.
    Once,
    /// Nothing, once the first has succeeded.
    Endless,
    /// This time after a loss: then the far end has ended by itself.
    Silence(Duration),
    /// The user, from the first attempt on.
    Stop(&'a Stop),
}

impl Patience<'_> {
    /// Waits for the first attempt. `None` if the user has stopped it.
    async fn first<T>(&self, attempt: impl Future<Output = Result<T, Failure>>) -> Result<Option<T>, Failure> {
        match self {
            Self::Stop(stop) => stop.unless(attempt).await.transpose(),
            Self::Once | Self::Endless | Self::Silence(_) => attempt.await.map(Some),
        }
    }

    /// Waits for the attempts after a loss. `None` if the user has stopped them.
    async fn again<T>(&self, attempts: impl Future<Output = Result<T, Failure>>) -> Result<Option<T>, Failure> {
        match self {
            Self::Silence(silence) => timeout(*silence, attempts).await.map_err(|_| gone(*silence))?.map(Some),
            Self::Once | Self::Endless | Self::Stop(_) => self.first(attempts).await,
        }
    }
}

impl Reconnect {
    /// No connection yet.
    pub fn new(console: &Console) -> Self {
        Self { console: console.clone(), current: Mutex::default() }
    }

    /// Runs `job` over the connection that `connect` makes, and again over a new one whenever it is lost,
    /// until it is done. The job gets what `connect` has found out. The first attempt to connect must
    /// succeed, except that it waits for a name and a route. If the user stops the attempts, the job is done.
    ///
    /// # Errors
    /// The failure of the first attempt, or of the job; [`Exit::Unreachable`] for a path that is too narrow
    /// at the start, and after [`Patience::Silence`].
    pub async fn run<T>(
        &self,
        patience: Patience<'_>,
        connect: impl AsyncFn() -> Result<(Endpoint, Connection, T), Failure>,
        mut job: impl AsyncFnMut(&Connection, T) -> Result<Ended, Failure>,
    ) -> Result<(), Failure> {
        let begin = async || {
            let (endpoint, connection, found) = connect().await?;
            let connected = Arc::new(Connected::begin(endpoint, connection, &self.console));
            self.replace(Some(Arc::clone(&connected)));
            Ok((connected, found))
        };
        let first = async {
            if matches!(patience, Patience::Once) { begin().await } else { until_ready(&self.console, &begin).await }
        };
        let Some((mut connected, mut found)) = patience.first(first).await? else { return Ok(()) };
        let mut attempts = Attempts::new(FIRST_PAUSE, None);
        let mut is_first = true;
        loop {
            let Ended::Lost(reason) = job(&connected.connection, found).await? else { return Ok(()) };
            if std::mem::take(&mut is_first) && connected.is_too_narrow().await {
                // A path that carried nothing from the start is for the user to mend. A later one may be a
                // detour.
                return Err(Failure::message(Exit::Unreachable, reason));
            }
            self.replace(None);
            self.console.summary(&connected.summary());
            self.console.warn(&format!("the connection is lost: {reason}; trying to connect again"));
            attempts.on_lost(&connected);
            let again = async {
                attempts.pause().await;
                attempts.until_connected(&self.console, &begin).await
            };
            let Some(again) = patience.again(again).await? else { return Ok(()) };
            self.console.say("connected again");
            (connected, found) = again;
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
struct Connected {
    endpoint: Endpoint,
    connection: Connection,
    begun: Instant,
    _explained: Explainer,
}

impl Connected {
    /// Reports a connection that was just made.
    fn begin(endpoint: Endpoint, connection: Connection, console: &Console) -> Self {
        console.event(&Event::Connected { peer: connection.remote().to_string() });
        let explained = Explainer::begin(connection.clone(), console.clone());
        Self { endpoint, connection, begun: Instant::now(), _explained: explained }
    }

    /// Whether the connection is over because the path does not carry full packets.
    async fn is_too_narrow(&self) -> bool {
        let is_why = |reason: &CloseReason| {
            matches!(
                reason,
                CloseReason::PathTooNarrow { .. } | CloseReason::Peer { code: CloseCode::PathTooNarrow, .. }
            )
        };
        match timeout(Duration::ZERO, self.connection.closed()).await {
            Ok(CloseReason::Hop(reason)) => is_why(&reason),
            Ok(reason) => is_why(&reason),
            Err(_) => false,
        }
    }

    /// Bytes of both directions; the time counts from the connecting.
    fn summary(&self) -> Summary {
        let stats = self.connection.stats();
        report::summary(&stats, Role::Both, stats.bytes.app_sent + stats.bytes.app_received, self.begun.elapsed())
    }

    /// Closes the connection, and reports its summary as the last line.
    ///
    /// # Errors
    /// The failure in `ended`, marked as reported.
    async fn close(&self, console: &Console, ended: Result<(), Failure>) -> Result<(), Failure> {
        self.connection.close(if ended.is_ok() { DONE } else { CUT_OFF }, "");
        let summary = self.summary();
        session::close(&self.endpoint).await;
        console.conclude(&summary, ended)
    }
}

/// Attempts to connect, and the pauses between them.
#[derive(Debug)]
pub struct Attempts {
    /// The pause after a connection that lasted.
    first: Duration,
    pause: Duration,
    /// Time after which no attempt begins any more.
    limit: Option<Duration>,
}

impl Attempts {
    /// Attempts with this pause between the first two. With a `limit`, the first that fails after that time
    /// is the last.
    pub fn new(first: Duration, limit: Option<Duration>) -> Self {
        Self { first, pause: first, limit }
    }

    /// A connection was lost. A peer that is shutting down still answers a HELLO once and then closes. The
    /// pause must keep growing then.
    fn on_lost(&mut self, connected: &Connected) {
        if connected.begun.elapsed() > LONGEST_PAUSE {
            self.pause = self.first;
        }
    }

    /// Waits. The pauses double up to [`LONGEST_PAUSE`].
    pub async fn pause(&mut self) {
        sleep(self.pause).await;
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
    }

    /// Repeats `connect`, with pauses, until it succeeds.
    ///
    /// # Errors
    /// The last failure, if there is a limit.
    pub async fn until_connected<T, C: Future<Output = Result<T, Failure>>>(
        &mut self,
        console: &Console,
        connect: impl FnMut() -> C,
    ) -> Result<T, Failure> {
        let (begun, limit) = (Instant::now(), self.limit);
        self.while_failing(console, connect, |_| limit.is_none_or(|limit| begun.elapsed() <= limit)).await
    }

    /// Repeats `connect`, with pauses, until it succeeds, or `goes_on` denies that its failure may pass.
    async fn while_failing<T, C: Future<Output = Result<T, Failure>>>(
        &mut self,
        console: &Console,
        mut connect: impl FnMut() -> C,
        goes_on: impl Fn(&Failure) -> bool,
    ) -> Result<T, Failure> {
        loop {
            match connect().await {
                Ok(connected) => return Ok(connected),
                Err(failure) if !goes_on(&failure) => return Err(failure),
                Err(failure) => console.say(&format!("cannot connect yet: {failure}")),
            }
            self.pause().await;
        }
    }
}

/// Makes the first attempt to connect, and repeats it, with pauses, while a name cannot be resolved or there
/// is no route.
///
/// # Errors
/// Every other failure.
pub async fn until_ready<T, C: Future<Output = Result<T, Failure>>>(
    console: &Console,
    connect: impl FnMut() -> C,
) -> Result<T, Failure> {
    Attempts::new(FIRST_PAUSE, None).while_failing(console, connect, link::is_not_ready).await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The result of attempts without pauses of which the first two fail, and how many there were.
    async fn attempt_at_third(limit: Option<Duration>) -> (Result<(), String>, u32) {
        let count = Cell::new(0);
        let connect = async || {
            count.set(count.get() + 1);
            if count.get() < 3 { Err(Failure::message(Exit::Unreachable, count.get().to_string())) } else { Ok(()) }
        };
        let mut attempts = Attempts::new(Duration::ZERO, limit);
        let ended = attempts.until_connected(&Console::new(false, true), &connect).await;
        (ended.map_err(|failure| failure.to_string()), count.get())
    }

    #[tokio::test]
    async fn attempts_go_on_until_one_succeeds_or_the_time_is_over() {
        assert_eq!(attempt_at_third(None).await, (Ok(()), 3));
        assert_eq!(attempt_at_third(Some(Duration::from_secs(600))).await, (Ok(()), 3));
        assert_eq!(attempt_at_third(Some(Duration::ZERO)).await, (Err("1".into()), 1));
    }

    #[tokio::test]
    async fn the_first_attempt_waits_for_a_name_and_for_nothing_else() {
        // A label has at most 63 letters (RFC 1035 section 2.3.4), so no resolver asks for this name.
        let text = format!("tidewire://{}/#{}", "x".repeat(64), tidewire::new_secret().unwrap().reveal().as_str());
        let unresolved: tidewire::link::Link = text.parse().unwrap();
        for (patience, wanted) in [(Patience::Endless, 2), (Patience::Once, 1)] {
            let count = Cell::new(0);
            let connect = async || {
                count.set(count.get() + 1);
                match count.get() {
                    2 => Err(Failure::message(Exit::Unreachable, "no answer")),
                    _ => Err(link::addresses(&unresolved, "the link").await.unwrap_err()),
                }
            };
            let job = async |_: &Connection, ()| Ok(Ended::Done);
            let ended = Reconnect::new(&Console::new(false, true)).run(patience, connect, job).await;
            assert_eq!((count.get(), ended.unwrap_err().exit), (wanted, Exit::Unreachable));
        }
    }

    #[tokio::test]
    async fn pauses_double() {
        let mut attempts = Attempts::new(Duration::from_nanos(1), None);
        for doubled in [2, 4, 8] {
            attempts.pause().await;
            assert_eq!(attempts.pause, Duration::from_nanos(doubled));
        }
    }
}
