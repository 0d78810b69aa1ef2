//! Reads a recording, whatever the file holds.

use core::time::Duration;
use std::io::{self, Read};

use tidewire_proto::endpoint::ConnectionHandle;

use super::block::{self, Kind, MAGIC, PREFIX, VERSION};
use super::bytes::{Corrupt, Decoder, Pass};
use super::{Entry, Header, Item, event};

/// Why a file, or the rest of it, is not read. What was read before is valid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot read: {0}")]
    Io(io::Error),
    /// The file is not a recording.
    #[error("not a recording: it does not begin like one; name a file of --record")]
    Foreign,
    /// The file is a recording of another version.
    #[error("a recording of version {0}, and this program reads version {VERSION}")]
    Version(u16),
    /// The file ends within a block, or without the end of a recording: the job was killed, or still runs.
    #[error("the recording is cut off at byte {offset}: its job was killed, or still runs")]
    Truncated {
        /// Offset of the block in bytes.
        offset: u64,
    },
    /// A block has a wrong checksum or impossible lengths.
    #[error("the block at byte {offset} is damaged")]
    Damaged {
        /// Offset of the block in bytes.
        offset: u64,
    },
    /// The content of a block is wrong although its checksum is right: the file was not written by Tidewire.
    #[error("the block at byte {offset} is wrong at byte {within} of its content: {what}")]
    Corrupt {
        /// Offset of the block in bytes.
        offset: u64,
        /// Offset in the decompressed body, in bytes.
        within: usize,
        /// What is wrong.
        what: Corrupt,
    },
}

/// Goes over the fields of a header. Only reading can fail.
pub(crate) fn visit_header<P: Pass>(
    program: &mut String,
    verb: &mut String,
    began_unix_ms: &mut u64,
    pass: &mut P,
) -> Option<Corrupt> {
    pass.text(program).and_then(|()| pass.text(verb)).and_then(|()| pass.number(began_unix_ms)).err()
}

/// Reads a recording block by block.
#[derive(Debug)]
pub struct Reader<R: Read> {
    input: R,
    header: Header,
    offset: u64,
    is_over: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// The file is no recording, is one of another version, or ends within the header.
    pub fn open(mut input: R) -> Result<Self, ReadError> {
        let mut prefix = [0; PREFIX];
        let len = block::fill(&mut input, &mut prefix)?;
        let known = len.min(MAGIC.len());
        if len == 0 || prefix[..known] != MAGIC[..known] {
            return Err(ReadError::Foreign);
        }
        if len < PREFIX {
            return Err(ReadError::Truncated { offset: len as u64 });
        }
        let version = u16::from_le_bytes([prefix[8], prefix[9]]);
        if version != VERSION {
            return Err(ReadError::Version(version));
        }
        let offset = PREFIX as u64;
        let (kind, body, len) = block::read(&mut input, offset)?.ok_or(ReadError::Truncated { offset })?;
        if kind != Kind::Header {
            return Err(ReadError::Damaged { offset });
        }
        let mut header = Header::default();
        let mut decoder = Decoder::new(&body);
        let Header { program, verb, began_unix_ms } = &mut header;
        if let Some(what) = visit_header(program, verb, began_unix_ms, &mut decoder) {
            return Err(ReadError::Corrupt { offset, within: body.len() - decoder.remaining(), what });
        }
        Ok(Self { input, header, offset: offset + len, is_over: false })
    }

    /// About the job.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Bytes of the file that were read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Passes the items of the next block to `each`. Returns whether there was one: `false` at the end.
    ///
    /// # Errors
    /// The rest of the file cannot be read. Items of the damaged block that came before the damage were
    /// passed.
    pub fn next_items(&mut self, each: &mut dyn FnMut(&Item)) -> Result<bool, ReadError> {
        if self.is_over {
            return Ok(false);
        }
        let offset = self.offset;
        let Some((kind, body, len)) = block::read(&mut self.input, offset)? else {
            return Err(ReadError::Truncated { offset });
        };
        self.offset += len;
        match kind {
            Kind::Events => {
                let mut decoder = Decoder::new(&body);
                take_items(&mut decoder, each).map_err(|what| ReadError::Corrupt {
                    offset,
                    within: body.len() - decoder.remaining(),
                    what,
                })?;
                Ok(true)
            }
            Kind::End => {
                self.is_over = true;
                Ok(false)
            }
            Kind::Header => Err(ReadError::Damaged { offset }),
        }
    }

    /// Reads all items that can be read, and why the rest cannot.
    pub fn read_all(&mut self) -> (Vec<Item>, Option<ReadError>) {
        let mut items = Vec::new();
        loop {
            match self.next_items(&mut |item| items.push(item.clone())) {
                Ok(true) => {}
                Ok(false) => return (items, None),
                Err(error) => return (items, Some(error)),
            }
        }
    }
}

/// Reads the entries of a block. They are passed on where they are made: an entry is long, and there are
/// millions of them.
fn take_items(decoder: &mut Decoder<'_>, each: &mut dyn FnMut(&Item)) -> Result<(), Corrupt> {
    let mut micros = 0;
    decoder.number(&mut micros)?;
    let (mut endpoint, mut connection) = (0, ConnectionHandle(0));
    while decoder.remaining() > 0 {
        let mut tag = 0;
        decoder.byte(&mut tag)?;
        micros = micros.wrapping_add(decoder.signed()? as u64);
        let at = Duration::from_micros(micros);
        match tag {
            0 => {
                let mut number = 0;
                decoder.number(&mut number)?;
                endpoint = u32::try_from(number).map_err(|_| Corrupt::Value("endpoint"))?;
                decoder.number(&mut connection.0)?;
            }
            1 => {
                let mut events = 0;
                decoder.number(&mut events)?;
                each(&Item::Missed { at, events });
            }
            _ => {
                let event = event::take(decoder, tag)?;
                each(&Item::Event(Entry { at, endpoint, connection, event }));
            }
        }
    }
    Ok(())
}
