//! The name of an entry: relative, normal, and the same on every system. Both sides parse it: the sender so
//! that it fails early, the receiver because the sender may be hostile. All later code may rely on it.
//!
//! Most names are UTF-8. Names of POSIX may be any bytes, and are then carried as they are
//! ([`Encoding::Raw`]). Invariant: both kinds keep to the same rules, and each path has one encoding.

use std::ffi::OsStr;

use super::PathText;

/// Longest path in bytes: PATH_MAX of Linux.
const MAX_PATH: usize = 4096;
/// Longest component in bytes: NAME_MAX of Linux, and of most other systems.
const MAX_COMPONENT: usize = 255;
/// Maximum number of components. Chosen: far deeper than source trees, and far less than the open directories
/// that a process may have.
const MAX_DEPTH: usize = 128;

/// Why a path is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// Not UTF-8, although it is said to be, or on a system whose names are.
    #[error("the name is not UTF-8; rename it")]
    NotUtf8,
    /// UTF-8, although it is said not to be.
    #[error("the name is UTF-8 and is said to be none")]
    NotRaw,
    /// A name of bytes, at a system without such names.
    #[error("this system has no names that are not UTF-8; rename it")]
    NoRawNames,
    /// An encoding of a later version or of a hostile sender.
    #[error("the name has the unknown encoding {0}")]
    Encoding(u8),
    /// More than 4,096 bytes.
    #[error("the path has {0} bytes; at most {MAX_PATH} bytes are allowed")]
    TooLong(usize),
    /// A component of more than 255 bytes.
    #[error("a name has {0} bytes; at most {MAX_COMPONENT} bytes are allowed")]
    ComponentTooLong(usize),
    /// More than 128 components.
    #[error("the path has {0} levels; at most {MAX_DEPTH} levels are allowed")]
    TooDeep(usize),
    /// It is empty, or has an empty component, as in `/x`, `x/` or `x//y`.
    #[error("the path is absolute, empty or has an empty part")]
    Empty,
    /// It has a component `.` or `..`.
    #[error("the path has a part `.` or `..`")]
    Dots,
    /// It has a character that is special on some system.
    #[error("the path holds {0:?}")]
    Character(char),
}

/// What the bytes of a path on the wire are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// UTF-8.
    Utf8,
    /// Bytes that are not UTF-8, as POSIX allows.
    Raw,
    /// An encoding of a later version or of a hostile sender. Its path is refused.
    Other(u8),
}

impl Encoding {
    /// The encoding of a path with these bytes.
    pub fn of(path: &[u8]) -> Self {
        if std::str::from_utf8(path).is_ok() { Self::Utf8 } else { Self::Raw }
    }
}

/// A path below the destination: components of 1 to 255 bytes, none of them `.` or `..`, joined by `/`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelativePath(Vec<u8>);

impl RelativePath {
    /// Parses the path of a LOOK.
    ///
    /// # Errors
    /// Names the rule of `docs/transfer.md` section 2 that it breaks.
    pub fn parse(bytes: &[u8], encoding: Encoding) -> Result<Self, PathError> {
        if bytes.len() > MAX_PATH {
            return Err(PathError::TooLong(bytes.len()));
        }
        match (encoding, Encoding::of(bytes)) {
            (Encoding::Other(encoding), _) => return Err(PathError::Encoding(encoding)),
            (Encoding::Utf8, Encoding::Raw) => return Err(PathError::NotUtf8),
            (Encoding::Raw, Encoding::Utf8) => return Err(PathError::NotRaw),
            (Encoding::Raw, _) if !cfg!(unix) => return Err(PathError::NoRawNames),
            _ => {}
        }
        let depth = components(bytes).count();
        if depth > MAX_DEPTH {
            return Err(PathError::TooDeep(depth));
        }
        components(bytes).try_for_each(check_component)?;
        Ok(Self(bytes.to_vec()))
    }

    /// The path of `name` inside this one. With `None` as the base, inside the destination.
    ///
    /// # Errors
    /// The same as [`parse`](Self::parse).
    pub fn join(base: Option<&Self>, name: &OsStr) -> Result<Self, PathError> {
        // On a system without names of bytes, these are what the name is in UTF-8, or no UTF-8.
        let name = name.as_encoded_bytes();
        if !cfg!(unix) && Encoding::of(name) == Encoding::Raw {
            return Err(PathError::NotUtf8);
        }
        check_component(name)?;
        let path = match base {
            Some(base) => [&base.0, &b"/"[..], name].concat(),
            None => name.to_vec(),
        };
        Self::parse(&path, Encoding::of(&path))
    }

    /// The path of another name in the same directory.
    ///
    /// # Errors
    /// The same as [`parse`](Self::parse).
    pub fn with_name(&self, name: &OsStr) -> Result<Self, PathError> {
        let parent = self.0.iter().rposition(|&byte| byte == b'/').map(|slash| Self(self.0[..slash].to_vec()));
        Self::join(parent.as_ref(), name)
    }

    /// The path as on the wire.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path as this system has it.
    pub fn as_os_str(&self) -> &OsStr {
        os_str(&self.0)
    }

