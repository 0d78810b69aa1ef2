//! Seals and opens short packets in place (docs/wire.md sections 1.2 and 3).
//!
//! ```text
//! seal:  header, frames, 16 spare bytes -> AEAD -> header protection -> wire
//! open:  wire -> header unprotected -> number expanded -> replay window checked -> AEAD
//!        -> window marked, phase advanced
//! ```
//! The connection owns one key of each kind per session. [`OpeningKey::open`] changes no state before the tag
//! is verified. [`SealingKey::seal`] refuses to use a number twice. Release 1 has only path 0; the path id is
//! already part of the nonce.

use core::fmt;
use core::ops::Range;
use std::sync::Arc;

use super::key_log::{Sealer, SessionLog};
use super::replay::{REPLAY_WIDTH, REPLAY_WORDS, ReplayWindow, Stale};
use super::schedule::{PhaseKey, Schedule};
use super::{Aead, HeaderKey, Provider};
use crate::wire::{PACKET_NUMBER_AT, PHASE_BIT, SHORT_HEADER_LEN, TAG_LEN, VARINT_MAX, WAIT_BIT};

/// Maximum number of packets sealed with one key: RFC 9001 appendix B.1 allows 2^28 of at most 2^11 bytes
/// under AES-GCM.
pub(crate) const MAX_SEALED: u64 = 1 << 28;
/// Bits of the first byte under header protection: key phase, W and grease.
const PROTECTED_BITS: u8 = 0x3f;

type Header = [u8; SHORT_HEADER_LEN];

/// Why a packet was not sealed. Except for [`SealError::Exhausted`], each is a bug of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The key has sealed `MAX_SEALED` packets.
    #[error("the key has sealed {MAX_SEALED} packets; start a new session")]
    Exhausted,
    /// The packet number is below the lowest unused one; carries the lowest unused one.
    #[error("the packet number is not one of {0} .. 2^62-1")]
    Number(u64),
    /// The packet has no room for a header, a frame and a tag, or is far longer than a datagram; carries its
    /// length.
    #[error("{0} bytes cannot hold one packet")]
    Length(usize),
}

/// The key phase cannot advance before a packet of the current phase was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotConfirmed;

/// Seals the packets of one direction.
pub struct SealingKey {
    schedule: Schedule,
    header: Box<dyn HeaderKey>,
    key: PhaseKey,
    phase: u64,
    /// The first number of this phase.
    phase_start: u64,
    confirmed: bool,
    next: u64,
    sealed: u64,
}

impl SealingKey {
    /// Keys from the chaining key of this direction, the output of Noise's Split.
    pub fn new(provider: Arc<dyn Provider>, aead: Aead, chaining_key: &[u8; 32]) -> Self {
        Self::logged(provider, aead, chaining_key, None)
    }

    /// The same, and reports each key when it is taken into use.
    pub(crate) fn logged(
        provider: Arc<dyn Provider>,
        aead: Aead,
        chaining_key: &[u8; 32],
        log: Option<(SessionLog, Sealer)>,
    ) -> Self {
        let schedule = Schedule::new(provider, aead, chaining_key).logged(log);
        let (header, key) = (schedule.header_key(), schedule.phase_key());
        Self { schedule, header, key, phase: 0, phase_start: 0, confirmed: false, next: 0, sealed: 0 }
    }

    /// The lowest unused packet number. The caller may skip numbers but never go back.
    pub const fn next_packet_number(&self) -> u64 {
        self.next
    }

    /// Number of packets sealed in this phase; the limit is [`MAX_SEALED`].
    pub(crate) const fn sealed(&self) -> u64 {
        self.sealed
    }

    /// Pretends that this many packets were sealed, because a test cannot seal as many.
    #[cfg(test)]
    pub(crate) const fn wear(&mut self, sealed: u64) {
        self.sealed = sealed;
    }

    /// The secrets of an attacker that stole the secret of this direction, in phase 0.
    #[cfg(test)]
    pub(crate) fn stolen(&self) -> OpeningKey {
        assert_eq!(self.phase, 0, "header keys follow from the first secret");
        self.schedule.stolen()
    }

    /// The key phase, from 0.
    pub const fn phase(&self) -> u64 {
        self.phase
    }

