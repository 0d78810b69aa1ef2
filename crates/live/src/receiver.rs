//! The end that plays out.
//!
//! A program runs [`Receiver::run`] for each connection that it made, or [`Receiver::listen`] where senders
//! come to it. Invariant: one session at a time has the outputs, the newest; a session that is lost is
//! followed by another without a restart.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidewire::{CloseCode, CloseReason, Connection, Endpoint, EndpointEnded, Stream};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::counts::Received;
use super::event::{Counts, Event, Over, SessionError, Tell};
use super::meeting::Session;
use super::output::{News, Output};
use super::stop::Stop;
use super::wire::{Side, read_end, write_played};
use super::{CLOSE_WAIT, CUT_OFF, SURPLUS};

/// Plays out what arrives. The newest session has the outputs. Clones are one receiver.
#[derive(Clone)]
pub struct Receiver {
    output: Output,
    tell: Arc<Tell>,
    stop: Stop,
    /// Number of the session that has the outputs.
    newest: watch::Sender<u64>,
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver").field("output", &self.output).field("stop", &self.stop).finish_non_exhaustive()
    }
}

impl Receiver {
    /// An end that plays out with `output`.
    pub fn new(output: Output, tell: impl Fn(Event) + Send + Sync + 'static) -> Self {
        Self { output, tell: Arc::new(tell), stop: Stop::new(), newest: watch::Sender::new(0) }
    }

    /// Ends all sessions.
    pub fn stop(&self) {
        self.stop.stop();
    }

    /// The switch that [`Self::stop`] throws.
    pub fn stopping(&self) -> &Stop {
        &self.stop
    }

    /// What was played out so far.
    pub fn counts(&self) -> Received {
        self.output.counts()
    }

    /// Waits until an output has failed. Tells of those that refuse datagrams meanwhile.
    pub async fn failed(&self) -> io::Error {
        loop {
            match self.output.news().await {
                News::Failed(error) => return error,
                News::Refused { name, error } => (self.tell)(Event::Refused { name, error }),
            }
        }
    }

    /// Accepts senders, the newest of which has the outputs. With `once` it ends after the first that had no
    /// more. Asks for `latency`.
    ///
    /// # Errors
    /// The endpoint has stopped.
    pub async fn listen(&self, endpoint: &Endpoint, latency: Duration, once: bool) -> Result<(), EndpointEnded> {
        let mut sessions = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.stop.unless(endpoint.accept()) => accepted,
                Some(ended) = sessions.join_next() => {
                    if once && matches!(ended, Ok(true)) {
                        break;
                    }
                    continue;
                }
            };
            let Some(accepted) = accepted else { break };
            let (receiver, connection) = (self.clone(), accepted?);
            sessions.spawn(async move { receiver.serve(&connection, latency).await });
        }
        self.stop();
        // Each session tells its end before it ends.
        while sessions.join_next().await.is_some() {}
        Ok(())
    }

    /// Plays out a session of a sender that connected. Returns whether it was whole.
    async fn serve(&self, connection: &Connection, latency: Duration) -> bool {
        let (begun, peer) = (Instant::now(), connection.remote());
        (self.tell)(Event::Connected { peer });
        let ended = match Session::answer(connection, Side::Receives, latency).await {
            Ok(session) => self.run(session).await,
            Err(error) => Err(error.into()),
        };
        let is_whole = ended.is_ok();
        if let Err(reason) = ended {
            (self.tell)(Event::Lost { peer, reason });
        }
        let (counts, stats) = (Counts::Received(self.counts()), connection.stats());
        (self.tell)(Event::Over(Box::new(Over { counts, stats, elapsed: begun.elapsed() })));
        is_whole
    }

    /// Plays out until the sender has no more.
    ///
    /// # Errors
    /// Why that did not happen.
    pub async fn run(&self, session: Session) -> Result<(), SessionError> {
        self.newest.send_modify(|newest| *newest += 1);
        let (mut told, own) = (self.newest.subscribe(), *self.newest.borrow());
        let Session { connection, stream, latency } = session;
        (self.tell)(Event::Session { side: Side::Receives, peer: connection.remote(), latency });
        self.output.begin(latency);
        let replaced = async {
            let _ = told.wait_for(|newest| *newest != own).await;
        };
        tokio::select! {
            ended = self.stop.unless(self.play(&connection, stream, latency)) => ended.unwrap_or_else(|| {
                connection.close(CUT_OFF, "");
                Err(SessionError::Stopped)
            }),
            () = replaced => {
                connection.close(SURPLUS, "another sender connected");
                Err(SessionError::Replaced)
            }
        }
    }

    /// Moves messages to the outputs until the sender has no more.
    async fn play(&self, connection: &Connection, mut stream: Stream, latency: Duration) -> Result<(), SessionError> {
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
            return match connection.closed().await {
                // The sender has no more, and did not wait for the end of our report, or for the report.
                CloseReason::Peer { code: CloseCode::Done, .. } => {
                    self.output.finish(&[]).await;
                    Ok(())
                }
                reason => Err(SessionError::Closed(reason)),
            };
        }
        // The sender closes when it has the counts.
        if timeout(CLOSE_WAIT, connection.closed()).await.is_err() {
            connection.close(CloseCode::Done, "");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tidewire::{Config, new_secret};

    use super::*;
    use crate::sink::Sink;
    use crate::wire::write_end;

    /// The close of a sender that has no more may overtake the end of the receiver's report. Before the fix,
    /// the receiver then took the connection for lost, and connected again for ever.
    #[tokio::test]
    async fn a_sender_that_has_no_more_is_not_lost() {
        let (config, secret) = (crate::configure(&Config::default(), false).unwrap(), new_secret().unwrap());
        let bind = || Endpoint::bind(([127, 0, 0, 1], 0).into(), secret.clone(), config.clone()).unwrap();
        for code in [CloseCode::Done, CUT_OFF] {
            let (far, near) = (bind(), bind());
            let receiver = Receiver::new(Output::start(vec![Sink::writer(io::sink())]).unwrap(), |_| {});
            let address = far.local_addr();
            let sending = async {
                let connection = near.connect(address).await.unwrap();
                let mut session = Session::greet(&connection, Side::Sends, Duration::from_secs(60)).await.unwrap();
                write_end(&mut session.stream, &[0]).await.unwrap();
                connection.close(code, "");
            };
            let playing = async {
                let connection = far.accept().await.unwrap();
                let session = Session::answer(&connection, Side::Receives, Duration::ZERO).await.unwrap();
                receiver.run(session).await
            };
            let ((), ended) = tokio::join!(sending, playing);
            assert_eq!(ended.is_ok(), code == CloseCode::Done, "{code:?}: {ended:?}");
        }
    }
}
