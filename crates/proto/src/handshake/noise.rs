//! Wraps `snow`: the four Noise names of version 1, and randomness from the caller's seed.
//!
//! `snow` runs only the handshake. It uses the pure-Rust ciphers, whose speed hardly matters in a handshake.
//! The curve takes nearly all of a handshake's time and comes from the [`Provider`]. The random source is a
//! ChaCha20 stream from a seed, so that a run can be repeated. Building a state cannot fail, because the
//! names are fixed and every input has the required length.

use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use zeroize::Zeroizing;

use super::credentials::Keys;
use crate::crypto::Provider;
use crate::wire::{LONG_HEADER_LEN, Suite};

/// Bytes of a Noise message around its payload: the ephemeral key and a tag.
pub(super) const EPHEMERAL_AND_TAG: usize = 32 + 16;
/// Further bytes in the first message of `IKpsk2`: the initiator's own key, sealed.
pub(super) const SEALED_STATIC: usize = 32 + 16;

/// Beginning of the prologue. The HELLO's clear bytes follow.
const PROLOGUE: &[u8; 10] = b"tidewire 1";

/// Side of the handshake.
#[derive(Clone, Copy)]
pub(super) enum Role {
    Initiator,
    Responder,
}

/// A new Noise state. `clear` is the 25 clear bytes of the HELLO. `seed` is for its ephemeral key and must
/// not be used again.
pub(super) fn state(
    provider: &Arc<dyn Provider>,
    role: Role,
    suite: Suite,
    keys: &Keys,
    clear: &[u8],
    seed: &[u8; 32],
) -> HandshakeState {
    debug_assert_eq!(clear.len(), LONG_HEADER_LEN);
    state_with(provider, role, suite, keys, &[PROLOGUE, clear].concat(), seed)
}

/// A new Noise state with a prologue of the caller's choice.
pub(super) fn state_with(
    provider: &Arc<dyn Provider>,
    role: Role,
    suite: Suite,
    keys: &Keys,
    prologue: &[u8],
    seed: &[u8; 32],
) -> HandshakeState {
    let name = match (keys, suite) {
        (Keys::Psk(_), Suite::AesGcmSha256) => "Noise_NNpsk0_25519_AESGCM_SHA256",
        (Keys::Psk(_), Suite::ChaChaPolyBlake2s) => "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s",
        (Keys::Key { .. }, Suite::AesGcmSha256) => "Noise_IKpsk2_25519_AESGCM_SHA256",
        (Keys::Key { .. }, Suite::ChaChaPolyBlake2s) => "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s",
    };
    let own = match (role, keys) {
        (Role::Responder, Keys::Key { listener, .. }) => Some(*listener.bytes()),
        _ => None,
    };
    let build = || {
        let resolver = Box::new(Resolver { seed: Zeroizing::new(*seed), provider: Arc::clone(provider), own });
        let mut builder = Builder::with_resolver(name.parse()?, resolver).prologue(prologue)?;
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

/// The default hash and ciphers, the provider's curve, and our own random source.
struct Resolver {
    seed: Zeroizing<[u8; 32]>,
    provider: Arc<dyn Provider>,
    /// The public key of our static key, if it is known.
    own: Option<[u8; 32]>,
}

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Stream(ChaCha20Rng::from_seed(*self.seed))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        let DHChoice::Curve25519 = choice else { return None };
        let (provider, own) = (Arc::clone(&self.provider), self.own);
        Some(Box::new(X25519 { provider, own, private: Zeroizing::new([0; 32]), public: [0; 32] }))
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

/// A key pair of the handshake, ephemeral or static.
struct X25519 {
    provider: Arc<dyn Provider>,
    own: Option<[u8; 32]>,
    private: Zeroizing<[u8; 32]>,
    public: [u8; 32],
}

impl Dh for X25519 {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        32
    }

    fn priv_len(&self) -> usize {
        32
    }

    /// Only the static key is set this way. Otherwise every HELLO would derive its public key.
    fn set(&mut self, private: &[u8]) {
        self.private.copy_from_slice(private);
        self.public = self.own.unwrap_or_else(|| self.provider.x25519_public(&self.private));
    }

    fn generate(&mut self, rng: &mut dyn Random) -> Result<(), snow::Error> {
        rng.try_fill_bytes(self.private.as_mut())?;
        self.public = self.provider.x25519_public(&self.private);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        self.private.as_ref()
    }

    fn dh(&self, point: &[u8], out: &mut [u8]) -> Result<(), snow::Error> {
        let point = point.first_chunk().ok_or(snow::Error::Dh)?;
        let shared = Zeroizing::new(self.provider.x25519(&self.private, point).map_err(|_| snow::Error::Dh)?);
        out.get_mut(..32).ok_or(snow::Error::Dh)?.copy_from_slice(shared.as_ref());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
