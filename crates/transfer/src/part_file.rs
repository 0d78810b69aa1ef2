//! The files of parts: their names, and how they are created, opened and locked.
//!
//! [`opening`](super::opening) and [`part`](super::part) call it. Invariant: only the owner can read or write
//! such a file, and none is opened through a link.

use std::fs::TryLockError;
use std::io;

use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt};
use cap_std::fs::{Dir, OpenOptions};

use super::refusal::{Refusal, refusal};
use super::{Key, Reason};

/// Creates a new file for writing that only its owner can open. It must not exist.
pub(super) fn create(folder: &Dir, name: &str) -> io::Result<std::fs::File> {
    let mut options = options();
    options.create_new(true);
    #[cfg(unix)]
    cap_std::fs::OpenOptionsExt::mode(&mut options, 0o600);
    Ok(folder.open_with(name, &options)?.into_std())
}

/// For writing, and never through a link.
pub(super) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).follow(FollowSymlinks::No);
    options
}

pub(super) fn part_name(stem: Key) -> String {
    format!("{stem}.part")
}

pub(super) fn state_name(stem: Key) -> String {
    format!("{stem}.state")
}

/// Opens and locks an existing part; `None` if it does not exist.
pub(super) fn lock_existing(folder: &Dir, name: &str) -> Result<Option<std::fs::File>, Refusal> {
    match folder.open_with(name, &options()) {
        Ok(file) => lock_file(file.into_std()).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(refusal(error)),
    }
}

/// Locks a part, so that no other process writes it.
pub(super) fn lock_file(file: std::fs::File) -> Result<std::fs::File, Refusal> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            Err((Reason::Unwritable, "another process receives the same file; wait for it, or stop it".into()))
        }
        // On a file system without locks only one receiver may run; otherwise the hashes of parts that two of
        // them write fail.
        _ => Ok(file),
    }
}
