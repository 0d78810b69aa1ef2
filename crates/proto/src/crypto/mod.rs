//! Protection of packets: keys, header protection, replay window. Also the secrets and keys that users hold.
//!
//! The handshake makes a [`SealingKey`] and an [`OpeningKey`], and the connection calls them once per packet.
//! Invariant: no state changes because of a packet before its tag was verified, so a forged packet has no
//! effect. Numbers and labels are those of docs/wire.md sections 1.2 and 3.
//!
//! Ciphers come in through the [`Provider`] trait, because not every build can include the C library of the
//! native one. The wasm check and browsers cannot. The fuzz targets use a null cipher, so that mutated
//! packets pass the tag check.

#[cfg(feature = "aws-lc-rs")]
mod aws_lc;
mod key_log;
mod keys;
mod mac;
mod packet;
mod replay;
mod schedule;
mod secret;
mod text;

#[cfg(feature = "aws-lc-rs")]
pub use aws_lc::AwsLc;
pub(crate) use key_log::SessionLog;
pub use key_log::{KeyLog, LoggedKey, Sealer};
pub use keys::{PrivateKey, PublicKey};
pub use mac::MacKey;
pub(crate) use packet::MAX_SEALED;
pub use packet::{NotConfirmed, OpenError, Opened, OpeningKey, SealError, SealingKey};
pub use secret::Secret;
pub use text::{TextError, TextFault, TextKind};

use core::fmt;

use crate::wire::TAG_LEN;

/// A cipher for packets. There are only these two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Aead {
    /// AES-256-GCM, used if both sides have AES hardware.
    Aes256Gcm,
    /// ChaCha20-Poly1305, used otherwise.
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

/// The cipher refused: the tag does not verify, or the cipher cannot process the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// Source of the ciphers.
pub trait Provider: Send + Sync {
    /// Whether this machine has AES hardware. It decides which cipher is offered first.
    fn aes_hardware(&self) -> bool;
    /// Makes a key that seals and opens packets.
    fn packet_key(&self, aead: Aead, key: &[u8; 32]) -> Box<dyn PacketKey>;
    /// Makes a key that masks headers, with AES-256-ECB or ChaCha20 according to the AEAD (RFC 9001 section
    /// 5.4).
    fn header_key(&self, aead: Aead, key: &[u8; 32]) -> Box<dyn HeaderKey>;
    /// X25519 (RFC 7748 section 5), clamped. A point of small order gives zeros or is refused.
    fn x25519(&self, private: &[u8; 32], point: &[u8; 32]) -> Result<[u8; 32], Refused> {
        keys::x25519(private, point)
    }
    /// The public key of a private key.
    fn x25519_public(&self, private: &[u8; 32]) -> [u8; 32] {
        keys::x25519_public(private)
    }
}

/// An AEAD key. The caller must never repeat a nonce.
pub trait PacketKey: Send + Sync {
    /// Encrypts `payload` in place and writes its tag. Refuses only payloads far longer than a datagram.
    fn seal(&self, nonce: &[u8; 12], header: &[u8], payload: &mut [u8], tag: &mut [u8; TAG_LEN])
    -> Result<(), Refused>;
    /// Verifies the tag and decrypts `payload` in place. If it refuses, the contents of `payload` are
    /// unspecified.
    fn open(&self, nonce: &[u8; 12], header: &[u8], payload: &mut [u8], tag: &[u8; TAG_LEN]) -> Result<(), Refused>;
}

/// A header protection key.
pub trait HeaderKey: Send + Sync {
    /// The mask of a packet with this `sample` of sealed bytes.
    fn mask(&self, sample: &[u8; 16]) -> [u8; 5];
}
