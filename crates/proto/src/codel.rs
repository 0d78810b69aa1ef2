//! CoDel (RFC 8289): decides at the head of a queue which packets are dropped or marked, so that the standing
//! queue stays short.
//!
//! The owner of a queue holds one [`Codel`] beside it: the simulator for each direction of a link, and
//! whatever else queues packets. It takes the packet at the head out of its queue, asks [`Codel::judge`], and
//! follows the [`Verdict`]. After [`Verdict::Drop`] it takes the next packet at the same time. Where the
//! queue has become empty it calls [`Codel::on_empty`]. The type has no clock and holds no packet. Invariant:
//! times do not go backwards, and a packet is judged once.

use core::time::Duration;

use crate::Time;

/// Settings of a queue (RFC 8289 sections 4.3 and 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CodelConfig {
    /// The standing time in the queue that is acceptable.
    pub target: Duration,
    /// For this long the time in the queue has to stay above the target before a packet is dropped: a worst
    /// usual round trip.
    pub interval: Duration,
    /// A queue of at most this many bytes never drops: one packet of full length.
    pub packet_bytes: u64,
}

impl Default for CodelConfig {
    /// The values of RFC 8289 for the Internet, and Ethernet's 1,500 bytes.
    fn default() -> Self {
        Self { target: Duration::from_millis(5), interval: Duration::from_millis(100), packet_bytes: 1_500 }
    }
}

impl CodelConfig {
    /// Settings for a path whose round trip is known. The interval has to be longer than a sender takes to
    /// respond (RFC 8289 section 4.3). TCP learns of a drop after one round trip and spreads its
    /// reduction over the next one (RFC 6937), so it is three of them, and at least the default. The
    /// target is a twentieth of the interval, as in the default.
    pub(crate) fn of_round_trip(rtt: Duration) -> Self {
        let usual = Self::default();
        let interval = usual.interval.max(rtt * 3);
        Self { target: interval / 20, interval, ..usual }
    }

    /// The defaults with another target and interval.
    pub fn new(target: Duration, interval: Duration) -> Self {
        Self { target, interval, ..Self::default() }
    }
}

/// A packet that was taken from the head of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// How long it was in the queue.
    pub waited: Duration,
    /// Bytes that are left in the queue behind it.
    pub left_bytes: u64,
    /// Whether its sender supports congestion marks (RFC 3168).
    pub supports_marks: bool,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums)]
pub enum Verdict {
    /// Send it.
    Pass,
    /// Set its congestion mark and send it.
    Mark,
    /// Drop it, and judge the next one now.
    Drop,
}

/// The state of one queue; see the module.
#[derive(Clone, Debug)]
pub struct Codel {
    config: CodelConfig,
    /// When the time in the queue will have been above the target for an interval (`first_above_time_`).
    above_until: Option<Time>,
    phase: Phase,
    /// When the next packet is dropped, or would have been (`drop_next_`).
    next_drop: Time,
    /// Drops since dropping began (`count_`), and as many as there were when it began (`lastcount_`).
    count: u32,
    first_count: u32,
}

/// Where in the procedure of RFC 8289 section 5.5 the next packet is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not in the dropping state.
    Passing,
    /// In the dropping state.
    Dropping,
    /// In the dropping state, and the packet before was dropped on entering it: this one is sent.
    Entered,
    /// In the dropping state, and the packet before was dropped because its time had come.
    Dropped,
}

impl Codel {
    /// The state of an empty queue.
    pub fn new(config: CodelConfig) -> Self {
        Self { config, above_until: None, phase: Phase::Passing, next_drop: Time::ZERO, count: 0, first_count: 0 }
    }

    /// Changes the settings from the next packet on.
    pub(crate) fn configure(&mut self, config: CodelConfig) {
        self.config = config;
    }

    /// Judges the packet that was taken from the head of the queue at `now`.
    pub fn judge(&mut self, now: Time, head: Head) -> Verdict {
        let may_drop = self.may_drop(now, head);
        match self.phase {
            Phase::Passing if may_drop => self.enter(now, head.supports_marks),
            Phase::Passing => Verdict::Pass,
            Phase::Entered => {
                self.phase = Phase::Dropping;
                Verdict::Pass
            }
            Phase::Dropping | Phase::Dropped if !may_drop => {
                self.phase = Phase::Passing;
                Verdict::Pass
            }
            Phase::Dropped => {
                self.next_drop = self.after(self.next_drop);
                self.phase = Phase::Dropping;
                self.drop_if_due(now, head.supports_marks)
            }
            Phase::Dropping => self.drop_if_due(now, head.supports_marks),
        }
    }

