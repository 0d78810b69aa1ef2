//! The folder that a receiver writes into. Nothing is written outside it: each directory on the way is opened
//! by its handle and never through a link, so neither a hostile path nor a link planted meanwhile leads
//! elsewhere.
//!
//! Incomplete files are [`Part`]s in one subfolder, so that a session finds what an earlier one left
//! ([`Session`](super::session::Session)). The receiver calls this on blocking threads. Invariant: a part is
//! written through one handle at a time, in this process (`active`) and among processes (a lock on the file).

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use cap_fs_ext::{DirExt, FollowSymlinks, OpenOptionsFollowExt};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, DirBuilder, OpenOptions};

use super::checkpoint::Checkpoint;
use super::existing::has_two_names;
use super::hashing_time::HashingTime;
use super::opening;
use super::part::{Log, Part, Slot, Writing, lock};
use super::part_file::{lock_existing, options, part_name, state_name};
use super::quota::{Charge, Limits, Quota};
use super::refusal::{Refusal, refusal};
use super::tree::Prefix;
use super::{Entry, Existing, Key, PathText, Reason, RelativePath};

/// Name of the folder of parts.
pub(super) const PARTS: &str = ".tidewire-parts";
/// Maximum number of parts that a session offers. A connection leaves at most one, so this is as many killed
/// transfers.
pub(super) const MAX_PARTS: usize = 256;
/// How long a part is kept. Chosen: longer than an outage or a long weekend.
const PART_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// The parts that this process is writing, by the stem of their names.
type Active = HashMap<Key, Weak<Mutex<Option<Writing>>>>;

/// An open folder that receives files.
#[derive(Debug)]
pub struct Destination {
    root: Dir,
    quota: Arc<Quota>,
    existing: Existing,
    /// Whether symbolic links are made.
    links: bool,
    /// The time of all sessions for hashes of holes, and for those of claims.
    holes: HashingTime,
    claims: HashingTime,
    /// Locked while parts, or the folder of parts, are made or removed.
    active: Mutex<Active>,
}

/// How a part begins.
pub(super) enum Start {
    New,
    /// It is there, with this beginning.
    Resumed(Prefix),
    /// Its beginning is copied from this file.
    Grown(Prefix, std::fs::File),
}

impl std::fmt::Debug for Writing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.part)
    }
}

