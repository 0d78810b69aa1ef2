//! Opens parts: new ones, those of an earlier session, and those beside the final name.
//!
//! [`Destination`](super::Destination) calls this for each file. Invariants: a part is locked before it is
//! written, and only its owner can read or write it.

use std::io::{self, Seek, SeekFrom};
use std::time::Instant;

use cap_std::fs::Dir;

use super::Reason;
use super::existing::has_two_names;
use super::flushing::Unflushed;
use super::growth::Growth;
use super::part::{Log, Writing};
use super::part_file::{create, lock_existing, lock_file, options, part_name};
use super::quota::Charge;
use super::refusal::{Refusal, refusal};
use super::tree::{Prefix, Tree};

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
    if folder.symlink_metadata(&part).is_ok_and(|found| has_two_names(&found))
        || file.metadata().map_err(refusal)?.len() < prefix.offset()
    {
        return Err(gone());
    }
    let mut state = folder.open_with(log.state_name(), &options()).map_err(refusal)?.into_std();
    let checkpoint = log.checkpoint(size, prefix.clone());
    // A later checkpoint would cover bytes that are now removed.
    checkpoint.write_alone(&mut state).and_then(|()| file.set_len(prefix.offset())).map_err(refusal)?;
    file.seek(SeekFrom::Start(prefix.offset())).map_err(refusal)?;
    log.file = Some(state);
    let (tree, begun, beginning) = (Tree::new(Some(prefix)), prefix.offset(), Some(prefix.clone()));
    Ok(Writing { tree, begun, beginning, flushed: begun, ..writing(folder, part, file, charge, Some(log)) })
}

/// A part beside its final name, for file systems where nothing can be renamed from the folder of parts.
pub(super) fn loose(directory: &Dir, charge: Charge) -> Result<Writing, Refusal> {
    let random = getrandom::u64().map_err(io::Error::from).map_err(refusal)?;
    let part = format!(".tidewire-part-{random:016x}");
    let file = create(directory, &part).map_err(refusal)?;
    let folder = directory.try_clone().map_err(refusal)?;
    Ok(writing(folder, part, file, charge, None))
}

/// Lets a new part begin with `prefix`, which is copied from another file.
pub(super) fn grow(mut writing: Writing, prefix: &Prefix, from: std::fs::File) -> Result<Writing, Refusal> {
    writing.file.seek(SeekFrom::Start(prefix.offset())).map_err(refusal)?;
    let (tree, growth) = (Tree::new(Some(prefix)), Some(Growth::new(from)));
    Ok(Writing { tree, beginning: Some(prefix.clone()), growth, ..writing })
}

fn writing(folder: Dir, part: String, file: std::fs::File, charge: Charge, log: Option<Log>) -> Writing {
    let unflushed = Unflushed::new(Instant::now());
    Writing {
        folder,
        part,
        file,
        tree: Tree::new(None),
        flushed: 0,
        unflushed,
        charge,
        begun: 0,
        beginning: None,
        growth: None,
        log,
    }
}
