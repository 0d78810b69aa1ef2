//! The packets that wait for one peer: FQ-CoDel (RFC 8290).
//!
//! An end of a tunnel fills it with the packets for the peer, and empties it into a lane. Flows take turns,
//! so that a short flow does not wait behind a long one, and each has its own [`Codel`], so that a flow that
//! fills the path keeps a queue of about 5 ms. Invariant: the packets of a flow leave in the order in which
//! they came, and all together hold at most [`MOST_BYTES`].

use core::hash::{BuildHasher, Hash};
use core::time::Duration;
use std::collections::VecDeque;

use crate::Time;
use crate::codel::{Codel, CodelConfig, Head, Verdict};

/// Number of flows (RFC 8290 section 4.1.4, default).
const FLOWS: usize = 1_024;
/// Limit of all packets in bytes. Chosen: 100 ms at 300 Mbit/s. A flow with a longer queue loses packets long
/// before.
const MOST_BYTES: usize = 4 << 20;
/// A packet that waited longer is dropped: it comes from before an outage. Chosen: senders have repeated it.
const MOST_WAIT: Duration = Duration::from_secs(1);
/// Bytes that a packet counts beyond its length, so that the number of tiny packets is bounded too.
const PER_PACKET: usize = 64;

/// A packet as the queue sees it.
pub trait Packet {
    /// What tells flows apart: addresses, protocol and ports.
    type Flow: Hash;
    /// The flow of the packet.
    fn flow(&self) -> Self::Flow;
    /// Length of the IP packet in bytes.
    fn bytes(&self) -> usize;
    /// Whether the packet's sender supports congestion marks (RFC 3168).
    fn supports_marks(&self) -> bool;
    /// Marks the packet as having met congestion.
    fn mark(&mut self);
}

#[derive(Debug)]
struct Flow<P> {
    /// Packets, and when they came.
    packets: VecDeque<(P, Time)>,
    bytes: usize,
    /// Bytes that the flow may still send in this turn.
    credit: isize,
    codel: Codel,
    /// Whether the flow is in one of the two lists.
    is_listed: bool,
}

/// What happened to the packets that did not leave as they came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fates {
    /// Packets dropped because they waited too long.
    pub late: u64,
    /// Packets marked instead.
    pub marked: u64,
    /// Packets dropped because the queue was full.
    pub overflow: u64,
}

/// The queue for one peer: FQ-CoDel (RFC 8290). Flows take turns by bytes, and a flow whose packets wait
/// longer than 5 ms for 100 ms gets congestion marks or loses packets; both times grow with round trips
/// above 33 ms. It holds at most 4 MiB, and drops what waited for more than a second.
#[derive(Debug)]
pub struct Queue<P, S> {
    flows: Vec<Flow<P>>,
    /// Spreads the flows.
    hasher: S,
    codel: CodelConfig,
    /// Flows that have just begun to wait come before those that waited.
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    bytes: usize,
    /// Bytes of a turn: the longest packet (RFC 8290 section 4.1.3).
    quantum: isize,
    fates: Fates,
}

impl<P: Packet, S: BuildHasher> Queue<P, S> {
    /// An empty queue for packets of at most `mtu` bytes. `hasher` spreads the flows: where packets come from
    /// others its key is secret, so that nobody can choose packets that share another's turn.
    pub fn new(mtu: usize, hasher: S) -> Self {
        let codel = CodelConfig { packet_bytes: (mtu + PER_PACKET) as u64, ..CodelConfig::default() };
        let flow =
            |_| Flow { packets: VecDeque::new(), bytes: 0, credit: 0, codel: Codel::new(codel), is_listed: false };
        let flows = (0..FLOWS).map(flow).collect();
        let (new, old) = (VecDeque::new(), VecDeque::new());
        Self { flows, hasher, codel, new, old, bytes: 0, quantum: mtu as isize, fates: Fates::default() }
    }

