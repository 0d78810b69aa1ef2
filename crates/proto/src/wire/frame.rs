//! The frames of a packet (docs/wire.md section 5). [`Frame`] is one frame; [`Frames`] iterates over them.
//!
//! The connection runs [`Frames`] over the payload of every authentic packet. It validates a frame completely
//! before it yields the frame, so later use of the frame cannot fail. The first malformed frame ends the
//! iteration and closes the connection. PAD and ignorable types are skipped here.

use core::fmt;

use tidewire_codec::{Code, RepairId, SourceId};

use super::bytes::{Full, Reader, Truncated, VARINT_MAX, Writer, varint_len};
use super::code::{code_len, read_code, write_code};
use super::feedback::Feedback;
use super::header::ConnectionId;
use super::recoded::{Ranks, Recoded};
use super::train::{self, TrainReport};

/// Maximum length of the reason of a CLOSE and of the text of a POLICY, in bytes.
pub(crate) const MAX_TEXT: usize = 256;
/// Maximum length of a REKEY message in bytes, more than twice the length of those of version 1, which have
/// 48 and 96.
pub(super) const MAX_NOISE: usize = 256;
/// Maximum length of a span on the wire, in symbols. It bounds the decoder's memory.
pub(crate) const MAX_SPAN: u64 = 1024;
/// Maximum length of a source symbol, so that it fits the largest UDP payload beside packet and repair
/// headers.
pub(crate) const MAX_SYMBOL: usize = 65_472;
/// Types from here up are ignorable.
const IGNORABLE: u64 = 0x40;

mod kind {
    pub(super) const PAD: u8 = 0x00;
    pub(super) const PING: u8 = 0x01;
    pub(super) const FEEDBACK: u8 = 0x02;
    pub(super) const CLOSE: u8 = 0x03;
    pub(super) const POLICY: u8 = 0x04;
    pub(super) const PATH_CHALLENGE: u8 = 0x05;
    pub(super) const PATH_RESPONSE: u8 = 0x06;
    pub(super) const NEW_CID: u8 = 0x07;
    pub(super) const SLICE: u8 = 0x08;
    pub(super) const BASE: u8 = 0x09;
    pub(super) const REKEY: u8 = 0x0a;
    pub(super) const SLICE_OF_GENERATIONS: u8 = 0x0b;
    pub(super) const TRAIN: u8 = 0x0c;
    pub(super) const TRAIN_REPORT: u8 = 0x0d;
    pub(super) const RANKS: u8 = 0x0e;
    pub(super) const HOST_DROPS: u8 = 0x0f;
    pub(super) const SOURCE: u8 = 0x10;
    pub(super) const SOURCE_AGAIN: u8 = 0x11;
    pub(super) const REPAIR: u8 = 0x12;
    pub(super) const REPAIR_ON_FEEDBACK: u8 = 0x13;
    pub(super) const RECODED: u8 = 0x18;
    /// Added to the four types above for a lane in generations.
    pub(super) const OF_GENERATIONS: u8 = 0x04;
}

/// How the symbols of a lane are coded together. It never changes during the life of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// Spans are any adjacent symbols.
    #[default]
    Sliding,
    /// Spans are closed generations.
    Generations,
}

impl Layout {
    /// The frame type of this layout, given the type for a sliding lane.
    const fn kind(self, sliding: u8) -> u8 {
        match self {
            Self::Sliding => sliding,
            Self::Generations => sliding | kind::OF_GENERATIONS,
        }
    }

    /// The layout that a type of SRC or REPAIR indicates.
    const fn of(kind: u8) -> Self {
        if kind & kind::OF_GENERATIONS == 0 { Self::Sliding } else { Self::Generations }
    }
}

/// What is wrong with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// The packet or the section ends before the frame does.
    Truncated,
    /// An undefined type below 0x40, or a type that is not in its shortest form.
    UnknownType,
    /// A field has a forbidden value; carries the field's name.
    Field(&'static str),
    /// A code that this side did not offer; carries the code point.
    UnknownCode(u8),
    /// A text is not UTF-8.
    NotText,
}

