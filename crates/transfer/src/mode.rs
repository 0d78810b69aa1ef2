//! Permissions of received files: the sender's mode without the bits that the receiver's umask removes.
//!
//! Only its owner can open a part while it is written, so the mode is set when the file is complete. That
//! needs the umask, which a system applies only to new files.

use std::fs::{File, Metadata};
use std::io;

#[cfg(unix)]
use rustix::fs::Mode;

use super::record::PERMISSIONS;

/// Mode of a file if its system has no such bits. The umask reduces it.
#[cfg(not(unix))]
const ANY: u16 = 0o666;

/// The mode of a file or folder, as it is carried.
#[cfg(unix)]
pub(super) fn of(metadata: &Metadata) -> u16 {
    std::os::unix::fs::MetadataExt::mode(metadata) as u16 & PERMISSIONS
}

#[cfg(not(unix))]
pub(super) fn of(_: &Metadata) -> u16 {
    ANY & PERMISSIONS
}

/// Gives a received file its mode. On a file system without modes, such as FAT, it has the mode of all files
/// there.
#[cfg(unix)]
pub(super) fn set(file: &File, mode: u16) -> io::Result<()> {
    use rustix::io::Errno;
    let mode = Mode::from_bits_truncate((mode & PERMISSIONS).into()) - umask();
    match rustix::fs::fchmod(file, mode) {
        // The owner of a file may change its mode wherever there are modes.
        Err(Errno::PERM | Errno::OPNOTSUPP) => Ok(()),
        set => Ok(set?),
    }
}

#[cfg(not(unix))]
pub(super) fn set(_: &File, _: u16) -> io::Result<()> {
    Ok(())
}

/// The umask of the process, read once.
#[cfg(unix)]
pub(super) fn umask() -> Mode {
    static UMASK: std::sync::OnceLock<Mode> = std::sync::OnceLock::new();
    *UMASK.get_or_init(|| {
        // A system returns the umask only when another one is set. A file that another thread makes in
        // between is private to its owner.
        let mask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
        rustix::process::umask(mask);
        mask
    })
}
