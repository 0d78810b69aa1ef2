//! CoDel (RFC 8289): decides which packets of a queue to drop or mark, from the time that they waited.
//!
//! Each flow of [`super::queue`] has one. Time is passed in. Invariant: while packets wait shorter than the
//! target, none is dropped.

use std::time::{Duration, Instant};

/// Acceptable waiting time (RFC 8289 section 4.4).
const TARGET: Duration = Duration::from_millis(5);
/// Waiting times above the target are acceptable for this long: the longest usual round trip (RFC 8289
/// section 4.3).
const INTERVAL: Duration = Duration::from_millis(100);
/// A new series of drops within this many intervals continues at the rate of the last one (RFC 8289 section
/// 5.5).
const MEMORY: u32 = 16;

/// The state of one flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Codel {
    /// When waiting times will have been above the target for an interval, if they are above it.
    above_until: Option<Instant>,
    /// When the next packet is due to be dropped, while a series of drops lasts.
    next_drop: Option<Instant>,
    /// Drops of this series, and of the one before.
    count: u32,
    last_count: u32,
    /// When the last series had its next drop due.
    ended: Option<Instant>,
}

impl Codel {
    /// Whether to drop or mark the packet that leaves the queue now. `waited` is its time in the queue.
    /// `is_last` says that no more than one packet stays behind it; RFC 8289 then drops nothing, because a
    /// shorter queue would idle the link.
    pub fn drops(&mut self, now: Instant, waited: Duration, is_last: bool) -> bool {
        let is_high = self.is_high(now, waited, is_last);
        match self.next_drop {
            Some(_) if !is_high => {
                (self.ended, self.next_drop) = (self.next_drop, None);
                false
            }
            Some(due) if now >= due => {
                self.count += 1;
                self.next_drop = Some(due + self.spacing());
                true
            }
            None if is_high => {
                let is_recent =
                    self.ended.is_some_and(|ended| now.saturating_duration_since(ended) < INTERVAL * MEMORY);
                let added = self.count - self.last_count;
                self.count = if is_recent && added > 1 { added } else { 1 };
                self.last_count = self.count;
                self.next_drop = Some(now + self.spacing());
                true
            }
            _ => false,
        }
    }

    /// Whether waiting times have been above the target for an interval.
    fn is_high(&mut self, now: Instant, waited: Duration, is_last: bool) -> bool {
        if waited < TARGET || is_last {
            self.above_until = None;
            return false;
        }
        now >= *self.above_until.get_or_insert(now + INTERVAL)
    }

    /// The control law: drops of a series come ever closer (RFC 8289 section 5.4).
    fn spacing(&self) -> Duration {
        INTERVAL.div_f64(f64::from(self.count).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Times in milliseconds at which packets that all waited for `waited` are dropped.
    fn drops(waited: Duration, ms: std::ops::Range<u32>, codel: &mut Codel, start: Instant) -> Vec<u32> {
        ms.filter(|&ms| codel.drops(start + MS * ms, waited, false)).collect()
    }

    #[test]
    fn a_queue_below_the_target_loses_nothing() {
        let mut codel = Codel::default();
        assert!(drops(MS * 4, 0..10_000, &mut codel, Instant::now()).is_empty());
    }

    #[test]
    fn drops_begin_after_an_interval_and_come_closer() {
        let mut codel = Codel::default();
        // 100 ms above the target, then after 100, 100/sqrt(2), 100/sqrt(3) and 100/sqrt(4) ms.
        assert_eq!(drops(MS * 6, 0..450, &mut codel, Instant::now()), [100, 200, 271, 329, 379, 424]);
    }

    #[test]
    fn a_short_burst_and_the_last_packet_pass() {
        let (mut codel, start) = (Codel::default(), Instant::now());
        assert!(drops(MS * 50, 0..99, &mut codel, start).is_empty());
        assert!(!codel.drops(start + MS * 100, MS, false));
        assert!(drops(MS * 50, 101..200, &mut codel, start).is_empty());
        assert!(!codel.drops(start + MS * 300, MS * 50, true));
    }

    #[test]
    fn a_series_that_follows_soon_continues_at_its_rate() {
        let (mut codel, start) = (Codel::default(), Instant::now());
        let first = drops(MS * 6, 0..1_000, &mut codel, start).len() as u32;
        assert!(!codel.drops(start + MS * 1_000, MS, false));
        let second = drops(MS * 6, 1_001..1_401, &mut codel, start);
        // One interval until the first drop; then the spacing is that of the end of the first series.
        assert_eq!(second.first(), Some(&1_101));
        assert!(second[1] - second[0] <= 100 / (first - 1).isqrt() + 1, "{second:?}");
    }
}
