//! Delivery rate of a path, measured without a bias from random loss.
//!
//! Each acknowledgement that advances the newest acknowledged packet ends a sample. The sample began one
//! round trip earlier, with the packet that was the newest acknowledged when this one was sent. Two rates are
//! known over that span: bytes *acknowledged*, and bytes *passed*, which includes the packets in between that
//! did not arrive.
//!
//! If the medium lost packets, the bottleneck carried the passed bytes: `passed` is its rate and `acked` is
//! `(1 - p)` of it. If the queue dropped them, only `acked` is its rate. The rate controller sees the
//! queueing delay and chooses between the two. As in draft-cheng-iccrg-delivery-rate-estimation, the slower
//! of send and arrival spacing counts, so that a batch of acknowledgements does not look like a fast link.
//!
//! For start-up there is also [`Dispersion`]: the spacing of packets at departure and at arrival, over less
//! than a round trip.

use core::time::Duration;

use super::control::Totals;
use super::one_way::OneWay;
use super::trains::Departed;
use crate::Time;

/// Shortest span of a sample: the resolution of clocks.
const LEAST_SPAN: Duration = Duration::from_micros(1);
/// Dispersion is measured over at least this part of a round trip, and over at least two of the batches that
/// a late driver sends (`path/pacer.rs`: 2 ms). Chosen.
const DISPERSION_DIVISOR: u32 = 8;
const LEAST_DISPERSION: Duration = Duration::from_millis(4);

/// State of the path's delivery when a packet was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mark {
    /// Bytes sent, this packet included.
    sent: u64,
    /// Bytes sent up to the newest acknowledged packet, that packet included.
    passed: u64,
    /// Bytes acknowledged.
    acked: u64,
    /// Arrival time of the newest acknowledged packet, on our clock, up to an unknown constant.
    arrived: Time,
    /// Time at which that packet was sent.
    left: Time,
}

/// One measured interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateSample {
    /// Bytes per second that were acknowledged.
    pub acked: u64,
    /// Bytes per second that passed, lost ones included.
    pub passed: u64,
    /// The sender had nothing more to send at the end of the interval. The rates are then lower bounds of the
    /// path's rate.
    pub app_limited: bool,
}

/// Spacing of packets at departure and at arrival. It shows a path's rate in less than a round trip (packet
/// train dispersion).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dispersion {
    /// Bytes per second that were acknowledged, over the longer of the two times.
    pub acked: u64,
    /// Bytes per second that passed, lost ones included.
    pub passed: u64,
    /// Departure time of the train divided by its arrival time, at most 1. Below 1 the path was slower than
    /// the sender.
    pub slowed: f64,
}

/// The running sums of one path.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeliveryRate {
    now: Mark,
    newest: Option<u64>,
    /// Nothing was in flight, so the next packet starts a new span, whatever was acknowledged before.
    restart: bool,
    /// One-way delay of a packet that left and arrived at the same time on our clock, after the first sample.
    zero: Option<Duration>,
    /// The packet from which dispersion is measured, with the sums at that time.
    train: Option<Mark>,
    /// The packet trains that we sent.
    pub(super) trains: Departed,
    /// The one-way delay of our packets.
    pub(super) one_way: OneWay,
}

impl Mark {
    /// Bytes sent up to the packet, that packet included.
    pub(super) fn sent(self) -> u64 {
        self.sent
    }
}

impl DeliveryRate {
    /// The next packet, `number`, announces a train.
    pub(crate) fn announce_train(&mut self, number: u64) {
        self.trains.announce(number);
    }

    /// A packet of `bytes` is sent. Returns the mark to store with it.
    pub(crate) fn on_sent(&mut self, now: Time, bytes: u32, flight_is_empty: bool) -> Mark {
        if flight_is_empty {
            self.now.passed = self.now.sent;
            self.now.arrived = now;
            self.now.left = now;
            self.restart = true;
        }
        self.now.sent += u64::from(bytes);
        self.now
    }

    /// The sums so far.
    pub(crate) fn totals(&self) -> Totals {
        Totals { sent: self.now.sent, passed: self.now.passed, acked: self.now.acked }
    }

    /// Counts acknowledged bytes.
    pub(crate) fn on_acked(&mut self, bytes: u32) {
        self.now.acked += u64::from(bytes);
    }

    /// When a packet with this one-way delay arrived, on our clock, up to an unknown constant that the first
    /// sample sets: that packet arrives `rtt` after it left. So arrivals do not depend on the way back.
    pub(crate) fn arrival(&mut self, left: Time, one_way: Duration, rtt: Duration) -> Time {
        let zero = *self.zero.get_or_insert_with(|| one_way.saturating_sub(rtt));
        left + one_way.saturating_sub(zero)
    }

