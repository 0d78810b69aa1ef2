//! Additive increase, multiplicative decrease, with congestion marks as the signal of congestion (Li and
//! others, "Sphinx", 2019, section III-C2).
//!
//! The paper takes marks for congestion and losses for noise of the channel. Where the network does not
//! mark, it takes losses for congestion. It does not say how a sender tells the two networks apart. Here a
//! loss is noise while the network marked within the last ten seconds, or while the queue is short.
//! Invariant: the window falls at most once for all packets that were sent before its last fall.

use core::fmt;
use core::time::Duration;

use super::window::{Growth, LossWindow};
use super::{AckSample, Budget, LossSample, PACKET, RateController};
use crate::Time;

/// How long a network counts as one that marks after its last mark. Chosen: longer than a window takes to
/// grow from half to full on most paths (120 round trips of 60 ms are 7 s).
const MARKING: Duration = Duration::from_secs(10);
/// A queue of this delay or more is long: losses are congestion, unless the network marks. It is twice the 5
/// ms by which the scheduler of a busy host spreads round trips.
const LONG_QUEUE: Duration = Duration::from_millis(10);
/// A queue can be full before it is long. From this share of lost packets on losses are congestion. Chosen:
/// noise of 15 % reaches it by chance once in some thousand packets.
const DROPPING: f64 = 0.25;
/// Memory of that share in packets. Chosen: a round trip of 60 ms at 12 Mbit/s.
const MEMORY: f64 = 64.0;

/// The steps of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AimdSteps {
    /// Packets by which the window grows in a round trip, at least 1. The paper's window counts blocks and
    /// grows "by one": 1 is the reading that one packet is meant, the number of symbols of a block the
    /// other.
    pub packets: u16,
    /// Part of the window that is left after congestion, in percent, 1 to 99.
    pub left_percent: u8,
}

impl AimdSteps {
    /// One packet for each round trip, and half, as the paper and TCP have it.
    pub(crate) const PRINTED: Self = Self { packets: 1, left_percent: 50 };
    /// A queue that marks early is short when the window falls, so half is too little to keep the link busy
    /// (RFC 8511 section 4.1: 0.8).
    pub const MARKED: Self = Self { packets: 1, left_percent: 80 };

    /// Parses what follows `aimd:`, `PACKETS,PERCENT`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (packets, percent) = text.split_once(',')?;
        let packets = packets.parse().ok().filter(|packets| *packets > 0)?;
        let left_percent = percent.parse().ok().filter(|percent| (1..100).contains(percent))?;
        Some(Self { packets, left_percent })
    }
}

impl fmt::Display for AimdSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "aimd:{},{}", self.packets, self.left_percent)
    }
}

/// The controller, described in the module documentation.
#[derive(Debug)]
pub(crate) struct Aimd {
    steps: AimdSteps,
    window: LossWindow,
    /// When the network last marked.
    marked: Option<Time>,
    /// Share of lost packets, exponentially weighted.
    lost: f64,
}

impl Aimd {
    /// A controller with these steps.
    pub(crate) fn new(steps: AimdSteps) -> Self {
        Self { steps, window: LossWindow::default(), marked: None, lost: 0.0 }
    }

    /// Whether a loss at `now` is noise of the channel.
    fn is_noise(&self, now: Time) -> bool {
        self.marked.is_some_and(|marked| now.since(marked) <= MARKING) || !self.is_congested()
    }

    fn on_congestion(&mut self, now: Time, sent: Time) {
        if !self.window.is_answered(sent) {
            self.window.fall(now, f64::from(self.steps.left_percent) / 1e2);
        }
    }
}

impl RateController for Aimd {
    fn on_handshake(&mut self, rtt: Duration) {
        self.window.on_handshake(rtt);
    }

    fn on_ack(&mut self, ack: &AckSample) {
        if let Growth::Avoidance(bytes) = self.window.on_ack(ack) {
            let step = PACKET * u64::from(self.steps.packets);
            self.window.bytes += (step * bytes).checked_div(self.window.bytes).unwrap_or(0);
        }
    }

    fn on_fate(&mut self, _number: u64, lost: bool) {
        self.lost += (f64::from(u8::from(lost)) - self.lost) / MEMORY;
    }

    fn on_loss(&mut self, loss: &LossSample) {
        if !self.is_noise(loss.now) {
            self.on_congestion(loss.now, loss.sent);
        }
        if loss.persistent {
            self.window.collapse();
        }
    }

    fn on_ecn(&mut self, now: Time, sent: Time) {
        self.marked = Some(now);
        self.on_congestion(now, sent);
    }

