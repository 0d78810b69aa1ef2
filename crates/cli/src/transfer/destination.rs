//! The folder that a receiver writes into, and nothing outside it: each directory on the way is opened by its handle and
//! never through a link, so neither a hostile path nor a link planted meanwhile leads elsewhere.
//!
//! Files on their way in are [`Part`]s in one folder of it, so that a session finds what an earlier one left
//! ([`Session`](super::session::Session)). The receiver calls this, off the asynchronous threads. Invariant: a part is
//! written through one handle at a time, in this process (`active`) and among processes (a lock on the file).

use std::collections::HashMap;
use std::fs::TryLockError;
use std::io::{self, Seek, SeekFrom};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use cap_fs_ext::{DirExt, FollowSymlinks, OpenOptionsFollowExt};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};

use super::checkpoint::Checkpoint;
use super::part::{Log, Part, Slot, Writing, lock};
use super::tree::{Prefix, Tree};
use super::{Entry, Key, Reason, RelativePath};

/// Name of the folder of parts.
pub(super) const PARTS: &str = ".tidewire-parts";
/// Most parts that a session offers: a connection leaves one at most, so this is as many killed transfers.
pub(super) const MAX_PARTS: usize = 256;
/// How long a part waits for somebody to go on with it. Chosen: longer than an outage or a holiday weekend.
const PART_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// Why the destination refused something, with what the operating system said.
pub(super) type Refusal = (Reason, String);

/// The parts that this process writes, by source.
type Active = HashMap<Key, Weak<Mutex<Option<Writing>>>>;

/// An open folder to receive into.
#[derive(Debug)]
pub struct Destination {
    root: Dir,
    /// Held while parts, and the folder of parts, come and go.
    active: Mutex<Active>,
}

impl std::fmt::Debug for Writing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.part)
    }
}

impl Destination {
    /// Opens the folder `path`, which must exist.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { root: Dir::open_ambient_dir(path, ambient_authority())?, active: Mutex::default() })
    }

    /// The folder itself.
    pub(super) fn root(&self) -> &Dir {
        &self.root
    }

    /// Makes the directory `path` and those above it, where missing.
    pub(super) fn create_directory(&self, path: &RelativePath) -> Result<(), Refusal> {
        let (parents, name) = path.split();
        self.descend(parents.chain([name])).map(|_| ())
    }

    /// Begins the file of `entry`, which `job` sends, or goes on after `prefix`. A part of the same source that a lost connection
    /// still holds is taken from it.
    pub(super) fn create_file(
        &self,
        path: &RelativePath,
        entry: &Entry,
        job: Key,
        prefix: Option<&Prefix>,
    ) -> Result<Part, Refusal> {
        let (parents, name) = path.split();
        let directory = self.descend(parents)?;
        let mut active = self.active();
        let folder = self.create_parts()?;
        let writing = if !same_file_system(&folder, &directory).map_err(refusal)? {
            loose(&directory, entry)?
        } else {
            take_over(&active, entry.source);
            let log = Log {
                job,
                path: Key::of_path(&entry.path),
                source: entry.source,
                name: state_name(entry.source),
                file: None,
            };
            match prefix {
                Some(prefix) => resume(folder, log, entry, prefix)?,
                None => begin(folder, log, entry)?,
            }
        };
        let slot: Slot = Arc::new(Mutex::new(Some(writing)));
        active.retain(|_, slot| slot.strong_count() > 0);
        active.insert(entry.source, Arc::downgrade(&slot));
        Ok(Part::new(slot, directory, name))
    }

    /// The parts that can be gone on with, after removing those that cannot.
    pub(super) fn survey(&self) -> io::Result<Vec<Checkpoint>> {
        let active = self.active();
        let folder = match self.root.open_dir_nofollow(PARTS) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened?,
        };
        let mut found = Vec::new();
        for step in folder.entries()? {
            let name = step?.file_name();
            let Some(name) = name.to_str() else { continue };
            if let Some(source) = name.strip_suffix(".part") {
                match look(&folder, name, source, &active) {
                    Look::Resumable(checkpoint) if found.len() < MAX_PARTS => found.push(checkpoint),
                    Look::Resumable(_) | Look::InUse => {}
                    Look::Useless => {
                        let _ = folder.remove_file(name);
                        let _ = folder.remove_file(format!("{source}.state"));
                    }
                }
            } else if name.ends_with(".kept") && is_old(&folder, name) {
                let _ = folder.remove_file(name);
            } else if let Some(source) = name.strip_suffix(".state")
                && folder.symlink_metadata(format!("{source}.part")).is_err()
            {
                let _ = folder.remove_file(name);
            }
        }
        Ok(found)
    }

    /// Removes the part of `source`, also from under a lost connection that still holds it, but not from another process.
    pub(super) fn discard(&self, source: Key) {
        let active = self.active();
        let Ok(folder) = self.root.open_dir_nofollow(PARTS) else { return };
        let name = part_name(source);
        take_over(&active, source);
        if lock_existing(&folder, &name).is_ok_and(|file| file.is_some()) {
            let _ = folder.remove_file(name);
            let _ = folder.remove_file(state_name(source));
        }
    }

    /// A file in the folder of parts, opened to read and write, made where it is missing.
    pub(super) fn open_list(&self, name: &str) -> io::Result<std::fs::File> {
        let _guard = self.active();
        let folder = self.create_parts().map_err(|(_, detail)| io::Error::other(detail))?;
        let mut options = options();
        options.read(true).create(true);
        Ok(folder.open_with(name, &options)?.into_std())
    }

    /// Removes a file from the folder of parts, and the folder if nothing is left in it.
    pub(super) fn tidy(&self, name: Option<&str>) {
        let _guard = self.active();
        if let (Some(name), Ok(folder)) = (name, self.root.open_dir_nofollow(PARTS)) {
            let _ = folder.remove_file(name);
        }
        // Fails where something is left.
        let _ = self.root.remove_dir(PARTS);
    }

    fn active(&self) -> MutexGuard<'_, Active> {
        // Every change is one store: a poisoned map is still whole.
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn create_parts(&self) -> Result<Dir, Refusal> {
        self.descend([PARTS].into_iter())
    }

    /// Opens the directory named by `names`, making those missing.
    fn descend<'a>(&self, names: impl Iterator<Item = &'a str>) -> Result<Dir, Refusal> {
        let mut directory = self.root.try_clone().map_err(refusal)?;
        for name in names {
            directory = match directory.open_dir_nofollow(name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    match directory.create_dir(name) {
                        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(refusal(error)),
                        _ => {}
                    }
                    directory.open_dir_nofollow(name)
                }
                opened => opened,
            }
            .map_err(|error| blocked(&directory, name, error))?;
        }
        Ok(directory)
    }
}

