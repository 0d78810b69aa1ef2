//! Packet numbers received, and the time at which the next FEEDBACK is due.
//!
//! The number of ranges is limited to [`MAX_RANGES`]; the oldest are forgotten first. The peer may then
//! declare a packet with a forgotten number lost although it arrived. The lane report corrects the effects.

use core::ops::RangeInclusive;
use core::time::Duration;

use super::trains::Arriving;
use super::{Ecn, EcnTally};
use crate::Time;

/// Ranges of packet numbers kept and reported (docs/wire.md section 5). At 20 % random loss they span some
/// 400 packets.
const MAX_RANGES: usize = 64;
/// FEEDBACK waits for at least this many packets (RFC 9000 section 13.2.2), and for [`RTT_FRACTION`] of a
/// round trip.
const PACKETS_PER_FEEDBACK: u32 = 2;
/// FEEDBACK waits for at most this many gaps. Each range is then reported in four FEEDBACKs, three of which
/// may be lost, before it is forgotten. On a long lossy path a sixteenth of a round trip is hundreds of
/// packets. A range forgotten before it was reported would count as lost.
const GAPS_PER_FEEDBACK: usize = MAX_RANGES / 4;
/// FEEDBACK waits for this fraction of a round trip.
const RTT_FRACTION: u32 = 16;
/// A lone packet is acknowledged after half a round trip, but after at most this time (RFC 9000 section 18.2,
/// `max_ack_delay`).
pub(crate) const MAX_DELAY: Duration = Duration::from_millis(25);

/// Received packet numbers as ranges, newest first.
#[derive(Debug, Default)]
pub(crate) struct ReceivedPackets {
    ranges: Vec<RangeInclusive<u64>>,
    newest_at: Time,
    ecn: EcnTally,
    /// Packets that came after one with a higher number, and the greatest distance between the two.
    reordered: u64,
    depth: u64,
    /// The packet train that is arriving.
    pub train: Arriving,
}

impl ReceivedPackets {
    /// Takes an authentic packet. Returns whether it left a gap or filled one.
    pub(crate) fn insert(&mut self, number: u64, at: Time, mark: Option<Ecn>) -> bool {
        self.ecn.count(mark);
        let in_order = self.ranges.first().is_none_or(|newest| newest.end() + 1 == number);
        match self.ranges.first().and_then(|newest| newest.end().checked_sub(number)) {
            None => self.newest_at = at,
            Some(behind) => {
                self.reordered += 1;
                self.depth = self.depth.max(behind);
            }
        }
        self.insert_number(number);
        self.ranges.truncate(MAX_RANGES);
        !in_order
    }

    fn insert_number(&mut self, number: u64) {
        // Newest first: the first range that does not lie wholly above the number.
        let at = self.ranges.iter().position(|range| *range.start() <= number + 1).unwrap_or(self.ranges.len());
        let Some(range) = self.ranges.get(at).cloned() else {
            self.ranges.push(number..=number);
            return;
        };
        let (start, end) = range.into_inner();
        if number > end + 1 {
            self.ranges.insert(at, number..=number);
        } else if number == end + 1 {
            self.ranges[at] = start..=number;
        } else if number + 1 == start {
            match self.ranges.get(at + 1).cloned() {
                Some(older) if older.end() + 1 == number => {
                    self.ranges[at] = *older.start()..=end;
                    self.ranges.remove(at + 1);
                }
                _ => self.ranges[at] = number..=end,
            }
        } else {
            return;
        }
        // The range may have grown up to the next newer range.
        if at > 0 && *self.ranges[at].end() + 1 == *self.ranges[at - 1].start() {
            self.ranges[at - 1] = *self.ranges[at].start()..=*self.ranges[at - 1].end();
            self.ranges.remove(at);
        }
    }

    /// How many numbers between the highest one and this one have not come.
    pub(crate) fn missing_before(&self, number: u64) -> u64 {
        self.ranges.first().map_or(0, |newest| number.saturating_sub(newest.end() + 1))
    }

    /// Ranges, newest first.
    pub(crate) fn ranges(&self) -> &[RangeInclusive<u64>] {
        &self.ranges
    }