impl From<Truncated> for Malformed {
    fn from(Truncated: Truncated) -> Self {
        Self::Truncated
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("ends too early"),
            Self::UnknownType => f.write_str("has an unknown type"),
            Self::Field(name) => write!(f, "has a field out of range: {name}"),
            Self::UnknownCode(code) => write!(f, "names code {code}, which was not offered"),
            Self::NotText => f.write_str("has a text that is not UTF-8"),
        }
    }
}

/// A malformed frame in an authentic packet. The peer has a bug, and the connection closes with `malformed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameError {
    /// The frame's type.
    pub frame: u64,
    /// Offset of the frame in the payload, in bytes.
    pub offset: usize,
    /// What is wrong with it.
    pub kind: Malformed,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frame of type {:#04x} at byte {} {}", self.frame, self.offset, self.kind)
    }
}

impl core::error::Error for FrameError {}

/// One frame, borrowed from its packet. A frame made of parsed parts can be emitted.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "a version of the wire format has these")]
pub enum Frame<'a> {
    /// Asks for an acknowledgement and has no other content.
    Ping,
    /// The peer's report: packets received, symbols decoded, deficits and credit.
    Feedback(Feedback<'a>),
    /// Ends the connection.
    Close {
        /// Error code; codes from 256 up belong to the application.
        code: u64,
        /// Reason as text for people; at most `MAX_TEXT` bytes.
        reason: &'a str,
    },
    /// Layout, code and redundancy that the peer requests from us, as text; at most `MAX_TEXT` bytes.
    Policy(&'a str),
    /// A token that the receiver must echo on the same path.
    PathChallenge([u8; 8]),
    /// The echo of a challenge.
    PathResponse([u8; 8]),
    /// A further connection id for the sender of the frame.
    NewCid {
        /// Sequence number of the id among those of its sender.
        sequence: u64,
        /// Ids with a lower sequence number are retired; at most `sequence`.
        retire: u64,
        /// The path of packets to this id.
        path: u32,
        /// The connection id.
        id: ConnectionId,
    },
    /// Part of a source symbol that no longer fits the path.
    Slice {
        /// The symbol's lane.
        lane: u32,
        /// The lane's layout.
        layout: Layout,
        /// The source id of the symbol.
        id: SourceId,
        /// Offset of these bytes in the symbol.
        offset: usize,
        /// Length of the symbol; at most `MAX_SYMBOL`.
        total: usize,
        /// At least one byte; they end at or before `total`.
        bytes: &'a [u8],
    },
    /// Gives up symbols of a lane of messages, when no symbol that could carry the base is sent.
    Base {
        /// The lane.
        lane: u32,
        /// The sender will send no lower symbol of the lane.
        base: SourceId,
    },
    /// A message of a Noise handshake inside the session.
    Rekey {
        /// Number of the exchange within the session, from 1.
        number: u64,
        /// The initiator's first message or the responder's second; at most 256 bytes (`MAX_NOISE`).
        message: &'a [u8],
    },
    /// This packet number and those after it, this many in all, form a train; 2 to 1,024.
    Train(u16),
    /// Arrival times of a train.
    TrainReport(TrainReport),
    /// What arrived on the relayed lane.
    Ranks(Ranks<'a>),
    /// Packets that reached the host of this end and were dropped before they were read, in all.
    HostDrops(u64),
    /// A combination of symbols of the relayed lane.
    Recoded(Recoded<'a>),
    /// A source symbol, sent unmixed.
    Source {
        /// The symbol's lane.
        lane: u32,
        /// The lane's layout.
        layout: Layout,
        /// The source id of the symbol.
        id: SourceId,
        /// The sender will send no lower symbol of the lane.
        base: SourceId,
        /// The same symbol was sent before.
        again: bool,
        /// The symbol, up to the end of the packet.
        symbol: &'a [u8],
    },
    /// A combination of the source symbols of a span.
    Repair {
        /// The span's lane.
        lane: u32,
        /// The lane's layout.
        layout: Layout,
        /// The code that defines the coefficients.
        code: Code,
        /// The span and the key of the coefficients.
        id: RepairId,
        /// The sender will send no lower symbol of the lane.
        base: SourceId,
        /// The repair answers a reported deficit. Otherwise it is proactive. Used for counting only.
        on_feedback: bool,
        /// The symbol, up to the end of the packet.
        symbol: &'a [u8],
    },
}

impl<'a> Frame<'a> {
    /// Whether the packet that carries this frame must be acknowledged.
    pub(crate) fn elicits_ack(&self) -> bool {
        match self {
            Self::Feedback(feedback) => feedback.elicits(),
            Self::Close { .. } | Self::Train(_) | Self::TrainReport(_) | Self::Ranks(_) | Self::HostDrops(_) => false,
            _ => true,
        }
    }

    fn parse(kind: u8, r: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match kind {
            kind::PING => Self::Ping,
            kind::FEEDBACK => Self::Feedback(Feedback::parse(r)?),
            kind::CLOSE => Self::Close { code: r.varint()?, reason: text(r)? },
            kind::POLICY => Self::Policy(text(r)?),
            kind::PATH_CHALLENGE => Self::PathChallenge(r.array()?),
            kind::PATH_RESPONSE => Self::PathResponse(r.array()?),
            kind::NEW_CID => new_cid(r)?,
            kind::SLICE => slice(Layout::Sliding, r)?,
            kind::SLICE_OF_GENERATIONS => slice(Layout::Generations, r)?,
            kind::BASE => Self::Base { lane: number(r, "lane")?, base: SourceId(r.varint()?) },
            kind::REKEY => rekey(r)?,
            kind::TRAIN => Self::Train(train::parse_packets(r)?),
            kind::TRAIN_REPORT => Self::TrainReport(TrainReport::parse(r)?),
            kind::RANKS => Self::Ranks(Ranks::parse(r)?),
            kind::HOST_DROPS => Self::HostDrops(r.varint()?),
            kind::RECODED => Self::Recoded(Recoded::parse(r)),
            _ => match kind & !kind::OF_GENERATIONS {
                kind::SOURCE | kind::SOURCE_AGAIN => source(kind, r)?,
                kind::REPAIR | kind::REPAIR_ON_FEEDBACK => repair(kind, r)?,
                _ => return Err(Malformed::UnknownType),
            },
        })
    }

    /// Writes the frame, all or nothing. A received FEEDBACK is repeated byte by byte.
    /// [`super::FeedbackRepr`] writes a new one.
    pub fn emit(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        w.atomically(|w| match *self {
            Self::Ping => w.u8(kind::PING),
            Self::Feedback(feedback) => {
                w.u8(kind::FEEDBACK)?;
                w.bytes(feedback.body())
            }
            Self::Close { code, reason } => {
                w.u8(kind::CLOSE)?;
                w.varint(code)?;
                write_text(w, reason)
            }
            Self::Policy(policy) => {
                w.u8(kind::POLICY)?;
                write_text(w, policy)
            }
            Self::PathChallenge(data) => {
                w.u8(kind::PATH_CHALLENGE)?;
                w.bytes(&data)
            }
            Self::PathResponse(data) => {
                w.u8(kind::PATH_RESPONSE)?;
                w.bytes(&data)
            }
            Self::NewCid { sequence, retire, path, id } => {
                w.u8(kind::NEW_CID)?;
                w.varint(sequence)?;
                w.varint(retire)?;
                w.varint(path.into())?;
                w.bytes(&id.0)
            }
            Self::Slice { lane, layout, id, offset, total, bytes } => {
                w.u8(match layout {
                    Layout::Sliding => kind::SLICE,
                    Layout::Generations => kind::SLICE_OF_GENERATIONS,
                })?;
                w.varint(lane.into())?;
                w.varint(id.0)?;
                w.varint(offset as u64)?;
                w.varint(total as u64)?;
                w.varint(bytes.len() as u64)?;
                w.bytes(bytes)
            }
            Self::Base { lane, base } => {
                w.u8(kind::BASE)?;
                w.varint(lane.into())?;
                w.varint(base.0)
            }
            Self::Rekey { number, message } => {
                w.u8(kind::REKEY)?;
                w.varint(number)?;
                w.varint(message.len() as u64)?;
                w.bytes(message)
            }
            Self::Train(packets) => {
                w.u8(kind::TRAIN)?;
                w.varint(packets.into())
            }
            Self::TrainReport(report) => {
                w.u8(kind::TRAIN_REPORT)?;
                report.emit(w)
            }
            Self::HostDrops(packets) => w.u8(kind::HOST_DROPS).and_then(|()| w.varint(packets)),
            Self::Ranks(ranks) => w.u8(kind::RANKS).and_then(|()| ranks.emit(w)),
            Self::Recoded(recoded) => w.u8(kind::RECODED).and_then(|()| recoded.emit(w)),
            Self::Source { lane, layout, id, base, again, symbol } => {
                write_source_header(w, lane, layout, id, base, again)?;
                w.bytes(symbol)
            }
            Self::Repair { lane, layout, code, id, base, on_feedback, symbol } => {
                write_repair_header(w, lane, layout, code, id, base, on_feedback)?;
                w.bytes(symbol)
            }
        })
    }
}

/// Reads a lane or path number: 32 bits in a varint.
pub(super) fn number(r: &mut Reader<'_>, name: &'static str) -> Result<u32, Malformed> {
    u32::try_from(r.varint()?).map_err(|_| Malformed::Field(name))
}

fn text<'a>(r: &mut Reader<'a>) -> Result<&'a str, Malformed> {
    let len = usize::try_from(r.varint()?).ok().filter(|len| *len <= MAX_TEXT).ok_or(Malformed::Field("length"))?;
    core::str::from_utf8(r.bytes(len)?).map_err(|_| Malformed::NotText)
}

