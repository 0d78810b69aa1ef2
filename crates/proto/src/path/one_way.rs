//! Variation of the one-way delay from us to the peer, from the arrivals that FEEDBACK reports.
//!
//! A round trip also contains the way back: its queue, and the moments at which the peer sends FEEDBACK. The
//! one-way delay contains only the way of our packets. The path gives [`OneWay`] each newest packet that a
//! FEEDBACK newly acknowledges, and hands the result to the rate controller.
//!
//! The clocks of the two ends differ by an unknown constant, so only differences of delays mean something.

use core::time::Duration;

use crate::Time;
use crate::wire::{TIME_UNIT, time_units, units_between};

/// The first delay that is reported: 2^31 us, so that no later one is negative.
const FIRST: Duration = Duration::from_micros(1 << 31);

/// The latest packet.
#[derive(Clone, Copy, Debug)]
struct Latest {
    sent: Time,
    arrival: u32,
    /// Delay in nanoseconds above that of the first packet.
    delay: i64,
}

/// One-way delay of one path; see the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct OneWay {
    latest: Option<Latest>,
}

impl OneWay {
    /// Takes a packet that left at `sent`, which a FEEDBACK that came `now` acknowledges. The packet arrived at
    /// `arrival` on the peer's clock, in units of the wire, and the peer waited for `peer_delay` from then on.
    /// Packets come in the order of sending. Returns the packet's one-way delay above a constant.
    pub fn on_sample(&mut self, _now: Time, sent: Time, arrival: u32, _peer_delay: Duration) -> Duration {
        let delay = self.latest.map_or(0, |latest| {
            let left = sent.since(latest.sent).as_nanos() as u64;
            // The change of the delay is far below the 134 s that a difference may have, whatever time passed.
            let units = units_between(latest.arrival.wrapping_add(time_units(Time(left))), arrival);
            latest.delay + i64::from(units) * TIME_UNIT as i64 - (left % TIME_UNIT) as i64
        });
        self.latest = Some(Latest { sent, arrival, delay });
        let first = FIRST.as_nanos() as i64;
        Duration::from_nanos(first.saturating_add(delay).max(0).unsigned_abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet each second for ten minutes, the last with a delay that differs by `over` microseconds.
    #[test]
    fn differences_are_exact_on_any_pair_of_clocks_and_after_the_time_wraps_around() {
        for offset in [0, 5_000_000, (1 << 28) - 1_000, 400_000_000] {
            for over in [0_i64, 3_200, -1_600, 900_000] {
                let mut one_way = OneWay::default();
                let mut sample = |second: u64, delay: u64| {
                    let sent = Time::from_millis(second * 1_000);
                    let arrival = time_units(sent + Duration::from_micros(offset + delay));
                    one_way.on_sample(sent + Duration::from_millis(50), sent, arrival, Duration::ZERO)
                };
                let first = sample(0, 20_000);
                assert_eq!(first, FIRST);
                let last = (1..=600).map(|second| {
                    sample(second, 20_000_u64.saturating_add_signed(if second == 600 { over } else { 0 }))
                });
                let change = last.last().expect("600").as_micros() as i64 - FIRST.as_micros() as i64;
                assert!((change - over).abs() <= 16, "{change} of {over}, offset {offset}");
            }
        }
    }
}
