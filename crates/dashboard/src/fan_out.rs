//! The fan-out: takes events from the drivers of connections and hands them to the consumers in batches.
//!
//! A driver only appends to a bounded buffer under a lock that nobody holds for longer than an append or a
//! swap. A thread swaps the buffer every [`PERIOD`] and offers the batch to the bounded queue of each
//! consumer. A full buffer or queue drops events and counts them; nobody waits for room.

use std::io;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tidewire::trace::{Trace, TraceEvent};
use tidewire::{Log, Time};
use tidewire_proto::endpoint::ConnectionHandle;

use crate::consumer::{Batch, Consumer, ConsumerError, Observed};

/// Time between two batches. Chosen: five batches for each step of a display at 10 Hz, and few wake-ups.
const PERIOD: Duration = Duration::from_millis(20);
/// Most events that wait for the fan-out. Chosen: those of [`PERIOD`] at 1 Gbit/s, ten times (100,000 packets
/// a second, three events each).
const MOST_WAITING: usize = 1 << 16;
/// Most batches that wait for one consumer. Chosen: a consumer may stop for a second, as a disk may.
const MOST_BATCHES: usize = 64;
/// Time that the end of a job waits for its consumers. Chosen: a disk that takes longer is as good as broken.
const PATIENCE: Duration = Duration::from_secs(5);

/// What waits for the fan-out.
#[derive(Debug, Default)]
struct Waiting {
    events: Vec<Observed>,
    dropped: u64,
}

/// What drivers, fan-out and the end of the job share.
#[derive(Debug)]
struct Shared {
    begun: Instant,
    waiting: Mutex<Waiting>,
    endpoints: AtomicU32,
    is_over: AtomicBool,
    log: Option<Log>,
}

impl Shared {
    fn push(&self, observed: Observed) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.events.len() < MOST_WAITING {
            waiting.events.push(observed);
        } else {
            waiting.dropped += 1;
        }
    }

    /// Takes what waits. The new buffer has room for as much, so that no driver allocates in steady state.
    fn swap(&self) -> Batch {
        let len = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).events.len();
        let fresh = Waiting { events: Vec::with_capacity(len + len / 2), dropped: 0 };
        let Waiting { events, dropped } =
            mem::replace(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner), fresh);
        Batch { now: self.begun.elapsed(), events, dropped }
    }
}

/// Takes the name of a consumer that failed, and why.
type Failed = dyn Fn(&str, &ConsumerError) + Send + Sync;

/// The trace of the endpoints of a program; [`Config::with_trace`](tidewire::Config::with_trace) takes it.
#[derive(Clone, Debug)]
pub struct FanOut {
    shared: Arc<Shared>,
    endpoint: u32,
    log: Option<Arc<dyn Trace>>,
    /// From the clock of the endpoint to the time since the job began.
    offset: Duration,
}

impl FanOut {
    /// Starts the fan-out and its consumers. A consumer that fails is told to `failed` once, by its name and
    /// with the reason, on its thread; the others go on.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(
        consumers: Vec<Box<dyn Consumer>>,
        failed: impl Fn(&str, &ConsumerError) + Send + Sync + 'static,
    ) -> io::Result<(Self, Watching)> {
        let failed: Arc<Failed> = Arc::new(failed);
        let log = Log::is_wanted().then(Log::default);
        let shared = Arc::new(Shared {
            begun: Instant::now(),
            waiting: Mutex::default(),
            endpoints: AtomicU32::new(0),
            is_over: AtomicBool::new(false),
            log,
        });
        let mut threads = Vec::new();
        let mut outlets = Vec::new();
        for consumer in consumers {
            let (offer, offered) = sync_channel(MOST_BATCHES);
            outlets.push(Outlet { offer: Some(offer), missed: 0 });
            let failed = Arc::clone(&failed);
            threads.push(thread::Builder::new().spawn(move || consume(consumer, &offered, &*failed))?);
        }
        let of_thread = Arc::clone(&shared);
        let fan_out = thread::Builder::new().spawn(move || hand_out(&of_thread, outlets))?;
        threads.push(fan_out);
        let trace = Self { shared: Arc::clone(&shared), endpoint: 0, log: None, offset: Duration::ZERO };
        Ok((trace, Watching { shared: Some(shared), threads }))
    }
}

impl Trace for FanOut {
    fn of_endpoint(&self, now: Time) -> Option<Arc<dyn Trace>> {
        let endpoint = self.shared.endpoints.fetch_add(1, Ordering::Relaxed);
        let offset = self.shared.begun.elapsed().saturating_sub(now.since(Time::ZERO));
        // A subscriber of `tracing` still gets its log, which a trace otherwise replaces.
        let log = self.shared.log.as_ref().and_then(|log| log.of_endpoint(now));
        Some(Arc::new(Self { shared: Arc::clone(&self.shared), endpoint, log, offset }))
    }

    fn record(&self, now: Time, connection: ConnectionHandle, event: &TraceEvent) {
        if let Some(log) = &self.log {
            log.record(now, connection, event);
        }
        let at = now.since(Time::ZERO) + self.offset;
        self.shared.push(Observed { at, endpoint: self.endpoint, connection, event: event.clone() });
    }
}