/// Writes as much of `text` as the wire allows, cut at a character boundary.
fn write_text(w: &mut Writer<'_>, text: &str) -> Result<(), Full> {
    let end = (0..=MAX_TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    let text = text.get(..end).unwrap_or_default();
    w.varint(text.len() as u64)?;
    w.bytes(text.as_bytes())
}

fn new_cid<'a>(r: &mut Reader<'a>) -> Result<Frame<'a>, Malformed> {
    let sequence = r.varint()?;
    let retire = r.varint()?;
    if retire > sequence {
        return Err(Malformed::Field("retire"));
    }
    Ok(Frame::NewCid { sequence, retire, path: number(r, "path")?, id: ConnectionId(r.array()?) })
}

fn slice<'a>(layout: Layout, r: &mut Reader<'a>) -> Result<Frame<'a>, Malformed> {
    let lane = number(r, "lane")?;
    let id = SourceId(r.varint()?);
    let offset = r.varint()?;
    let total = r.varint()?;
    let len = r.varint()?;
    if total > MAX_SYMBOL as u64 {
        return Err(Malformed::Field("total"));
    }
    // Each of the three is at most 62 bits long, so the sum does not overflow.
    if len == 0 || offset.saturating_add(len) > total {
        return Err(Malformed::Field("length"));
    }
    let bytes = r.bytes(len as usize)?;
    Ok(Frame::Slice { lane, layout, id, offset: offset as usize, total: total as usize, bytes })
}

