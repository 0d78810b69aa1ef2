//! The end of `live` that has the inputs.
//!
//! The verb calls [`Sender::dial`] where this end connects, and [`Sender::listen`] where receivers come to
//! it. Invariant: every receiver gets every datagram from the moment at which it is attached; a receiver that
//! is lost takes nothing from the others.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidewire::{Config, Connection, Endpoint, Stream};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::report::{self, Console, Event as Common, Role};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::address::Place;
use super::dialer::{Dialer, unless};
use super::feed::Feed;
use super::input::Input;
use super::meeting;
use super::state::{Event, Sent};
use super::target::{REVIEW, Target};
use super::wire::{Played, Side, read_played, write_end};
use crate::session::{CLOSE_WAIT, DONE};

/// Reads the inputs and serves every receiver that connects.
#[derive(Debug)]
pub struct Sender {
    feed: Arc<Feed>,
    /// Whether all inputs have ended, or the sender was stopped.
    over: watch::Sender<bool>,
    /// IP bytes and reports of sessions that have ended.
    past: Mutex<(u64, Played)>,
    console: Console,
}

impl Sender {
    /// Opens the inputs and begins to read them. `protects` says whether key frames are important.
    ///
    /// # Errors
    /// [`Exit::LocalIo`] if an input cannot be opened.
    pub fn start(inputs: Vec<(Input, String)>, protects: bool, console: &Console) -> Result<Arc<Self>, Failure> {
        let feed = Arc::new(Feed::new(inputs.len(), protects));
        let (over, past) = (watch::Sender::new(false), Mutex::default());
        let sender = Arc::new(Self { feed: Arc::clone(&feed), over, past, console: console.clone() });
        let mut ends = Vec::new();
        for (program, (input, name)) in (0..=u8::MAX).zip(inputs) {
            ends.push((name, input.start(program, Arc::clone(&feed)).or_exit(Exit::LocalIo)?));
        }
        let watcher = Arc::clone(&sender);
        tokio::spawn(async move {
            for (name, end) in ends {
                if let Ok(Err(error)) = end.await {
                    watcher.console.warn(&format!("the input {name} failed: {error}; the others go on"));
                }
            }
            watcher.stop();
        });
        Ok(sender)
    }

    /// Opens the inputs at these places.
    ///
    /// # Errors
    /// [`Exit::LocalIo`] if one cannot be opened.
    pub fn open(places: &[Place]) -> Result<Vec<(Input, String)>, Failure> {
        let open = |place: &Place| match Input::open(place) {
            Ok(input) => Ok((input, place.to_string())),
            Err(error) => Err(Failure::message(Exit::LocalIo, format_args!("cannot read {place}: {error}"))),
        };
        places.iter().map(open).collect()
    }

    /// Ends all sessions as if the inputs had ended.
    pub fn stop(&self) {
        self.over.send_replace(true);
    }

