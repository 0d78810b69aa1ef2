//! What a session of a receiver knows: the LOOKs that are open, and parts of earlier sessions that can be
//! continued.
//!
//! It is made when the sender has named its job. Invariants: an entry is announced or claimed once, after its
//! LOOK. Only what was offered to a LOOK is continued. Nothing of another peer is offered, continued or
//! removed. At most [`WINDOW`] LOOKs are open.

use std::collections::BTreeMap;

use cap_fs_ext::DirExt;

use super::checkpoint::Checkpoint;
use super::destination::PARTS;
use super::durable::Warning;
use super::kept::Kept;
use super::part::Part;
use super::record::{Claim, Entry, Have, Kind, Look};
use super::refusal::Refusal;
use super::standing::Standing;
use super::{Destination, Key, Reason, RelativePath, TransferError};

/// LOOKs that may be open. Chosen: with their paths at most 4 MiB, and at a round trip of 200 ms 5,000 files
/// a second.
pub(super) const WINDOW: usize = 1024;

/// A session of a receiver.
#[derive(Debug)]
pub(super) struct Session<'a> {
    destination: &'a Destination,
    peer: Key,
    job: Key,
    looks: BTreeMap<u32, Open>,
    /// Least id of the next LOOK.
    next_id: u64,
    /// CLAIMs that are not answered.
    claimed: usize,
    /// Keyed by source.
    parts: BTreeMap<Key, Offer>,
    kept: Kept,
    standing: Standing,
}

/// A LOOK that is open.
#[derive(Debug)]
struct Open {
    look: Look,
    /// Whether a file stands there that was not claimed yet.
    claimable: bool,
}

/// A part of an earlier session.
#[derive(Debug)]
struct Offer {
    part: Checkpoint,
    /// The LOOK that it was offered to. Of two files that look the same, one is continued.
    to: Option<u32>,
}

impl<'a> Session<'a> {
    /// Examines the destination. What cannot be read is not offered.
    pub(super) fn begin(destination: &'a Destination, peer: Key, job: Key) -> Self {
        let parts = destination.survey(peer).unwrap_or_default();
        let parts = parts.into_iter().map(|part| (part.source, Offer { part, to: None })).collect();
        let mut standing = Standing::default();
        let folder = destination.root().open_dir_nofollow(PARTS).ok();
        let kept = Kept::load(destination, folder, peer, job, &mut standing);
        Self { destination, peer, job, looks: BTreeMap::new(), next_id: 0, claimed: 0, parts, kept, standing }
    }

    /// Notes a LOOK. Returns the answer, if it is the LOOK of a file.
    pub(super) fn look(&mut self, look: Look) -> Result<Option<Have>, TransferError> {
        if u64::from(look.id) < self.next_id || self.looks.len() + self.claimed >= WINDOW {
            return Err(TransferError::Unexpected("LOOK"));
        }
        self.next_id = u64::from(look.id) + 1;
        let have = (look.kind == Kind::File).then(|| self.have(&look));
        let claimable = have == Some(Have::Standing);
        self.looks.insert(look.id, Open { look, claimable });
        Ok(have)
    }

    fn have(&mut self, look: &Look) -> Have {
        if let Some(Offer { part, to }) = self.parts.get_mut(&look.source)
            && part.size == look.size
            && to.is_none()
        {
            *to = Some(look.id);
            return Have::Beginning(part.prefix.clone());
        }
        let path = path(look).ok();
        if path.is_some_and(|path| self.stands(&path, look.size)) {
            return Have::Standing;
        }
        let key = Key::of_path(&look.path);
        if self.parts.values().any(|offer| offer.part.path == key) { Have::OtherVersion } else { Have::Nothing }
    }

    fn stands(&self, path: &RelativePath, size: u64) -> bool {
        let there = self.destination.find(path).and_then(|(directory, name)| directory.symlink_metadata(name));
        there.is_ok_and(|there| there.is_file() && there.len() == size)
    }

