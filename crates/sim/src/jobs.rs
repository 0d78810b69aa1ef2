//! Coding jobs in virtual time: results arrive late and in any order, as from worker threads.
//!
//! [`crate::pair::Pair`] takes the jobs of both endpoints. Each job runs at once, and its result is held back
//! for a random time.

use core::time::Duration;
use std::collections::BTreeMap;

use tidewire_proto::Time;
use tidewire_proto::connection::JobDone;
use tidewire_proto::endpoint::ConnectionHandle;

use crate::link::random::{Purpose, Stream};
use crate::pair::End;

/// Results that are held back.
#[derive(Debug)]
pub(crate) struct Jobs {
    random: Stream,
    /// The longest time that a result is held back.
    most: Duration,
    /// Keyed by the time at which they are due, and a serial number.
    held: BTreeMap<(Time, u64), (End, ConnectionHandle, JobDone)>,
    count: u64,
}

impl Jobs {
    /// Holds back each result for at most `most`.
    pub fn new(seed: u64, most: Duration) -> Self {
        Self { random: Stream::new(seed, Purpose::Job), most, held: BTreeMap::new(), count: 0 }
    }

    /// Takes a result.
    pub fn hold(&mut self, now: Time, result: (End, ConnectionHandle, JobDone)) {
        let due = now + Duration::from_nanos(self.random.up_to(self.count, self.most));
        self.held.insert((due, self.count), result);
        self.count += 1;
    }

    /// The next result of `end` that is due.
    pub fn poll(&mut self, now: Time, end: End) -> Option<(ConnectionHandle, JobDone)> {
        let mut due = self.held.range(..=(now, u64::MAX));
        let key = *due.find(|(_, (of, ..))| *of == end)?.0;
        self.held.remove(&key).map(|(_, handle, done)| (handle, done))
    }

    /// When the next result is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.held.first_key_value().map(|(&(at, _), _)| at)
    }

    /// Drops the results of `end`, whose process has ended.
    pub fn forget(&mut self, end: End) {
        self.held.retain(|_, (of, ..)| *of != end);
    }

    /// Number of results held back so far.
    pub fn count(&self) -> u64 {
        self.count
    }
}
