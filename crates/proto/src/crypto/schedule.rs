//! The key schedule of one direction (docs/wire.md section 3): from a chaining key to the keys of each phase.

use std::sync::Arc;

use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroizing;

use super::key_log::{DirectionLog, Sealer, SessionLog};
use super::{Aead, HeaderKey, PacketKey, Provider};

/// The keys that seal or open the packets of one key phase.
pub(super) struct PhaseKey {
    pub(super) packet: Box<dyn PacketKey>,
    iv: [u8; 12],
}

impl PhaseKey {
    /// iv XOR (path id : 32 | packet number : 64).
    pub(super) fn nonce(&self, path: u32, packet_number: u64) -> [u8; 12] {
        let mut wide = [0; 16];
        wide[4..].copy_from_slice(&self.iv);
        let mixed = u128::from_be_bytes(wide) ^ (u128::from(path) << 64 | u128::from(packet_number));
        let mut nonce = [0; 12];
        nonce.copy_from_slice(&mixed.to_be_bytes()[4..]);
        nonce
    }
}

/// The key schedule of one direction, at one phase.
pub(super) struct Schedule {
    provider: Arc<dyn Provider>,
    aead: Aead,
    secret: Zeroizing<[u8; 32]>,
    phase: u64,
    log: Option<Box<DirectionLog>>,
}

impl Schedule {
    /// A schedule at phase 0. `chaining_key` is this direction's output of Noise's Split.
    pub(super) fn new(provider: Arc<dyn Provider>, aead: Aead, chaining_key: &[u8; 32]) -> Self {
        Self { provider, aead, secret: Zeroizing::new(*chaining_key), phase: 0, log: None }
    }

    /// The same schedule, at phase 0, which reports every key that it derives.
    pub(super) fn logged(mut self, log: Option<(SessionLog, Sealer)>) -> Self {
        self.log = log.map(|(session, sealer)| {
            Box::new(DirectionLog::new(session, sealer, self.aead, self.expand("tidewire 1 hp")))
        });
        self
    }

    /// The header key. It is the same in all phases and must be taken at phase 0.
    pub(super) fn header_key(&self) -> Box<dyn HeaderKey> {
        self.provider.header_key(self.aead, &self.expand("tidewire 1 hp"))
    }

    /// The key of the current phase.
    pub(super) fn phase_key(&self) -> PhaseKey {
        let (key, iv) = (self.expand::<32>("tidewire 1 key"), self.expand::<12>("tidewire 1 iv"));
        if let Some(log) = &self.log {
            log.record(self.phase, &key, &iv);
        }
        PhaseKey { packet: self.provider.packet_key(self.aead, &key), iv: *iv }
    }

    /// Advances to the next phase and deletes the secret of the current one.
    pub(super) fn advance(&mut self) {
        self.secret = self.expand("tidewire 1 update");
        self.phase += 1;
    }

    #[cfg(test)]
    pub(super) fn stolen(&self) -> super::OpeningKey {
        super::OpeningKey::new(Arc::clone(&self.provider), self.aead, &self.secret)
    }

    /// Mixes the result of a fresh exchange for this direction into the secret of the current phase
    /// (docs/wire.md section 3.1). Deletes the old secret.
    pub(super) fn mix(&mut self, fresh: &[u8; 32]) {
        let (mixed, _) = Hkdf::<Sha256>::extract(Some(self.secret.as_ref()), fresh);
        self.secret.copy_from_slice(&mixed);
    }

    fn expand<const N: usize>(&self, label: &str) -> Zeroizing<[u8; N]> {
        let mut out = Zeroizing::new([0; N]);
        Hkdf::<Sha256>::from_prk(self.secret.as_ref())
            .and_then(|hkdf| hkdf.expand(label.as_bytes(), out.as_mut()).map_err(|_| hkdf::InvalidPrkLength))
            .expect("32 bytes are a key for HKDF-SHA-256, and no output is longer than 255 of them");
        out
    }
}