fn rekey<'a>(r: &mut Reader<'a>) -> Result<Frame<'a>, Malformed> {
    let number = r.varint()?;
    let len = usize::try_from(r.varint()?).ok().filter(|len| (1..=MAX_NOISE).contains(len));
    Ok(Frame::Rekey { number, message: r.bytes(len.ok_or(Malformed::Field("length"))?)? })
}

/// Reads `back` of SRC and REPAIR, the distance of the lane's base below `id`.
fn base(id: u64, r: &mut Reader<'_>) -> Result<SourceId, Malformed> {
    id.checked_sub(r.varint()?).map(SourceId).ok_or(Malformed::Field("back"))
}

fn source<'a>(kind: u8, r: &mut Reader<'a>) -> Result<Frame<'a>, Malformed> {
    let lane = number(r, "lane")?;
    let id = r.varint()?;
    let base = base(id, r)?;
    let (layout, again) = (Layout::of(kind), kind & 1 != 0);
    Ok(Frame::Source { lane, layout, id: SourceId(id), base, again, symbol: r.take_rest() })
}

fn repair<'a>(kind: u8, r: &mut Reader<'a>) -> Result<Frame<'a>, Malformed> {
    let lane = number(r, "lane")?;
    let code = read_code(r)?;
    let first = r.varint()?;
    let count = r.varint()?;
    if !(1..=MAX_SPAN).contains(&count) || first.saturating_add(count) > VARINT_MAX {
        return Err(Malformed::Field("count"));
    }
    let layout = Layout::of(kind);
    let key = match layout {
        Layout::Sliding => r.u16()?,
        // No code of this version has more keys.
        Layout::Generations => u16::try_from(r.varint()?).map_err(|_| Malformed::Field("key"))?,
    };
    let from = match layout {
        Layout::Sliding => first,
        Layout::Generations => first.saturating_add(count),
    };
    let base = base(from, r)?;
    let id = RepairId { first: SourceId(first), count: count as u16, key };
    Ok(Frame::Repair { lane, layout, code, id, base, on_feedback: kind & 1 != 0, symbol: r.take_rest() })
}

