//! Names of 16 bytes for jobs, paths and contents of sources, which the two sides of a transfer exchange.
//!
//! They are hashes, each kind with its own context, so that kinds cannot be confused. Both sides compute the
//! keys of paths. The others are opaque to the receiver, which compares them and names its parts by them.

use std::fmt;

use tidewire::PublicKey;

/// A name of 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub [u8; Self::LEN]);

impl Key {
    /// Length on the wire. Two of 2^32 files get the same name with probability 2^-65.
    pub const LEN: usize = 16;

    /// The key of a path as on the wire.
    pub fn of_path(path: &[u8]) -> Self {
        Self::derive("tidewire 3 transfer path", &[path])
    }

    /// The key of a sender: one for each public key, and one for all peers that share a secret, which a
    /// receiver cannot distinguish.
    pub(super) fn of_peer(peer: Option<&PublicKey>) -> Self {
        let key = peer.map(ToString::to_string).unwrap_or_default();
        Self::derive("tidewire 3 transfer peer", &[key.as_bytes()])
    }

    /// The key under which a receiver keeps data of `peer` about `what`: a source or a job.
    pub(super) fn of_peers(peer: Self, what: Self) -> Self {
        Self::derive("tidewire 3 transfer part", &[&peer.0, &what.0])
    }

    /// The key of a command's arguments: their absolute paths.
    pub(super) fn of_job<'a>(paths: impl Iterator<Item = &'a [u8]>) -> Self {
        Self::derive("tidewire 3 transfer job", &paths.collect::<Vec<_>>())
    }

    /// The key under which the beginning of a file is stored. It does not prove the content: a program can
    /// write to a file and put its time back.
    pub(super) fn of_source(inode: u64, size: u64, modified: (i64, u32)) -> Self {
        let (seconds, nanos) = (modified.0.to_be_bytes(), modified.1.to_be_bytes());
        Self::derive("tidewire 3 transfer source", &[&inode.to_be_bytes(), &size.to_be_bytes(), &seconds, &nanos])
    }

    /// The key of a file that `peer` delivered as `path`, by its size and its modification time there,
    /// with what else is noted.
    pub(super) fn of_delivery(peer: Self, path: Self, stands: (u64, i64, i64), rest: &[u8]) -> Self {
        let (size, seconds, nanos) = (stands.0.to_be_bytes(), stands.1.to_be_bytes(), stands.2.to_be_bytes());
        Self::derive("tidewire 3 transfer delivery", &[&peer.0, &path.0, &size, &seconds, &nanos, rest])
    }

    /// Each part is hashed with its length, so that no two lists have the same bytes.
    fn derive(context: &str, parts: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(context);
        for part in parts {
            hasher.update(&(part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        let mut key = [0; Self::LEN];
        hasher.finalize_xof().fill(&mut key);
        Self(key)
    }
}

/// Hexadecimal, as in file names.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