/// The queue of one consumer, and what it has missed. There is no queue when the consumer has ended.
struct Outlet {
    offer: Option<SyncSender<(Arc<Batch>, u64)>>,
    missed: u64,
}

impl Outlet {
    fn give(&mut self, batch: &Arc<Batch>) {
        let Some(offer) = &self.offer else { return };
        self.missed += batch.dropped;
        match offer.try_send((Arc::clone(batch), self.missed)) {
            Ok(()) => self.missed = 0,
            Err(TrySendError::Full(_)) => self.missed += batch.events.len() as u64,
            Err(TrySendError::Disconnected(_)) => self.offer = None,
        }
    }
}

/// Hands on batches until the job is over.
fn hand_out(shared: &Shared, mut outlets: Vec<Outlet>) {
    loop {
        // Read before the swap: events before the end are in the last batch.
        let is_over = shared.is_over.load(Ordering::Acquire);
        let batch = Arc::new(shared.swap());
        outlets.iter_mut().for_each(|outlet| outlet.give(&batch));
        if is_over {
            return;
        }
        thread::park_timeout(PERIOD);
    }
}

/// Runs one consumer until the fan-out ends or the consumer fails.
fn consume(mut consumer: Box<dyn Consumer>, offered: &Receiver<(Arc<Batch>, u64)>, failed: &Failed) {
    let taken = offered.iter().try_for_each(|(batch, missed)| consumer.take(&batch, missed));
    if let Err(reason) = taken.and_then(|()| consumer.end()) {
        failed(consumer.name(), &reason);
    }
}

/// The consumers of a running job. Dropping it ends them after they took what happened until then.
#[derive(Debug)]
#[must_use = "dropping it ends the consumers"]
pub struct Watching {
    shared: Option<Arc<Shared>>,
    threads: Vec<JoinHandle<()>>,
}

impl Watching {
    /// The watching of a program that nobody watches.
    pub const fn nothing() -> Self {
        Self { shared: None, threads: Vec::new() }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let Some(shared) = &self.shared else { return };
        shared.is_over.store(true, Ordering::Release);
        if let Some(fan_out) = self.threads.last() {
            fan_out.thread().unpark();
        }
        let until = Instant::now() + PATIENCE;
        while self.threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// Reports each batch, and waits for a permit before it takes one.
    struct Slow {
        permits: Receiver<()>,
        taken: std::sync::mpsc::Sender<(usize, u64)>,
    }

    impl Consumer for Slow {
        fn name(&self) -> &'static str {
            "the test"
        }

        fn take(&mut self, batch: &Batch, missed: u64) -> Result<(), ConsumerError> {
            self.permits.recv()?;
            Ok(self.taken.send((batch.events.len(), missed))?)
        }
    }

    fn shared() -> Shared {
        Shared {
            begun: Instant::now(),
            waiting: Mutex::default(),
            endpoints: AtomicU32::new(0),
            is_over: AtomicBool::new(false),
            log: None,
        }
    }

    fn observed() -> Observed {
        let event = TraceEvent::PacketLost { number: 1, bytes: 1_200, at_own_rate: false };
        Observed { at: Duration::ZERO, endpoint: 0, connection: ConnectionHandle(0), event }
    }

    #[test]
    fn a_full_buffer_drops_and_counts() {
        let shared = shared();
        (0..MOST_WAITING + 7).for_each(|_| shared.push(observed()));
        let batch = shared.swap();
        assert_eq!((batch.events.len(), batch.dropped), (MOST_WAITING, 7));
        let batch = shared.swap();
        assert_eq!((batch.events.len(), batch.dropped), (0, 0));
    }

    #[test]
    fn a_stalled_consumer_misses_batches_and_is_told_how_much() {
        let shared = shared();
        let (offer, offered) = sync_channel(1);
        let mut outlet = Outlet { offer: Some(offer), missed: 0 };
        let give = |events: usize, outlet: &mut Outlet| {
            (0..events).for_each(|_| shared.push(observed()));
            outlet.give(&Arc::new(shared.swap()));
        };
        give(1, &mut outlet);
        give(2, &mut outlet);
        give(3, &mut outlet);
        let (batch, missed) = offered.recv().unwrap();
        assert_eq!((batch.events.len(), missed), (1, 0));
        give(4, &mut outlet);
        let (batch, missed) = offered.recv().unwrap();
        assert_eq!((batch.events.len(), missed), (4, 5));
        drop(offered);
        give(1, &mut outlet);
        assert!(outlet.offer.is_none());
    }

    #[test]
    fn what_happened_before_the_end_is_taken() {
        let ((permit, permits), (taken, batches)) = (channel(), channel());
        let (fan_out, watching) =
            FanOut::start(vec![Box::new(Slow { permits, taken })], |name, why| panic!("{name}: {why}")).unwrap();
        let endpoint = fan_out.of_endpoint(Time::ZERO).unwrap();
        (0..1_000).for_each(|_| permit.send(()).unwrap());
        for number in 0..100 {
            endpoint.record(
                Time::ZERO,
                ConnectionHandle(0),
                &TraceEvent::PacketLost { number, bytes: 1_200, at_own_rate: false },
            );
        }
        drop(watching);
        assert_eq!(batches.iter().map(|(events, missed)| events as u64 + missed).sum::<u64>(), 100);
    }
}
