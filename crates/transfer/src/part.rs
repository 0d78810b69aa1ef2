//! An incomplete file: written under the name of a part, checked group by group, and renamed to its final
//! name when it is complete.
//!
//! [`Destination`](super::Destination) makes parts, and the receiver writes them on blocking threads.
//! Invariants: the final name changes only by the rename of a complete, verified and flushed file. A
//! checkpoint never covers bytes that are not on the disk. A part that is dropped before it is complete
//! removes itself, unless a later session can continue it.

use std::ffi::{OsStr, OsString};
use std::fs::{File, FileTimes};
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt};
use cap_std::fs::{Dir, OpenOptions};

use super::checkpoint::Checkpoint;
use super::delivered::Note;
use super::durable::{Warning, flush_bytes, flush_file, flush_folder, optional};
use super::existing::{Claimed, identity};
use super::flushing::Unflushed;
use super::growth::{Copying, Growth};
use super::part_file::{create, state_name};
use super::quota::Charge;
use super::refusal::{Refusal, is_damage, refusal};
use super::standing::Standing;
use super::tree::{Prefix, Tree};
use super::{Attributes, Entry, Existing, Key, Reason, mode};

/// Zeros for hashing a skipped run. They are not written.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// State of a part that is being written.
pub(super) struct Writing {
    /// The folder of the part and its state.
    pub(super) folder: Dir,
    /// Name of the part in this folder.
    pub(super) part: String,
    /// The part itself, locked.
    pub(super) file: File,
    /// Its hash so far.
    pub(super) tree: Tree,
    /// Number of bytes at the beginning that are flushed and covered by the checkpoint.
    pub(super) flushed: u64,
    pub(super) unflushed: Unflushed,
    /// Its charge to the receiver's quota, for the bytes from `begun` on.
    pub(super) charge: Charge,
    /// Where this session began to write.
    pub(super) begun: u64,
    /// What this session continues.
    pub(super) beginning: Option<Prefix>,
    /// Where this beginning is copied from, if it is another file's.
    pub(super) growth: Option<Growth>,
    /// How it can be continued; `None` if it cannot.
    pub(super) log: Option<Log>,
}

/// The state file of a part.
pub(super) struct Log {
    pub(super) peer: Key,
    pub(super) job: Key,
    pub(super) path: Key,
    pub(super) source: Key,
    /// Name of part and state, without their endings.
    pub(super) stem: Key,
    /// `None` until there is something to store.
    pub(super) file: Option<File>,
}

/// Holds a part while it is written. A later session of the same source takes it out.
pub(super) type Slot = Arc<Mutex<Option<Writing>>>;

/// Locks a slot. Every change of a slot is a single store, so a poisoned slot is still consistent.
pub(super) fn lock(slot: &Slot) -> MutexGuard<'_, Option<Writing>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that has its final name.
pub(super) struct Committed {
    pub(super) name: OsString,
    /// Which file that is.
    pub(super) identity: Option<Key>,
    /// What could not be done for it.
    pub(super) warning: Warning,
}

/// An incomplete file.
pub(super) struct Part {
    slot: Slot,
    directory: Dir,
    name: OsString,
    path: Key,
}

impl Part {
    /// The part in `slot` will become `name` in `directory`, which is `path`.
    pub(super) fn new(slot: Slot, directory: Dir, name: &OsStr, path: Key) -> Self {
        Self { slot, directory, name: name.to_owned(), path }
    }

    /// Writes and hashes the next bytes. Refuses more than were announced.
    pub(super) fn write(&mut self, bytes: &[u8], announced: u64) -> Result<(), Refusal> {
        self.with(|writing| {
            writing.expect(bytes.len() as u64, announced)?;
            writing.file.write_all(bytes).map_err(refusal)?;
            writing.unflushed.on_written(bytes.len() as u64);
            writing.tree.update(bytes);
            Ok(())
        })
    }