    /// Time since the newest packet came.
    pub(crate) fn delay(&self, now: Time) -> Duration {
        now.since(self.newest_at)
    }

    /// When the packet with the highest number came.
    pub(crate) fn newest_at(&self) -> Time {
        self.newest_at
    }

    /// Packets that came after one with a higher number, and the greatest distance between the two. The
    /// caller of [`Self::insert`] must report no packet twice.
    pub(crate) fn reordering(&self) -> (u64, u64) {
        (self.reordered, self.depth)
    }

    /// ECN counts of all received packets.
    pub(crate) fn ecn(&self) -> EcnTally {
        self.ecn
    }
}

/// How long the FEEDBACK for a lone packet may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Not at all: it opened or closed a gap, or decoded something.
    None,
    /// Half a round trip, at most [`MAX_DELAY`].
    Usual,
    /// [`MAX_DELAY`]: the sender needs it no sooner.
    Long,
}

/// Decides when FEEDBACK is due.
#[derive(Debug, Default)]
pub(crate) struct FeedbackClock {
    eliciting: u32,
    urgent: bool,
    /// The newest packet may wait for another one.
    may_wait: bool,
    /// Packets that left or filled a gap since the last FEEDBACK.
    gaps: usize,
    last: Time,
    oldest: Time,
    /// Whether the last FEEDBACK of a busy time is sent twice.
    repeats: bool,
    repeat: Option<Time>,
}

impl FeedbackClock {
    /// With `repeats` the last FEEDBACK of a busy time is repeated once, [`MAX_DELAY`] later. This is for an
    /// end whose address may change without its notice: the peer then hears from the new address even if
    /// nothing reaches it any more.
    pub(crate) fn new(repeats: bool) -> Self {
        Self { repeats, ..Self::default() }
    }

    /// A packet that elicits an acknowledgement came; see [`Patience`].
    pub(crate) fn on_eliciting(&mut self, now: Time, patience: Patience) {
        if self.eliciting == 0 {
            self.oldest = now;
        }
        self.eliciting += 1;
        self.urgent |= patience == Patience::None;
        self.may_wait = patience == Patience::Long;
    }

    /// A packet left a gap or filled one.
    pub(crate) fn on_gap(&mut self) {
        self.gaps += 1;
    }

    /// Requests FEEDBACK as soon as the spacing allows, whatever arrived (for new credit).
    pub(crate) fn request(&mut self, now: Time) {
        self.on_eliciting(now, Patience::None);
        self.eliciting = self.eliciting.max(PACKETS_PER_FEEDBACK);
    }

    /// A FEEDBACK was sent.
    pub(crate) fn on_sent(&mut self, now: Time) {
        let busy = self.eliciting > 0 && now.since(self.last) < MAX_DELAY;
        let repeat = (self.repeats && busy).then(|| now + MAX_DELAY);
        *self = Self { last: now, repeat, repeats: self.repeats, ..Self::default() };
    }