    /// Notes that the queue was found empty.
    pub fn on_empty(&mut self) {
        self.above_until = None;
        // Entering the dropping state outlasts an empty queue in RFC 8289 section 5.5, one more call does
        // not.
        self.phase = if self.phase == Phase::Entered { Phase::Dropping } else { Phase::Passing };
    }

    /// Whether the time in the queue was above the target for an interval (`dodequeue`).
    fn may_drop(&mut self, now: Time, head: Head) -> bool {
        if head.waited < self.config.target || head.left_bytes <= self.config.packet_bytes {
            self.above_until = None;
            return false;
        }
        match self.above_until {
            None => {
                self.above_until = Some(now + self.config.interval);
                false
            }
            Some(until) => now >= until,
        }
    }

    /// Enters the dropping state, at the rate of the last time if that was not long ago.
    fn enter(&mut self, now: Time, supports_marks: bool) -> Verdict {
        let grown = self.count.saturating_sub(self.first_count);
        let is_recent = now.since(self.next_drop) < RECENT * self.config.interval;
        self.count = if grown > 1 && is_recent { grown } else { 1 };
        self.first_count = self.count;
        self.next_drop = self.after(now);
        self.phase = if supports_marks { Phase::Dropping } else { Phase::Entered };
        if supports_marks { Verdict::Mark } else { Verdict::Drop }
    }

    fn drop_if_due(&mut self, now: Time, supports_marks: bool) -> Verdict {
        if now < self.next_drop {
            return Verdict::Pass;
        }
        self.count = self.count.saturating_add(1);
        if supports_marks {
            self.next_drop = self.after(self.next_drop);
            return Verdict::Mark;
        }
        self.phase = Phase::Dropped;
        Verdict::Drop
    }

    /// The control law of RFC 8289 section 5.4: the interval over the square root of the number of drops.
    fn after(&self, at: Time) -> Time {
        at + self.config.interval.div_f64(f64::from(self.count.max(1)).sqrt())
    }
}

