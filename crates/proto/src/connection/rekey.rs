//! Fresh keys once an hour, by a Noise handshake inside the session (docs/wire.md section 3.1).
//!
//! `renew_key` begins an exchange, `receive` passes in REKEY frames and the key phases of packets, and
//! `migration` writes the waiting message. Invariant: while an exchange is open, the end that began or
//! answered it renews no key in any other way. So both ends know into which phase the fresh keys are mixed.

use core::time::Duration;

use snow::HandshakeState;
use zeroize::Zeroizing;

use super::{CloseCode, Connection, Side};
use crate::Time;
use crate::config::LEAST_FRESH_KEYS_AFTER;
use crate::crypto::Aead;
use crate::handshake::{Fresh, Renewal, finish_renewal};
use crate::trace::TraceEvent;
use crate::wire::{Frame, Writer};

/// Our message in an exchange.
#[derive(Debug)]
struct Message {
    bytes: Vec<u8>,
    /// The packet in flight that carries it; `None` if it must be sent.
    said_in: Option<u64>,
}

/// State of the present exchange.
enum Step {
    /// No exchange is open.
    Idle,
    /// This end began it and waits for the answer.
    Asked(Box<HandshakeState>),
    /// This end answered, and waits for a packet of the peer in key phase `phase`. Such a packet proves that
    /// the peer has the answer. Then `ours` is mixed into our next key.
    Answered { phase: u64, ours: Zeroizing<[u8; 32]> },
}

/// The exchange of fresh keys; see the module.
pub(super) struct Rekey {
    renewal: Option<Box<Renewal>>,
    step: Step,
    /// Number of the last exchange that was begun or answered.
    number: u64,
    message: Option<Message>,
    /// When the session began, or when the last exchange was over (initiator) or answered (responder).
    since: Time,
}

impl Rekey {
    pub(super) fn new(now: Time) -> Self {
        Self { renewal: None, step: Step::Idle, number: 0, message: None, since: now }
    }

    /// Called when the session begins.
    pub(super) fn on_session(&mut self, now: Time) {
        self.since = now;
    }

    pub(super) fn is_open(&self) -> bool {
        !matches!(self.step, Step::Idle)
    }

    /// Begins an exchange if there was none for `interval`.
    pub(super) fn begin_after(&mut self, now: Time, interval: Duration, aead: Aead) {
        if self.is_open() || now < self.since + interval {
            return;
        }
        let Some(renewal) = &mut self.renewal else { return };
        self.number += 1;
        let (state, bytes) = renewal.begin(aead, self.number);
        self.step = Step::Asked(Box::new(state));
        self.message = Some(Message { bytes, said_in: None });
    }

    /// Whether a REKEY is waiting for a packet.
    pub(super) fn owes(&self) -> bool {
        self.message.as_ref().is_some_and(|message| message.said_in.is_none())
    }

    /// Writes the waiting REKEY into packet `packet`, if there is room.
    pub(super) fn write(&mut self, packet: u64, w: &mut Writer<'_>) -> bool {
        let Some(message) = self.message.as_mut().filter(|message| message.said_in.is_none()) else { return false };
        let said = Frame::Rekey { number: self.number, message: &message.bytes }.emit(w).is_ok();
        message.said_in = said.then_some(packet);
        said
    }

    /// Called when a packet that may carry the REKEY is known to be received or lost.
    pub(super) fn on_fate(&mut self, packet: u64, arrived: bool) {
        let Some(message) = self.message.as_mut().filter(|message| message.said_in == Some(packet)) else { return };
        if arrived {
            self.message = None;
        } else {
            message.said_in = None;
        }
    }
}

impl Connection {
    /// Gives the connection the secrets that its exchanges need.
    pub(crate) fn allow_exchanges(&mut self, renewal: Renewal) {
        self.security.rekey.renewal = Some(Box::new(renewal));
    }

    /// Handles the peer's REKEY.
    pub(super) fn on_rekey(&mut self, now: Time, number: u64, message: &[u8]) -> Result<(), CloseCode> {
        let (rekey, Some(keys)) = (&mut self.security.rekey, &mut self.security.keys) else { return Ok(()) };
        match (self.side, &mut rekey.step) {
            (Side::Initiator, Step::Asked(state)) if number == rekey.number => {
                let Fresh { ours, theirs } = finish_renewal(state, message).ok_or(CloseCode::Protocol)?;
                keys.opening.refresh(&theirs);
                keys.sealing.refresh(&ours);
                keys.on_renewed(now);
                (rekey.step, rekey.message, rekey.since) = (Step::Idle, None, now);
                self.stats.fresh_keys += 1;
                self.tracer.record(now, || TraceEvent::FreshKeys);
            }
            // A copy of a message that was handled already.
            _ if number > 0 && number <= rekey.number => {}
            (Side::Responder, Step::Idle)
                if number == rekey.number + 1 && now >= rekey.since + LEAST_FRESH_KEYS_AFTER =>
            {
                let renewal = rekey.renewal.as_mut().ok_or(CloseCode::Protocol)?;
                let answer = renewal.answer(keys.aead, number, self.security.peer_key.as_ref(), message);
                let (Fresh { ours, theirs }, bytes) = answer.ok_or(CloseCode::Protocol)?;
                keys.opening.refresh(&theirs);
                let phase = keys.opening.phase() + 1;
                rekey.step = Step::Answered { phase, ours };
                rekey.message = Some(Message { bytes, said_in: None });
                (rekey.number, rekey.since) = (number, now);
            }
            _ => return Err(CloseCode::Protocol),
        }
        Ok(())
    }

    /// Called for an authentic packet of the peer in key phase `phase`.
    pub(super) fn on_phase(&mut self, now: Time, phase: u64) {
        let rekey = &mut self.security.rekey;
        let (Step::Answered { phase: expected, ours }, Some(keys)) = (&rekey.step, &mut self.security.keys) else {
            return;
        };
        if phase < *expected {
            return;
        }
        keys.sealing.refresh(ours);
        keys.on_renewed(now);
        (rekey.step, rekey.message) = (Step::Idle, None);
        self.stats.fresh_keys += 1;
        self.tracer.record(now, || TraceEvent::FreshKeys);
    }
}

impl core::fmt::Debug for Rekey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Rekey").field("number", &self.number).field("open", &self.is_open()).finish_non_exhaustive()
    }
}