    /// The path as text.
    pub fn text(&self) -> PathText {
        PathText::of(&self.0)
    }

    /// The names of the directories, and the last name.
    pub fn split(&self) -> (impl Iterator<Item = &OsStr>, &OsStr) {
        let last = self.0.iter().rposition(|&byte| byte == b'/');
        let (parents, name) = match last {
            Some(slash) => (&self.0[..slash], &self.0[slash + 1..]),
            None => (&[][..], &self.0[..]),
        };
        (components(parents).filter(|parent| !parent.is_empty()).map(os_str), os_str(name))
    }
}

/// The parts between the slashes. No character of UTF-8 contains the byte of a slash, so none is cut.
fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/')
}

#[cfg(unix)]
fn os_str(bytes: &[u8]) -> &OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(bytes)
}

/// Every path here is UTF-8, because [`RelativePath::parse`] refuses others on these systems.
#[cfg(not(unix))]
fn os_str(bytes: &[u8]) -> &OsStr {
    OsStr::new(std::str::from_utf8(bytes).unwrap_or_default())
}

fn check_component(component: &[u8]) -> Result<(), PathError> {
    match component {
        b"" => return Err(PathError::Empty),
        b"." | b".." => return Err(PathError::Dots),
        _ if component.len() > MAX_COMPONENT => return Err(PathError::ComponentTooLong(component.len())),
        _ => {}
    }
    let special = |byte: u8| matches!(byte, 0 | b'/') || (cfg!(windows) && matches!(byte, b'\\' | b':'));
    let found = component.iter().find(|&&byte| special(byte));
    found.map_or(Ok(()), |&byte| Err(PathError::Character(byte.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_paths_are_refused_by_name() {
        let parse = |text: &str| RelativePath::parse(text.as_bytes(), Encoding::Utf8).map(|_| ());
        for empty in ["", "/", "/etc/passwd", "x/", "x//y"] {
            assert_eq!(parse(empty), Err(PathError::Empty), "{empty:?}");
        }
        for dots in [".", "..", "../x", "x/../y", "x/./y", "x/.."] {
            assert_eq!(parse(dots), Err(PathError::Dots), "{dots:?}");
        }
        assert_eq!(parse("a\0b"), Err(PathError::Character('\0')));
        assert_eq!(parse(&"x".repeat(256)), Err(PathError::ComponentTooLong(256)));
        assert_eq!(parse(&"x/".repeat(2100)), Err(PathError::TooLong(4200)));
        assert_eq!(parse(&vec!["x"; 129].join("/")), Err(PathError::TooDeep(129)));
        assert_eq!(RelativePath::parse(b"\xff", Encoding::Utf8), Err(PathError::NotUtf8));
        assert_eq!(RelativePath::parse(b"x", Encoding::Other(2)), Err(PathError::Encoding(2)));
    }

    #[test]
    #[cfg(unix)]
    fn names_of_bytes_keep_to_the_same_rules() {
        let parse = |bytes: &[u8]| RelativePath::parse(bytes, Encoding::Raw).map(|_| ());
        for empty in [&b"/\xff"[..], b"\xff/", b"\xff//x", b"/\xff/x"] {
            assert_eq!(parse(empty), Err(PathError::Empty), "{empty:?}");
        }
        for dots in [&b"../\xff"[..], b"\xff/..", b"\xff/../x", b"./\xff"] {
            assert_eq!(parse(dots), Err(PathError::Dots), "{dots:?}");
        }
        assert_eq!(parse(b"\xff\0"), Err(PathError::Character('\0')));
        assert_eq!(parse(&[0xff; 256]), Err(PathError::ComponentTooLong(256)));
        assert_eq!(parse(&b"\xff/".repeat(2100)), Err(PathError::TooLong(4200)));
        assert_eq!(parse(&vec![&b"\xff"[..]; 129].join(&b'/')), Err(PathError::TooDeep(129)));
        // One path has one encoding, so that no two of them are one name.
        assert_eq!(parse(b"x"), Err(PathError::NotRaw));
        // Longer forms of `/` and `.` in UTF-8 are not UTF-8, and bytes that no system takes for those.
        for overlong in [&b"\xc0\xaf"[..], b"\xe0\x80\xae\xe0\x80\xae"] {
            let path = RelativePath::parse(overlong, Encoding::Raw).unwrap();
            assert_eq!(path.split().0.count(), 0);
        }
        let path = RelativePath::join(None, os_str(b"d\xe9")).unwrap();
        let path = RelativePath::join(Some(&path), OsStr::new("f")).unwrap();
        let (parents, name) = path.split();
        assert_eq!((parents.collect::<Vec<_>>(), name), (vec![os_str(b"d\xe9")], OsStr::new("f")));
    }

    #[test]
    fn ordinary_names_pass_and_split() {
        let path = RelativePath::parse("a b/c..d/日本語/...".as_bytes(), Encoding::Utf8).unwrap();
        let (parents, name) = path.split();
        assert_eq!(parents.collect::<Vec<_>>(), ["a b", "c..d", "日本語"]);
        assert_eq!(name, "...");
        assert_eq!(RelativePath::parse(b"x", Encoding::Utf8).unwrap().split().0.count(), 0);
    }
}