    /// Time at which the next FEEDBACK is due, if one is needed.
    pub(crate) fn due(&self, rtt: Duration) -> Option<Time> {
        if self.eliciting == 0 {
            return self.repeat;
        }
        let spaced = if self.gaps < GAPS_PER_FEEDBACK { self.last + rtt / RTT_FRACTION } else { self.last };
        if self.eliciting >= PACKETS_PER_FEEDBACK {
            return Some(spaced);
        }
        let patience = match self {
            Self { urgent: true, .. } => rtt / RTT_FRACTION,
            Self { may_wait: true, .. } => MAX_DELAY,
            _ => (rtt / 2).min(MAX_DELAY),
        };
        Some(spaced.max(self.oldest + patience))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn model(set: &BTreeSet<u64>) -> Vec<RangeInclusive<u64>> {
        let mut out: Vec<RangeInclusive<u64>> = Vec::new();
        for &n in set.iter().rev() {
            match out.last_mut() {
                Some(last) if *last.start() == n + 1 => *last = n..=*last.end(),
                _ => out.push(n..=n),
            }
        }
        out
    }

    #[test]
    fn ranges_agree_with_a_set_for_all_orders_of_six() {
        fn permute(rest: &mut Vec<u64>, chosen: &mut Vec<u64>) {
            let mut received = ReceivedPackets::default();
            let mut set = BTreeSet::new();
            for &n in chosen.iter() {
                received.insert(n, Time::ZERO, None);
                set.insert(n);
                assert_eq!(received.ranges().to_vec(), model(&set), "{chosen:?}");
            }
            for i in 0..rest.len() {
                let n = rest.remove(i);
                chosen.push(n);
                permute(rest, chosen);
                chosen.pop();
                rest.insert(i, n);
            }
        }
        permute(&mut vec![0, 1, 2, 4, 5, 7], &mut Vec::new());
    }

    #[test]
    fn keeps_the_newest_ranges() {
        let mut received = ReceivedPackets::default();
        (0..1_000).for_each(|n| {
            received.insert(2 * n, Time::ZERO, None);
        });
        let ranges = received.ranges();
        assert_eq!((ranges.len(), ranges[0].clone()), (MAX_RANGES, 1_998..=1_998));
    }

    #[test]
    fn what_comes_late_is_counted_with_its_distance() {
        let mut received = ReceivedPackets::default();
        [0, 1, 5, 3, 2, 6, 9, 4].into_iter().for_each(|n| {
            received.insert(n, Time::ZERO, None);
        });
        assert_eq!(received.reordering(), (3, 5));
    }

    #[test]
    fn feedback_waits_for_two_packets_and_a_sixteenth_of_a_round_trip() {
        let rtt = Duration::from_millis(64);
        let mut clock = FeedbackClock::default();
        assert_eq!(clock.due(rtt), None);
        clock.on_sent(Time::from_millis(100));
        clock.on_eliciting(Time::from_millis(101), Patience::Usual);
        assert_eq!(clock.due(rtt), Some(Time::from_millis(126)));
        clock.on_eliciting(Time::from_millis(102), Patience::Usual);
        assert_eq!(clock.due(rtt), Some(Time::from_millis(104)));
    }

    #[test]
    fn feedback_for_what_may_wait_waits_for_another_packet_but_for_nothing_urgent() {
        let (rtt, at) = (Duration::from_millis(8), Time::from_millis);
        let lone = |patience| {
            let mut clock = FeedbackClock::default();
            clock.on_eliciting(at(100), patience);
            clock
        };
        let due = [Patience::None, Patience::Usual, Patience::Long].map(|patience| lone(patience).due(rtt));
        assert_eq!(due, [Time::from_micros(100_500), at(104), at(125)].map(Some));
        // Half a round trip that is longer waits no longer.
        assert_eq!(lone(Patience::Long).due(Duration::from_secs(1)), lone(Patience::Usual).due(Duration::from_secs(1)));
        for second in [Patience::None, Patience::Usual, Patience::Long] {
            let mut clock = lone(Patience::Long);
            clock.on_eliciting(at(110), second);
            assert_eq!(clock.due(rtt), Some(Time::from_micros(500)));
            // What was acknowledged does not let later packets wait.
            clock.on_sent(at(110));
            clock.on_eliciting(at(120), Patience::Usual);
            assert_eq!(clock.due(rtt), Some(at(124)));
        }
    }

    #[test]
    fn gaps_are_said_before_they_are_forgotten() {
        let rtt = Duration::from_secs(1);
        let mut clock = FeedbackClock::default();
        clock.on_sent(Time::from_millis(100));
        let mut said = 0;
        for ms in 101..=164 {
            clock.on_gap();
            clock.on_eliciting(Time::from_millis(ms), Patience::None);
            if clock.due(rtt).is_some_and(|due| due <= Time::from_millis(ms)) {
                clock.on_sent(Time::from_millis(ms));
                said += 1;
            }
        }
        assert_eq!(said, MAX_RANGES / GAPS_PER_FEEDBACK);
    }

    #[test]
    fn a_gap_does_not_wait_for_a_second_packet() {
        let rtt = Duration::from_millis(64);
        let mut clock = FeedbackClock::default();
        clock.on_sent(Time::from_millis(100));
        clock.on_eliciting(Time::from_millis(110), Patience::None);
        assert_eq!(clock.due(rtt), Some(Time::from_millis(114)));
    }
}