    /// Closes a LOOK that was not answered otherwise, as `name` says.
    pub(super) fn close(&mut self, id: u32, name: &'static str) -> Result<Look, TransferError> {
        self.looks.remove(&id).map(|open| open.look).ok_or(TransferError::Unexpected(name))
    }

    /// Takes the LOOK of a CLAIM. It counts as open until [`accept`](Self::accept) or
    /// [`reopen`](Self::reopen).
    pub(super) fn claim(&mut self, claim: &Claim) -> Result<Look, TransferError> {
        if !self.looks.get(&claim.id).is_some_and(|open| open.claimable) {
            return Err(TransferError::Unexpected("CLAIM"));
        }
        self.claimed += 1;
        self.close(claim.id, "CLAIM")
    }

    /// The file of a CLAIM has another content.
    pub(super) fn reopen(&mut self, look: Look) {
        self.claimed -= 1;
        self.looks.insert(look.id, Open { look, claimable: false });
    }

    /// The file of a CLAIM was compared and refused, or stays where it is.
    pub(super) fn accept<T>(
        &mut self,
        accepted: impl FnOnce(&mut Standing) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        self.claimed -= 1;
        accepted(&mut self.standing)
    }

    /// Whether a CLAIM is not answered yet.
    pub(super) fn is_comparing(&self) -> bool {
        self.claimed > 0
    }

    /// Makes a directory.
    pub(super) fn create_directory(&self, path: &RelativePath, mode: u16) -> Result<(), Refusal> {
        self.destination.create_directory(path, mode)
    }

    /// Opens the part of a file, at its beginning or where `entry` continues.
    pub(super) fn open(&mut self, path: &RelativePath, entry: &Entry) -> Result<Part, Refusal> {
        let key = Key::of_path(path.as_bytes());
        let unused = |offer: &&Offer| offer.to.is_none() && offer.part.source != entry.source;
        let outdated = self.parts.values().filter(unused).find(|offer| offer.part.path == key);
        if let Some(source) = outdated.map(|offer| offer.part.source) {
            self.parts.remove(&source);
            self.destination.discard(Key::of_peers(self.peer, source));
        }
        let prefix = match entry.offset {
            0 => None,
            offset => {
                let offered = self.parts.get(&entry.source).filter(|offer| offer.to == Some(entry.id));
                let part = offered.map(|offer| &offer.part).filter(|part| part.size == entry.size);
                let not_offered = "it goes on where nothing was offered; send it again";
                Some(part.and_then(|part| part.prefix.cut(offset)).ok_or((Reason::Unwritable, not_offered.into()))?)
            }
        };
        // From now on the part belongs to this entry.
        self.parts.remove(&entry.source);
        self.destination.create_file(path, entry, self.peer, self.job, prefix.as_ref())
    }

    /// Renames a complete file to its final name, `path`, and notes that it is kept. Returns what could not
    /// be done for it.
    pub(super) fn keep(
        &mut self,
        part: Part,
        path: &RelativePath,
        entry: &Entry,
        hash: [u8; 32],
    ) -> Result<Warning, Refusal> {
        let warning = part.commit(entry, hash, &mut self.standing)?;
        self.kept.add(self.destination, path);
        Ok(warning)
    }

    /// Called when the job is done: the rest of it will not be needed again.
    pub(super) fn done(&mut self) {
        for (source, offer) in std::mem::take(&mut self.parts) {
            if offer.part.job == self.job {
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

/// The path of a LOOK, if it may be written to.
pub(super) fn path(look: &Look) -> Result<RelativePath, Refusal> {
    let path =
        RelativePath::parse(&look.path, look.encoding).map_err(|error| (Reason::PathRefused, error.to_string()))?;
    let first = path.as_bytes().split(|&byte| byte == b'/').next().unwrap_or_default();
    if first.eq_ignore_ascii_case(PARTS.as_bytes()) {
        return Err((Reason::PathRefused, format!("`{PARTS}` is where files under way are kept")));
    }
    Ok(path)
}
