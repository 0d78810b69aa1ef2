//! The cap on proactive repairs, kept in every second, or in every four. [`super::Adaptive`] uses it.
//!
//! In each second that ends with a proactive repair, the number of these repairs is at most `max_overhead`
//! times the number of source symbols. If a second has too few symbols for one repair, one repair is allowed
//! after as many symbols as earn it. Time is counted in parts of a second, and rounding never exceeds the
//! cap.

use crate::Time;

/// Parts of the time in which the cap is kept: a second, or four with important messages ([`LONG`]). When the
/// cap is the limit, rounding costs two parts, which is 3 % of the cap.
const PARTS: usize = 64;
const SECOND: u64 = 1_000_000_000 / PARTS as u64;
/// The same if the lane has important messages, whose repairs are not even. Chosen: four seconds hold two
/// picture groups of the usual length.
const LONG: u64 = 4 * SECOND;

/// Counts of the packets sent in the last second, and up to two parts of a second before it.
#[derive(Debug)]
pub(super) struct Cap {
    /// Source symbols and proactive repairs in each part of a second. The newest part has the number
    /// `newest`.
    parts: [[u32; 2]; PARTS + 1],
    sums: [u32; 2],
    newest: u64,
    /// Length of a part in nanoseconds.
    part: u64,
    /// Repairs earned by the source symbols since the last repair, at most one.
    earned: f64,
}

impl Default for Cap {
    fn default() -> Self {
        Self { parts: [[0; 2]; PARTS + 1], sums: [0; 2], newest: 0, part: SECOND, earned: 0.0 }
    }
}

impl Cap {
    /// Keeps the cap over a longer time from now on.
    pub(super) fn lengthen(&mut self) {
        if self.part != LONG {
            *self = Self { part: LONG, ..Self::default() };
        }
    }

    /// Counts a source symbol that was sent.
    pub(super) fn on_source(&mut self, now: Time, max_overhead: f64) {
        self.count(now, 0);
        self.earned = (self.earned + max_overhead).min(1.0);
    }

    /// Counts a proactive repair that was sent.
    pub(super) fn on_repair(&mut self, now: Time) {
        self.count(now, 1);
        self.earned = 0.0;
    }

    /// Whether one more repair may be sent.
    pub(super) fn allows(&mut self, now: Time, max_overhead: f64) -> bool {
        self.forget(now);
        let [sources, repairs] = self.sums;
        // The second contains only a fraction of the oldest part. To be safe, its repairs count and its
        // symbols do not.
        let oldest = self.parts[self.index(self.newest + 1)][0];
        f64::from(repairs + 1) <= max_overhead * f64::from(sources - oldest) || (repairs == 0 && self.earned >= 1.0)
    }

    /// Number of repairs in the time over which the cap is kept.
    pub(super) fn repairs(&mut self, now: Time) -> u32 {
        self.forget(now);
        self.sums[1]
    }

    fn count(&mut self, now: Time, what: usize) {
        self.forget(now);
        let index = self.index(self.newest);
        self.parts[index][what] += 1;
        self.sums[what] += 1;
    }

    /// Drops the parts that are older than a second.
    fn forget(&mut self, now: Time) {
        let part = now.0 / self.part;
        for number in self.newest + 1..=part.min(self.newest + self.parts.len() as u64) {
            let index = self.index(number);
            let old = core::mem::take(&mut self.parts[index]);
            self.sums = [self.sums[0] - old[0], self.sums[1] - old[1]];
        }
        self.newest = self.newest.max(part);
    }

    fn index(&self, number: u64) -> usize {
        (number % self.parts.len() as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends symbols `gaps` microseconds apart, and after each of them up to two repairs, as far as the cap
    /// allows. Checks every second that ends with a repair.
    fn send(max_overhead: f64, gaps: impl Iterator<Item = u64>) -> (usize, usize) {
        let (mut cap, mut now) = (Cap::default(), Time::from_millis(5));
        let (mut sources, mut repairs) = (Vec::new(), Vec::new());
        for gap in gaps {
            now += core::time::Duration::from_micros(gap);
            cap.on_source(now, max_overhead);
            sources.push(now);
            for _ in 0..2 {
                if !cap.allows(now, max_overhead) {
                    continue;
                }
                cap.on_repair(now);
                repairs.push(now);
                let within = |times: &[Time]| times.iter().rev().take_while(|&&at| now.since(at).as_secs() < 1).count();
                let most = (max_overhead * within(&sources) as f64) as usize;
                assert!(within(&repairs) <= most.max(1), "{} of {}", within(&repairs), within(&sources));
            }
        }
        (sources.len(), repairs.len())
    }

    #[test]
    fn no_second_has_more_than_its_share_and_little_is_left_out() {
        for max_overhead in [0.0, 0.05, 0.15, 0.5, 1.0] {
            let (sources, repairs) = send(max_overhead, (0..20_000).map(|n| 700 + n % 600));
            let share = repairs as f64 / sources as f64;
            assert!(share <= max_overhead && share >= 0.9 * max_overhead, "{share} of {max_overhead}");
        }
    }

    #[test]
    fn bursts_and_pauses_keep_to_it() {
        // Frames of twenty symbols, then a flow that pauses for seconds.
        send(0.3, (0..6_000).map(|n| if n % 20 == 0 { 33_000 } else { 50 }));
        send(0.3, (0..6_000).map(|n| if n % 500 == 0 { 3_000_000 } else { 1_000 }));
    }

    #[test]
    fn a_lane_with_important_messages_may_spend_four_seconds_at_once_and_no_more() {
        let (mut cap, mut sent) = (Cap::default(), 0);
        cap.lengthen();
        // Nothing is wanted for three seconds, and all that is allowed in the fourth and the fifth.
        for n in 0..5_000 {
            let now = Time::from_millis(n);
            cap.lengthen();
            cap.on_source(now, 0.15);
            while n >= 3_000 && cap.allows(now, 0.15) {
                cap.on_repair(now);
                sent += 1;
            }
        }
        assert!((560..=600).contains(&sent), "{sent} of 4,000 symbols in any four seconds");
    }

    #[test]
    fn who_sends_seldom_gets_a_repair_for_as_many_symbols_as_earn_it() {
        let (sources, repairs) = send(0.25, (0..40).map(|_| 1_500_000));
        assert_eq!((sources, repairs), (40, 10));
    }
}
