//! Decides when a part is flushed while it is written, so that a later session can continue there.
//!
//! A flush takes the disk some milliseconds, so a sender must pay for it. A group of zeros costs a sender
//! only 181 bytes on the wire and earns no flush. Invariant: between two flushes of a part the sender has
//! sent 4 MiB of bytes, or a second has passed.

use std::time::{Duration, Instant};

use super::tree::GROUP;

/// Longest time that complete groups wait for a flush. Chosen: the time that a kill costs a file with holes,
/// at one flush per second and part.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Bytes written since the last flush.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unflushed {
    since: Instant,
    bytes: u64,
}

impl Unflushed {
    /// Nothing yet.
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, bytes: 0 }
    }

    /// Called when bytes were written. Bytes of a hole do not count.
    pub(super) fn on_written(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Whether to flush now, at the end of a group. The count then starts again.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let due = self.bytes >= GROUP || now.saturating_duration_since(self.since) >= LONGEST_WAIT;
        if due {
            *self = Self::new(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_is_paid_for_by_bytes_or_time() {
        let begin = Instant::now();
        let mut unflushed = Unflushed::new(begin);
        // 100,000 groups of zeros within a second earn no flush; each costs 181 bytes on the wire.
        let flushes = (0..100_000).filter(|index| unflushed.is_due(begin + *index * LONGEST_WAIT / 100_001)).count();
        assert_eq!(flushes, 0);
        // Every group of bytes earns a flush, and half a group does not.
        unflushed.on_written(GROUP);
        assert!(unflushed.is_due(begin));
        unflushed.on_written(GROUP / 2);
        assert!(!unflushed.is_due(begin));
        unflushed.on_written(GROUP / 2);
        assert!(unflushed.is_due(begin));
        assert!(unflushed.is_due(begin + LONGEST_WAIT));
        assert!(!unflushed.is_due(begin + LONGEST_WAIT + LONGEST_WAIT / 2));
    }
}