    fn budget(&self) -> Budget {
        self.window.budget()
    }

    fn is_congested(&self) -> bool {
        self.window.queue() >= LONG_QUEUE || self.lost >= DROPPING
    }

    fn state(&self) -> &'static str {
        self.window.state()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(20);

    /// Acknowledges a full window at `ms`, whose packets met a queue of `queue_ms`.
    fn ack(aimd: &mut Aimd, ms: u64, queue_ms: u64) {
        let (now, bytes) = (Time::from_millis(ms), aimd.budget().window);
        let rtt = RTT + Duration::from_millis(queue_ms);
        aimd.on_ack(&AckSample {
            now,
            bytes,
            in_flight: 0,
            newest: ms,
            left: Time::from_millis(ms.saturating_sub(1)),
            next: ms + 1,
            rtt: Some(rtt),
            one_way: None,
            newest_bytes: 0,
            app_limited: false,
            totals: Default::default(),
            smoothed: rtt,
            min_rtt: RTT,
            rate: None,
            dispersion: None,
        });
    }

    fn lose(aimd: &mut Aimd, ms: u64) {
        let now = Time::from_millis(ms);
        aimd.on_loss(&LossSample { now, bytes: 1_500, sent: now, persistent: false });
    }

    /// A controller in congestion avoidance.
    fn avoiding(steps: AimdSteps) -> Aimd {
        let mut aimd = Aimd::new(steps);
        aimd.window = LossWindow::avoiding(200 * PACKET);
        aimd
    }

    #[test]
    fn the_window_grows_by_its_step_and_falls_to_its_part_once_a_round_trip() {
        for steps in [AimdSteps::PRINTED, AimdSteps::MARKED, AimdSteps { packets: 100, left_percent: 50 }] {
            let mut aimd = avoiding(steps);
            ack(&mut aimd, 20, 0);
            let grown = 200 * PACKET + u64::from(steps.packets) * PACKET;
            assert_eq!(aimd.budget().window, grown);
            (30..33).for_each(|ms| aimd.on_ecn(Time::from_millis(ms), Time::from_millis(25)));
            let fallen = (grown as f64 * f64::from(steps.left_percent) / 1e2) as u64;
            assert_eq!(aimd.budget().window, fallen, "{steps}");
        }
    }

    #[test]
    fn a_loss_is_noise_while_the_network_marks_or_the_queue_is_short() {
        let mut aimd = avoiding(AimdSteps::PRINTED);
        for ms in (20..400).step_by(20) {
            ack(&mut aimd, ms, 0);
            lose(&mut aimd, ms + 1);
        }
        assert_eq!(aimd.budget().window, 219 * PACKET, "no queue, so no congestion");
        // A long queue without marks: congestion.
        ack(&mut aimd, 420, 12);
        assert!(aimd.is_congested());
        lose(&mut aimd, 421);
        assert_eq!(aimd.budget().window, 110 * PACKET);
        // The same with marks: noise, until ten seconds after the last one.
        let mut aimd = avoiding(AimdSteps::PRINTED);
        aimd.on_ecn(Time::from_millis(10), Time::from_millis(5));
        let window = aimd.budget().window;
        ack(&mut aimd, 10, 12);
        lose(&mut aimd, 10_010);
        assert_eq!(aimd.budget().window, window);
        lose(&mut aimd, 10_011);
        assert_eq!(aimd.budget().window, window / 2);
    }

    #[test]
    fn a_short_queue_that_is_full_is_congestion() {
        let mut aimd = avoiding(AimdSteps::PRINTED);
        // Every sixth packet is lost: noise. Every second: a queue that drops.
        for (every, is_congested) in [(6, false), (2, true)] {
            let window = aimd.budget().window;
            (0..200).for_each(|n| aimd.on_fate(n, n % every == 0));
            ack(&mut aimd, 20, 3);
            lose(&mut aimd, 21);
            assert_eq!((aimd.is_congested(), aimd.budget().window < window), (is_congested, is_congested), "{every}");
        }
    }

    #[test]
    fn steps_survive_text_and_others_are_refused() {
        for steps in [AimdSteps::PRINTED, AimdSteps { packets: 65_535, left_percent: 99 }] {
            let text = steps.to_string();
            assert_eq!(AimdSteps::parse(text.strip_prefix("aimd:").expect("its name")), Some(steps));
        }
        for bad in ["", "1", "0,50", "1,0", "1,100", "1,50,2", "-1,50"] {
            assert_eq!(AimdSteps::parse(bad), None, "{bad}");
        }
    }
}
