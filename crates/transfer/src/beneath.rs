//! Opens the files of a sender beneath the folder that was named, and never through a symbolic link.
//!
//! The scan finds files by path. Until a file is opened, anybody who may write to a folder on the way can put
//! a symbolic link in its place, and the path would then lead out of the named folder. So the scan opens the
//! folder that contains each argument ([`Root`]), and the sender opens each name from that handle. Invariant:
//! an opened file lies beneath the folder that the scan opened, whatever happened to paths meanwhile.

use std::fs::File;
use std::io;
use std::path::Path;
#[cfg(not(unix))]
use std::path::PathBuf;
#[cfg(unix)]
use std::sync::Arc;

use super::RelativePath;

/// The folder that contains an argument of `send`.
#[cfg(unix)]
#[derive(Clone, Debug)]
pub(super) struct Root(Arc<std::os::fd::OwnedFd>);

/// The folder that contains an argument of `send`.
#[cfg(not(unix))]
#[derive(Clone, Debug)]
pub(super) struct Root(PathBuf);

#[cfg(unix)]
impl Root {
    /// Opens the folder `path`. The user named it, so links on the way to it are followed.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        // A folder on the way may be searchable but not readable, which is enough for this handle.
        #[cfg(target_os = "linux")]
        let flags = OFlags::PATH;
        #[cfg(not(target_os = "linux"))]
        let flags = OFlags::RDONLY;
        let folder = rustix::fs::open(path, flags | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self(Arc::new(folder)))
    }

    /// Opens `name` for reading. Never blocks on a named pipe.
    pub(super) fn read(&self, name: &RelativePath) -> io::Result<File> {
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::ResolveFlags;
            let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            match rustix::fs::openat2(&*self.0, name.as_os_str(), READ, Mode::empty(), beneath) {
                Err(error) if may_lack_openat2(error) => {}
                opened => return Ok(opened?.into()),
            }
        }
        self.read_step_by_step(name)
    }

    /// The same for systems without that call: opens each folder from the one before.
    fn read_step_by_step(&self, name: &RelativePath) -> io::Result<File> {
        let (parents, last) = name.split();
        let mut folder = Arc::clone(&self.0);
        for parent in parents {
            folder = Arc::new(rustix::fs::openat(&*folder, parent, PASS, Mode::empty())?);
        }
        Ok(rustix::fs::openat(&*folder, last, READ, Mode::empty())?.into())
    }
}

/// Whether this may be the answer of a system before Linux 5.6, or of a sandbox that refuses the call. A file
/// that answers so by itself does it again when it is opened step by step.
#[cfg(target_os = "linux")]
fn may_lack_openat2(error: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    [Errno::NOSYS, Errno::PERM, Errno::ACCESS, Errno::INVAL, Errno::TOOBIG, Errno::OPNOTSUPP, Errno::AGAIN]
        .contains(&error)
}

#[cfg(not(unix))]
impl Root {
    /// Remembers the folder `path`. This system opens only by path.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(path.to_owned()))
    }

    /// Opens `name` for reading.
    pub(super) fn read(&self, name: &RelativePath) -> io::Result<File> {
        File::open(self.0.join(name.as_os_str()))
    }
}

#[cfg(unix)]
use rustix::fs::{Mode, OFlags};

/// How folders on the way are opened. A folder that may only be searched is enough.
#[cfg(target_os = "linux")]
const PASS: OFlags = READ.union(OFlags::DIRECTORY).union(OFlags::PATH);
#[cfg(all(unix, not(target_os = "linux")))]
const PASS: OFlags = READ.union(OFlags::DIRECTORY);

/// How files and folders are opened.
#[cfg(unix)]
const READ: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::super::Encoding;
    use super::*;

    /// One of the two ways to open a file.
    type Open = fn(&Root, &RelativePath) -> io::Result<File>;

    #[test]
    fn no_link_is_followed_beneath_a_root() {
        for open in [Root::read as Open, Root::read_step_by_step] {
            let folder = tempfile::tempdir().unwrap();
            let (inside, outside) = (folder.path().join("inside"), folder.path().join("outside"));
            fs::create_dir_all(inside.join("d")).unwrap();
            fs::create_dir(&outside).unwrap();
            fs::write(inside.join("d/f"), b"mine").unwrap();
            fs::write(outside.join("f"), b"secret").unwrap();
            let root = Root::open(&inside).unwrap();
            let read = |name: &str| -> io::Result<String> {
                let mut text = String::new();
                open(&root, &RelativePath::parse(name.as_bytes(), Encoding::Utf8).unwrap())?
                    .read_to_string(&mut text)?;
                Ok(text)
            };
            assert_eq!(read("d/f").unwrap(), "mine");
            assert_eq!(read("d/g").unwrap_err().kind(), io::ErrorKind::NotFound);
            fs::rename(inside.join("d"), inside.join("moved")).unwrap();
            symlink(&outside, inside.join("d")).unwrap();
            symlink("moved", inside.join("near")).unwrap();
            symlink(outside.join("f"), inside.join("l")).unwrap();
            for linked in ["d/f", "near/f", "l"] {
                assert!(read(linked).is_err(), "{linked} was followed");
            }
            // Even if the folder itself is replaced, the handle stays.
            fs::rename(&inside, folder.path().join("elsewhere")).unwrap();
            symlink(&outside, &inside).unwrap();
            assert!(read("f").is_err());
            assert_eq!(read("moved/f").unwrap(), "mine");
        }
    }
}
