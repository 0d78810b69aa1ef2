//! Endpoints that move: the peer's address, and the ids by which the two ends address each other.
//!
//! `receive` passes in every authentic packet, and `send` asks which control frames are waiting. Only the
//! initiator moves (RFC 9000 section 9): its address translator gives it another port, or it changes
//! networks, which it reports with [`Connection::handle_address_change`]. The responder follows when
//! [`Validation`] has validated the new address, and sends to the old one until then. If only the port
//! changed, the path is the same, and rate, round trip and loss estimate are kept. Otherwise they start again
//! (section 9.4). In both cases everything in flight is sent again.

use core::net::SocketAddr;
use core::time::Duration;

use super::carried::Carried;
use super::{Connection, Side, State, Transmit};
use crate::Time;
use crate::path::{Cause, Errand, Fate, MAX_FEEDBACK_DELAY, Move};
use crate::trace::TraceEvent;
use crate::wire::{ConnectionId, Frame, SHORT_HEADER_LEN, TAG_LEN, Writer, write_short_header};

/// Length of a packet with a challenge and a response, 9 bytes each.
const ERRAND_LEN: usize = SHORT_HEADER_LEN + 18 + TAG_LEN;
/// Probe timeouts after which no packet to a retired id is expected any more (the same time as closing in RFC
/// 9000 section 10.2).
const ID_TIMEOUTS: u32 = 3;

/// Source and destination id of an authentic packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub from: SocketAddr,
    pub to: ConnectionId,
    /// Length of the datagram in bytes.
    pub len: usize,
    /// True if no earlier packet had a higher number.
    pub highest: bool,
}

impl Connection {
    /// Tells the connection that its packets now leave from another address.
    ///
    /// The peer is told at once, under an id that was never used before. Everything known about the path is
    /// discarded.
    pub fn handle_address_change(&mut self, now: Time) {
        let (State::Established { .. }, Some(keys)) = (&self.state, &mut self.security.keys) else { return };
        // If there is no spare id, the old id still works, but an observer of both paths can link them.
        keys.peer_ids.advance();
        self.path.local = None;
        self.start_path(now, self.path.remote, false);
    }

    /// Called if the first packet does not prove its source address. Only challenges are sent until an
    /// address answers one.
    pub(crate) fn distrust_address(&mut self) {
        self.addresses.validation.distrust_home();
    }

    /// Called for every authentic packet.
    pub(super) fn on_origin(&mut self, now: Time, origin: Origin) {
        let timeout = self.path.rtt.probe_timeout(MAX_FEEDBACK_DELAY);
        let renamed = self.addresses.ids.on_used(origin.to, now + timeout * ID_TIMEOUTS);
        self.addresses.ids.forget(now);
        if self.side == Side::Initiator {
            return;
        }
        if renamed && let Some(keys) = &mut self.security.keys {
            // A peer that changes its id must not be recognised by ours either.
            keys.peer_ids.advance();
        }
        self.addresses.validation.on_packet(now, origin.from, self.path.remote, origin.len, origin.highest);
        self.addresses.validation.expire(now, timeout);
    }

    /// Handles a challenge of the peer. The initiator always responds to the responder's known address,
    /// whoever forwarded the challenge.
    pub(super) fn on_challenge(&mut self, from: SocketAddr, token: [u8; 8]) {
        if self.side == Side::Initiator || (self.addresses.validation.is_proven() && from == self.path.remote) {
            self.addresses.path_response = Some(token);
        } else {
            self.addresses.validation.on_challenge(from, token);
        }
    }

    /// Handles the peer's response to a challenge.
    pub(super) fn on_response(&mut self, now: Time, from: SocketAddr, token: [u8; 8]) {
        let moves = self.addresses.validation.is_proven();
        let Some(Move { address, rtt }) = self.addresses.validation.on_response(now, from, token) else { return };
        let same = address.ip().to_canonical() == self.path.remote.ip().to_canonical();
        self.start_path(now, address, same);
        if let Some(rtt) = rtt.filter(|_| !same || !moves) {
            self.path.rtt.on_sample(now, rtt, Duration::ZERO);
            self.path.rate.on_handshake(rtt);
        }
        if moves {
            self.stats.moves += 1;
            self.tracer.record(now, || TraceEvent::Moved { remote: address });
        }
        // The peer may not have received what was sent to its old address.
        self.path.feedback.request(now);
    }

