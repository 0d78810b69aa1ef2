//! What a session of a receiver knows about earlier sessions: parts that can be continued, and files that
//! were kept.
//!
//! It is made when the sender has named its job, sent to the sender, and looked up for each file. Invariants:
//! only what was offered in this session is continued. Nothing of another peer is offered, continued or
//! removed.

use std::collections::BTreeMap;

use cap_fs_ext::DirExt;

use super::checkpoint::Checkpoint;
use super::destination::PARTS;
use super::durable::Warning;
use super::kept::Kept;
use super::part::Part;
use super::record::Have;
use super::refusal::Refusal;
use super::standing::Standing;
use super::{Destination, Entry, Key, Reason, RelativePath};

/// A session of a receiver.
#[derive(Debug)]
pub(super) struct Session<'a> {
    destination: &'a Destination,
    peer: Key,
    job: Key,
    /// Keyed by source.
    parts: BTreeMap<Key, Checkpoint>,
    kept: Kept,
    standing: Standing,
}

impl<'a> Session<'a> {
    /// Examines the destination. What cannot be read is not offered.
    pub(super) fn begin(destination: &'a Destination, peer: Key, job: Key) -> Self {
        let parts = destination.survey(peer).unwrap_or_default();
        let parts = parts.into_iter().map(|checkpoint| (checkpoint.source, checkpoint)).collect();
        let mut standing = Standing::default();
        let folder = destination.root().open_dir_nofollow(PARTS).ok();
        let kept = Kept::load(destination, folder, peer, job, &mut standing);
        Self { destination, peer, job, parts, kept, standing }
    }

    /// Everything that is offered.
    pub(super) fn haves(&self) -> impl Iterator<Item = Have> {
        let whole = self.kept.known().map(|(path, source)| Have { path, source, part: None });
        let parts = self.parts.values().map(|part| Have {
            path: part.path,
            source: part.source,
            part: Some(part.prefix.clone()),
        });
        parts.chain(whole)
    }

    /// Makes a directory.
    pub(super) fn create_directory(&self, path: &RelativePath, mode: u16) -> Result<(), Refusal> {
        self.destination.create_directory(path, mode)
    }

    /// Opens the part of a file, at its beginning or where `entry` continues.
    pub(super) fn open(&mut self, path: &RelativePath, entry: &Entry) -> Result<Part, Refusal> {
        let key = Key::of_path(&entry.path);
        let outdated = self.parts.values().find(|part| part.path == key && part.source != entry.source);
        if let Some(source) = outdated.map(|part| part.source) {
            self.parts.remove(&source);
            self.destination.discard(Key::of_peers(self.peer, source));
        }
        let offered = self.parts.remove(&entry.source);
        let prefix = match &offered {
            _ if entry.offset == 0 => None,
            Some(part) if part.prefix.offset() == entry.offset && part.size == entry.size => Some(&part.prefix),
            _ => return Err((Reason::Unwritable, "it goes on where nothing was offered; send it again".into())),
        };
        self.destination.create_file(path, entry, self.peer, self.job, prefix)
    }

    /// Whether `entry` is a file that was kept before and is unchanged.
    pub(super) fn has(&self, entry: &Entry) -> bool {
        self.kept.has(Key::of_path(&entry.path), entry.source)
    }

    /// Renames a complete file to its final name, `path`, and notes that it is kept. Returns what could not be
    /// done for it.
    pub(super) fn keep(
        &mut self,
        part: Part,
        path: RelativePath,
        entry: &Entry,
        hash: [u8; 32],
    ) -> Result<Warning, Refusal> {
        let committed = part.commit(entry, hash, &mut self.standing)?;
        if let Some(modified) = committed.modified {
            self.kept.add(self.destination, path, entry.source, entry.size, modified);
        }
        Ok(committed.warning)
    }

    /// Called when the job is done: the rest of it will not be needed again.
    pub(super) fn done(&mut self) {
        for (source, part) in std::mem::take(&mut self.parts) {
            if part.job == self.job {
                self.destination.discard(Key::of_peers(self.peer, source));
            }
        }
        self.destination.tidy(Some(self.kept.name()));
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.destination.tidy(None);
    }
}
