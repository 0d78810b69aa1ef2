//! Who may read, write and execute what arrives: the sender's mode, less what the receiver's umask takes
//! away.
//!
//! A part is its owner's alone while it is written, so its mode is set when it is whole. That needs the umask
//! itself, which a system applies only to what it creates.

use std::fs::{File, Metadata};
use std::io;

#[cfg(unix)]
use rustix::fs::Mode;

use super::record::PERMISSIONS;

/// Mode of a file whose system has no such bits: what a umask is meant to cut.
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

/// Gives a file that arrived its mode. On a file system that keeps no modes, as FAT, it has what every file
/// there has.
#[cfg(unix)]
pub(super) fn set(file: &File, mode: u16) -> io::Result<()> {
    use rustix::io::Errno;
    let mode = Mode::from_bits_truncate((mode & PERMISSIONS).into()) - umask();
    match rustix::fs::fchmod(file, mode) {
        // The owner of a file may change its mode wherever it has one.
        Err(Errno::PERM | Errno::OPNOTSUPP) => Ok(()),
        set => Ok(set?),
    }
}

#[cfg(not(unix))]
pub(super) fn set(_: &File, _: u16) -> io::Result<()> {
    Ok(())
}

/// The process's umask, asked for once.
#[cfg(unix)]
pub(super) fn umask() -> Mode {
    static UMASK: std::sync::OnceLock<Mode> = std::sync::OnceLock::new();
    *UMASK.get_or_init(|| {
        // A system tells the mask only when another is set. A file that another thread makes in between is
        // its owner's alone.
        let mask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
        rustix::process::umask(mask);
        mask
    })
}
