//! The clear part of a datagram: long form (handshake) and short form (all other packets), docs/wire.md
//! section 1.
//!
//! The endpoint parses it to find the connection; the handshake and the packet keys process the rest. Nothing
//! here is authenticated. A caller may route by it but must not change any state because of it.

use core::fmt;

use super::bytes::{Full, Reader, Truncated, Writer};

/// Bytes before the frames of a short packet.
pub const SHORT_HEADER_LEN: usize = 13;
/// Bytes of the tag at the end of a short packet.
pub const TAG_LEN: usize = 16;
/// Offset of the packet number in a short packet.
pub const PACKET_NUMBER_AT: usize = 9;
/// Bytes of a long header before the Noise message. Those of a HELLO are part of the Noise prologue.
pub const LONG_HEADER_LEN: usize = 25;
/// Bytes of mac1, and of mac2.
pub const MAC_LEN: usize = 16;
/// Exact length of a HELLO. It has room for the parameters and is at least as long as two REPLYs.
pub const HELLO_LEN: usize = 300;
/// Maximum length of a REPLY: half a HELLO.
pub const REPLY_MAX: usize = 150;
/// Exact length of a COOKIE: the clear bytes, a nonce and a cookie of 16 bytes each, and the tag.
pub const COOKIE_LEN: usize = LONG_HEADER_LEN + COOKIE_NONCE_LEN + MAC_LEN + TAG_LEN;
/// Bytes of the nonce in a COOKIE.
pub(crate) const COOKIE_NONCE_LEN: usize = 16;
/// The version that this crate implements: "TW", 0, 1.
pub const VERSION: u32 = 0x5457_0001;

const FORM_LONG: u8 = 0x80;
const FIXED_BIT: u8 = 0x40;
/// Bit of the key phase in the first byte of a short packet.
pub(crate) const PHASE_BIT: u8 = 0x20;
/// Bit W in the first byte of a short packet: FEEDBACK may wait.
pub(crate) const WAIT_BIT: u8 = 0x10;
/// Random bits of a long packet, and of a short one.
const GREASE_BITS: u8 = 0x1f;
const SHORT_GREASE_BITS: u8 = 0x0f;
const TYPE_SHIFT: u32 = 5;

/// Connection id: eight bytes that a receiver chose and that packets to it carry in their headers.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub [u8; 8]);

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The long packets that version 1 sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a version of the wire format has these")]
pub enum LongKind {
    /// First flight, initiator to responder.
    Hello,
    /// Second flight, responder to initiator.
    Reply,
    /// Sent instead of a REPLY, by a responder under load.
    Cookie,
}

/// How the two sides authenticate each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) enum Auth {
    /// 1: with one shared secret (`NNpsk0`).
    Psk,
    /// 2: with their public keys (`IKpsk2`).
    Key,
}

impl Auth {
    const fn code_point(self) -> u8 {
        match self {
            Self::Psk => 1,
            Self::Key => 2,
        }
    }
}

/// The Noise suite of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Suite {
    /// 1: 25519, AES-256-GCM, SHA-256.
    AesGcmSha256,
    /// 2: 25519, ChaCha20-Poly1305, BLAKE2s.
    ChaChaPolyBlake2s,
}

impl Suite {
    const fn code_point(self) -> u8 {
        match self {
            Self::AesGcmSha256 => 1,
            Self::ChaChaPolyBlake2s => 2,
        }
    }
}

/// Why a datagram is not a packet of ours. It is counted under this reason and dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The datagram is shorter than any such packet.
    #[error("the datagram is too short for a packet")]
    Truncated,
    /// The fixed bit of the short form is 0, which is reserved.
    #[error("the fixed bit is 0")]
    FixedBit,
    /// A long packet that version 1 never sends (VERSIONS); carries the type.
    #[error("long packet of type {0}, which version 1 does not send")]
    Kind(u8),
    /// A long packet of another version.
    #[error("version {0:#010x} is not {VERSION:#010x}")]
    Version(u32),
    /// An authentication that this build does not support; carries its number.
    #[error("authentication {0} is unknown")]
    Auth(u8),
    /// A Noise suite that this build does not know; carries its number.
    #[error("noise suite {0} is unknown")]
    Suite(u8),
    /// The packet has the wrong length for its type; carries the length.
    #[error("{0} bytes are not the length of this long packet")]
    Length(usize),
}

impl From<Truncated> for HeaderError {
    fn from(Truncated: Truncated) -> Self {
        Self::Truncated
    }
}

/// A handshake packet: its clear fields, borrowed from the datagram. mac1 is not checked yet.
#[derive(Clone, Copy, Debug)]
pub struct LongHeader<'a> {
    /// HELLO, REPLY or COOKIE.
    pub kind: LongKind,
    /// In a HELLO: random, or the id of a connection that the sender asks about. Otherwise the connection id
    /// that the receiver chose.
    pub destination: ConnectionId,
    /// Connection id that the sender chose for itself; random in a COOKIE.
    pub source: ConnectionId,
    /// How the two sides authenticate each other.
    pub(crate) auth: Auth,
    /// The Noise suite.
    pub suite: Suite,
    /// The 25 clear bytes. Those of a HELLO are part of the Noise prologue.
    pub clear: &'a [u8],
    /// The Noise message. In a COOKIE: the nonce and the sealed cookie.
    pub(crate) noise: &'a [u8],
    /// The bytes that mac1 covers.
    pub authenticated: &'a [u8],
    /// The received mac1. In a COOKIE: the tag.
    pub mac1: [u8; MAC_LEN],
    /// HELLO only: the bytes that mac2 covers, and the received mac2.
    pub mac2: Option<(&'a [u8], [u8; MAC_LEN])>,
}

