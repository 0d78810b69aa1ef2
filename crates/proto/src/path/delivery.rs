//! Delivery rate of a path, measured without a bias from random loss.
//!
//! Each acknowledgement that moves the newest acknowledged packet forward ends a sample that began with the packet that was
//! newest when this one left: one round trip earlier. Over that span two rates are known: bytes *acknowledged*, and bytes
//! *passed*, that is sent between the two packets whether or not those in between arrived. Where loss happens on the
//! medium, the bottleneck carried the passed bytes, so that `passed` is its rate and `acked` is `(1 - p)` of it; where loss is the
//! queue's, only `acked` is. The rate controller knows which holds (it sees the queueing delay) and takes its pick. As in
//! draft-cheng-iccrg-delivery-rate-estimation, the slower of send and arrival spacing counts, so that a batch of
//! acknowledgements does not look like a fast link.
//!
//! Beside it [`Dispersion`], for start-up: how far apart packets left and arrived, over less than a round trip.

use core::time::Duration;

use crate::Time;

/// Nothing shorter is a span: the resolution of clocks.
const LEAST_SPAN: Duration = Duration::from_micros(1);
/// Dispersion is measured over this part of a round trip or more, and not over less than two of the batches in which a late driver lets packets out
/// (`path/pacer.rs`: 2 ms). Chosen.
const DISPERSION_DIVISOR: u32 = 8;
const LEAST_DISPERSION: Duration = Duration::from_millis(4);

/// State of the path's delivery at the moment a packet left.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mark {
    /// Bytes sent, this packet included.
    sent: u64,
    /// Bytes sent up to and with the newest acknowledged packet.
    passed: u64,
    /// Bytes acknowledged.
    acked: u64,
    /// When the newest acknowledged packet had arrived, on our clock, one unknown constant off.
    arrived: Time,
    /// When it had left.
    left: Time,
}

/// One measured interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateSample {
    /// Bytes per second that were acknowledged.
    pub acked: u64,
    /// Bytes per second that passed, lost ones included.
    pub passed: u64,
    /// The sender had nothing more to send at its end: a lower bound of what the path can carry.
    pub app_limited: bool,
}

/// How far apart packets left and arrived, which tells a path's rate without a round trip (packet train dispersion).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dispersion {
    /// Bytes per second that were acknowledged, in the longer of the two times.
    pub acked: u64,
    /// Bytes per second that passed, lost ones included.
    pub passed: u64,
    /// Time in which they left over time in which they arrived, 1 at most: below 1 the path was slower than the sender.
    pub slowed: f64,
}

/// The running sums.
#[derive(Clone, Debug, Default)]
pub struct DeliveryRate {
    now: Mark,
    newest: Option<u64>,
    /// Nothing was in flight: the next packet starts a new span, whatever was acknowledged before.
    restart: bool,
    /// The packet from which dispersion is measured, with what was acknowledged up to then.
    train: Option<Mark>,
}

impl DeliveryRate {
    /// A packet of `bytes` leaves; returns what to remember with it.
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

    /// Bytes were acknowledged.
    pub(crate) fn on_acked(&mut self, bytes: u32) {
        self.now.acked += u64::from(bytes);
    }

    /// The newest packet of an acknowledgement: number, when it left, its mark. `arrived` is now less the peer's delay.
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
        // A restarted span measures arrival from departure: it contains a round trip and says too little, but is all there is
        // where a round trip is shorter than the gap between two packets.
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

    /// How far that packet is from one that was acknowledged earlier, where that is enough for a path of this round trip. A sample of a round trip tells of a sender
    /// that was idle, or slower, one round trip ago; this does not, but has more noise. Call after [`Self::on_newest`].
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

    /// 1,000-byte packets each millisecond over a path of 50 ms, every fourth lost, acknowledged one by one.
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

    /// 32 packets of 1,000 bytes, one each millisecond, into a path of 50 ms that lets one pass each two milliseconds; before them one alone.
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
        // The first says little: one packet in the time since the one before. Then one each 50 ms / 8, rounded up to whole packets.
        assert_eq!(dispersions.len(), 1 + 31 / 4);
        let found = Dispersion { acked: 500_000, passed: 500_000, slowed: 0.5 };
        assert!(dispersions[1..].iter().all(|dispersion| *dispersion == found), "{dispersions:?}");
    }
}
