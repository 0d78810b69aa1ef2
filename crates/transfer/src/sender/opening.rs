//! Opens what the scan found, and judges it by what was opened instead of what was found before.

use std::fs::Metadata;
use std::io;

use crate::content::Content;
use crate::source::{Source, check_kind, unopened};
use crate::{FileFailure, Reason};

/// Opens a file or folder, and examines what was opened instead of what was found before.
pub(super) fn open(source: &Source) -> Result<(Content, Metadata), FileFailure> {
    let file = source.root.read(source.place()).map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            return unopened(&source.path, &error);
        }
        // The error for a link that was planted since depends on the system. The link itself is the better
        // reason.
        match std::fs::symlink_metadata(&source.path).map(|now| check_kind(&source.path, &now)) {
            Ok(Err(failure)) => failure,
            _ if is_behind_link(&error) => {
                let detail = "a folder on the way to it has become a symbolic link or a file";
                FileFailure::of(&source.path, Reason::NotAFile, detail)
            }
            _ => unopened(&source.path, &error),
        }
    })?;
    let metadata = file.metadata().map_err(|error| unopened(&source.path, &error))?;
    check_kind(&source.path, &metadata)?;
    if metadata.is_dir() != source.directory {
        let (is, was) = if source.directory { ("file", "folder") } else { ("folder", "file") };
        return Err(FileFailure::of(&source.path, Reason::Changed, format_args!("it was a {was}, now it is a {is}")));
    }
    if source.directory {
        return Ok((Content::File(file), metadata));
    }
    Content::of(file, metadata).map_err(|(reason, detail)| FileFailure::of(&source.path, reason, detail))
}

/// Whether a path was not followed because a part of it is a symbolic link, or no folder.
fn is_behind_link(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotADirectory) || error.raw_os_error() == Some(SYMBOLIC_LINK)
}

/// The system's error for a symbolic link that must not be followed.
#[cfg(unix)]
const SYMBOLIC_LINK: i32 = rustix::io::Errno::LOOP.raw_os_error();
/// `ERROR_CANT_ACCESS_FILE`.
#[cfg(not(unix))]
const SYMBOLIC_LINK: i32 = 1920;

/// How the file differs from what was announced, after all its bytes were read.
pub(super) fn changed(source: &Source, content: &Content, before: &Metadata) -> Option<String> {
    let file = content.file()?;
    let after = match file.metadata() {
        Ok(after) => after,
        Err(error) => return Some(error.to_string()),
    };
    if source.growing && after.len() >= source.announced(before.len()) {
        return None;
    }
    if after.len() != before.len() {
        return Some(format!("it had {} bytes and now has {}; send it again", before.len(), after.len()));
    }
    let touched = matches!((before.modified(), after.modified()), (Ok(before), Ok(after)) if before != after);
    touched.then(|| "it was written to meanwhile; send it again".into())
}
