//! The content of a source symbol (docs/wire.md section 6): its header and its stream frames.
//!
//! The lane's sender writes frames into the open symbol with [`OpenStream`], which extends the last STREAM
//! frame while the new bytes follow it. The lane's receiver reads a delivered symbol with [`SymbolFrames`].
//! All packets behind a decoded symbol were authentic, so a malformed symbol is a bug of the peer.

use super::bytes::{Full, Reader, VARINT_MAX, Writer, varint_len};
use super::frame::Malformed;

/// Bytes of a symbol before its frames.
pub const SYMBOL_HEADER_LEN: usize = 5;
/// Types from here up are ignorable.
const IGNORABLE: u8 = 0x40;
/// Maximum number of bytes in one [`OpenStream`], whose length is a varint of two bytes.
const OPEN_MAX: usize = 0x3fff;

mod kind {
    pub(super) const PADDING: u8 = 0x00;
    pub(super) const RESET: u8 = 0x01;
    pub(super) const STOP: u8 = 0x02;
    pub(super) const STREAM: u8 = 0x08;
    pub(super) const STREAM_LAST: u8 = 0x0f;
    pub(super) const MESSAGE: u8 = 0x10;
    pub(super) const MESSAGE_LAST: u8 = 0x17;
    pub(super) const BEGINS: u8 = 1;
    pub(super) const ENDS: u8 = 2;
    pub(super) const IN_ORDER: u8 = 4;
    pub(super) const FIN: u8 = 1;
    pub(super) const LENGTH: u8 = 2;
    pub(super) const OFFSET: u8 = 4;
}

/// The first five bytes of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SymbolHeader {
    /// Bytes of the symbol, these five included. Any further bytes of a decoded symbol are padding of the
    /// code.
    pub length: u16,
    /// The sender's clock at the first transmission, in units of 16 us, modulo [`super::TIME_MODULUS`].
    pub time: u32,
}

impl SymbolHeader {
    /// Parses the header and checks `length` against the available bytes.
    pub fn parse(symbol: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(symbol);
        let header = Self { length: reader.u16()?, time: reader.u24()? };
        if !(SYMBOL_HEADER_LEN..=symbol.len()).contains(&usize::from(header.length)) {
            return Err(Malformed::Field("length"));
        }
        Ok(header)
    }

    /// Writes the header over the first five bytes of `symbol`.
    pub fn emit(&self, symbol: &mut [u8]) -> Result<(), Full> {
        let mut w = Writer::new(symbol);
        w.atomically(|w| {
            w.u16(self.length)?;
            w.u24(self.time)
        })
    }
}

/// One frame inside a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a version of the wire format has these")]
pub enum SymbolFrame<'a> {
    /// Bytes of a stream.
    Stream {
        /// The stream; even ids belong to the initiator.
        stream: u64,
        /// Offset of the bytes in the stream; they end below 2^62.
        offset: u64,
        /// The bytes end the stream.
        fin: bool,
        /// The bytes; may be none.
        data: &'a [u8],
        /// Offset of the bytes in the symbol.
        data_at: usize,
    },
    /// Bytes of a message: the whole message, or the part in this symbol if the message spans several
    /// symbols.
    Message {
        /// The message begins with these bytes. Otherwise its previous part ends the previous symbol.
        begins: bool,
        /// The message ends with these bytes. Otherwise its next part begins the next symbol.
        ends: bool,
        /// The message is delivered after earlier ones, rather than as soon as it is whole. Valid where the
        /// message begins.
        in_order: bool,
        /// The bytes; may be none.
        data: &'a [u8],
    },
    /// The sender abandons the stream.
    Reset {
        /// The stream.
        stream: u64,
        /// Error code of the application.
        code: u64,
        /// The stream's length in bytes.
        last: u64,
    },
    /// The receiver will not read more of the stream.
    Stop {
        /// The stream.
        stream: u64,
        /// Error code of the application.
        code: u64,
    },
}