const fn back(id: SourceId, base: SourceId) -> u64 {
    id.0.saturating_sub(base.0)
}

/// Bytes of [`write_source_header`].
pub const fn source_header_len(lane: u32, id: SourceId, base: SourceId) -> usize {
    1_usize
        .saturating_add(varint_len(lane as u64))
        .saturating_add(varint_len(id.0))
        .saturating_add(varint_len(back(id, base)))
}

/// Writes a SRC frame up to its symbol. The caller appends the symbol, up to the end of the packet. `base` is
/// at most `id`.
pub fn write_source_header(
    w: &mut Writer<'_>,
    lane: u32,
    layout: Layout,
    id: SourceId,
    base: SourceId,
    again: bool,
) -> Result<(), Full> {
    debug_assert!(base <= id, "base {base:?} above source id {id:?}");
    w.atomically(|w| {
        w.u8(layout.kind(if again { kind::SOURCE_AGAIN } else { kind::SOURCE }))?;
        w.varint(lane.into())?;
        w.varint(id.0)?;
        w.varint(back(id, base))
    })
}

/// Bytes of [`write_repair_header`].
pub const fn repair_header_len(lane: u32, layout: Layout, code: Code, id: RepairId, base: SourceId) -> usize {
    let key = match layout {
        Layout::Sliding => 2,
        Layout::Generations => varint_len(id.key as u64),
    };
    // Type.
    1_usize
        .saturating_add(code_len(code))
        .saturating_add(key)
        .saturating_add(varint_len(lane as u64))
        .saturating_add(varint_len(id.first.0))
        .saturating_add(varint_len(id.count as u64))
        .saturating_add(varint_len(back(base_from(layout, id), base)))
}

/// The id from which the base of a REPAIR is counted.
const fn base_from(layout: Layout, id: RepairId) -> SourceId {
    match layout {
        Layout::Sliding => id.first,
        Layout::Generations => SourceId(id.first.0.saturating_add(id.count as u64)),
    }
}

