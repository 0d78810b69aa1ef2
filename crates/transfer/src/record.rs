//! Records: the messages of a transfer (`docs/transfer.md` section 1). A reader holds one record at a time in
//! a buffer that it reuses. A length beyond [`MAX_RECORD`] ends the stream before anything is allocated for
//! it.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::yield_now;

use super::tree::Prefix;
use super::{Key, Reason, TransferError};

/// Longest body of a record in bytes.
pub const MAX_RECORD: usize = 256 * 1024;
/// Longest detail of a RESULT in bytes.
const MAX_DETAIL: usize = 512;
/// Bytes of a file in one CHUNK: 20 ms at 25 Mbit/s, so that progress moves smoothly and a refused file stops
/// soon.
const CHUNK: usize = 64 * 1024;

const MAGIC: &[u8; 7] = b"TWFILES";
pub(super) const VERSION: u8 = 2;
/// Bits of a mode that are transferred: no set-user-id, set-group-id or sticky bit.
pub(super) const PERMISSIONS: u16 = 0o777;
/// Record types from this one on may be skipped.
const SKIPPABLE: u8 = 0x80;
/// Bytes before a body: type and length.
const HEADER: usize = 5;

const TOTAL: u8 = 0x01;
const ENTRY: u8 = 0x02;
const CHUNK_TYPE: u8 = 0x03;
const END: u8 = 0x04;
const ABORT: u8 = 0x05;
const DONE: u8 = 0x06;
const MARK: u8 = 0x07;
const ZEROS: u8 = 0x08;
const RESULT: u8 = 0x11;
const TALLY: u8 = 0x12;
const HAVE: u8 = 0x13;
const READY: u8 = 0x14;

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

/// The body of an ENTRY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number in results, which grows from entry to entry.
    pub id: u32,
    /// Its kind.
    pub kind: Kind,
    /// Its permissions: the nine bits of POSIX.
    pub mode: u16,
    /// Whether the receiver listed it as kept. No bytes follow then.
    pub kept: bool,
    /// Seconds (signed) and nanoseconds since 1970.
    pub modified: (i64, u32),
    /// Size of the file in bytes.
    pub size: u64,
    /// Offset of the first byte that follows.
    pub offset: u64,
    /// Key of its content.
    pub source: Key,
    /// Its path, not checked yet.
    pub path: Vec<u8>,
}

/// What a receiver has of a file from an earlier session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Have {
    /// The file's path.
    pub path: Key,
    /// Key of its content.
    pub source: Key,
    /// Its beginning; `None` if the complete file was kept.
    pub part: Option<Prefix>,
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
    /// The next file or directory.
    Entry(Entry),
    /// Bytes of the current entry.
    Chunk(&'a [u8]),
    /// This number of bytes of it, all zero.
    Zeros(u32),
    /// The chaining value of a group of the current entry that ends here. More bytes follow.
    Mark([u8; 32]),
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
    Have(Have),
    /// The receiver has listed everything that it has.
    Ready,
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
    pub async fn close(mut self) -> Result<(), TransferError> {
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
    let length = (record.len() - HEADER) as u32;
    record[0] = kind;
    record[1..HEADER].copy_from_slice(&length.to_be_bytes());
    to.write_all(record).await?;
    Ok(to.flush().await?)
}

/// Appends the body of `record` and returns its type.
fn emit(record: &Record<'_>, out: &mut Vec<u8>) -> u8 {
    let mut put = |bytes: &[u8]| out.extend_from_slice(bytes);
    match record {
        Record::Total { files, bytes, job } => {
            put(&files.to_be_bytes());
            put(&bytes.to_be_bytes());
            put(&job.0);
            TOTAL
        }
        Record::Entry(entry) => {
            emit_entry(entry, out);
            ENTRY
        }
        Record::Chunk(bytes) => {
            put(bytes);
            CHUNK_TYPE
        }
        Record::Zeros(length) => {
            put(&length.to_be_bytes());
            ZEROS
        }
        Record::Mark(value) => {
            put(value);
            MARK
        }
        Record::Have(have) => {
            emit_have(have, out);
            HAVE
        }
        Record::Ready => READY,
        Record::End(hash) => {
            put(hash);
            END
        }
        Record::Abort(reason) => {
            put(&[*reason as u8]);
            ABORT
        }
        Record::Done { announced, unsent } => {
            put(&announced.to_be_bytes());
            put(&unsent.to_be_bytes());
            DONE
        }
        Record::Result { id, failure, detail } => {
            put(&id.to_be_bytes());
            put(&[failure.map_or(0, |reason| reason as u8)]);
            put(cut(detail, MAX_DETAIL).as_bytes());
            RESULT
        }
        Record::Tally { kept, failed, bytes } => {
            put(&kept.to_be_bytes());
            put(&failed.to_be_bytes());
            put(&bytes.to_be_bytes());
            TALLY
        }
    }
}

/// The longest beginning of `text` with at most `most` bytes.
pub(super) fn cut(text: &str, most: usize) -> &str {
    let end = (0..=text.len().min(most)).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

fn emit_entry(entry: &Entry, out: &mut Vec<u8>) {
    let kind = match entry.kind {
        Kind::File => 0,
        Kind::Directory => 1,
        Kind::Other(kind) => kind,
    };
    out.extend_from_slice(&entry.id.to_be_bytes());
    out.extend_from_slice(&[kind, u8::from(entry.kept)]);
    out.extend_from_slice(&entry.mode.to_be_bytes());
    out.extend_from_slice(&entry.modified.0.to_be_bytes());
    out.extend_from_slice(&entry.modified.1.to_be_bytes());
    out.extend_from_slice(&entry.size.to_be_bytes());
    out.extend_from_slice(&entry.offset.to_be_bytes());
    out.extend_from_slice(&entry.source.0);
    out.extend_from_slice(&(entry.path.len() as u16).to_be_bytes());
    out.extend_from_slice(&entry.path);
}

fn emit_have(have: &Have, out: &mut Vec<u8>) {
    out.push(u8::from(have.part.is_some()));
    out.extend_from_slice(&have.path.0);
    out.extend_from_slice(&have.source.0);
    if let Some(prefix) = &have.part {
        out.extend_from_slice(&prefix.groups().to_be_bytes());
        out.extend_from_slice(prefix.last());
        out.extend(prefix.stack().iter().flatten());
    }
}

/// A body that is read; `None` when it has no more bytes.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }

    /// `value`, if the body has no more bytes.
    fn end<T>(&self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

fn parse(kind: u8, body: &[u8]) -> Result<Record<'_>, TransferError> {
    let body = &mut Body(body);
    let (name, record) = match kind {
        TOTAL => ("TOTAL", parse_total(body)),
        ENTRY => ("ENTRY", parse_entry(body).map(Record::Entry)),
        CHUNK_TYPE => ("CHUNK", (!body.0.is_empty()).then_some(Record::Chunk(body.0))),
        MARK => ("MARK", body.array().and_then(|value| body.end(Record::Mark(value)))),
        ZEROS => ("ZEROS", parse_zeros(body)),
        HAVE => ("HAVE", parse_have(body)),
        READY => ("READY", body.end(Record::Ready)),
        END => ("END", body.array().and_then(|hash| body.end(Record::End(hash)))),
        ABORT => ("ABORT", body.u8().and_then(|reason| body.end(Record::Abort(Reason::from_wire(reason))))),
        DONE => ("DONE", parse_done(body)),
        RESULT => ("RESULT", parse_result(body)),
        TALLY => ("TALLY", parse_tally(body)),
        _ => return Err(TransferError::UnknownRecord(kind)),
    };
    record.ok_or(TransferError::Malformed(name))
}

fn parse_total<'a>(body: &mut Body<'a>) -> Option<Record<'a>> {
    let record = Record::Total { files: body.u32()?, bytes: body.u64()?, job: body.array().map(Key)? };
    body.end(record)
}

