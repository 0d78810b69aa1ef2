//! Fills transmit slots: one decision per packet, made when the packet is sent.
//!
//! The order is: a probe after a silence, FEEDBACK that is due, an MTU probe, repair, source, nothing. No
//! coded packet is queued: a repair is computed from the newest window directly into the outgoing buffer, and
//! sealed there.
//!
//! This file builds, seals and records packets, `slot` chooses what one carries, `ask` asks the policies for
//! that, `withheld` gives them the symbols that no packet carries, and `write` writes what was chosen.

mod ask;
mod slot;
mod withheld;
mod write;

use core::time::Duration;

use super::carried::{Carried, Data, content};
use super::lanes::Lane;
use super::slices::BASE_SIZE;
use super::{CLOSING_TIMEOUTS, Connection, State, Transmit};
use crate::Time;
use crate::path::{Ecn, IP_UDP_HEADER, transmission_time};
use crate::redundancy::is_known_clean;
use crate::trace::TraceEvent;
use crate::wire::{
    Frame, Frames, SHORT_HEADER_LEN, SymbolFrame, SymbolFrames, TAG_LEN, WAIT_BIT, Writer, write_grease,
    write_short_header,
};

pub(super) use slot::Slot;
pub(super) use write::PACKET_OVERHEAD;

impl Connection {
    pub(super) fn transmit(&mut self, now: Time, max_segments: usize, out: &mut [u8]) -> Option<Transmit> {
        self.contact.last_asked = now;
        self.renew_key(now);
        match &mut self.state {
            State::Connecting(initiator) => {
                let len = initiator.poll_transmit(now, out)?;
                self.stats.bytes.wire_sent += (len + IP_UDP_HEADER) as u64;
                Some(Transmit {
                    destination: self.path.remote,
                    source: self.path.local,
                    ecn: None,
                    len,
                    segment_size: None,
                })
            }
            State::Established { .. } => {
                self.expire_messages(now);
                let transmit = self.transmit_elsewhere(now, out).or_else(|| {
                    let proven = self.addresses.validation.is_proven();
                    proven.then(|| self.transmit_batch(now, max_segments, out))?
                });
                // The source symbols of the batch have made room for others.
                self.wake_writers(now);
                transmit
            }
            State::Closing { .. } => self.transmit_close(now, out),
            State::Draining { .. } | State::Closed => None,
        }
    }

    fn transmit_batch(&mut self, now: Time, max_segments: usize, out: &mut [u8]) -> Option<Transmit> {
        let size = usize::from(self.path.mtu.current());
        let first = self.build_packet(now, out, None)?;
        let each = transmission_time(first + IP_UDP_HEADER, self.pacing()).as_nanos().max(1);
        let segments = max_segments.min((BATCH.as_nanos() / each) as usize);
        let mut len = first;
        let mut count = 1;
        // An MTU probe is sent alone, because no other packet is as long.
        while count < segments && first <= size {
            let Some(rest) = out.get_mut(len..len + first) else { break };
            let Some(more) = self.build_packet(now, rest, Some(first)) else { break };
            len += more;
            count += 1;
            if more < first {
                break;
            }
        }
        let segment_size = (count > 1).then_some(first);
        Some(Transmit {
            destination: self.path.remote,
            source: self.path.local,
            ecn: Some(Ecn::Ect0),
            len,
            segment_size,
        })
    }

    /// Builds and seals one packet, of at most `segment` bytes if it joins a batch. `None` if there is
    /// nothing to send now.
    fn build_packet(&mut self, now: Time, out: &mut [u8], segment: Option<usize>) -> Option<usize> {
        self.path.skip_number(now);
        let number = self.path.flight.next_number();
        let limit = segment.unwrap_or_else(|| usize::from(self.path.mtu.current()));
        // It may wait for what is already in the socket, and then reports that too.
        let heard = now.min(self.contact.read);
        let feedback = self.path.feedback.due(self.path.rtt.least_or_zero()).is_some_and(|due| due <= heard);
        let train = self.next_train(now);
        let control = feedback || train.is_some() || self.owes_control();
        // Data fills the whole packet, so FEEDBACK does not fit beside it and gets its own packet.
        let slot = if control { None } else { Some(self.next_slot(now, limit)?) };
        let limit = if let Some(Slot::SizeProbe(size)) = slot { usize::from(size) } else { limit };
        let remote_id = self.security.keys.as_ref()?.peer_ids.current();
        let mut w = Writer::new(out.get_mut(..limit.checked_sub(TAG_LEN)?)?);
        self.scratch.grease = self.scratch.grease.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
        write_short_header(&mut w, remote_id, number, (self.scratch.grease >> 59) as u8).ok()?;
        let mut elicits = control && self.write_control(number, &mut w);
        if let Some(packets) = train
            && Frame::Train(packets).emit(&mut w).is_ok()
        {
            self.path.pacer.begin_train(now, packets - 1);
            self.path.delivery.announce_train(number);
        }
        if feedback {
            if let Some(report) = self.path.received.train.take() {
                // A report that does not fit is left out: the next train makes another.
                let _ = Frame::TrainReport(report).emit(&mut w);
            }
            if self.receiving.host_drops > 0 {
                // A count that does not fit comes with the next FEEDBACK.
                let _ = Frame::HostDrops(self.receiving.host_drops).emit(&mut w);
            }
            elicits |= self.write_feedback(now, number, &mut w).unwrap_or(false);
            self.write_ranks(&mut w);
            if self.scratch.grease.is_multiple_of(GREASE_RATE) {
                // It may be left out if it does not fit.
                let _ = write_grease(&mut w, (self.scratch.grease >> 16) as u16, &self.scratch.grease.to_be_bytes());
            }
        }
        let mut carried = Carried::Control;
        if let Some(slot) = &slot {
            carried = self.write_slot(now, number, slot, limit, &mut w)?;
            elicits = true;
        }
        let len = w.len() + TAG_LEN;
        if w.len() == SHORT_HEADER_LEN {
            return None;
        }
        if let Carried::Data(Data::Source { again: false, .. }) = carried
            && self.may_wait()
            && !ends_a_stream(out.get(SHORT_HEADER_LEN..len - TAG_LEN)?)
        {
            out[0] |= WAIT_BIT;
        }
        self.security.keys.as_mut()?.sealing.seal(0, number, out.get_mut(..len)?).ok()?;
        self.record(now, len, carried, elicits);
        Some(len)
    }