/// Why the directory `name` could not be opened.
fn blocked(parent: &Dir, name: &str, error: io::Error) -> Refusal {
    match parent.symlink_metadata(name) {
        Ok(found) if found.is_symlink() => {
            (Reason::PathRefused, format!("`{}` is a symbolic link at the destination", name.escape_debug()))
        }
        Ok(found) if !found.is_dir() => {
            (Reason::Unwritable, format!("`{}` is in the way: it is not a directory", name.escape_debug()))
        }
        _ => refusal(error),
    }
}

/// What an error of the operating system is on the wire.
pub(super) fn refusal(error: io::Error) -> Refusal {
    let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    (if full { Reason::NoSpace } else { Reason::Unwritable }, error.to_string())
}

/// Makes a file for writing that must not be there yet.
pub(super) fn create(folder: &Dir, name: &str, mode: u32) -> io::Result<std::fs::File> {
    let mut options = options();
    options.create_new(true);
    #[cfg(unix)]
    cap_std::fs::OpenOptionsExt::mode(&mut options, mode);
    Ok(folder.open_with(name, &options)?.into_std())
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).follow(FollowSymlinks::No);
    options
}

fn part_name(source: Key) -> String {
    format!("{source}.part")
}

fn state_name(source: Key) -> String {
    format!("{source}.state")
}

/// Takes the part of `source` from the connection of this process that writes it, if one does: its next write fails.
fn take_over(active: &Active, source: Key) {
    if let Some(slot) = active.get(&source).and_then(Weak::upgrade) {
        drop(lock(&slot).take());
    }
}

/// Opens and locks a part that is there; `None` if it is not.
fn lock_existing(folder: &Dir, name: &str) -> Result<Option<std::fs::File>, Refusal> {
    match folder.open_with(name, &options()) {
        Ok(file) => lock_file(file.into_std()).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(refusal(error)),
    }
}

