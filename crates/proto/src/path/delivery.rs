//! Delivery rate of a path, measured without a bias from random loss.
//!
//! Each acknowledgement that moves the newest acknowledged packet forward ends a sample that began with the packet that was
//! newest when this one left: one round trip earlier. Over that span two rates are known: bytes *acknowledged*, and bytes
//! *passed*, that is sent between the two packets whether or not those in between arrived. Where loss happens on the
//! medium, the bottleneck carried the passed bytes, so that `passed` is its rate and `acked` is `(1 - p)` of it; where loss is the
//! queue's, only `acked` is. The rate controller knows which holds (it sees the queueing delay) and takes its pick. As in
//! draft-cheng-iccrg-delivery-rate-estimation, the slower of send and arrival spacing counts, so that a batch of
//! acknowledgements does not look like a fast link.

use core::time::Duration;

use crate::Time;

/// Nothing shorter is a span: the resolution of clocks.
const LEAST_SPAN: Duration = Duration::from_micros(1);
/// A first flight is measured by its own spacing from this part of a round trip on: batches and wake-ups are small against it. Chosen.
const FLIGHT_DIVISOR: u32 = 8;

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

/// The running sums.
#[derive(Clone, Debug, Default)]
pub struct DeliveryRate {
    now: Mark,
    newest: Option<u64>,
    /// Nothing was in flight: the next packet starts a new span, whatever was acknowledged before.
    restart: bool,
    /// The first packet of the running flight that was acknowledged.
    first: Mark,
    /// The least span that is measured from `first`.
    least: Duration,
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
        // What left before anything of its flight was acknowledged would contain that round trip too.
        let is_first_flight = mark.arrived < self.first.arrived;
        let begin = if is_first_flight { self.first } else { mark };
        let span = arrived.since(begin.arrived).max(left.since(begin.left));
        let least = if is_first_flight { self.least } else { LEAST_SPAN };
        let sample = (span >= least && mark.sent > begin.passed).then(|| RateSample {
            acked: per_second(self.now.acked.saturating_sub(begin.acked), span),
            passed: per_second(mark.sent - begin.passed, span),
            app_limited: app_limited || restarted,
        });
        if restarted {
            self.first = Mark { sent: mark.sent, passed: mark.sent, acked: self.now.acked, arrived, left };
            self.least = (arrived.since(left) / FLIGHT_DIVISOR).max(LEAST_SPAN);
        }
        self.now.passed = mark.sent;
        self.now.arrived = arrived;
        self.now.left = left;
        sample
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

    /// 32 packets of 1,000 bytes, one each millisecond, into a path of 50 ms that lets one pass each two milliseconds.
    #[test]
    fn the_first_flight_tells_the_rate_by_its_spacing() {
        let mut delivery = DeliveryRate::default();
        let marks: Vec<_> = (0..32).map(|n| delivery.on_sent(Time::from_millis(n), 1_000, n == 0)).collect();
        let mut samples = Vec::new();
        for (n, mark) in marks.into_iter().enumerate() {
            let n = n as u64;
            delivery.on_acked(1_000);
            samples.push(delivery.on_newest(n, Time::from_millis(n), mark, Time::from_millis(50 + 2 * n), false));
        }
        assert!(
            samples[0].is_some_and(|sample| sample.passed == 20_000 && sample.app_limited),
            "contains the round trip"
        );
        // 50 ms / 8 is more than three packets take.
        assert!(samples[1..4].iter().all(Option::is_none));
        assert!(samples[4..].iter().flatten().all(|sample| sample.passed == 500_000 && sample.acked == 500_000));
        assert_eq!(samples[4..].iter().flatten().count(), 28);
    }
}
