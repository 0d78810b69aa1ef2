//! The folder that a receiver writes into, and nothing outside it: each directory on the way is opened by its handle and
//! never through a link, so neither a hostile path nor a link planted meanwhile leads elsewhere.
//!
//! A file is written under a part name beside its final one and renamed when it is whole ([`Part::commit`]); a part that
//! is dropped before that removes itself. The receiver calls this, off the asynchronous threads.

use std::fs::FileTimes;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use cap_fs_ext::DirExt;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};

use super::record::cut;
use super::{Entry, Reason, RelativePath};

/// Longest name a file system takes (NAME_MAX), and what a part name adds: a dot, `.tidewire-part-` and 16 digits.
const MAX_NAME: usize = 255;
const PART_ADDS: usize = 1 + 15 + 16;

/// Why the destination refused something, with what the operating system said.
pub(super) type Refusal = (Reason, String);

/// An open folder to receive into.
#[derive(Debug)]
pub struct Destination {
    root: Dir,
}

impl Destination {
    /// Opens the folder `path`, which must exist.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { root: Dir::open_ambient_dir(path, ambient_authority())? })
    }

    /// Makes the directory `path` and those above it, where missing.
    pub(super) fn create_directory(&self, path: &RelativePath) -> Result<(), Refusal> {
        let (parents, name) = path.split();
        self.descend(parents.chain([name])).map(|_| ())
    }

    /// Begins the file of `entry`.
    pub(super) fn create_file(&self, path: &RelativePath, entry: &Entry) -> Result<Part, Refusal> {
        let (parents, name) = path.split();
        let directory = self.descend(parents)?;
        let random = getrandom::u64().map_err(io::Error::from).map_err(refusal)?;
        let part = format!(".{}.tidewire-part-{random:016x}", cut(name, MAX_NAME - PART_ADDS));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        cap_std::fs::OpenOptionsExt::mode(&mut options, if entry.executable { 0o777 } else { 0o666 });
        let file = directory.open_with(&part, &options).map_err(refusal)?.into_std();
        let hasher = Box::new(blake3::Hasher::new());
        Ok(Part { directory, part, name: name.to_owned(), file, hasher, written: 0, whole: false })
    }

    /// Opens the directory named by `names`, making those missing.
    fn descend<'a>(&self, names: impl Iterator<Item = &'a str>) -> Result<Dir, Refusal> {
        let mut directory = self.root.try_clone().map_err(refusal)?;
        for name in names {
            directory = match directory.open_dir_nofollow(name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    match directory.create_dir(name) {
                        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(refusal(error)),
                        _ => {}
                    }
                    directory.open_dir_nofollow(name)
                }
                opened => opened,
            }
            .map_err(|error| blocked(&directory, name, error))?;
        }
        Ok(directory)
    }
}

/// Why the directory `name` could not be opened.
fn blocked(parent: &Dir, name: &str, error: io::Error) -> Refusal {
    match parent.symlink_metadata(name) {
        Ok(found) if found.is_symlink() => {
            (Reason::PathRefused, format!("`{}` is a symbolic link at the destination", name.escape_debug()))
        }
        Ok(found) if !found.is_dir() => {
            (Reason::Unwritable, format!("`{}` is in the way: it is not a directory", name.escape_debug()))
        }
        _ => refusal(error),
    }
}

fn refusal(error: io::Error) -> Refusal {
    let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    (if full { Reason::NoSpace } else { Reason::Unwritable }, error.to_string())
}

/// A file on its way in. Dropped before it is whole, it removes what it wrote.
pub(super) struct Part {
    directory: Dir,
    part: String,
    name: String,
    file: std::fs::File,
    hasher: Box<blake3::Hasher>,
    written: u64,
    whole: bool,
}

impl Part {
    /// Writes and hashes the next bytes; more than were announced are refused.
    pub(super) fn write(&mut self, bytes: &[u8], announced: u64) -> Result<(), Refusal> {
        let after = self.written.saturating_add(bytes.len() as u64);
        if after > announced {
            return Err((Reason::Mismatch, format!("more bytes came than the {announced} announced")));
        }
        self.file.write_all(bytes).map_err(refusal)?;
        self.hasher.update(bytes);
        self.written = after;
        Ok(())
    }

    /// Verifies size and hash, flushes, and puts the file under its final name.
    pub(super) fn commit(mut self, entry: &Entry, hash: [u8; 32]) -> Result<u64, Refusal> {
        if self.written != entry.size {
            let detail = format!("{} bytes came of the {} announced", self.written, entry.size);
            return Err((Reason::Mismatch, detail));
        }
        // `blake3::Hash` compares in constant time.
        if self.hasher.finalize() != blake3::Hash::from_bytes(hash) {
            return Err((Reason::Mismatch, "its hash is not the sender's; send it again".into()));
        }
        if let Some(modified) = system_time(entry.modified) {
            self.file.set_times(FileTimes::new().set_modified(modified)).map_err(refusal)?;
        }
        self.file.sync_all().map_err(refusal)?;
        self.directory.rename(&self.part, &self.directory, &self.name).map_err(refusal)?;
        self.whole = true;
        flush_directory(&self.directory).map_err(refusal)?;
        Ok(self.written)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.whole {
            // Best effort: the file system may be gone or read-only by now, and the name cannot be taken for a whole file.
            let _ = self.directory.remove_file(&self.part);
        }
    }
}

/// Makes the rename last. Windows has no such call and needs none: its metadata is journalled.
#[cfg(unix)]
fn flush_directory(directory: &Dir) -> io::Result<()> {
    directory.open(".")?.sync_all()
}

#[cfg(not(unix))]
fn flush_directory(_: &Dir) -> io::Result<()> {
    Ok(())
}

/// A moment of the wire, if this system can express it.
fn system_time((seconds, nanos): (i64, u32)) -> Option<SystemTime> {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base = match seconds {
        0.. => SystemTime::UNIX_EPOCH.checked_add(whole),
        _ => SystemTime::UNIX_EPOCH.checked_sub(whole),
    };
    base?.checked_add(Duration::from_nanos(u64::from(nanos)))
}
