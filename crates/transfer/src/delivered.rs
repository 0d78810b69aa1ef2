//! Notes on a file who delivered it: the record by which `receive --existing update` replaces only what
//! the same sender put there before.
//!
//! The note is an extended attribute of the file, so it comes and goes with the file, and a destination
//! has no list that grows. [`part`](super::part) writes it before the rename, so a file that has its final
//! name has its note. Invariant: a note holds for one peer, one path, one size and one modification time.
//! Whoever writes to the file makes it void.

use std::ffi::OsStr;
use std::fs::File;
use std::io;

use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt};
use cap_std::fs::{Dir, OpenOptions};

use super::Key;

/// Name of the attribute. Only the owner of a file, and whoever may write to it, can set it.
#[cfg(any(target_os = "linux", target_vendor = "apple"))]
const NAME: &str = "user.tidewire";

/// Who delivered a file, and as what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery {
    pub(super) peer: Key,
    pub(super) path: Key,
}

/// Whether a file is this delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Yes,
    No,
    /// Its file system keeps no such notes.
    Unknown,
}

impl Delivery {
    /// Notes on `file`, which has its final size and time, that it is this delivery. A file system that
    /// keeps no notes costs no file: a later delivery is then refused.
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    pub(super) fn note(&self, file: &File) {
        if let Ok(key) = self.key(file) {
            let note = [self.peer.0, key.0].concat();
            let _ = rustix::fs::fsetxattr(file, NAME, &note, rustix::fs::XattrFlags::empty());
        }
    }

    /// Whether `file` is this delivery.
    pub(super) fn find(&self, file: &File) -> Found {
        match Self::noted(file, self.path) {
            Ok(Some(noted)) if noted.peer == self.peer => Found::Yes,
            Ok(_) => Found::No,
            Err(()) => Found::Unknown,
        }
    }

    /// The delivery of `path` that `file` is, whoever delivered it, or an error if its file system keeps
    /// no notes.
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    pub(super) fn noted(file: &File, path: Key) -> Result<Option<Self>, ()> {
        use rustix::io::Errno;
        // One byte more than a note, so that a longer value is not taken for one.
        let mut note = [0; 2 * Key::LEN + 1];
        let length = match rustix::fs::fgetxattr(file, NAME, &mut note) {
            Ok(length) => length,
            Err(Errno::NOTSUP | Errno::NOSYS) => return Err(()),
            Err(_) => return Ok(None),
        };
        let Some((peer, key)) = note[..length].split_first_chunk() else { return Ok(None) };
        let noted = Self { peer: Key(*peer), path };
        Ok(noted.key(file).is_ok_and(|now| now.0 == key).then_some(noted))
    }

    #[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
    pub(super) fn note(&self, _: &File) {}

    #[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
    pub(super) fn noted(_: &File, _: Key) -> Result<Option<Self>, ()> {
        Err(())
    }

    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    fn key(&self, file: &File) -> io::Result<Key> {
        use std::os::unix::fs::MetadataExt;
        let now = file.metadata()?;
        Ok(Key::of_delivery(self.peer, self.path, now.size(), (now.mtime(), now.mtime_nsec())))
    }
}

/// Opens a file that stands, for reading. No link is followed.
pub(super) fn open_standing(directory: &Dir, name: &OsStr) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).follow(FollowSymlinks::No);
    // A named pipe that somebody put there meanwhile must not block.
    #[cfg(unix)]
    cap_std::fs::OpenOptionsExt::custom_flags(&mut options, rustix::fs::OFlags::NONBLOCK.bits() as i32);
    let file = directory.open_with(name, &options)?.into_std();
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(file)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::Write;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_note_holds_for_one_peer_and_path_until_the_file_is_written_to() {
        let delivery = Delivery { peer: Key([1; 16]), path: Key([2; 16]) };
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"content").unwrap();
        assert_ne!(delivery.find(file.as_file()), Found::Yes);
        delivery.note(file.as_file());
        assert_eq!(delivery.find(file.as_file()), Found::Yes);
        for other in [Delivery { peer: Key([3; 16]), ..delivery }, Delivery { path: Key([3; 16]), ..delivery }] {
            assert_eq!(other.find(file.as_file()), Found::No);
        }
        file.as_file().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(delivery.find(file.as_file()), Found::No);
        delivery.note(file.as_file());
        file.as_file().set_len(3).unwrap();
        file.as_file().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(delivery.find(file.as_file()), Found::No);
        // /proc keeps no attributes of users.
        assert_eq!(delivery.find(&File::open("/proc/self/status").unwrap()), Found::Unknown);
    }
}
