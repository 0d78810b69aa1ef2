//! What a session of a receiver knows: the LOOKs that are open, and parts of earlier sessions that can be
//! continued.
//!
//! It is made when the sender has named its job. Invariants: an entry is announced or claimed once, after its
//! LOOK. Only what was offered to a LOOK is continued. Nothing of another peer is offered, continued or
//! removed. At most [`WINDOW`] LOOKs are open.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::ops::ControlFlow;

use cap_fs_ext::DirExt;

use super::checkpoint::Checkpoint;
use super::delivered::{Delivery, Note, open_standing};
use super::destination::PARTS;
use super::destination::Start;
use super::durable::Warning;
use super::existing::{Claimed, MOST_NUMBER, numbered};
use super::kept::{Kept, Placed};
use super::part::{Committed, Log, Part, join};
use super::record::{Claim, Entry, Have, Kind, Link, Look};
use super::refusal::Refusal;
use super::standing::{MAX_KEPT, Standing};
use super::tree::Prefix;
use super::{Destination, Encoding, Existing, Key, PathText, Reason, RelativePath, TransferError};
use super::{link_target, links};

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
    /// What was offered of files that stand and are shorter, by the ids of the LOOKs that are open.
    grown: HashMap<u32, Prefix>,
    /// Where this job has put files, by the keys of their paths.
    files: HashMap<Key, Placed>,
}