/// Intervals after which the rate of drops starts anew (RFC 8289 section 5.5).
const RECENT: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// The pseudocode of RFC 8289 section 5.5 over a queue of its own, to compare with.
    struct Printed {
        queue: VecDeque<(Time, u64)>,
        config: CodelConfig,
        first_above: Option<Time>,
        dropping: bool,
        drop_next: Time,
        count: u32,
        lastcount: u32,
        dropped: Vec<Time>,
    }

    impl Printed {
        fn law(&self, at: Time) -> Time {
            at + self.config.interval.div_f64(f64::from(self.count).sqrt())
        }

        fn bytes(queue: &VecDeque<(Time, u64)>) -> u64 {
            queue.iter().map(|&(_, bytes)| bytes).sum()
        }

        fn dodequeue(&mut self, now: Time) -> (Option<Time>, bool) {
            let Some((since, _)) = self.queue.pop_front() else {
                self.first_above = None;
                return (None, false);
            };
            if now.since(since) < self.config.target || Self::bytes(&self.queue) <= self.config.packet_bytes {
                self.first_above = None;
                return (Some(since), false);
            }
            match self.first_above {
                None => {
                    self.first_above = Some(now + self.config.interval);
                    (Some(since), false)
                }
                Some(at) => (Some(since), now >= at),
            }
        }

        fn dequeue(&mut self, now: Time) -> Option<Time> {
            let (mut packet, mut ok) = self.dodequeue(now);
            if self.dropping {
                self.dropping &= ok;
                while now >= self.drop_next && self.dropping {
                    self.dropped.extend(packet);
                    self.count += 1;
                    (packet, ok) = self.dodequeue(now);
                    if ok { self.drop_next = self.law(self.drop_next) } else { self.dropping = false }
                }
            } else if ok {
                self.dropped.extend(packet);
                (packet, _) = self.dodequeue(now);
                self.dropping = true;
                let delta = self.count - self.lastcount;
                self.count = 1;
                if delta > 1 && now.since(self.drop_next) < 16 * self.config.interval {
                    self.count = delta;
                }
                self.drop_next = self.law(now);
                self.lastcount = self.count;
            }
            packet
        }
    }

    #[test]
    fn packets_are_dropped_as_in_the_pseudocode_of_the_rfc() {
        let config = CodelConfig::default();
        let mut printed = Printed {
            queue: VecDeque::new(),
            config,
            first_above: None,
            dropping: false,
            drop_next: Time::ZERO,
            count: 0,
            lastcount: 0,
            dropped: Vec::new(),
        };
        let (mut ours, mut queue, mut dropped) = (Codel::new(config), VecDeque::new(), Vec::new());
        let (mut random, mut sent) = (7u64, 0);
        for tick in 0..200_000u64 {
            let now = Time(tick * 500_000);
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Load between a half and twice the rate, for some seconds each. Times are distinct.
            let load = [1, 5, 3, 8][(tick / 7_000 % 4) as usize];
            for n in 0..u64::from((random >> 33) % 4 < load) + u64::from((random >> 40) % 8 + 4 < load) {
                let packet = (Time(now.0 - now.0.min(n)), 400 + (random >> 50) % 1_100);
                printed.queue.push_back(packet);
                queue.push_back(packet);
            }
            let took = loop {
                let Some((since, _)) = queue.pop_front() else {
                    ours.on_empty();
                    break None;
                };
                let left_bytes = Printed::bytes(&queue);
                match ours.judge(now, Head { waited: now.since(since), left_bytes, supports_marks: false }) {
                    Verdict::Drop => dropped.push(since),
                    Verdict::Pass => break Some(since),
                    Verdict::Mark => panic!("no packet supports marks"),
                }
            };
            assert_eq!(took, printed.dequeue(now), "at {now:?}");
            sent += u64::from(took.is_some());
        }
        assert_eq!(dropped, printed.dropped);
        assert!(dropped.len() > 500 && sent > 100_000, "{} dropped, {sent} sent", dropped.len());
    }

    #[test]
    fn packets_that_support_marks_are_marked_at_the_same_rate_and_never_dropped() {
        let count = |supports_marks| {
            let (mut codel, mut hits) = (Codel::new(CodelConfig::default()), 0);
            for tick in 0..2_000u64 {
                let head = Head { waited: Duration::from_millis(20), left_bytes: 30_000, supports_marks };
                loop {
                    match codel.judge(Time(tick * 1_000_000), head) {
                        Verdict::Pass => break,
                        Verdict::Mark => {
                            hits += 1;
                            break;
                        }
                        Verdict::Drop => hits += 1,
                    }
                    assert!(!supports_marks);
                }
            }
            hits
        };
        // One at 100 ms, and then after intervals over the root of 1, 2, 3, ...: in 1.9 s the n for which
        // 0.1 times the sum of 1/sqrt(k) is 1.9, about (19/2)^2.
        let (marked, dropped) = (count(true), count(false));
        assert!((90..=120).contains(&marked) && dropped == marked, "{marked} marked, {dropped} dropped");
    }

    #[test]
    fn a_short_queue_and_a_short_burst_pass() {
        let mut codel = Codel::new(CodelConfig::default());
        for tick in 0..1_000 {
            let now = Time::from_millis(tick);
            let short = Head { waited: Duration::from_micros(4_999), left_bytes: 90_000, supports_marks: false };
            assert_eq!(codel.judge(now, short), Verdict::Pass);
            let last = Head { waited: Duration::from_millis(50), left_bytes: 1_500, supports_marks: false };
            assert_eq!(codel.judge(now, last), Verdict::Pass);
        }
        for tick in 1_000..1_100 {
            let long = Head { waited: Duration::from_millis(50), left_bytes: 90_000, supports_marks: false };
            assert_eq!(codel.judge(Time::from_millis(tick), long), Verdict::Pass);
        }
    }

    #[test]
    fn settings_grow_with_round_trips_above_a_third_of_the_usual_interval() {
        let ms = Duration::from_millis;
        assert_eq!(CodelConfig::of_round_trip(ms(33)), CodelConfig::default());
        assert_eq!(CodelConfig::of_round_trip(ms(60)), CodelConfig::new(ms(9), ms(180)));
    }
}
