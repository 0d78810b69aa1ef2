//! The end of `live` that has a link: it connects, and connects again whenever the connection is lost.
//!
//! The verb calls it at either end, each with its own kind of session. Invariant: it ends only when a session
//! was whole, when it is stopped, or when the far end has said that another sender has its place.

use tidewire::link::Link;
use tidewire::{Config, Connection, Credentials};
use tidewire_command::exit::{Exit, Failure};
use tidewire_command::report::Console;
use tidewire_live::{MeetError, Session, SessionError, Side, Stop, latency};

use super::lines::Line;
use crate::reconnect::{Ended, Patience, Reconnect};
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
    /// before the summary of each connection, `check` when the job is done. The first attempt to connect must
    /// succeed.
    ///
    /// # Errors
    /// [`Exit::Unreachable`] if nothing answers at first, [`Exit::Other`] if the far end plays the same part
    /// or is no `tidewire live`, or if another sender has its outputs now.
    pub async fn run(
        &self,
        side: Side,
        stop: &Stop,
        tell: impl Fn(),
        check: impl FnOnce() -> Result<(), Failure>,
        session: impl AsyncFn(Session) -> Result<(), SessionError>,
    ) -> Result<(), Failure> {
        let console = &self.console;
        let connect = async || {
            let (link, config) = (&self.link, self.config.clone());
            let (endpoint, connection) = session::connect(link, None, &self.credentials, config, console).await?;
            let met = Session::greet(&connection, side, latency(&self.config)).await.map_err(not_met)?;
            Ok((endpoint, connection, met))
        };
        let job = async |connection: &Connection, met| {
            let ended = session(met).await;
            tell();
            match ended {
                Err(error) if !stop.is_stopped() => {
                    let (peer, reason) = (connection.remote().to_string(), error.to_string());
                    console.event(&Line::Lost { peer: &peer, reason: reason.clone() });
                    // Two senders that both connect again would take the outputs from each other for ever.
                    match error {
                        SessionError::Replaced => Err(Failure::message(Exit::Other, TAKEN_OVER)),
                        _ => Ok(Ended::Lost(reason)),
                    }
                }
                _ => Ok(Ended::Done),
            }
        };
        let reconnect = Reconnect::new(console);
        let ended = reconnect.run(Patience::Stop(stop), connect, job).await.and_then(|()| check());
        reconnect.close(ended).await
    }
}

/// The far end plays the same part, is no `tidewire live`, or does not answer.
fn not_met(error: MeetError) -> Failure {
    let answered = matches!(error, MeetError::Refused(_) | MeetError::Foreign(_));
    Failure::new(if answered { Exit::Other } else { Exit::Unreachable }, error)
}

const TAKEN_OVER: &str = "another sender has connected with the same link, and the far side plays that one out now; give \
                          each sender a receiver of its own";
