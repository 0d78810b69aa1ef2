//! Transfers files and folders over one stream. `docs/transfer.md` is the specification.
//!
//! `send` and `receive` run over any ordered stream of bytes: the verbs of the command and the Python package
//! give them a Tidewire stream, the tests a pipe in memory. A file that fails is reported by name and the
//! others go on. Only a broken stream or a peer that violates the protocol ends a transfer, and the next
//! transfer resumes it. Invariant: the file under a final name is either the old one or a new one that is
//! complete, verified and flushed (where the file system has no flush, a warning says so).

mod beneath;
mod checkpoint;
mod content;
mod delivered;
mod destination;
mod durable;
mod existing;
mod flushing;
mod followed;
mod growth;
mod hashing_time;
mod kept;
mod key;
mod link_target;
mod links;
mod mode;
mod opening;
mod part;
mod part_file;
mod path;
mod path_text;
mod quota;
mod receiver;
mod record;
mod refusal;
mod sender;
mod session;
mod source;
mod standing;
mod tree;

use std::path::Path;
use std::{fmt, io};

pub use checkpoint::Checkpoint;
pub use destination::Destination;
pub use existing::Existing;
pub use key::Key;
pub use path::{Encoding, PathError, RelativePath};
pub use path_text::PathText;
pub use quota::Limits;
pub use receiver::receive;
pub use record::{Attributes, Claim, Entry, Have, Kind, Link, Look, MAX_RECORD, Record, RecordReader, RecordWriter};
pub use refusal::is_damage;
pub use sender::send;
pub use source::{Found, Links, ScanError, Scanning, Source, scan, scan_with};
pub use tree::{GROUP, Prefix};

/// The reason why a file did not arrive, as on the wire (`docs/transfer.md` section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum Reason {
    /// The source no longer exists.
    Vanished = 1,
    /// The source was written to while it was read.
    Changed = 2,
    /// The source cannot be opened or read.
    Unreadable = 3,
    /// A link, device, socket or pipe.
    NotAFile = 4,
    /// The path could lead out of the destination, or is too long.
    PathRefused = 5,
    /// The destination cannot be created, written or renamed.
    Unwritable = 6,
    /// The disk or the quota of the file system is full.
    NoSpace = 7,
    /// The hash or the size differs from that of the sender.
    Mismatch = 8,
    /// The sender gave up this file.
    Aborted = 9,
    /// The file exceeds `--max-bytes` or `--max-files` of the receiver.
    OverQuota = 10,
    /// A file of this name stands at the destination and is kept.
    Exists = 11,
    /// A reason of a later version.
    Unknown = 255,
}

impl Reason {
    fn from_wire(byte: u8) -> Self {
        match byte {
            1 => Self::Vanished,
            2 => Self::Changed,
            3 => Self::Unreadable,
            4 => Self::NotAFile,
            5 => Self::PathRefused,
            6 => Self::Unwritable,
            7 => Self::NoSpace,
            8 => Self::Mismatch,
            9 => Self::Aborted,
            10 => Self::OverQuota,
            11 => Self::Exists,
            _ => Self::Unknown,
        }
    }

    /// Returns one or two words in lower case, the same in text and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vanished => "vanished",
            Self::Changed => "changed while read",
            Self::Unreadable => "unreadable",
            Self::NotAFile => "not a file",
            Self::PathRefused => "path refused",
            Self::Unwritable => "unwritable",
            Self::NoSpace => "no space",
            Self::Mismatch => "mismatch",
            Self::Aborted => "aborted",
            Self::OverQuota => "over quota",
            Self::Exists => "exists",
            Self::Unknown => "unknown",
        }
    }
}

/// One file that did not arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFailure {
    /// Its path, as it is. Printing it needs escapes.
    pub path: PathText,
    /// The kind of failure.
    pub reason: Reason,
    /// The error text of the operating system or the peer, not escaped.
    pub detail: String,
}

impl FileFailure {
    fn new(path: PathText, reason: Reason, detail: impl fmt::Display) -> Self {
        Self { path, reason, detail: detail.to_string() }
    }

    /// The failure of a file of this machine.
    fn of(path: &Path, reason: Reason, detail: impl fmt::Display) -> Self {
        Self::new(PathText::of_path(path), reason, detail)
    }
}

impl fmt::Display for FileFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.reason.name())?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, ": {}", self.detail) }
    }
}

