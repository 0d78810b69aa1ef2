//! Records: the messages of a transfer (`docs/transfer.md` section 1). A reader holds one record at a time in
//! a buffer that it reuses. A length beyond [`MAX_RECORD`] ends the stream before anything is allocated for
//! it.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::yield_now;

use super::tree::Prefix;
use super::{Encoding, Key, Reason, TransferError};

mod body;

pub(super) use body::PERMISSIONS;
use body::{CHUNK_TYPE, ZEROS, emit, parse};

/// Longest body of a record in bytes.
pub const MAX_RECORD: usize = 256 * 1024;
/// Longest detail of a RESULT in bytes.
const MAX_DETAIL: usize = 512;
/// Bytes of a file in one CHUNK: 20 ms at 25 Mbit/s, so that progress moves smoothly and a refused file stops
/// soon.
const CHUNK: usize = 64 * 1024;

const MAGIC: &[u8; 7] = b"TWFILES";
pub(crate) const VERSION: u8 = 3;
/// Record types from this one on may be skipped.
const SKIPPABLE: u8 = 0x80;
/// Bytes before a body: type and length.
const HEADER: usize = 5;

/// Kinds of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A kind of a later version or of a hostile sender. It is refused.
    Other(u8),
}

/// The body of a LOOK: an entry that the sender is going to announce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Its number, which grows from LOOK to LOOK.
    pub id: u32,
    /// Its kind.
    pub kind: Kind,
    /// What the bytes of its path are.
    pub encoding: Encoding,
    /// Size of the file in bytes.
    pub size: u64,
    /// Key under which the receiver stores the beginning of the file.
    pub source: Key,
    /// Its path, not checked yet.
    pub path: Vec<u8>,
}

/// The body of an ENTRY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number, which a LOOK has introduced.
    pub id: u32,
    /// Its permissions and time.
    pub attributes: Attributes,
    /// Size of the file in bytes.
    pub size: u64,
    /// Offset of the first byte that follows.
    pub offset: u64,
    /// Key under which a later session finds the beginning of the file.
    pub source: Key,
}

/// What a file has besides its content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Its permissions: the nine bits of POSIX.
    pub mode: u16,
    /// Seconds (signed) and nanoseconds since 1970.
    pub modified: (i64, u32),
}

/// The body of a CLAIM: the file that stands at the receiver has this content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its number, which a LOOK has introduced.
    pub id: u32,
    /// Its permissions and time at the sender.
    pub attributes: Attributes,
    /// BLAKE3 of the whole file.
    pub hash: [u8; 32],
}

/// The body of a LINK: a symbolic link. It has no LOOK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its number, in the order of the LOOKs.
    pub id: u32,
    /// What the bytes of its path are.
    pub encoding: Encoding,
    /// Its path, not checked yet.
    pub path: Vec<u8>,
    /// Where it leads, not checked yet.
    pub target: Vec<u8>,
}

/// What a receiver has of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Have {
    /// Nothing of use.
    Nothing,
    /// A file of this size under this path.
    Standing,
    /// The beginning of this source.
    Beginning(Prefix),
    /// The beginning of another version of this path.
    OtherVersion,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// How much the sender intends to send.
    Total {
        /// Files, without directories.
        files: u32,
        /// Bytes of these files.
        bytes: u64,
        /// Key of the job: the same if the same command is repeated.
        job: Key,
    },
    /// What does the receiver have of this file?
    Look(Look),
    /// The file that stands at the receiver has this content.
    Claim(Claim),
    /// The entry of this LOOK cannot be announced.
    Skip(u32),
    /// The next file or directory.
    Entry(Entry),
    /// A symbolic link.
    Link(Link),
    /// Bytes of the current entry.
    Chunk(&'a [u8]),
    /// This number of bytes of it, all zero.
    Zeros(u32),
    /// The chaining value of a group of the current entry that ends here. More bytes follow.
    Mark([u8; 32]),
    /// The current entry goes on from this offset: what the receiver has of it from there on is not the
    /// source's.
    Back(u64),
    /// The current entry is complete and has this BLAKE3 hash.
    End([u8; 32]),
    /// The current entry will not be completed.
    Abort(Reason),
    /// Nothing more comes.
    Done {
        /// Number of ENTRYs sent.
        announced: u32,
        /// Number of entries of the source that could not be announced.
        unsent: u32,
    },
    /// What the receiver has of a file.
    Have {
        /// The file's LOOK.
        id: u32,
        /// What there is.
        have: Have,
    },
    /// The file that stands there has another hash than this CLAIM names.
    Differs(u32),
    /// The result of an entry.
    Result {
        /// The entry.
        id: u32,
        /// Why it failed; `None` if it is kept.
        failure: Option<Reason>,
        /// The error text of the operating system. Of a kept entry, what could not be done for it.
        detail: &'a str,
    },
    /// The results of all entries.
    Tally {
        /// Number of entries kept.
        kept: u32,
        /// Number of entries that failed.
        failed: u32,
        /// Bytes of the files kept.
        bytes: u64,
    },
}

/// Reads records.
#[derive(Debug)]
pub struct RecordReader<R> {
    from: R,
    body: Vec<u8>,
    turns: Turns,
}

impl<R: AsyncRead + Unpin> RecordReader<R> {
    /// Reads and checks the magic of the peer.
    ///
    /// # Errors
    /// Fails if the stream fails or the peer does not speak this protocol.
    pub async fn open(mut from: R) -> Result<Self, TransferError> {
        let mut magic = [0; 8];
        from.read_exact(&mut magic).await?;
        match magic.split_last() {
            Some((&VERSION, name)) if name == MAGIC => Ok(Self { from, body: Vec::new(), turns: Turns::default() }),
            Some((&version, name)) if name == MAGIC => Err(TransferError::Version(version)),
            _ => Err(TransferError::NotTransfer),
        }
    }

