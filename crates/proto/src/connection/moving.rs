//! Endpoints that move: which address the peer is at, and by which ids the two call each other.
//!
//! `receive` tells every authentic packet, `send` asks what is owed. Only the initiator moves (RFC 9000 section 9): its address translator gives it another
//! port, or it changes networks itself, which [`Connection::handle_address_change`] is for. The responder follows once
//! [`Validation`] has proven the new address, and sends to the one in use until then. Where only the port is another the path is the same:
//! rate, round trip and loss estimate are kept; else they begin anew (section 9.4). What was in flight is sent again either way.

use core::net::SocketAddr;
use core::time::Duration;

use super::carried::Carried;
use super::{Connection, Side, State, Transmit};
use crate::Time;
use crate::path::{Errand, Fate, MAX_FEEDBACK_DELAY, Move};
use crate::wire::{ConnectionId, Frame, SHORT_HEADER_LEN, TAG_LEN, Writer, write_short_header};

/// A packet of a challenge and an echo, 9 bytes each.
const ERRAND_LEN: usize = SHORT_HEADER_LEN + 18 + TAG_LEN;
/// Probe timeouts after which a packet to an id that was given up is late beyond belief (RFC 9000 section 10.2 closes as late).
const ID_TIMEOUTS: u32 = 3;

/// Where an authentic packet came from and what it was addressed to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub from: SocketAddr,
    pub to: ConnectionId,
    /// Bytes of the datagram.
    pub len: usize,
    /// No packet so far had a higher number.
    pub highest: bool,
}

impl Connection {
    /// The application, or its driver, knows that our packets now leave from another address.
    ///
    /// The peer is told at once, under an id that nobody has seen yet; all that is known of the path is forgotten.
    pub fn handle_address_change(&mut self, now: Time) {
        let (State::Established { .. }, Some(keys)) = (&self.state, &mut self.keys) else { return };
        // Without a spare one the old id still leads there, and those who see both ways know it.
        keys.peer_ids.advance();
        self.path.local = None;
        self.start_path(now, self.path.remote, false);
    }

    /// The first packet did not prove the address that it came from: nothing but challenges leaves until an address answers one.
    pub(crate) fn distrust_address(&mut self) {
        self.validation.distrust_home();
    }

    /// An authentic packet came.
    pub(super) fn on_origin(&mut self, now: Time, origin: Origin) {
        let timeout = self.path.rtt.probe_timeout(MAX_FEEDBACK_DELAY);
        let renamed = self.ids.on_used(origin.to, now + timeout * ID_TIMEOUTS);
        self.ids.forget(now);
        if self.side == Side::Initiator {
            return;
        }
        if renamed && let Some(keys) = &mut self.keys {
            // A peer that does not want to be recognised by its id is not recognised by ours either.
            keys.peer_ids.advance();
        }
        self.validation.on_packet(now, (origin.from, self.path.remote), origin.len, origin.highest);
        self.validation.expire(now, timeout);
    }

    /// The peer asks for an echo. The initiator's goes to the responder it knows, whoever passed the question on.
    pub(super) fn on_challenge(&mut self, from: SocketAddr, token: [u8; 8]) {
        if self.side == Side::Initiator || (self.validation.is_proven() && from == self.path.remote) {
            self.path_response = Some(token);
        } else {
            self.validation.on_challenge(from, token);
        }
    }

    /// The peer's echo.
    pub(super) fn on_response(&mut self, now: Time, from: SocketAddr, token: [u8; 8]) {
        let moves = self.validation.is_proven();
        let Some(Move { address, rtt }) = self.validation.on_response(now, from, token) else { return };
        let same = address.ip().to_canonical() == self.path.remote.ip().to_canonical();
        self.start_path(now, address, same);
        if let Some(rtt) = rtt.filter(|_| !same || !moves) {
            self.path.rtt.on_sample(now, rtt, Duration::ZERO);
            self.path.rate.on_handshake(rtt);
        }
        self.stats.moves += u64::from(moves);
        // What was said to the old address since it changed was perhaps not heard.
        self.path.feedback.request(now);
    }

