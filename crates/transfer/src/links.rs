//! Makes the symbolic links that a sender keeps (`send --links keep`).
//!
//! [`Session`](super::session::Session) calls it for a checked path and target, and only if the receiver
//! wants links. Invariant: a link is made in a folder that was opened without following one, and replaces
//! only what `--existing` lets it replace.

#[cfg(unix)]
use std::ffi::OsStr;
use std::ffi::OsString;

use super::durable::Warning;
use super::existing::Claimed;
use super::refusal::Refusal;
use super::standing::Standing;
use super::{Destination, RelativePath};

/// Makes a link at `path` to `target`, unless there is such a link. Returns the name that it has, and what
/// could not be done.
#[cfg(unix)]
pub(super) fn make(
    destination: &Destination,
    path: &RelativePath,
    target: &[u8],
    claimed: &Claimed,
    standing: &mut Standing,
) -> Result<(OsString, Warning), Refusal> {
    use super::durable::flush_folder;
    use super::existing::{Existing, Place, first_free};
    use super::refusal::refusal;

    let target: &OsStr = std::os::unix::ffi::OsStrExt::from_bytes(target);
    let (directory, name) = destination.make_way(path)?;
    standing.check(&directory, name, claimed.delivery.path)?;
    let is_there = |name: &OsStr| directory.read_link_contents(name).is_ok_and(|found| found.as_os_str() == target);
    if is_there(name) {
        return Ok((name.to_owned(), None));
    }
    // Returns false if something else has the name.
    let take = |name: &OsStr| match directory.symlink_contents(target, name) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(is_there(name)),
        made => made.map(|()| true),
    };
    let existing = destination.existing();
    let mut charge = destination.charge_one()?;
    let name = match existing.judge(&directory, name, claimed)? {
        Place::Over => {
            replace(&directory, target, name)?;
            name.to_owned()
        }
        Place::Free if take(name).map_err(refusal)? => name.to_owned(),
        Place::Free if existing == Existing::Rename => first_free(name, take)?,
        Place::Free => {
            return Err((super::Reason::Exists, "a file of this name has come there meanwhile".into()));
        }
    };
    charge.settle_all();
    if let Ok(there) = directory.symlink_metadata(&name) {
        standing.insert(&there, claimed.delivery.path);
    }
    let folder = directory.try_clone().map_err(refusal)?.into_std_file();
    Ok((name, flush_folder(&directory, &folder)?))
}

/// Puts a link in the place of a file or of another link.
#[cfg(unix)]
fn replace(directory: &cap_std::fs::Dir, target: &OsStr, name: &OsStr) -> Result<(), Refusal> {
    use super::refusal::refusal;
    let random = getrandom::u64().map_err(std::io::Error::from).map_err(refusal)?;
    let made = format!(".tidewire-part-{random:016x}");
    directory.symlink_contents(target, &made).map_err(refusal)?;
    directory.rename(&made, directory, name).map_err(|error| {
        let _ = directory.remove_file(&made);
        refusal(error)
    })
}

/// Windows distinguishes links to folders, and the target may come later.
#[cfg(not(unix))]
pub(super) fn make(
    _: &Destination,
    _: &RelativePath,
    _: &[u8],
    _: &Claimed,
    _: &mut Standing,
) -> Result<(OsString, Warning), Refusal> {
    Err((super::Reason::NotAFile, "this system makes no symbolic links".into()))
}