/// A LOOK that is open.
#[derive(Debug)]
struct Open {
    look: Look,
    /// The file that stands there and was not claimed yet.
    claimable: Option<RelativePath>,
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
        let (mut standing, mut files, grown) = (Standing::default(), HashMap::new(), HashMap::new());
        let folder = destination.root().open_dir_nofollow(PARTS).ok();
        let kept = Kept::load(destination, folder, Key::of_peers(peer, job), &mut standing, &mut files);
        Self {
            destination,
            peer,
            job,
            looks: BTreeMap::new(),
            next_id: 0,
            claimed: 0,
            parts,
            kept,
            standing,
            grown,
            files,
        }
    }

    /// Notes a LOOK. Returns the answer, if it is the LOOK of a file.
    pub(super) fn look(&mut self, look: Look) -> Result<Option<Have>, TransferError> {
        if u64::from(look.id) < self.next_id || self.looks.len() + self.claimed >= WINDOW {
            return Err(TransferError::Unexpected("LOOK"));
        }
        self.next_id = u64::from(look.id) + 1;
        let (have, claimable) = (look.kind == Kind::File).then(|| self.have(&look)).unzip();
        let claimable = claimable.flatten();
        self.looks.insert(look.id, Open { look, claimable });
        Ok(have)
    }

    /// What there is of a file, and where the file stands.
    fn have(&mut self, look: &Look) -> (Have, Option<RelativePath>) {
        if let Some(Offer { part, to }) = self.parts.get_mut(&look.source)
            && may_grow(part.size, look.size)
            && to.is_none()
        {
            *to = Some(look.id);
            return (Have::Beginning(part.prefix.clone()), None);
        }
        if let Some(standing) = path(look).ok().and_then(|path| self.standing_file(path, look.size)) {
            return (Have::Standing, Some(standing));
        }
        if let Some((prefix, _)) = path(look).ok().and_then(|path| self.shorter(&path, look.size)) {
            self.grown.insert(look.id, prefix.clone());
            return (Have::Beginning(prefix), None);
        }
        let key = Key::of_path(&look.path);
        let other_version = self.parts.values().any(|offer| offer.part.path == key);
        (if other_version { Have::OtherVersion } else { Have::Nothing }, None)
    }

    /// The file of this size that `path` may already be: where the job has put it, or under its name, or
    /// under one that an earlier job may have given it.
    fn standing_file(&self, path: RelativePath, size: u64) -> Option<RelativePath> {
        let path = self.target(&path);
        let (directory, name) = self.destination.find(&path).ok()?;
        let stands = |name: &OsStr| {
            let there = directory.symlink_metadata(name).ok()?;
            Some(there.is_file() && there.len() == size)
        };
        if stands(name)? {
            return Some(path);
        }
        if self.destination.existing() != Existing::Rename {
            return None;
        }
        // The search ends at the first name that is free.
        let mut others = (2..=MOST_NUMBER).map(|number| numbered(name, number));
        let other = others.try_fold((), |(), other| match stands(&other) {
            Some(false) => ControlFlow::Continue(()),
            Some(true) => ControlFlow::Break(Some(other)),
            None => ControlFlow::Break(None),
        });
        path.with_name(&other.break_value()??).ok()
    }

    /// The beginning of a file of `size` bytes that this peer has delivered as `path` when it was shorter,
    /// and the file. The peer has sent these bytes, so their hashes tell it nothing.
    fn shorter(&self, path: &RelativePath, size: u64) -> Option<(Prefix, File)> {
        let target = self.target(path);
        let (directory, name) = self.destination.find(&target).ok()?;
        let file = open_standing(&directory, name).ok()?;
        if file.metadata().ok()?.len() >= size {
            return None;
        }
        let note = Note::read(&file, Key::of_path(path.as_bytes())).ok()??;
        let prefix = note.prefix.filter(|prefix| note.delivery.peer == self.peer && prefix.offset() < size)?;
        Some((prefix, file))
    }

    /// Where the job has put a file, or its path.
    fn target(&self, path: &RelativePath) -> RelativePath {
        let placed = self.files.get(&Key::of_path(path.as_bytes()));
        placed.and_then(|placed| placed.other.as_ref()).unwrap_or(path).clone()
    }

    /// What is known of the file with the path `key`.
    fn claimed(&self, key: Key) -> Claimed {
        Claimed { delivery: self.delivery(key), own: self.files.get(&key).map(|placed| placed.identity) }
    }

    /// The file with the path `key`, as this peer delivers it.
    fn delivery(&self, key: Key) -> Delivery {
        Delivery { peer: self.peer, path: key }
    }

    /// Closes a LOOK that was not answered otherwise, as `name` says.
    pub(super) fn close(&mut self, id: u32, name: &'static str) -> Result<Look, TransferError> {
        self.looks.remove(&id).map(|open| open.look).ok_or(TransferError::Unexpected(name))
    }

    /// Closes a LOOK that is not announced.
    pub(super) fn skip(&mut self, id: u32) -> Result<(), TransferError> {
        self.grown.remove(&id);
        self.close(id, "SKIP").map(drop)
    }

    /// Takes the LOOK of a CLAIM, and the path where the file stands. It counts as open until
    /// [`accept`](Self::accept) or [`reopen`](Self::reopen).
    pub(super) fn claim(&mut self, claim: &Claim) -> Result<(Look, RelativePath), TransferError> {
        let claimable = self.looks.get_mut(&claim.id).and_then(|open| open.claimable.take());
        let standing = claimable.ok_or(TransferError::Unexpected("CLAIM"))?;
        self.claimed += 1;
        Ok((self.close(claim.id, "CLAIM")?, standing))
    }

    /// The file of a CLAIM has another content.
    pub(super) fn reopen(&mut self, look: Look) {
        self.claimed -= 1;
        self.looks.insert(look.id, Open { look, claimable: None });
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
        let (key, target) = (Key::of_path(path.as_bytes()), self.target(path));
        let grown = self.grown.remove(&entry.id);
        if let Ok((directory, name)) = self.destination.find(&target) {
            self.standing.check(&directory, name, key)?;
            self.destination.existing().judge(&directory, name, &self.claimed(key))?;
        }
        let unused = |offer: &&Offer| offer.to.is_none() && offer.part.source != entry.source;
        let outdated = self.parts.values().filter(unused).find(|offer| offer.part.path == key);
        if let Some(source) = outdated.map(|offer| offer.part.source) {
            self.parts.remove(&source);
            self.destination.discard(Key::of_peers(self.peer, source));
        }
        let start = match (entry.offset, grown) {
            (0, _) => Some(Start::New),
            (offset, None) => {
                let offered = self.parts.get(&entry.source).filter(|offer| offer.to == Some(entry.id));
                let part = offered.map(|offer| &offer.part).filter(|part| may_grow(part.size, entry.size));
                part.and_then(|part| part.prefix.cut(offset)).map(Start::Resumed)
            }
            // It may have been written to since it was offered.
            (offset, Some(offered)) => self
                .shorter(path, entry.size)
                .filter(|(prefix, _)| *prefix == offered)
                .and_then(|(prefix, file)| Some(Start::Grown(prefix.cut(offset)?, file))),
        };
        let not_offered = "it goes on where nothing was offered; send it again";
        let start = start.ok_or((Reason::Unwritable, not_offered.into()))?;
        // From now on the part belongs to this entry.
        self.parts.remove(&entry.source);
        let (peer, source) = (self.peer, entry.source);
        let log = Log { peer, job: self.job, path: key, source, stem: Key::of_peers(peer, source), file: None };
        self.destination.create_file(&target, entry, log, start)
    }

    /// Whether a LINK may come now: after all LOOKs, with an id that grows.
    pub(super) fn next_link(&mut self, id: u32) -> Result<(), TransferError> {
        if u64::from(id) < self.next_id || !self.looks.is_empty() || self.is_comparing() {
            return Err(TransferError::Unexpected("LINK"));
        }
        self.next_id = u64::from(id) + 1;
        Ok(())
    }

    /// Makes a symbolic link, if the receiver wants links. Returns what could not be done for it.
    pub(super) fn make_link(&mut self, link: &Link) -> Result<Warning, Refusal> {
        if !self.destination.makes_links() {
            return Err((Reason::NotAFile, "the receiver makes no symbolic links (receive --links)".into()));
        }
        let path = checked(&link.path, link.encoding)?;
        link_target::check(&path, &link.target).map_err(|error| (Reason::PathRefused, error.to_string()))?;
        let key = Key::of_path(path.as_bytes());
        let claimed = self.claimed(key);
        let (name, warning) = links::make(self.destination, &path, &link.target, &claimed, &mut self.standing)?;
        Ok(join([renamed(&path, &name), warning]))
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
        let key = Key::of_path(path.as_bytes());
        let rule = (self.destination.existing(), &self.claimed(key));
        let Committed { name, identity, warning } = part.commit(entry, hash, &mut self.standing, rule)?;
        let other = (name != path.split().1).then(|| path.with_name(&name)).transpose();
        if let (Some(identity), Ok(other)) = (identity, other) {
            let placed = Placed { other, identity };
            self.kept.add(self.destination, path, &placed);
            if self.files.len() < MAX_KEPT {
                self.files.insert(key, placed);
            }
        }
        Ok(join([renamed(path, &name), warning]))
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

/// Whether a part of a file of `was` bytes is the beginning of one of `size`. The source of a file that
/// grows does not name its size.
fn may_grow(was: u64, size: u64) -> bool {
    was <= size
}

/// Tells that a file has another name than the last of `path`.
fn renamed(path: &RelativePath, name: &OsStr) -> Warning {
    let name = (name != path.split().1).then(|| PathText::of(name.as_encoded_bytes()))?;
    Some(format!("its name is `{name}`, because another file has the first"))
}

/// The path of a LOOK, if it may be written to.
pub(super) fn path(look: &Look) -> Result<RelativePath, Refusal> {
    checked(&look.path, look.encoding)
}

fn checked(path: &[u8], encoding: Encoding) -> Result<RelativePath, Refusal> {
    let path = RelativePath::parse(path, encoding).map_err(|error| (Reason::PathRefused, error.to_string()))?;
    let first = path.as_bytes().split(|&byte| byte == b'/').next().unwrap_or_default();
    if first.eq_ignore_ascii_case(PARTS.as_bytes()) {
        return Err((Reason::PathRefused, format!("`{PARTS}` is where files under way are kept")));
    }
    Ok(path)
}
