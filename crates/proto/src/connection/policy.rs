//! POLICY, in both directions: the initiator asks the responder to code as the initiator's user chose
//! (docs/wire.md section 5).
//!
//! `migration` writes POLICY beside the other control frames, `feedback` reports the fates of its packets,
//! and `receive` passes in the peer's POLICY. Invariants: the layout of a lane never changes after its first
//! symbol was sent; only the first POLICY of the peer is read.

use tidewire_codec::SourceId;

use super::{Connection, Side};
use crate::Time;
use crate::lane::LaneSender;
use crate::profile::Bounds;
use crate::redundancy::Policies;
use crate::wire::{CodeSet, Frame, Writer};

/// Number of copies sent at first. With one copy, the responder's data would overtake POLICY whenever that
/// packet is lost. Chosen.
const COPIES: usize = 2;

/// The request to the peer.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// `None` if there is no request, or a copy was received.
    text: Option<String>,
    /// Number of copies still to be sent.
    owed: usize,
    /// Packets in flight with copies, at most [`COPIES`].
    under_way: Vec<u64>,
}

impl Asking {
    fn new(text: Option<String>) -> Self {
        Self { text, owed: COPIES, under_way: Vec::new() }
    }

    pub(super) fn owes(&self) -> bool {
        self.text.is_some() && self.owed > 0
    }

    /// Writes a copy into packet `packet`, if there is room.
    pub(super) fn write(&mut self, packet: u64, w: &mut Writer<'_>) -> bool {
        let Some(text) = self.text.as_deref().filter(|_| self.owed > 0) else { return false };
        if Frame::Policy(text).emit(w).is_err() {
            return false;
        }
        self.owed -= 1;
        self.under_way.push(packet);
        true
    }

    /// Called when a packet that may carry a copy is known to be received or lost.
    pub(super) fn on_fate(&mut self, packet: u64, arrived: bool) {
        let Some(index) = self.under_way.iter().position(|&of| of == packet) else { return };
        self.under_way.swap_remove(index);
        if arrived {
            *self = Self::default();
        } else if self.under_way.is_empty() {
            self.owed = 1;
        }
    }
}

/// State of the peer's POLICY.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hearing {
    /// None was received yet. The peer decodes these codes.
    Open(CodeSet),
    /// One was read, or none will be read.
    Over,
}

impl Connection {
    /// Called when the session begins. Decides whether this end asks, and whether it listens.
    pub(super) fn begin_policy(&mut self, peer: CodeSet) {
        let (is_default, config) = (self.agreed.profile.codes_as_default(), &self.config);
        match self.side {
            Side::Initiator if config.asks_peer && !is_default => {
                self.agreed.asking = Asking::new(self.agreed.profile.policy_text());
            }
            Side::Responder if config.follows_peer && is_default => self.agreed.hearing = Hearing::Open(peer),
            Side::Initiator | Side::Responder => {}
        }
    }

    /// Handles the peer's POLICY, which may be any text.
    pub(super) fn on_policy(&mut self, now: Time, text: &str) {
        let Hearing::Open(codes) = core::mem::replace(&mut self.agreed.hearing, Hearing::Over) else { return };
        let bounds = Bounds { codes, max_overhead: self.config.max_overhead(), max_span: self.agreed.max_span };
        let Some(granted) = self.agreed.profile.granted(text, bounds) else { return };
        let sender = &self.lanes.streams.sender;
        if granted.layout != sender.layout() {
            if sender.sent() > SourceId(0) || sender.queued() > 0 {
                return;
            }
            let (slot_len, memory, spare) = (self.config.slot_len(), self.config.limits.ring_memory, sender.spare);
            let mut sender =
                LaneSender::new(granted.layout, self.agreed.max_span, slot_len, memory, self.agreed.lane_credit);
            sender.spare = spare;
            self.lanes.streams.sender = sender;
        }
        self.agreed.profile = granted;
        self.lanes.streams.policies = Policies::new(granted.redundancy);
        self.lanes.streams.deferred = None;
        self.stats.policy_followed = true;
        self.tracer.record(now, || self.choices());
    }
}