    /// Whether the FEEDBACK for a packet with data may wait for another: the application is the limit and not
    /// the path, and no loss is expected that an early report would help to repair.
    fn may_wait(&self) -> bool {
        let path = &self.path;
        is_known_clean(&path.losses.estimator.estimate()) && !path.app_limited.is_saturated() && path.pto.probes == 0
    }

    /// Records a packet that is sent now.
    pub(super) fn record(&mut self, now: Time, len: usize, carried: Carried, elicits: bool) {
        let bytes = (len + IP_UDP_HEADER) as u32;
        if let Carried::Data(Data::Source { lane, .. } | Data::Slice { lane, .. } | Data::Repair { lane, .. }) = carried
        {
            self.path.app_limited.on_data(now, self.path.rtt.smoothed());
            self.lanes.charge(lane, bytes);
        }
        if let Carried::Data(Data::Recoded { .. }) = carried {
            self.path.app_limited.on_data(now, self.path.rtt.smoothed());
        }
        let number = self.path.flight.next_number();
        self.tracer.record(now, || TraceEvent::PacketSent { number, bytes, content: content(carried) });
        self.path.on_sent(now, bytes, carried, elicits);
        let packets = &mut self.stats.packets;
        packets.sent += 1;
        match carried {
            Carried::Data(Data::Source { again: false, .. } | Data::Slice { again: false, .. }) => packets.source += 1,
            Carried::Data(
                Data::Source { again: true, .. }
                | Data::Slice { again: true, .. }
                | Data::Repair { on_feedback: true, .. },
            ) => packets.feedback_repair += 1,
            Carried::Data(Data::Repair { on_feedback: false, .. }) => packets.repair += 1,
            Carried::Data(Data::Recoded { .. }) => packets.recoded += 1,
            Carried::Control | Carried::SizeProbe | Carried::Data(Data::Base { .. }) => packets.control += 1,
        }
        self.stats.bytes.wire_sent += u64::from(bytes);
        if elicits {
            let pacing = self.pacing();
            self.path.pacer.on_sent(now, bytes as usize, pacing, self.path.rate.train());
        }
    }

    /// Number of packets of the train that begins now, with a packet of its own.
    fn next_train(&self, now: Time) -> Option<u16> {
        let path = &self.path;
        let train = path.rate.train().filter(|_| path.pacer.is_open(now) && path.pacer.is_between_trains(now))?;
        let may_send = !path.pto.is_broken() && path.has_room(path.mtu.current().into());
        // A train of one symbol shows no rate. An application that sends single symbols sends them without.
        let has_several = self.lanes.iter().any(|(_, Lane { sender, .. })| sender.has_source() && sender.queued() > 1);
        (may_send && has_several && self.is_established()).then_some(train.packets)
    }

    fn transmit_close(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        let State::Closing { code, reason, next, until } = &mut self.state else { return None };
        if now < *next || until.is_some_and(|until| now >= until) {
            return None;
        }
        let timeout = self.path.rtt.probe_timeout(Duration::ZERO);
        *next = now + timeout;
        until.get_or_insert(now + timeout * CLOSING_TIMEOUTS);
        let number = self.path.flight.next_number();
        let keys = self.security.keys.as_mut()?;
        let mut w = Writer::new(out.get_mut(..BASE_SIZE - TAG_LEN)?);
        write_short_header(&mut w, keys.peer_ids.current(), number, 0).ok()?;
        // An address that is not validated gets only the code, within its budget of three times the bytes
        // received.
        let proven = self.addresses.validation.is_proven();
        Frame::Close { code: code.to_wire(), reason: if proven { reason } else { "" } }.emit(&mut w).ok()?;
        let len = w.len() + TAG_LEN;
        if !proven {
            if !self.addresses.validation.allows(self.path.remote, len) {
                return None;
            }
            self.addresses.validation.on_sent(self.path.remote, len);
        }
        keys.sealing.seal(0, number, out.get_mut(..len)?).ok()?;
        self.record(now, len, Carried::Control, false);
        Some(Transmit { destination: self.path.remote, source: self.path.local, ecn: None, len, segment_size: None })
    }
}

/// Whether the frames of a packet end a stream, so that an application may wait for the answer.
fn ends_a_stream(payload: &[u8]) -> bool {
    Frames::new(payload).flatten().any(|frame| {
        let Frame::Source { symbol, .. } = frame else { return false };
        let Ok((_, frames)) = SymbolFrames::new(symbol) else { return false };
        frames.flatten().any(|frame| {
            matches!(
                frame,
                SymbolFrame::Stream { fin: true, .. } | SymbolFrame::Reset { .. } | SymbolFrame::Stop { .. }
            )
        })
    })
}

/// Longest duration of a batch of segments at the pacing rate. Chosen, to keep bursts short.
const BATCH: Duration = Duration::from_micros(500);
/// One FEEDBACK in this many is followed by an ignorable frame, so that peers keep ignoring unknown frames.
const GREASE_RATE: u64 = 64;
