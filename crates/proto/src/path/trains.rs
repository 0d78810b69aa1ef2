//! Packet trains of a path: when ours left, and when the peer's arrived (docs/wire.md section 5, TRAIN).
//!
//! The path uses [`Departed`] for the trains that it sends and [`Arriving`] for those that it receives.
//! Invariant: each train gives at most one report and one sample, whatever the peer says.

use core::time::Duration;
use std::collections::VecDeque;

use super::control::TrainSample;
use crate::Time;
use crate::wire::TrainReport;

/// Trains whose report may still come. At 4 ms for a train this is a round trip of a second.
const MAX_OPEN: usize = 256;
/// For this long the least delay of a train counts. Chosen: longer than for round trips (`path/rtt.rs`),
/// because a sender that fills the queue all the time hides it; after a change to a longer route, trains
/// yield for as long.
const LEAST_DELAY_WINDOW: Duration = Duration::from_secs(30);

/// The beginning of a train that we sent.
#[derive(Clone, Copy, Debug)]
struct Start {
    number: u64,
    at: Time,
    /// Bytes that the path had sent, the first packet included.
    sent: u64,
}

/// The newest packet of a train that came, as the path remembers it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Last {
    pub at: Time,
    /// Bytes that the path had sent, this packet included.
    pub sent: u64,
}

/// The trains that we sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Departed {
    /// Number of the packet with TRAIN that is being sent.
    announced: Option<u64>,
    open: VecDeque<Start>,
    /// The least delay from departure to arrival, up to a constant, in microseconds: of the present half of
    /// the window and of the one before.
    least: Option<[u32; 2]>,
    half_since: Time,
}

impl Departed {
    /// The next packet, `number`, announces a train.
    pub(super) fn announce(&mut self, number: u64) {
        self.announced = Some(number);
    }

    /// A packet leaves; `sent` includes it.
    pub(super) fn on_sent(&mut self, number: u64, at: Time, sent: u64) {
        if self.announced != Some(number) {
            return;
        }
        self.announced = None;
        if self.open.len() == MAX_OPEN {
            self.open.pop_front();
        }
        self.open.push_back(Start { number, at, sent });
    }

    /// Measures a train from its report and from the departure of its last packet that came. `None` if the
    /// train was reported before.
    pub(super) fn measure(&mut self, now: Time, report: &TrainReport, last: Last) -> Option<TrainSample> {
        let index = self.open.iter().position(|start| start.number == report.first)?;
        // Reports of older trains may still come, reordered; they would say less.
        let start = self.open.drain(..=index).next_back()?;
        let bytes = last.sent.checked_sub(start.sent).filter(|&bytes| bytes > 0)?;
        let delay = report.arrival.wrapping_sub((start.at.0 / 1_000) as u32);
        let queue = self.queue(now, delay);
        Some(TrainSample { now, bytes, left: last.at.since(start.at), arrived: report.span, queue })
    }

    /// The delay above the least of the last thirty seconds. The clocks of both ends differ by a constant, so
    /// only differences of delays mean something.
    fn queue(&mut self, now: Time, delay: u32) -> Duration {
        let over = |least: u32| delay.wrapping_sub(least) as i32;
        let [present, before] = self.least.get_or_insert([delay; 2]);
        if now.since(self.half_since) >= LEAST_DELAY_WINDOW / 2 {
            (*before, *present, self.half_since) = (*present, delay, now);
        }
        if over(*present) < 0 {
            *present = delay;
        }
        let queue = over(*present).max(over(*before)).max(0);
        Duration::from_micros(queue.unsigned_abs().into())
    }
}

/// The train of the peer that is arriving.
#[derive(Clone, Copy, Debug)]
struct Train {
    first: u64,
    packets: u16,
    began: Time,
    /// The highest number that came, and when.
    newest: u64,
    newest_at: Time,
}

/// The trains that the peer sends.
#[derive(Debug, Default)]
pub(crate) struct Arriving {
    train: Option<Train>,
    report: Option<TrainReport>,
}

impl Arriving {
    /// TRAIN came in packet `number`. Returns whether a report is due: of the train before.
    pub(crate) fn on_train(&mut self, at: Time, number: u64, packets: u16) -> bool {
        if self.train.is_some_and(|train| train.first >= number) {
            return false;
        }
        let is_due = self.end();
        self.train = Some(Train { first: number, packets, began: at, newest: number, newest_at: at });
        is_due
    }

    /// A packet came. Returns whether a report is due.
    pub(crate) fn on_packet(&mut self, at: Time, number: u64) -> bool {
        let Some(train) = &mut self.train else { return false };
        let last = train.first + u64::from(train.packets) - 1;
        if number > train.newest && number <= last {
            (train.newest, train.newest_at) = (number, at);
        }
        number >= last && self.end()
    }

