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
        let span = arrived.since(mark.arrived).max(left.since(mark.left));
        // A restarted span measures arrival from departure: it contains a round trip and says too little, but is all there is
        // where a round trip is shorter than the gap between two packets.
        let restarted = core::mem::take(&mut self.restart);
        let sample = (span >= Duration::from_micros(1) && mark.sent > mark.passed).then(|| RateSample {
            acked: per_second(self.now.acked.saturating_sub(mark.acked), span),
            passed: per_second(mark.sent - mark.passed, span),
            app_limited: app_limited || restarted,
        });
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
}
