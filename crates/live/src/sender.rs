//! The end that has the inputs.
//!
//! A program runs [`Sender::run`] for each connection that it made, or [`Sender::listen`] where receivers
//! come to it. Invariant: every receiver gets every datagram from the moment at which it is attached; a
//! receiver that is lost takes nothing from the others.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidewire::{CloseCode, CloseReason, Connection, Endpoint, EndpointEnded, Stream};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::counts::Sent;
use super::event::{Counts, Event, Over, SessionError, Tell};
use super::feed::Feed;
use super::input::Input;
use super::meeting::Session;
use super::stop::Stop;
use super::target::{REVIEW, Target};
use super::wire::{Played, Side, read_played, write_end};
use super::{CLOSE_WAIT, CUT_OFF, SURPLUS};

/// Events of inputs that wait to be told. Chosen: more than happen at a time.
const WAITING: usize = 16;

/// Reads the inputs and serves every receiver that connects. Clones are one sender.
#[derive(Clone)]
pub struct Sender {
    feed: Arc<Feed>,
    /// Thrown when all inputs have ended, too.
    stop: Stop,
    /// Why inputs have failed, and how many there are.
    failed: Arc<(Mutex<Vec<String>>, usize)>,
    /// IP bytes and reports of sessions that have ended.
    past: Arc<Mutex<(u64, Played)>>,
    tell: Arc<Tell>,
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").field("feed", &self.feed).field("stop", &self.stop).finish_non_exhaustive()
    }
}

