//! Opens what a sender found, beneath the folder that it was found in and through no symbolic link.
//!
//! The scan names files by path. Until a file is opened, whoever may write to one of the folders on the way
//! can put a symbolic link in its place, and a path would then lead out of what the user named. So the scan
//! opens the folder that holds each argument ([`Root`]), and the sender opens each name from that handle.
//! Invariant: what is opened lies beneath the folder that was opened by the scan, whatever happened to paths
//! meanwhile.

use std::fs::File;
use std::io;
use std::path::Path;
#[cfg(not(unix))]
use std::path::PathBuf;
#[cfg(unix)]
use std::sync::Arc;

use super::RelativePath;

/// The folder that holds an argument of `send`.
#[cfg(unix)]
#[derive(Clone, Debug)]
pub(super) struct Root(Arc<std::os::fd::OwnedFd>);

/// The folder that holds an argument of `send`.
#[cfg(not(unix))]
#[derive(Clone, Debug)]
pub(super) struct Root(PathBuf);

#[cfg(unix)]
impl Root {
    /// Opens the folder `path`; the user named it, so links on the way to it are followed.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        // A folder on the way may be searched but not read: a handle that only leads on needs no more.
        #[cfg(target_os = "linux")]
        let flags = OFlags::PATH;
        #[cfg(not(target_os = "linux"))]
        let flags = OFlags::RDONLY;
        let folder = rustix::fs::open(path, flags | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self(Arc::new(folder)))
    }

    /// Opens `name` for reading. Never waits for the other end of a pipe that was put there.
    pub(super) fn read(&self, name: &RelativePath) -> io::Result<File> {
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::ResolveFlags;
            let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            match rustix::fs::openat2(&*self.0, name.as_str(), READ, Mode::empty(), beneath) {
                // Systems before Linux 5.6, and sandboxes that do not know the call.
                Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {}
                opened => return Ok(opened?.into()),
            }
        }
        self.read_step_by_step(name)
    }

    /// The same where the system has no call for it: each folder is opened from the one before.
    fn read_step_by_step(&self, name: &RelativePath) -> io::Result<File> {
        let (parents, last) = name.split();
        let mut folder = Arc::clone(&self.0);
        for parent in parents {
            let flags = READ | OFlags::DIRECTORY;
            folder = Arc::new(rustix::fs::openat(&*folder, parent, flags, Mode::empty())?);
        }
        Ok(rustix::fs::openat(&*folder, last, READ, Mode::empty())?.into())
    }
}

#[cfg(not(unix))]
impl Root {
    /// Remembers the folder `path`: this system opens by path only.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(path.to_owned()))
    }

    /// Opens `name` for reading.
    pub(super) fn read(&self, name: &RelativePath) -> io::Result<File> {
        File::open(self.0.join(name.as_str()))
    }
}

#[cfg(unix)]
use rustix::fs::{Mode, OFlags};

/// How files and folders are opened.
#[cfg(unix)]
const READ: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Reads a file by either way.
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
                open(&root, &RelativePath::parse(name.as_bytes()).unwrap())?.read_to_string(&mut text)?;
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
            // The folder itself may be replaced too: the handle stays.
            fs::rename(&inside, folder.path().join("elsewhere")).unwrap();
            symlink(&outside, &inside).unwrap();
            assert!(read("f").is_err());
            assert_eq!(read("moved/f").unwrap(), "mine");
        }
    }
}
