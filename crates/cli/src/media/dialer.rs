//! The end of `live` that has a link: it connects, and connects again whenever the connection is lost.
//!
//! [`super::sender`] and [`super::receiver`] call it, each with its own kind of session. Invariant: it ends
//! only when a session was whole, or when it is stopped.

use std::time::Duration;

use tidewire::link::Link;
use tidewire::{Config, Connection, Credentials, Stream};
use tidewire_command::exit::Failure;
use tidewire_command::report::Console;
use tokio::sync::watch;

use super::meeting;
use super::state::Event;
use super::wire::Side;
use crate::live::{Attempts, Live};
use crate::session;

/// What is needed to connect.
#[derive(Debug)]
pub struct Dialer {
    /// As the listening end printed it.
    pub link: Link,
    /// What opens the connection.
    pub credentials: Credentials,
    /// The transport's settings.
    pub config: Config,
    /// Takes events and warnings.
    pub console: Console,
}

impl Dialer {
    /// Runs sessions until one is whole. `stop` ends a session, and the attempts to connect. `tell` is called
    /// before the summary of each connection. The first attempt to connect must succeed.
    ///
    /// # Errors [`tidewire_command::exit::Exit::Unreachable`] if nothing answers at first,
    /// [`tidewire_command::exit::Exit::Other`] if the far end plays the same part or is no `tidewire live`.
    pub async fn run(
        &self,
        side: Side,
        stop: &watch::Sender<bool>,
        tell: impl Fn(),
        session: impl AsyncFn(&Connection, Stream, Duration) -> Result<(), String>,
    ) -> Result<(), Failure> {
        let console = &self.console;
        let Some(connected) = unless(stop, self.connect(side)).await else { return Ok(()) };
        let (mut live, mut stream, mut latency) = connected?;
        let mut attempts = Attempts::default();
        loop {
            let ended = session(&live.connection, stream, latency).await;
            tell();
            let reason = match ended {
                Err(reason) if !*stop.borrow() => reason,
                _ => return live.close(console, Ok(())).await,
            };
            console.event(&Event::Lost { peer: &live.connection.remote().to_string(), reason: reason.clone() });
            console.summary(&live.summary());
            console.warn(&format!("the connection is lost: {reason}; trying to connect again"));
            attempts.on_lost(&live);
            let again = unless(stop, attempts.until_connected(console, || self.connect(side))).await;
            let Some(connected) = again else { return Ok(()) };
            (live, stream, latency) = connected;
        }
    }

    async fn connect(&self, side: Side) -> Result<(Live, Stream, Duration), Failure> {
        let (endpoint, connection) =
            session::connect(&self.link, None, &self.credentials, self.config.clone(), &self.console).await?;
        let (stream, latency) = meeting::greet(&connection, side, super::asked(&self.config)).await?;
        Ok((Live::begin(endpoint, connection, &self.console), stream, latency))
    }
}

/// Runs `job`; `None` if it was stopped first.
pub async fn unless<T>(stop: &watch::Sender<bool>, job: impl Future<Output = T>) -> Option<T> {
    let mut stopped = stop.subscribe();
    tokio::select! {
        done = job => Some(done),
        _ = stopped.wait_for(|stopped| *stopped) => None,
    }
}