impl Destination {
    /// Opens the folder `path`. If it is missing, it is created for this user alone; its parent folder must
    /// exist, so that a mistyped path or a disk that is not mounted is an error.
    ///
    /// # Errors
    /// The operating system's error when the folder cannot be created, opened or written to.
    pub fn open(path: &Path) -> io::Result<Self> {
        #[cfg(unix)]
        super::mode::umask();
        let root = match Dir::open_ambient_dir(path, ambient_authority()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create_private(path)?;
                Dir::open_ambient_dir(path, ambient_authority())?
            }
            opened => opened?,
        };
        check_writable(&root)?;
        let now = Instant::now();
        let (holes, claims) = (HashingTime::for_holes(now), HashingTime::for_claims(now));
        Ok(Self {
            root,
            quota: Arc::default(),
            existing: Existing::default(),
            links: false,
            holes,
            claims,
            active: Mutex::default(),
        })
    }

    /// The same destination with these limits.
    pub fn limited(self, limits: Limits) -> Self {
        Self { quota: Quota::new(limits), ..self }
    }

    /// The same destination, which does this with files that stand.
    pub fn with_existing(self, existing: Existing) -> Self {
        Self { existing, ..self }
    }

    /// The same destination, which makes the symbolic links that are sent.
    pub fn with_links(self, links: bool) -> Self {
        Self { links, ..self }
    }

    /// Whether symbolic links are made.
    pub(super) fn makes_links(&self) -> bool {
        self.links
    }

    /// What becomes of files that stand.
    pub(super) fn existing(&self) -> Existing {
        self.existing
    }

    /// The folder itself.
    pub(super) fn root(&self) -> &Dir {
        &self.root
    }

    /// The time for hashes of holes.
    pub(super) fn holes(&self) -> &HashingTime {
        &self.holes
    }

    /// The time for hashes of claims.
    pub(super) fn claims(&self) -> &HashingTime {
        &self.claims
    }

    /// The directory of `path`, if it is there, and the file's name in it. No link is followed.
    pub(super) fn find<'a>(&self, path: &'a RelativePath) -> io::Result<(Dir, &'a OsStr)> {
        let (parents, name) = path.split();
        let mut directory = self.root.try_clone()?;
        for parent in parents {
            directory = directory.open_dir_nofollow(parent)?;
        }
        Ok((directory, name))
    }

    /// Makes the directory `path` and those above it if they are missing. The receiver may enter and write to
    /// it, whatever `mode` says.
    pub(super) fn create_directory(&self, path: &RelativePath, mode: u16) -> Result<(), Refusal> {
        let (parents, name) = path.split();
        let directory = self.descend(parents)?;
        self.enter(&directory, name, u32::from(mode) | 0o700).map(|_| ())
    }

    /// Starts the file of `entry` at `path` as `start` says; `log` says whose it is. If a lost connection of
    /// this peer still holds a part of the same source, the part is taken from it.
    pub(super) fn create_file(
        &self,
        path: &RelativePath,
        entry: &Entry,
        log: Log,
        start: Start,
    ) -> Result<Part, Refusal> {
        let (key, stem) = (log.path, log.stem);
        let (directory, name) = self.make_way(path)?;
        // A file system that cannot have the name says so before any byte came.
        if let Err(error) = directory.symlink_metadata(name)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(refusal(error));
        }
        let mut active = self.active();
        let folder = self.create_parts()?;
        let writing = if !same_file_system(&folder, &directory) {
            opening::loose(&directory, self.quota.charge(entry.size, 1)?)?
        } else {
            let prefix = if let Start::Resumed(prefix) = &start { Some(prefix) } else { None };
            take_over(&active, stem, prefix);
            match prefix {
                // The file itself and the bytes before `prefix` were charged when they arrived.
                Some(prefix) => {
                    let charge = self.quota.charge(entry.size.saturating_sub(prefix.offset()), 0)?;
                    opening::resume(folder, log, entry.size, prefix, charge)?
                }
                None => opening::begin(folder, log, self.quota.charge(entry.size, 1)?)?,
            }
        };
        let writing = match start {
            Start::Grown(prefix, from) => opening::grow(writing, &prefix, from)?,
            Start::New | Start::Resumed(_) => writing,
        };
        let slot: Slot = Arc::new(Mutex::new(Some(writing)));
        active.retain(|_, slot| slot.strong_count() > 0);
        active.insert(stem, Arc::downgrade(&slot));
        Ok(Part::new(slot, directory, name, key))
    }

    /// The parts that `peer` can continue. Removes parts that nobody can continue.
    pub(super) fn survey(&self, peer: Key) -> io::Result<Vec<Checkpoint>> {
        let active = self.active();
        let folder = match self.root.open_dir_nofollow(PARTS) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened?,
        };
        let mut found = Vec::new();
        for step in folder.entries()? {
            let name = step?.file_name();
            let Some(name) = name.to_str() else { continue };
            if let Some(stem) = name.strip_suffix(".part") {
                match look(&folder, name, stem, &active) {
                    Look::Resumable(checkpoint) if checkpoint.peer == peer && found.len() < MAX_PARTS => {
                        found.push(checkpoint);
                    }
                    Look::Resumable(_) | Look::InUse => {}
                    Look::Useless => {
                        let _ = folder.remove_file(name);
                        let _ = folder.remove_file(format!("{stem}.state"));
                    }
                }
            } else if name.ends_with(".kept") && is_old(&folder, name) {
                let _ = folder.remove_file(name);
            } else if let Some(stem) = name.strip_suffix(".state")
                && folder.symlink_metadata(format!("{stem}.part")).is_err()
            {
                let _ = folder.remove_file(name);
            }
        }
        Ok(found)
    }

    /// Removes the part `stem`, even if a lost connection still holds it, but not if another process does.
    pub(super) fn discard(&self, stem: Key) {
        let active = self.active();
        let Ok(folder) = self.root.open_dir_nofollow(PARTS) else { return };
        let name = part_name(stem);
        take_over(&active, stem, None);
        if lock_existing(&folder, &name).is_ok_and(|file| file.is_some()) {
            let _ = folder.remove_file(name);
            let _ = folder.remove_file(state_name(stem));
        }
    }

    /// Opens a file in the folder of parts for reading and writing. Creates it if it is missing.
    pub(super) fn open_list(&self, name: &str) -> io::Result<std::fs::File> {
        let _guard = self.active();
        let folder = self.create_parts().map_err(|(_, detail)| io::Error::other(detail))?;
        let mut options = options();
        options.read(true).create(true);
        Ok(folder.open_with(name, &options)?.into_std())
    }

    /// Removes a file from the folder of parts, and the folder if it is empty then.
    pub(super) fn tidy(&self, name: Option<&str>) {
        let _guard = self.active();
        if let (Some(name), Ok(folder)) = (name, self.root.open_dir_nofollow(PARTS)) {
            let _ = folder.remove_file(name);
        }
        // Fails if the folder is not empty.
        let _ = self.root.remove_dir(PARTS);
    }

    fn active(&self) -> MutexGuard<'_, Active> {
        // Every change is a single store, so a poisoned map is still consistent.
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn create_parts(&self) -> Result<Dir, Refusal> {
        match self.root.open_dir_nofollow(PARTS) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_directory(&self.root, PARTS.as_ref(), 0o700).map_err(refusal)?;
                self.root.open_dir_nofollow(PARTS)
            }
            opened => opened,
        }
        .map_err(|error| blocked(&self.root, PARTS.as_ref(), error))
    }

    /// Opens the directory of `path`, and makes missing ones. Returns the name in it.
    pub(super) fn make_way<'a>(&self, path: &'a RelativePath) -> Result<(Dir, &'a OsStr), Refusal> {
        let (parents, name) = path.split();
        Ok((self.descend(parents)?, name))
    }

    /// Charges one file without bytes.
    pub(super) fn charge_one(&self) -> Result<Charge, Refusal> {
        self.quota.charge(0, 1)
    }

    /// Opens the directory with these names, and makes missing ones.
    fn descend<'a>(&self, names: impl Iterator<Item = &'a OsStr>) -> Result<Dir, Refusal> {
        let mut directory = self.root.try_clone().map_err(refusal)?;
        for name in names {
            directory = self.enter(&directory, name, 0o777)?;
        }
        Ok(directory)
    }

    /// Opens the directory `name` of `parent`. Makes it if it is missing.
    fn enter(&self, parent: &Dir, name: &OsStr, mode: u32) -> Result<Dir, Refusal> {
        match parent.open_dir_nofollow(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut charge = self.quota.charge(0, 1)?;
                make_directory(parent, name, mode).map_err(refusal)?;
                charge.settle_all();
                parent.open_dir_nofollow(name)
            }
            opened => opened,
        }
        .map_err(|error| blocked(parent, name, error))
    }
}

