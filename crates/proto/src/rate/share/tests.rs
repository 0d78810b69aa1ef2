//! Tests of the controller `share` with scripted acknowledgements. Whole flows are in `sim/tests/many`.

use super::*;
use crate::path::{RateSample, Totals};

const RTT: Duration = Duration::from_millis(60);

/// A path of one flow that serves `rate` bytes per second after a fluid queue.
struct Path {
    share: Share,
    now: Time,
    /// Bytes sent, and bytes that the queue holds.
    sent: f64,
    queue: f64,
    packet: u64,
}

impl Path {
    fn new() -> Self {
        let mut share = Share::default();
        share.on_handshake(RTT);
        Self { share, now: Time::from_millis(1_000), sent: 0.0, queue: 0.0, packet: 0 }
    }

    /// Sends for `time` over a path that serves `rate`, with an acknowledgement each sixteenth of a round
    /// trip. Acknowledgements are of what left just now: the loop without its delay.
    fn run(&mut self, time: Duration, rate: f64) {
        let step = RTT / 16;
        for _ in 0..time.as_micros() / step.as_micros() {
            let pace = (self.share.budget().pacing as f64).min(1e9);
            let bytes = pace * step.as_secs_f64();
            self.sent += bytes;
            self.queue = (self.queue + bytes - rate * step.as_secs_f64()).max(0.0);
            let delay = Duration::from_secs_f64(self.queue / rate);
            self.now += step;
            self.packet += 8;
            let sent = self.sent as u64;
            let served = (pace.min(rate)) as u64;
            (0..8).for_each(|n| self.share.on_fate(self.packet - 8 + n, false));
            self.share.on_ack(&AckSample {
                now: self.now + delay,
                bytes: bytes as u64,
                in_flight: 0,
                newest: self.packet,
                left: self.now,
                next: self.packet + 128,
                rtt: Some(RTT + delay),
                one_way: Some(RTT / 2 + delay),
                newest_bytes: 1_500,
                app_limited: false,
                totals: Totals { sent, passed: sent, acked: sent },
                smoothed: RTT + delay,
                min_rtt: RTT,
                rate: Some(RateSample { acked: served, passed: served, app_limited: false }),
                dispersion: None,
            });
        }
    }
}

#[test]
fn finds_the_rate_and_keeps_the_queue_at_its_target() {
    for rate in [3_125_000.0, 125_000_000.0] {
        let mut path = Path::new();
        path.run(Duration::from_secs(10), rate);
        let (found, target) = (path.share.cruise.rate, path.share.cruise.target());
        assert!((0.9..1.1).contains(&(found / rate)), "{found} of {rate}");
        assert!(path.queue / rate <= 3.0 * target + 0.001, "{} of {target}", path.queue / rate);
    }
}

#[test]
fn more_capacity_is_found_and_less_is_accepted() {
    let mut path = Path::new();
    path.run(Duration::from_secs(5), 1_250_000.0);
    path.run(Duration::from_secs(5), 5_000_000.0);
    assert!(path.share.cruise.rate > 4_500_000.0, "{}", path.share.cruise.rate);
    path.run(Duration::from_secs(3), 1_250_000.0);
    assert!(path.share.cruise.rate < 1_400_000.0, "{}", path.share.cruise.rate);
}

#[test]
fn congestion_marks_lower_the_rate_once_a_round_trip() {
    let mut path = Path::new();
    path.run(Duration::from_secs(5), 3_125_000.0);
    let before = path.share.cruise.rate;
    path.share.on_ecn(path.now, path.now - RTT);
    // Marks on packets sent before the rate fell belong to the same congestion.
    path.share.on_ecn(path.now, path.now - RTT);
    path.run(RTT / 16, 3_125_000.0);
    let after = path.share.cruise.rate / before;
    assert!((MARK_GAIN - 0.01..MARK_GAIN + 0.05).contains(&after), "{after}");
}