    /// Takes the newest packet of an acknowledgement: its number, send time and mark. `arrived` is when it
    /// arrived, up to a constant.
    pub(crate) fn on_newest(
        &mut self,
        number: u64,
        left: Time,
        mark: Mark,
        arrived: Time,
        app_limited: bool,
    ) -> Option<RateSample> {
        if self.newest.is_some_and(|newest| newest >= number) {
            return None;
        }
        self.newest = Some(number);
        // A restarted span measures arrival from departure. It includes a round trip and underestimates the
        // rate, but it is the only sample where a round trip is shorter than the gap between two packets.
        let restarted = core::mem::take(&mut self.restart);
        let span = arrived.since(mark.arrived).max(left.since(mark.left));
        let sample = (span >= LEAST_SPAN && mark.sent > mark.passed).then(|| RateSample {
            acked: per_second(self.now.acked.saturating_sub(mark.acked), span),
            passed: per_second(mark.sent - mark.passed, span),
            app_limited: app_limited || restarted,
        });
        self.now.passed = mark.sent;
        self.now.arrived = arrived;
        self.now.left = left;
        sample
    }

    /// Dispersion between that packet and an earlier acknowledged one, if they are far enough apart for a
    /// path with this RTT. A sample over a round trip suffers if the sender was idle or slower one round trip
    /// ago. This sample does not, but it has more noise. Call it after [`Self::on_newest`].
    pub(crate) fn dispersion(&mut self, rtt: Duration) -> Option<Dispersion> {
        let end = Mark { sent: self.now.passed, ..self.now };
        let begin = *self.train.get_or_insert(end);
        let (leaving, arriving) = (end.left.since(begin.left), end.arrived.since(begin.arrived));
        if arriving < (rtt / DISPERSION_DIVISOR).max(LEAST_DISPERSION) {
            return None;
        }
        self.train = Some(end);
        let span = arriving.max(leaving);
        Some(Dispersion {
            acked: per_second(end.acked - begin.acked, span),
            passed: per_second(end.sent - begin.sent, span),
            slowed: leaving.as_secs_f64() / span.as_secs_f64(),
        })
    }
}

fn per_second(bytes: u64, span: Duration) -> u64 {
    (u128::from(bytes) * 1_000_000_000 / span.as_nanos().max(1)).min(u128::from(u64::MAX)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of 1,000 bytes, one each millisecond, over a path of 50 ms. Every fourth is lost; the others
    /// are acknowledged one by one.
    #[test]
    fn passed_rate_is_free_of_loss_bias() {
        let mut delivery = DeliveryRate::default();
        let mut flying = std::collections::VecDeque::new();
        let mut samples = Vec::new();
        for tick in 0..400_u64 {
            let now = Time::from_millis(tick);
            while flying.front().is_some_and(|&(_, left, _): &(u64, Time, Mark)| now.since(left).as_millis() >= 50) {
                let Some((number, left, mark)) = flying.pop_front() else { break };
                if number % 4 == 3 {
                    continue;
                }
                delivery.on_acked(1_000);
                samples.extend(delivery.on_newest(number, left, mark, now, false));
            }
            let mark = delivery.on_sent(now, 1_000, flying.is_empty());
            flying.push_back((tick, now, mark));
        }
        let late = &samples[100..];
        assert!(late.iter().all(|s| s.passed == 1_000_000), "{late:?}");
        assert!(late.iter().all(|s| (700_000..800_000).contains(&s.acked)), "{late:?}");
    }

    /// One packet alone, then 32 packets of 1,000 bytes, one each millisecond, into a path of 50 ms that
    /// passes one each two milliseconds.
    #[test]
    fn the_first_flight_tells_the_rate_by_its_dispersion() {
        const RTT: Duration = Duration::from_millis(50);
        let mut delivery = DeliveryRate::default();
        let acked = |delivery: &mut DeliveryRate, n: u64, left, mark, arrived| {
            delivery.on_acked(1_000);
            let sample = delivery.on_newest(n, left, mark, arrived, false);
            (sample, delivery.dispersion(RTT))
        };
        let mark = delivery.on_sent(Time::ZERO, 1_000, true);
        let at = |ms| Time::from_millis(100 + ms);
        let marks: Vec<_> = (0..32).map(|n| delivery.on_sent(at(n), 1_000, false)).collect();
        assert_eq!(acked(&mut delivery, 0, Time::ZERO, mark, at(10)).1, None);
        let dispersions: Vec<_> =
            (0..32).filter_map(|n| acked(&mut delivery, n + 1, at(n), marks[n as usize], at(50 + 2 * n)).1).collect();
        // The first sample shows little: one packet in the time since the packet before. Then one sample each
        // 50 ms / 8, rounded up to whole packets.
        assert_eq!(dispersions.len(), 1 + 31 / 4);
        let found = Dispersion { acked: 500_000, passed: 500_000, slowed: 0.5 };
        assert!(dispersions[1..].iter().all(|dispersion| *dispersion == found), "{dispersions:?}");
    }
}
