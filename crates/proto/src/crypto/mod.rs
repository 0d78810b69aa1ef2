//! What seals packets: keys, header protection, replay window; and the secret and keys that people hold.
//!
//! The handshake makes a [`SealingKey`] and an [`OpeningKey`]; the connection calls them once a packet. The invariant of
//! this room: nothing changes because of a packet before its tag was verified, so that a forged packet leaves every
//! state as it was. The numbers and labels are those of wire.md sections 1.2 and 3.
//!
//! Ciphers come in through [`Provider`]. It is a trait because not every build can carry the C library behind
//! the native one: the wasm proof and browsers cannot, and the fuzz targets plug in a null cipher so that mutations
//! get past the tag.

#[cfg(feature = "aws-lc-rs")]
mod aws_lc;
mod keys;
mod mac;
mod packet;
mod replay;
mod schedule;
mod secret;
mod text;

#[cfg(feature = "aws-lc-rs")]
pub use aws_lc::AwsLc;
pub use keys::{PrivateKey, PublicKey};
pub use mac::MacKey;
pub use packet::{MAX_SEALED, NotConfirmed, OpenError, Opened, OpeningKey, SealError, SealingKey};
pub use replay::{REPLAY_WIDTH, ReplayWindow, Stale};
pub use secret::Secret;
pub use text::{TextError, TextFault, TextKind};

use core::fmt;

use crate::wire::TAG_LEN;

/// A cipher of the data plane; the only two there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aead {
    /// AES-256-GCM, where both sides have AES hardware.
    Aes256Gcm,
    /// ChaCha20-Poly1305 otherwise.
    ChaCha20Poly1305,
}

impl fmt::Display for Aead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aes256Gcm => "aes-256-gcm",
            Self::ChaCha20Poly1305 => "chacha20-poly1305",
        })
    }
}

/// The cipher refused: a tag that does not verify, or a length that it cannot process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// Where the ciphers come from.
pub trait Provider: Send + Sync {
    /// Whether AES runs in hardware here: decides which cipher is offered first.
    fn aes_hardware(&self) -> bool;
    /// A key that seals and opens.
    fn packet_key(&self, aead: Aead, key: &[u8; 32]) -> Box<dyn PacketKey>;
    /// A key that masks headers: AES-256-ECB or ChaCha20, after the AEAD (RFC 9001 section 5.4).
    fn header_key(&self, aead: Aead, key: &[u8; 32]) -> Box<dyn HeaderKey>;
    /// X25519 (RFC 7748 section 5), clamped. A point of small order gives zeros or is refused.
    fn x25519(&self, private: &[u8; 32], point: &[u8; 32]) -> Result<[u8; 32], Refused> {
        keys::x25519(private, point)
    }
    /// The public key that belongs to a private one.
    fn x25519_public(&self, private: &[u8; 32]) -> [u8; 32] {
        keys::x25519_public(private)
    }
}

/// An AEAD key. The caller answers for nonces never repeating.
pub trait PacketKey: Send + Sync {
    /// Encrypts `payload` in place; returns the tag. Refuses only payloads far longer than a datagram.
    fn seal(&self, nonce: &[u8; 12], header: &[u8], payload: &mut [u8]) -> Result<[u8; TAG_LEN], Refused>;
    /// Verifies the tag and decrypts `payload` in place; refused, the payload's contents are unspecified.
    fn open(&self, nonce: &[u8; 12], header: &[u8], payload: &mut [u8], tag: &[u8; TAG_LEN]) -> Result<(), Refused>;
}

/// A header protection key.
pub trait HeaderKey: Send + Sync {
    /// The mask for a packet whose sealed bytes begin with `sample`.
    fn mask(&self, sample: &[u8; 16]) -> [u8; 5];
}
