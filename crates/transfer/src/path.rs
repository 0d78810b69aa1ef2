//! The name of an entry: relative, normal, and the same on every system. Both sides parse it: the sender so
//! that it fails early, the receiver because the sender may be hostile. All later code may rely on it.

use std::ffi::OsStr;
use std::fmt;

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
    /// Not UTF-8.
    #[error("the name is not UTF-8; rename it")]
    NotUtf8,
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

/// A path below the destination: components of 1 to 255 bytes, none of them `.` or `..`, joined by `/`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelativePath(String);

impl RelativePath {
    /// Parses the path of an ENTRY.
    ///
    /// # Errors
    /// Names the rule of `docs/transfer.md` section 2 that it breaks.
    pub fn parse(bytes: &[u8]) -> Result<Self, PathError> {
        if bytes.len() > MAX_PATH {
            return Err(PathError::TooLong(bytes.len()));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| PathError::NotUtf8)?;
        let depth = text.split('/').count();
        if depth > MAX_DEPTH {
            return Err(PathError::TooDeep(depth));
        }
        text.split('/').try_for_each(check_component)?;
        Ok(Self(text.to_owned()))
    }

    /// The path of `name` inside this one. With `None` as the base, inside the destination.
    ///
    /// # Errors
    /// The same as [`parse`](Self::parse).
    pub fn join(base: Option<&Self>, name: &OsStr) -> Result<Self, PathError> {
        let name = name.to_str().ok_or(PathError::NotUtf8)?;
        check_component(name)?;
        match base {
            Some(base) => Self::parse(format!("{}/{name}", base.0).as_bytes()),
            None => Self::parse(name.as_bytes()),
        }
    }

    /// The path as on the wire.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The names of the directories, and the last name.
    pub fn split(&self) -> (impl Iterator<Item = &str>, &str) {
        let (parents, name) = self.0.rsplit_once('/').unwrap_or(("", &self.0));
        (parents.split('/').filter(|parent| !parent.is_empty()), name)
    }
}

impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn check_component(component: &str) -> Result<(), PathError> {
    match component {
        "" => return Err(PathError::Empty),
        "." | ".." => return Err(PathError::Dots),
        _ if component.len() > MAX_COMPONENT => return Err(PathError::ComponentTooLong(component.len())),
        _ => {}
    }
    let special = |c: char| matches!(c, '\0' | '/') || (cfg!(windows) && matches!(c, '\\' | ':'));
    component.chars().find(|&c| special(c)).map_or(Ok(()), |c| Err(PathError::Character(c)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_paths_are_refused_by_name() {
        let parse = |text: &str| RelativePath::parse(text.as_bytes()).map(|_| ());
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
        assert_eq!(RelativePath::parse(b"\xff"), Err(PathError::NotUtf8));
    }

    #[test]
    fn ordinary_names_pass_and_split() {
        let path = RelativePath::parse("a b/c..d/日本語/...".as_bytes()).unwrap();
        let (parents, name) = path.split();
        assert_eq!(parents.collect::<Vec<_>>(), ["a b", "c..d", "日本語"]);
        assert_eq!(name, "...");
        assert_eq!(RelativePath::parse(b"x").unwrap().split().0.count(), 0);
    }
}
