//! Finds what to send: the files and directories below the given paths, in an order that depends only on
//! their names. It runs once before anything is sent, so the total is known. Devices are reported as
//! failures, and so are links that are not sent ([`Links`]).

use std::collections::{HashMap, HashSet};
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use walkdir::WalkDir;

use super::beneath::Root;
use super::followed::{Follower, Target};
use super::link_target;
use super::path::RelativePath;
use super::record::Attributes;
use super::{FileFailure, Key, Reason, mode};

/// One file or directory to send.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its path on this machine.
    pub path: PathBuf,
    /// Its name at the destination.
    pub name: RelativePath,
    /// Whether it is a directory.
    pub directory: bool,
    /// Size of the file at the time of the scan.
    pub(super) size: u64,
    /// Key under which the receiver stores the beginning of the file.
    pub(super) key: Key,
    /// The folder beneath which it lies.
    pub(super) root: Root,
    /// Where it lies there, if that is not its name: a link was followed.
    pub(super) at: Option<RelativePath>,
    /// Whether only its size at the time of the scan is sent, although it may grow.
    pub(super) growing: bool,
}

impl Source {
    /// Number of its bytes that are announced, if it has `now`.
    pub(super) fn announced(&self, now: u64) -> u64 {
        if self.growing { now.min(self.size) } else { now }
    }

    /// Where it lies beneath its root.
    pub(super) fn place(&self) -> &RelativePath {
        self.at.as_ref().unwrap_or(&self.name)
    }
}

/// One symbolic link to send.
#[derive(Clone, Debug)]
pub(super) struct LinkSource {
    pub(super) name: RelativePath,
    pub(super) target: Vec<u8>,
}

/// What is done with symbolic links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Links {
    /// They are failures.
    #[default]
    Skip,
    /// They are sent as links, if their targets lie inside the named path.
    Keep,
    /// What they lead to is sent in their place, if it lies inside a named path.
    Follow,
}

/// How a scan treats what it finds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scanning {
    /// Symbolic links.
    pub links: Links,
    /// Files may grow while they are sent: what they have at the time of the scan is sent.
    pub growing: bool,
}

/// Everything to send, and what cannot be sent.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// In sending order: a directory comes before its contents.
    pub sources: Vec<Source>,
    /// Symbolic links, which are sent last.
    pub(super) links: Vec<LinkSource>,
    /// Number of files among the sources.
    pub files: u32,
    /// Their size in bytes at the time of the scan.
    pub bytes: u64,
    /// Entries that cannot be sent.
    pub failures: Vec<FileFailure>,
    /// Key of the job: the same for the same paths.
    pub job: Key,
    /// Number of symbolic links among the failures that [`Links::Skip`] leaves out.
    pub skipped_links: u32,
    /// Number of files with further names, each of which would arrive as a file of its own.
    pub hard_links: u32,
}

impl Found {
    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty() && self.links.is_empty()
    }

    /// The name of an entry.
    pub(super) fn name(&self, id: u32) -> &RelativePath {
        let (id, sources) = (id as usize, self.sources.len());
        self.sources.get(id).map_or_else(|| &self.links[id - sources].name, |source| &source.name)
    }
}

/// Why these paths cannot be sent together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    /// Two of them have the same last name.
    #[error("two paths would both arrive as `{0}`: send them one after the other")]
    SameName(String),
    /// One of them has no name, such as `/`.
    #[error("`{}` has no name to arrive under: name a folder in it", .0.display())]
    NoName(PathBuf),
    /// More than 2^32 entries.
    #[error("more than 4294967295 files and folders: send them in parts")]
    TooMany,
}

/// Examines `paths` and everything below them, without links.
///
/// # Errors
/// Fails if two paths would have the same name at the destination, or one has none. Files that cannot be sent
/// are no errors of the scan; they are in [`Found::failures`].
pub fn scan(paths: &[PathBuf]) -> Result<Found, ScanError> {
    scan_with(paths, Scanning::default())
}

