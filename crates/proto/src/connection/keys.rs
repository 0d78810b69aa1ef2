//! Packet keys and the peer's ids: they seal, open and address every packet. This file also decides when the
//! sealing key is renewed.
//!
//! Each end renews its sealing key by its own rules. The two directions are independent, except in an
//! exchange of fresh keys (`rekey`). docs/wire.md section 3 says how the other end follows.

use core::time::Duration;

use super::{CloseCode, CloseReason, Connection, Side, State};
use crate::Time;
use crate::crypto::{Aead, MAX_SEALED, OpeningKey, SealingKey};
use crate::handshake::Session;
use crate::path::PeerIds;
use crate::trace::TraceEvent;

/// A key is renewed after this time, however few packets it sealed (docs/wire.md section 3).
const KEY_LIFE: Duration = Duration::from_secs(300);
/// Maximum number of packets with a wrong tag, under all keys of a connection: the integrity limit of
/// ChaCha20-Poly1305 (RFC 9001 section 6.6). The limit of AES-GCM is 2^52.
pub(super) const MAX_FORGED: u64 = 1 << 36;
/// Number of packets reserved on a key that could not be renewed, to tell the peer that the connection is
/// over.
pub(super) const LAST_PACKETS: u64 = 1 << 10;

/// Keys and ids of an established session.
#[derive(Debug)]
pub(super) struct SessionKeys {
    pub sealing: SealingKey,
    pub opening: OpeningKey,
    /// The ids by which we address the peer.
    pub peer_ids: PeerIds,
    pub aead: Aead,
    /// When the sealing key was taken into use.
    since: Time,
    /// Number of packets for this connection with a wrong tag.
    pub forged: u64,
}

impl SessionKeys {
    pub(super) fn new(session: Session, now: Time) -> Self {
        let Session { sealing, opening, remote, aead, .. } = session;
        Self { sealing, opening, peer_ids: PeerIds::new(remote), aead, since: now, forged: 0 }
    }

    /// Called when a new sealing key was taken into use.
    pub(super) fn on_renewed(&mut self, now: Time) {
        self.since = now;
    }
}

impl Connection {
    /// Renews the key in time. If the peer never answers, the connection closes before the last key reaches
    /// its limit.
    pub(super) fn renew_key(&mut self, now: Time) {
        let State::Established { .. } = self.state else { return };
        let Some(keys) = &mut self.security.keys else { return };
        if self.side == Side::Initiator {
            self.security.rekey.begin_after(now, self.config.timing.fresh_keys_after, keys.aead);
        }
        let sealed = keys.sealing.sealed();
        if sealed < self.config.packets.packets_per_key && now < keys.since + KEY_LIFE {
            return;
        }
        // While an exchange is open, the next phase belongs to its keys.
        if !self.security.rekey.is_open() && keys.sealing.initiate_update().is_ok() {
            keys.since = now;
            self.stats.key_updates += 1;
            self.tracer.record(now, || TraceEvent::KeyUpdated);
        } else if sealed >= MAX_SEALED - LAST_PACKETS {
            self.leave_keys(now);
        }
    }

    /// Called when a packet for this connection has a wrong tag. Beyond the limit the keys no longer protect
    /// the connection, so it closes.
    pub(super) fn on_forged(&mut self, now: Time) {
        let Some(keys) = &mut self.security.keys else { return };
        keys.forged += 1;
        if keys.forged >= MAX_FORGED && matches!(self.state, State::Established { .. }) {
            self.leave_keys(now);
        }
    }

    fn leave_keys(&mut self, now: Time) {
        self.start_closing(now, CloseCode::Internal, String::new());
        self.tell_closed(now, CloseReason::KeyExhausted);
    }
}
