//! The loads of all shards of an endpoint: where the next connection goes.
//!
//! Mailboxes ask for a place when a HELLO makes a session, and the endpoint when it connects. Drivers tell
//! the loads of their shards when these have changed. Invariant: a connection that was given a place counts
//! there from that moment on, until its shard tells a load that contains it. So connections that come at once
//! go to different shards.

use std::sync::PoisonError;

use crate::sync::{Mutex, MutexGuard};

/// The load of a shard that takes no more connections.
const FULL: usize = usize::MAX;

/// See the module.
pub(crate) struct Loads {
    shards: Mutex<Box<[Load]>>,
    /// Whether the kernel gives datagrams to the shard that their id names. Otherwise a connection is best
    /// off where its datagrams come.
    is_steered: bool,
}

/// The load of one shard.
#[derive(Clone, Copy, Default)]
struct Load {
    /// Connections and half-open sessions, as the shard said; or [`FULL`].
    told: usize,
    /// Connections that were given a place here, and that `told` does not contain.
    coming: usize,
}

impl Load {
    fn sum(self) -> usize {
        self.told.saturating_add(self.coming)
    }
}

impl Loads {
    pub fn new(shards: usize, is_steered: bool) -> Self {
        Self { shards: Mutex::new(vec![Load::default(); shards].into()), is_steered }
    }

    /// Gives a connection a place at the shard with the least load; of several, at the next from `first` on.
    /// If the kernel does not help, at `first` unless that is full. End this by [`Self::tell`] with `came`.
    pub fn choose(&self, first: usize) -> usize {
        let mut shards = self.lock();
        let count = shards.len();
        let of = |shard: usize| shards.get(shard).map_or(FULL, |load| load.sum());
        let first = first % count;
        let stays = !self.is_steered && of(first) < FULL;
        let from_first = (0..count).map(|n| (first + n) % count);
        let least = from_first.min_by_key(|&shard| of(shard)).filter(|_| !stays).unwrap_or(first);
        shards.get_mut(least).into_iter().for_each(|load| load.coming += 1);
        least
    }

    /// Whether no shard takes a connection.
    pub fn are_full(&self) -> bool {
        self.lock().iter().all(|load| load.told == FULL)
    }

    /// Tells the load of a shard, `None` if it is full. `came` is the shard whose connection is contained in
    /// it, or was not made.
    pub fn tell(&self, shard: usize, load: Option<usize>, came: Option<usize>) {
        let mut shards = self.lock();
        shards.get_mut(shard).into_iter().for_each(|known| known.told = load.unwrap_or(FULL));
        let came = came.and_then(|shard| shards.get_mut(shard));
        came.into_iter().for_each(|known| known.coming = known.coming.saturating_sub(1));
    }

    fn lock(&self) -> MutexGuard<'_, Box<[Load]>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
