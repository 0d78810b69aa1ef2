//! Half-open sessions: HELLOs that were answered and whose initiators have not been heard since.
//!
//! Nothing but keys and addresses is held for one, so that a flood of HELLOs cannot take more than [`MAX_HALF_OPEN`] times a few hundred
//! bytes; the connection is made by the first authentic packet.

use core::time::Duration;
use std::collections::{HashMap, VecDeque};

use crate::Time;
use crate::handshake::{Accepted, Route};
use crate::wire::ConnectionId;

/// Half-open sessions at most (RELIABILITY H5).
const MAX_HALF_OPEN: usize = 4_096;
/// How long one waits for its first packet: an initiator that has the REPLY asks ever more seldom on a bad path, and does not know that
/// it is not heard.
const LIFE: Duration = Duration::from_secs(30);

/// One answered HELLO.
pub(super) struct Answered {
    pub(super) accepted: Accepted,
    /// The way that the HELLO came, and when.
    pub(super) route: Route,
    pub(super) at: Time,
}

/// See the module.
#[derive(Default)]
pub(super) struct HalfOpen {
    sessions: HashMap<ConnectionId, Box<Answered>>,
    /// When each expires, the oldest first; those that came alive meanwhile stand there too, as many at most as are half open.
    order: VecDeque<(Time, ConnectionId)>,
}

impl HalfOpen {
    pub(super) fn len(&self) -> usize {
        self.sessions.len()
    }

    pub(super) fn contains(&self, id: &ConnectionId) -> bool {
        self.sessions.contains_key(id)
    }

    pub(super) fn get(&self, id: &ConnectionId) -> Option<&Answered> {
        self.sessions.get(id).map(|answered| &**answered)
    }

    pub(super) fn remove(&mut self, id: &ConnectionId) {
        self.sessions.remove(id);
    }

    /// Adds one; returns how many older ones had to go for it.
    pub(super) fn insert(&mut self, id: ConnectionId, answered: Answered) -> u64 {
        let mut displaced = 0;
        while self.sessions.len() >= MAX_HALF_OPEN
            && let Some((_, oldest)) = self.order.pop_front()
        {
            displaced += u64::from(self.sessions.remove(&oldest).is_some());
        }
        if self.order.len() >= 2 * MAX_HALF_OPEN {
            self.order.retain(|(_, id)| self.sessions.contains_key(id));
        }
        self.order.push_back((answered.at + LIFE, id));
        self.sessions.insert(id, Box::new(answered));
        displaced
    }

    /// When the oldest expires.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.order.front().map(|&(at, _)| at)
    }

    pub(super) fn expire(&mut self, now: Time) {
        while self.poll_timeout().is_some_and(|at| at <= now) {
            if let Some((_, id)) = self.order.pop_front() {
                self.sessions.remove(&id);
            }
        }
    }
}
