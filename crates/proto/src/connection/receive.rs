//! Receives datagrams: decrypts them in place and passes each frame to its handler.
//!
//! No state changes before the tag of a packet was verified. Packets of strangers are counted and dropped. A
//! violation by the peer closes the connection with a code.

use core::net::SocketAddr;
use core::time::Duration;

use tidewire_codec::SourceId;

use super::keys::MAX_FORGED;
use super::migration::Origin;
use super::{CloseCode, CloseReason, Connection, Received, State};
use crate::Time;
use crate::crypto::{OpenError, Opened};
use crate::lane::Arrival;
use crate::path::{Ecn, IP_UDP_HEADER, Patience};
use crate::wire::{ConnectionId, Datagram, Frame, Frames};

/// What the frames of one packet request.
#[derive(Default)]
struct Asked {
    elicits: bool,
    urgent: bool,
    /// The packet contained FEEDBACK. Only one is allowed per packet, because each costs a scan of the
    /// packets in flight.
    feedback: bool,
}

impl Connection {
    /// Handles a datagram. If it leaves a gap, `dropped` packets of this host may have been in it; those that
    /// are taken for such are taken off.
    pub(super) fn receive(&mut self, received: Received<'_>, dropped: &mut u64) {
        let Received { at: now, from, to: _, ecn, datagram } = received;
        match &mut self.state {
            State::Connecting(_) => return self.receive_reply(now, datagram),
            State::Draining { .. } | State::Closed => return,
            State::Established { .. } | State::Closing { .. } => {}
        }
        let len = datagram.len();
        let Some((opened, to)) = self.open(now, datagram) else {
            self.stats.packets.dropped += 1;
            return;
        };
        self.stats.packets.received += 1;
        self.stats.bytes.wire_received += (len + IP_UDP_HEADER) as u64;
        let heard = core::mem::replace(&mut self.contact.last_heard, now);
        let mut connected = false;
        match &mut self.state {
            State::Established { confirmed } if !*confirmed => {
                *confirmed = true;
                connected = true;
                // The time since the HELLO. It is too long if REPLYs were lost, so it is not a round-trip
                // sample.
                self.path.rate.on_handshake(now.since(heard));
                // Measure our own round trip, which sets the interval of FEEDBACK.
                self.path.pto.probe_owed = true;
            }
            State::Closing { next, .. } => {
                // Send another CLOSE: the peer may not have received the first.
                *next = (*next).min(now);
            }
            _ => {}
        }
        if connected {
            self.tell_connected(now);
        }
        let number = opened.number;
        let payload = datagram.get(opened.payload.clone()).unwrap_or_default();
        self.trace_received(now, number, (len + IP_UDP_HEADER) as u32, payload);
        self.on_phase(now, opened.phase);
        self.on_origin(now, Origin { from, to, len, highest: opened.highest });
        let missing = (*dropped).min(self.path.received.missing_before(opened.number));
        *dropped -= missing;
        self.receiving.host_drops += missing;
        let gap = self.path.received.insert(opened.number, now, ecn);
        if gap {
            self.path.feedback.on_gap();
        }
        if self.path.received.train.on_packet(now, number) {
            self.path.feedback.request(now);
        }
        let Some(payload) = datagram.get(opened.payload) else { return };
        self.receiving.unreported += (len + IP_UDP_HEADER) as u64;
        let asked = self.receive_frames(now, opened.number, from, payload);
        self.give_up_stopped();
        match asked {
            Ok(asked) if asked.elicits => {
                // A mark is reported soon (RFC 9000 section 13.2.1). Reported late, beside packets that left
                // after the window fell for it, it would lower the window again.
                let is_marked = ecn == Some(Ecn::Ce);
                let patience = match opened.may_wait {
                    _ if asked.urgent || gap || is_marked => Patience::None,
                    true => Patience::Long,
                    false => Patience::Usual,
                };
                self.path.feedback.on_eliciting(now, patience);
            }
            Ok(_) => {}
            Err(code) => self.fault(now, code),
        }
        if self.path.flight.is_full() {
            // An end that only receives small records gets no FEEDBACK. Packets are otherwise forgotten when
            // FEEDBACK arrives, so forget them here.
            self.path.forget_packets(now);
            if self.path.flight.is_full() {
                self.fault(now, CloseCode::Protocol);
            }
        }
    }

    /// Decrypts a short packet, unless the limit of forged packets is reached.
    fn open(&mut self, now: Time, datagram: &mut [u8]) -> Option<(Opened, ConnectionId)> {
        let keys = self.security.keys.as_mut().filter(|keys| keys.forged < MAX_FORGED)?;
        let Ok(Datagram::Short { destination }) = Datagram::parse(datagram) else { return None };
        match keys.opening.open(0, datagram) {
            Ok(opened) => Some((opened, destination)),
            Err(OpenError::Forged) => {
                self.stats.packets.refused_tags += 1;
                self.on_forged(now);
                None
            }
            Err(error) => {
                self.stats.packets.refused_tags += u64::from(error == OpenError::Replayed);
                None
            }
        }
    }