    /// From now on packets go another way, to `address`; over the `same` path if only a port has changed.
    fn start_path(&mut self, now: Time, address: SocketAddr, same: bool) {
        self.give_up_flight(now);
        if !same {
            self.path.renew(now, self.config.profile.rate_control.build());
        }
        let path = &mut self.path;
        path.remote = address;
        (path.silence.probes, path.silence.probe_owed) = (0, true);
        (path.silence.waiting_since, path.silence.last_eliciting) = (now, now);
    }

    /// What is in flight is sent again: it went where the peer was. That says nothing of loss, neither to the rate controller nor to the
    /// estimate (RFC 9000 section 9.4).
    fn give_up_flight(&mut self, now: Time) {
        let mut lost = core::mem::take(&mut self.lost);
        lost.clear();
        let open =
            self.path.flight.iter_from(self.path.first).filter(|(_, sent)| sent.fate == Fate::Open && sent.elicits);
        lost.extend(open.map(|(number, _)| number));
        for &number in &lost {
            let Some(sent) = self.path.flight.settle(number, Fate::Lost { at: now }) else { continue };
            self.stats.packets.lost += u64::from(sent.carried != Carried::SizeProbe);
            self.carried_fate(now, number, &sent, false);
        }
        self.lost = lost;
        self.path.first = self.path.flight.next_number();
        self.path.losses.fates_from = self.path.first;
    }

    /// Whether control frames of this room wait for a packet to the address in use.
    pub(super) fn owes_control(&self) -> bool {
        self.path_response.is_some()
            || self.validation.owes_home()
            || (self.is_established() && (self.asking.owes() || self.ids.owes() || self.exchange.owes()))
    }

    /// Writes them into packet `number`, as far as there is room. Returns whether it wrote any.
    pub(super) fn write_control(&mut self, number: u64, w: &mut Writer<'_>) -> bool {
        let mut any = false;
        if let Some(token) = self.path_response
            && Frame::PathResponse(token).emit(w).is_ok()
        {
            (self.path_response, any) = (None, true);
        }
        if let Some(token) = self.validation.take_home() {
            // Where it does not fit the next packet of the peer does without.
            any |= Frame::PathChallenge(token).emit(w).is_ok();
        }
        if self.is_established() {
            any |= self.asking.write(number, w) | self.ids.write(number, w) | self.exchange.write(number, w);
        }
        any
    }

    /// A challenge or an echo to an address that is not proven: small, alone, and not counted as in flight, so that its loss says nothing.
    pub(super) fn transmit_elsewhere(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        let Errand { address, challenge, echo } = self.validation.poll(now, ERRAND_LEN)?;
        let number = self.path.flight.next_number();
        let keys = self.keys.as_mut()?;
        let mut w = Writer::new(out.get_mut(..ERRAND_LEN - TAG_LEN)?);
        write_short_header(&mut w, keys.peer_ids.current(), number, 0).ok()?;
        for frame in [echo.map(Frame::PathResponse), challenge.map(Frame::PathChallenge)].into_iter().flatten() {
            frame.emit(&mut w).ok()?;
        }
        let len = w.len() + TAG_LEN;
        keys.sealing.seal(0, number, out.get_mut(..len)?).ok()?;
        self.record(now, len, Carried::Control, false);
        self.validation.on_sent(address, len);
        Some(Transmit { destination: address, source: self.path.local, ecn: None, len, segment_size: None })
    }

    /// When [`Self::transmit_elsewhere`] has something to say again.
    pub(super) fn next_challenge(&self) -> Option<Time> {
        self.validation.deadline(ERRAND_LEN)
    }

    /// Randomness that no peer can guess, for challenges.
    pub(crate) fn seed(&mut self, seed: [u8; 32]) {
        self.validation.reseed(seed);
    }

    /// The ids by which the peer may call this end.
    pub(crate) fn local_ids(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.ids.iter()
    }

    /// Whether the peer is to get one more.
    pub(crate) fn wants_id(&self) -> bool {
        self.is_established() && self.ids.wants_more()
    }

    /// One more id, which nobody else has.
    pub(crate) fn give_id(&mut self, id: ConnectionId) {
        self.ids.push(id);
    }

    /// An id that no longer leads here.
    pub(crate) fn poll_gone_id(&mut self) -> Option<ConnectionId> {
        self.ids.poll_gone()
    }
}
