//! Knows which file at the destination belongs to which path of a job, so that two paths are never the same
//! file there.
//!
//! If a file system takes `A` and `a`, or two spellings of `é`, for one name, the second file of a transfer
//! would replace the first. The receiver asks the file system instead of guessing its rules: a name to be
//! written must not lead to a file that this job put under another path. Invariant: at most [`MAX_KEPT`]
//! files are known. Further files are not compared.

use std::collections::HashMap;
use std::ffi::OsStr;

use cap_std::fs::{Dir, Metadata};

use super::Key;
use super::refusal::Refusal;

/// Maximum number of files of a job that are known: 64 MiB of keys and identities in memory.
pub(super) const MAX_KEPT: usize = 1 << 20;

/// Device number and inode number of a file.
type Identity = (u64, u64);

/// The files of a job at the destination.
#[derive(Debug, Default)]
pub(super) struct Standing(HashMap<Identity, Key>);

impl Standing {
    /// Records that the job has put the file of `metadata` under `path`.
    pub(super) fn insert(&mut self, metadata: &Metadata, path: Key) {
        if let Some(identity) = identity(metadata)
            && self.0.len() < MAX_KEPT
        {
            self.0.insert(identity, path);
        }
    }

    /// Refuses `name` in `directory`, which is `path`, if it leads to a file that the job has put under
    /// another path.
    pub(super) fn check(&self, directory: &Dir, name: &OsStr, path: Key) -> Result<(), Refusal> {
        let there = directory.symlink_metadata(name).ok().as_ref().and_then(identity);
        match there.and_then(|identity| self.0.get(&identity)) {
            Some(other) if *other != path => {
                let detail = "the destination takes its name for that of another file of this job; rename one of them";
                Err((super::Reason::PathRefused, detail.into()))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(unix)]
fn identity(metadata: &Metadata) -> Option<Identity> {
    use cap_std::fs::MetadataExt;
    Some((metadata.dev(), metadata.ino()))
}

/// On these systems the numbers need an open handle, and nothing is compared.
#[cfg(not(unix))]
fn identity(_: &Metadata) -> Option<Identity> {
    None
}