    /// The next record that is not skipped.
    ///
    /// # Errors
    /// Fails if the stream fails or ends, or the record is not one of this protocol.
    pub async fn next(&mut self) -> Result<Record<'_>, TransferError> {
        let kind = loop {
            self.turns.next().await;
            let mut header = [0; HEADER];
            self.from.read_exact(&mut header).await?;
            let [kind, length @ ..] = header;
            let length = u32::from_be_bytes(length);
            if length as usize > MAX_RECORD {
                return Err(TransferError::TooLong(length));
            }
            self.body.resize(length as usize, 0);
            self.from.read_exact(&mut self.body).await?;
            if kind < SKIPPABLE {
                break kind;
            }
        };
        parse(kind, &self.body)
    }
}

/// Writes records.
#[derive(Debug)]
pub struct RecordWriter<W> {
    to: W,
    buffer: Vec<u8>,
    turns: Turns,
}

impl<W: AsyncWrite + Unpin> RecordWriter<W> {
    /// Writes the magic and a record that must be skipped, so that every peer tests skipping.
    ///
    /// # Errors
    /// Fails if the stream fails.
    pub async fn open(to: W) -> Result<Self, TransferError> {
        let [kind, length, noise @ ..] = getrandom::u64().map_err(io::Error::from)?.to_be_bytes();
        let mut writer = Self { to, buffer: Vec::new(), turns: Turns::default() };
        writer.buffer.extend_from_slice(MAGIC);
        writer.buffer.push(VERSION);
        writer.buffer.push(SKIPPABLE | kind);
        let length = usize::from(length % 16);
        writer.buffer.extend_from_slice(&(length as u32).to_be_bytes());
        writer.buffer.extend(noise.iter().cycle().take(length));
        writer.to.write_all(&writer.buffer).await?;
        Ok(writer)
    }

    /// Writes one record.
    ///
    /// # Errors
    /// Fails if the stream fails.
    pub async fn write(&mut self, record: &Record<'_>) -> Result<(), TransferError> {
        self.turns.next().await;
        self.buffer.clear();
        self.buffer.resize(HEADER, 0);
        let kind = emit(record, &mut self.buffer);
        send(&mut self.to, kind, &mut self.buffer).await
    }

    /// Writes several records at once.
    ///
    /// # Errors
    /// Fails if the stream fails.
    pub async fn write_all(&mut self, records: impl Iterator<Item = Record<'_>>) -> Result<(), TransferError> {
        self.turns.next().await;
        self.buffer.clear();
        for record in records {
            let begin = self.buffer.len();
            self.buffer.resize(begin + HEADER, 0);
            let kind = emit(&record, &mut self.buffer);
            head(&mut self.buffer[begin..], kind);
        }
        self.to.write_all(&self.buffer).await?;
        Ok(self.to.flush().await?)
    }

    /// Writes a CHUNK with the bytes that `read` puts into its buffer, at most `most`, or ZEROS if they are
    /// all zero. Writes nothing for 0 bytes.
    ///
    /// # Errors
    /// The outer error is that of the stream, the inner one that of `read`.
    pub async fn write_chunk(
        &mut self,
        most: u64,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> Result<io::Result<&[u8]>, TransferError> {
        self.turns.next().await;
        let space = usize::try_from(most).map_or(CHUNK, |most| most.min(CHUNK));
        self.buffer.resize(HEADER + space, 0);
        let length = match read(&mut self.buffer[HEADER..]) {
            Ok(length) => length.min(space),
            Err(error) => return Ok(Err(error)),
        };
        self.buffer.truncate(HEADER + length);
        if length > 0 && self.buffer[HEADER..].iter().all(|&byte| byte == 0) {
            let mut record = [0; HEADER + 4];
            record[HEADER..].copy_from_slice(&(length as u32).to_be_bytes());
            send(&mut self.to, ZEROS, &mut record).await?;
        } else if length > 0 {
            send(&mut self.to, CHUNK_TYPE, &mut self.buffer).await?;
        }
        Ok(Ok(&self.buffer[HEADER..]))
    }

    /// Closes this direction, so that the peer reads the end after the last record.
    ///
    /// # Errors
    /// Fails if the stream fails.
    pub async fn close(&mut self) -> Result<(), TransferError> {
        Ok(self.to.shutdown().await?)
    }
}

/// Lets other parts of the task run after some records. A file of holes, or a peer, decides how many records
/// find room or wait at once, and each may be work. The budget of tokio does not count here, because
/// `block_in_place` ends it.
#[derive(Debug, Default)]
struct Turns(u8);

impl Turns {
    async fn next(&mut self) {
        self.0 = (self.0 + 1) % RECORDS;
        if self.0 == 0 {
            yield_now().await;
        }
    }
}

/// Records between two turns of others. Chosen: the hash of as many chunks takes some milliseconds.
const RECORDS: u8 = 16;

/// Writes the record in `record`. Its first bytes are reserved for its type and length.
async fn send<W: AsyncWrite + Unpin>(to: &mut W, kind: u8, record: &mut [u8]) -> Result<(), TransferError> {
    head(record, kind);
    to.write_all(record).await?;
    Ok(to.flush().await?)
}

/// Fills in type and length of a record.
fn head(record: &mut [u8], kind: u8) {
    let length = (record.len() - HEADER) as u32;
    record[0] = kind;
    record[1..HEADER].copy_from_slice(&length.to_be_bytes());
}