    /// Adds a packet. If the queue is full, the longest flow loses its oldest packet.
    pub fn push(&mut self, packet: P, now: Time) {
        let index = self.index(&packet);
        let counted = packet.bytes() + PER_PACKET;
        let flow = &mut self.flows[index];
        flow.bytes += counted;
        flow.packets.push_back((packet, now));
        self.bytes += counted;
        if !flow.is_listed {
            (flow.is_listed, flow.credit) = (true, self.quantum);
            self.new.push_back(index);
        }
        while self.bytes > MOST_BYTES {
            let longest = (0..FLOWS).max_by_key(|&index| self.flows[index].bytes).unwrap_or(index);
            if self.take(longest).is_none() {
                break;
            }
            self.fates.overflow += 1;
        }
    }

    /// Removes and returns the next packet. `rtt` is the round trip of the path to the peer.
    pub fn pop(&mut self, now: Time, rtt: Duration) -> Option<P> {
        let packet_bytes = self.codel.packet_bytes;
        self.codel = CodelConfig { packet_bytes, ..CodelConfig::of_round_trip(rtt) };
        loop {
            let is_new = !self.new.is_empty();
            let index = *if is_new { self.new.front() } else { self.old.front() }?;
            let flow = &mut self.flows[index];
            if flow.credit <= 0 {
                flow.credit += self.quantum;
                self.end_turn(is_new, Some(index));
                continue;
            }
            let Some(packet) = self.pop_from(index, now) else {
                // A new flow that is empty goes round once more, so that it cannot always be new (RFC 8290
                // section 4.2).
                let stays = is_new && !self.old.is_empty();
                self.flows[index].is_listed = stays;
                self.end_turn(is_new, stays.then_some(index));
                continue;
            };
            self.flows[index].credit -= packet.bytes() as isize;
            return Some(packet);
        }
    }

    /// Number of packets that wait.
    pub fn waiting(&self) -> usize {
        self.flows.iter().map(|flow| flow.packets.len()).sum()
    }

    /// Whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// What happened to packets so far.
    pub fn fates(&self) -> Fates {
        self.fates
    }

    fn index(&self, packet: &P) -> usize {
        self.hasher.hash_one(packet.flow()) as usize % FLOWS
    }

    /// Removes the first flow from its list, and adds `again` to the old flows.
    fn end_turn(&mut self, is_new: bool, again: Option<usize>) {
        if is_new { &mut self.new } else { &mut self.old }.pop_front();
        self.old.extend(again);
    }

    /// The next packet of a flow that CoDel does not drop.
    fn pop_from(&mut self, index: usize, now: Time) -> Option<P> {
        loop {
            let Some((mut packet, came)) = self.take(index) else {
                self.flows[index].codel.on_empty();
                return None;
            };
            let (flow, waited) = (&mut self.flows[index], now.since(came));
            let head = Head { waited, left_bytes: flow.bytes as u64, supports_marks: packet.supports_marks() };
            flow.codel.configure(self.codel);
            match flow.codel.judge(now, head) {
                _ if waited > MOST_WAIT => self.fates.late += 1,
                Verdict::Pass => return Some(packet),
                Verdict::Mark => {
                    packet.mark();
                    self.fates.marked += 1;
                    return Some(packet);
                }
                Verdict::Drop => self.fates.late += 1,
            }
        }
    }

    fn take(&mut self, index: usize) -> Option<(P, Time)> {
        let flow = &mut self.flows[index];
        let waiting = flow.packets.pop_front()?;
        let counted = waiting.0.bytes() + PER_PACKET;
        flow.bytes -= counted;
        self.bytes -= counted;
        Some(waiting)
    }
}

#[cfg(test)]
mod tests {
    use core::hash::BuildHasherDefault;
    use std::hash::DefaultHasher;

    use super::*;

    const RTT: Duration = Duration::from_millis(20);

    const MS: Duration = Duration::from_millis(1);

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Numbered {
        port: u16,
        number: u16,
        bytes: usize,
        supports_marks: bool,
        is_marked: bool,
    }

    impl Packet for Numbered {
        type Flow = u16;
        fn flow(&self) -> u16 {
            self.port
        }
        fn bytes(&self) -> usize {
            self.bytes
        }
        fn supports_marks(&self) -> bool {
            self.supports_marks
        }
        fn mark(&mut self) {
            self.is_marked = true;
        }
    }

    type Tested = Queue<Numbered, BuildHasherDefault<DefaultHasher>>;