    /// Ends the train. Returns whether there is something to report.
    fn end(&mut self) -> bool {
        let Some(train) = self.train.take() else { return false };
        let distance = (train.newest - train.first) as u16;
        let arrival = (train.began.0 / 1_000) as u32;
        let span = train.newest_at.since(train.began);
        if distance == 0 || span.is_zero() {
            return false;
        }
        self.report = Some(TrainReport { first: train.first, distance, arrival, span });
        true
    }

    /// The report to send.
    pub(crate) fn take(&mut self) -> Option<TrainReport> {
        self.report.take()
    }

    /// Whether a report waits for the next FEEDBACK.
    #[cfg(test)]
    pub(crate) fn is_due(&self) -> bool {
        self.report.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(micros: u64) -> Time {
        Time::from_micros(micros)
    }

    #[test]
    fn a_train_is_reported_once_when_its_last_packet_or_a_later_one_came() {
        let mut arriving = Arriving::default();
        assert!(!arriving.on_packet(us(1), 3), "no train was announced");
        assert!(!arriving.on_train(us(100), 10, 4));
        assert!(!arriving.on_packet(us(110), 11));
        assert!(!arriving.on_packet(us(120), 9), "before the train");
        assert!(arriving.on_packet(us(130), 13) && arriving.is_due());
        let report = arriving.take().expect("due");
        assert_eq!((report.first, report.distance, report.arrival), (10, 3, 100));
        assert_eq!(report.span, Duration::from_micros(30));
        assert!(!arriving.on_packet(us(140), 13) && arriving.take().is_none(), "only once");
        // The last packets are lost: the next packet or train ends it.
        arriving.on_train(us(200), 20, 4);
        arriving.on_packet(us(210), 21);
        assert!(arriving.on_packet(us(290), 30));
        assert_eq!(arriving.take().map(|report| report.distance), Some(1));
        arriving.on_train(us(300), 40, 4);
        arriving.on_packet(us(310), 42);
        assert!(arriving.on_train(us(390), 50, 4));
        assert_eq!(arriving.take().map(|report| (report.first, report.distance)), Some((40, 2)));
        // Only its first packet came: nothing to measure.
        assert!(!arriving.on_train(us(490), 60, 4) && arriving.take().is_none());
        // An older TRAIN that comes late changes nothing.
        assert!(!arriving.on_train(us(500), 50, 4) && arriving.on_packet(us(510), 63));
    }

    #[test]
    fn the_sender_counts_the_bytes_and_takes_each_train_once() {
        let mut departed = Departed::default();
        for (number, at, sent) in [(10, 1_000, 5_000), (20, 2_000, 20_000)] {
            departed.announce(number);
            departed.on_sent(number, us(at), sent);
            departed.on_sent(number + 1, us(at), sent);
        }
        let report = TrainReport { first: 20, distance: 3, arrival: 90, span: Duration::from_micros(400) };
        let last = Last { at: us(2_300), sent: 24_500 };
        let sample = departed.measure(us(9_000), &report, last).expect("a train of ours");
        assert_eq!((sample.bytes, sample.left, sample.arrived), (4_500, Duration::from_micros(300), report.span));
        assert!(departed.measure(us(9_000), &report, last).is_none(), "reported before");
        let older = TrainReport { first: 10, ..report };
        assert!(departed.measure(us(9_000), &older, last).is_none(), "older than what is known");
    }

    #[test]
    fn the_queue_is_the_delay_above_the_least_of_thirty_seconds_on_any_pair_of_clocks() {
        for offset in [0, 77_777, u32::MAX - 40_000] {
            let mut departed = Departed::default();
            let mut queue = |ms: u64, delay: u32| {
                departed.announce(ms);
                departed.on_sent(ms, Time::from_millis(ms), 0);
                let arrival = ((ms * 1_000) as u32).wrapping_add(delay).wrapping_add(offset);
                let report = TrainReport { first: ms, distance: 1, arrival, span: Duration::from_micros(9) };
                let last = Last { at: Time::from_millis(ms), sent: 100 };
                departed.measure(Time::from_millis(ms), &report, last).expect("new").queue.as_micros()
            };
            assert_eq!([queue(10, 10_000), queue(20, 13_000), queue(30, 9_000)], [0, 3_000, 0]);
            assert_eq!([queue(40, 30_000), queue(4_000, 30_000)], [21_000, 21_000]);
            // The route became longer: that is known after thirty seconds.
            assert_eq!(queue(15_500, 30_000), 21_000);
            assert_eq!([queue(31_000, 30_000), queue(31_010, 31_000)], [0, 1_000]);
        }
    }
}
