//! When a part is flushed while it is written, so that a later session can go on from there.
//!
//! A flush costs the disk milliseconds; the sender must pay for it. A group of zeros costs a sender 181 bytes
//! on the wire, and so it earns no flush. Invariant: between two flushes of a part the sender has sent 4 MiB
//! of bytes, or a second has passed.

use std::time::{Duration, Instant};

use super::tree::GROUP;

/// The longest that whole groups wait for a flush. Chosen: what a kill costs of a file with holes, at one
/// flush a second and part.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// What has been written since the last flush.
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

    /// Bytes were written; those that a hole stands for do not count.
    pub(super) fn on_written(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Whether to flush now, which is the end of a group; it then counts from here.
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
        // 100,000 groups of zeros within a second earn none; 181 bytes each on the wire.
        let flushes = (0..100_000).filter(|index| unflushed.is_due(begin + *index * LONGEST_WAIT / 100_001)).count();
        assert_eq!(flushes, 0);
        // Every group of bytes earns one, and half of one does not.
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
