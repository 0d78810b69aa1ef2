//! What becomes of a file that stands under the name of an arriving one (`receive --existing`).
//!
//! The receiver judges a name when the entry begins, so that no bytes are sent in vain, and again when the
//! file is complete: somebody may have put a file there meanwhile. Invariant: a name under which nothing
//! stood when it was judged last is taken only if nothing stands there ([`rename_new`]), where the system
//! can do that in one step.

use std::ffi::{OsStr, OsString};
use std::io;

use cap_std::fs::{Dir, Metadata};

use super::delivered::{Delivery, Found, open_standing};
use super::refusal::{Refusal, refusal};
use super::{Encoding, Key, PathText, Reason};

/// Highest number that a name gets. Chosen: more versions than a person keeps, and a search takes at most a
/// tenth of a millisecond.
pub(super) const MOST_NUMBER: u32 = 99;
/// How often a name is judged that others create and remove meanwhile. Chosen.
const TRIES: usize = 4;
/// Longest name in bytes (`docs/transfer.md` section 2).
const MOST_NAME: usize = 255;

/// What a receiver does if a file stands under the name of an arriving one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Existing {
    /// Replaces what the same sender delivered here before, and keeps everything else.
    #[default]
    Update,
    /// Replaces it.
    Replace,
    /// Keeps it.
    Keep,
    /// Keeps it, and gives the arriving file another name.
    Rename,
}

/// What this session knows of a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimed {
    pub(super) delivery: Delivery,
    /// The file that this job has put there.
    pub(super) own: Option<Key>,
}

/// What may be done with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It may be taken if nothing stands there.
    Free,
    /// What stands there may be replaced.
    Over,
}

impl Existing {
    /// What may be done with `name` in `directory`.
    pub(super) fn judge(self, directory: &Dir, name: &OsStr, claimed: &Claimed) -> Result<Place, Refusal> {
        let there = match directory.symlink_metadata(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Place::Free),
            there => there.map_err(refusal)?,
        };
        if there.is_dir() && self != Self::Rename {
            return Err((Reason::Unwritable, "a folder of this name is in the way".into()));
        }
        if claimed.own.is_some_and(|own| own == identity(&there)) {
            return Ok(Place::Over);
        }
        let stands = |why: &str| (Reason::Exists, format!("a file of this name is kept there: {why}"));
        match self {
            Self::Replace => Ok(Place::Over),
            Self::Rename => Ok(Place::Free),
            Self::Keep => Err(stands("the receiver replaces none (--existing keep)")),
            Self::Update => {
                let found = open_standing(directory, name).map_or(Found::No, |file| claimed.delivery.find(&file));
                match found {
                    Found::Yes => Ok(Place::Over),
                    Found::No => Err(stands("it is not what this sender delivered (--existing update)")),
                    Found::Unknown => Err(stands("its file system does not tell who delivered it (--existing update)")),
                }
            }
        }
    }

    /// Whether a file that must not be replaced has the size and the hash of the arriving one: somebody
    /// has put it there while the bytes came, and it is no conflict.
    pub(super) fn stands_equal(
        self,
        (directory, name): (&Dir, &OsStr),
        claimed: &Claimed,
        size: u64,
        hash: [u8; 32],
    ) -> bool {
        if matches!(self.judge(directory, name, claimed), Ok(Place::Over)) {
            return false;
        }
        let Ok(mut file) = open_standing(directory, name) else { return false };
        let mut hasher = blake3::Hasher::new();
        file.metadata().is_ok_and(|there| there.len() == size)
            && io::copy(&mut file, &mut hasher).is_ok()
            && hasher.finalize() == blake3::Hash::from_bytes(hash)
    }

    /// Moves `part` of `folder` to `name` in `directory`, or to another name if that is what is wanted.
    /// Returns the name that it has.
    pub(super) fn put(
        self,
        (folder, part): (&Dir, &str),
        (directory, name): (&Dir, &OsStr),
        claimed: &Claimed,
    ) -> Result<OsString, Refusal> {
        for _ in 0..TRIES {
            if self.judge(directory, name, claimed)? == Place::Over {
                folder.rename(part, directory, name).map_err(refusal)?;
                return Ok(name.to_owned());
            }
            if rename_new((folder, part), (directory, name)).map_err(refusal)? {
                return Ok(name.to_owned());
            }
            if self == Self::Rename {
                return first_free(name, |other| rename_new((folder, part), (directory, other)));
            }
        }
        Err((Reason::Exists, "another program creates and removes files of this name".into()))
    }
}