    /// Leaves a hole of the next `length` bytes.
    pub(super) fn skip(&mut self, length: u32, announced: u64) -> Result<(), Refusal> {
        self.with(|writing| {
            writing.expect(u64::from(length), announced)?;
            writing.file.seek(SeekFrom::Current(i64::from(length))).map_err(refusal)?;
            let mut left = length as usize;
            while left > 0 {
                let now = left.min(ZEROS.len());
                writing.tree.update(&ZEROS[..now]);
                left -= now;
            }
            Ok(())
        })
    }

    /// Ends a group, if `value` is its chaining value. Flushes and writes a checkpoint if that is due.
    pub(super) fn mark(&mut self, value: [u8; 32], announced: u64) -> Result<(), Refusal> {
        self.with(|writing| {
            let bytes = writing.tree.bytes();
            if writing.tree.room() > 0 || bytes >= announced {
                return Err((Reason::Mismatch, format!("a group ends after {bytes} bytes where none does")));
            }
            let group = writing.tree.close_group();
            if blake3::Hash::from_bytes(group) != blake3::Hash::from_bytes(value) {
                return Err((Reason::Mismatch, "the hash of a part is not the sender's; send it again".into()));
            }
            let Some(prefix) = writing.tree.prefix() else { return Ok(()) };
            let Writing { folder, file, log: Some(log), flushed, unflushed, growth, .. } = writing else {
                return Ok(());
            };
            if growth.as_ref().is_some_and(|growth| !growth.is_done()) || !unflushed.is_due(Instant::now()) {
                return Ok(());
            }
            stretch(file, bytes)?;
            let checkpoint = log.checkpoint(announced, prefix);
            // Without one the file arrives all the same, but it cannot be continued from here.
            if flush_bytes(file)? && optional(log.write(folder, &checkpoint), |_| Some(String::new()))?.is_none() {
                *flushed = bytes;
            }
            Ok(())
        })
    }

    /// What this session continues, opened for reading, and how it is copied into the part if it is another
    /// file's.
    pub(super) fn beginning(&self) -> Option<(File, Prefix, Option<Copying>)> {
        let slot = lock(&self.slot);
        let writing = slot.as_ref()?;
        let prefix = writing.beginning.clone()?;
        if let Some(growth) = &writing.growth {
            let (file, copying) = growth.begin(&writing.file).ok()?;
            return Some((file, prefix, Some(copying)));
        }
        let mut reading = OpenOptions::new();
        reading.read(true).follow(FollowSymlinks::No);
        let file = writing.folder.open_with(&writing.part, &reading).ok()?;
        Some((file.into_std(), prefix, None))
    }

    /// Drops what is there from `offset` on, where a subtree ends of what this session continues. A file of
    /// `announced` bytes goes on from there, and what is left is its beginning.
    pub(super) fn back(&mut self, offset: u64, announced: u64) -> Result<(), Refusal> {
        self.with(|writing| {
            let wrong = || (Reason::Mismatch, format!("it goes back to byte {offset}, where nothing ends"));
            let beginning = writing.beginning.take().filter(|prefix| offset < prefix.offset()).ok_or_else(wrong)?;
            let kept = if offset == 0 { None } else { Some(beginning.cut(offset).ok_or_else(wrong)?) };
            (writing.tree, writing.beginning) = (Tree::new(kept.as_ref()), kept.clone());
            // First the state, so that it never covers bytes that are not there.
            if let Some(log) = &mut writing.log {
                log.go_back(announced, kept).map_err(refusal)?;
            }
            // What was not copied yet is not there.
            let copied = writing.growth.as_ref().is_none_or(Growth::is_done);
            writing.flushed = if copied { offset } else { 0 };
            writing.file.set_len(offset).map_err(refusal)?;
            writing.file.seek(SeekFrom::Start(offset)).map_err(refusal)?;
            Ok(())
        })
    }

