//! What one side of a bench has carried so far: the summary of a run that ends early.
//!
//! The client and the server note it while they run, and the verb asks for it when a run has failed. A run
//! that ends well has a better summary, which has the figures of both sides.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidewire::Connection;
use tidewire_command::report::{self, Role, Summary};

use super::Interval;

/// Bytes of records so far.
#[derive(Debug, Default)]
pub struct SoFar {
    sends: AtomicBool,
    /// Whether this side learns what arrives: everywhere but at a server that sends.
    is_told: AtomicBool,
    bytes: AtomicU64,
}

impl SoFar {
    /// The run begins. `sends` says whether this side makes the records, `is_told` whether it learns what
    /// arrives.
    pub(super) fn begin(&self, sends: bool, is_told: bool) {
        self.sends.store(sends, Ordering::Relaxed);
        self.is_told.store(is_told, Ordering::Relaxed);
    }

    /// Records arrived, here or at the peer.
    pub(super) fn add(&self, interval: &Interval) {
        self.bytes.fetch_add(interval.bytes, Ordering::Relaxed);
    }

    /// The summary of a run that ends early, `elapsed` after its connection was made. A side that is not told
    /// counts what it wrote.
    pub fn summary(&self, connection: &Connection, elapsed: Duration) -> Summary {
        let (sends, is_told) = (self.sends.load(Ordering::Relaxed), self.is_told.load(Ordering::Relaxed));
        let stats = connection.stats();
        let bytes = if sends && !is_told { stats.bytes.app_sent } else { self.bytes.load(Ordering::Relaxed) };
        report::summary(&stats, if sends { Role::Sender } else { Role::Receiver }, bytes, elapsed)
    }
}