/// Finds out at once that nothing can be put into a folder, and not file by file. If the system does not
/// tell, it may be.
#[cfg(unix)]
fn check_writable(folder: &Dir) -> io::Result<()> {
    use rustix::fs::{Access, AtFlags, accessat};
    use rustix::io::Errno;
    match accessat(folder, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS) {
        Err(error @ (Errno::ACCESS | Errno::PERM | Errno::ROFS)) => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
fn check_writable(_: &Dir) -> io::Result<()> {
    Ok(())
}

/// Creates the folder `path` with mode 0700 and the umask. A folder that another process created meanwhile is
/// no error.
fn create_private(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        created => created,
    }
}

/// Makes a directory, unless it was just made by another process.
fn make_directory(parent: &Dir, name: &OsStr, mode: u32) -> io::Result<()> {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "a mode is what changes it"))]
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    cap_std::fs::DirBuilderExt::mode(&mut builder, mode);
    #[cfg(not(unix))]
    let _ = mode;
    match parent.create_dir_with(name, &builder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Takes the part `stem` from the connection of this process that writes it, if there is one. The next write
/// of that connection fails. The bytes of `prefix` stay charged.
fn take_over(active: &Active, stem: Key, prefix: Option<&Prefix>) {
    let writing = active.get(&stem).and_then(Weak::upgrade).and_then(|slot| lock(&slot).take());
    if let (Some(mut writing), Some(prefix)) = (writing, prefix) {
        writing.charge.settle(prefix.offset().saturating_sub(writing.begun));
    }
}

/// Why the directory `name` could not be opened.
fn blocked(parent: &Dir, name: &OsStr, error: io::Error) -> Refusal {
    let text = PathText::of(name.as_encoded_bytes());
    match parent.symlink_metadata(name) {
        Ok(found) if found.is_symlink() => {
            (Reason::PathRefused, format!("`{text}` is a symbolic link at the destination"))
        }
        Ok(found) if !found.is_dir() => (Reason::Unwritable, format!("`{text}` is in the way: it is not a directory")),
        _ => refusal(error),
    }
}

/// Whether a file can be renamed from one folder to the other. If the system does not tell, it may not.
#[cfg(unix)]
fn same_file_system(one: &Dir, other: &Dir) -> bool {
    use cap_std::fs::MetadataExt;
    let device = |folder: &Dir| folder.dir_metadata().map(|metadata| metadata.dev()).ok();
    device(one).is_some_and(|of_one| device(other) == Some(of_one))
}

#[cfg(not(unix))]
fn same_file_system(_: &Dir, _: &Dir) -> bool {
    true
}

/// Whether a file was not written to for longer than [`PART_LIFETIME`].
fn is_old(folder: &Dir, name: &str) -> bool {
    let modified = folder.symlink_metadata(name).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| {
        SystemTime::now().duration_since(modified.into_std()).is_ok_and(|age| age > PART_LIFETIME)
    })
}