/// What happens during a transfer, for progress and reports.
#[derive(Debug)]
pub enum Event<'a> {
    /// The size of the whole transfer.
    Total {
        /// Number of files, without directories.
        files: u32,
        /// Bytes of these files.
        bytes: u64,
    },
    /// Further bytes of files were written to the stream or read from it.
    Bytes(u64),
    /// Further bytes of files were read to compare them with what the other side has.
    Compared(u64),
    /// The receiver has part of a file, or all of it, and this session goes on from there.
    Resumed {
        /// Its path, as it is. Printing it needs escapes.
        path: &'a PathText,
        /// Bytes that the receiver already had.
        offset: u64,
        /// Bytes of the file.
        size: u64,
    },
    /// A file is sent from here although an earlier session carried more of it, because it has changed.
    Changed {
        /// Its path, as it is. Printing it needs escapes.
        path: &'a PathText,
        /// Bytes that are still the same.
        offset: u64,
        /// Bytes that were reported as resumed before, and are not the same.
        withdrawn: u64,
        /// Bytes of the file.
        size: u64,
    },
    /// A file is kept: hash verified, flushed, under its final name.
    Kept {
        /// Its path, as it is. Printing it needs escapes.
        path: &'a PathText,
        /// Its size.
        bytes: u64,
        /// What the destination could not do for it: its mode, its time, a flush. Not escaped.
        warning: Option<&'a str>,
    },
    /// A file did not arrive.
    Failed(&'a FileFailure),
}

/// A callback that receives each [`Event`].
pub type Watch<'a> = &'a (dyn Fn(Event<'_>) + Send + Sync);

/// The result of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Files and directories kept by the receiver.
    pub kept: u32,
    /// Bytes of the files kept.
    pub bytes: u64,
    /// Bytes of these files that earlier sessions had carried.
    pub resumed: u64,
    /// Entries that did not arrive.
    pub failed: u32,
    /// Whether one of the failed entries had a wrong hash or size.
    pub mismatch: bool,
}

impl Outcome {
    /// Counts a file of `bytes`, of which earlier sessions had carried the first `resumed`.
    fn keep(&mut self, path: &PathText, bytes: u64, resumed: u64, warning: Option<&str>, watch: Watch<'_>) {
        self.kept += 1;
        self.bytes += bytes;
        self.resumed += resumed;
        watch(Event::Kept { path, bytes, warning });
    }

    fn fail(&mut self, failure: &FileFailure, watch: Watch<'_>) {
        self.failed += 1;
        self.mismatch |= failure.reason == Reason::Mismatch;
        watch(Event::Failed(failure));
    }
}

/// The reason why a whole transfer ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The stream failed.
    #[error("the transfer was cut off: {0}")]
    Io(io::Error),
    /// The stream ended before the transfer did.
    #[error("the transfer was cut off: the peer ended the stream early")]
    Truncated,
    /// The peer does not speak this protocol.
    #[error("the peer does not transfer files: run `tidewire receive` there")]
    NotTransfer,
    /// The peer speaks another version of the protocol.
    #[error(
        "the peer speaks version {0} of the file transfer and this program speaks version {own}; \
                     run the same release on both sides",
        own = record::VERSION
    )]
    Version(u8),
    /// The peer sent a record longer than [`MAX_RECORD`].
    #[error("the peer sent a record of {0} bytes; at most {MAX_RECORD} bytes are allowed")]
    TooLong(u32),
    /// The peer sent a record of an unknown type that must not be skipped.
    #[error("the peer sent a record of unknown type {0:#04x}")]
    UnknownRecord(u8),
    /// The peer sent a record whose body does not parse.
    #[error("the peer sent a malformed {0} record")]
    Malformed(&'static str),
    /// The peer sent a record that is not allowed at this point.
    #[error("the peer sent a {0} record out of turn")]
    Unexpected(&'static str),
}

/// Version of the file transfer.
pub const PROTOCOL: u8 = record::VERSION;

impl TransferError {
    /// Whether the stream ended before the transfer did, so that a later transfer can resume it.
    pub fn is_cut_off(&self) -> bool {
        matches!(self, Self::Io(_) | Self::Truncated)
    }
}

impl From<io::Error> for TransferError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof { Self::Truncated } else { Self::Io(error) }
    }
}

/// Runs file operations that may block, without delaying the other tasks of this runtime thread.
fn blocking<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}
