//! Finds what to send: the files and directories below the given paths, in an order that depends only on
//! their names. It runs once before anything is sent, so the total is known. Links and devices are reported
//! as failures and never followed.

use std::collections::{HashMap, HashSet};
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use walkdir::WalkDir;

use super::beneath::Root;
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
    /// The folder in which `name` begins.
    pub(super) root: Root,
}

/// Everything to send, and what cannot be sent.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// In sending order: a directory comes before its contents.
    pub sources: Vec<Source>,
    /// Number of files among them.
    pub files: u32,
    /// Their size in bytes at the time of the scan.
    pub bytes: u64,
    /// Entries that cannot be sent.
    pub failures: Vec<FileFailure>,
    /// Key of the job: the same for the same paths.
    pub job: Key,
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

/// Examines `paths` and everything below them.
///
/// # Errors
/// Fails if two paths would have the same name at the destination, or one has none. Files that cannot be sent
/// are no errors of the scan; they are in [`Found::failures`].
pub fn scan(paths: &[PathBuf]) -> Result<Found, ScanError> {
    let mut found = Found::default();
    let (mut names, mut roots) = (HashSet::new(), HashMap::new());
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
        walk(&named.components().collect::<PathBuf>(), &mut roots, &mut found);
    }
    let absolute: Vec<_> = paths.iter().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone())).collect();
    found.job = Key::of_job(absolute.iter().map(|path| path.as_os_str().as_encoded_bytes()));
    if u32::try_from(found.sources.len() + found.failures.len()).is_err() {
        return Err(ScanError::TooMany);
    }
    Ok(found)
}

/// Examines `root` and everything below it. `roots` are the folders opened so far.
fn walk(root: &Path, roots: &mut HashMap<PathBuf, Root>, found: &mut Found) {
    let parent = root.parent().unwrap_or(Path::new(""));
    let folder = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let opened = match roots.get(folder) {
        Some(opened) => Ok(opened.clone()),
        None => Root::open(folder).inspect(|opened| drop(roots.insert(folder.to_owned(), opened.clone()))),
    };
    let opened = match opened {
        Ok(opened) => opened,
        Err(error) => return found.failures.push(unopened(root, &error)),
    };
    let mut walk = WalkDir::new(root).follow_root_links(false).sort_by_file_name().into_iter();
    while let Some(step) = walk.next() {
        let step = match step {
            Ok(step) => step,
            Err(error) => {
                let path = error.path().unwrap_or(root).to_owned();
                let error = error.into_io_error().unwrap_or_else(|| std::io::ErrorKind::Other.into());
                found.failures.push(unopened(&path, &error));
                continue;
            }
        };
        if let Err(failure) = add(step.path(), parent, &opened, step.metadata(), found) {
            found.failures.push(failure);
            if step.file_type().is_dir() {
                walk.skip_current_dir();
            }
        }
    }
}

fn add(
    path: &Path,
    parent: &Path,
    root: &Root,
    metadata: walkdir::Result<Metadata>,
    found: &mut Found,
) -> Result<(), FileFailure> {
    let metadata = metadata.map_err(|error| FileFailure::of(path, Reason::Unreadable, error))?;
    check_kind(path, &metadata)?;
    let mut name = None;
    for part in path.strip_prefix(parent).unwrap_or(path) {
        let joined = RelativePath::join(name.as_ref(), part);
        name = Some(joined.map_err(|error| FileFailure::of(path, Reason::PathRefused, error))?);
    }
    if let Some(name) = name {
        let directory = metadata.is_dir();
        if !directory {
            found.files += 1;
            found.bytes += metadata.len();
        }
        let mut source =
            Source { path: path.to_owned(), name, directory, size: 0, key: Key::default(), root: root.clone() };
        if !directory {
            (source.size, source.key) = (metadata.len(), key(&source, &metadata));
        }
        found.sources.push(source);
    }
    Ok(())
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
    if source.directory { Key::default() } else { Key::of_source(inode(metadata), metadata.len(), modified(metadata)) }
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
fn inode(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

/// On these systems the time of creation distinguishes files.
#[cfg(not(unix))]
fn inode(metadata: &Metadata) -> u64 {
    let created = metadata.created().map(wire_time).unwrap_or_default();
    (created.0 as u64).wrapping_mul(1_000_000_000).wrapping_add(u64::from(created.1))
}
