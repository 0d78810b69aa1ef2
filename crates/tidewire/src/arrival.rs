//! Times of arrival on the driver's clock.
//!
//! The kernel stamps a datagram when it takes it from the network, by the clock of the day. A driver may
//! read the datagram many milliseconds later, because its task waited for other tasks. [`Arrivals`] turns the
//! stamp into a time of the monotonic clock by the age of the datagram. The driver calls it for each message
//! of a batch. Invariant: times never decrease and never lie in the future, whatever the clock of the day
//! does.

use std::time::{Duration, SystemTime};

use tidewire_proto::Time;

use crate::clock::Clock;

/// The two clocks may diverge by this between two batches, and by a thousandth of the time between them.
/// Chosen: adjusting a clock gradually changes its speed by at most 0.05 % (`adjtimex`, NTP).
const STEADY: Duration = Duration::from_millis(1);

/// Converts the stamps of one socket; see the module.
#[derive(Debug)]
pub(crate) struct Arrivals {
    /// When the clocks were last compared, and the time of day at which our clock started.
    compared: Time,
    start: Duration,
    /// The latest time that was given.
    latest: Time,
    /// The present batch: when it was read, by both clocks. Without the time of day, no stamp counts.
    now: Time,
    today: Option<Duration>,
}

impl Arrivals {
    pub fn new(clock: &Clock) -> Self {
        let (today, now) = read(clock);
        Self { compared: now, start: today.saturating_sub(age(now)), latest: now, now, today: None }
    }

    /// Begins a batch that was just read from the socket. Returns the present time.
    pub fn begin(&mut self, clock: &Clock) -> Time {
        let (today, now) = read(clock);
        self.begin_at(now, today);
        now
    }

    fn begin_at(&mut self, now: Time, today: Duration) {
        let start = today.saturating_sub(age(now));
        let divergence = start.abs_diff(self.start);
        let is_steady = divergence <= STEADY + now.since(self.compared) / 1_000;
        (self.compared, self.start) = (now, start);
        (self.now, self.today) = (now, is_steady.then_some(today));
    }

    /// The time at which a message of the batch with this stamp arrived.
    pub fn at(&mut self, stamp: Option<Duration>) -> Time {
        let waited = self.today.zip(stamp).map_or(Duration::ZERO, |(today, stamp)| today.saturating_sub(stamp));
        self.latest = self.latest.max(self.now - waited);
        self.latest
    }
}

/// The time of day and of our clock. If the task is interrupted between the two, ages become too short: the
/// round trip then seems too long, as without stamps, and never too short.
fn read(clock: &Clock) -> (Duration, Time) {
    let today = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (today, clock.now())
}

fn age(now: Time) -> Duration {
    now.since(Time::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Duration = Duration::from_secs(1_800_000_000);

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Our clock started at noon.
    fn arrivals() -> Arrivals {
        Arrivals { compared: Time::ZERO, start: NOON, latest: Time::ZERO, now: Time::ZERO, today: None }
    }

    #[test]
    fn a_message_arrived_as_long_ago_as_its_stamp_says() {
        let mut arrivals = arrivals();
        arrivals.begin_at(Time::from_millis(100), NOON + ms(100));
        assert_eq!(arrivals.at(Some(NOON + ms(93))), Time::from_millis(93));
        assert_eq!(arrivals.at(Some(NOON + ms(99))), Time::from_millis(99));
        assert_eq!(arrivals.at(None), Time::from_millis(100), "without a stamp it is new");
    }

    #[test]
    fn times_never_decrease_nor_lie_in_the_future() {
        let mut arrivals = arrivals();
        arrivals.begin_at(Time::from_millis(100), NOON + ms(100));
        assert_eq!(arrivals.at(Some(NOON + ms(97))), Time::from_millis(97));
        assert_eq!(arrivals.at(Some(NOON + ms(95))), Time::from_millis(97), "stamped on another processor");
        assert_eq!(arrivals.at(Some(NOON + ms(101))), Time::from_millis(100));
        arrivals.begin_at(Time::from_millis(110), NOON + ms(110));
        assert_eq!(arrivals.at(Some(NOON + ms(96))), Time::from_millis(100), "before the last batch");
    }

    #[test]
    fn after_a_step_of_the_clock_no_stamp_of_the_batch_counts() {
        for step in [2_i64, -2, 3_600_000, -3_600_000, -1_800_000_000_000] {
            let stepped = |at: u64| {
                let millis = (NOON.as_millis() as i64 + step).max(0) as u64 + at;
                Duration::from_millis(millis)
            };
            let mut arrivals = arrivals();
            arrivals.begin_at(Time::from_millis(100), NOON + ms(100));
            assert_eq!(arrivals.at(Some(NOON + ms(90))), Time::from_millis(90));
            // Stamps from before and after the step.
            arrivals.begin_at(Time::from_millis(200), stepped(200));
            assert_eq!(arrivals.at(Some(NOON + ms(180))), Time::from_millis(200), "{step}");
            assert_eq!(arrivals.at(Some(stepped(190))), Time::from_millis(200), "{step}");
            // From the next batch on the new time of day counts.
            arrivals.begin_at(Time::from_millis(300), stepped(300));
            assert_eq!(arrivals.at(Some(stepped(280))), Time::from_millis(280), "{step}");
        }
    }

    #[test]
    fn a_clock_that_is_adjusted_gradually_is_no_step() {
        let mut arrivals = arrivals();
        // Half a thousandth too fast for a minute, then for a hundred batches of 10 ms.
        let fast = |millis: u64| NOON + Duration::from_micros(millis * 1_000 + millis / 2);
        for millis in (0..=100).map(|batch| 60_000 + batch * 10) {
            arrivals.begin_at(Time::from_millis(millis), fast(millis));
            assert_eq!(arrivals.at(Some(fast(millis) - ms(5))), Time::from_millis(millis - 5));
        }
    }
}
