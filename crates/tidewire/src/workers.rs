//! The threads that run the coding jobs of a shard.
//!
//! The driver owns them. Whenever it has the lock, it moves jobs from the endpoint into the workers' rings
//! ([`Workers::feed`]). When the driver ends, the threads end. A worker applies its result itself, under the
//! lock of the shard, and wakes the driver, which then sends, hands out events and feeds more jobs.
//!
//! Invariants: a ring holds at most [`RING`] jobs, and one more waits in the driver. All others stay in their
//! connections. The jobs of a generation go to one worker as long as the generation is among the last
//! [`HOMES`]. No thread outlives its driver.

use std::collections::VecDeque;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, PoisonError};

use tidewire_proto::connection::Job;
use tidewire_proto::endpoint::ConnectionHandle;

use crate::shared::Shared;
use crate::sync::{Condvar, Mutex, MutexGuard, thread};

/// Maximum number of jobs that wait for one worker. Chosen: a worker with a few jobs does not run dry while
/// the driver sends a batch, and the symbols that these jobs keep alive are those of a few generations.
const RING: usize = 8;
/// Number of generations whose worker is remembered. Chosen: a lane has a few generations open at a time.
const HOMES: usize = 64;

/// A job and its connection.
pub(crate) type Work = (ConnectionHandle, Job);
/// A generation: its connection, its lane and its first symbol.
type Generation = (ConnectionHandle, (u32, u64));

/// The workers of a shard; see the module.
pub(crate) struct Workers {
    pool: Arc<Pool>,
    /// A job whose worker had no room.
    next: Option<Work>,
    threads: Vec<thread::JoinHandle<()>>,
}

/// State that the driver and the threads share.
struct Pool {
    rings: Mutex<Rings>,
    /// One for each worker: notified when its ring has a job, or when there will be no more jobs.
    filled: Box<[Condvar]>,
}

struct Rings {
    rings: Box<[Ring]>,
    /// Generations and their workers, oldest first.
    homes: VecDeque<(Generation, usize)>,
    over: bool,
}

#[derive(Default)]
struct Ring {
    waiting: VecDeque<Work>,
    /// Number of products of the jobs that wait or run.
    products: usize,
}

impl Workers {
    /// Starts `count` threads for the shard.
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

    /// Gives the workers as many jobs as they have room for.
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

    /// Puts a job into the ring of its generation's worker, or else into that of the worker with the least
    /// work. Gives the job back if that ring is full.
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

    /// Runs a worker until there are no more jobs.
    fn work(&self, index: usize, shared: &Shared) {
        while let Some((handle, job)) = self.take(index) {
            let products = job.products();
            let done = panic::catch_unwind(AssertUnwindSafe(|| job.run()));
            self.lock().rings[index].products -= products;
            // A panic was reported when it happened.
            shared.handle_job(handle, done.ok());
        }
    }

    /// The next job of a worker; `None` if there will be none.
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
