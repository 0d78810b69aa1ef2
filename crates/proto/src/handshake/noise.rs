//! `snow`, tamed: the four Noise names of version 1, and randomness from the caller's seed.
//!
//! `snow` runs the handshake only. Its ciphers are the pure-Rust ones, so that no C library is needed here; its random
//! source is a ChaCha20 stream from a seed, so that a run can be replayed. The names are fixed and every input has the
//! length they want, which is why building a state cannot fail.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use zeroize::Zeroizing;

use super::credentials::Keys;
use crate::wire::{LONG_HEADER_LEN, Suite};

/// Bytes of a Noise message around its payload: the ephemeral key and a tag.
pub(super) const EPHEMERAL_AND_TAG: usize = 32 + 16;
/// What the first message of `IKpsk2` has besides: the initiator's own key, sealed.
pub(super) const SEALED_STATIC: usize = 32 + 16;

/// What the prologue begins with; the HELLO's clear bytes follow.
const PROLOGUE: &[u8; 10] = b"tidewire 1";

/// Which side of the handshake.
#[derive(Clone, Copy)]
pub(super) enum Role {
    Initiator,
    Responder,
}

/// A fresh Noise state. `clear`: the 25 clear bytes of the HELLO. `seed`: for its ephemeral key; never used again.
pub(super) fn state(role: Role, suite: Suite, keys: &Keys, clear: &[u8], seed: &[u8; 32]) -> HandshakeState {
    let name = match (keys, suite) {
        (Keys::Psk(_), Suite::AesGcmSha256) => "Noise_NNpsk0_25519_AESGCM_SHA256",
        (Keys::Psk(_), Suite::ChaChaPolyBlake2s) => "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s",
        (Keys::Key { .. }, Suite::AesGcmSha256) => "Noise_IKpsk2_25519_AESGCM_SHA256",
        (Keys::Key { .. }, Suite::ChaChaPolyBlake2s) => "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s",
    };
    debug_assert_eq!(clear.len(), LONG_HEADER_LEN);
    let prologue = [PROLOGUE, clear].concat();
    let build = || {
        let resolver = Box::new(Seeded(Zeroizing::new(*seed)));
        let mut builder = Builder::with_resolver(name.parse()?, resolver).prologue(&prologue)?;
        match keys {
            Keys::Psk(secret) => builder = builder.psk(0, secret.bytes())?,
            Keys::Key { private, listener, psk } => {
                builder = builder.psk(2, psk.bytes())?.local_private_key(private.bytes())?;
                if matches!(role, Role::Initiator) {
                    builder = builder.remote_public_key(listener.bytes())?;
                }
            }
        }
        match role {
            Role::Initiator => builder.build_initiator(),
            Role::Responder => builder.build_responder(),
        }
    };
    build().expect("all names are compiled in and have every key that they need")
}

/// The default primitives with a random source of our own.
struct Seeded(Zeroizing<[u8; 32]>);

impl CryptoResolver for Seeded {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Stream(ChaCha20Rng::from_seed(*self.0))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

struct Stream(ChaCha20Rng);

impl Random for Stream {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), snow::Error> {
        self.0.fill_bytes(dest);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