impl Sender {
    /// Begins to read the inputs, each a program of its own; at most 256 are read. `protects` says whether
    /// key frames are important. Call it within the runtime.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn start(inputs: Vec<Input>, protects: bool, tell: impl Fn(Event) + Send + Sync + 'static) -> io::Result<Self> {
        let feed = Arc::new(Feed::new(inputs.len(), protects));
        let (stop, past, tell) = (Stop::new(), Arc::default(), Arc::new(tell));
        let failed = Arc::new((Mutex::default(), inputs.len()));
        let sender = Self { feed: Arc::clone(&feed), stop, failed, past, tell };
        let (say, mut said) = mpsc::channel(WAITING);
        for (program, input) in (0..=u8::MAX).zip(inputs) {
            input.start(program, Arc::clone(&feed), say.clone())?;
        }
        drop(say);
        let told = sender.clone();
        tokio::spawn(async move {
            while let Some(event) = said.recv().await {
                if let Event::InputFailed { name, error } = &event {
                    told.failures().push(format!("the input {name} failed: {error}"));
                }
                (told.tell)(event);
            }
            told.stop();
        });
        Ok(sender)
    }

    /// Ends all sessions as if the inputs had ended.
    pub fn stop(&self) {
        self.stop.stop();
    }

    /// The switch that [`Self::stop`] and the end of the inputs throw.
    pub fn stopping(&self) -> &Stop {
        &self.stop
    }

    /// What came in and was sent so far.
    pub fn counts(&self) -> Sent {
        let connections = self.feed.connections();
        let now: u64 = connections.iter().map(|connection| connection.stats().bytes.wire_sent).sum();
        let (wire, played) = *self.past();
        Sent::new(self.feed.taken(), connections.len(), wire + now, played)
    }

    fn failures(&self) -> MutexGuard<'_, Vec<String>> {
        self.failed.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the last input failed, if all have.
    pub fn failure(&self) -> Option<String> {
        let failures = self.failures();
        failures.last().filter(|_| failures.len() == self.failed.1).cloned()
    }

    fn past(&self) -> MutexGuard<'_, (u64, Played)> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts receivers until the inputs end and all sessions with them. Asks for `latency`.
    ///
    /// # Errors
    /// The endpoint has stopped.
    pub async fn listen(&self, endpoint: &Endpoint, latency: Duration) -> Result<(), EndpointEnded> {
        let mut sessions = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.stop.unless(endpoint.accept()) => accepted,
                Some(_) = sessions.join_next() => continue,
            };
            let Some(accepted) = accepted else { break };
            let (sender, connection) = (self.clone(), accepted?);
            sessions.spawn(async move { sender.serve(&connection, latency).await });
        }
        while sessions.join_next().await.is_some() {}
        Ok(())
    }

    async fn serve(&self, connection: &Connection, latency: Duration) {
        let (begun, peer) = (Instant::now(), connection.remote());
        (self.tell)(Event::Connected { peer });
        let ended = match Session::answer(connection, Side::Sends, latency).await {
            Ok(session) => self.run(session).await,
            Err(error) => Err(error.into()),
        };
        // Only a receiver to which all was sent ends by itself.
        let code = if matches!(ended, Err(SessionError::Lane(_))) { CUT_OFF } else { CloseCode::Done };
        if let Err(reason) = ended {
            (self.tell)(Event::Lost { peer, reason });
        }
        connection.close(code, "");
        let (counts, stats) = (Counts::Sent(self.counts()), connection.stats());
        (self.tell)(Event::Over(Box::new(Over { counts, stats, elapsed: begun.elapsed() })));
    }

    /// Sends to a receiver until the inputs end and it has reported. The caller closes the connection.
    ///
    /// # Errors
    /// Why that did not happen.
    pub async fn run(&self, session: Session) -> Result<(), SessionError> {
        let Session { connection, mut stream, latency } = session;
        let name = match self.feed.attach(&connection, latency) {
            Ok(name) => name,
            // The lane says less than why the connection is over.
            Err(error) => match timeout(Duration::ZERO, connection.closed()).await {
                Ok(reason) => return Err(over(reason)),
                Err(_) => return Err(SessionError::Lane(error)),
            },
        };
        (self.tell)(Event::Session { side: Side::Sends, peer: connection.remote(), latency });
        let running = self.stop.unless(async {
            tokio::select! {
                reason = connection.closed() => reason,
                never = self.advise(&connection) => never,
            }
        });
        let lost = running.await;
        let sent = self.feed.detach(name);
        let report = match lost {
            None => timeout(latency + CLOSE_WAIT, finish(&mut stream, &sent)).await.ok().and_then(Result::ok),
            Some(_) => None,
        };
        let total = sent.iter().fold(0, |total: u64, sent| total.saturating_add(*sent));
        self.end(&connection, report.unwrap_or_default().of(total));
        match lost {
            Some(reason) => Err(over(reason)),
            None if report.is_none() => Err(SessionError::NoReport),
            None => Ok(()),
        }
    }

    /// Tells the bitrate that an encoder may have for this receiver, for ever.
    async fn advise<T>(&self, connection: &Connection) -> T {
        let peer = connection.remote();
        let (mut target, mut ticks) = (Target::default(), tokio::time::interval(REVIEW));
        loop {
            ticks.tick().await;
            let stats = connection.stats();
            let bytes = &stats.bytes;
            let queueing = connection.rtt().saturating_sub(stats.rtt.least);
            if let Some(bitrate_bps) = target.review(stats.rate.pacing_bps, queueing, bytes.wire_sent, bytes.app_sent) {
                (self.tell)(Event::Target { peer, bitrate_bps });
            }
        }
    }

    /// Keeps the figures of a session that has ended.
    fn end(&self, connection: &Connection, played: Played) {
        let mut past = self.past();
        past.0 += connection.stats().bytes.wire_sent;
        past.1 = past.1.plus(played);
    }
}

/// Why a connection that is over has ended the session.
fn over(reason: CloseReason) -> SessionError {
    match reason {
        CloseReason::Peer { code: SURPLUS, .. } => SessionError::Replaced,
        reason => SessionError::Closed(reason),
    }
}

/// Tells the receiver that nothing follows, and waits for what it played out.
async fn finish(stream: &mut Stream, sent: &[u64]) -> io::Result<Played> {
    write_end(stream, sent).await?;
    stream.shutdown().await?;
    read_played(stream).await
}
