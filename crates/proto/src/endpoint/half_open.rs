//! Half-open sessions: HELLOs that were answered and whose initiators have not been heard since.
//!
//! A half-open session holds only keys and addresses, so a flood of HELLOs takes at most [`MAX_HALF_OPEN`]
//! times about two hundred bytes. The first authentic packet creates the connection. Sessions are stored in
//! the order of arrival, which is the order of expiry. A session that became a connection leaves its place
//! empty until all places before it are empty. Invariant: the first place is never empty.

use core::net::{IpAddr, SocketAddr};
use core::num::NonZeroU8;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Time;
use crate::handshake::{Accepted, Route};
use crate::wire::ConnectionId;

/// Maximum number of half-open sessions, empty places included (docs/survival.md H5).
const MAX_HALF_OPEN: usize = 4_096;
/// If there are fewer sessions than this, compact the places before a session is displaced. Each compaction
/// frees at least a quarter of the places.
const SPARSE: usize = MAX_HALF_OPEN / 4 * 3;
/// How long a session waits for its first packet. On a bad path the initiator has the REPLY but probes less
/// and less often, and does not know that it is not heard.
const LIFE: Duration = Duration::from_secs(30);

/// Maximum number of local addresses that sessions distinguish. For HELLOs to further addresses, the system
/// chooses the source address of the answer. A host has few addresses, and a session stores one byte in place
/// of an address.
const MAX_LOCALS: usize = 255;

/// An answered HELLO.
struct Answered {
    accepted: Accepted,
    /// Source of the HELLO, and when it arrived.
    remote: SocketAddr,
    at: Time,
    /// Index of the local address it was sent to, if this host may have several.
    local: Option<NonZeroU8>,
    /// True if the REPLY was sent only to `remote`.
    alone: bool,
}

/// How a HELLO arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) route: Route,
    pub(super) at: Time,
    /// True if its REPLY was sent only by this route.
    pub(super) alone: bool,
}

/// The half-open sessions; see the module.
#[derive(Default)]
pub(super) struct HalfOpen {
    sessions: VecDeque<Option<Answered>>,
    /// Number of the first place. Numbers count up and wrap around.
    first: u32,
    places: HashMap<ConnectionId, u32>,
    /// For sessions whose HELLOs another shard answers: set when the REPLY was sent to another address too.
    elsewhere: HashMap<ConnectionId, Arc<AtomicBool>>,
    /// Local addresses at which HELLOs arrived.
    locals: Vec<IpAddr>,
}

impl HalfOpen {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn contains(&self, id: &ConnectionId) -> bool {
        self.places.contains_key(id)
    }

    /// The agreed session, and how and when its HELLO arrived.
    pub(super) fn get(&self, id: &ConnectionId) -> Option<(&Accepted, Asked)> {
        let place = self.places.get(id)?.wrapping_sub(self.first);
        let Answered { accepted, remote, at, local, alone } = self.sessions.get(place as usize)?.as_ref()?;
        let local = local.and_then(|index| self.locals.get(usize::from(index.get()) - 1)).copied();
        let is_spread = self.elsewhere.get(id).is_some_and(|spread| spread.load(Ordering::Acquire));
        let alone = *alone && !is_spread;
        Some((accepted, Asked { route: Route { remote: *remote, local }, at: *at, alone }))
    }

    /// Records that the REPLY of this session was sent to another address too.
    pub(super) fn spread(&mut self, id: &ConnectionId) {
        let Some(place) = self.places.get(id).map(|place| place.wrapping_sub(self.first)) else { return };
        if let Some(Some(session)) = self.sessions.get_mut(place as usize) {
            session.alone = false;
        }
    }

    pub(super) fn remove(&mut self, id: &ConnectionId) {
        let Some(place) = self.places.remove(id) else { return };
        self.elsewhere.remove(id);
        if let Some(session) = self.sessions.get_mut(place.wrapping_sub(self.first) as usize) {
            *session = None;
        }
        self.trim();
    }

    /// Adds a session under its local id. Returns how many older sessions were removed for it.
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

    /// The id of the newest session.
    #[cfg(test)]
    pub(super) fn newest(&self) -> Option<ConnectionId> {
        self.sessions.back()?.as_ref().map(|session| session.accepted.local())
    }

    /// Records that another shard answers copies of this session's HELLO.
    pub(super) fn answered_elsewhere(&mut self, id: ConnectionId, spread: Arc<AtomicBool>) {
        self.elsewhere.insert(id, spread);
    }

    /// Index of a local address, counted from 1.
    fn index_of(&mut self, local: IpAddr) -> Option<NonZeroU8> {
        let index = self.locals.iter().position(|known| *known == local).unwrap_or(self.locals.len());
        if index == self.locals.len() && index < MAX_LOCALS {
            self.locals.push(local);
        }
        NonZeroU8::new(u8::try_from(index + 1).ok()?)
    }

    /// When the oldest session expires.
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

    /// Removes empty places at the front.
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
        // One in four sessions stays, so the places are compacted repeatedly.
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