/// Examines `paths` and everything below them.
///
/// # Errors
/// The same as [`scan`].
pub fn scan_with(paths: &[PathBuf], scanning: Scanning) -> Result<Found, ScanError> {
    let (follower, roots) = (Follower::new(paths), HashMap::new());
    let mut scan = Scan { scanning, follower, roots, found: Found::default() };
    let mut names = HashSet::new();
    for path in paths {
        // `.` and `..` have a name only after they are resolved.
        let named = match path.file_name() {
            Some(_) => path.clone(),
            None => path.canonicalize().unwrap_or_else(|_| path.clone()),
        };
        let base = named.file_name().ok_or_else(|| ScanError::NoName(path.clone()))?;
        if !names.insert(base.to_owned()) {
            return Err(ScanError::SameName(base.to_string_lossy().into_owned()));
        }
        // Without a separator at the end, because with one a link would be followed.
        let named = named.components().collect::<PathBuf>();
        let folder = named.parent().unwrap_or(Path::new(""));
        match RelativePath::join(None, base) {
            Ok(name) => scan.tree(&named, folder, &name),
            Err(error) => scan.found.failures.push(FileFailure::of(&named, Reason::PathRefused, error)),
        }
    }
    let mut found = scan.found;
    let absolute: Vec<_> = paths.iter().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone())).collect();
    found.job = Key::of_job(absolute.iter().map(|path| path.as_os_str().as_encoded_bytes()));
    if u32::try_from(found.sources.len() + found.links.len() + found.failures.len()).is_err() {
        return Err(ScanError::TooMany);
    }
    Ok(found)
}

/// A scan in progress.
struct Scan {
    scanning: Scanning,
    follower: Follower,
    /// The folders opened so far.
    roots: HashMap<PathBuf, Root>,
    found: Found,
}

impl Scan {
    fn root(&mut self, folder: &Path) -> std::io::Result<Root> {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        match self.roots.get(folder) {
            Some(opened) => Ok(opened.clone()),
            None => Root::open(folder).inspect(|opened| drop(self.roots.insert(folder.to_owned(), opened.clone()))),
        }
    }

    /// Examines `top`, which lies in or beneath `folder` and arrives as `name`, and everything below it.
    fn tree(&mut self, top: &Path, folder: &Path, name: &RelativePath) {
        let root = match self.root(folder) {
            Ok(root) => root,
            Err(error) => return self.found.failures.push(unopened(top, &error)),
        };
        let mut walk = WalkDir::new(top).follow_root_links(false).sort_by_file_name().into_iter();
        while let Some(step) = walk.next() {
            let step = match step {
                Ok(step) => step,
                Err(error) => {
                    let path = error.path().unwrap_or(top).to_owned();
                    let error = error.into_io_error().unwrap_or_else(|| std::io::ErrorKind::Other.into());
                    self.found.failures.push(unopened(&path, &error));
                    continue;
                }
            };
            let path = step.path();
            let below = path.strip_prefix(top).unwrap_or(Path::new(""));
            let placed = joined(Some(name.clone()), path, below).and_then(|name| {
                let at = joined(None, path, path.strip_prefix(folder).unwrap_or(path))?;
                name.zip(at).ok_or_else(|| FileFailure::of(path, Reason::PathRefused, "it has no name"))
            });
            let added = placed.and_then(|(name, at)| {
                let metadata = step.metadata().map_err(|error| FileFailure::of(path, Reason::Unreadable, error))?;
                if metadata.is_symlink() { self.link(path, name) } else { self.add(path, &root, (name, at), &metadata) }
            });
            if let Err(failure) = added {
                self.found.failures.push(failure);
                if step.file_type().is_dir() {
                    walk.skip_current_dir();
                }
            }
        }
    }

    fn link(&mut self, path: &Path, name: RelativePath) -> Result<(), FileFailure> {
        let failure = |reason| move |detail: String| FileFailure::of(path, reason, detail);
        match self.scanning.links {
            Links::Skip => {
                self.found.skipped_links = self.found.skipped_links.saturating_add(1);
                Err(failure(Reason::NotAFile)("it is a symbolic link; send what it points to".into()))
            }
            Links::Keep => {
                let target = std::fs::read_link(path).map_err(|error| unopened(path, &error))?;
                let target = target.into_os_string().into_encoded_bytes();
                let checked = link_target::check(&name, &target);
                checked.map_err(|error| failure(Reason::NotAFile)(format!("it is a symbolic link, and {error}")))?;
                self.found.links.push(LinkSource { name, target });
                Ok(())
            }
            Links::Follow => {
                let told = |why| failure(Reason::NotAFile)(format!("it is a symbolic link: {why}"));
                let Target { path: target, folder } = self.follower.target(path).map_err(told)?;
                let inside = target.is_dir();
                if inside {
                    self.follower.enter(path, &target).map_err(told)?;
                }
                self.tree(&target, &folder, &name);
                if inside {
                    self.follower.leave();
                }
                Ok(())
            }
        }
    }

