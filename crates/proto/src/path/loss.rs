//! Decides which packets are lost: RACK (RFC 8985) over packet numbers, with a reordering window that starts
//! small and learns.
//!
//! A packet is lost if a later packet was acknowledged and the reordering window has passed since this
//! packet's own acknowledgement was due. While no reordering was ever seen, three later packets suffice (RFC
//! 9002 section 6.1.1). A late acknowledgement of a packet that was declared lost widens the window just
//! enough to avoid that mistake.

use core::time::Duration;

use super::flight::{Fate, Flight};
use super::losses::Cause;
use crate::Time;

/// Later packets that must be acknowledged before an older one counts as lost, while no reordering was seen
/// (RFC 9002 section 6.1.1).
const PACKET_THRESHOLD: u64 = 3;
/// Initial reordering window, as a fraction of the minimum RTT. RFC 8985 uses 1/4 once reordering was seen.
/// Before that, half of it is enough, since the window grows after its mistakes.
const INITIAL_WINDOW_DIVISOR: u32 = 8;
/// A learnt window halves after this many round trips without a mistake (RFC 8985 section 6.2 keeps it for 16
/// recoveries).
const WINDOW_LIFE: u32 = 16;

/// Loss detection of one path.
#[derive(Debug, Default)]
pub(crate) struct LossDetector {
    /// Newest acknowledged packet: its number, send time and RTT.
    newest: Option<(u64, Time, Duration)>,
    learnt: Duration,
    learnt_at: Time,
    reordering: bool,
    /// Time at which the oldest open packet before the newest acknowledged one becomes lost.
    deadline: Option<Time>,
    /// No open packet that elicits an acknowledgement has a lower number.
    scan_from: u64,
}

impl LossDetector {
    /// Packet `number`, sent at `sent`, was acknowledged for the first time, at `now`.
    pub(crate) fn on_acked(&mut self, number: u64, sent: Time, now: Time) {
        if self.newest.is_none_or(|(newest, ..)| number > newest) {
            self.newest = Some((number, sent, now.since(sent)));
        }
    }

    /// A packet that was declared lost, sent at `sent`, was acknowledged.
    pub(crate) fn on_spurious(&mut self, sent: Time, now: Time, smoothed: Duration) {
        self.reordering = true;
        let Some((_, _, rtt)) = self.newest else { return };
        let late = now.since(sent).saturating_sub(rtt);
        self.learnt = self.learnt.max(late + late / 4).min(smoothed);
        self.learnt_at = now;
    }

    /// Highest number acknowledged so far.
    pub(crate) fn newest(&self) -> Option<u64> {
        self.newest.map(|(number, ..)| number)
    }

    /// Send time of that packet.
    pub(crate) fn newest_left(&self) -> Option<Time> {
        self.newest.map(|(_, left, _)| left)
    }

    /// Time at which [`Self::detect`] must be called again.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// Settles the packets that are lost by now and appends each to `lost`, oldest first. The cause of each
    /// is [`Cause::Medium`] until the caller says otherwise.
    ///
    /// Of two packets the older one is lost first. The search therefore ends at the first packet that is not
    /// lost and resumes there the next time. Its cost depends on the packets settled since, not on the
    /// packets in flight.
    pub(crate) fn detect<T: Copy>(
        &mut self,
        flight: &mut Flight<T>,
        now: Time,
        min_rtt: Duration,
        lost: &mut Vec<u64>,
    ) {
        self.deadline = None;
        let Some((newest, newest_left, rtt)) = self.newest else { return };
        if self.learnt > Duration::ZERO && now.since(self.learnt_at) > min_rtt * WINDOW_LIFE {
            self.learnt /= 2;
            self.learnt_at = now;
        }
        let window = (min_rtt / INITIAL_WINDOW_DIVISOR).max(super::rtt::GRANULARITY).max(self.learnt);
        let first_lost = lost.len();
        let mut oldest_open = None;
        let before = flight.iter_from(self.scan_from).take_while(|&(number, _)| number < newest);
        for (number, packet) in before.filter(|(_, packet)| packet.fate == Fate::Open && packet.elicits) {
            let due = packet.at + rtt + window;
            let overtaken = !self.reordering && number + PACKET_THRESHOLD <= newest && packet.at <= newest_left;
            if !overtaken && due > now {
                (oldest_open, self.deadline) = (Some(number), Some(due));
                break;
            }
            lost.push(number);
        }
        self.scan_from = oldest_open.unwrap_or(newest);
        for &number in &lost[first_lost..] {
            flight.settle(number, Fate::Lost { at: now, cause: Cause::Medium });
        }
    }
}

