//! How often `send` connects again: only what the receiver keeps earns further attempts.
//!
//! A receiver that is killed by what it is sent, and started again by its service manager, answers each
//! attempt to connect. So neither a connection nor bytes on their way are progress. Invariant: between two
//! connections that are lost and after which the receiver had a byte or a file more than ever before, there
//! are fewer than [`LOSSES`] others.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Mutex, PoisonError};

use tidewire_transfer::{Event, PathText};

/// Number of connections that may be lost in a row without progress. Chosen: as many restarts of a machine or
/// of a router are no accident, and with the pauses between them they take half a minute at least.
pub const LOSSES: u32 = 8;

/// What the receiver has confirmed, and how many more connections may be lost.
#[derive(Debug)]
pub struct Budget {
    left: u32,
    confirmed: Mutex<Confirmed>,
}

/// Whether to connect again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Yes: the receiver has more than ever before.
    Refilled,
    /// Yes, after a pause.
    Some,
    /// No.
    Nothing,
}

#[derive(Debug, Default)]
struct Confirmed {
    hasher: RandomState,
    /// For the hash of a path, the most bytes of this file that the receiver ever had.
    bytes: HashMap<u64, u64>,
    /// Whether that grew since the last loss.
    grown: bool,
}

impl Budget {
    /// A full budget.
    pub fn new() -> Self {
        Self { left: LOSSES, confirmed: Mutex::default() }
    }

    /// Takes an event of the sender: what the receiver has of a file.
    pub fn take(&self, event: &Event<'_>) {
        let (path, bytes) = match event {
            Event::Resumed { path, offset, .. } => (path, offset),
            Event::Kept { path, bytes, .. } => (path, bytes),
            _ => return,
        };
        self.lock().note(path, *bytes);
    }

    /// A connection was lost.
    pub fn on_lost(&mut self) -> Left {
        if std::mem::take(&mut self.lock().grown) {
            self.left = LOSSES;
            return Left::Refilled;
        }
        self.left = self.left.saturating_sub(1);
        if self.left > 0 { Left::Some } else { Left::Nothing }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Confirmed> {
        // Every change is a single store, so a poisoned table is still consistent.
        self.confirmed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Confirmed {
    fn note(&mut self, path: &PathText, bytes: u64) {
        let path = self.hasher.hash_one(path);
        if self.bytes.get(&path).is_none_or(|before| *before < bytes) {
            self.bytes.insert(path, bytes);
            self.grown = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resumed(budget: &Budget, offset: u64) {
        budget.take(&Event::Resumed { path: &PathText::of(b"large"), offset, size: 100 });
    }

    /// Number of losses after which nothing is left.
    fn losses(mut lose: impl FnMut() -> Left) -> u32 {
        (1..=1_000).find(|_| lose() == Left::Nothing).unwrap()
    }

    #[test]
    fn issue_40_only_bytes_that_the_receiver_did_not_have_before_earn_attempts() {
        let small = PathText::of(b"small");
        let mut budget = Budget::new();
        assert_eq!(losses(|| budget.on_lost()), LOSSES);
        // Connections that carry the same bytes again and again are no progress.
        let mut budget = Budget::new();
        resumed(&budget, 40);
        budget.take(&Event::Kept { path: &small, bytes: 5, warning: None });
        assert_eq!(budget.on_lost(), Left::Refilled);
        let again = |budget: &mut Budget| {
            budget.take(&Event::Bytes(1_000_000));
            budget.take(&Event::Resumed { path: &small, offset: 5, size: 5 });
            budget.take(&Event::Kept { path: &small, bytes: 5, warning: None });
            // The receiver has less than before, and then the same.
            resumed(budget, 20);
            resumed(budget, 40);
            budget.on_lost()
        };
        assert_eq!(losses(|| again(&mut budget)), LOSSES);
        // A byte more, or a file more, even an empty one, is progress.
        let mut budget = Budget::new();
        for offset in 1..100 {
            resumed(&budget, offset);
            assert_eq!(budget.on_lost(), Left::Refilled);
            assert_eq!(budget.on_lost(), Left::Some);
        }
        budget.take(&Event::Kept { path: &PathText::of(b"empty"), bytes: 0, warning: None });
        assert_eq!(budget.on_lost(), Left::Refilled);
    }
}
