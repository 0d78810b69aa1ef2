//! Copies of the packets that a connection took while its peer was silent.
//!
//! The peer may have been restarted. Then it knows nothing of the connection, and these packets are lost; TCP
//! would repeat them only after a wait that doubles each time. So [`crate::hub`] queues the copies again for
//! the next connection. A packet can arrive twice by that, as on any IP path. Invariant: there are at most
//! 64 copies, and none while the peer is heard.

use std::collections::VecDeque;
use std::time::Duration;

use tidewire::Time;

use crate::packet::Packet;

/// Most copies; the newest stay. Chosen: TCP has one packet under way for each flow when nothing comes back,
/// and other flows repeat nothing late.
const MOST: usize = 64;
/// An older packet is not sent again. Chosen: its sender has repeated it, as in the queue of the peer.
const MOST_AGE: Duration = Duration::from_secs(1);

/// See the module.
pub struct Unheard {
    /// Packets received from the peer at the last look.
    received: u64,
    silent: bool,
    copies: VecDeque<(Time, Packet)>,
}

impl Unheard {
    /// For a connection that has received this number of packets.
    pub fn new(received: u64) -> Self {
        Self { received, silent: false, copies: VecDeque::new() }
    }

    /// Takes the number of packets received by now. The peer counts as silent if that is the number of the
    /// last look.
    pub fn look(&mut self, received: u64) {
        self.silent = received == self.received;
        self.received = received;
        if !self.silent {
            self.copies.clear();
        }
    }

    /// The connection takes a packet.
    pub fn take(&mut self, packet: &Packet, now: Time) {
        if self.silent {
            if self.copies.len() == MOST {
                self.copies.pop_front();
            }
            self.copies.push_back((now, packet.clone()));
        }
    }

    /// The copies that are young enough to be sent again, in the order of their packets.
    pub fn into_packets(self, now: Time) -> impl Iterator<Item = Packet> {
        self.copies.into_iter().filter(move |(taken, _)| now.since(*taken) <= MOST_AGE).map(|(_, packet)| packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::tests;

    fn udp(number: u16) -> Packet {
        tests::udp(9, number, 100)
    }

    fn ms(time: u64) -> Time {
        Time::ZERO + Duration::from_millis(time)
    }

    #[test]
    fn only_what_was_taken_in_silence_and_of_late_is_copied() {
        let mut unheard = Unheard::new(7);
        unheard.take(&udp(1), ms(0));
        unheard.look(9);
        unheard.take(&udp(2), ms(100));
        unheard.look(9);
        unheard.take(&udp(3), ms(200));
        unheard.take(&udp(4), ms(1_500));
        let again: Vec<_> = unheard.into_packets(ms(1_600)).map(Packet::into_bytes).collect();
        assert_eq!(again, [udp(4).into_bytes()]);
    }

    #[test]
    fn a_peer_that_is_heard_again_leaves_no_copies() {
        let mut unheard = Unheard::new(7);
        unheard.look(7);
        unheard.take(&udp(1), ms(0));
        unheard.look(8);
        assert_eq!(unheard.into_packets(ms(1)).count(), 0);
    }

    #[test]
    fn the_newest_copies_stay() {
        let mut unheard = Unheard::new(0);
        unheard.look(0);
        (0..100).for_each(|number| unheard.take(&udp(number), ms(0)));
        let again: Vec<_> = unheard.into_packets(ms(0)).map(Packet::into_bytes).collect();
        assert_eq!((again.len(), &again[0], &again[63]), (MOST, &udp(36).into_bytes(), &udp(99).into_bytes()));
    }
}