    /// Verifies size and hash, flushes, and renames the file to its final name.
    ///
    /// Refuses the name if it leads to a file that `standing` knows under another path, or to one that
    /// `existing` keeps, and otherwise adds it to `standing`. After the rename the file is no part any
    /// more. A directory's flush that tells a failed disk is an error, because the rename may not survive
    /// a power failure; the file stays complete.
    pub(super) fn commit(
        self,
        entry: &Entry,
        hash: [u8; 32],
        standing: &mut Standing,
        (existing, claimed): (Existing, &Claimed),
    ) -> Result<Committed, Refusal> {
        let path = self.path;
        let mut slot = lock(&self.slot);
        let Some(writing) = slot.as_mut() else { return Err(taken_over()) };
        let checked = writing.verify(entry, hash).and_then(|()| standing.check(&self.directory, &self.name, path));
        let to = (&self.directory, &*self.name);
        if checked.is_ok() && existing.stands_equal(to, claimed, entry.size, hash) {
            let name = self.name.clone();
            drop(slot);
            self.discard();
            return Ok(Committed { name, identity: None, warning: None });
        }
        let finished = checked.and_then(|()| writing.finish(entry, (&self.directory, &self.name), (existing, claimed)));
        let (name, of_file) = match finished {
            Ok(finished) => finished,
            Err(refusal) => {
                drop(slot);
                if matches!(refusal.0, Reason::Mismatch | Reason::Exists) {
                    self.discard();
                }
                return Err(refusal);
            }
        };
        writing.charge.settle_all();
        let Some(Writing { file, .. }) = slot.take() else { return Err(taken_over()) };
        drop(slot);
        let there = self.directory.symlink_metadata(&name).ok();
        if let Some(there) = &there {
            standing.insert(there, path);
        }
        let warning = join([of_file, flush_folder(&self.directory, &file)?]);
        Ok(Committed { name, identity: there.as_ref().map(identity), warning })
    }

    /// Removes everything that was written, so that nobody continues it.
    pub(super) fn discard(self) {
        if let Some(writing) = lock(&self.slot).take() {
            writing.remove();
        }
    }

    fn with<T>(&mut self, work: impl FnOnce(&mut Writing) -> Result<T, Refusal>) -> Result<T, Refusal> {
        work(lock(&self.slot).as_mut().ok_or_else(taken_over)?)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let Some(mut writing) = lock(&self.slot).take() else { return };
        if writing.flushed > 0 {
            // Bytes that no checkpoint covers are useless, and the disk may be full.
            let _ = writing.file.set_len(writing.flushed);
            writing.charge.settle(writing.flushed.saturating_sub(writing.begun));
        } else {
            writing.remove();
        }
    }
}

fn taken_over() -> Refusal {
    (Reason::Unwritable, "a later connection sends the same file and took over".into())
}

impl Writing {
    /// Checks that `length` more bytes are allowed.
    fn expect(&self, length: u64, announced: u64) -> Result<(), Refusal> {
        let left = announced.saturating_sub(self.tree.bytes());
        if length > left {
            return Err((Reason::Mismatch, format!("more bytes came than the {announced} announced")));
        }
        if length > self.tree.room() {
            return Err((Reason::Mismatch, "bytes crossed the end of a group".into()));
        }
        Ok(())
    }

    /// Checks size and hash of the complete file.
    fn verify(&self, entry: &Entry, hash: [u8; 32]) -> Result<(), Refusal> {
        let bytes = self.tree.bytes();
        if bytes != entry.size {
            return Err((Reason::Mismatch, format!("{bytes} bytes came of the {} announced", entry.size)));
        }
        // `blake3::Hash` compares in constant time.
        if self.tree.clone().finish() != Some(blake3::Hash::from_bytes(hash)) {
            return Err((Reason::Mismatch, "its hash is not the sender's; send it again".into()));
        }
        Ok(())
    }

