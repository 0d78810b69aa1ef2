//! Moves the sender's stamps to our clock: the least time from a stamp to its arrival, over the last half
//! minute.
//!
//! [`super::playout`] adds it to each stamp. It follows the drift of the clocks slowly, so that the delay of
//! the output stays constant. Invariant: after the first second it moves by at most [`SLEW`] each second,
//! except where a whole second of datagrams came later than the latency allows: then the clock or the path
//! has jumped, and it begins anew.

/// Length of a bucket of arrivals, and of the first adjustment.
const SECOND: i64 = 1_000_000;
/// Seconds over which the least counts. Chosen: queues drain at some moment in that time.
const SECONDS: usize = 30;
/// Microseconds by which it follows in each second. Chosen: clocks drift by 0.05 ms a second at most (quartz
/// of 50 ppm), and an output that moves by 0.2 ms a second has no jitter to speak of.
const SLEW: i64 = 200;
/// An offset that fell by more than this has jumped. Chosen: no queue of a live stream is that long.
const JUMP: i64 = 2 * SECOND;

/// The offset between two clocks, with the one-way time; see the module. All times are microseconds.
#[derive(Debug)]
pub struct Offset {
    latency: i64,
    current: Option<i64>,
    /// When the first datagram came.
    begun: i64,
    /// The second whose arrivals are being collected, since the first, and their least and greatest offset.
    second: i64,
    least: i64,
    /// The least of the seconds before.
    before: Vec<i64>,
    jumps: u64,
}

impl Offset {
    /// No offset yet. `latency` is how late a datagram may be.
    pub fn new(latency: i64) -> Self {
        Self { latency, current: None, begun: 0, second: 0, least: i64::MAX, before: Vec::new(), jumps: 0 }
    }

    /// A datagram came at `now`, this long after its stamp.
    pub fn on_arrival(&mut self, now: i64, sample: i64) {
        let Some(current) = self.current else {
            (self.current, self.begun, self.least) = (Some(sample), now, sample);
            return;
        };
        let second = (now - self.begun) / SECOND;
        if second > self.second {
            self.current = Some(self.follow(current));
            (self.second, self.least) = (second, i64::MAX);
        }
        self.least = self.least.min(sample);
        if second == 0 {
            // The first arrival may have been a slow one.
            self.current = Some(current.min(sample));
        }
    }

    /// What to add to a stamp.
    pub fn current(&self) -> i64 {
        self.current.unwrap_or(0)
    }

    /// How often it began anew.
    pub fn jumps(&self) -> u64 {
        self.jumps
    }

    /// A second has passed.
    fn follow(&mut self, current: i64) -> i64 {
        if self.least > current + self.latency || self.least < current - JUMP {
            self.before.clear();
            self.jumps += 1;
            return self.least;
        }
        if self.before.len() == SECONDS {
            self.before.remove(0);
        }
        self.before.push(self.least);
        let wanted = self.before.iter().copied().min().unwrap_or(current);
        current + (wanted - current).clamp(-SLEW, SLEW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds ten arrivals a second for `seconds`, with the offsets of `sample`.
    fn feed(offset: &mut Offset, from: i64, seconds: i64, sample: impl Fn(i64) -> i64) {
        for at in (10 * from)..(10 * (from + seconds)) {
            offset.on_arrival(at * SECOND / 10, sample(at));
        }
    }

    #[test]
    fn the_first_second_takes_the_least_at_once_and_later_ones_slowly() {
        let mut offset = Offset::new(80_000);
        feed(&mut offset, 0, 1, |at| 35_000 - 500 * at.min(8));
        assert_eq!(offset.current(), 31_000);
        feed(&mut offset, 1, 6, |_| 30_000);
        assert_eq!(offset.current(), 30_000);
    }

    #[test]
    fn queues_do_not_move_it_and_drift_does() {
        let mut offset = Offset::new(80_000);
        feed(&mut offset, 0, 10, |_| 30_000);
        feed(&mut offset, 10, 20, |_| 60_000);
        assert_eq!(offset.current(), 30_000);
        // 50 ppm: 50 us a second.
        let mut offset = Offset::new(80_000);
        feed(&mut offset, 0, 300, |at| 30_000 - 5 * at);
        assert!((offset.current() - 15_000).abs() < 300, "{}", offset.current());
        let mut offset = Offset::new(80_000);
        feed(&mut offset, 0, 300, |at| 30_000 + 5 * at);
        assert!((43_300..=45_000).contains(&offset.current()), "{}", offset.current());
    }

    #[test]
    fn a_clock_that_jumps_begins_anew_after_a_second_in_which_nothing_was_on_time() {
        let mut offset = Offset::new(80_000);
        feed(&mut offset, 0, 5, |_| 30_000);
        feed(&mut offset, 5, 2, |_| 3_630_000);
        assert_eq!((offset.current(), offset.jumps()), (3_630_000, 1));
        feed(&mut offset, 7, 2, |_| 30_000);
        assert_eq!((offset.current(), offset.jumps()), (30_000, 2));
    }
}
