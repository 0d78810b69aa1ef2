//! A limit of the pace while the peer's host drops what it cannot read in time.
//!
//! The rate controller measures the path. A host that reads too slowly drops packets that the path has
//! delivered, with neither delay nor marks on the path, so the controller cannot see them. The peer counts
//! them (docs/wire.md section 5, HOST_DROPS), and says how long packets waited to be read. This module
//! keeps the pace below what the host takes. [`super::controller::Controller`] calls it. Invariants: it
//! never raises a pace; a peer that reports too much slows only what is sent to it.

use core::time::Duration;

use super::control::AckSample;
use crate::Time;

/// Part of what the host took that is sent after it dropped packets: as after a congestion mark (RFC 8511
/// has 0.85 for CUBIC).
const GAIN: f64 = 0.85;
/// Growth of the limit in the first second; it accelerates as much in each later one. Chosen: after
/// [`GAIN`] the host drops again 0.7 s later at the earliest, several reports of an overloaded host, and a
/// limit that was set ten times too low is gone after 4 s.
const GROWTH: f64 = 1.3;
/// A host that reads packets this long after they arrived, and for as long, cannot keep up. Chosen: four
/// times what a receiver waits on purpose, a third of what the usual socket holds at a host's limit.
const LATE: Duration = Duration::from_millis(100);
/// Least limit in bytes per second: ten full packets, so that no connection waits for its turn longer than a
/// tenth of a second. What a connection had acknowledged so far may say less, as at its start. Chosen.
const LEAST: f64 = 12_000.0;
/// The limit ends when it is so many times what the controller would send.
const ENOUGH: f64 = 2.0;

/// The limit; see the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostLimit {
    /// Bytes per second when it last fell, and when that was. Drops of packets that left earlier lower it no
    /// further.
    fell: Option<(f64, Time)>,
    /// Bytes per second now, while there is a limit.
    pace: Option<f64>,
    /// Bytes per second that were last acknowledged.
    acked: Option<u64>,
    /// Since when the host reads later than [`LATE`].
    late_since: Option<Time>,
}

impl HostLimit {
    /// The peer answers a packet that arrived `delay` before. `left` is when the packet left.
    pub(crate) fn on_delay(&mut self, now: Time, left: Time, delay: Duration) {
        if delay < LATE {
            self.late_since = None;
        } else if now.since(*self.late_since.get_or_insert(now)) >= LATE {
            self.on_drops(now, left);
        }
    }

    /// The peer reported more drops. `left` is when the newest packet left that is known to have arrived.
    pub(crate) fn on_drops(&mut self, now: Time, left: Time) {
        let Some(acked) = self.acked.filter(|_| self.fell.is_none_or(|(_, fell)| left > fell)) else { return };
        let pace = (GAIN * self.pace.unwrap_or(f64::INFINITY).min(acked as f64)).max(LEAST);
        (self.pace, self.fell) = (Some(pace), Some((pace, now)));
    }

    /// Packets were acknowledged. `believed` is the pace of the controller in bytes per second.
    pub(crate) fn on_ack(&mut self, ack: &AckSample, believed: u64) {
        if let Some(rate) = ack.rate {
            self.acked = Some(rate.acked);
        }
        if let (Some(_), Some((fell, at))) = (self.pace, self.fell) {
            let seconds = ack.now.since(at).as_secs_f64();
            let pace = fell * GROWTH.powf(seconds * (1.0 + seconds) / 2.0);
            self.pace = Some(pace).filter(|&pace| pace < ENOUGH * believed as f64);
        }
    }

    /// Most bytes per second; `None` without a limit.
    pub(crate) fn pace(&self) -> Option<u64> {
        self.pace.map(|pace| pace as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::super::RateSample;
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn ack(now: Time, acked: u64) -> AckSample {
        AckSample {
            now,
            bytes: 0,
            in_flight: 0,
            newest: 0,
            left: now,
            next: 0,
            rtt: None,
            one_way: None,
            newest_bytes: 0,
            app_limited: false,
            totals: Default::default(),
            smoothed: ms(1),
            min_rtt: ms(1),
            rate: Some(RateSample { acked, passed: acked, app_limited: false }),
            dispersion: None,
        }
    }

    #[test]
    fn a_limit_falls_once_for_each_round_and_ends_by_itself() {
        let (mut limit, start) = (HostLimit::default(), Time::from_millis(1_000));
        limit.on_drops(start, start);
        assert_eq!(limit.pace(), None, "nothing was measured");
        limit.on_ack(&ack(start, 1_000_000), 10_000_000);
        limit.on_drops(start, start);
        assert_eq!(limit.pace(), Some(850_000));
        limit.on_drops(start + ms(1), start - ms(1));
        assert_eq!(limit.pace(), Some(850_000), "those packets left before");
        limit.on_ack(&ack(start + ms(1_000), 2_000_000), 10_000_000);
        assert_eq!(limit.pace(), Some(1_105_000));
        limit.on_drops(start + ms(1_000), start + ms(900));
        assert_eq!(limit.pace(), Some(939_250), "as what was sent, not as what was acknowledged");
        let gone = (1..20).find(|&seconds| {
            limit.on_ack(&ack(start + ms(1_000 * (1 + seconds)), 2_000_000), 10_000_000);
            limit.pace().is_none()
        });
        assert_eq!(gone, Some(5), "it is twenty times as high, more than the controller wants");
        limit.on_ack(&ack(start + ms(60_000), 10), 10_000_000);
        limit.on_drops(start + ms(60_000), start + ms(59_000));
        assert_eq!(limit.pace(), Some(LEAST as u64));
    }

    #[test]
    fn only_a_host_that_stays_late_limits() {
        let (mut limit, start) = (HostLimit::default(), Time::from_millis(1_000));
        limit.on_ack(&ack(start, 1_000_000), 10_000_000);
        for (at, delay) in [(0, 500), (90, 450), (110, 5), (200, 300), (299, 300)] {
            let now = start + ms(at);
            limit.on_delay(now, now - ms(1), ms(delay));
            assert_eq!(limit.pace(), None, "{at} ms");
        }
        limit.on_delay(start + ms(300), start + ms(299), ms(300));
        assert_eq!(limit.pace(), Some(850_000));
    }
}
