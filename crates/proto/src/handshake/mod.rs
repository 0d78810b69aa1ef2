//! The handshake: one HELLO, one REPLY, then keys (wire.md sections 1.1 to 4).
//!
//! ```text
//! Initiator                                   Responder
//!   poll_transmit  -- HELLO x2, retried -->     handle_hello: mac1, cache, load, Noise, who it is -> Accepted
//!   handle_cookie  <-- COOKIE --------------    under load only: the HELLO comes again, with mac2
//!   handle_reply   <-- REPLY x2 ------------    poll_transmit
//!   -> Session                                  the first authentic packet: Accepted -> Session
//! ```
//! The endpoint owns one [`Responder`] per listener and one [`Initiator`] per connection it opens. Every flight goes out
//! twice: at 30 % loss each way that takes the 99th percentile of the time to a session from 5 s to 0.7 s (RELIABILITY
//! 2.2). Whoever does not know the secret, or the listener's key, gets no answer and costs one MAC; whoever knows the key and is not
//! authorized gets none either. A HELLO, replayed or not, makes at most one half-open session of its own and touches no live one.

mod cookie;
mod credentials;
mod flights;
mod initiator;
mod noise;
mod parameters;
mod prefixes;
mod renewal;
mod responder;

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::sync::Arc;

use zeroize::Zeroizing;

pub use cookie::open as open_cookie;
pub use credentials::{Credentials, KeyCredentials, Keys, PeerKeyError};
pub use initiator::{HandshakeError, Initiator};
pub use parameters::{Fault, ParameterError, Parameters};
pub(crate) use renewal::{Fresh, Renewal, finish as finish_renewal};
pub use responder::{Responder, ResponderStats, Terms, Unauthorized};

use crate::crypto::{Aead, OpeningKey, Provider, PublicKey, SealingKey};
use crate::wire::ConnectionId;

/// Between the two copies of a flight (RELIABILITY 5.5).
const COPY_GAP: Duration = Duration::from_millis(10);
/// From the first HELLO flight to the second, before jitter; each later wait is 1.5 times the one before.
const FIRST_RETRY: Duration = Duration::from_millis(250);
/// The longest wait between two HELLO flights, before jitter.
const RETRY_CAP: Duration = Duration::from_secs(2);
/// How long an initiator tries, unless told otherwise.
const GIVE_UP: Duration = Duration::from_secs(30);
/// How long a REPLY is cached: longer than an initiator ever waits before it asks again, 2.5 s.
const REPLY_CACHED: Duration = Duration::from_secs(4);
/// Copies that a HELLO is answered with.
const COPIES: u32 = 2;
/// REPLYs to one HELLO from one address in [`FIRST_SECOND`] at most: a handshake begins with few packets, whoever repeats what.
const EARLY_REPLIES: u32 = 8;
/// See [`EARLY_REPLIES`].
const FIRST_SECOND: Duration = Duration::from_secs(1);
/// Copies of one REPLY that wait for one address at once, at most: those of both HELLOs of a flight.
const MAX_WAITING: u32 = 4;
/// Addresses that are told apart for one HELLO, at most. Chosen: the client's, the one that its address translator gives it next, and two of
/// attackers that copy the HELLO. More only let an address have more REPLYs in its first second, never more bytes than it sent.
const MAX_SOURCES: usize = 4;
/// REPLYs that wait to be sent at once, at most, and as many that wait for their 10 ms. Chosen: eight times the free handshakes of a second.
const MAX_QUEUED: usize = 1_024;
/// REPLYs cached at most: those of all handshakes that are free while one is kept.
const MAX_CACHED: usize = FREE_HANDSHAKES as usize * REPLY_CACHED.as_secs() as usize;
/// HELLOs that are answered in a second without asking whether their senders are where they say. Half-open sessions live for 30 s, so
/// that those which nobody vouches for stay under [`MAX_CACHED`]; at 288 us each they cost 4 % of a core (RELIABILITY H5, H7).
const FREE_HANDSHAKES: u32 = 128;
/// COOKIEs that wait to be sent at once, at most: what a driver takes from a socket before it sends.
const MAX_COOKIES: usize = 256;
/// Refused peers that wait to be told of, at most.
const MAX_UNAUTHORIZED: usize = 16;

/// The way that a HELLO came. Its answer goes back the same way, since a peer takes nothing from an address that it did not send to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where it came from.
    pub remote: SocketAddr,
    /// The address of ours that it was sent to, if we may have several.
    pub local: Option<IpAddr>,
}

impl From<SocketAddr> for Route {
    fn from(remote: SocketAddr) -> Self {
        Self { remote, local: None }
    }
}

/// What a handshake agreed on, and no more: all that a half-open session holds.
pub struct Accepted {
    /// Halves of Noise's Split: ours to send with, and the peer's.
    ours: Zeroizing<[u8; 32]>,
    theirs: Zeroizing<[u8; 32]>,
    aead: Aead,
    peer: Parameters,
    peer_key: Option<PublicKey>,
    local: ConnectionId,
    remote: ConnectionId,
}

impl Accepted {
    /// Keys of both directions.
    pub fn session(&self, provider: &Arc<dyn Provider>) -> Session {
        Session {
            sealing: SealingKey::new(Arc::clone(provider), self.aead, &self.ours),
            opening: OpeningKey::new(Arc::clone(provider), self.aead, &self.theirs),
            peer: self.peer,
            peer_key: self.peer_key,
            remote: self.remote,
            local: self.local,
            aead: self.aead,
        }
    }
}

impl Accepted {
    /// What the peer will call us.
    pub(crate) const fn local(&self) -> ConnectionId {
        self.local
    }

    /// The key that the peer proved to have, with authentication `key`.
    pub(crate) const fn peer_key(&self) -> Option<&PublicKey> {
        self.peer_key.as_ref()
    }

    /// One of no handshake.
    #[cfg(test)]
    pub(crate) fn named(local: ConnectionId) -> Self {
        let (ours, theirs) = (Zeroizing::new([0; 32]), Zeroizing::new([1; 32]));
        let (peer, remote) = (Parameters::default(), ConnectionId([0; 8]));
        Self { ours, theirs, aead: Aead::Aes256Gcm, peer, peer_key: None, local, remote }
    }
}

impl fmt::Debug for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accepted").field("local", &self.local).field("remote", &self.remote).finish_non_exhaustive()
    }
}

/// What a handshake makes: keys for both directions, and what both sides said.
pub struct Session {
    /// Seals what we send.
    pub sealing: SealingKey,
    /// Opens what the peer sends.
    pub opening: OpeningKey,
    /// What the peer announced.
    pub peer: Parameters,
    /// The key that the peer proved to have, with authentication `key`.
    pub peer_key: Option<PublicKey>,
    /// What the peer wants to be called in our packets.
    pub remote: ConnectionId,
    /// What we are called in the peer's packets.
    pub local: ConnectionId,
    /// The cipher of both directions.
    pub aead: Aead,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("local", &self.local)
            .field("remote", &self.remote)
            .field("aead", &self.aead)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}
