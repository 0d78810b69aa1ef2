//! Paths with relays: what joins the hops of a relay, and what an end puts over its hop (docs/wire.md section
//! 8, `docs/relay.md`).
//!
//! A driver owns the endpoints. A relay has two, one that listens and one that connects, and a [`Relay`]. An
//! end has one for its hop, and an [`End`], which has the endpoint of the end-to-end session inside. After
//! each change of an endpoint the driver calls `drive`. Invariants: a relay opens hops only to the address it
//! was given; it never decodes; rows of one pair of hops never reach another.

mod decoding;
mod end;

use core::net::SocketAddr;

use crate::Time;
use crate::connection::{CloseCode, Connection, Event};
use crate::crypto::PublicKey;
use crate::endpoint::{ConnectionHandle, Endpoint};
use crate::recode::RelayStats;

pub use end::{End, PEER, Suspects, end_to_end};

/// Pairs of hops that a relay has at once. With the default settings a pair takes at most 12 MB. Chosen.
const MOST_PAIRS: usize = 64;

/// A hop from the end that connected, and the hop on to the configured address.
#[derive(Clone, Copy, Debug)]
struct Pair {
    near: ConnectionHandle,
    far: ConnectionHandle,
}

/// Joins each hop that was accepted with one to a fixed address; see the module.
#[derive(Debug)]
pub struct Relay {
    to: SocketAddr,
    key: Option<PublicKey>,
    pairs: Vec<Pair>,
    passed: RelayStats,
}

impl Relay {
    /// A relay to this address. `key` is the public key of the next hop, if keys authenticate the hops.
    pub fn new(to: SocketAddr, key: Option<PublicKey>) -> Self {
        Self { to, key, pairs: Vec::new(), passed: RelayStats::default() }
    }

    /// Number of pairs of hops.
    pub fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// Counts of the relayed lanes of all hops, those that are over included, with both directions together.
    pub fn stats(&self, near: &Endpoint, far: &Endpoint) -> RelayStats {
        let mut sum = self.passed;
        for pair in &self.pairs {
            let hops = [near.connection(pair.near), far.connection(pair.far)];
            hops.into_iter().flatten().for_each(|hop| sum += hop.relay_stats());
        }
        sum
    }

    /// Handles the events of both endpoints and moves rows. `near` listens, `far` connects.
    pub fn drive(&mut self, now: Time, near: &mut Endpoint, far: &mut Endpoint) {
        while let Some((handle, event)) = near.poll_event() {
            match event {
                Event::Connected => self.begin(now, handle, near, far),
                Event::Closed(_) => self.end(now, |pair| pair.near == handle, near, far),
                event => refuse(now, near, handle, &event),
            }
        }
        while let Some((handle, event)) = far.poll_event() {
            match event {
                Event::Closed(_) => self.end(now, |pair| pair.far == handle, near, far),
                event => refuse(now, far, handle, &event),
            }
        }
        for &Pair { near: a, far: b } in &self.pairs {
            pass(now, (near, a), (far, b));
            pass(now, (far, b), (near, a));
        }
    }

    /// Opens the next hop for a hop that was accepted.
    fn begin(&mut self, now: Time, handle: ConnectionHandle, near: &mut Endpoint, far: &mut Endpoint) {
        let opened = (self.pairs.len() < MOST_PAIRS).then(|| match &self.key {
            Some(key) => far.connect_to(now, self.to, key),
            None => far.connect(now, self.to),
        });
        if let Some(Ok(next)) = opened {
            self.pairs.push(Pair { near: handle, far: next });
        } else if let Some(hop) = near.connection_mut(handle) {
            hop.close(now, CloseCode::Refused, "the relay has no room for another path");
        }
    }

    /// Closes the other hop of a pair that lost one.
    fn end(&mut self, now: Time, is_over: impl Fn(&Pair) -> bool, near: &mut Endpoint, far: &mut Endpoint) {
        let Some(index) = self.pairs.iter().position(is_over) else { return };
        let pair = self.pairs.swap_remove(index);
        for (endpoint, handle) in [(near, pair.near), (far, pair.far)] {
            if let Some(hop) = endpoint.connection_mut(handle) {
                self.passed += hop.relay_stats();
                hop.close(now, CloseCode::Refused, "another hop of the path is over");
            }
        }
    }
}

/// Closes a hop whose peer sends a stream or a message to the relay itself, which would keep it unread.
fn refuse(now: Time, endpoint: &mut Endpoint, handle: ConnectionHandle, event: &Event) {
    if let Event::StreamOpened(_) | Event::MessageReadable = event
        && let Some(hop) = endpoint.connection_mut(handle)
    {
        hop.close(now, CloseCode::Refused, "a relay takes no streams and no messages");
    }
}

/// Passes the rows that came over one hop on to the next, and the room that the next hop gave back.
fn pass(now: Time, (from, a): (&mut Endpoint, ConnectionHandle), (to, b): (&mut Endpoint, ConnectionHandle)) {
    let (Some(source), Some(target)) = (from.connection(a), to.connection(b)) else { return };
    if !source.has_recoded() && target.recoded_base() <= source.recoded_released() {
        return;
    }
    let (Some(source), Some(target)) = (from.connection_mut(a), to.connection_mut(b)) else { return };
    join(now, source, target);
}

/// Passes rows from one hop to the next.
fn join(now: Time, source: &mut Connection, target: &mut Connection) {
    source.take_recoded(|row| {
        let kept = target.forward_recoded(row);
        debug_assert!(kept, "a row that is innovative on one hop is so on the next");
    });
    source.release_recoded(now, target.recoded_base());
}
