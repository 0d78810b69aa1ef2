//! The receiver's offers, as the sender looks them up: first by content, so that a renamed file is found,
//! then by path, so that a changed file is noticed.
//!
//! The sender's reading task fills it until READY. Its writing task then looks up each file. Invariant: it
//! holds no more than the sender has files and a receiver may have parts.

use std::collections::{HashMap, HashSet};

use super::destination::MAX_PARTS;
use super::record::Have;
use super::tree::Prefix;
use super::{Key, TransferError};

/// What the receiver has.
#[derive(Debug, Default)]
pub(super) struct Offers {
    /// By path and source.
    kept: HashSet<(Key, Key)>,
    /// By source.
    parts: HashMap<Key, Prefix>,
    /// Paths of parts.
    begun: HashSet<Key>,
}

impl Offers {
    /// Adds an offer. The sender has `entries` files; kept files beyond that are useless.
    pub(super) fn add(&mut self, have: Have, entries: usize) -> Result<(), TransferError> {
        match have.part {
            None => {
                if self.kept.len() < entries {
                    self.kept.insert((have.path, have.source));
                }
            }
            Some(prefix) if self.parts.len() < MAX_PARTS => {
                self.parts.insert(have.source, prefix);
                self.begun.insert(have.path);
            }
            Some(_) => return Err(TransferError::Unexpected("HAVE")),
        }
        Ok(())
    }

    /// Whether the receiver has kept this file.
    pub(super) fn has(&self, path: Key, source: Key) -> bool {
        self.kept.contains(&(path, source))
    }

    /// The beginning of `source`, which has `size` bytes, at the receiver. It is returned once: of two files
    /// that look the same, one is continued.
    pub(super) fn part(&mut self, source: Key, size: u64) -> Option<Prefix> {
        self.parts.remove(&source).filter(|prefix| prefix.offset() < size)
    }

    /// Whether the receiver has the beginning of another file with this path.
    pub(super) fn has_begun(&self, path: Key) -> bool {
        self.begun.contains(&path)
    }
}
