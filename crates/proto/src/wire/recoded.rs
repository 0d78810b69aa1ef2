//! The frames of the relayed lane: RECODED carries a combination, RANKS reports what came (docs/wire.md
//! section 8.2).
//!
//! The connection passes them to the room `recode`. A RECODED frame never makes its packet malformed: what is
//! wrong with it is found by its receiver, which drops and counts it.

use tidewire_codec::SourceId;

use super::bytes::{Full, Reader, Truncated, Writer, varint_len};
use super::frame::Malformed;

/// Maximum number of symbols of a generation of the relayed lane, and so of coefficients in a frame. More
/// would cost each packet more bytes than they save repairs.
pub(crate) const MAX_GENERATION: u8 = 64;
/// Maximum number of ranks in a RANKS frame, and of generations that an end accepts at once. With
/// generations of 32 symbols this is 4.9 MB. Chosen.
pub(crate) const MAX_GENERATIONS: u64 = 128;

/// A combination of the symbols of one generation of the relayed lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a version of the wire format has these fields")]
pub struct Recoded<'a> {
    /// Number of relays that the symbol passed.
    pub relays: u8,
    /// Number of the generation.
    pub generation: u64,
    /// Symbols of each generation.
    pub length: u8,
    /// Coefficients of the first symbols of the generation; those of the others are 0.
    pub vector: &'a [u8],
    /// The combination, up to the end of the packet.
    pub symbol: &'a [u8],
}

impl<'a> Recoded<'a> {
    /// Reads the frame, up to the end of the packet. One that ends too early has no vector.
    pub(super) fn parse(r: &mut Reader<'a>) -> Self {
        let parsed = Self::parse_whole(r).unwrap_or_default();
        r.take_rest();
        parsed
    }

    fn parse_whole(r: &mut Reader<'a>) -> Result<Self, Truncated> {
        let (relays, generation, length) = (r.u8()?, r.varint()?, r.u8()?);
        let count = r.u8()?;
        let vector = r.bytes(count.into())?;
        Ok(Self { relays, generation, length, vector, symbol: r.take_rest() })
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        self.emit_header(w)?;
        w.bytes(self.symbol)
    }

    /// Writes what stands before the symbol, without the type.
    fn emit_header(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        w.u8(self.relays)?;
        w.varint(self.generation)?;
        w.u8(self.length)?;
        w.u8(u8::try_from(self.vector.len()).map_err(|_| Full)?)?;
        w.bytes(self.vector)
    }

    /// Length of a frame with `count` coefficients and a symbol of `len` bytes, with its type.
    pub(crate) const fn frame_len(generation: u64, count: usize, len: usize) -> usize {
        4_usize.saturating_add(varint_len(generation)).saturating_add(count).saturating_add(len)
    }

    /// The id of the generation's first symbol; `None` if there is no such id.
    pub fn first(&self) -> Option<SourceId> {
        self.generation.checked_mul(self.length.into()).map(SourceId)
    }
}

/// What the receiver of the relayed lane has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a version of the wire format has these fields")]
pub struct Ranks<'a> {
    /// All generations below this one are complete.
    pub edge: u64,
    /// This many generations from `edge` up are accepted.
    pub room: u64,
    /// Independent symbols received of the generations from `edge` up; at most `MAX_GENERATIONS`.
    pub ranks: &'a [u8],
}

impl<'a> Ranks<'a> {
    pub(super) fn parse(r: &mut Reader<'a>) -> Result<Self, Malformed> {
        let (edge, room, count) = (r.varint()?, r.varint()?, r.varint()?);
        if count > MAX_GENERATIONS {
            return Err(Malformed::Field("ranks"));
        }
        Ok(Self { edge, room, ranks: r.bytes(count as usize)? })
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        w.varint(self.edge)?;
        w.varint(self.room)?;
        w.varint(self.ranks.len() as u64)?;
        w.bytes(self.ranks)
    }
}
