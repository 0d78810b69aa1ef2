//! Half-open sessions: HELLOs that were answered and whose initiators have not been heard since.
//!
//! Nothing but keys and addresses is held for one, so that a flood of HELLOs cannot take more than [`MAX_HALF_OPEN`] times some two hundred
//! bytes; the connection is made by the first authentic packet. They stand in the order of their coming, which is the order of their
//! expiry; one that came alive leaves its place empty until those before it are gone. Invariant: the first place is never empty.

use core::net::{IpAddr, SocketAddr};
use core::num::NonZeroU8;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};

use crate::Time;
use crate::handshake::{Accepted, Route};
use crate::wire::ConnectionId;

/// Half-open sessions at most, empty places included (RELIABILITY H5).
const MAX_HALF_OPEN: usize = 4_096;
/// With fewer sessions than this, full places are moved together before one is displaced: at least a quarter is won by each moving.
const SPARSE: usize = MAX_HALF_OPEN / 4 * 3;
/// How long one waits for its first packet: an initiator that has the REPLY asks ever more seldom on a bad path, and does not know that
/// it is not heard.
const LIFE: Duration = Duration::from_secs(30);

/// Addresses of ours that sessions are told apart by; of what came to further ones the system chooses the source. A host has few, and each
/// session holds a byte instead of the address.
const MAX_LOCALS: usize = 255;

/// One answered HELLO.
struct Answered {
    accepted: Accepted,
    /// Where the HELLO came from, and when.
    remote: SocketAddr,
    at: Time,
    /// Which of our addresses it was sent to, if we may have several.
    local: Option<NonZeroU8>,
    /// The REPLY went to `remote` and nowhere else.
    alone: bool,
}

/// How a HELLO came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) route: Route,
    pub(super) at: Time,
    /// Its REPLY went back by this route and by no other.
    pub(super) alone: bool,
}

/// See the module.
#[derive(Default)]
pub(super) struct HalfOpen {
    sessions: VecDeque<Option<Answered>>,
    /// The number of the first place; they count up, and wrap.
    first: u32,
    places: HashMap<ConnectionId, u32>,
    /// Addresses of ours that HELLOs came to.
    locals: Vec<IpAddr>,
}

impl HalfOpen {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn contains(&self, id: &ConnectionId) -> bool {
        self.places.contains_key(id)
    }

    /// What was agreed, the way that the HELLO came, and when.
    pub(super) fn get(&self, id: &ConnectionId) -> Option<(&Accepted, Asked)> {
        let place = self.places.get(id)?.wrapping_sub(self.first);
        let Answered { accepted, remote, at, local, alone } = self.sessions.get(place as usize)?.as_ref()?;
        let local = local.and_then(|index| self.locals.get(usize::from(index.get()) - 1)).copied();
        Some((accepted, Asked { route: Route { remote: *remote, local }, at: *at, alone: *alone }))
    }

    /// The REPLY of this session went to another address too.
    pub(super) fn spread(&mut self, id: &ConnectionId) {
        let Some(place) = self.places.get(id).map(|place| place.wrapping_sub(self.first)) else { return };
        if let Some(Some(session)) = self.sessions.get_mut(place as usize) {
            session.alone = false;
        }
    }

    pub(super) fn remove(&mut self, id: &ConnectionId) {
        let Some(place) = self.places.remove(id) else { return };
        if let Some(session) = self.sessions.get_mut(place.wrapping_sub(self.first) as usize) {
            *session = None;
        }
        self.trim();
    }

    /// Adds one, known by its local id; returns how many older ones had to go for it.
    pub(super) fn insert(&mut self, accepted: Accepted, route: Route, at: Time) -> u64 {
        let mut displaced = 0;
        if self.sessions.len() >= MAX_HALF_OPEN {
            if self.len() < SPARSE {
                self.move_together();
            } else {
                self.remove_first();
                displaced = 1;
            }
        }
        let place = self.first.wrapping_add(self.sessions.len() as u32);
        self.places.insert(accepted.local(), place);
        let local = route.local.and_then(|local| self.index_of(local));
        self.sessions.push_back(Some(Answered { accepted, remote: route.remote, at, local, alone: true }));
        displaced
    }

    /// Counted from 1.
    fn index_of(&mut self, local: IpAddr) -> Option<NonZeroU8> {
        let index = self.locals.iter().position(|known| *known == local).unwrap_or(self.locals.len());
        if index == self.locals.len() && index < MAX_LOCALS {
            self.locals.push(local);
        }
        NonZeroU8::new(u8::try_from(index + 1).ok()?)
    }

    /// When the oldest expires.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.sessions.front().and_then(Option::as_ref).map(|oldest| oldest.at + LIFE)
    }

    pub(super) fn expire(&mut self, now: Time) {
        while self.poll_timeout().is_some_and(|at| at <= now) {
            self.remove_first();
        }
    }

    fn remove_first(&mut self) {
        if let Some(Some(oldest)) = self.sessions.front() {
            let id = oldest.accepted.local();
            self.remove(&id);
        }
    }

    /// Drops empty places in front.
    fn trim(&mut self) {
        while let Some(None) = self.sessions.front() {
            self.sessions.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }

    fn move_together(&mut self) {
        self.sessions.retain(Option::is_some);
        for (session, place) in self.sessions.iter().flatten().zip(0..) {
            self.places.insert(session.accepted.local(), place);
        }
        self.first = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u32) -> ConnectionId {
        ConnectionId((u64::from(n) << 8).to_be_bytes())
    }

    fn insert(half_open: &mut HalfOpen, n: u32) -> u64 {
        let remote = SocketAddr::from(([192, 0, 2, 1], 4_000));
        let local = n.is_multiple_of(2).then(|| IpAddr::from([192, 0, 2, n as u8]));
        half_open.insert(Accepted::named(id(n)), Route { remote, local }, Time::from_millis(n.into()))
    }

    #[test]
    fn each_is_found_and_leaves_alone_whatever_becomes_of_the_others() {
        let mut half_open = HalfOpen { first: u32::MAX - 100, ..HalfOpen::default() };
        // One in four stays, so that places are moved together time and again.
        for n in 0..20_000 {
            assert_eq!(insert(&mut half_open, n), 0);
            if n % 4 != 0 && n >= 8 {
                half_open.remove(&id(n));
            }
            assert!(half_open.sessions.len() <= MAX_HALF_OPEN);
            if half_open.len() == SPARSE {
                break;
            }
        }
        assert_eq!(half_open.len(), SPARSE);
        let oldest = half_open.poll_timeout().unwrap();
        for n in (8..12_000).step_by(4) {
            let (_, Asked { route, at, .. }) = half_open.get(&id(n)).expect("not expired");
            assert_eq!((route.local, at), (Some([192, 0, 2, n as u8].into()), Time::from_millis(n.into())));
            assert!(half_open.get(&id(n + 1)).is_none());
        }
        half_open.expire(oldest);
        assert_eq!(half_open.len(), SPARSE - 1);
        half_open.expire(oldest + Duration::from_secs(60));
        assert_eq!((half_open.len(), half_open.poll_timeout()), (0, None));
    }

    #[test]
    fn the_oldest_goes_where_there_is_no_room() {
        let mut half_open = HalfOpen::default();
        let displaced: u64 = (0..5_000).map(|n| insert(&mut half_open, n)).sum();
        assert_eq!((half_open.len(), displaced), (MAX_HALF_OPEN, 5_000 - MAX_HALF_OPEN as u64));
        assert!(!half_open.contains(&id(903)) && half_open.contains(&id(904)));
    }
}