    /// The event for programs that says what came in and was sent so far.
    pub fn event(&self) -> Event<'static> {
        Event::Sent(self.counts())
    }

    fn counts(&self) -> Sent {
        let connections = self.feed.connections();
        let now: u64 = connections.iter().map(|connection| connection.stats().bytes.wire_sent).sum();
        let (wire, played) = *self.past.lock().unwrap_or_else(PoisonError::into_inner);
        Sent::new(self.feed.taken(), connections.len(), wire + now, played)
    }

    /// Connects, and again whenever the connection is lost, until the inputs end.
    ///
    /// # Errors
    /// See [`Dialer::run`].
    pub async fn dial(&self, dialer: &Dialer) -> Result<(), Failure> {
        let session = async |connection: &Connection, stream: Stream, latency: Duration| {
            self.session(connection, stream, latency).await
        };
        dialer.run(Side::Sends, &self.over, || self.tell(), session).await
    }

    /// Accepts receivers until the inputs end and all sessions with them.
    ///
    /// # Errors
    /// The endpoint has stopped.
    pub async fn listen(self: &Arc<Self>, endpoint: &Endpoint, config: &Config) -> Result<(), Failure> {
        let mut sessions = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = unless(&self.over, endpoint.accept()) => accepted,
                Some(_) = sessions.join_next() => continue,
            };
            let Some(accepted) = accepted else { break };
            let connection = accepted.or_exit(Exit::Other)?;
            let (sender, latency) = (Arc::clone(self), super::asked(config));
            sessions.spawn(async move { sender.serve(&connection, latency).await });
        }
        while sessions.join_next().await.is_some() {}
        Ok(())
    }

    async fn serve(&self, connection: &Connection, latency: Duration) {
        let (begun, peer) = (Instant::now(), connection.remote().to_string());
        self.console.event(&Common::Connected { peer: peer.clone() });
        let ended = match meeting::answer(connection, Side::Sends, latency).await {
            Ok((stream, latency)) => self.session(connection, stream, latency).await,
            Err(why) => Err(why),
        };
        if let Err(reason) = ended {
            self.console.event(&Event::Lost { peer: &peer, reason: reason.clone() });
            self.console.warn(&format!("{peer} is gone: {reason}"));
        }
        connection.close(DONE, "");
        self.tell();
        let stats = connection.stats();
        self.console.summary(&report::summary(&stats, Role::Sender, stats.bytes.app_sent, begun.elapsed()));
    }

    /// Sends to a receiver until the inputs end and it has reported. The error says why that did not happen.
    async fn session(&self, connection: &Connection, mut stream: Stream, latency: Duration) -> Result<(), String> {
        let name = self.feed.attach(connection, latency).map_err(|error| error.to_string())?;
        let peer = connection.remote().to_string();
        self.console.say(&format!("sending to {peer}, which plays out {} ms later", latency.as_millis()));
        self.console.event(&Event::Session { peer: &peer, latency_ms: 1e3 * latency.as_secs_f64() });
        let lost = unless(&self.over, async {
            tokio::select! {
                reason = connection.closed() => reason,
                never = self.advise(connection, &peer) => never,
            }
        })
        .await;
        let sent = self.feed.detach(name);
        let report = match lost {
            None => timeout(latency + CLOSE_WAIT, finish(&mut stream, &sent)).await.ok().and_then(Result::ok),
            Some(_) => None,
        };
        self.end(connection, report.unwrap_or_default());
        match lost {
            Some(reason) => Err(reason.to_string()),
            None if report.is_none() => Err("it did not report what it played out".into()),
            None => Ok(()),
        }
    }

    /// Reports the bitrate that an encoder may have for this receiver, for ever.
    async fn advise<T>(&self, connection: &Connection, peer: &str) -> T {
        let (mut target, mut ticks) = (Target::default(), tokio::time::interval(REVIEW));
        loop {
            ticks.tick().await;
            let stats = connection.stats();
            let bytes = &stats.bytes;
            let queueing = connection.rtt().saturating_sub(stats.rtt.least);
            if let Some(bitrate_bps) = target.review(stats.rate.pacing_bps, queueing, bytes.wire_sent, bytes.app_sent) {
                self.console.event(&Event::Target { peer, bitrate_bps });
            }
        }
    }

    /// Keeps the figures of a session that has ended.
    fn end(&self, connection: &Connection, Played { played, missing, late }: Played) {
        let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        past.0 += connection.stats().bytes.wire_sent;
        past.1.played += played;
        past.1.missing += missing;
        past.1.late += late;
    }

    fn tell(&self) {
        self.console.event(&self.event());
        self.console.say(&self.counts().sentence());
    }
}

/// Tells the receiver that nothing follows, and waits for what it played out.
async fn finish(stream: &mut Stream, sent: &[u64]) -> std::io::Result<Played> {
    write_end(stream, sent).await?;
    stream.shutdown().await?;
    read_played(stream).await
}