fn lock_file(file: std::fs::File) -> Result<std::fs::File, Refusal> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            Err((Reason::Unwritable, "another process receives the same file; wait for it, or stop it".into()))
        }
        // File systems without locks are used by one receiver at a time, or parts that two of them write fail by their hashes.
        _ => Ok(file),
    }
}

/// A part from its beginning; what there was of it goes.
fn begin(folder: Dir, log: Log, entry: &Entry) -> Result<Writing, Refusal> {
    let part = part_name(log.source);
    if lock_existing(&folder, &part)?.is_some() {
        folder.remove_file(&part).map_err(refusal)?;
    }
    // A state without its part.
    let _ = folder.remove_file(&log.name);
    let file = lock_file(create(&folder, &part, mode(entry)).map_err(refusal)?)?;
    Ok(Writing { folder, part, file, tree: Tree::new(None), log: Some(log) })
}

/// A part from where `prefix` ends; what is behind that goes.
fn resume(folder: Dir, mut log: Log, entry: &Entry, prefix: &Prefix) -> Result<Writing, Refusal> {
    let part = part_name(log.source);
    let gone = || (Reason::Unwritable, "what was there of it is gone; send it again".into());
    let mut file = lock_existing(&folder, &part)?.ok_or_else(gone)?;
    if file.metadata().map_err(refusal)?.len() < prefix.offset() {
        return Err(gone());
    }
    let mut state = folder.open_with(&log.name, &options()).map_err(refusal)?.into_std();
    let (job, path, source) = (log.job, log.path, log.source);
    let checkpoint = Checkpoint { job, path, source, size: entry.size, prefix: prefix.clone() };
    // A later checkpoint would speak of bytes that are cut off now.
    checkpoint.write_alone(&mut state).and_then(|()| file.set_len(prefix.offset())).map_err(refusal)?;
    file.seek(SeekFrom::Start(prefix.offset())).map_err(refusal)?;
    log.file = Some(state);
    Ok(Writing { folder, part, file, tree: Tree::new(Some(prefix)), log: Some(log) })
}

/// A part beside its final name, where nothing can be renamed from the folder of parts.
fn loose(directory: &Dir, entry: &Entry) -> Result<Writing, Refusal> {
    let random = getrandom::u64().map_err(io::Error::from).map_err(refusal)?;
    let part = format!(".tidewire-part-{random:016x}");
    let file = create(directory, &part, mode(entry)).map_err(refusal)?;
    let folder = directory.try_clone().map_err(refusal)?;
    Ok(Writing { folder, part, file, tree: Tree::new(None), log: None })
}

fn mode(entry: &Entry) -> u32 {
    if entry.executable { 0o777 } else { 0o666 }
}

#[cfg(unix)]
fn same_file_system(one: &Dir, other: &Dir) -> io::Result<bool> {
    use cap_std::fs::MetadataExt;
    Ok(one.dir_metadata()?.dev() == other.dir_metadata()?.dev())
}

#[cfg(not(unix))]
fn same_file_system(_: &Dir, _: &Dir) -> io::Result<bool> {
    Ok(true)
}

/// Whether nobody has written to a file for so long that nobody will.
fn is_old(folder: &Dir, name: &str) -> bool {
    let modified = folder.symlink_metadata(name).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| {
        SystemTime::now().duration_since(modified.into_std()).is_ok_and(|age| age > PART_LIFETIME)
    })
}

/// What a part is good for.
enum Look {
    Resumable(Checkpoint),
    InUse,
    Useless,
}

fn look(folder: &Dir, name: &str, source: &str, active: &Active) -> Look {
    let writer =
        active.values().filter_map(Weak::upgrade).any(|slot| lock(&slot).as_ref().is_some_and(|w| w.part == name));
    // Ours may be of a connection that is lost and does not know it yet: what it flushed is offered.
    if !writer && !matches!(lock_existing(folder, name), Ok(Some(_))) {
        return Look::InUse;
    }
    let checkpoint = || {
        let bytes = folder.symlink_metadata(name).ok()?.len();
        let mut reading = OpenOptions::new();
        reading.read(true).follow(FollowSymlinks::No);
        let mut state = folder.open_with(format!("{source}.state"), &reading).ok()?;
        let checkpoint = Checkpoint::read(&mut state, bytes)?;
        (checkpoint.source.to_string() == source && !is_old(folder, name)).then_some(checkpoint)
    };
    match checkpoint() {
        Some(checkpoint) => Look::Resumable(checkpoint),
        None if writer => Look::InUse,
        None => Look::Useless,
    }
}