    fn receive_reply(&mut self, now: Time, datagram: &mut [u8]) {
        let State::Connecting(initiator) = &mut self.state else { return };
        let len = datagram.len();
        if initiator.handle_cookie(now, datagram).is_ok() {
            self.stats.bytes.wire_received += (len + IP_UDP_HEADER) as u64;
            return;
        }
        let Ok(session) = initiator.handle_reply(datagram) else {
            self.stats.packets.dropped += 1;
            return;
        };
        if let Some(sent) = initiator.sent_once() {
            // The sample is too long by at most the gap between the two copies.
            let rtt = now.since(sent);
            self.path.rtt.on_sample(now, rtt, Duration::ZERO);
            self.path.rate.on_handshake(rtt);
        }
        self.stats.bytes.wire_received += (len + IP_UDP_HEADER) as u64;
        self.contact.last_heard = now;
        self.state = State::Established { confirmed: true };
        self.adopt(now, session);
        if matches!(self.state, State::Closing { .. }) {
            return;
        }
        self.tell_connected(now);
        // The first packet proves to the responder that this end has the keys. It also measures the round
        // trip.
        self.path.pto.probe_owed = true;
    }

    fn receive_frames(&mut self, now: Time, number: u64, from: SocketAddr, payload: &[u8]) -> Result<Asked, CloseCode> {
        let mut asked = Asked::default();
        if payload.is_empty() {
            return Err(CloseCode::Malformed);
        }
        for frame in Frames::new(payload) {
            let frame = frame.map_err(|_| CloseCode::Malformed)?;
            asked.elicits |= frame.elicits_ack();
            self.receive_frame(now, number, from, &frame, &mut asked)?;
        }
        Ok(asked)
    }

    fn receive_frame(
        &mut self,
        now: Time,
        number: u64,
        from: SocketAddr,
        frame: &Frame<'_>,
        asked: &mut Asked,
    ) -> Result<(), CloseCode> {
        match *frame {
            Frame::Source { lane, layout, id, base, again, symbol } => {
                asked.urgent |=
                    self.on_arrival(now, number, lane, base, Arrival::Source { layout, id, again, symbol })?;
            }
            Frame::Repair { lane, layout, code, id, base, on_feedback: _, symbol } => {
                asked.urgent |=
                    self.on_arrival(now, number, lane, base, Arrival::Repair { layout, code, id, symbol })?;
            }
            Frame::Base { lane, base } => asked.urgent |= self.on_arrival(now, number, lane, base, Arrival::Nothing)?,
            Frame::Feedback(ref feedback) => {
                if core::mem::replace(&mut asked.feedback, true) {
                    return Err(CloseCode::Protocol);
                }
                self.on_feedback(now, number, feedback)?;
            }
            Frame::Close { code, reason } => {
                let reason = CloseReason::Peer { code: CloseCode::from_wire(code), reason: reason.to_owned() };
                let until = now + self.path.rtt.probe_timeout(Duration::ZERO);
                if matches!(self.state, State::Established { .. }) {
                    self.tell_closed(now, reason);
                }
                self.state = State::Draining { until };
            }
            Frame::PathChallenge(token) => self.on_challenge(from, token),
            Frame::PathResponse(token) => self.on_response(now, from, token),
            Frame::NewCid { sequence, retire, path, id } => {
                if let Some(keys) = &mut self.security.keys {
                    keys.peer_ids.on_new(sequence, retire, path, id).map_err(|_| CloseCode::Protocol)?;
                }
            }
            Frame::Rekey { number, message } => self.on_rekey(now, number, message)?,
            Frame::Slice { lane, layout, id, offset, total, bytes } => {
                let slice = Arrival::Slice { layout, id, offset, total, bytes };
                asked.urgent |= self.on_arrival(now, number, lane, SourceId(0), slice)?;
            }
            Frame::Policy(text) => self.on_policy(now, text),
            Frame::Train(packets) => {
                if self.path.received.train.on_train(now, number, packets) {
                    self.path.feedback.request(now);
                }
            }
            Frame::TrainReport(report) => {
                if !self.path.on_train_report(now, &report) {
                    return Err(CloseCode::Protocol);
                }
            }
            Frame::Ranks(ref ranks) => self.on_ranks(number, ranks)?,
            Frame::HostDrops(packets) => self.on_host_drops(now, packets),
            Frame::Recoded(ref recoded) => self.on_recoded(recoded)?,
            Frame::Ping => {}
        }
        Ok(())
    }
}
