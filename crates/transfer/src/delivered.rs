//! A note at each file that says who delivered it. `receive --existing update` replaces only what the same
//! sender put there before.
//!
//! The note is an extended attribute of the file, so it comes and goes with the file, and a destination
//! has no list that grows. [`part`](super::part) writes it before the rename, so a file that has its final
//! name has its note. Invariant: a note holds for one peer, one path, one size and one modification time.
//! A write to the file makes the note void.

use std::ffi::OsStr;
use std::fs::File;
use std::io;

use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt};
use cap_std::fs::{Dir, OpenOptions};

use super::Key;
use super::tree::Prefix;

/// Name of the attribute. Only a program that may write to the file can set it.
#[cfg(any(target_os = "linux", target_vendor = "apple"))]
const NAME: &str = "user.tidewire";
/// Longest note in bytes: peer, key, number of groups, and 42 chaining values.
#[cfg(any(target_os = "linux", target_vendor = "apple"))]
const MOST: usize = 2 * Key::LEN + 8 + 42 * 32;

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

/// What is noted on a file.
#[derive(Clone, Debug)]
pub(super) struct Note {
    pub(super) delivery: Delivery,
    /// The complete groups of the file, if it has one.
    pub(super) prefix: Option<Prefix>,
}

impl Delivery {
    /// Whether `file` is this delivery.
    pub(super) fn find(&self, file: &File) -> Found {
        match Note::read(file, self.path) {
            Ok(Some(note)) if note.delivery.peer == self.peer => Found::Yes,
            Ok(_) => Found::No,
            Err(()) => Found::Unknown,
        }
    }
}

impl Note {
    /// Writes the note on `file`, which has its final size and time. A file system that keeps no notes
    /// costs no file: a later delivery is then refused.
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    pub(super) fn write(&self, file: &File) {
        let mut rest = Vec::new();
        if let Some(prefix) = &self.prefix {
            rest.extend_from_slice(&prefix.groups().to_be_bytes());
            rest.extend(prefix.stack().iter().flatten());
        }
        if let Ok(key) = self.delivery.key(file, &rest) {
            let note = [&self.delivery.peer.0[..], &key.0, &rest].concat();
            let _ = rustix::fs::fsetxattr(file, NAME, &note, rustix::fs::XattrFlags::empty());
        }
    }

    /// The note on `file` that it was delivered as `path`, or an error if its file system keeps no notes.
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    pub(super) fn read(file: &File, path: Key) -> Result<Option<Self>, ()> {
        use rustix::io::Errno;
        let mut bytes = [0; MOST];
        match rustix::fs::fgetxattr(file, NAME, &mut bytes) {
            Ok(length) => Ok(Self::parse(&bytes[..length], file, path)),
            Err(Errno::NOTSUP | Errno::NOSYS) => Err(()),
            Err(_) => Ok(None),
        }
    }

    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    fn parse(note: &[u8], file: &File, path: Key) -> Option<Self> {
        let (peer, note) = note.split_first_chunk()?;
        let (key, rest) = note.split_first_chunk()?;
        let delivery = Delivery { peer: Key(*peer), path };
        if delivery.key(file, rest).ok()? != Key(*key) {
            return None;
        }
        let prefix = rest.split_first_chunk().and_then(|(groups, stack)| {
            let (stack, end) = stack.as_chunks();
            Prefix::new(u64::from_be_bytes(*groups), stack.to_vec()).filter(|_| end.is_empty())
        });
        Some(Self { delivery, prefix })
    }

    #[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
    pub(super) fn write(&self, _: &File) {}

    #[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
    pub(super) fn read(_: &File, _: Key) -> Result<Option<Self>, ()> {
        Err(())
    }
}

#[cfg(any(target_os = "linux", target_vendor = "apple"))]
impl Delivery {
    /// The key of this delivery, as `file` is now.
    fn key(&self, file: &File, rest: &[u8]) -> io::Result<Key> {
        use std::os::unix::fs::MetadataExt;
        let now = file.metadata()?;
        Ok(Key::of_delivery(self.peer, self.path, (now.size(), now.mtime(), now.mtime_nsec()), rest))
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
        let prefix = Prefix::new(3, vec![[4; 32], [5; 32]]);
        let note = Note { delivery, prefix: prefix.clone() };
        note.write(file.as_file());
        assert_eq!(delivery.find(file.as_file()), Found::Yes);
        assert_eq!(Note::read(file.as_file(), delivery.path).unwrap().unwrap().prefix, prefix);
        for other in [Delivery { peer: Key([3; 16]), ..delivery }, Delivery { path: Key([3; 16]), ..delivery }] {
            assert_eq!(other.find(file.as_file()), Found::No);
        }
        file.as_file().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(delivery.find(file.as_file()), Found::No);
        note.write(file.as_file());
        file.as_file().set_len(3).unwrap();
        file.as_file().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(delivery.find(file.as_file()), Found::No);
        // The longest, and one of a file without a group.
        for prefix in [None, Prefix::new((1 << 42) - 1, vec![[7; 32]; 42])] {
            Note { delivery, prefix: prefix.clone() }.write(file.as_file());
            assert_eq!(Note::read(file.as_file(), delivery.path).unwrap().unwrap().prefix, prefix);
        }
        // /proc keeps no attributes of users.
        assert_eq!(delivery.find(&File::open("/proc/self/status").unwrap()), Found::Unknown);
    }
}