    /// Seals `packet` in place: the header of [`crate::wire::write_short_header`], the frames, [`TAG_LEN`]
    /// spare bytes. After an error the packet is unchanged, except after an error of the cipher.
    pub fn seal(&mut self, path: u32, number: u64, packet: &mut [u8]) -> Result<(), SealError> {
        let len = packet.len();
        if !(self.next..=VARINT_MAX).contains(&number) {
            return Err(SealError::Number(self.next));
        }
        if self.sealed >= MAX_SEALED {
            return Err(SealError::Exhausted);
        }
        let (header, payload, tag) = parts(packet).ok_or(SealError::Length(len))?;
        // Only the low 32 bits are sent.
        header[PACKET_NUMBER_AT..].copy_from_slice(&(number as u32).to_be_bytes());
        header[0] = header[0] & !PHASE_BIT | if self.phase & 1 == 1 { PHASE_BIT } else { 0 };
        let nonce = self.key.nonce(path, number);
        self.key.packet.seal(&nonce, header, payload, tag).map_err(|_| SealError::Length(len))?;
        self.next = number + 1;
        self.sealed += 1;
        protect(self.header.as_ref(), packet).ok_or(SealError::Length(len))
    }

    /// Records that the peer acknowledged packet `number`, so it has the key of that packet's phase.
    pub const fn on_acknowledged(&mut self, number: u64) {
        self.confirmed |= number >= self.phase_start && number < self.next;
    }

    /// Advances to the next key phase. The peer follows when it receives a packet of the new phase.
    ///
    /// # Errors
    /// [`NotConfirmed`] while no packet of the current phase was acknowledged. The peer could not follow two
    /// phases at once.
    pub fn initiate_update(&mut self) -> Result<(), NotConfirmed> {
        if !self.confirmed {
            return Err(NotConfirmed);
        }
        self.schedule.advance();
        self.enter_phase();
        Ok(())
    }

    /// Advances to the next key phase and mixes in the result of a fresh exchange for this direction. The
    /// exchange itself has shown that the peer has the key of the current phase (docs/wire.md section 3.1).
    pub(crate) fn refresh(&mut self, fresh: &[u8; 32]) {
        self.schedule.advance();
        self.schedule.mix(fresh);
        self.enter_phase();
    }

    fn enter_phase(&mut self) {
        self.key = self.schedule.phase_key();
        self.phase += 1;
        self.phase_start = self.next;
        self.confirmed = false;
        self.sealed = 0;
    }
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealingKey").field("phase", &self.phase).field("next", &self.next).finish_non_exhaustive()
    }
}

/// Why a packet was not opened. It is counted under this reason and dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Too short for a header, a frame and a tag; carries its length.
    #[error("{0} bytes are too short for a packet")]
    Length(usize),
    /// Its number was opened before.
    #[error("the packet was seen before")]
    Replayed,
    /// Its number is too far below the highest, or its key is deleted.
    #[error("the packet is older than the replay window or its key")]
    TooOld,
    /// The tag does not verify.
    #[error("the tag does not verify")]
    Forged,
    /// The path does not exist; carries its id.
    #[error("there is no path {0}")]
    Path(u32),
}

/// An opened packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The packet number.
    pub number: u64,
    /// Range of the frames in the packet, now decrypted.
    pub payload: Range<usize>,
    /// The key phase of the sender.
    pub phase: u64,
    /// No packet with a higher number was opened before.
    pub highest: bool,
    /// FEEDBACK for it may wait for another packet (bit W).
    pub may_wait: bool,
}

/// Opens the packets of one direction.
pub struct OpeningKey {
    schedule: Schedule,
    header: Box<dyn HeaderKey>,
    previous: Option<PhaseKey>,
    key: PhaseKey,
    /// Derived in advance, so that refusing a packet of the next phase takes no longer than refusing another
    /// (RFC 9001 section 9.5).
    next: PhaseKey,
    phase: u64,
    /// The lowest number opened in this phase.
    phase_start: u64,
    window: Box<ReplayWindow<REPLAY_WORDS>>,
}

/// The key phase of a packet, relative to the current one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Previous,
    Present,
    Next,
}

impl OpeningKey {
    /// Keys from the chaining key of the other direction, the output of Noise's Split.
    pub fn new(provider: Arc<dyn Provider>, aead: Aead, chaining_key: &[u8; 32]) -> Self {
        Self::logged(provider, aead, chaining_key, None)
    }

    /// The same, and reports each key when it is derived, one phase ahead.
    pub(crate) fn logged(
        provider: Arc<dyn Provider>,
        aead: Aead,
        chaining_key: &[u8; 32],
        log: Option<(SessionLog, Sealer)>,
    ) -> Self {
        let mut schedule = Schedule::new(provider, aead, chaining_key).logged(log);
        let (header, key) = (schedule.header_key(), schedule.phase_key());
        schedule.advance();
        let next = schedule.phase_key();
        let window = Box::new(ReplayWindow::new());
        Self { schedule, header, previous: None, key, next, phase: 0, phase_start: 0, window }
    }

    /// The sender's key phase as far as seen, from 0.
    pub const fn phase(&self) -> u64 {
        self.phase
    }

    /// Mixes the result of a fresh exchange for this direction into the sender's next phase (docs/wire.md
    /// section 3.1).
    pub(crate) fn refresh(&mut self, fresh: &[u8; 32]) {
        self.schedule.mix(fresh);
        self.next = self.schedule.phase_key();
    }

