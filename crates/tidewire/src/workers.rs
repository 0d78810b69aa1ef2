//! The threads that run the coding jobs of a shard.
//!
//! The driver owns them: it moves jobs from the endpoint into their rings ([`Workers::feed`]) whenever it has
//! the lock, and its end ends them. A worker applies its result itself, under the lock of the shard, and
//! wakes the driver, which then sends, tells events and hands out more. Invariants: a ring holds [`RING`]
//! jobs at most, and one more waits in the driver; all others stay in their connections. The jobs of a
//! generation go to one worker, as long as it is among the last [`HOMES`]. No thread outlives its driver.

use std::collections::VecDeque;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, PoisonError};

use tidewire_proto::connection::Job;
use tidewire_proto::endpoint::ConnectionHandle;

use crate::shared::Shared;
use crate::sync::{Condvar, Mutex, MutexGuard, thread};

/// Jobs that wait for one worker, at most. Chosen: a worker that has a few never runs dry while the driver
/// sends a batch, and the symbols that the jobs keep alive are those of some generations.
const RING: usize = 8;
/// Generations whose worker is remembered. Chosen: a lane has a few generations open at a time.
const HOMES: usize = 64;

/// A job, and whose it is.
pub(crate) type Work = (ConnectionHandle, Job);
/// A generation: its connection, its lane, its first symbol.
type Generation = (ConnectionHandle, (u32, u64));

/// See the module.
pub(crate) struct Workers {
    pool: Arc<Pool>,
    /// A job whose worker had no room.
    next: Option<Work>,
    threads: Vec<thread::JoinHandle<()>>,
}

/// What the driver and the threads share.
struct Pool {
    rings: Mutex<Rings>,
    /// One for each worker: its ring has a job, or there will be none any more.
    filled: Box<[Condvar]>,
}

struct Rings {
    rings: Box<[Ring]>,
    /// Generations and their workers, the oldest first.
    homes: VecDeque<(Generation, usize)>,
    over: bool,
}

#[derive(Default)]
struct Ring {
    waiting: VecDeque<Work>,
    /// Products of the jobs that wait or run.
    products: usize,
}

impl Workers {
    /// Starts so many threads for the shard.
    pub fn start(count: u16, shared: &Arc<Shared>) -> io::Result<Self> {
        let count = usize::from(count);
        let rings = (0..count).map(|_| Ring::default()).collect();
        let rings = Mutex::new(Rings { rings, homes: VecDeque::new(), over: false });
        let pool = Arc::new(Pool { rings, filled: (0..count).map(|_| Condvar::new()).collect() });
        let mut workers = Self { pool, next: None, threads: Vec::with_capacity(count) };
        for index in 0..count {
            let (pool, shared) = (Arc::clone(&workers.pool), Arc::clone(shared));
            let thread = thread::Builder::new().name(format!("tidewire-{index}"));
            workers.threads.push(thread.spawn(move || pool.work(index, &shared))?);
        }
        Ok(workers)
    }

    /// Gives the workers as many of the jobs as they have room for.
    pub fn feed(&mut self, mut poll: impl FnMut() -> Option<Work>) {
        if self.threads.is_empty() {
            return;
        }
        while let Some(work) = self.next.take().or_else(&mut poll) {
            self.next = self.pool.give(work).err();
            if self.next.is_some() {
                return;
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let waiting = {
            let mut rings = self.pool.lock();
            rings.over = true;
            rings.rings.iter_mut().map(|ring| core::mem::take(&mut ring.waiting)).collect::<Vec<_>>()
        };
        drop(waiting);
        self.pool.filled.iter().for_each(Condvar::notify_one);
        for thread in self.threads.drain(..) {
            // A panic outside of a job was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Rings> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a job into the ring of its generation's worker, else into that of the worker with the least to
    /// do. Gives it back where that has no room.
    fn give(&self, work: Work) -> Result<(), Work> {
        let generation = (work.0, work.1.generation());
        let mut rings = self.lock();
        let home = rings.homes.iter().find(|(known, _)| *known == generation).map(|&(_, home)| home);
        let index = match home {
            Some(home) => home,
            None => rings.least_loaded(),
        };
        let Some(ring) = rings.rings.get_mut(index).filter(|ring| ring.waiting.len() < RING) else { return Err(work) };
        ring.products += work.1.products();
        ring.waiting.push_back(work);
        if home.is_none() {
            if rings.homes.len() == HOMES {
                rings.homes.pop_front();
            }
            rings.homes.push_back((generation, index));
        }
        drop(rings);
        self.filled[index].notify_one();
        Ok(())
    }

    /// The life of a worker.
    fn work(&self, index: usize, shared: &Shared) {
        while let Some((handle, job)) = self.take(index) {
            let products = job.products();
            let done = panic::catch_unwind(AssertUnwindSafe(|| job.run()));
            self.lock().rings[index].products -= products;
            // A panic was reported when it happened.
            shared.handle_job(handle, done.ok());
        }
    }

    /// The next job of a worker; `None` when there will be none.
    fn take(&self, index: usize) -> Option<Work> {
        let mut rings = self.lock();
        loop {
            if rings.over {
                return None;
            }
            if let Some(work) = rings.rings[index].waiting.pop_front() {
                return Some(work);
            }
            rings = self.filled[index].wait(rings).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Rings {
    fn least_loaded(&self) -> usize {
        (0..self.rings.len()).min_by_key(|&index| self.rings[index].products).unwrap_or(0)
    }
}