/// Iterates over the frames of one symbol and skips padding and ignorable types. Ends after the first error.
#[derive(Clone, Debug)]
pub struct SymbolFrames<'a> {
    reader: Reader<'a>,
    total: usize,
}

impl<'a> SymbolFrames<'a> {
    /// Parses the header of `symbol` and starts at its first frame.
    pub fn new(symbol: &'a [u8]) -> Result<(SymbolHeader, Self), Malformed> {
        let header = SymbolHeader::parse(symbol)?;
        let total = usize::from(header.length);
        let mut reader = Reader::new(Reader::new(symbol).bytes(total)?);
        reader.bytes(SYMBOL_HEADER_LEN)?;
        Ok((header, Self { reader, total }))
    }

    /// Whether nothing follows the frames that were taken.
    pub(crate) const fn is_over(&self) -> bool {
        self.reader.is_empty()
    }

    fn step(&mut self) -> Result<Option<SymbolFrame<'a>>, Malformed> {
        while !self.reader.is_empty() {
            match self.reader.u8()? {
                kind::PADDING => {
                    self.reader.take_rest();
                }
                kind @ kind::STREAM..=kind::STREAM_LAST => return self.stream(kind).map(Some),
                kind @ kind::MESSAGE..=kind::MESSAGE_LAST => {
                    let len = usize::try_from(self.reader.varint()?).map_err(|_| Malformed::Truncated)?;
                    let has = |bit| kind & bit != 0;
                    return Ok(Some(SymbolFrame::Message {
                        begins: has(kind::BEGINS),
                        ends: has(kind::ENDS),
                        in_order: has(kind::IN_ORDER),
                        data: self.reader.bytes(len)?,
                    }));
                }
                kind::RESET => {
                    let (stream, code) = (self.reader.varint()?, self.reader.varint()?);
                    return Ok(Some(SymbolFrame::Reset { stream, code, last: self.reader.varint()? }));
                }
                kind::STOP => {
                    let (stream, code) = (self.reader.varint()?, self.reader.varint()?);
                    return Ok(Some(SymbolFrame::Stop { stream, code }));
                }
                IGNORABLE.. => {
                    let len = self.reader.varint()?;
                    self.reader.bytes(usize::try_from(len).map_err(|_| Malformed::Truncated)?)?;
                }
                _ => return Err(Malformed::UnknownType),
            }
        }
        Ok(None)
    }

    fn stream(&mut self, kind: u8) -> Result<SymbolFrame<'a>, Malformed> {
        let r = &mut self.reader;
        let stream = r.varint()?;
        let offset = if kind & kind::OFFSET != 0 { r.varint()? } else { 0 };
        let len = match kind & kind::LENGTH {
            0 => r.remaining(),
            _ => usize::try_from(r.varint()?).map_err(|_| Malformed::Truncated)?,
        };
        let data_at = self.total.saturating_sub(r.remaining());
        let data = r.bytes(len)?;
        if offset.saturating_add(data.len() as u64) > VARINT_MAX {
            return Err(Malformed::Field("offset"));
        }
        Ok(SymbolFrame::Stream { stream, offset, fin: kind & kind::FIN != 0, data, data_at })
    }
}

impl<'a> Iterator for SymbolFrames<'a> {
    type Item = Result<SymbolFrame<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.step();
        if item.is_err() {
            self.reader.take_rest();
        }
        item.transpose()
    }
}