    /// The highest packet number opened so far.
    pub const fn highest(&self) -> Option<u64> {
        self.window.highest()
    }

    /// Opens `packet` in place. After an error this key is unchanged, and the packet's bytes are unspecified.
    pub fn open(&mut self, path: u32, packet: &mut [u8]) -> Result<Opened, OpenError> {
        if path != 0 {
            return Err(OpenError::Path(path));
        }
        let len = packet.len();
        protect(self.header.as_ref(), packet).ok_or(OpenError::Length(len))?;
        let (header, payload, tag) = parts(packet).ok_or(OpenError::Length(len))?;
        let [.., a, b, c, d] = *header;
        let number = expand(u32::from_be_bytes([a, b, c, d]), self.highest());
        self.window.check(number).map_err(|stale| match stale {
            Stale::Replayed => OpenError::Replayed,
            Stale::TooOld => OpenError::TooOld,
        })?;
        let turn = self.turn(header[0] & PHASE_BIT != 0, number);
        let (key, phase) = match turn {
            Turn::Previous => (self.previous.as_ref().ok_or(OpenError::TooOld)?, self.phase.saturating_sub(1)),
            Turn::Present => (&self.key, self.phase),
            Turn::Next => (&self.next, self.phase + 1),
        };
        let nonce = key.nonce(path, number);
        key.packet.open(&nonce, header, payload, tag).map_err(|_| OpenError::Forged)?;

        let highest = self.highest().is_none_or(|highest| number > highest);
        let may_wait = header[0] & WAIT_BIT != 0;
        self.window.mark(number);
        self.follow(turn, number);
        Ok(Opened { number, payload: SHORT_HEADER_LEN..len - TAG_LEN, phase, highest, may_wait })
    }

    /// A different phase bit means the previous phase for old numbers and the next phase for others (RFC 9001
    /// section 6.3).
    const fn turn(&self, bit: bool, number: u64) -> Turn {
        if bit == (self.phase & 1 == 1) {
            Turn::Present
        } else if number < self.phase_start {
            Turn::Previous
        } else {
            Turn::Next
        }
    }

    /// Moves the key phase after an authentic packet.
    fn follow(&mut self, turn: Turn, number: u64) {
        match turn {
            Turn::Previous => {}
            Turn::Present => self.phase_start = self.phase_start.min(number),
            Turn::Next => {
                self.schedule.advance();
                let present = core::mem::replace(&mut self.next, self.schedule.phase_key());
                self.previous = Some(core::mem::replace(&mut self.key, present));
                self.phase += 1;
                self.phase_start = number;
            }
        }
        // The replay window no longer accepts any packet that this key could open.
        if self.highest().is_some_and(|highest| highest >= self.phase_start.saturating_add(REPLAY_WIDTH)) {
            self.previous = None;
        }
    }
}

impl fmt::Debug for OpeningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let highest = self.highest();
        f.debug_struct("OpeningKey").field("phase", &self.phase).field("highest", &highest).finish_non_exhaustive()
    }
}

/// Splits a packet into header, payload of at least one byte, and tag.
fn parts(packet: &mut [u8]) -> Option<(&mut Header, &mut [u8], &mut [u8; TAG_LEN])> {
    let (header, rest) = packet.split_first_chunk_mut()?;
    let (payload, tag) = rest.split_last_chunk_mut()?;
    (!payload.is_empty()).then_some((header, payload, tag))
}

/// Applies or removes header protection. The mask comes from sealed bytes, which stay unchanged.
fn protect(key: &dyn HeaderKey, packet: &mut [u8]) -> Option<()> {
    let (header, sealed) = packet.split_first_chunk_mut::<SHORT_HEADER_LEN>()?;
    let [first, number @ ..] = key.mask(sealed.first_chunk()?);
    header[0] ^= first & PROTECTED_BITS;
    for (byte, mask) in header[PACKET_NUMBER_AT..].iter_mut().zip(number) {
        *byte ^= mask;
    }
    Some(())
}

/// The number nearest to one past `highest` whose low 32 bits are `low` (RFC 9000 appendix A.3).
const fn expand(low: u32, highest: Option<u64>) -> u64 {
    const WINDOW: u64 = 1 << 32;
    let expected = match highest {
        Some(highest) => highest + 1,
        None => 0,
    };
    let candidate = expected & !(WINDOW - 1) | low as u64;
    if candidate + WINDOW / 2 <= expected && candidate + WINDOW <= VARINT_MAX {
        candidate + WINDOW
    } else if candidate > expected + WINDOW / 2 && candidate >= WINDOW {
        candidate - WINDOW
    } else {
        candidate
    }
}

#[cfg(all(test, feature = "aws-lc-rs"))]
mod tests;
