//! Packet keys and the peer's ids: what every packet is sealed, opened and addressed with, and when the sealing key is renewed.
//!
//! Our key moves by our own packets and the peer's by its: the two directions know nothing of each other, but in an exchange of fresh keys
//! (`exchange`). wire.md section 3 says how the other end follows.

use core::time::Duration;

use super::{CloseCode, CloseReason, Connection, Event, Side, State};
use crate::Time;
use crate::crypto::{Aead, MAX_SEALED, OpeningKey, SealingKey};
use crate::handshake::Session;
use crate::path::PeerIds;

/// A key that is in use for so long is renewed whatever it sealed (RELIABILITY 5.5).
const KEY_LIFE: Duration = Duration::from_secs(300);
/// Packets whose tag does not verify, at most, under all keys of a connection: the integrity limit of ChaCha20-Poly1305 (RFC 9001 section 6.6).
/// That of AES-GCM is 2^52.
pub(super) const MAX_FORGED: u64 = 1 << 36;
/// Packets that a key which could not be renewed still seals: to say that the connection is over.
pub(super) const LAST_PACKETS: u64 = 1 << 10;

/// Keys and ids, once agreed.
#[derive(Debug)]
pub(super) struct Keys {
    pub sealing: SealingKey,
    pub opening: OpeningKey,
    /// By which we call the peer.
    pub peer_ids: PeerIds,
    pub aead: Aead,
    /// When the sealing key was taken into use.
    since: Time,
    /// Packets for this connection whose tag did not verify.
    pub forged: u64,
}

impl Keys {
    pub fn new(session: Session, now: Time) -> Self {
        let Session { sealing, opening, remote, aead, .. } = session;
        Self { sealing, opening, peer_ids: PeerIds::new(remote), aead, since: now, forged: 0 }
    }

    /// The sealing key was taken into use now.
    pub fn on_renewed(&mut self, now: Time) {
        self.since = now;
    }
}

impl Connection {
    /// Moves to the next key in time; a peer that never answers is left before the last one is worn out.
    pub(super) fn renew_key(&mut self, now: Time) {
        let State::Established { .. } = self.state else { return };
        let Some(keys) = &mut self.keys else { return };
        if self.side == Side::Initiator {
            self.exchange.begin_after(now, self.config.fresh_keys_after, keys.aead);
        }
        let sealed = keys.sealing.sealed();
        if sealed < self.config.packets_per_key && now < keys.since + KEY_LIFE {
            return;
        }
        // While an exchange is open the next phase is that of its keys.
        if !self.exchange.is_open() && keys.sealing.initiate_update().is_ok() {
            keys.since = now;
            self.stats.key_updates += 1;
        } else if sealed >= MAX_SEALED - LAST_PACKETS {
            self.leave_keys(now);
        }
    }

    /// A packet for this connection did not open because its tag does not verify. Beyond the limit the keys protect nobody any more.
    pub(super) fn on_forged(&mut self, now: Time) {
        let Some(keys) = &mut self.keys else { return };
        keys.forged += 1;
        if keys.forged >= MAX_FORGED && matches!(self.state, State::Established { .. }) {
            self.leave_keys(now);
        }
    }

    fn leave_keys(&mut self, now: Time) {
        self.start_closing(now, CloseCode::Internal, String::new());
        self.events.push_back(Event::Closed(CloseReason::KeyExhausted));
    }
}
