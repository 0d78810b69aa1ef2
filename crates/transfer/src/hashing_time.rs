//! How much time a receiver spends on hashes that a peer orders with few bytes.
//!
//! A ZEROS record has nine bytes and costs the receiver the hash of up to 256 KiB. The hash of a chunk of
//! zeros depends on its place in the file, so no table of hashes serves all files. A CLAIM has 50 bytes and
//! costs the hash of a file that stands. Therefore all sessions of a [`Destination`](super::Destination)
//! share a budget of time for each of the two: each step takes a [`Turn`], in the order in which they ask,
//! and waits for it without a thread. Invariant: over any time the hashes take at most their part of one
//! core, and what may be owed.

use std::time::{Duration, Instant};

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::sleep;

/// What hashes may cost.
#[derive(Clone, Copy, Debug)]
struct Terms {
    /// They take one of this many parts of the time.
    part: u32,
    /// Time that may be owed.
    ahead: Duration,
}

/// Holes. The part is chosen: a sender that reads and hashes its holes is slower than a quarter of a core
/// (`docs/transfer.md` section 4). The time is chosen: a file with holes of a gigabyte waits for nothing.
const HOLES: Terms = Terms { part: 4, ahead: Duration::from_secs(1) };
/// Claims. Chosen: 30 s of hashing, which are about 30 GB from a fast disk, wait for nothing; then an honest
/// sender, which hashes as much, is held up by a factor of two.
const CLAIMS: Terms = Terms { part: 2, ahead: Duration::from_secs(60) };
/// A session rests for at least this time. Chosen: ten times the unit of the timer.
const REST: Duration = Duration::from_millis(10);

/// The time for one kind of hashes; see the module.
#[derive(Debug)]
pub(super) struct HashingTime(Mutex<Budget>);

impl HashingTime {
    pub(super) fn for_holes(now: Instant) -> Self {
        Self(Mutex::new(Budget { terms: HOLES, free: now }))
    }

    pub(super) fn for_claims(now: Instant) -> Self {
        Self(Mutex::new(Budget { terms: CLAIMS, free: now }))
    }

    /// Waits until a step may be hashed.
    pub(super) async fn turn(&self) -> Turn<'_> {
        let budget = self.0.lock().await;
        let rest = budget.rest(Instant::now());
        if !rest.is_zero() {
            sleep(rest).await;
        }
        Turn(budget)
    }
}

/// One step may be hashed.
#[derive(Debug)]
pub(super) struct Turn<'a>(MutexGuard<'a, Budget>);

impl Turn<'_> {
    /// Does the work, and counts the time that it takes.
    pub(super) fn spend<T>(mut self, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = work();
        self.0.spend(began, began.elapsed());
        done
    }
}

/// When the time that was spent so far is paid for.
#[derive(Debug)]
struct Budget {
    terms: Terms,
    free: Instant,
}

impl Budget {
    /// How long to rest at `now`.
    fn rest(&self, now: Instant) -> Duration {
        let owed = self.free.saturating_duration_since(now);
        if owed > self.terms.ahead { owed - self.terms.ahead + REST } else { Duration::ZERO }
    }

    /// Called after work that took this time.
    fn spend(&mut self, began: Instant, time: Duration) {
        self.free = self.free.max(began) + self.terms.part * time;
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::Poll;

    use tokio::io::duplex;

    use crate::{Attributes, Destination, Encoding, Entry, Event, Key, Kind, Look, Record, RecordWriter, receive};

    use super::*;

    /// Bytes of a hole that a receiver takes without waiting, if this much time is owed.
    async fn taken(owed: Duration) -> u64 {
        let folder = tempfile::tempdir().unwrap();
        let destination = Destination::open(folder.path()).unwrap();
        destination.holes().0.lock().await.free = Instant::now() + owed;
        let (near, far) = duplex(1 << 20);
        let mut records = RecordWriter::open(near).await.unwrap();
        let path = b"holes".to_vec();
        let (id, size, source) = (0, 1 << 17, Key::of_path(&path));
        let look = Look { id, kind: Kind::File, encoding: Encoding::Utf8, size, source, path };
        let entry = Entry { id, attributes: Attributes::default(), size, offset: 0, source };
        let total = Record::Total { files: 1, bytes: size, job: Key::default() };
        for record in [total, Record::Look(look), Record::Entry(entry), Record::Zeros(1 << 17)] {
            records.write(&record).await.unwrap();
        }
        let taken = AtomicU64::new(0);
        let watch = |event: Event<'_>| {
            if let Event::Bytes(bytes) = event {
                taken.fetch_add(bytes, Ordering::Relaxed);
            }
        };
        let mut receive = pin!(receive(far, &destination, None, &watch));
        for _ in 0..100 {
            poll_fn(|cx| Poll::Ready(receive.as_mut().poll(cx).is_ready())).await;
        }
        taken.load(Ordering::Relaxed)
    }

    #[test]
    fn a_record_of_zeros_waits_until_the_ones_before_are_paid_for() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
        let hour = Duration::from_secs(3_600);
        assert_eq!(runtime.block_on(async { (taken(HOLES.ahead / 2).await, taken(hour).await) }), (1 << 17, 0));
    }

    /// Works without an end, in steps of this time. Returns the time that was spent on work.
    fn worked(terms: Terms, step: Duration, during: Duration) -> Duration {
        let began = Instant::now();
        let mut budget = Budget { terms, free: began };
        let (mut now, mut spent) = (began, Duration::ZERO);
        while now < began + during {
            now += budget.rest(now);
            budget.spend(now, step);
            (now, spent) = (now + step, spent + step);
        }
        spent
    }

    #[test]
    fn hashes_take_their_part_of_the_time() {
        let long = Duration::from_secs(600);
        for terms in [HOLES, CLAIMS] {
            for step in [30, 2_000, 30_000].map(Duration::from_micros) {
                let spent = worked(terms, step, long);
                assert!(spent <= (long + terms.ahead) / terms.part + 2 * step, "{spent:?} in steps of {step:?}");
                assert!(spent >= long / terms.part, "{spent:?} in steps of {step:?}");
            }
        }
    }

    #[test]
    fn what_comes_seldom_waits_for_nothing() {
        let began = Instant::now();
        let mut budget = Budget { terms: HOLES, free: began };
        for second in 0..100 {
            let now = began + Duration::from_secs(second);
            assert_eq!(budget.rest(now), Duration::ZERO);
            budget.spend(now, Duration::from_millis(250));
        }
        // What was not used long ago is not kept.
        let later = began + Duration::from_secs(1_000);
        budget.spend(later, Duration::from_millis(500));
        assert_eq!(budget.rest(later), Duration::from_secs(1) + REST);
    }
}
