//! A Noise handshake inside a live session, for keys that cannot be derived from the previous ones
//! (docs/wire.md section 3.1).
//!
//! A connection holds one [`Renewal`] for all exchanges. The initiator calls `begin` and `finish`, the
//! responder calls `answer`. The session's handshake already decided which peer is accepted; here the peer
//! must prove that it is the same one.

use core::fmt;
use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use snow::HandshakeState;
use zeroize::Zeroizing;

use super::Keys;
use super::noise::{self, EPHEMERAL_AND_TAG, Role, SEALED_STATIC};
use crate::crypto::{Aead, Provider, PublicKey};
use crate::wire::Suite;

/// Beginning of the prologue. The number of the exchange follows.
const PROLOGUE: &[u8; 16] = b"tidewire 1 rekey";

/// The result of an exchange, for each direction.
pub(crate) struct Fresh {
    /// For the packets that we send.
    pub(crate) ours: Zeroizing<[u8; 32]>,
    /// For the packets that the peer sends.
    pub(crate) theirs: Zeroizing<[u8; 32]>,
}

/// Exchanges of one session, described in the module documentation.
pub(crate) struct Renewal {
    keys: Keys,
    provider: Arc<dyn Provider>,
    rng: ChaCha20Rng,
}

impl Renewal {
    /// `keys` are those of the session's handshake. `seed` is 32 secret random bytes, used for ephemeral keys
    /// only.
    pub(crate) fn new(keys: Keys, provider: Arc<dyn Provider>, seed: [u8; 32]) -> Self {
        Self { keys, provider, rng: ChaCha20Rng::from_seed(seed) }
    }

    fn state(&mut self, role: Role, aead: Aead, number: u64) -> HandshakeState {
        let mut seed = Zeroizing::new([0; 32]);
        self.rng.fill_bytes(seed.as_mut());
        let suite = match aead {
            Aead::Aes256Gcm => Suite::AesGcmSha256,
            Aead::ChaCha20Poly1305 => Suite::ChaChaPolyBlake2s,
        };
        let prologue = [&PROLOGUE[..], &number.to_be_bytes()].concat();
        noise::state_with(&self.provider, role, suite, &self.keys, &prologue, &seed)
    }

    /// Returns the initiator's message, and the state that waits for the answer.
    pub(crate) fn begin(&mut self, aead: Aead, number: u64) -> (HandshakeState, Vec<u8>) {
        let mut state = self.state(Role::Initiator, aead, number);
        let mut message = vec![0; self.keys.hello_overhead()];
        state.write_message(&[], &mut message).expect("the message has room for keys and tags");
        (state, message)
    }

    /// Returns the responder's message and the result of the exchange. `None` if the initiator's message does
    /// not open or comes from a key other than `peer`.
    pub(crate) fn answer(
        &mut self,
        aead: Aead,
        number: u64,
        peer: Option<&PublicKey>,
        message: &[u8],
    ) -> Option<(Fresh, Vec<u8>)> {
        let mut state = self.state(Role::Responder, aead, number);
        state.read_message(message, &mut [0; EPHEMERAL_AND_TAG + SEALED_STATIC]).ok()?;
        let key = state.get_remote_static().and_then(|key| key.try_into().ok()).map(PublicKey::new);
        if key.as_ref() != peer {
            return None;
        }
        let mut answer = vec![0; EPHEMERAL_AND_TAG];
        state.write_message(&[], &mut answer).ok()?;
        let (theirs, ours) = state.dangerously_get_raw_split();
        Some((Fresh { ours: Zeroizing::new(ours), theirs: Zeroizing::new(theirs) }, answer))
    }
}

/// Takes the responder's message. Returns `None` if it does not open.
pub(crate) fn finish(state: &mut HandshakeState, message: &[u8]) -> Option<Fresh> {
    state.read_message(message, &mut [0; EPHEMERAL_AND_TAG]).ok()?;
    let (ours, theirs) = state.dangerously_get_raw_split();
    Some(Fresh { ours: Zeroizing::new(ours), theirs: Zeroizing::new(theirs) })
}

impl fmt::Debug for Renewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewal").finish_non_exhaustive()
    }
}