/// Whether lost packets, given oldest first, show persistent congestion: two of them were sent at least
/// `span.1` apart and after `span.0`, and nothing between them arrived (RFC 9002 section 7.6.2). `span` is
/// `None` before the first RTT sample.
pub(crate) fn is_persistent<T: Copy>(flight: &Flight<T>, lost: &[u64], span: Option<(Time, Duration)>) -> bool {
    let (Some((since, least)), [first, .., last]) = (span, lost) else { return false };
    let left = |number| flight.get(number).map_or(Time::ZERO, |sent| sent.at);
    // Usually the span is much too short, and the packets in between need no search.
    if left(*last).since(left(*first).max(since)) < least {
        return false;
    }
    let mut began: Option<Time> = None;
    for (_, packet) in flight.iter_from(*first).take_while(|(number, _)| number <= last) {
        match packet.fate {
            Fate::Acked => began = None,
            Fate::Lost { .. } if packet.at > since && packet.at.since(*began.get_or_insert(packet.at)) >= least => {
                return true;
            }
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::flight::{Carried, Sent};
    use super::*;

    const RTT: Duration = Duration::from_millis(60);

    fn flight(count: u64) -> Flight<()> {
        let mut flight = Flight::default();
        for n in 0..count {
            flight.push(Sent {
                at: Time::from_millis(n),
                bytes: 1_000,
                fate: Fate::Open,
                carried: Carried::Control,
                elicits: true,
                app_limited: false,
                mark: Default::default(),
            });
        }
        flight
    }

    fn ack(flight: &mut Flight<()>, detector: &mut LossDetector, number: u64, now: Time) -> Vec<u64> {
        let sent = flight.settle(number, Fate::Acked).expect("held");
        detector.on_acked(number, sent.at, now);
        let mut lost = Vec::new();
        detector.detect(flight, now, RTT, &mut lost);
        lost
    }

    #[test]
    fn three_later_packets_condemn_an_older_one() {
        let (mut flight, mut detector) = (flight(10), LossDetector::default());
        assert!(ack(&mut flight, &mut detector, 1, Time::from_millis(61)).is_empty());
        assert!(ack(&mut flight, &mut detector, 2, Time::from_millis(62)).is_empty());
        assert_eq!(ack(&mut flight, &mut detector, 3, Time::from_millis(63)), [0]);
        assert_eq!(flight.bytes(), 6_000);
    }

    #[test]
    fn the_window_condemns_without_more_packets() {
        let (mut flight, mut detector) = (flight(2), LossDetector::default());
        assert!(ack(&mut flight, &mut detector, 1, Time::from_millis(61)).is_empty());
        let due = detector.deadline().expect("armed");
        assert_eq!(due, Time::ZERO + RTT + RTT / 8);
        let mut lost = Vec::new();
        detector.detect(&mut flight, due - Duration::from_nanos(1), RTT, &mut lost);
        assert!(lost.is_empty());
        detector.detect(&mut flight, due, RTT, &mut lost);
        assert_eq!(lost, [0]);
    }

    #[test]
    fn only_a_long_time_without_an_arrival_is_persistent() {
        let mut flight = flight(100);
        let lost: Vec<u64> = (10..80).collect();
        for &n in &lost {
            flight.settle(n, Fate::Lost { at: Time::from_millis(200), cause: Cause::Medium });
        }
        let span = |since, least| Some((Time::from_millis(since), Duration::from_millis(least)));
        assert!(is_persistent(&flight, &lost, span(0, 69)));
        assert!(!is_persistent(&flight, &lost, span(0, 70)));
        assert!(
            !is_persistent(&flight, &lost, span(20, 69)),
            "what left before the first round trip was known does not count"
        );
        assert!(!is_persistent(&flight, &lost, None));
        flight.settle(40, Fate::Acked);
        assert!(!is_persistent(&flight, &lost, span(0, 69)), "one arrived");
        assert!(is_persistent(&flight, &lost, span(0, 38)));
    }

    #[test]
    fn a_mistake_widens_the_window() {
        let (mut flight, mut detector) = (flight(20), LossDetector::default());
        for n in 1..4 {
            ack(&mut flight, &mut detector, n, Time::from_millis(60 + n));
        }
        // Packet 0 was declared lost; it arrives 20 ms late.
        detector.on_spurious(Time::ZERO, Time::from_millis(80), RTT);
        assert!(ack(&mut flight, &mut detector, 10, Time::from_millis(81)).is_empty());
        assert!(detector.deadline().expect("armed") >= Time::from_millis(4) + RTT + Duration::from_millis(20));
    }
}
