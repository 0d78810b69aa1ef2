//! Who is who: what an endpoint proves itself by, and what one handshake runs on.
//!
//! The endpoint holds [`Credentials`]; a handshake takes its [`Keys`] from them. Authentication `psk` knows one secret that all share, authentication
//! `key` a key pair for each peer (wire.md section 3).

use core::fmt;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::noise;
use crate::crypto::{MacKey, PrivateKey, PublicKey, Secret};
use crate::wire::Auth;

/// What an endpoint proves itself by, and whom it lets in.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// Authentication `psk`: all who may connect share a secret.
    Psk(Secret),
    /// Authentication `key`: each peer has a key pair.
    Key(KeyCredentials),
}

/// Credentials of authentication `key`.
#[derive(Clone, Debug)]
pub struct KeyCredentials {
    /// Our own.
    pub private: PrivateKey,
    /// Whose HELLOs are answered; nobody's, unless named.
    pub authorized: Arc<BTreeSet<PublicKey>>,
    /// A secret that both sides must know besides.
    pub psk: Option<Secret>,
}

impl KeyCredentials {
    /// Only our own key: connects, and lets nobody in.
    pub fn new(private: PrivateKey) -> Self {
        Self { private, authorized: Arc::default(), psk: None }
    }

    /// Where no secret is given it is zeros, as in WireGuard.
    fn psk(&self) -> Secret {
        self.psk.clone().unwrap_or(Secret::new([0; 32]))
    }
}

/// A connection to a peer of authentication `key` was asked for without its key, or the other way round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerKeyError {
    /// We have a key pair, and the peer's public key was not given.
    Missing,
    /// A public key was given, and we have a secret only.
    Unused,
}

impl fmt::Display for PeerKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "an endpoint with a key pair connects to a public key: give the peer's",
            Self::Unused => {
                "an endpoint with a secret connects without a public key: give none, or a key pair of its own"
            }
        })
    }
}

impl core::error::Error for PeerKeyError {}

impl Credentials {
    /// For a handshake that we begin, with the peer that has this key.
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

    /// For handshakes that others begin.
    pub(super) fn to_listen(&self) -> Keys {
        match self {
            Self::Psk(secret) => Keys::Psk(secret.clone()),
            Self::Key(own) => {
                Keys::Key { private: own.private.clone(), listener: own.private.public(), psk: own.psk() }
            }
        }
    }

    /// Lets these in, and no others; a secret has no list.
    pub(crate) fn authorize(&mut self, keys: Arc<BTreeSet<PublicKey>>) {
        if let Self::Key(own) = self {
            own.authorized = keys;
        }
    }

    /// Whether a peer that proved to have this key may come in.
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

/// What one handshake runs on, on either side.
#[derive(Clone, Debug)]
pub enum Keys {
    /// Authentication `psk`.
    Psk(Secret),
    /// Authentication `key`.
    Key {
        /// Our own.
        private: PrivateKey,
        /// Of the side that listens: the initiator must know it, the responder has it.
        listener: PublicKey,
        /// Zeros where there is none.
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

    /// The key of mac1: a stranger does not know it.
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
