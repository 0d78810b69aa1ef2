//! The parameters that each side announces inside its handshake message (docs/wire.md section 2).
//!
//! The handshake writes and parses them. The connection reads the peer's from [`super::Session`]. Values are
//! checked against their ranges when parsed, and clamped to them when written. The ranges ensure that any
//! REPLY fits its 150 bytes.

use core::fmt;
use core::ops::RangeInclusive;

use crate::crypto::Aead;
use crate::wire::{CodeSet, ConnectionId, Full, Reader, Truncated, VERSION, Writer, varint_len};

mod kind {
    pub(super) const MAX_DATAGRAM: u64 = 0;
    pub(super) const MAX_SYMBOL: u64 = 1;
    pub(super) const LANE_CREDIT: u64 = 2;
    pub(super) const MAX_SPAN: u64 = 3;
    pub(super) const STREAM_CREDIT: u64 = 4;
    pub(super) const STREAMS: u64 = 5;
    pub(super) const IDLE_TIMEOUT: u64 = 6;
    pub(super) const AEADS: u64 = 7;
    pub(super) const VERSIONS: u64 = 8;
    pub(super) const CODES: u64 = 9;
    pub(super) const SOURCE: u64 = 11;
    pub(super) const KNOWN: u64 = 12;
}

/// A numeric parameter: its type, its default and its range.
type Number = (u64, u64, RangeInclusive<u64>);
const MAX_DATAGRAM: Number = (kind::MAX_DATAGRAM, 1_472, 1_200..=65_527);
const MAX_SYMBOL: Number = (kind::MAX_SYMBOL, 1_424, 1_024..=65_472);
const LANE_CREDIT: Number = (kind::LANE_CREDIT, 256, 16..=1 << 24);
const MAX_SPAN: Number = (kind::MAX_SPAN, 256, 1..=1_024);
const STREAM_CREDIT: Number = (kind::STREAM_CREDIT, 262_144, 0..=(1 << 30) - 1);
const STREAMS: Number = (kind::STREAMS, 128, 0..=1 << 20);
const IDLE_TIMEOUT: Number = (kind::IDLE_TIMEOUT, 60_000, 0..=(1 << 30) - 1);
const CODES: Number = (kind::CODES, 1, 1..=(1 << 14) - 1);

/// The limits that one side announces. All of them limit what its peer may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Largest UDP payload accepted, in bytes: 1,200 .. 65,527.
    pub max_datagram: u16,
    /// Longest source symbol accepted, in bytes: 1,024 .. 65,472.
    pub max_symbol: u16,
    /// Source symbols of lane 0 accepted from id 0: 16 .. 2^24.
    pub lane_credit: u32,
    /// Longest span decoded, in symbols: 1 .. 1,024.
    pub max_span: u16,
    /// Bytes accepted per stream at its opening: below 2^30.
    pub stream_credit: u32,
    /// Number of streams that the peer may have opened in all: at most 2^20.
    pub streams: u32,
    /// Idle timeout in milliseconds, below 2^30; 0 for none. The smaller value of both sides applies.
    pub idle_timeout_ms: u32,
    /// The codes that this side decodes.
    pub codes: CodeSet,
}

impl Default for Parameters {
    /// The values that this crate announces by default: the defaults of docs/wire.md, and all its codes.
    fn default() -> Self {
        Self { codes: CodeSet::all(), ..Self::unsaid() }
    }
}

impl Parameters {
    /// The values of a peer that announces none.
    const fn unsaid() -> Self {
        Self {
            max_datagram: MAX_DATAGRAM.1 as u16,
            max_symbol: MAX_SYMBOL.1 as u16,
            lane_credit: LANE_CREDIT.1 as u32,
            max_span: MAX_SPAN.1 as u16,
            stream_credit: STREAM_CREDIT.1 as u32,
            streams: STREAMS.1 as u32,
            idle_timeout_ms: IDLE_TIMEOUT.1 as u32,
            codes: CodeSet::RLC,
        }
    }

    fn numbers(&self) -> [(Number, u64); 8] {
        [
            (MAX_DATAGRAM, self.max_datagram.into()),
            (MAX_SYMBOL, self.max_symbol.into()),
            (LANE_CREDIT, self.lane_credit.into()),
            (MAX_SPAN, self.max_span.into()),
            (STREAM_CREDIT, self.stream_credit.into()),
            (STREAMS, self.streams.into()),
            (IDLE_TIMEOUT, self.idle_timeout_ms.into()),
            (CODES, self.codes.0.into()),
        ]
    }

    /// Checks every value against its range, when a configuration is read.
    pub fn validate(&self) -> Result<(), ParameterError> {
        match self.numbers().into_iter().find(|((_, _, range), value)| !range.contains(value)) {
            Some(((kind, ..), _)) => Err(ParameterError { kind, fault: Fault::Range }),
            None => Ok(()),
        }
    }

    /// Reads the parameters from the payload of a handshake message of either side.
    ///
    /// # Errors
    /// Names the first invalid parameter.
    pub fn parse(payload: &[u8]) -> Result<Self, ParameterError> {
        Said::parse(payload).map(|said| said.parameters)
    }