    /// Gives the file its mode and time, flushes it, and renames it to its final name, or to another one.
    /// Returns this name, and what could not be done.
    fn finish(
        &mut self,
        entry: &Entry,
        to: (&Dir, &OsStr),
        (existing, claimed): (Existing, &Claimed),
    ) -> Result<(OsString, Warning), Refusal> {
        stretch(&self.file, entry.size)?;
        let of_attributes = set_attributes(&self.file, entry.attributes)?;
        Note { delivery: claimed.delivery, prefix: self.tree.prefix() }.write(&self.file);
        let of_bytes = flush_file(&self.file)?;
        let name = existing.put((&self.folder, &self.part), to, claimed)?;
        if let Some(log) = self.log.as_ref().filter(|log| log.file.is_some()) {
            // A state without a part. The next session would remove it too.
            let _ = self.folder.remove_file(log.state_name());
        }
        Ok((name, join([of_attributes, of_bytes])))
    }

    /// Best effort: the file system may be gone or read-only, and no name here can be taken for a complete
    /// file.
    fn remove(self) {
        let _ = self.folder.remove_file(&self.part);
        if let Some(log) = self.log {
            let _ = self.folder.remove_file(log.state_name());
        }
    }
}

impl Log {
    /// Name of the state.
    pub(super) fn state_name(&self) -> String {
        state_name(self.stem)
    }

    /// The checkpoint for `prefix` of a file of `size` bytes.
    pub(super) fn checkpoint(&self, size: u64, prefix: Prefix) -> Checkpoint {
        let Self { peer, job, path, source, .. } = *self;
        Checkpoint { peer, job, path, source, size, prefix }
    }

    /// Makes later checkpoints void, and without a prefix all.
    fn go_back(&mut self, size: u64, prefix: Option<Prefix>) -> io::Result<()> {
        let checkpoint = prefix.map(|prefix| self.checkpoint(size, prefix));
        match (&mut self.file, checkpoint) {
            (None, _) => Ok(()),
            (Some(file), None) => file.set_len(0),
            (Some(file), Some(checkpoint)) => checkpoint.write_alone(file),
        }
    }

    fn write(&mut self, folder: &Dir, checkpoint: &Checkpoint) -> io::Result<()> {
        let name = self.state_name();
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(create(folder, &name)?),
        };
        checkpoint.write(file)
    }
}

/// Sets mode and modification time. Returns what could not be done.
pub(super) fn set_attributes(file: &File, attributes: Attributes) -> Result<Warning, Refusal> {
    let of_mode = mode::set(file, attributes.mode)?;
    let (seconds, nanos) = attributes.modified;
    let timed =
        system_time(seconds, nanos).map_or(Ok(()), |modified| file.set_times(FileTimes::new().set_modified(modified)));
    let of_time = optional(timed, |error| Some(format!("its modification time is not the sender's: {error}")))?;
    Ok(join([of_mode, of_time]))
}

/// Several warnings of one file.
pub(super) fn join(warnings: [Warning; 2]) -> Warning {
    warnings.into_iter().flatten().reduce(|one, other| format!("{one}; {other}"))
}

/// Gives a part the length of the bytes that came. It is shorter only if a hole ends it, so that a file
/// system that cannot change a length serves all other files.
fn stretch(file: &File, bytes: u64) -> Result<(), Refusal> {
    match file.set_len(bytes) {
        Err(error) if !is_damage(&error) && file.metadata().is_ok_and(|now| now.len() == bytes) => Ok(()),
        set => set.map_err(refusal),
    }
}

/// A time of the wire, if this system can represent it.
fn system_time(seconds: i64, nanos: u32) -> Option<SystemTime> {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base = match seconds {
        0.. => SystemTime::UNIX_EPOCH.checked_add(whole),
        _ => SystemTime::UNIX_EPOCH.checked_sub(whole),
    };
    base?.checked_add(Duration::from_nanos(u64::from(nanos)))
}
