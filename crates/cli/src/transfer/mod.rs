//! Files and folders over one stream: names, bounds and a proof that each file is whole. `docs/transfer.md`
//! is the specification.
//!
//! `send` and `receive` run over anything that reads and writes bytes in order; the verbs give them a
//! Tidewire stream, the tests a pipe in memory. One failed file is reported by name and the others go on;
//! only a broken stream or a peer that breaks the protocol ends a transfer, and the next one goes on from
//! there. Invariant: under its final name a file is whole, verified and flushed, or it is what was there
//! before.

mod beneath;
mod checkpoint;
mod destination;
mod flushing;
mod kept;
mod key;
mod mode;
mod offers;
mod opening;
mod part;
mod path;
mod quota;
mod receiver;
mod record;
mod sender;
mod session;
mod source;
mod standing;
mod tree;

use std::{fmt, io};

pub use checkpoint::Checkpoint;
pub use destination::Destination;
pub use key::Key;
pub use path::{PathError, RelativePath};
pub use quota::Limits;
pub use receiver::receive;
pub use record::{Entry, Have, Kind, MAX_RECORD, Record, RecordReader, RecordWriter};
pub use sender::send;
pub use source::{Found, ScanError, Source, scan};
pub use tree::{GROUP, Prefix};

/// Why a file did not arrive, as on the wire (`docs/transfer.md` section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum Reason {
    /// The source is gone.
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
    /// The disk is full, or the quota of its file system.
    NoSpace = 7,
    /// The hash or the size is not the sender's.
    Mismatch = 8,
    /// The sender gave this file up.
    Aborted = 9,
    /// The receiver was told to take no more than it has.
    OverQuota = 10,
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
            _ => Self::Unknown,
        }
    }

    /// One lower-case word or two, the same in text and JSON.
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
            Self::Unknown => "unknown",
        }
    }
}

/// One file that did not arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFailure {
    /// Its path, as it is; whoever prints it escapes it.
    pub path: String,
    /// The kind of failure.
    pub reason: Reason,
    /// What the operating system or the peer said, as it is.
    pub detail: String,
}

impl FileFailure {
    fn new(path: impl fmt::Display, reason: Reason, detail: impl fmt::Display) -> Self {
        Self { path: path.to_string(), reason, detail: detail.to_string() }
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
    /// How much the sender means to send.
    Total {
        /// Files, without directories.
        files: u32,
        /// Their bytes.
        bytes: u64,
    },
    /// More bytes of files written to the stream, or read from it.
    Bytes(u64),
    /// A file does not begin at its beginning: an earlier session left that there, or all of it.
    Resumed {
        /// Its path, as it is; whoever prints it escapes it.
        path: &'a str,
        /// Bytes that were there.
        offset: u64,
        /// Bytes of the file.
        size: u64,
    },
    /// A file begins at its beginning though an earlier session left something of it: it changed meanwhile.
    Changed {
        /// Its path, as it is; whoever prints it escapes it.
        path: &'a str,
        /// Bytes of the file.
        size: u64,
    },
    /// A file is kept: hash verified, flushed, under its final name.
    Kept {
        /// Its path, as it is; whoever prints it escapes it.
        path: &'a str,
        /// Its size.
        bytes: u64,
    },
    /// A file did not arrive.
    Failed(&'a FileFailure),
}

/// Whoever is told of [`Event`]s.
pub type Watch<'a> = &'a (dyn Fn(Event<'_>) + Send + Sync);

/// How a transfer ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Files and directories kept by the receiver.
    pub kept: u32,
    /// Bytes of the files kept.
    pub bytes: u64,
    /// How many of them earlier sessions had carried.
    pub resumed: u64,
    /// Entries that did not arrive.
    pub failed: u32,
    /// Whether one of them failed by its hash or size.
    pub mismatch: bool,
}

impl Outcome {
    /// Counts a file of `bytes`, of which the first `resumed` were there before this session.
    fn keep(&mut self, path: &str, (bytes, resumed): (u64, u64), watch: Watch<'_>) {
        self.kept += 1;
        self.bytes += bytes;
        self.resumed += resumed;
        watch(Event::Kept { path, bytes });
    }

    fn fail(&mut self, failure: &FileFailure, watch: Watch<'_>) {
        self.failed += 1;
        self.mismatch |= failure.reason == Reason::Mismatch;
        watch(Event::Failed(failure));
    }
}

/// Why a whole transfer ended early.
#[derive(Debug)]
#[non_exhaustive]
pub enum TransferError {
    /// The stream failed.
    Io(io::Error),
    /// The stream ended before the transfer did.
    Truncated,
    /// The peer does not speak this protocol.
    NotTransfer,
    /// The peer speaks a version that this program does not.
    Version(u8),
    /// A record longer than [`MAX_RECORD`].
    TooLong(u32),
    /// A record type that must not be skipped and is not known.
    UnknownRecord(u8),
    /// A record whose body does not parse.
    Malformed(&'static str),
    /// A record that may not come now.
    Unexpected(&'static str),
}

impl TransferError {
    /// Whether the stream ended before the transfer did, which a later one goes on with.
    pub fn is_cut_off(&self) -> bool {
        matches!(self, Self::Io(_) | Self::Truncated)
    }
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the transfer was cut off: {error}"),
            Self::Truncated => write!(f, "the transfer was cut off: the peer ended the stream early"),
            Self::NotTransfer => write!(f, "the peer does not transfer files: run `tidewire receive` there"),
            Self::Version(version) => {
                write!(
                    f,
                    "the peer speaks version {version} of the file transfer and this program speaks version {}; \
                     run the same release on both sides",
                    record::VERSION
                )
            }
            Self::TooLong(length) => {
                write!(f, "the peer sent a record of {length} bytes; at most {MAX_RECORD} bytes are allowed")
            }
            Self::UnknownRecord(kind) => write!(f, "the peer sent a record of unknown type {kind:#04x}"),
            Self::Malformed(name) => write!(f, "the peer sent a malformed {name} record"),
            Self::Unexpected(name) => write!(f, "the peer sent a {name} record out of turn"),
        }
    }
}

impl std::error::Error for TransferError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        None
    }
}

impl From<io::Error> for TransferError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof { Self::Truncated } else { Self::Io(error) }
    }
}

/// Runs file work that may block, without holding up the tasks of this runtime thread.
fn blocking<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}