impl SymbolFrame<'_> {
    /// Writes the frame, all or nothing. A STREAM frame that grows is an [`OpenStream`] instead.
    pub fn emit(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        w.atomically(|w| match *self {
            Self::Stream { stream, offset, fin, data, data_at: _ } => {
                let offset_bit = if offset > 0 { kind::OFFSET } else { 0 };
                w.u8(kind::STREAM | kind::LENGTH | offset_bit | if fin { kind::FIN } else { 0 })?;
                w.varint(stream)?;
                if offset > 0 {
                    w.varint(offset)?;
                }
                w.varint(data.len() as u64)?;
                w.bytes(data)
            }
            Self::Message { begins, ends, in_order, data } => {
                let bit = |set: bool, bit: u8| if set { bit } else { 0 };
                let bits = bit(begins, kind::BEGINS) | bit(ends, kind::ENDS) | bit(in_order, kind::IN_ORDER);
                w.u8(kind::MESSAGE | bits)?;
                w.varint(data.len() as u64)?;
                w.bytes(data)
            }
            Self::Reset { stream, code, last } => {
                w.u8(kind::RESET)?;
                w.varint(stream)?;
                w.varint(code)?;
                w.varint(last)
            }
            Self::Stop { stream, code } => {
                w.u8(kind::STOP)?;
                w.varint(stream)?;
                w.varint(code)
            }
        })
    }
}

/// Bytes of a message that fit into one MESSAGE frame in `room` bytes; `None` if not even its header fits.
pub(crate) const fn message_room(room: usize) -> Option<usize> {
    room.checked_sub(1_usize.saturating_add(varint_len(room as u64)))
}

/// The STREAM frame at the end of an open symbol.
///
/// `begin` writes its header with a length of two bytes, `append` adds bytes and patches the length, and
/// `finish` sets the end-of-stream bit. The writer must stand at the end of this frame. If anything else was
/// written to the symbol, the frame is closed and the next bytes need a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenStream {
    stream: u64,
    /// Offset of the next byte in the stream.
    next: u64,
    type_at: usize,
    type_byte: u8,
    length_at: usize,
    len: usize,
}

impl OpenStream {
    /// Bytes of the header, without the frame's data.
    pub(crate) const fn header_len(stream: u64, offset: u64) -> usize {
        let offset_len = if offset > 0 { varint_len(offset) } else { 0 };
        // Type and length.
        3_usize.saturating_add(varint_len(stream)).saturating_add(offset_len)
    }

    /// Writes the header of a frame without data. `offset` is the stream offset of its first byte.
    pub fn begin(w: &mut Writer<'_>, stream: u64, offset: u64) -> Result<Self, Full> {
        let type_at = w.len();
        let type_byte = kind::STREAM | kind::LENGTH | if offset > 0 { kind::OFFSET } else { 0 };
        w.atomically(|w| {
            w.u8(type_byte)?;
            w.varint(stream)?;
            if offset > 0 {
                w.varint(offset)?;
            }
            let length_at = w.len();
            w.bytes(&two_byte_varint(0))?;
            Ok(Self { stream, next: offset, type_at, type_byte, length_at, len: 0 })
        })
    }

    /// Whether bytes of `stream` at `offset` directly follow this frame and may be appended.
    pub const fn continues(&self, stream: u64, offset: u64) -> bool {
        self.stream == stream && self.next == offset && self.type_byte & kind::FIN == 0 && self.len < OPEN_MAX
    }

    /// Appends as many bytes of `data` as symbol and frame have room for. Returns their number.
    pub fn append(&mut self, w: &mut Writer<'_>, data: &[u8]) -> usize {
        debug_assert_eq!(w.len(), self.length_at.saturating_add(2).saturating_add(self.len), "the frame is over");
        let room = w.remaining().min(OPEN_MAX.saturating_sub(self.len));
        let taken = data.get(..room).unwrap_or(data);
        let len = self.len.saturating_add(taken.len());
        // Neither fails: the room was checked, and the length field lies before the bytes just written.
        if w.bytes(taken).and_then(|()| w.patch(self.length_at, &two_byte_varint(len as u16))).is_err() {
            return 0;
        }
        self.len = len;
        self.next = self.next.saturating_add(taken.len() as u64);
        taken.len()
    }

    /// Marks this frame as the end of the stream.
    pub fn finish(&mut self, w: &mut Writer<'_>) {
        self.type_byte |= kind::FIN;
        // `begin` wrote the type.
        let _ = w.patch(self.type_at, &[self.type_byte]);
    }
}

const fn two_byte_varint(value: u16) -> [u8; 2] {
    (value | 0x4000).to_be_bytes()
}
