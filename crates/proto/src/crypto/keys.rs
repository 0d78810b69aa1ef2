//! The key pair of authentication `key`: Curve25519 (RFC 7748), with the implementation that the handshake
//! uses.

use core::fmt;
use core::str::FromStr;

use snow::params::DHChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::Dh;
use zeroize::{Zeroize, Zeroizing};

use super::Refused;
use super::text::{self, TextError, TextKind};

/// A private key. Its holder is the peer it identifies. It is wiped from memory when dropped and never shown
/// by `Debug`.
#[derive(Clone)]
pub struct PrivateKey([u8; 32]);

/// A public key, which identifies a peer. It is not secret, but anyone who knows a listener's public key can
/// make the listener work (docs/wire.md section 3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

impl PrivateKey {
    /// Wraps 32 bytes, which must come from the operating system's random source.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The public key of this private key.
    pub fn public(&self) -> PublicKey {
        PublicKey(x25519_public(&self.0))
    }

    /// The text form: `twk1`, then the bytes and a checksum in base32. The text is as secret as the key.
    pub fn reveal(&self) -> Zeroizing<String> {
        text::write(TextKind::PrivateKey, &self.0)
    }
}

/// The public key of a private key, in pure Rust. It is the default of a [`super::Provider`].
pub(super) fn x25519_public(private: &[u8; 32]) -> [u8; 32] {
    pair(private).pubkey().try_into().expect("a Curve25519 key has 32 bytes")
}

/// The shared secret of a private key and a point, in pure Rust.
pub(super) fn x25519(private: &[u8; 32], point: &[u8; 32]) -> Result<[u8; 32], Refused> {
    let mut shared = [0; 32];
    pair(private).dh(point, &mut shared).map_err(|_| Refused)?;
    Ok(shared)
}

fn pair(private: &[u8; 32]) -> Box<dyn Dh> {
    let mut pair = DefaultResolver.resolve_dh(&DHChoice::Curve25519).expect("Curve25519 is compiled in");
    pair.set(private);
    pair
}

impl Drop for PrivateKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(..)")
    }
}

impl FromStr for PrivateKey {
    type Err = TextError;

    /// Reads the text form, in lower or upper case.
    fn from_str(text: &str) -> Result<Self, TextError> {
        text::read(TextKind::PrivateKey, text).map(|bytes| Self(*bytes))
    }
}

impl PublicKey {
    pub(crate) const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for PublicKey {
    /// The text form: `twp1`, then the bytes and a checksum in base32.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::write(TextKind::PublicKey, &self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = TextError;

    /// Reads the text form, in lower or upper case.
    fn from_str(text: &str) -> Result<Self, TextError> {
        text::read(TextKind::PublicKey, text).map(|bytes| Self(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hex::unhex;

    /// The ephemeral key of the published Noise vectors. Their first message begins with its public key.
    #[test]
    fn a_published_pair() {
        let private = unhex("893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a").try_into().unwrap();
        let public = unhex("ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944").try_into().unwrap();
        assert_eq!(PrivateKey::new(private).public(), PublicKey::new(public));
    }

    #[test]
    fn text_and_back_and_silence() {
        let key = PrivateKey::new([3; 32]);
        assert_eq!(key.reveal().parse::<PrivateKey>().unwrap().bytes(), key.bytes());
        let public = key.public();
        assert_eq!(public.to_string().parse(), Ok(public));
        assert!(public.to_string().starts_with("twp1"));
        assert_eq!(format!("{key:?}"), "PrivateKey(..)");
    }
}
