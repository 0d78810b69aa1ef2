//! Permissions of received files: the sender's mode without the bits that the receiver's umask removes.
//!
//! Only its owner can open a part while it is written, so the mode is set when the file is complete. That
//! needs the umask, which a system applies only to new files.

use std::fs::{File, Metadata};

#[cfg(unix)]
use rustix::fs::Mode;

use super::durable::{Warning, optional};
use super::record::PERMISSIONS;
use super::refusal::Refusal;

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

/// Gives a received file its mode. A file system without modes, such as FAT, has one mode for all files; a
/// file system that refuses the call leaves the file the 600 of a part. Then the warning names the mode.
#[cfg(unix)]
pub(super) fn set(file: &File, mode: u16) -> Result<Warning, Refusal> {
    let wanted = Mode::from_bits_truncate((mode & PERMISSIONS).into()) - umask();
    let done = rustix::fs::fchmod(file, wanted).map_err(Into::into);
    optional(done, |error| {
        let wanted = wanted.bits();
        match file.metadata().map(|metadata| u32::from(of(&metadata))) {
            Ok(now) if now == wanted => None,
            Ok(now) => Some(format!("its mode is {now:03o} in place of {wanted:03o}: {error}")),
            Err(_) => Some(format!("its mode {wanted:03o} could not be set: {error}")),
        }
    })
}

#[cfg(not(unix))]
pub(super) fn set(_: &File, _: u16) -> Result<Warning, Refusal> {
    Ok(None)
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn issue_40_a_mode_that_cannot_be_set_is_a_warning_that_names_the_mode_that_is() {
        // The kernel lets nobody change the mode of this file.
        let file = File::open("/proc/self/status").unwrap();
        let now = of(&file.metadata().unwrap());
        let warning = set(&file, 0o600).unwrap().unwrap();
        assert!(warning.starts_with(&format!("its mode is {now:03o} in place of 600: ")), "{warning}");
        assert_eq!(set(&file, now).unwrap(), None, "nothing to tell, because it has this mode");
    }
}
