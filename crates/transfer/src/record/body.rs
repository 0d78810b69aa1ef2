//! The bodies of records on the wire (`docs/transfer.md` sections 2 and 3). Invariant: a body that parses has
//! no bytes left, except an ENTRY and a TALLY, where they belong to later versions.

use super::{
    Attributes, Claim, Encoding, Entry, Have, Key, Kind, Link, Look, MAX_DETAIL, MAX_RECORD, Prefix, Reason, Record,
    TransferError,
};

use crate::link_target::MAX_TARGET;

/// Bits of a mode that are transferred: no set-user-id, set-group-id or sticky bit.
pub(crate) const PERMISSIONS: u16 = 0o777;

const TOTAL: u8 = 0x01;
const ENTRY: u8 = 0x02;
pub(super) const CHUNK_TYPE: u8 = 0x03;
const END: u8 = 0x04;
const ABORT: u8 = 0x05;
const DONE: u8 = 0x06;
const MARK: u8 = 0x07;
pub(super) const ZEROS: u8 = 0x08;
const LOOK: u8 = 0x09;
const CLAIM: u8 = 0x0a;
const SKIP: u8 = 0x0b;
const BACK: u8 = 0x0c;
const LINK: u8 = 0x0d;
const RESULT: u8 = 0x11;
const TALLY: u8 = 0x12;
const HAVE: u8 = 0x13;
const DIFFERS: u8 = 0x15;

/// Appends the body of `record` and returns its type.
pub(super) fn emit(record: &Record<'_>, out: &mut Vec<u8>) -> u8 {
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
        Record::Look(look) => {
            emit_look(look, out);
            LOOK
        }
        Record::Link(link) => {
            emit_link(link, out);
            LINK
        }
        Record::Claim(claim) => {
            put(&claim.id.to_be_bytes());
            emit_attributes(claim.attributes, out);
            out.extend_from_slice(&claim.hash);
            CLAIM
        }
        Record::Skip(id) => {
            put(&id.to_be_bytes());
            SKIP
        }
        Record::Back(offset) => {
            put(&offset.to_be_bytes());
            BACK
        }
        Record::Have { id, have } => {
            put(&id.to_be_bytes());
            emit_have(have, out);
            HAVE
        }
        Record::Differs(id) => {
            put(&id.to_be_bytes());
            DIFFERS
        }
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
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=text.len().min(most)).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

fn emit_look(look: &Look, out: &mut Vec<u8>) {
    let kind = match look.kind {
        Kind::File => 0,
        Kind::Directory => 1,
        Kind::Other(kind) => kind,
    };
    out.extend_from_slice(&look.id.to_be_bytes());
    out.extend_from_slice(&[kind, encoding_byte(look.encoding)]);
    out.extend_from_slice(&look.size.to_be_bytes());
    out.extend_from_slice(&look.source.0);
    out.extend_from_slice(&(look.path.len() as u16).to_be_bytes());
    out.extend_from_slice(&look.path);
}

fn encoding_byte(encoding: Encoding) -> u8 {
    match encoding {
        Encoding::Utf8 => 0,
        Encoding::Raw => 1,
        Encoding::Other(encoding) => encoding,
    }
}

fn emit_link(link: &Link, out: &mut Vec<u8>) {
    out.extend_from_slice(&link.id.to_be_bytes());
    out.push(encoding_byte(link.encoding));
    out.extend_from_slice(&(link.path.len() as u16).to_be_bytes());
    out.extend_from_slice(&link.path);
    out.extend_from_slice(&link.target);
}

fn emit_entry(entry: &Entry, out: &mut Vec<u8>) {
    out.extend_from_slice(&entry.id.to_be_bytes());
    emit_attributes(entry.attributes, out);
    out.extend_from_slice(&entry.size.to_be_bytes());
    out.extend_from_slice(&entry.offset.to_be_bytes());
    out.extend_from_slice(&entry.source.0);
}

fn emit_attributes(attributes: Attributes, out: &mut Vec<u8>) {
    out.extend_from_slice(&attributes.mode.to_be_bytes());
    out.extend_from_slice(&attributes.modified.0.to_be_bytes());
    out.extend_from_slice(&attributes.modified.1.to_be_bytes());
}

