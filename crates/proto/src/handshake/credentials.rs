//! Credentials of an endpoint, and the keys of one handshake.
//!
//! The endpoint holds [`Credentials`], and a handshake takes its [`Keys`] from them. With authentication
//! `psk` all peers share one secret. With authentication `key` each peer has a key pair (docs/wire.md section
//! 3).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::noise;
use crate::crypto::{MacKey, PrivateKey, PublicKey, Secret};
use crate::wire::Auth;

/// The credentials with which an endpoint authenticates itself, and the peers that it accepts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Credentials {
    /// Authentication `psk`: all peers that may connect share a secret.
    Psk(Secret),
    /// Authentication `key`: each peer has a key pair.
    Key(KeyCredentials),
}

/// Credentials of authentication `key`.
#[derive(Clone, Debug)]
pub struct KeyCredentials {
    /// Our own private key.
    pub private: PrivateKey,
    /// Public keys whose HELLOs are answered. Empty by default.
    pub authorized: Arc<BTreeSet<PublicKey>>,
    /// A secret that both sides must know in addition.
    pub psk: Option<Secret>,
}

impl KeyCredentials {
    /// Only our own key. The endpoint can connect, and accepts nobody.
    pub fn new(private: PrivateKey) -> Self {
        Self { private, authorized: Arc::default(), psk: None }
    }

    /// Without a secret it is zeros, as in WireGuard.
    fn psk(&self) -> Secret {
        self.psk.clone().unwrap_or(Secret::new([0; 32]))
    }
}

/// The peer's public key is missing with authentication `key`, or was given with authentication `psk`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerKeyError {
    /// We have a key pair, but the peer's public key was not given.
    #[error("an endpoint with a key pair connects to a public key: give the peer's")]
    Missing,
    /// A public key was given, but we have only a secret.
    #[error("an endpoint with a secret connects without a public key: give none, or a key pair of its own")]
    Unused,
}

impl Credentials {
    /// Keys for a handshake that we begin with the peer that has this public key.
    pub fn to_connect(&self, peer: Option<&PublicKey>) -> Result<Keys, PeerKeyError> {
        match (self, peer) {
            (Self::Psk(secret), None) => Ok(Keys::Psk(secret.clone())),
            (Self::Key(own), Some(peer)) => {
                Ok(Keys::Key { private: own.private.clone(), listener: *peer, psk: own.psk() })
            }
            (Self::Key(_), None) => Err(PeerKeyError::Missing),
            (Self::Psk(_), Some(_)) => Err(PeerKeyError::Unused),
        }
    }

    /// Keys for handshakes that other peers begin.
    pub(super) fn to_listen(&self) -> Keys {
        match self {
            Self::Psk(secret) => Keys::Psk(secret.clone()),
            Self::Key(own) => {
                Keys::Key { private: own.private.clone(), listener: own.private.public(), psk: own.psk() }
            }
        }
    }

    /// Accepts these public keys and no others. No effect for a shared secret.
    pub(crate) fn authorize(&mut self, keys: Arc<BTreeSet<PublicKey>>) {
        if let Self::Key(own) = self {
            own.authorized = keys;
        }
    }

    /// Whether a peer that proved to have this key is accepted.
    pub(crate) fn authorizes(&self, key: &PublicKey) -> bool {
        match self {
            Self::Psk(_) => true,
            Self::Key(own) => own.authorized.contains(key),
        }
    }
}

impl From<Secret> for Credentials {
    fn from(secret: Secret) -> Self {
        Self::Psk(secret)
    }
}

impl From<&Secret> for Credentials {
    fn from(secret: &Secret) -> Self {
        Self::Psk(secret.clone())
    }
}

/// The keys of one handshake, on either side.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Keys {
    /// Authentication `psk`.
    Psk(Secret),
    /// Authentication `key`.
    Key {
        /// Our own private key.
        private: PrivateKey,
        /// Public key of the listening side. The initiator must know it.
        listener: PublicKey,
        /// Zeros if there is no secret.
        psk: Secret,
    },
}

impl Keys {
    pub(super) const fn auth(&self) -> Auth {
        match self {
            Self::Psk(_) => Auth::Psk,
            Self::Key { .. } => Auth::Key,
        }
    }

    /// The key of mac1, which a stranger does not know.
    pub(super) fn mac(&self) -> MacKey {
        match self {
            Self::Psk(secret) => MacKey::new(secret),
            Self::Key { listener, psk, .. } => MacKey::of_listener(listener, psk),
        }
    }

    /// Bytes of the first Noise message around its payload.
    pub(super) const fn hello_overhead(&self) -> usize {
        match self {
            Self::Psk(_) => noise::EPHEMERAL_AND_TAG,
            Self::Key { .. } => noise::EPHEMERAL_AND_TAG + noise::SEALED_STATIC,
        }
    }
}

impl From<&Secret> for Keys {
    fn from(secret: &Secret) -> Self {
        Self::Psk(secret.clone())
    }
}
