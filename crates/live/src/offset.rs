//! Moves the sender's stamps to our clock: the least time from a stamp to its arrival, over the last half
//! minute.
//!
//! [`super::playout`] adds it to each stamp of a sender, [`super::rtp`] to each timestamp of a source. It
//! follows the drift of the clocks slowly, so that the delay of the output stays constant. Invariant: after
//! the first second it moves by at most [`SLEW`] each second, except where the clock or the path has jumped:
//! then it begins anew. It has jumped if a whole second of datagrams came later than the limit, or the first
//! datagram after a silence did; if half a minute of them came later by a [`PART`] of the limit; or if one
//! came earlier by as much.

/// Length of a bucket of arrivals, and of the first adjustment.
const SECOND: i64 = 1_000_000;
/// Seconds over which the least counts. Chosen: queues drain at some moment in that time.
const SECONDS: usize = 30;
/// Microseconds by which it follows in each second. Chosen: clocks drift by 0.05 ms a second at most (quartz
/// of 50 ppm), and an output that moves by 0.2 ms a second has no jitter to speak of.
const SLEW: i64 = 200;
/// The part of the limit beyond which it does not follow slowly. Chosen: the rest leaves repair three
/// quarters of its time, and adds no delay that a viewer would notice.
const PART: i64 = 4;
/// After so long without a datagram, the first says how the clocks differ. Chosen: no queue holds a datagram
/// for that long, and a clock stands still while its machine sleeps.
const SILENCE: i64 = 60 * SECOND;

/// The offset between two clocks, with the one-way time; see the module. All times are microseconds.
#[derive(Debug)]
pub struct Offset {
    limit: i64,
    current: Option<i64>,
    /// When the first datagram came, and the newest.
    begun: i64,
    newest: i64,
    /// The second whose arrivals are being collected, since the first, and their least and greatest offset.
    second: i64,
    least: i64,
    /// The least of the seconds before.
    before: Vec<i64>,
    jumps: u64,
}

impl Offset {
    /// No offset yet. A whole second that comes later than `limit` begins it anew.
    pub fn new(limit: i64) -> Self {
        let (begun, newest, second, least) = (0, 0, 0, i64::MAX);
        Self { limit, current: None, begun, newest, second, least, before: Vec::new(), jumps: 0 }
    }

    /// From now on, this is the limit.
    pub fn limit(&mut self, limit: i64) {
        self.limit = limit;
    }

    /// A datagram came at `now`, this long after its stamp.
    pub fn on_arrival(&mut self, now: i64, sample: i64) {
        let was_silent = now - self.newest > SILENCE;
        self.newest = now;
        let Some(current) = self.current else {
            self.begin(now, sample);
            return;
        };
        let second = (now - self.begun) / SECOND;
        if was_silent && self.has_jumped(current, sample) {
            self.jump(now, sample);
        } else if second > self.second {
            self.second = second;
            self.follow(now, current);
        }
        self.least = self.least.min(sample);
        if self.second == 0 {
            // The first arrival may have been a slow one.
            self.current = self.current.min(Some(sample));
        }
    }

    /// The stamp of a datagram that comes at `now` by the fastest way; `None` before the first.
    pub fn expected(&self, now: i64) -> Option<i64> {
        self.current.map(|current| now - current)
    }

    /// What to add to a stamp.
    pub fn current(&self) -> i64 {
        self.current.unwrap_or(0)
    }

    /// How often it began anew.
    pub fn jumps(&self) -> u64 {
        self.jumps
    }

    fn begin(&mut self, now: i64, offset: i64) {
        self.before.clear();
        (self.current, self.begun, self.second, self.least) = (Some(offset), now, 0, offset);
    }

    fn jump(&mut self, now: i64, offset: i64) {
        self.jumps += 1;
        self.begin(now, offset);
    }

    /// Whether no queue explains this offset.
    fn has_jumped(&self, current: i64, offset: i64) -> bool {
        offset > current + self.limit || offset < current - self.limit / PART
    }

    /// A second has passed.
    fn follow(&mut self, now: i64, current: i64) {
        let least = std::mem::replace(&mut self.least, i64::MAX);
        if self.has_jumped(current, least) {
            self.jump(now, least);
            return;
        }
        if self.before.len() == SECONDS {
            self.before.remove(0);
        }
        self.before.push(least);
        let wanted = self.before.iter().copied().min().unwrap_or(current);
        if self.before.len() == SECONDS && wanted > current + self.limit / PART {
            // Queues drain at some moment in that time.
            self.jump(now, wanted);
        } else {
            self.current = Some(current + (wanted - current).clamp(-SLEW, SLEW));
        }
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

    #[test]
    fn what_lasts_for_half_a_minute_is_no_queue_and_what_is_early_leaves_no_delay() {
        for (more, after) in [(75_000, 32), (21_000, 32), (500_000, 3)] {
            let mut offset = Offset::new(80_000);
            feed(&mut offset, 0, 40, |_| 30_000);
            feed(&mut offset, 40, after, |_| 30_000 + more);
            assert_eq!((offset.current(), offset.jumps()), (30_000 + more, 1), "{more}");
            feed(&mut offset, 40 + after, 2, |_| 30_000);
            assert_eq!((offset.current(), offset.jumps()), (30_000, 2), "{more}");
        }
        // A stall of half a second, in whichever part of a second, and the burst that was held up by it.
        for begin in 0..50 {
            let mut offset = Offset::new(80_000);
            for at in 0..500 {
                let held = (100 + begin..125 + begin).contains(&at);
                let came = if held { 125 + begin } else { at };
                offset.on_arrival(came * SECOND / 50, (came - at) * SECOND / 50 + 30_000);
            }
            assert_eq!((offset.current(), offset.jumps()), (30_000, 0), "{begin}");
        }
    }

    #[test]
    fn a_clock_that_stood_still_while_nothing_came_begins_anew_at_once() {
        let mut offset = Offset::new(80_000);
        feed(&mut offset, 0, 5, |_| 30_000);
        // An hour of silence, of which the sender's clock counted nothing; the first datagram was slow.
        offset.on_arrival(3_605 * SECOND, 3_600 * SECOND + 50_000);
        assert_eq!((offset.current(), offset.jumps()), (3_600 * SECOND + 50_000, 1));
        feed(&mut offset, 3_606, 1, |_| 3_600 * SECOND + 30_000);
        feed(&mut offset, 3_607, 20, |_| 3_600 * SECOND + 35_000);
        assert_eq!(offset.jumps(), 1);
        // The silence alone is no jump, and the drift of an hour (50 ppm) is less than the latency.
        let current = offset.current();
        offset.on_arrival(7_300 * SECOND, current + 60_000);
        assert!((current - SLEW..=current).contains(&offset.current()) && offset.jumps() == 1, "{offset:?}");
    }
}
