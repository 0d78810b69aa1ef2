//! Blocks: a body with its kind, its lengths and a checksum (docs/recording.md, "Format").

use std::io::{self, Read, Write};

use super::MAX_BODY;
use super::reader::ReadError;

/// The first bytes of a file.
pub(crate) const MAGIC: [u8; 8] = [0x89, b'T', b'W', b'R', b'\r', b'\n', 0x1a, b'\n'];
/// The version that is written, and the only one that is read.
pub(crate) const VERSION: u16 = 2;
/// Bytes before the first block.
pub(crate) const PREFIX: usize = 12;
/// Bytes of a block before its body.
pub(crate) const HEAD: usize = 13;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Header = 1,
    Events = 2,
    End = 3,
}

/// Writes a block. Returns its length.
pub(crate) fn write(out: &mut impl Write, kind: Kind, body: &[u8]) -> io::Result<u64> {
    let packed = lz4_flex::block::compress(body);
    let mut block = Vec::with_capacity(HEAD + packed.len());
    block.push(kind as u8);
    block.extend_from_slice(&(packed.len() as u32).to_le_bytes());
    block.extend_from_slice(&(body.len() as u32).to_le_bytes());
    block.extend_from_slice(&checksum(&block, &packed).to_le_bytes());
    block.extend_from_slice(&packed);
    // One write: a job that is killed leaves whole blocks in nearly every case.
    out.write_all(&block)?;
    Ok(block.len() as u64)
}

/// Reads a block that begins at `offset` of the file. `None` at the end of the file.
pub(crate) fn read(input: &mut impl Read, offset: u64) -> Result<Option<(Kind, Vec<u8>, u64)>, ReadError> {
    let mut head = [0; HEAD];
    match fill(input, &mut head)? {
        0 => return Ok(None),
        HEAD => {}
        _ => return Err(ReadError::Truncated { offset }),
    }
    let [kind, lengths @ ..] = head;
    let [a, b, c, d, e, f, g, h, sum @ ..] = lengths;
    let packed_len = u32::from_le_bytes([a, b, c, d]) as usize;
    let len = u32::from_le_bytes([e, f, g, h]) as usize;
    if packed_len > lz4_flex::block::get_maximum_output_size(MAX_BODY) || len > MAX_BODY {
        return Err(ReadError::Damaged { offset });
    }
    let mut packed = vec![0; packed_len];
    if fill(input, &mut packed)? < packed_len {
        return Err(ReadError::Truncated { offset });
    }
    if checksum(&head[..HEAD - 4], &packed) != u32::from_le_bytes(sum) {
        return Err(ReadError::Damaged { offset });
    }
    let body = lz4_flex::block::decompress(&packed, len).map_err(|_| ReadError::Damaged { offset })?;
    let kind = match kind {
        1 => Kind::Header,
        2 => Kind::Events,
        3 => Kind::End,
        _ => return Err(ReadError::Damaged { offset }),
    };
    Ok(Some((kind, body, (HEAD + packed_len) as u64)))
}

/// Reads until `buffer` is full or the file ends. Returns the number of bytes.
pub(crate) fn fill(input: &mut impl Read, buffer: &mut [u8]) -> Result<usize, ReadError> {
    let mut len = 0;
    while let Some(rest) = buffer.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(ReadError::Io(error)),
        }
    }
    Ok(len)
}

fn checksum(head: &[u8], packed: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(packed);
    hasher.finalize()
}