fn parse_zeros<'a>(body: &mut Body<'a>) -> Option<Record<'a>> {
    let length = body.u32().filter(|length| (1..=MAX_RECORD as u32).contains(length))?;
    body.end(Record::Zeros(length))
}

fn parse_have<'a>(body: &mut Body<'a>) -> Option<Record<'a>> {
    let kind = body.u8()?;
    let (path, source) = (body.array().map(Key)?, body.array().map(Key)?);
    let part = match kind {
        0 => None,
        1 => {
            let (groups, last) = (body.u64()?, body.array()?);
            let stack = (0..groups.count_ones()).map(|_| body.array()).collect::<Option<_>>()?;
            Some(Prefix::new(groups, last, stack)?)
        }
        _ => return None,
    };
    body.end(Record::Have(Have { path, source, part }))
}

fn parse_entry(body: &mut Body<'_>) -> Option<Entry> {
    let id = body.u32()?;
    let kind = match body.u8()? {
        0 => Kind::File,
        1 => Kind::Directory,
        kind => Kind::Other(kind),
    };
    let kept = body.u8()? & 1 != 0;
    let mode = u16::from_be_bytes(body.array()?) & PERMISSIONS;
    let modified = (body.array().map(i64::from_be_bytes)?, body.u32().filter(|nanos| *nanos < 1_000_000_000)?);
    let (size, offset) = (body.u64()?, body.u64()?);
    let source = body.array().map(Key)?;
    let length = body.array().map(u16::from_be_bytes)?;
    let path = body.take(usize::from(length))?.to_vec();
    Some(Entry { id, kind, mode, kept, modified, size, offset, source, path })
}

fn parse_done<'a>(body: &mut Body<'a>) -> Option<Record<'a>> {
    let record = Record::Done { announced: body.u32()?, unsent: body.u32()? };
    body.end(record)
}

fn parse_result<'a>(body: &mut Body<'a>) -> Option<Record<'a>> {
    let id = body.u32()?;
    let failure = match body.u8()? {
        0 => None,
        reason => Some(Reason::from_wire(reason)),
    };
    let detail = std::str::from_utf8(body.0).ok().filter(|detail| detail.len() <= MAX_DETAIL)?;
    Some(Record::Result { id, failure, detail })
}

fn parse_tally<'a>(body: &mut Body<'a>) -> Option<Record<'a>> {
    Some(Record::Tally { kept: body.u32()?, failed: body.u32()?, bytes: body.u64()? })
}
