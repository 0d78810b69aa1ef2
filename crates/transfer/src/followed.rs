//! Follows symbolic links for `send --links follow`: what they lead to is sent under their own names.
//!
//! [`scan`](super::scan) calls it for each link. Only what lies inside the named paths is followed, so a link
//! sends nothing that the user did not name. Invariants: a followed file is opened beneath the folder of a
//! named path, by a path without links. No folder is entered again beneath itself, and no more than
//! [`MOST_NESTED`] links lie behind each other.

use std::path::{Path, PathBuf};

/// Links behind each other. Chosen: deeper than real trees have them; folders with several links each would
/// otherwise be sent exponentially often.
const MOST_NESTED: usize = 4;

/// The named paths, and the folders that led to where the scan is.
#[derive(Debug, Default)]
pub(super) struct Follower {
    /// The named paths without links.
    named: Vec<PathBuf>,
    /// For each link that is being followed, the folder in which it lies, without links.
    way: Vec<PathBuf>,
}

/// Where a link leads.
#[derive(Debug)]
pub(super) struct Target {
    /// The path without links.
    pub(super) path: PathBuf,
    /// The folder of the named path that contains it. The rest of the path begins there.
    pub(super) folder: PathBuf,
}

impl Follower {
    pub(super) fn new(paths: &[PathBuf]) -> Self {
        Self { named: paths.iter().filter_map(|path| path.canonicalize().ok()).collect(), way: Vec::new() }
    }

    /// Where `link` leads.
    ///
    /// # Errors
    /// Says why the link is not followed.
    pub(super) fn target(&self, link: &Path) -> Result<Target, String> {
        let path = link.canonicalize().map_err(|error| format!("it cannot be followed: {error}"))?;
        let named = self.named.iter().find(|named| path.starts_with(named));
        let outside = || format!("it leads to `{}`, which is in none of the named paths", path.display());
        let folder = named.and_then(|named| named.parent()).ok_or_else(outside)?.to_owned();
        Ok(Target { path, folder })
    }

    /// Enters the folder that `link` leads to. The caller leaves it again.
    ///
    /// # Errors
    /// Says why it is not entered.
    pub(super) fn enter(&mut self, link: &Path, target: &Path) -> Result<(), String> {
        let parent = link.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let parent = parent.canonicalize().map_err(|error| format!("it cannot be followed: {error}"))?;
        if self.way.iter().chain([&parent]).any(|folder| folder.starts_with(target)) {
            return Err(format!("it is a loop: it leads back to `{}`, which contains it", target.display()));
        }
        if self.way.len() == MOST_NESTED {
            return Err(format!("it lies behind {MOST_NESTED} other links"));
        }
        self.way.push(parent);
        Ok(())
    }

    /// Leaves the folder that was entered last.
    pub(super) fn leave(&mut self) {
        self.way.pop();
    }
}
