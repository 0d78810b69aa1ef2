//! The end of `live` that plays out.
//!
//! The verb calls [`Receiver::dial`] where this end connects, and [`Receiver::listen`] where it waits.
//! Invariant: one session at a time has the outputs, the newest; a session that is lost is followed by
//! another without a restart.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidewire::{Config, Connection, Endpoint, Stream};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::report::{self, Console, Event as Common, Role};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::dialer::{Dialer, unless};
use super::meeting;
use super::output::Output;
use super::state::Event;
use super::wire::{Side, read_end, write_played};
use crate::session::{self, CLOSE_WAIT, DONE};

/// Plays out what arrives. The newest session has the outputs.
#[derive(Debug)]
pub struct Receiver {
    output: Output,
    console: Console,
    stop: watch::Sender<bool>,
    /// Number of the session that has the outputs.
    newest: watch::Sender<u64>,
}

impl Receiver {
    /// An end that plays out with `output`.
    pub fn new(output: Output, console: &Console) -> Arc<Self> {
        let (stop, newest) = (watch::Sender::new(false), watch::Sender::new(0));
        Arc::new(Self { output, console: console.clone(), stop, newest })
    }

    /// Ends all sessions.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// The event for programs that says what was played out so far.
    pub fn event(&self) -> Event<'static> {
        Event::Played(self.output.counts())
    }

    /// Connects, and again whenever the connection is lost, until the sender has no more.
    ///
    /// # Errors
    /// See [`Dialer::run`].
    pub async fn dial(&self, dialer: &Dialer) -> Result<(), Failure> {
        let session = async |connection: &Connection, stream: Stream, latency: Duration| {
            self.play(connection, stream, latency).await
        };
        dialer.run(Side::Receives, &self.stop, || self.tell(), session).await
    }

    /// Accepts senders, the newest of which has the outputs. With `once` it ends after the first that had no
    /// more.
    ///
    /// # Errors
    /// The endpoint has stopped.
    pub async fn listen(self: &Arc<Self>, endpoint: &Endpoint, config: &Config, once: bool) -> Result<(), Failure> {
        let mut sessions = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = unless(&self.stop, endpoint.accept()) => accepted,
                Some(ended) = sessions.join_next() => {
                    if once && matches!(ended, Ok(Ok(()))) {
                        break;
                    }
                    continue;
                }
            };
            let Some(accepted) = accepted else { break };
            let connection = accepted.or_exit(Exit::Other)?;
            let (receiver, latency) = (Arc::clone(self), super::asked(config));
            sessions.spawn(async move { receiver.serve(&connection, latency).await });
        }
        self.stop();
        // Each session writes its summary before it ends.
        while sessions.join_next().await.is_some() {}
        Ok(())
    }

    /// Plays out a session of a sender that connected. The error says why it was not whole.
    async fn serve(&self, connection: &Connection, latency: Duration) -> Result<(), String> {
        let (begun, peer) = (Instant::now(), connection.remote().to_string());
        self.console.event(&Common::Connected { peer: peer.clone() });
        let ended = match meeting::answer(connection, Side::Receives, latency).await {
            Ok((stream, latency)) => self.play(connection, stream, latency).await,
            Err(why) => Err(why),
        };
        if let Err(reason) = &ended {
            self.console.event(&Event::Lost { peer: &peer, reason: reason.clone() });
            self.console.warn(&format!("{peer} is gone: {reason}"));
        }
        self.tell();
        let stats = connection.stats();
        let bytes = stats.bytes.app_received;
        self.console.summary(&report::summary(&stats, Role::Receiver, bytes, begun.elapsed()));
        ended
    }

    /// Plays out until the sender has no more. The error says why that did not happen.
    async fn play(&self, connection: &Connection, stream: Stream, latency: Duration) -> Result<(), String> {
        self.newest.send_modify(|newest| *newest += 1);
        let (mut told, own) = (self.newest.subscribe(), *self.newest.borrow());
        let peer = connection.remote().to_string();
        self.console.say(&format!("playing out what {peer} sends, {} ms after the fastest way", latency.as_millis()));
        self.console.event(&Event::Session { peer: &peer, latency_ms: 1e3 * latency.as_secs_f64() });
        self.output.begin(latency);
        let replaced = async {
            let _ = told.wait_for(|newest| *newest != own).await;
        };
        tokio::select! {
            ended = unless(&self.stop, self.session(connection, stream, latency)) => ended.unwrap_or_else(|| {
                connection.close(session::CUT_OFF, "");
                Err("stopped".into())
            }),
            () = replaced => {
                connection.close(session::SURPLUS, "another sender connected");
                Err("another sender connected".into())
            }
        }
    }

    /// Moves messages to the outputs until the sender has no more.
    async fn session(&self, connection: &Connection, mut stream: Stream, latency: Duration) -> Result<(), String> {
        let moving = async {
            let mut messages = Vec::new();
            while connection.receive_messages(&mut messages).await.is_ok() {
                self.output.put(messages.iter().map(|message| &message.data[..]));
                messages.clear();
            }
        };
        let ending = async {
            let sent = read_end(&mut stream).await?;
            // What was lost of the last datagrams may still be repaired in time.
            tokio::time::sleep(latency).await;
            write_played(&mut stream, self.output.finish(&sent).await).await?;
            stream.shutdown().await
        };
        let is_whole = tokio::select! {
            () = moving => false,
            ended = ending => ended.is_ok(),
        };
        if !is_whole {
            return Err(connection.closed().await.to_string());
        }
        // The sender closes when it has the counts.
        if timeout(CLOSE_WAIT, connection.closed()).await.is_err() {
            connection.close(DONE, "");
        }
        Ok(())
    }

    fn tell(&self) {
        self.console.event(&self.event());
        self.console.say(&self.output.counts().sentence());
    }
}
