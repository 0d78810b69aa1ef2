//! Makes a file and its name durable, by whichever flush the file system has.
//!
//! [`part`](super::part) calls it. Some file systems cannot flush a folder (vboxsf, old versions of cifs), a
//! folder of mode 0300 cannot be opened for reading, and a sandbox may refuse a call. The whole file system
//! is flushed then. Invariant: no warning is returned only if a flush succeeded, and a flush that says that
//! the disk has failed is a refusal.

use std::fs::File;
use std::io;

use cap_std::fs::Dir;

use super::refusal::{Refusal, is_damage, refusal};

/// What a user must know about a file that is complete; `None` if there is nothing.
pub(super) type Warning = Option<String>;

/// Flushes bytes, mode and time of a file.
pub(super) fn flush_file(file: &File) -> Result<Warning, Refusal> {
    flush(file.sync_all(), || flush_file_system(file), "it was not flushed, so a power failure may lose it")
}

/// Flushes the bytes of a file. Returns whether they are on the disk.
pub(super) fn flush_bytes(file: &File) -> Result<bool, Refusal> {
    flush(file.sync_data(), || flush_file_system(file), "").map(|warning| warning.is_none())
}

/// Flushes `folder`, so that the name of `file` in it is durable.
pub(super) fn flush_folder(folder: &Dir, file: &File) -> Result<Warning, Refusal> {
    flush(sync(folder), || flush_file_system(file), "its folder was not flushed, so a power failure may undo its name")
}

/// The result of an operation that a complete file can do without: `told` of its error, unless that says that
/// the disk has failed.
pub(super) fn optional(done: io::Result<()>, told: impl FnOnce(&io::Error) -> Warning) -> Result<Warning, Refusal> {
    match done {
        Ok(()) => Ok(None),
        Err(error) if is_damage(&error) => Err(refusal(error)),
        Err(error) => Ok(told(&error)),
    }
}

/// Ends a flush: a `first` that the file system lacks is replaced by `other`, and if it lacks that too, by a
/// warning.
fn flush(first: io::Result<()>, other: impl FnOnce() -> io::Result<()>, words: &str) -> Result<Warning, Refusal> {
    let Err(error) = first else { return Ok(None) };
    if is_damage(&error) {
        return Err(refusal(error));
    }
    optional(other(), |_| Some(format!("{words}: {error}")))
}

/// Windows has no such call and needs none, because its metadata is journalled.
#[cfg(unix)]
fn sync(folder: &Dir) -> io::Result<()> {
    folder.open(".")?.sync_all()
}

#[cfg(not(unix))]
fn sync(_: &Dir) -> io::Result<()> {
    Ok(())
}

#[cfg(target_os = "linux")]
fn flush_file_system(file: &File) -> io::Result<()> {
    Ok(rustix::io::retry_on_intr(|| rustix::fs::syncfs(file))?)
}

#[cfg(not(target_os = "linux"))]
fn flush_file_system(_: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::cell::Cell;

    use cap_std::ambient_authority;
    use rustix::io::Errno;

    use super::super::Reason;
    use super::*;

    /// A flush whose calls end like this, and whether the second was made.
    fn of(first: Result<(), Errno>, other: Result<(), Errno>) -> (Result<Warning, Reason>, bool) {
        let called = Cell::new(false);
        let other = || {
            called.set(true);
            Ok(other?)
        };
        let ended = flush(first.map_err(io::Error::from), other, "words");
        (ended.map_err(|(reason, _)| reason), called.get())
    }

    #[test]
    fn a_flush_that_a_file_system_lacks_is_replaced_and_one_that_fails_is_not() {
        assert_eq!(of(Ok(()), Err(Errno::IO)), (Ok(None), false));
        for lacking in [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOSYS, Errno::ACCESS, Errno::PERM, Errno::BADF] {
            assert_eq!(of(Err(lacking), Ok(())), (Ok(None), true), "{lacking:?}");
            let warning = Some(format!("words: {}", io::Error::from(lacking)));
            assert_eq!(of(Err(lacking), Err(Errno::NOSYS)), (Ok(warning), true), "{lacking:?}");
            assert_eq!(of(Err(lacking), Err(Errno::IO)), (Err(Reason::Unwritable), true), "{lacking:?}");
        }
        assert_eq!(of(Err(Errno::IO), Ok(())), (Err(Reason::Unwritable), false));
        assert_eq!(of(Err(Errno::NOSPC), Ok(())), (Err(Reason::NoSpace), false));
    }

    #[test]
    fn issue_40_a_folder_that_cannot_be_flushed_costs_no_file() {
        let file = tempfile::tempfile().unwrap();
        // `fsync` of a folder of /proc answers EINVAL, as vboxsf does.
        let folder = Dir::open_ambient_dir("/proc", ambient_authority()).unwrap();
        assert_eq!(sync(&folder).unwrap_err().raw_os_error(), Some(Errno::INVAL.raw_os_error()));
        assert_eq!(flush_folder(&folder, &file).unwrap(), None);
        assert_eq!(flush_file(&file).unwrap(), None);
        assert!(flush_bytes(&file).unwrap());
    }
}
