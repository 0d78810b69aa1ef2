//! The handshake: one HELLO, one REPLY, then keys (docs/wire.md sections 1.1 to 4).
//!
//! ```text
//! Initiator                                   Responder
//!   poll_transmit  -- HELLO x2, retried -->     handle_hello: mac1, cache, load, Noise, key -> Accepted
//!   handle_cookie  <-- COOKIE --------------    under load only: the HELLO comes again, with mac2
//!   handle_reply   <-- REPLY x2 ------------    poll_transmit
//!   -> Session                                  the first authentic packet: Accepted -> Session
//! ```
//! The endpoint owns one [`Responder`] per listener and one [`Initiator`] per connection it opens. Every
//! flight is sent twice: at 30 % loss each way that reduces the 99th percentile of the time to a session from
//! 5 s to 0.7 s. A peer without the secret, or without the listener's key, gets no response and costs one
//! MAC. A peer that knows the listener's key but is not authorized gets no response either. A HELLO, replayed
//! or not, makes at most one half-open session of its own and never changes a live session.

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

use crate::crypto::{Aead, KeyLog, OpeningKey, Provider, PublicKey, Sealer, SealingKey, SessionLog};
use crate::wire::ConnectionId;

/// Time between the two copies of a flight.
const COPY_GAP: Duration = Duration::from_millis(10);
/// Time from the first HELLO flight to the second, before jitter. Each later wait is 1.5 times the previous
/// one.
const FIRST_RETRY: Duration = Duration::from_millis(250);
/// The longest wait between two HELLO flights, before jitter.
const RETRY_CAP: Duration = Duration::from_secs(2);
/// Default time after which an initiator gives up.
const GIVE_UP: Duration = Duration::from_secs(30);
/// Lifetime of a cached REPLY: longer than the longest wait of an initiator between two HELLO flights, 2.5 s.
const REPLY_CACHED: Duration = Duration::from_secs(4);
/// Copies of the REPLY to one HELLO.
const COPIES: u32 = 2;
/// Maximum number of REPLYs to one HELLO and one address in [`FIRST_SECOND`]. A handshake starts with few
/// packets, even if somebody repeats the HELLO.
const EARLY_REPLIES: u32 = 8;
/// Period in which [`EARLY_REPLIES`] applies.
const FIRST_SECOND: Duration = Duration::from_secs(1);
/// Maximum number of copies of one REPLY that wait for one address at once: those for both HELLOs of a
/// flight.
const MAX_WAITING: u32 = 4;
/// Maximum number of addresses distinguished per HELLO. Chosen: the client's, the one that its address
/// translator assigns next, and two of attackers that copy the HELLO. With more addresses, one of them may
/// get more REPLYs in its first second, but never more bytes than it sent.
const MAX_SOURCES: usize = 4;
/// Maximum number of REPLYs that wait to be sent, and the same number again of second copies that wait for
/// their 10 ms. Chosen: eight times the free handshakes of a second.
const MAX_QUEUED: usize = 1_024;
/// Maximum number of cached REPLYs: those of all free handshakes during the lifetime of one REPLY.
const MAX_CACHED: usize = FREE_HANDSHAKES as usize * REPLY_CACHED.as_secs() as usize;
/// Number of HELLOs per second that are answered without a proof of the source address. Half-open sessions
/// live for 30 s, so those with unproven addresses stay below [`MAX_CACHED`]. At 288 us each, the HELLOs use
/// 4 % of a core (docs/survival.md, rows H5 and H7).
const FREE_HANDSHAKES: u32 = 128;
/// Maximum number of COOKIEs that wait to be sent: as many HELLOs as a driver reads from a socket before it
/// sends.
const MAX_COOKIES: usize = 256;
/// Maximum number of refused peers that wait to be reported.
const MAX_UNAUTHORIZED: usize = 16;

/// The route of a HELLO. Its answer uses the same route, since a peer ignores packets from an address that it
/// did not send to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Source address of the HELLO.
    pub remote: SocketAddr,
    /// Our address to which it was sent, if we may have several.
    pub(crate) local: Option<IpAddr>,
}

impl From<SocketAddr> for Route {
    fn from(remote: SocketAddr) -> Self {
        Self { remote, local: None }
    }
}

/// The result of a handshake, and all that a half-open session stores.
pub struct Accepted {
    /// The two chaining keys of Noise's Split: for our packets and for the peer's.
    ours: Zeroizing<[u8; 32]>,
    theirs: Zeroizing<[u8; 32]>,
    aead: Aead,
    peer: Parameters,
    peer_key: Option<PublicKey>,
    local: ConnectionId,
    remote: ConnectionId,
}

impl Accepted {
    /// Derives the keys of both directions.
    pub fn session(&self, provider: &Arc<dyn Provider>) -> Session {
        self.logged_session(provider, Sealer::Initiator, None)
    }

    /// Derives the keys of both directions and reports them to `log`, if there is one. `own` is our part in
    /// the handshake.
    pub(crate) fn logged_session(
        &self,
        provider: &Arc<dyn Provider>,
        own: Sealer,
        log: Option<&Arc<dyn KeyLog>>,
    ) -> Session {
        let (initiator, responder, peer) = match own {
            Sealer::Initiator => (self.local, self.remote, Sealer::Responder),
            Sealer::Responder => (self.remote, self.local, Sealer::Initiator),
        };
        let log = log.map(|log| SessionLog { log: Arc::clone(log), initiator, responder });
        let ours = log.clone().map(|log| (log, own));
        let theirs = log.map(|log| (log, peer));
        Session {
            sealing: SealingKey::logged(Arc::clone(provider), self.aead, &self.ours, ours),
            opening: OpeningKey::logged(Arc::clone(provider), self.aead, &self.theirs, theirs),
            peer: self.peer,
            peer_key: self.peer_key,
            remote: self.remote,
            local: self.local,
            aead: self.aead,
        }
    }
}

impl Accepted {
    /// The connection id that the peer will use for us.
    pub(crate) const fn local(&self) -> ConnectionId {
        self.local
    }

    /// The key that the peer proved to have, with authentication `key`.
    pub(crate) const fn peer_key(&self) -> Option<&PublicKey> {
        self.peer_key.as_ref()
    }

    /// A value without a handshake.
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

/// A session: keys for both directions, and what both sides announced.
pub struct Session {
    /// Seals what we send.
    pub sealing: SealingKey,
    /// Opens what the peer sends.
    pub opening: OpeningKey,
    /// The parameters that the peer announced.
    pub peer: Parameters,
    /// The key that the peer proved to have, with authentication `key`.
    pub peer_key: Option<PublicKey>,
    /// Connection id of the packets that we send.
    pub remote: ConnectionId,
    /// Connection id of the packets that the peer sends.
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
