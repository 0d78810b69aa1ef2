//! A connection that a verb keeps for as long as it runs, and makes anew when it is lost. The verb `live` is
//! another thing: its room is [`crate::media`].
//!
//! `forward`, `tunnel` and `live` call it. Invariant: attempts to connect come ever more rarely while they
//! fail, or while connections end soon.

use std::future::Future;
use std::time::{Duration, Instant};

use tidewire::{Connection, Endpoint};
use tidewire_command::exit::Failure;
use tidewire_command::report::{self, Console, Event, Role, Summary};
use tokio::time::sleep;

use crate::explain::Watch;
use crate::session::{self, CUT_OFF, DONE};

/// Time before the first new attempt to connect. It doubles with each attempt. Chosen: short for a peer that
/// restarts.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest time between attempts. Chosen: one packet in this time for a machine that is switched off.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A connection, and its socket.
pub struct Live {
    endpoint: Endpoint,
    /// Its clones are the same connection.
    pub connection: Connection,
    begun: Instant,
    _explained: Watch,
}

impl Live {
    /// Reports a connection that was just made.
    pub fn begin(endpoint: Endpoint, connection: Connection, console: &Console) -> Self {
        console.event(&Event::Connected { peer: connection.remote().to_string() });
        let explained = Watch::begin(connection.clone(), console.clone());
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
    pub fn on_lost(&mut self, live: &Live) {
        if live.begun.elapsed() > LONGEST_PAUSE {
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
