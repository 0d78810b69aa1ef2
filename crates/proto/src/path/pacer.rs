//! Spreads packets over time at the rate controller's pace.
//!
//! It keeps the time at which the next packet is due. A driver that wakes late may catch up by at most
//! [`CATCH_UP`], so that a coarse timer does not cost rate. An idle sender gets no burst beyond that. Within
//! a train, packets leave at the train's pace, and the next train begins when its bytes would have left at
//! the mean pace.
//!
//! FEEDBACK and probes leave when they must, and the packets behind them wait longer for it. Invariant: they
//! take at most half of the pace from the packets that wait.

use core::time::Duration;

use super::control::TrainPace;
use crate::Time;

/// Delay that a late driver may make up: two ticks of a 1 ms timer (tokio's).
const CATCH_UP: Duration = Duration::from_millis(2);
/// Bytes that early packets are charged between two packets that waited: one packet of the usual size.
const MOST_EARLY: usize = 1_500;

/// The pacer of one path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pacer {
    due: Time,
    /// Packets of the present train that did not leave yet, and when the next train may begin.
    left: u16,
    end: Time,
    /// Bytes counted since a packet last left when it was due: of those that left earlier.
    early: usize,
}

impl Pacer {
    /// Whether a packet may be sent now.
    pub(crate) fn is_open(&self, now: Time) -> bool {
        self.due <= now
    }

    /// Time at which the next packet may be sent.
    pub(crate) fn due(&self) -> Time {
        self.due
    }

    /// A packet of `bytes` (with IP and UDP headers) was sent at `now`. `rate` is in bytes per second.
    pub(crate) fn on_sent(&mut self, now: Time, bytes: usize, rate: u64, train: Option<TrainPace>) {
        let bytes = if self.is_open(now) { bytes } else { bytes.min(MOST_EARLY - self.early) };
        self.early = if self.is_open(now) { 0 } else { self.early + bytes };
        let due = self.due.max(now - CATCH_UP);
        let Some(train) = train.filter(|_| self.left > 0) else {
            self.due = due + transmission_time(bytes, rate);
            return;
        };
        self.left -= 1;
        self.end += transmission_time(bytes, rate);
        self.due = due + transmission_time(bytes, train.rate.max(rate));
        if self.left == 0 {
            self.due = self.due.max(self.end);
        }
    }

    /// Whether the next packet begins a train: the one before is complete, or the sender had too little to
    /// send for it. A train that began late ends [`CATCH_UP`] later, so that trains in which nothing leaves
    /// do not follow each other at once.
    pub(crate) fn is_between_trains(&self, now: Time) -> bool {
        self.left == 0 || self.end + CATCH_UP * 2 < now
    }

    /// Begins a train with the packet that is sent next.
    pub(crate) fn begin_train(&mut self, now: Time, packets: u16) {
        (self.left, self.end) = (packets, self.due.max(now - CATCH_UP));
    }
}

/// The time that `bytes` take at `rate` bytes per second.
pub(crate) fn transmission_time(bytes: usize, rate: u64) -> Duration {
    Duration::from_nanos((bytes as u64).saturating_mul(1_000_000_000) / rate.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_at_the_rate_and_no_faster() {
        let mut pacer = Pacer::default();
        let (mut now, mut sent) = (Time::from_millis(100), 0);
        while now < Time::from_millis(1_100) {
            while pacer.is_open(now) {
                pacer.on_sent(now, 1_250, 1_250_000, None);
                sent += 1;
            }
            now = pacer.due();
        }
        // 1,000 packets in one second, and the catch-up at the start.
        assert!((1_000..=1_003).contains(&sent), "{sent}");
    }

    #[test]
    fn a_late_driver_catches_up_by_two_milliseconds() {
        let mut pacer = Pacer::default();
        pacer.on_sent(Time::from_millis(10), 1_250, 1_250_000, None);
        let late = Time::from_millis(60);
        let mut burst = 0;
        while pacer.is_open(late) {
            pacer.on_sent(late, 1_250, 1_250_000, None);
            burst += 1;
        }
        assert_eq!(burst, 3);
    }

    /// FEEDBACK and probes at twice the pace put off data by a packet's time, and not for ever.
    #[test]
    fn issue_17_packets_that_do_not_wait_take_half_of_the_pace() {
        let mut pacer = Pacer::default();
        let (mut now, mut data) = (Time::from_millis(100), 0);
        for turn in 0..10_000_u64 {
            if pacer.is_open(now) {
                pacer.on_sent(now, 1_500, 150_000, None);
                data += 1;
            }
            pacer.on_sent(now, if turn % 2 == 0 { 100 } else { 500 }, 150_000, None);
            now += Duration::from_millis(1);
        }
        // In ten seconds 1,000 packets at the pace.
        assert!((480..=520).contains(&data), "{data}");
    }

    #[test]
    fn a_train_leaves_at_its_pace_and_the_pause_restores_the_mean() {
        let train = TrainPace { packets: 5, rate: 2_500_000 };
        let mut pacer = Pacer { due: Time::from_millis(100), ..Pacer::default() };
        let (mut now, mut times) = (Time::from_millis(100), Vec::new());
        for _ in 0..15 {
            now = now.max(pacer.due());
            if pacer.is_between_trains(now) {
                pacer.begin_train(now, train.packets);
            }
            times.push(now.0 / 1_000 - 100_000);
            pacer.on_sent(now, 1_250, 1_250_000, Some(train));
        }
        // Half a millisecond within a train, five milliseconds from train to train.
        let train_at = |start: u64| (0..5).map(move |n| start + n * 500);
        assert_eq!(times, [0, 5_000, 10_000].into_iter().flat_map(train_at).collect::<Vec<_>>());
        // After a pause of the application a new train begins.
        assert!(pacer.is_between_trains(now + Duration::from_secs(1)));
    }

    /// A train that nothing follows is not announced again at once.
    #[test]
    fn issue_17_a_train_without_packets_blocks_the_next_for_a_while() {
        let mut pacer = Pacer::default();
        let now = Time::from_millis(1_000);
        assert!(pacer.is_between_trains(now));
        pacer.begin_train(now, 16);
        assert!(!pacer.is_between_trains(now + CATCH_UP));
        assert!(pacer.is_between_trains(now + CATCH_UP + Duration::from_nanos(1)));
    }
}