    /// Sends packets to `address` from now on. `same` means that the path is the same, because only a port
    /// changed.
    fn start_path(&mut self, now: Time, address: SocketAddr, same: bool) {
        self.give_up_flight(now);
        if !same {
            self.path.renew(now, self.config.profile.rate_control.build());
        }
        let path = &mut self.path;
        path.remote = address;
        (path.pto.probes, path.pto.probe_owed) = (0, true);
        (path.pto.waiting_since, path.pto.last_eliciting) = (now, now);
    }

    /// Declares everything in flight lost, so that it is sent again: it went to the peer's old address.
    /// Neither the rate controller nor the loss estimate counts this as loss (RFC 9000 section 9.4).
    fn give_up_flight(&mut self, now: Time) {
        let mut lost = core::mem::take(&mut self.scratch.lost);
        lost.clear();
        let open =
            self.path.flight.iter_from(self.path.first).filter(|(_, sent)| sent.fate == Fate::Open && sent.elicits);
        lost.extend(open.map(|(number, _)| number));
        for &number in &lost {
            let Some(sent) = self.path.flight.settle(number, Fate::Lost { at: now, cause: Cause::Medium }) else {
                continue;
            };
            self.stats.packets.lost += u64::from(sent.carried != Carried::SizeProbe);
            self.carried_fate(now, number, &sent, false);
        }
        self.scratch.lost = lost;
        self.path.first = self.path.flight.next_number();
        self.path.losses.fates_from = self.path.first;
    }

    /// Whether control frames of this file wait for a packet to the address in use.
    pub(super) fn owes_control(&self) -> bool {
        self.addresses.path_response.is_some()
            || self.addresses.validation.owes_home()
            || (self.is_established()
                && (self.agreed.asking.owes() || self.addresses.ids.owes() || self.security.rekey.owes()))
    }

    /// Writes the waiting control frames into packet `number`, as far as there is room. Returns whether it
    /// wrote any.
    pub(super) fn write_control(&mut self, number: u64, w: &mut Writer<'_>) -> bool {
        let mut any = false;
        if let Some(token) = self.addresses.path_response
            && Frame::PathResponse(token).emit(w).is_ok()
        {
            (self.addresses.path_response, any) = (None, true);
        }
        if let Some(token) = self.addresses.validation.take_home() {
            // A challenge that does not fit is left out.
            any |= Frame::PathChallenge(token).emit(w).is_ok();
        }
        if self.is_established() {
            any |= self.agreed.asking.write(number, w)
                | self.addresses.ids.write(number, w)
                | self.security.rekey.write(number, w);
        }
        any
    }

    /// Sends a challenge or a response to an address that is not validated. The packet is small, carries
    /// nothing else and is not counted as in flight, so its loss has no effect.
    pub(super) fn transmit_elsewhere(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        let Errand { address, challenge, echo } = self.addresses.validation.poll(now, ERRAND_LEN)?;
        let number = self.path.flight.next_number();
        let keys = self.security.keys.as_mut()?;
        let mut w = Writer::new(out.get_mut(..ERRAND_LEN - TAG_LEN)?);
        write_short_header(&mut w, keys.peer_ids.current(), number, 0).ok()?;
        for frame in [echo.map(Frame::PathResponse), challenge.map(Frame::PathChallenge)].into_iter().flatten() {
            frame.emit(&mut w).ok()?;
        }
        let len = w.len() + TAG_LEN;
        keys.sealing.seal(0, number, out.get_mut(..len)?).ok()?;
        self.record(now, len, Carried::Control, false);
        self.addresses.validation.on_sent(address, len);
        Some(Transmit { destination: address, source: self.path.local, ecn: None, len, segment_size: None })
    }

    /// When [`Self::transmit_elsewhere`] next has something to send.
    pub(super) fn next_challenge(&self) -> Option<Time> {
        self.addresses.validation.deadline(ERRAND_LEN)
    }

    /// Sets the random seed for challenges, which no peer may be able to guess.
    pub(crate) fn seed(&mut self, seed: [u8; 32]) {
        self.addresses.validation.reseed(seed);
    }

    /// The ids by which the peer may address this end.
    pub(crate) fn local_ids(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.addresses.ids.iter()
    }

    /// Whether the peer should get another id.
    pub(crate) fn wants_id(&self) -> bool {
        self.is_established() && self.addresses.ids.wants_more()
    }

    /// Adds an id for the peer, which must be unique.
    pub(crate) fn give_id(&mut self, id: ConnectionId) {
        self.addresses.ids.push(id);
    }

    /// The next id that no longer belongs to this connection.
    pub(crate) fn poll_gone_id(&mut self) -> Option<ConnectionId> {
        self.addresses.ids.poll_gone()
    }
}