    fn add(
        &mut self,
        path: &Path,
        root: &Root,
        (name, at): (RelativePath, RelativePath),
        metadata: &Metadata,
    ) -> Result<(), FileFailure> {
        check_kind(path, metadata)?;
        let directory = metadata.is_dir();
        let at = (at != name).then_some(at);
        let (path, root) = (path.to_owned(), root.clone());
        let growing = self.scanning.growing;
        let mut source = Source { path, name, directory, size: 0, key: Key::default(), root, at, growing };
        if !directory {
            self.found.files += 1;
            self.found.bytes += metadata.len();
            self.found.hard_links += u32::from(has_further_names(metadata));
            (source.size, source.key) = (metadata.len(), key(&source, metadata));
        }
        self.found.sources.push(source);
        Ok(())
    }
}

/// The path of `below` inside `base`. `path` is named in a failure.
fn joined(base: Option<RelativePath>, path: &Path, below: &Path) -> Result<Option<RelativePath>, FileFailure> {
    below.iter().try_fold(base, |base, part| {
        let joined = RelativePath::join(base.as_ref(), part);
        joined.map(Some).map_err(|error| FileFailure::of(path, Reason::PathRefused, error))
    })
}

/// The failure of a file that could not be opened.
pub(super) fn unopened(path: &Path, error: &std::io::Error) -> FileFailure {
    let gone = error.kind() == std::io::ErrorKind::NotFound;
    FileFailure::of(path, if gone { Reason::Vanished } else { Reason::Unreadable }, error)
}

/// Refuses everything except regular files and directories.
pub(super) fn check_kind(path: &Path, metadata: &Metadata) -> Result<(), FileFailure> {
    if metadata.is_symlink() {
        let detail = "it is a symbolic link; send what it points to";
        return Err(FileFailure::of(path, Reason::NotAFile, detail));
    }
    if !metadata.is_file() && !metadata.is_dir() {
        return Err(FileFailure::of(path, Reason::NotAFile, "it is a device, socket or pipe"));
    }
    Ok(())
}

/// The key by which the beginning of a file is found.
pub(super) fn key(source: &Source, metadata: &Metadata) -> Key {
    match source {
        Source { directory: true, .. } => Key::default(),
        // It is the same file whatever was written to it meanwhile. Only content proves the rest.
        Source { growing: true, .. } => Key::of_source(inode(metadata), 0, (0, 0)),
        _ => Key::of_source(inode(metadata), metadata.len(), modified(metadata)),
    }
}

/// Mode and time of what was opened. A directory has no time here.
pub(super) fn attributes(source: &Source, metadata: &Metadata) -> Attributes {
    let modified = if source.directory { (0, 0) } else { modified(metadata) };
    Attributes { mode: mode::of(metadata), modified }
}

fn modified(metadata: &Metadata) -> (i64, u32) {
    metadata.modified().map_or((0, 0), wire_time)
}

/// Seconds (rounded down) and nanoseconds since 1970.
fn wire_time(time: SystemTime) -> (i64, u32) {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => (after.as_secs() as i64, after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            match before.subsec_nanos() {
                0 => (-(before.as_secs() as i64), 0),
                nanos => (-(before.as_secs() as i64) - 1, 1_000_000_000 - nanos),
            }
        }
    }
}

#[cfg(unix)]
fn has_further_names(metadata: &Metadata) -> bool {
    std::os::unix::fs::MetadataExt::nlink(metadata) > 1
}

#[cfg(not(unix))]
fn has_further_names(_: &Metadata) -> bool {
    false
}

#[cfg(unix)]
fn inode(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

/// On these systems the time of creation distinguishes files.
#[cfg(not(unix))]
fn inode(metadata: &Metadata) -> u64 {
    let created = metadata.created().map(wire_time).unwrap_or_default();
    (created.0 as u64).wrapping_mul(1_000_000_000).wrapping_add(u64::from(created.1))
}
