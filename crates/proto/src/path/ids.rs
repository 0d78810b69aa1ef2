//! Connection ids (docs/wire.md section 5, NEW_CID): the ids that the peer uses for us, and the ids that we
//! use for the peer.
//!
//! Each side gives the other a few spare ids. An end that changes its address can then change its id too, so
//! that an observer of both addresses does not recognize it. Ids are used in the order of their sequence and
//! never again. The first authentic packet to a higher id retires all lower ids; these stay valid while
//! packets to them may be in flight. The connection owns one table of each kind, and the endpoint routes by
//! our ids. Both tables are limited to [`MAX_IDS`].

use std::collections::VecDeque;

use crate::Time;
use crate::wire::{ConnectionId, Frame, Writer};

/// Spare ids of the peer besides the one in use: one for each of two moves at once, and one in flight.
/// Chosen.
const SPARE_IDS: usize = 3;
/// Maximum number of ids of one side that are valid at once: in use, spare, and recently retired
/// (docs/wire.md section 5). Chosen.
pub(crate) const MAX_IDS: usize = 8;

/// Whether the peer knows an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Not,
    /// Sent in this packet, whose fate is open.
    In(u64),
    Yes,
}

#[derive(Debug)]
struct OurId {
    sequence: u64,
    id: ConnectionId,
    told: Told,
    /// Time at which the id expires, once a higher one is in use.
    expires: Option<Time>,
}

/// The ids that the peer uses for us.
#[derive(Debug)]
pub(crate) struct OurIds {
    /// Ids in the order of their sequence.
    ids: VecDeque<OurId>,
    /// Sequence number of the highest id that the peer has used, and of the next id to be made.
    in_use: u64,
    next: u64,
    /// Expired ids that the endpoint has not taken yet.
    gone: Vec<ConnectionId>,
}

impl OurIds {
    /// A table with the id of the handshake, `first`, which has sequence number 0.
    pub(crate) fn new(first: ConnectionId) -> Self {
        let first = OurId { sequence: 0, id: first, told: Told::Yes, expires: None };
        Self { ids: VecDeque::from([first]), in_use: 0, next: 1, gone: Vec::new() }
    }

    /// All ids that lead to this connection.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.ids.iter().map(|known| known.id).chain(self.gone.iter().copied())
    }

    /// Whether the peer should get another id.
    pub(crate) fn wants_more(&self) -> bool {
        let spare = self.ids.iter().filter(|known| known.sequence > self.in_use).count();
        spare < SPARE_IDS && self.ids.len() < MAX_IDS
    }

    /// Adds an id that no other connection has.
    pub(crate) fn push(&mut self, id: ConnectionId) {
        self.ids.push_back(OurId { sequence: self.next, id, told: Told::Not, expires: None });
        self.next += 1;
    }

    /// An authentic packet came for `id`. If it is the first packet to a higher id, older ids expire at
    /// `expires`. Returns whether it is.
    pub(crate) fn on_used(&mut self, id: ConnectionId, expires: Time) -> bool {
        let Some(sequence) = self.ids.iter().find(|known| known.id == id).map(|known| known.sequence) else {
            return false;
        };
        if sequence <= self.in_use {
            return false;
        }
        self.in_use = sequence;
        for known in self.ids.iter_mut().filter(|known| known.sequence <= sequence) {
            known.told = Told::Yes;
            if known.sequence < sequence {
                known.expires.get_or_insert(expires);
            }
        }
        true
    }

    /// Removes expired ids.
    pub(crate) fn forget(&mut self, now: Time) {
        while let Some(front) = self.ids.front().filter(|known| known.expires.is_some_and(|at| at <= now)) {
            self.gone.push(front.id);
            self.ids.pop_front();
        }
    }

    /// Returns an id that no longer leads to this connection.
    pub(crate) fn poll_gone(&mut self) -> Option<ConnectionId> {
        self.gone.pop()
    }

    /// Whether there is an id that the peer must be told.
    pub(crate) fn owes(&self) -> bool {
        self.ids.iter().any(|known| known.told == Told::Not)
    }

    /// Writes NEW_CID frames into packet `number` for the ids that the peer must be told, as far as there is
    /// room. Returns whether it wrote any.
    pub(crate) fn write(&mut self, number: u64, w: &mut Writer<'_>) -> bool {
        let mut any = false;
        for known in self.ids.iter_mut().filter(|known| known.told == Told::Not) {
            let frame = Frame::NewCid { sequence: known.sequence, retire: self.in_use, path: 0, id: known.id };
            if frame.emit(w).is_err() {
                break;
            }
            known.told = Told::In(number);
            any = true;
        }
        any
    }

    /// Packet `number` arrived or was lost.
    pub(crate) fn on_fate(&mut self, number: u64, arrived: bool) {
        for known in self.ids.iter_mut().filter(|known| known.told == Told::In(number)) {
            known.told = if arrived { Told::Yes } else { Told::Not };
        }
    }
}

/// A NEW_CID that contradicts an earlier one, names an unknown path, or gives more ids than we keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadId;

/// The ids that we use for the peer.
#[derive(Debug)]
pub(crate) struct PeerIds {
    current: (u64, ConnectionId),
    /// Unused ids in the order of their sequence, all above the current one.
    spare: Vec<(u64, ConnectionId)>,
}