/// The first name with a number that `take` takes, because nothing stands there.
pub(super) fn first_free(name: &OsStr, mut take: impl FnMut(&OsStr) -> io::Result<bool>) -> Result<OsString, Refusal> {
    for number in 2..=MOST_NUMBER {
        let other = numbered(name, number);
        if take(&other).map_err(refusal)? {
            return Ok(other);
        }
    }
    let last = PathText::of(numbered(name, MOST_NUMBER).as_encoded_bytes());
    Err((Reason::Exists, format!("all names up to `{last}` are taken (--existing rename)")))
}

/// The name of the file with this number: `name (2).ext`. A name that is too long loses the end before its
/// extension.
pub(super) fn numbered(name: &OsStr, number: u32) -> OsString {
    let bytes = name.as_encoded_bytes();
    let number = format!(" ({number})").into_bytes();
    // A point at the beginning is no extension, and a long one is none.
    let point = bytes.iter().rposition(|&byte| byte == b'.').filter(|&at| at > 0 && bytes.len() - at < MOST_NAME / 2);
    let (stem, extension) = bytes.split_at(point.unwrap_or(bytes.len()));
    let mut room = MOST_NAME.saturating_sub(number.len() + extension.len()).min(stem.len());
    // A character of UTF-8 is not cut.
    while Encoding::of(bytes) == Encoding::Utf8 && stem.get(room).is_some_and(|byte| byte & 0xc0 == 0x80) {
        room -= 1;
    }
    os_string([&stem[..room], &number, extension].concat())
}

#[cfg(unix)]
fn os_string(bytes: Vec<u8>) -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(bytes)
}

/// Names on these systems are UTF-8 here, and were not cut within a character.
#[cfg(not(unix))]
fn os_string(bytes: Vec<u8>) -> OsString {
    String::from_utf8(bytes).unwrap_or_default().into()
}

