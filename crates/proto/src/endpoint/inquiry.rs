//! Inquiries about a silent connection: was the peer restarted? (docs/wire.md section 4)
//!
//! A connection with data in flight that hears nothing sends a HELLO in place of some probes. The destination
//! id of the HELLO is the one by which the peer knows the connection. The peer that answers has authenticated
//! itself, and says whether it still knows that id. The inquiry does not change a live session. The session
//! ends only if the peer says that it is gone, and nothing was heard of it since the inquiry.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::{ConnectionHandle, Endpoint};
use crate::Time;
use crate::connection::{Connection, Transmit};
use crate::handshake::Initiator;
use crate::wire::{ConnectionId, HELLO_LEN};

/// An open inquiry.
struct Inquiry {
    initiator: Initiator,
    /// The id that the inquiry names, and when the peer had last been heard.
    after: ConnectionId,
    heard: Time,
}

/// The open inquiries; see the module.
#[derive(Default)]
pub(super) struct Inquiries {
    open: BTreeMap<ConnectionHandle, Inquiry>,
    /// The connection for which each source id was made. The answer to that id belongs to it.
    sources: HashMap<ConnectionId, ConnectionHandle>,
    due: VecDeque<ConnectionHandle>,
}

impl Inquiries {
    /// Queues a HELLO for a connection.
    pub(super) fn ask(&mut self, handle: ConnectionHandle) {
        self.due.push_back(handle);
    }

    pub(super) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Drops the inquiry of this connection.
    pub(super) fn forget(&mut self, handle: ConnectionHandle) {
        if let Some(inquiry) = self.open.remove(&handle) {
            self.sources.remove(&inquiry.initiator.source());
        }
    }

    fn insert(&mut self, handle: ConnectionHandle, inquiry: Inquiry) {
        self.forget(handle);
        self.sources.insert(inquiry.initiator.source(), handle);
        self.open.insert(handle, inquiry);
    }
}

impl Endpoint {
    /// Writes the next queued HELLO.
    pub(super) fn transmit_inquiry(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        let out = out.get_mut(..HELLO_LEN)?;
        loop {
            let handle = self.inquiries.due.pop_front()?;
            let Some((after, heard)) = self.connections.get(handle).and_then(Connection::silence) else { continue };
            let fits = |inquiry: &Inquiry| (inquiry.after, inquiry.heard) == (after, heard);
            if !self.inquiries.open.get(&handle).is_some_and(fits) {
                let Some(initiator) = self.initiator_asking_after(now, handle, after) else { continue };
                self.inquiries.insert(handle, Inquiry { initiator, after, heard });
            }
            let (Some(inquiry), Some(connection)) = (self.inquiries.open.get(&handle), self.connections.touch(handle))
            else {
                continue;
            };
            out.copy_from_slice(inquiry.initiator.hello());
            connection.on_inquiry_sent(HELLO_LEN);
            let destination = connection.remote();
            return Some(Transmit { destination, source: None, ecn: None, len: HELLO_LEN, segment_size: None });
        }
    }

    fn initiator_asking_after(
        &mut self,
        now: Time,
        handle: ConnectionHandle,
        after: ConnectionId,
    ) -> Option<Initiator> {
        let peer = self.connections.get(handle)?.peer_key();
        let keys = self.credentials.to_connect(peer.as_ref()).ok()?;
        let (id, seed, provider) = (self.fresh_id(), self.fresh_seed(), Arc::clone(&self.provider));
        Some(Initiator::asking_after(after, keys, id, &self.parameters, provider, seed, now))
    }

    /// Handles a REPLY or COOKIE that names no connection of this endpoint. Returns whether it answers an
    /// inquiry.
    pub(super) fn handle_answer(&mut self, now: Time, destination: ConnectionId, datagram: &[u8]) -> bool {
        let Some(&handle) = self.inquiries.sources.get(&destination) else { return false };
        let Some(inquiry) = self.inquiries.open.get_mut(&handle) else { return false };
        if inquiry.initiator.handle_cookie(now, datagram).is_ok() {
            return true;
        }
        if inquiry.initiator.handle_reply(datagram).is_err() {
            return false;
        }
        let (found, question) = (inquiry.initiator.found_connection(), (inquiry.after, inquiry.heard));
        self.inquiries.forget(handle);
        if let Some(connection) = self.connections.touch(handle)
            && connection.silence() == Some(question)
        {
            connection.on_answer(now, found);
        }
        true
    }
}