    fn empty() -> (Tested, Time) {
        (Queue::new(1_400, BuildHasherDefault::default()), Time::from_millis(1))
    }

    fn udp(port: u16, number: u16, bytes: usize) -> Numbered {
        Numbered { port, number, bytes, supports_marks: false, is_marked: false }
    }

    /// A port whose flow has another turn than that of port 1.
    fn other(queue: &Tested) -> u16 {
        let turn = |port| queue.index(&udp(port, 0, 100));
        (2..).find(|&port| turn(port) != turn(1)).unwrap()
    }

    #[test]
    fn flows_take_turns_and_keep_their_order() {
        let (mut queue, now) = empty();
        let two = other(&queue);
        for n in 0..100 {
            queue.push(udp(1, n, 1_400), now);
        }
        // A flow with one packet passes the long one.
        assert_eq!(queue.pop(now, RTT).unwrap(), udp(1, 0, 1_400));
        queue.push(udp(two, 0, 100), now);
        assert_eq!(queue.pop(now, RTT).unwrap(), udp(two, 0, 100));
        let rest: Vec<_> = std::iter::from_fn(|| queue.pop(now, RTT)).collect();
        assert!(rest.iter().zip(1..).all(|(packet, n)| *packet == udp(1, n, 1_400)));
        assert!(rest.len() == 99 && queue.is_empty() && queue.fates() == Fates::default());
    }

    #[test]
    fn two_long_flows_share_by_bytes() {
        let (mut queue, now) = empty();
        let two = other(&queue);
        for n in 0..1_000 {
            queue.push(udp(1, n, 1_400), now);
            (0..2).for_each(|m| queue.push(udp(two, 2 * n + m, 700), now));
        }
        let first: usize = (0..300).filter_map(|_| queue.pop(now, RTT)).filter(|packet| packet.bytes == 1_400).count();
        assert!((98..=102).contains(&first), "{first} long packets of 300, so as many bytes of both");
    }

    #[test]
    fn a_full_queue_drops_from_the_longest_flow() {
        let (mut queue, now) = empty();
        queue.push(udp(other(&queue), 0, 100), now);
        let fitting = MOST_BYTES / (1_400 + PER_PACKET);
        for n in 0..fitting as u16 + 50 {
            queue.push(udp(1, n, 1_400), now);
        }
        assert!((50..=51).contains(&queue.fates().overflow), "{:?}", queue.fates());
        let left: Vec<_> = std::iter::from_fn(|| queue.pop(now, RTT)).collect();
        assert!(left.iter().any(|packet| packet.bytes == 100) && queue.bytes == 0);
    }

    #[test]
    fn packets_from_before_an_outage_are_dropped() {
        let (mut queue, now) = empty();
        (0..10).for_each(|n| queue.push(udp(1, n, 500), now));
        let later = now + MOST_WAIT + MS;
        queue.push(udp(1, 10, 500), later);
        assert_eq!(queue.pop(later, RTT).unwrap(), udp(1, 10, 500));
        assert!(queue.pop(later, RTT).is_none() && queue.fates().late == 10);
    }

    /// A sender of twice the rate for two seconds, whose packets can be marked or not.
    #[test]
    fn a_standing_queue_is_marked_if_it_can_be_and_dropped_if_not() {
        for ecn in [false, true] {
            let ((mut queue, start), mut marked, mut left) = (empty(), 0, 0);
            for n in 0..2_000_u32 {
                let now = start + MS * n;
                for m in 0..2 {
                    queue.push(Numbered { supports_marks: ecn, ..udp(1, (2 * n + m) as u16, 1_000) }, now);
                }
                let packet = queue.pop(now, RTT).unwrap();
                (marked, left) = (marked + u64::from(packet.is_marked), left + 1);
            }
            let fates = queue.fates();
            let (hit, spared) = if ecn { (fates.marked, fates.late) } else { (fates.late, fates.marked) };
            assert!(hit > 30 && spared == 0 && marked == fates.marked, "{ecn}: {fates:?}");
            assert_eq!(4_000, left + fates.late + fates.overflow + queue.waiting() as u64, "{fates:?}");
        }
    }
}