    fn emit(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        for ((kind, default, range), value) in self.numbers() {
            let value = value.clamp(*range.start(), *range.end());
            if value != default {
                w.varint(kind)?;
                w.varint(varint_len(value) as u64)?;
                w.varint(value)?;
            }
        }
        Ok(())
    }
}

/// What is wrong with a handshake message's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterError {
    /// The parameter's type.
    pub kind: u64,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What is wrong with a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The message ends before the parameter does.
    Truncated,
    /// The parameter occurs twice.
    Twice,
    /// The parameter's value or length is out of range, or it does not belong in this message.
    Range,
    /// The parameter is required and missing.
    Missing,
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fault = match self.fault {
            Fault::Truncated => "ends too early",
            Fault::Twice => "stands there twice",
            Fault::Range => "is out of range",
            Fault::Missing => "is missing",
        };
        write!(f, "parameter {} {fault}", self.kind)
    }
}

impl core::error::Error for ParameterError {}

/// The part of the payload that only a HELLO has.
pub(super) struct HelloPayload {
    pub(super) parameters: Parameters,
    /// The first offered AEAD that is known here, and whether the other one is offered too.
    pub(super) offer: Offer,
}

/// The AEADs that an initiator offers, in order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) first: Aead,
    pub(super) both: bool,
}

impl Offer {
    /// Offers both, the faster one first.
    pub(super) const fn new(aes_hardware: bool) -> Self {
        let first = if aes_hardware { Aead::Aes256Gcm } else { Aead::ChaCha20Poly1305 };
        Self { first, both: true }
    }

    /// Chooses AES-256-GCM only if both sides prefer it, because both then have AES hardware. Otherwise
    /// chooses ChaCha20-Poly1305, or none if that is not offered.
    pub(super) fn choose(self, aes_hardware: bool) -> Option<Aead> {
        match self.first {
            Aead::Aes256Gcm if aes_hardware => Some(Aead::Aes256Gcm),
            Aead::Aes256Gcm => self.both.then_some(Aead::ChaCha20Poly1305),
            Aead::ChaCha20Poly1305 => Some(Aead::ChaCha20Poly1305),
        }
    }
}

/// The part of the payload that only a REPLY has.
pub(super) struct ReplyPayload {
    pub(super) parameters: Parameters,
    pub(super) aead: Aead,
    /// Must equal the source id in the REPLY's header.
    pub(super) source: ConnectionId,
    /// Whether the destination id of the HELLO names one of the responder's connections.
    pub(super) known: bool,
}

const fn aead_code_point(aead: Aead) -> u8 {
    match aead {
        Aead::Aes256Gcm => 1,
        Aead::ChaCha20Poly1305 => 2,
    }
}

fn aead(code_point: u8) -> Option<Aead> {
    [Aead::Aes256Gcm, Aead::ChaCha20Poly1305].into_iter().find(|aead| aead_code_point(*aead) == code_point)
}

/// Random bytes for one grease parameter: the choice of the reserved type, and the value.
pub(super) type Grease = [u8; 17];

/// Writes a parameter of a reserved type 31 n + 27, with as many random bytes as there is room for.
fn write_grease(w: &mut Writer<'_>, grease: &Grease) -> Result<(), Full> {
    let [pick, body @ ..] = grease;
    let kind = 31 * u64::from(*pick) + 27;
    let room = w.remaining().saturating_sub(varint_len(kind) + 1);
    let body = &body[..usize::from(pick & 15).min(room)];
    w.atomically(|w| write_bytes(w, kind, body))
}

impl HelloPayload {
    pub(super) fn emit(parameters: &Parameters, offer: Offer, grease: &Grease, w: &mut Writer<'_>) -> Result<(), Full> {
        parameters.emit(w)?;
        let second = match offer.first {
            Aead::Aes256Gcm => Aead::ChaCha20Poly1305,
            Aead::ChaCha20Poly1305 => Aead::Aes256Gcm,
        };
        let aeads = [aead_code_point(offer.first), aead_code_point(second)];
        write_bytes(w, kind::AEADS, if offer.both { &aeads } else { &aeads[..1] })?;
        write_bytes(w, kind::VERSIONS, &VERSION.to_be_bytes())?;
        write_grease(w, grease)
    }

    pub(super) fn parse(payload: &[u8]) -> Result<Self, ParameterError> {
        let said = Said::parse(payload)?;
        let offered = said.aeads.ok_or(missing(kind::AEADS))?;
        let versions = said.versions.ok_or(missing(kind::VERSIONS))?;
        if said.source.is_some() {
            return Err(out_of_range(kind::SOURCE));
        }
        if said.known {
            return Err(out_of_range(kind::KNOWN));
        }
        // The list lacks the version of this HELLO. Somebody changed the header on the way to another
        // responder.
        if !versions.chunks_exact(4).any(|version| version == VERSION.to_be_bytes()) {
            return Err(out_of_range(kind::VERSIONS));
        }
        let mut known = offered.iter().filter_map(|code_point| aead(*code_point));
        let first = known.next().ok_or(out_of_range(kind::AEADS))?;
        let both = known.any(|aead| aead != first);
        Ok(Self { parameters: said.parameters, offer: Offer { first, both } })
    }
}

