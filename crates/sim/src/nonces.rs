//! An oracle for nonces: a cipher provider that remembers under which nonces each packet key sealed.
//!
//! An AEAD is broken if one key seals two packets under one nonce. [`Pair`](crate::pair::Pair) gives both
//! endpoints the same [`Recorder`], so it also detects a key that both directions use, and a key that is used
//! again after a key update or a restart. [`Sealed::reused`] must stay zero. Handshake messages are sealed by
//! Noise and are not seen here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tidewire_proto::crypto::{Aead, AwsLc, HeaderKey, PacketKey, Provider, Refused};
use tidewire_proto::wire::TAG_LEN;

/// The native ciphers, with a memory of nonces.
#[derive(Default)]
pub struct Recorder {
    /// Keyed by the bytes of the key, so that all users of a key share one memory.
    keys: Mutex<BTreeMap<[u8; 32], Arc<Mutex<Used>>>>,
}

/// The nonces of one key.
#[derive(Default)]
struct Used {
    /// Nonces without their lowest six bits, with one bit for each of the 64 nonces that share them. A nonce
    /// is the packet number XOR a constant, so 64 consecutive packet numbers need one or two entries.
    blocks: BTreeMap<u128, u64>,
    sealed: Sealed,
}

/// What packet keys sealed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sealed {
    /// All sealed packets.
    pub packets: u64,
    /// Packets sealed under a nonce that the same key had used before.
    pub reused: u64,
}

impl Recorder {
    /// The counts of all keys so far.
    pub fn sealed(&self) -> Sealed {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.values().fold(Sealed::default(), |sum, used| {
            let Sealed { packets, reused } = used.lock().unwrap_or_else(PoisonError::into_inner).sealed;
            Sealed { packets: sum.packets + packets, reused: sum.reused + reused }
        })
    }
}

impl Provider for Recorder {
    fn aes_hardware(&self) -> bool {
        AwsLc.aes_hardware()
    }

    fn packet_key(&self, aead: Aead, key: &[u8; 32]) -> Box<dyn PacketKey> {
        let used = Arc::clone(self.keys.lock().unwrap_or_else(PoisonError::into_inner).entry(*key).or_default());
        Box::new(RecordedKey { key: AwsLc.packet_key(aead, key), used })
    }

    fn header_key(&self, aead: Aead, key: &[u8; 32]) -> Box<dyn HeaderKey> {
        AwsLc.header_key(aead, key)
    }

    fn x25519(&self, private: &[u8; 32], point: &[u8; 32]) -> Result<[u8; 32], Refused> {
        AwsLc.x25519(private, point)
    }

    fn x25519_public(&self, private: &[u8; 32]) -> [u8; 32] {
        AwsLc.x25519_public(private)
    }
}

struct RecordedKey {
    key: Box<dyn PacketKey>,
    used: Arc<Mutex<Used>>,
}

impl PacketKey for RecordedKey {
    fn seal(
        &self,
        nonce: &[u8; 12],
        header: &[u8],
        payload: &mut [u8],
        tag: &mut [u8; TAG_LEN],
    ) -> Result<(), Refused> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).add(nonce);
        self.key.seal(nonce, header, payload, tag)
    }

    fn open(&self, nonce: &[u8; 12], header: &[u8], payload: &mut [u8], tag: &[u8; TAG_LEN]) -> Result<(), Refused> {
        self.key.open(nonce, header, payload, tag)
    }
}

impl Used {
    fn add(&mut self, nonce: &[u8; 12]) {
        let number = nonce.iter().fold(0_u128, |number, &byte| number << 8 | u128::from(byte));
        let block = self.blocks.entry(number >> 6).or_default();
        let bit = 1 << (number & 63);
        self.sealed.packets += 1;
        self.sealed.reused += u64::from(*block & bit != 0);
        *block |= bit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key is made twice, as by two endpoints. Packets sealed by one count for the other.
    #[test]
    fn a_nonce_that_a_key_uses_twice_is_counted() {
        let recorder = Recorder::default();
        let key = |n: u8| recorder.packet_key(Aead::ChaCha20Poly1305, &[n; 32]);
        let (first, again, other) = (key(1), key(1), key(2));
        let seal = |key: &dyn PacketKey, n: u8| {
            let mut nonce = [9; 12];
            nonce[11] = n;
            key.seal(&nonce, &[], &mut [0; 32], &mut [0; TAG_LEN]).unwrap();
        };
        for n in 0..=255 {
            seal(&*first, n);
            seal(&*other, n);
        }
        assert_eq!(recorder.sealed(), Sealed { packets: 512, reused: 0 });
        seal(&*again, 7);
        seal(&*other, 255);
        assert_eq!(recorder.sealed(), Sealed { packets: 514, reused: 2 });
    }
}
