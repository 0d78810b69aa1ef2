//! The outputs of a receiver: a thread that writes each datagram when it is due.
//!
//! [`super::receiver`] puts in what arrives. The thread sleeps until the next datagram is due, by a timer of
//! the kernel and not by that of the runtime, whose resolution is a millisecond. Invariant: the thread alone
//! writes, so datagrams leave in the order of their times.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tidewire_figures::{Delay, Delays};
use tidewire_proxy::punctual::be_prompt;
use tokio::sync::Notify;

use super::counts::Received;
use super::place::Place;
use super::playout::{Due, Playout};
use super::sink::{NotWritten, Sink};
use super::wire::{Head, Played};

/// The outputs; see the module. Clones share them.
#[derive(Clone, Debug)]
pub struct Output(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    start: Instant,
    state: Mutex<State>,
    changed: Condvar,
    /// Told when nothing waits any more, or when there is news.
    idle: Notify,
}

#[derive(Debug, Default)]
struct State {
    playout: Option<Playout>,
    /// Counts of the sessions before.
    before: Played,
    jumps_before: u64,
    bytes: u64,
    refused: u64,
    delays: Delays,
    jitter: Delays,
    failure: Option<io::Error>,
    /// What has to be named, by the name of the output.
    refusals: BTreeMap<String, io::Error>,
}

/// What an output has to say.
#[derive(Debug)]
pub enum News {
    /// It is over.
    Failed(io::Error),
    /// The system refuses its datagrams, and it goes on.
    Refused { name: String, error: io::Error },
}

impl Output {
    /// Opens the outputs of all programs, and starts the thread.
    ///
    /// # Errors
    /// A file cannot be made, or an address cannot be sent to.
    pub fn open<'a>(places: impl IntoIterator<Item = &'a Place>) -> io::Result<Self> {
        Self::start(places.into_iter().map(Sink::open).collect::<io::Result<Vec<_>>>()?)
    }

    /// Starts the thread with an output for each program.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn start(sinks: Vec<Sink>) -> io::Result<Self> {
        let (start, state) = (Instant::now(), Mutex::default());
        let output = Self(Arc::new(Shared { start, state, changed: Condvar::new(), idle: Notify::new() }));
        let shared = Arc::clone(&output.0);
        thread::Builder::new().name("output".into()).spawn(move || shared.play(sinks))?;
        Ok(output)
    }

    /// Begins a session. What waits of the session before is not played out.
    pub(crate) fn begin(&self, latency: Duration) {
        let micros = i64::try_from(latency.as_micros()).unwrap_or(i64::MAX / 4);
        let mut state = self.0.state();
        state.leave();
        state.playout = Some(Playout::new(micros));
        self.0.changed.notify_one();
    }

    /// Takes messages that arrived now.
    pub(crate) fn put<'a>(&self, messages: impl Iterator<Item = &'a [u8]>) {
        let now = self.0.now();
        let mut state = self.0.state();
        if let Some(playout) = &mut state.playout {
            messages.filter_map(Head::parse).for_each(|(head, datagram)| playout.push(now, head, datagram));
        }
        self.0.changed.notify_one();
    }

    /// Ends the session after the sender has told how many datagrams of each program it sent, when all that
    /// wait have left. Returns its counts.
    pub(crate) async fn finish(&self, sent: &[u64]) -> Played {
        loop {
            let idle = self.0.idle.notified();
            {
                let mut state = self.0.state();
                let is_over = state.failure.is_some();
                let Some(playout) = &mut state.playout else { return Played::default() };
                if playout.is_empty() || is_over {
                    playout.finish(sent);
                    let counts = playout.counts();
                    state.leave();
                    return counts;
                }
            }
            idle.await;
        }
    }

    /// What was played out so far.
    pub(crate) fn counts(&self) -> Received {
        let state = self.0.state();
        let now = state.playout.as_ref().map(Playout::counts).unwrap_or_default();
        let Played { played, missing, late } = state.before.plus(now);
        Received {
            packets: played,
            bytes: state.bytes,
            missing,
            late,
            refused: state.refused,
            jumps: state.jumps_before + state.playout.as_ref().map_or(0, Playout::jumps),
            delay_ms: Delay::from(&state.delays.beyond(0)),
            jitter_ms: Delay::from(&state.jitter.beyond(0)),
        }
    }

    /// Waits for news of an output.
    pub(crate) async fn news(&self) -> News {
        loop {
            let idle = self.0.idle.notified();
            {
                let mut state = self.0.state();
                if let Some(error) = state.failure.take() {
                    return News::Failed(error);
                }
                if let Some((name, error)) = state.refusals.pop_first() {
                    return News::Refused { name, error };
                }
            }
            idle.await;
        }
    }
}

impl State {
    /// Adds the counts of the session to those before, and ends it.
    fn leave(&mut self) {
        if let Some(playout) = self.playout.take() {
            self.before = self.before.plus(playout.counts());
            self.jumps_before += playout.jumps();
        }
    }
}

impl Shared {
    /// Writes datagrams when they are due, until an output fails.
    fn play(&self, mut sinks: Vec<Sink>) {
        be_prompt();
        let mut state = self.state();
        loop {
            let now = self.now();
            let Some(due) = state.playout.as_mut().and_then(|playout| playout.pop(now)) else {
                let next = state.playout.as_ref().and_then(Playout::next_due);
                if next.is_none() {
                    self.idle.notify_waiters();
                }
                let wait = next.map_or(LONGEST_WAIT, |due| Duration::from_micros((due - now).max(0).unsigned_abs()));
                let waited = self.changed.wait_timeout(state, wait);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            };
            drop(state);
            let sink = sinks.get_mut(usize::from(due.program));
            let written = sink.map_or(Ok(()), |sink| sink.write(&due.data).map_err(|error| (sink.name(), error)));
            let left = self.now();
            state = self.state();
            state.on_left(&due, left);
            let Err((name, not_written)) = written else { continue };
            match not_written {
                NotWritten::Refused(named) => {
                    state.refused += 1;
                    let Some(error) = named else { continue };
                    state.refusals.insert(name.to_owned(), error);
                    self.idle.notify_waiters();
                }
                NotWritten::Failed(error) => {
                    state.failure = Some(error);
                    self.idle.notify_waiters();
                    // A waiter may register after this; it looks at the failure first.
                    return;
                }
            }
        }
    }

    /// Microseconds since the start.
    fn now(&self) -> i64 {
        i64::try_from(self.start.elapsed().as_micros()).unwrap_or(i64::MAX)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn on_left(&mut self, due: &Due, left: i64) {
        self.bytes += due.data.len() as u64;
        self.delays.record(1_000 * (left - due.sent));
        self.jitter.record(1_000 * (left - due.at));
    }
}

/// The thread looks again after this time where nothing waits. Chosen: any will do, because it is told of
/// news.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
