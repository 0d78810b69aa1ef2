//! Packet keys and the peer's ids: what every packet is sealed, opened and addressed with, and when the sealing key is renewed.
//!
//! Our key moves by our own packets and the peer's by its: the two directions know nothing of each other. wire.md section 3 says how
//! the other end follows.

use core::time::Duration;

use super::{CloseCode, CloseReason, Connection, Event, State};
use crate::Time;
use crate::crypto::{MAX_SEALED, OpeningKey, SealingKey};
use crate::path::PeerIds;
use crate::wire::ConnectionId;

/// A key that is in use for so long is renewed whatever it sealed (RELIABILITY 5.5).
const KEY_LIFE: Duration = Duration::from_secs(300);
/// Packets that a key which could not be renewed still seals: to say that the connection is over.
pub(super) const LAST_PACKETS: u64 = 1 << 10;

/// Keys and ids, once agreed.
#[derive(Debug)]
pub(super) struct Keys {
    pub sealing: SealingKey,
    pub opening: OpeningKey,
    /// By which we call the peer.
    pub peer_ids: PeerIds,
    /// When the sealing key was taken into use.
    since: Time,
}

impl Keys {
    pub fn new(sealing: SealingKey, opening: OpeningKey, peer: ConnectionId, now: Time) -> Self {
        Self { sealing, opening, peer_ids: PeerIds::new(peer), since: now }
    }
}

impl Connection {
    /// Moves to the next key in time; a peer that never answers is left before the last one is worn out.
    pub(super) fn renew_key(&mut self, now: Time) {
        let State::Established { .. } = self.state else { return };
        let Some(keys) = &mut self.keys else { return };
        let sealed = keys.sealing.sealed();
        if sealed < self.config.packets_per_key && now < keys.since + KEY_LIFE {
            return;
        }
        if keys.sealing.initiate_update().is_ok() {
            keys.since = now;
            self.stats.key_updates += 1;
        } else if sealed >= MAX_SEALED - LAST_PACKETS {
            self.start_closing(now, CloseCode::Internal, String::new());
            self.events.push_back(Event::Closed(CloseReason::KeyExhausted));
        }
    }
}
