//! The handshake: one HELLO, one REPLY, then keys (wire.md sections 1.1 to 4).
//!
//! ```text
//! Initiator                                   Responder
//!   poll_transmit  -- HELLO x2, retried -->     handle_hello: mac1, cache, Noise -> Accepted { session }
//!   handle_reply   <-- REPLY x2 ------------    poll_transmit
//!   -> Session
//! ```
//! The endpoint owns one [`Responder`] per listener and one [`Initiator`] per connection it opens. Every flight goes out
//! twice: at 30 % loss each way that takes the 99th percentile of the time to a session from 5 s to 0.7 s (RELIABILITY
//! 2.2). Whoever does not know the secret gets no answer and costs one MAC. A HELLO, replayed or not, makes
//! at most one half-open session of its own and touches no other.

mod initiator;
mod noise;
mod parameters;
mod responder;

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

pub use initiator::{HandshakeError, Initiator};
pub use parameters::{CodeSet, Fault, ParameterError, Parameters};
pub use responder::{Accepted, Responder, ResponderStats};

use crate::crypto::{Aead, OpeningKey, Provider, SealingKey};
use crate::wire::ConnectionId;

/// Between the two copies of a flight (RELIABILITY 5.5).
const COPY_GAP: Duration = Duration::from_millis(10);
/// From the first HELLO flight to the second, before jitter; each later wait is 1.5 times the one before.
const FIRST_RETRY: Duration = Duration::from_millis(250);
/// The longest wait between two HELLO flights, before jitter.
const RETRY_CAP: Duration = Duration::from_secs(2);
/// How long an initiator tries, unless told otherwise.
const GIVE_UP: Duration = Duration::from_secs(30);
/// How long a REPLY is cached.
const REPLY_CACHED: Duration = Duration::from_secs(5);
/// Copies that a HELLO is answered with.
const COPIES: u32 = 2;
/// REPLYs to one HELLO in [`FIRST_SECOND`] at most (RELIABILITY H4).
const EARLY_REPLIES: u32 = 8;
/// See [`EARLY_REPLIES`].
const FIRST_SECOND: Duration = Duration::from_secs(1);
/// Copies of one REPLY that wait at once, at most: those of both HELLOs of a flight.
const MAX_WAITING: u32 = 4;
/// REPLYs cached at most (RELIABILITY H5).
const MAX_CACHED: usize = 4_096;
/// Bytes sent to an address that is not validated, per byte it sent, at most (RFC 9000 section 8.1).
const AMPLIFICATION: usize = 3;

/// What a handshake makes: keys for both directions, and what both sides said.
pub struct Session {
    /// Seals what we send.
    pub sealing: SealingKey,
    /// Opens what the peer sends.
    pub opening: OpeningKey,
    /// What the peer announced.
    pub peer: Parameters,
    /// What the peer wants to be called in our packets.
    pub remote: ConnectionId,
    /// What we are called in the peer's packets.
    pub local: ConnectionId,
    /// The cipher of both directions.
    pub aead: Aead,
}

impl Session {
    /// Keys of both directions from the two halves of Noise's Split, ours to send with first.
    fn new(
        provider: &Arc<dyn Provider>,
        aead: Aead,
        (ours, theirs): (&[u8; 32], &[u8; 32]),
        peer: Parameters,
        (local, remote): (ConnectionId, ConnectionId),
    ) -> Self {
        Self {
            sealing: SealingKey::new(Arc::clone(provider), aead, ours),
            opening: OpeningKey::new(Arc::clone(provider), aead, theirs),
            peer,
            remote,
            local,
            aead,
        }
    }
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
