//! Opens parts: new ones, those of an earlier session, and those beside the final name.
//!
//! [`Destination`](super::Destination) calls this for each file. Invariants: a part is locked before it is
//! written, and only its owner can read or write it.

use std::fs::TryLockError;
use std::io::{self, Seek, SeekFrom};
use std::time::Instant;

use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt};
use cap_std::fs::{Dir, OpenOptions};

use super::destination::{Refusal, refusal};
use super::flushing::Unflushed;
use super::part::{Log, Writing};
use super::quota::Charge;
use super::tree::{Prefix, Tree};
use super::{Key, Reason};

/// A new part. An old one is removed.
pub(super) fn begin(folder: Dir, log: Log, charge: Charge) -> Result<Writing, Refusal> {
    let part = part_name(log.stem);
    if lock_existing(&folder, &part)?.is_some() {
        folder.remove_file(&part).map_err(refusal)?;
    }
    // A state without its part.
    let _ = folder.remove_file(log.state_name());
    let file = lock_file(create(&folder, &part).map_err(refusal)?)?;
    Ok(writing(folder, part, file, charge, Some(log)))
}

/// A part of a file of `size` bytes, from the end of `prefix` on. Later bytes are removed.
pub(super) fn resume(
    folder: Dir,
    mut log: Log,
    size: u64,
    prefix: &Prefix,
    charge: Charge,
) -> Result<Writing, Refusal> {
    let part = part_name(log.stem);
    let gone = || (Reason::Unwritable, "what was there of it is gone; send it again".into());
    let mut file = lock_existing(&folder, &part)?.ok_or_else(gone)?;
    if file.metadata().map_err(refusal)?.len() < prefix.offset() {
        return Err(gone());
    }
    let mut state = folder.open_with(log.state_name(), &options()).map_err(refusal)?.into_std();
    let checkpoint = log.checkpoint(size, prefix.clone());
    // A later checkpoint would cover bytes that are now removed.
    checkpoint.write_alone(&mut state).and_then(|()| file.set_len(prefix.offset())).map_err(refusal)?;
    file.seek(SeekFrom::Start(prefix.offset())).map_err(refusal)?;
    log.file = Some(state);
    let (tree, begun) = (Tree::new(Some(prefix)), prefix.offset());
    Ok(Writing { tree, begun, flushed: begun, ..writing(folder, part, file, charge, Some(log)) })
}

/// A part beside its final name, for file systems where nothing can be renamed from the folder of parts.
pub(super) fn loose(directory: &Dir, charge: Charge) -> Result<Writing, Refusal> {
    let random = getrandom::u64().map_err(io::Error::from).map_err(refusal)?;
    let part = format!(".tidewire-part-{random:016x}");
    let file = create(directory, &part).map_err(refusal)?;
    let folder = directory.try_clone().map_err(refusal)?;
    Ok(writing(folder, part, file, charge, None))
}

fn writing(folder: Dir, part: String, file: std::fs::File, charge: Charge, log: Option<Log>) -> Writing {
    let unflushed = Unflushed::new(Instant::now());
    Writing { folder, part, file, tree: Tree::new(None), flushed: 0, unflushed, charge, begun: 0, log }
}

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

fn lock_file(file: std::fs::File) -> Result<std::fs::File, Refusal> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            Err((Reason::Unwritable, "another process receives the same file; wait for it, or stop it".into()))
        }
        // On a file system without locks only one receiver may run; otherwise the hashes of parts that two of
        // them write fail.
        _ => Ok(file),
    }
}