impl PeerIds {
    /// A table with the id of the handshake, `first`, which has sequence number 0.
    pub(crate) fn new(first: ConnectionId) -> Self {
        Self { current: (0, first), spare: Vec::new() }
    }

    /// The id to which packets are addressed.
    pub(crate) fn current(&self) -> ConnectionId {
        self.current.1
    }

    /// Takes a NEW_CID of the peer.
    pub(crate) fn on_new(&mut self, sequence: u64, retire: u64, path: u32, id: ConnectionId) -> Result<(), BadId> {
        if path != 0 {
            return Err(BadId);
        }
        let known = [self.current].into_iter().chain(self.spare.iter().copied());
        let clash = |(n, other): (u64, ConnectionId)| (n == sequence) != (other == id);
        if known.into_iter().any(clash) {
            return Err(BadId);
        }
        if sequence > self.current.0 {
            let at = self.spare.partition_point(|&(n, _)| n < sequence);
            if self.spare.get(at).is_none_or(|&(n, _)| n != sequence) {
                self.spare.insert(at, (sequence, id));
            }
        }
        if retire > self.current.0 {
            self.spare.retain(|&(n, _)| n >= retire);
            self.advance();
        }
        if self.spare.len() >= MAX_IDS { Err(BadId) } else { Ok(()) }
    }

    /// Changes to the next id. The old id is never used again. Returns whether there was a next one.
    pub(crate) fn advance(&mut self) -> bool {
        if self.spare.is_empty() {
            return false;
        }
        self.current = self.spare.remove(0);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn id(n: u8) -> ConnectionId {
        ConnectionId([n; 8])
    }

    fn ours() -> OurIds {
        let mut ours = OurIds::new(id(0));
        let mut n = 1;
        while ours.wants_more() {
            ours.push(id(n));
            n += 1;
        }
        ours
    }

    #[test]
    fn an_id_is_told_until_the_packet_that_told_it_has_arrived() {
        let mut ours = ours();
        let mut buffer = [0; 100];
        assert!(ours.owes() && ours.write(7, &mut Writer::new(&mut buffer)));
        assert!(!ours.owes() && !ours.write(8, &mut Writer::new(&mut buffer)));
        ours.on_fate(7, false);
        // Each takes 12 bytes, so only one fits.
        assert!(ours.write(9, &mut Writer::new(&mut buffer[..20])) && ours.owes());
        ours.on_fate(9, true);
        assert!(ours.write(10, &mut Writer::new(&mut buffer)));
        ours.on_fate(10, true);
        assert!(!ours.owes());
    }

    #[test]
    fn using_an_id_gives_up_the_lower_ones_after_a_while() {
        let mut ours = ours();
        let at = Time::from_millis(100);
        assert!(!ours.on_used(id(0), at) && !ours.on_used(id(99), at));
        assert!(ours.on_used(id(2), at) && !ours.on_used(id(1), at) && !ours.on_used(id(2), at));
        ours.forget(Time::from_millis(99));
        assert_eq!(ours.poll_gone(), None);
        ours.forget(at);
        let mut gone: Vec<_> = std::iter::from_fn(|| ours.poll_gone()).collect();
        gone.sort();
        assert_eq!(gone, [id(0), id(1)]);
        assert_eq!(ours.iter().collect::<Vec<_>>(), [id(2), id(3)]);
        assert!(ours.wants_more());
    }

    /// A peer that uses up its ids as fast as it gets them.
    #[test]
    fn ids_are_bounded_whatever_the_peer_uses() {
        let mut ours = ours();
        for n in 4..100 {
            while ours.wants_more() {
                ours.push(id(n));
            }
            ours.on_used(id(n), Time::from_millis(1_000));
            assert!(ours.iter().count() <= MAX_IDS);
        }
    }

    #[test]
    fn the_peers_ids_are_taken_in_order_and_given_up_when_told() {
        let mut peer = PeerIds::new(id(0));
        assert!(!peer.advance());
        for n in [2, 1, 3, 2] {
            peer.on_new(n.into(), 0, 0, id(n)).unwrap();
        }
        assert!(peer.advance());
        assert_eq!(peer.current(), id(1));
        peer.on_new(0, 0, 0, id(0)).unwrap();
        peer.on_new(4, 3, 0, id(4)).unwrap();
        assert_eq!(peer.current(), id(3));
        assert!(peer.advance() && !peer.advance());
        assert_eq!(peer.current(), id(4));
    }

    #[test]
    fn contradictions_and_floods_are_refused() {
        let mut peer = PeerIds::new(id(0));
        assert_eq!(peer.on_new(1, 0, 1, id(1)), Err(BadId));
        assert_eq!(peer.on_new(0, 0, 0, id(1)), Err(BadId));
        assert_eq!(peer.on_new(1, 0, 0, id(0)), Err(BadId));
        peer.on_new(1, 0, 0, id(1)).unwrap();
        assert_eq!(peer.on_new(1, 0, 0, id(2)), Err(BadId));
        assert_eq!(peer.on_new(2, 0, 0, id(1)), Err(BadId));
        for n in 2..MAX_IDS as u8 {
            peer.on_new(n.into(), 0, 0, id(n)).unwrap();
        }
        assert_eq!(peer.on_new(MAX_IDS as u64, 0, 0, id(MAX_IDS as u8)), Err(BadId));
    }
}
