//! `snow`, tamed: the two Noise names of version 1, and randomness from the caller's seed.
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

use crate::crypto::Secret;
use crate::wire::{LONG_HEADER_LEN, Suite};

/// Bytes of a Noise message of `NNpsk0` around its payload: the ephemeral key and a tag.
pub(super) const NOISE_OVERHEAD: usize = 32 + 16;

/// What the prologue begins with; the HELLO's clear bytes follow.
const PROLOGUE: &[u8; 10] = b"tidewire 1";

/// Which side of the handshake.
#[derive(Clone, Copy)]
pub(super) enum Role {
    Initiator,
    Responder,
}

/// A fresh Noise state. `clear`: the 25 clear bytes of the HELLO. `seed`: for its ephemeral key; never used again.
pub(super) fn state(role: Role, suite: Suite, secret: &Secret, clear: &[u8], seed: &[u8; 32]) -> HandshakeState {
    let name = match suite {
        Suite::AesGcmSha256 => "Noise_NNpsk0_25519_AESGCM_SHA256",
        Suite::ChaChaPolyBlake2s => "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s",
    };
    debug_assert_eq!(clear.len(), LONG_HEADER_LEN);
    let prologue = [PROLOGUE, clear].concat();
    let build = || {
        let resolver = Box::new(Seeded(Zeroizing::new(*seed)));
        let builder = Builder::with_resolver(name.parse()?, resolver);
        let builder = builder.psk(0, secret.bytes())?.prologue(&prologue)?;
        match role {
            Role::Initiator => builder.build_initiator(),
            Role::Responder => builder.build_responder(),
        }
    };
    build().expect("both names are compiled in and psk0 is all they need")
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