/// Renames a part to a name under which nothing stands. Returns whether nothing stood there.
fn rename_new((folder, part): (&Dir, &str), (directory, name): (&Dir, &OsStr)) -> io::Result<bool> {
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    {
        use rustix::io::Errno;
        match rustix::fs::renameat_with(folder, part, directory, name, rustix::fs::RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(true),
            Err(Errno::EXIST) => return Ok(false),
            // A system or file system without the call.
            Err(Errno::NOSYS | Errno::INVAL | Errno::NOTSUP | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    link_new((folder, part), (directory, name))
}

/// The same with a second name for the file, for systems without that call. A kill between the two steps
/// leaves a part with two names, which nobody continues.
fn link_new((folder, part): (&Dir, &str), (directory, name): (&Dir, &OsStr)) -> io::Result<bool> {
    match folder.hard_link(part, directory, name) {
        Ok(()) => folder.remove_file(part).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        // A file system without second names. Two programs may then take one name.
        Err(_) if directory.symlink_metadata(name).is_ok() => Ok(false),
        Err(_) => folder.rename(part, directory, name).map(|()| true),
    }
}

/// Whether a file has a second name, as one whose rename was cut off in the middle.
#[cfg(unix)]
pub(super) fn has_two_names(metadata: &Metadata) -> bool {
    cap_std::fs::MetadataExt::nlink(metadata) > 1
}

#[cfg(not(unix))]
pub(super) fn has_two_names(_: &Metadata) -> bool {
    false
}

/// The key of a file that stands: it changes if somebody writes to the file or puts another one there.
pub(super) fn identity(there: &Metadata) -> Key {
    #[cfg(unix)]
    let (inode, modified) = {
        use cap_std::fs::MetadataExt;
        (there.ino(), (there.mtime(), there.mtime_nsec() as u32))
    };
    #[cfg(not(unix))]
    let (inode, modified) = (0, there.modified().map_or((0, 0), |time| super::source::wire_time(time.into_std())));
    Key::of_source(inode, there.len(), modified)
}

#[cfg(test)]
mod tests {
    use cap_std::ambient_authority;

    use super::super::delivered::Note;
    use super::*;

    /// A folder with a part, and a file `f.txt`.
    fn stage() -> (tempfile::TempDir, Dir) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("part"), b"new").unwrap();
        std::fs::write(folder.path().join("f.txt"), b"old").unwrap();
        let dir = Dir::open_ambient_dir(folder.path(), ambient_authority()).unwrap();
        (folder, dir)
    }

    fn claimed(own: Option<Key>) -> Claimed {
        Claimed { delivery: Delivery { peer: Key([1; 16]), path: Key([2; 16]) }, own }
    }

    #[test]
    fn what_stands_is_replaced_kept_or_passed_by() {
        let all = [Existing::Update, Existing::Replace, Existing::Keep, Existing::Rename];
        let name = OsStr::new("f.txt");
        for existing in all {
            let (folder, dir) = stage();
            let put = existing.put((&dir, "part"), (&dir, name), &claimed(None));
            let read = |name: &str| std::fs::read(folder.path().join(name)).ok();
            let (stood, part) = (read("f.txt").unwrap(), read("part").is_some());
            match existing {
                Existing::Replace => assert_eq!((put.unwrap(), &stood[..], part), ("f.txt".into(), &b"new"[..], false)),
                Existing::Rename => {
                    assert_eq!((put.unwrap(), &stood[..], part), ("f (2).txt".into(), &b"old"[..], false));
                    assert_eq!(read("f (2).txt").unwrap(), b"new");
                }
                _ => assert_eq!((put.unwrap_err().0, &stood[..], part), (Reason::Exists, &b"old"[..], true)),
            }
            // What the job itself has put there is replaced, and a free name is taken.
            let (folder, dir) = stage();
            let own = identity(&dir.symlink_metadata("f.txt").unwrap());
            existing.put((&dir, "part"), (&dir, name), &claimed(Some(own))).unwrap();
            assert_eq!(std::fs::read(folder.path().join("f.txt")).unwrap(), b"new", "{existing:?}");
            let (folder, dir) = stage();
            existing.put((&dir, "part"), (&dir, OsStr::new("g")), &claimed(None)).unwrap();
            assert_eq!(std::fs::read(folder.path().join("g")).unwrap(), b"new", "{existing:?}");
        }
    }

    #[test]
    fn only_what_the_same_sender_delivered_is_updated() {
        let (folder, dir) = stage();
        let file = std::fs::File::open(folder.path().join("f.txt")).unwrap();
        let (name, claim) = (OsStr::new("f.txt"), claimed(None));
        let note = Note { delivery: claim.delivery, prefix: None };
        note.write(&file);
        assert_eq!(Existing::Update.judge(&dir, name, &claim).unwrap(), Place::Over);
        let other = Claimed { delivery: Delivery { peer: Key([9; 16]), ..claim.delivery }, own: None };
        assert_eq!(Existing::Update.judge(&dir, name, &other).unwrap_err().0, Reason::Exists);
        std::fs::write(folder.path().join("f.txt"), b"mine now").unwrap();
        assert_eq!(Existing::Update.judge(&dir, name, &claim).unwrap_err().0, Reason::Exists);
        // A link is not looked through, and a folder is never replaced.
        #[cfg(unix)]
        {
            note.write(&file);
            std::os::unix::fs::symlink("f.txt", folder.path().join("link")).unwrap();
            let linked = Existing::Update.judge(&dir, OsStr::new("link"), &claim);
            assert_eq!(linked.unwrap_err().0, Reason::Exists);
        }
        std::fs::create_dir(folder.path().join("d")).unwrap();
        for existing in [Existing::Update, Existing::Replace, Existing::Keep] {
            let judged = existing.judge(&dir, OsStr::new("d"), &claim);
            assert_eq!(judged.unwrap_err().0, Reason::Unwritable, "{existing:?}");
        }
    }

    #[test]
    fn both_ways_to_take_a_new_name_replace_nothing() {
        type Take = fn((&Dir, &str), (&Dir, &OsStr)) -> io::Result<bool>;
        for take in [rename_new as Take, link_new] {
            let (folder, dir) = stage();
            assert!(!take((&dir, "part"), (&dir, OsStr::new("f.txt"))).unwrap());
            assert_eq!(std::fs::read(folder.path().join("f.txt")).unwrap(), b"old");
            assert!(take((&dir, "part"), (&dir, OsStr::new("g"))).unwrap());
            assert_eq!(std::fs::read(folder.path().join("g")).unwrap(), b"new");
            assert!(!folder.path().join("part").exists());
        }
    }

    #[test]
    fn numbers_stand_before_the_extension_and_names_stay_short_enough() {
        let number = |name: &str| numbered(OsStr::new(name), 2).into_string().unwrap();
        for (name, wanted) in [
            ("f", "f (2)"),
            ("f.txt", "f (2).txt"),
            ("f.tar.gz", "f.tar (2).gz"),
            (".profile", ".profile (2)"),
            ("f.", "f (2)."),
        ] {
            assert_eq!(number(name), wanted);
        }
        let long = number(&format!("{}.txt", "ü".repeat(125)));
        assert!(long.len() <= 255 && long.ends_with("ü (2).txt"), "{long}");
        assert_eq!(number(&"x".repeat(255)).len(), 255);
        assert_eq!(number(&format!("x.{}", "y".repeat(253))).len(), 255);
    }

    #[test]
    fn the_search_for_a_name_ends() {
        let (folder, dir) = stage();
        let name = OsStr::new("f.txt");
        for number in 2..=MOST_NUMBER {
            std::fs::write(folder.path().join(numbered(name, number)), b"old").unwrap();
        }
        let put = Existing::Rename.put((&dir, "part"), (&dir, name), &claimed(None));
        let (reason, detail) = put.unwrap_err();
        assert!(reason == Reason::Exists && detail.contains("f (99).txt"), "{detail}");
    }
}