fn emit_have(have: &Have, out: &mut Vec<u8>) {
    match have {
        Have::Nothing => out.push(0),
        Have::Standing => out.push(1),
        Have::Beginning(prefix) => {
            out.push(2);
            out.extend_from_slice(&prefix.groups().to_be_bytes());
            out.extend(prefix.stack().iter().flatten());
        }
        Have::OtherVersion => out.push(3),
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

pub(super) fn parse(kind: u8, body: &[u8]) -> Result<Record<'_>, TransferError> {
    let body = &mut Body(body);
    let (name, record) = match kind {
        TOTAL => ("TOTAL", parse_total(body)),
        ENTRY => ("ENTRY", parse_entry(body).map(Record::Entry)),
        CHUNK_TYPE => ("CHUNK", (!body.0.is_empty()).then_some(Record::Chunk(body.0))),
        MARK => ("MARK", body.array().and_then(|value| body.end(Record::Mark(value)))),
        ZEROS => ("ZEROS", parse_zeros(body)),
        LOOK => ("LOOK", parse_look(body)),
        CLAIM => ("CLAIM", parse_claim(body)),
        LINK => ("LINK", parse_link(body)),
        SKIP => ("SKIP", body.u32().and_then(|id| body.end(Record::Skip(id)))),
        BACK => ("BACK", body.u64().and_then(|offset| body.end(Record::Back(offset)))),
        HAVE => ("HAVE", parse_have(body)),
        DIFFERS => ("DIFFERS", body.u32().and_then(|id| body.end(Record::Differs(id)))),
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

fn parse_look<'a>(body: &mut Body<'a>) -> Option<Record<'a>> {
    let id = body.u32()?;
    let kind = match body.u8()? {
        0 => Kind::File,
        1 => Kind::Directory,
        kind => Kind::Other(kind),
    };
    let encoding = parse_encoding(body)?;
    let (size, source) = (body.u64()?, body.array().map(Key)?);
    let path = parse_path(body)?;
    body.end(Record::Look(Look { id, kind, encoding, size, source, path }))
}

fn parse_link<'a>(body: &mut Body<'a>) -> Option<Record<'a>> {
    let (id, encoding, path) = (body.u32()?, parse_encoding(body)?, parse_path(body)?);
    let target = body.0.to_vec();
    (1..=MAX_TARGET).contains(&target.len()).then_some(Record::Link(Link { id, encoding, path, target }))
}

fn parse_encoding(body: &mut Body<'_>) -> Option<Encoding> {
    Some(match body.u8()? {
        0 => Encoding::Utf8,
        1 => Encoding::Raw,
        encoding => Encoding::Other(encoding),
    })
}

/// A path behind its length.
fn parse_path(body: &mut Body<'_>) -> Option<Vec<u8>> {
    let length = body.array().map(u16::from_be_bytes)?;
    Some(body.take(usize::from(length))?.to_vec())
}

fn parse_claim<'a>(body: &mut Body<'a>) -> Option<Record<'a>> {
    let claim = Claim { id: body.u32()?, attributes: parse_attributes(body)?, hash: body.array()? };
    body.end(Record::Claim(claim))
}

fn parse_have<'a>(body: &mut Body<'a>) -> Option<Record<'a>> {
    let id = body.u32()?;
    let have = match body.u8()? {
        0 => Have::Nothing,
        1 => Have::Standing,
        2 => {
            let groups = body.u64()?;
            let stack = (0..groups.count_ones()).map(|_| body.array()).collect::<Option<_>>()?;
            Have::Beginning(Prefix::new(groups, stack)?)
        }
        3 => Have::OtherVersion,
        _ => return None,
    };
    body.end(Record::Have { id, have })
}

fn parse_entry(body: &mut Body<'_>) -> Option<Entry> {
    let (id, attributes) = (body.u32()?, parse_attributes(body)?);
    let (size, offset) = (body.u64()?, body.u64()?);
    Some(Entry { id, attributes, size, offset, source: body.array().map(Key)? })
}

fn parse_attributes(body: &mut Body<'_>) -> Option<Attributes> {
    let mode = u16::from_be_bytes(body.array()?) & PERMISSIONS;
    let modified = (body.array().map(i64::from_be_bytes)?, body.u32().filter(|nanos| *nanos < 1_000_000_000)?);
    Some(Attributes { mode, modified })
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