/// Writes a REPAIR frame up to its symbol. The caller appends the symbol, up to the end of the packet. `base`
/// is at most the span's first id, or the span's end in generations. The span is at most `MAX_SPAN` long. A
/// code without a code point is a bug of the caller and returns [`Full`].
pub fn write_repair_header(
    w: &mut Writer<'_>,
    lane: u32,
    layout: Layout,
    code: Code,
    id: RepairId,
    base: SourceId,
    on_feedback: bool,
) -> Result<(), Full> {
    debug_assert!(base <= base_from(layout, id), "base {base:?} above span {id:?}");
    debug_assert!(u64::from(id.count) <= MAX_SPAN && id.count > 0, "{id:?} is no span for the wire");
    w.atomically(|w| {
        w.u8(layout.kind(if on_feedback { kind::REPAIR_ON_FEEDBACK } else { kind::REPAIR }))?;
        w.varint(lane.into())?;
        write_code(w, code)?;
        w.varint(id.first.0)?;
        w.varint(id.count.into())?;
        match layout {
            Layout::Sliding => w.u16(id.key)?,
            Layout::Generations => w.varint(id.key.into())?,
        }
        w.varint(back(base_from(layout, id), base))
    })
}

/// Writes the type of a FEEDBACK.
pub(super) fn write_feedback_type(w: &mut Writer<'_>) -> Result<(), Full> {
    w.u8(kind::FEEDBACK)
}

/// Writes an ignorable frame. Every sender does so now and then, so that receivers keep skipping such frames
/// (greasing, RFC 9000 section 21). `random` selects the type; `body` is at most 16 random bytes.
pub fn write_grease(w: &mut Writer<'_>, random: u16, body: &[u8]) -> Result<(), Full> {
    w.atomically(|w| {
        w.varint(u64::from(random & 0x3fff).max(IGNORABLE))?;
        w.varint(body.len() as u64)?;
        w.bytes(body)
    })
}

/// Fills the rest of the packet with PAD frames. Path probes consist of them.
pub fn pad(w: &mut Writer<'_>, to_len: usize) {
    let want = to_len.saturating_sub(w.len()).min(w.remaining());
    if let Some(spare) = w.spare().get_mut(..want) {
        spare.fill(kind::PAD);
    }
    // `want` is at most the remaining room.
    let _ = w.advance(want);
}

/// Iterates over the frames of one packet's payload. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    reader: Reader<'a>,
    total: usize,
}

impl<'a> Frames<'a> {
    /// Starts at the first byte of `payload`.
    pub const fn new(payload: &'a [u8]) -> Self {
        Self { reader: Reader::new(payload), total: payload.len() }
    }

    /// The next frame to yield, or `None` at the end. Leaves `kind` and `offset` at the values of the last
    /// frame read.
    fn step(&mut self, kind: &mut u64, offset: &mut usize) -> Result<Option<Frame<'a>>, Malformed> {
        while let Some(first) = self.reader.rest().first() {
            *kind = u64::from(*first);
            *offset = self.total.saturating_sub(self.reader.remaining());
            if *first < IGNORABLE as u8 {
                self.reader.u8()?;
                if *first == kind::PAD {
                    continue;
                }
                return Frame::parse(*first, &mut self.reader).map(Some);
            }
            *kind = self.reader.varint()?;
            if *kind < IGNORABLE {
                return Err(Malformed::UnknownType);
            }
            let len = self.reader.varint()?;
            self.reader.bytes(usize::try_from(len).map_err(|_| Malformed::Truncated)?)?;
        }
        Ok(None)
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (mut frame, mut offset) = (0, 0);
        match self.step(&mut frame, &mut offset) {
            Ok(found) => found.map(Ok),
            Err(kind) => {
                self.reader.take_rest();
                Some(Err(FrameError { frame, offset, kind }))
            }
        }
    }
}
