//! A medium that several links share, as stations share a radio channel: at any time one of them transmits.
//!
//! A link that has something to send asks for a turn, transmits one datagram (with its repetitions), and asks
//! again behind the others. So links that always have something to send transmit in turn. Each takes the
//! medium for as long as its own rate needs. Invariant: a link waits at most once in the line.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Link;

/// The medium of some links.
#[derive(Clone, Debug, Default)]
pub struct Medium(Arc<Mutex<Turns>>);

#[derive(Debug, Default)]
struct Turns {
    /// When the last transmission ends.
    free_at: u64,
    /// The links that wait for a turn.
    line: VecDeque<u64>,
    /// Number of links that joined.
    links: u64,
}

/// A link's place at its medium.
#[derive(Clone, Debug)]
pub(super) struct Station {
    medium: Medium,
    id: u64,
}

impl Medium {
    fn turns(&self) -> MutexGuard<'_, Turns> {
        // Code that holds the lock cannot panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Station {
    /// A new place at `medium`.
    pub(super) fn new(medium: &Medium) -> Self {
        let mut turns = medium.turns();
        turns.links += 1;
        Self { medium: medium.clone(), id: turns.links }
    }

    /// Waits for a turn.
    pub(super) fn ask(&self) {
        let mut turns = self.medium.turns();
        if !turns.line.contains(&self.id) {
            turns.line.push_back(self.id);
        }
    }

    /// From when on the link may transmit; `None` if it is not its turn.
    pub(super) fn turn(&self) -> Option<u64> {
        let turns = self.medium.turns();
        (turns.line.front() == Some(&self.id)).then_some(turns.free_at)
    }

    /// Whether a datagram that comes at `now` would have to wait.
    pub(super) fn is_busy(&self, now: u64) -> bool {
        let turns = self.medium.turns();
        turns.free_at > now || !turns.line.is_empty()
    }

    /// Gives the turn up.
    pub(super) fn leave(&self) {
        let mut turns = self.medium.turns();
        turns.line.retain(|&id| id != self.id);
    }

    /// Holds the medium until `end`.
    pub(super) fn hold(&self, end: u64) {
        self.medium.turns().free_at = end;
    }
}

/// Joins the links that have the same name of a medium.
pub fn share_media<'a, T: 'a>(links: impl IntoIterator<Item = &'a mut Link<T>>) {
    let mut media = BTreeMap::<Arc<str>, Medium>::new();
    for link in links {
        if let Some(name) = link.config.mac.medium.clone() {
            let medium = media.entry(name).or_default();
            link.backlog.iter_mut().for_each(|backlog| backlog.join(medium));
        }
    }
}