/// A datagram, parsed by its clear part only.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_enums, reason = "a version of the wire format has these")]
pub enum Datagram<'a> {
    /// A handshake packet.
    Long(LongHeader<'a>),
    /// A packet of a connection, still sealed.
    Short {
        /// The id of the connection and path.
        destination: ConnectionId,
    },
}

impl<'a> Datagram<'a> {
    /// Parses the clear part of one UDP payload.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, HeaderError> {
        let mut reader = Reader::new(datagram);
        let first = reader.u8()?;
        if first & FORM_LONG != 0 {
            return LongHeader::parse(datagram).map(Self::Long);
        }
        if first & FIXED_BIT == 0 {
            return Err(HeaderError::FixedBit);
        }
        let destination = ConnectionId(reader.array()?);
        // The packet number, at least one byte of frames, and the tag.
        let least = SHORT_HEADER_LEN.saturating_add(1).saturating_add(TAG_LEN);
        if datagram.len() < least {
            return Err(HeaderError::Truncated);
        }
        Ok(Self::Short { destination })
    }
}

impl<'a> LongHeader<'a> {
    fn parse(datagram: &'a [u8]) -> Result<Self, HeaderError> {
        let mut reader = Reader::new(datagram);
        let first = reader.u8()?;
        let kind = match (first & !FORM_LONG) >> TYPE_SHIFT {
            0 => LongKind::Hello,
            1 => LongKind::Reply,
            2 => LongKind::Cookie,
            other => return Err(HeaderError::Kind(other)),
        };
        let version = reader.u32()?;
        if version != VERSION {
            return Err(HeaderError::Version(version));
        }
        let destination = ConnectionId(reader.array()?);
        let source = ConnectionId(reader.array()?);
        let auth = match reader.u8()? {
            1 => Auth::Psk,
            2 => Auth::Key,
            other => return Err(HeaderError::Auth(other)),
        };
        let suite = match reader.u8()? {
            1 => Suite::AesGcmSha256,
            2 => Suite::ChaChaPolyBlake2s,
            other => return Err(HeaderError::Suite(other)),
        };
        let noise_len = usize::from(reader.u16()?);
        let clear = Reader::new(datagram).bytes(LONG_HEADER_LEN)?;
        let noise = reader.bytes(noise_len)?;
        let macs = match kind {
            LongKind::Hello => MAC_LEN.saturating_mul(2),
            LongKind::Reply | LongKind::Cookie => MAC_LEN,
        };
        let padding = reader.remaining().checked_sub(macs).ok_or(HeaderError::Truncated)?;
        let right = match kind {
            LongKind::Hello => datagram.len() == HELLO_LEN,
            LongKind::Reply => datagram.len() <= REPLY_MAX && padding == 0,
            LongKind::Cookie => datagram.len() == COOKIE_LEN && padding == 0,
        };
        if !right {
            return Err(HeaderError::Length(datagram.len()));
        }
        reader.bytes(padding)?;
        let authenticated = datagram.split_at_checked(datagram.len().saturating_sub(macs)).ok_or(Truncated)?.0;
        let mac1 = reader.array()?;
        let mac2 = match kind {
            LongKind::Hello => {
                let end = datagram.len().saturating_sub(MAC_LEN);
                Some((datagram.split_at_checked(end).ok_or(Truncated)?.0, reader.array()?))
            }
            LongKind::Reply | LongKind::Cookie => None,
        };
        Ok(Self { kind, destination, source, auth, suite, clear, noise, authenticated, mac1, mac2 })
    }
}

/// The fields of a long header to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LongRepr {
    /// HELLO, REPLY or COOKIE.
    pub kind: LongKind,
    /// Five random bits.
    pub grease: u8,
    /// In a HELLO: random, or the id of a connection that the writer asks about. Otherwise the connection id
    /// that the initiator chose.
    pub(crate) destination: ConnectionId,
    /// Connection id that the writer chose for itself; random in a COOKIE.
    pub source: ConnectionId,
    /// How the two sides authenticate each other.
    pub(crate) auth: Auth,
    /// The Noise suite.
    pub suite: Suite,
    /// Length of the following Noise message in bytes. In a COOKIE: length of nonce and cookie.
    pub(crate) noise_len: u16,
}

impl LongRepr {
    /// Writes the 25 clear bytes.
    pub(crate) fn emit(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        let kind = match self.kind {
            LongKind::Hello => 0,
            LongKind::Reply => 1 << TYPE_SHIFT,
            LongKind::Cookie => 2 << TYPE_SHIFT,
        };
        w.atomically(|w| {
            w.u8(FORM_LONG | kind | (self.grease & GREASE_BITS))?;
            w.u32(VERSION)?;
            w.bytes(&self.destination.0)?;
            w.bytes(&self.source.0)?;
            w.u8(self.auth.code_point())?;
            w.u8(self.suite.code_point())?;
            w.u16(self.noise_len)
        })
    }
}

/// Writes the 13 bytes before the frames of a short packet, with the low 32 bits of the packet number.
/// Sealing the packet adds the key phase bit and the header protection. `grease` is four random bits.
pub fn write_short_header(
    w: &mut Writer<'_>,
    destination: ConnectionId,
    packet_number: u64,
    grease: u8,
) -> Result<(), Full> {
    w.atomically(|w| {
        w.u8(FIXED_BIT | (grease & SHORT_GREASE_BITS))?;
        w.bytes(&destination.0)?;
        w.u32((packet_number & u64::from(u32::MAX)) as u32)
    })
}
