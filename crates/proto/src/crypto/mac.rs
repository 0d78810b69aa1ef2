//! The MACs of the handshake (docs/wire.md sections 1.1 and 3). With mac1 a listener drops a stranger's HELLO
//! before any other work. mac2 shows that the sender received its COOKIE.

use hkdf::Hkdf;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::{PublicKey, Secret};
use crate::wire::MAC_LEN;

/// A key of HMAC-SHA-256, ready for use.
#[derive(Clone)]
pub struct MacKey(Hmac<Sha256>);

impl MacKey {
    /// The mac1 key of authentication `psk`, derived from the secret (docs/wire.md section 3).
    pub fn new(secret: &Secret) -> Self {
        Self::derived(&[secret.bytes()])
    }

    /// The mac1 key of authentication `key`, derived from the listener's key and the secret, if there is one
    /// (docs/wire.md section 3).
    pub fn of_listener(key: &PublicKey, psk: &Secret) -> Self {
        Self::derived(&[key.bytes(), psk.bytes()])
    }

    fn derived(input: &[&[u8; 32]]) -> Self {
        let input = Zeroizing::new(input.iter().flat_map(|part| **part).collect::<Vec<u8>>());
        let mut key = Zeroizing::new([0; 32]);
        Hkdf::<Sha256>::new(Some(b"tidewire 1 mac1"), &input)
            .expand(&[], key.as_mut())
            .expect("32 bytes are not too long for HKDF-SHA-256");
        Self::from_bytes(key.as_ref())
    }

    /// A key from bytes of the caller's choice.
    pub(crate) fn from_bytes(key: &[u8]) -> Self {
        Self(Hmac::new_from_slice(key).expect("HMAC takes keys of any length"))
    }

    /// All 32 bytes of the MAC over `parts`, used as a derived key.
    pub(crate) fn derive(&self, parts: &[&[u8]]) -> Zeroizing<[u8; 32]> {
        let mac = parts.iter().fold(self.0.clone(), |mac, part| mac.chain_update(part));
        Zeroizing::new(mac.finalize().into_bytes().into())
    }

    /// The MAC of `bytes`: the first 16 bytes of HMAC-SHA-256.
    pub fn tag(&self, bytes: &[u8]) -> [u8; MAC_LEN] {
        let full: [u8; 32] = self.0.clone().chain_update(bytes).finalize().into_bytes().into();
        let mut tag = [0; MAC_LEN];
        tag.copy_from_slice(&full[..MAC_LEN]);
        tag
    }

    /// Whether `tag` is the MAC of `bytes`, in constant time.
    pub(crate) fn verify(&self, bytes: &[u8], tag: &[u8; MAC_LEN]) -> bool {
        self.tag(bytes).ct_eq(tag).into()
    }
}
