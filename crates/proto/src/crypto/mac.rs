//! mac1: the keyed MAC that lets a listener drop a stranger's HELLO before any other work (wire.md section 1.1).

use hkdf::Hkdf;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::Secret;
use crate::wire::MAC_LEN;

/// The mac1 key of one secret, ready to run.
#[derive(Clone)]
pub struct MacKey(Hmac<Sha256>);

impl MacKey {
    /// Derives the key from the secret (wire.md section 3).
    pub fn new(secret: &Secret) -> Self {
        let mut key = Zeroizing::new([0; 32]);
        Hkdf::<Sha256>::new(Some(b"tidewire 1 mac1"), secret.bytes())
            .expand(&[], key.as_mut())
            .expect("32 bytes are not too long for HKDF-SHA-256");
        Self(Hmac::new_from_slice(key.as_ref()).expect("HMAC takes keys of any length"))
    }

    /// The MAC of `bytes`: HMAC-SHA-256, its first 16 bytes.
    pub fn tag(&self, bytes: &[u8]) -> [u8; MAC_LEN] {
        let full: [u8; 32] = self.0.clone().chain_update(bytes).finalize().into_bytes().into();
        let mut tag = [0; MAC_LEN];
        tag.copy_from_slice(&full[..MAC_LEN]);
        tag
    }

    /// Whether `tag` is the MAC of `bytes`, in constant time.
    pub fn verify(&self, bytes: &[u8], tag: &[u8; MAC_LEN]) -> bool {
        self.tag(bytes).ct_eq(tag).into()
    }
}
