//! Datagrams that the host of an endpoint has dropped, until connections miss them.
//!
//! The endpoint passes the count to each connection that takes a datagram, which takes off what it misses.
//! Invariant: no drop is reported twice, and none long after it happened.

use core::time::Duration;

use crate::Time;

/// A connection that sends less often than this has hardly a part in what a full socket drops. Chosen.
const LIFE: Duration = Duration::from_secs(1);

/// Dropped datagrams that no connection has missed yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dropped {
    pub count: u64,
    /// When the last of them were reported.
    at: Time,
}

impl Dropped {
    /// The host dropped `count` more before `at`.
    pub(super) fn add(&mut self, at: Time, count: u64) {
        self.forget(at);
        *self = Self { count: self.count.saturating_add(count), at };
    }

    /// Forgets what is older than [`LIFE`].
    pub(super) fn forget(&mut self, now: Time) {
        if now.since(self.at) > LIFE {
            self.count = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_add_up_and_are_forgotten_after_a_second() {
        let mut dropped = Dropped::default();
        let at = |ms| Time::from_millis(ms);
        dropped.add(at(5_000), 3);
        dropped.add(at(6_000), 4);
        dropped.forget(at(7_000));
        assert_eq!(dropped.count, 7);
        dropped.forget(at(7_001));
        assert_eq!(dropped.count, 0);
        dropped.add(at(9_000), u64::MAX);
        dropped.add(at(9_000), 1);
        assert_eq!(dropped.count, u64::MAX);
    }
}
