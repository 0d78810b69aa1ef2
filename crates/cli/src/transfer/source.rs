//! What a sender finds: the files and directories below the paths it was given, in an order that depends only on their
//! names. Runs once, before anything is sent, so that the total is known. Links and devices are named as failures here
//! and never followed.

use std::collections::HashSet;
use std::fmt;
use std::fs::Metadata;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use super::path::{RelativePath, printable};
use super::{FileFailure, Key, Reason};

/// One file or directory to send.
#[derive(Clone, Debug)]
pub struct Source {
    /// Where it is here.
    pub path: PathBuf,
    /// What it is called there.
    pub name: RelativePath,
    /// Whether it is a directory.
    pub directory: bool,
}

/// All that is to be sent, and what cannot be.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// In sending order: a directory before what is in it.
    pub sources: Vec<Source>,
    /// Files among them.
    pub files: u32,
    /// Their bytes when looked at.
    pub bytes: u64,
    /// What cannot be sent.
    pub failures: Vec<FileFailure>,
    /// The same for the same paths.
    pub job: Key,
}

/// Why a set of paths cannot be sent together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScanError {
    /// Two of them end in the same name.
    SameName(String),
    /// One of them has no name of its own, as `/`.
    NoName(PathBuf),
    /// More than 2^32 entries.
    TooMany,
}

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameName(name) => write!(f, "two paths would both arrive as `{name}`: send them one after the other"),
            Self::NoName(path) => write!(f, "`{}` has no name to arrive under: name a folder in it", path.display()),
            Self::TooMany => write!(f, "more than 4294967295 files and folders: send them in parts"),
        }
    }
}

impl std::error::Error for ScanError {}

/// Looks at `paths` and all below them.
///
/// # Errors
/// When two paths, or one, have no name of their own to arrive under. Files that cannot be sent are not errors of the
/// scan, they are in [`Found::failures`].
pub fn scan(paths: &[PathBuf]) -> Result<Found, ScanError> {
    let mut found = Found::default();
    let mut names = HashSet::new();
    for path in paths {
        // `.` and `..` have a name only once resolved.
        let named = match path.file_name() {
            Some(_) => path.clone(),
            None => path.canonicalize().unwrap_or_else(|_| path.clone()),
        };
        let base = named.file_name().ok_or_else(|| ScanError::NoName(path.clone()))?;
        if !names.insert(base.to_owned()) {
            return Err(ScanError::SameName(printable(&base.to_string_lossy())));
        }
        walk(&named, &mut found);
    }
    let absolute: Vec<_> = paths.iter().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone())).collect();
    found.job = Key::of_job(absolute.iter().map(|path| path.as_os_str().as_encoded_bytes()));
    if u32::try_from(found.sources.len() + found.failures.len()).is_err() {
        return Err(ScanError::TooMany);
    }
    Ok(found)
}

fn walk(root: &Path, found: &mut Found) {
    let parent = root.parent().unwrap_or(Path::new(""));
    let mut walk = WalkDir::new(root).follow_root_links(false).sort_by_file_name().into_iter();
    while let Some(step) = walk.next() {
        let step = match step {
            Ok(step) => step,
            Err(error) => {
                let path = error.path().unwrap_or(root).to_owned();
                let gone = error.io_error().is_some_and(|error| error.kind() == std::io::ErrorKind::NotFound);
                let reason = if gone { Reason::Vanished } else { Reason::Unreadable };
                let detail = error.io_error().map(ToString::to_string).unwrap_or_default();
                found.failures.push(FileFailure::new(show(&path), reason, detail));
                continue;
            }
        };
        if let Err(failure) = add(step.path(), parent, step.metadata(), found) {
            found.failures.push(failure);
            if step.file_type().is_dir() {
                walk.skip_current_dir();
            }
        }
    }
}

fn add(path: &Path, parent: &Path, metadata: walkdir::Result<Metadata>, found: &mut Found) -> Result<(), FileFailure> {
    let metadata = metadata.map_err(|error| FileFailure::new(show(path), Reason::Unreadable, error))?;
    check_kind(path, &metadata)?;
    let mut name = None;
    for part in path.strip_prefix(parent).unwrap_or(path) {
        let joined = RelativePath::join(name.as_ref(), part);
        name = Some(joined.map_err(|error| FileFailure::new(show(path), Reason::PathRefused, error))?);
    }
    if let Some(name) = name {
        let directory = metadata.is_dir();
        if !directory {
            found.files += 1;
            found.bytes += metadata.len();
        }
        found.sources.push(Source { path: path.to_owned(), name, directory });
    }
    Ok(())
}

/// Refuses what is neither a regular file nor a directory.
pub(super) fn check_kind(path: &Path, metadata: &Metadata) -> Result<(), FileFailure> {
    if metadata.is_symlink() {
        let detail = "it is a symbolic link; send what it points to";
        return Err(FileFailure::new(show(path), Reason::NotAFile, detail));
    }
    if !metadata.is_file() && !metadata.is_dir() {
        return Err(FileFailure::new(show(path), Reason::NotAFile, "it is a device, socket or pipe"));
    }
    Ok(())
}

/// A local path, safe to print.
pub(super) fn show(path: &Path) -> String {
    printable(&path.to_string_lossy())
}