impl ReplyPayload {
    pub(super) fn emit(&self, grease: &Grease, w: &mut Writer<'_>) -> Result<(), Full> {
        self.parameters.emit(w)?;
        write_bytes(w, kind::AEADS, &[aead_code_point(self.aead)])?;
        write_bytes(w, kind::SOURCE, &self.source.0)?;
        if self.known {
            write_bytes(w, kind::KNOWN, &[])?;
        }
        write_grease(w, grease).or(Ok(()))
    }

    pub(super) fn parse(payload: &[u8]) -> Result<Self, ParameterError> {
        let said = Said::parse(payload)?;
        if said.versions.is_some() {
            return Err(out_of_range(kind::VERSIONS));
        }
        let aead = match said.aeads.ok_or(missing(kind::AEADS))? {
            [chosen] => aead(*chosen).ok_or(out_of_range(kind::AEADS))?,
            _ => return Err(out_of_range(kind::AEADS)),
        };
        let source = said.source.ok_or(missing(kind::SOURCE))?;
        Ok(Self { parameters: said.parameters, aead, source, known: said.known })
    }
}

fn write_bytes(w: &mut Writer<'_>, kind: u64, value: &[u8]) -> Result<(), Full> {
    w.varint(kind)?;
    w.varint(value.len() as u64)?;
    w.bytes(value)
}

const fn missing(kind: u64) -> ParameterError {
    ParameterError { kind, fault: Fault::Missing }
}

const fn out_of_range(kind: u64) -> ParameterError {
    ParameterError { kind, fault: Fault::Range }
}

/// All parameters of a message, each at most once.
struct Said<'a> {
    parameters: Parameters,
    aeads: Option<&'a [u8]>,
    versions: Option<&'a [u8]>,
    source: Option<ConnectionId>,
    known: bool,
}

impl<'a> Said<'a> {
    fn parse(payload: &'a [u8]) -> Result<Self, ParameterError> {
        let mut said =
            Self { parameters: Parameters::unsaid(), aeads: None, versions: None, source: None, known: false };
        let mut reader = Reader::new(payload);
        let mut seen = 0_u32;
        while !reader.is_empty() {
            let kind = reader.varint().map_err(|Truncated| ParameterError { kind: 0, fault: Fault::Truncated })?;
            let truncated = |Truncated| ParameterError { kind, fault: Fault::Truncated };
            let len = reader.varint().map_err(truncated)?;
            let value = reader.bytes(usize::try_from(len).map_err(|_| truncated(Truncated))?).map_err(truncated)?;
            let bit = if kind <= kind::KNOWN { 1 << kind } else { 0 };
            if seen & bit != 0 {
                return Err(ParameterError { kind, fault: Fault::Twice });
            }
            seen |= bit;
            said.take(kind, value)?;
        }
        Ok(said)
    }

    fn take(&mut self, kind: u64, value: &'a [u8]) -> Result<(), ParameterError> {
        let mine = &mut self.parameters;
        match kind {
            kind::MAX_DATAGRAM => mine.max_datagram = number(MAX_DATAGRAM, value)? as u16,
            kind::MAX_SYMBOL => mine.max_symbol = number(MAX_SYMBOL, value)? as u16,
            kind::LANE_CREDIT => mine.lane_credit = number(LANE_CREDIT, value)? as u32,
            kind::MAX_SPAN => mine.max_span = number(MAX_SPAN, value)? as u16,
            kind::STREAM_CREDIT => mine.stream_credit = number(STREAM_CREDIT, value)? as u32,
            kind::STREAMS => mine.streams = number(STREAMS, value)? as u32,
            kind::IDLE_TIMEOUT => mine.idle_timeout_ms = number(IDLE_TIMEOUT, value)? as u32,
            kind::CODES => mine.codes = CodeSet(number(CODES, value)? as u16),
            kind::AEADS if (1..=8).contains(&value.len()) => self.aeads = Some(value),
            kind::VERSIONS if (4..=32).contains(&value.len()) && value.len().is_multiple_of(4) => {
                self.versions = Some(value)
            }
            kind::SOURCE => {
                let id = value.try_into().map_err(|_| out_of_range(kind))?;
                self.source = Some(ConnectionId(id));
            }
            kind::KNOWN if value.is_empty() => self.known = true,
            kind::AEADS | kind::VERSIONS | kind::KNOWN => return Err(out_of_range(kind)),
            _ => {}
        }
        Ok(())
    }
}

/// A varint that fills its value and lies in its range.
fn number((kind, _, range): Number, value: &[u8]) -> Result<u64, ParameterError> {
    let mut reader = Reader::new(value);
    match reader.varint() {
        Ok(number) if reader.is_empty() && range.contains(&number) => Ok(number),
        _ => Err(out_of_range(kind)),
    }
}

#[cfg(test)]
mod tests;