/// What can be done with a part.
enum Look {
    Resumable(Checkpoint),
    InUse,
    Useless,
}

fn look(folder: &Dir, name: &str, stem: &str, active: &Active) -> Look {
    let writer =
        active.values().filter_map(Weak::upgrade).any(|slot| lock(&slot).as_ref().is_some_and(|w| w.part == name));
    // A part of this process may belong to a connection that is lost without knowing it. Its flushed bytes
    // are offered.
    if !writer && !matches!(lock_existing(folder, name), Ok(Some(_))) {
        return Look::InUse;
    }
    let checkpoint = || {
        // A part with two names is a complete file, whose rename was cut off.
        let bytes = folder.symlink_metadata(name).ok().filter(|found| !has_two_names(found))?.len();
        let mut reading = OpenOptions::new();
        reading.read(true).follow(FollowSymlinks::No);
        let mut state = folder.open_with(format!("{stem}.state"), &reading).ok()?;
        let checkpoint = Checkpoint::read(&mut state, bytes)?;
        let own = Key::of_peers(checkpoint.peer, checkpoint.source).to_string() == stem;
        (own && !is_old(folder, name)).then_some(checkpoint)
    };
    match checkpoint() {
        Some(checkpoint) => Look::Resumable(checkpoint),
        None if writer => Look::InUse,
        None => Look::Useless,
    }
}
