//! Fills transmit slots: one decision per packet, made when the packet is sent.
//!
//! The order is: a probe after a silence, FEEDBACK that is due, an MTU probe, repair, source, nothing. No
//! coded packet is queued: a repair is computed from the newest window directly into the outgoing buffer, and
//! sealed there.

use core::ops::ControlFlow;
use core::time::Duration;

use tidewire_codec::{RepairId, SourceId};

use super::carried::{Carried, Data, content};
use super::lanes::Lane;
use super::slices::BASE_SIZE;
use super::{CLOSING_TIMEOUTS, Connection, LaneId, State, Transmit};
use crate::Time;
use crate::lane::{LaneSender, STREAMS, Slice};
use crate::path::{Ecn, IP_UDP_HEADER, transmission_time};
use crate::redundancy::{CodingContext, CodingLimits, FlowState, GenerationRow, PathState, Planned, Policies, Repair};
use crate::trace::TraceEvent;
use crate::wire::{
    Frame, Layout, SHORT_HEADER_LEN, TAG_LEN, Writer, longest_parameters, pad, repair_header_len, source_header_len,
    write_grease, write_repair_header, write_short_header, write_source_header,
};

/// Longest duration of a batch of segments at the pacing rate. Chosen, to keep bursts short.
const BATCH: Duration = Duration::from_micros(500);
/// Least number of bytes that a data packet carries beside its symbol header and symbol.
pub(super) const PACKET_OVERHEAD: usize = SHORT_HEADER_LEN + TAG_LEN;
/// One FEEDBACK in this many is followed by an ignorable frame, so that peers keep ignoring unknown frames.
const GREASE_RATE: u64 = 64;
/// A packet that is less than half full is sent no sooner than the latency target divided by this after the
/// previous source symbol. Small records in quick succession then share a packet. Measured at 10 % loss: a
/// twelfth saves another 3 % of the bytes, a twenty-fourth costs 5 % more (docs/recovery.md).
const HOLD: u32 = 16;
/// Lower limit of this wait. One packet per millisecond costs 0.6 Mbit/s of headers. Chosen.
const LEAST_HOLD: Duration = Duration::from_millis(1);
/// If the user stated a latency, which may be 1 ms, the wait is at most that latency divided by this. Chosen.
const MOST_HOLD: u32 = 4;
/// The wait is at most the round trip divided by this. So an application that waits for an answer before it
/// writes again is never held. Chosen.
const HOLD_RTT: u32 = 8;
/// Symbols leave room for repairs with keys up to this one, whose key takes two bytes. No policy of this
/// crate needs as many repairs of a generation.
const FAR_KEY: u16 = 0x3fff;

/// Content of a slot, except FEEDBACK.
pub(super) enum Slot {
    Ping,
    SizeProbe(u16),
    Repair(u32, Repair),
    Source(u32),
    /// Part of a symbol that is longer than the path MTU allows.
    Slice(u32, Slice),
    /// The base of a lane that has no symbol to carry it.
    Base(u32),
    /// A combination of this generation of the relayed lane.
    Recoded(u64),
}

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
        let feedback = self.path.feedback.due(self.path.rtt.least_or_zero()).is_some_and(|due| due <= now);
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
        self.security.keys.as_mut()?.sealing.seal(0, number, out.get_mut(..len)?).ok()?;
        self.record(now, len, carried, elicits);
        Some(len)
    }

    /// Records a packet that is sent now.
    pub(super) fn record(&mut self, now: Time, len: usize, carried: Carried, elicits: bool) {
        let bytes = (len + IP_UDP_HEADER) as u32;
        if let Carried::Data(Data::Source { lane, .. } | Data::Slice { lane, .. } | Data::Repair { lane, .. }) = carried
        {
            self.path.usage.on_data(now, self.path.rtt.smoothed());
            self.lanes.charge(lane, bytes);
        }
        if let Carried::Data(Data::Recoded { .. }) = carried {
            self.path.usage.on_data(now, self.path.rtt.smoothed());
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
        let may_send = !path.silence.is_broken() && path.has_room(path.mtu.current().into());
        // A train of one symbol shows no rate. An application that sends single symbols sends them without.
        let has_several = self.lanes.iter().any(|(_, Lane { sender, .. })| sender.has_source() && sender.queued() > 1);
        (may_send && has_several && self.is_established()).then_some(train.packets)
    }

    /// Decides what the next slot carries.
    fn next_slot(&mut self, now: Time, limit: usize) -> Option<Slot> {
        if self.path.silence.probe_owed {
            return self.probe(now, limit);
        }
        if core::mem::take(&mut self.path.silence.ping_owed) {
            return Some(Slot::Ping);
        }
        if self.path.silence.is_broken() || !self.path.pacer.is_open(now) || !self.path.has_room(limit) {
            return None;
        }
        if let Some(size) = self.path.mtu.poll(now) {
            return Some(Slot::SizeProbe(size));
        }
        if let ControlFlow::Break(slot) = self.recoded_slot(limit) {
            return slot;
        }
        let mut tried = 0;
        while let Some(lane) = self.lanes.next(tried) {
            tried |= 1 << lane;
            match self.lane_slot(now, lane, limit) {
                ControlFlow::Break(slot) => return slot,
                ControlFlow::Continue(()) => {}
            }
        }
        let is_held = self.is_held(now, STREAMS);
        let has_none = |(id, lane): (u32, &Lane)| lane.sender.queued() == 0 || (id == STREAMS && is_held);
        if self.path.usage.idle_since.is_none() && self.lanes.iter().all(has_none) {
            self.path.usage.idle_since = Some(now);
        }
        None
    }

    /// Chooses the probe after a silence. First choice is the oldest symbol that the peer may lack, because
    /// the peer can deliver it first. Then a base that the peer may not know, then new data.
    fn probe(&mut self, now: Time, limit: usize) -> Option<Slot> {
        // The probe may need a full-size packet. If the segments of this batch are shorter, it waits for the
        // next batch.
        if limit < usize::from(self.path.mtu.current()) {
            return None;
        }
        self.path.silence.probe_owed = false;
        self.path.silence.last_probe = now;
        if self.path.silence.is_broken() && self.path.mtu.is_raised() && self.path.silence.probes.is_multiple_of(2) {
            return Some(Slot::Ping);
        }
        if let Some((id, Lane { sender, .. })) = self.lanes.longest_lacking(now) {
            let oldest = Repair::Resend(sender.base());
            if packet_len(id, sender, &oldest) <= limit {
                return Some(Slot::Repair(id, oldest));
            }
            if let Some(slot) = self.slice_oldest(id) {
                return Some(slot);
            }
        }
        if let Some((id, _)) = self.lanes.iter().find(|(_, lane)| lane.sender.is_base_news()) {
            return Some(Slot::Base(id));
        }
        if let Some(generation) = self.lacking_recoded(limit) {
            return Some(Slot::Recoded(generation));
        }
        let mut tried = 0;
        while let Some(lane) = self.lanes.next(tried) {
            tried |= 1 << lane;
            if self.has_source(lane, limit) {
                return Some(Slot::Source(lane));
            }
        }
        Some(Slot::Ping)
    }

    /// Whether a source symbol of the lane is waiting that fits a slot of `limit` bytes or must be sent in
    /// parts.
    fn has_source(&mut self, lane: u32, limit: usize) -> bool {
        let size = usize::from(self.path.mtu.current());
        let Some(Lane { sender, .. }) = self.lanes.get_mut(lane) else { return false };
        let len = sender.next_source().map(|source| source_len(lane, sender, source));
        len.is_some_and(|len| len <= limit || (len > size && limit >= BASE_SIZE && sender.may_slice()))
    }

    /// The slot that policies and source symbols of the lane offer.
    pub(super) fn offered_slot(&mut self, now: Time, id: u32, limit: usize) -> ControlFlow<Option<Slot>> {
        let Some(lane) = self.lanes.get_mut(id) else { return ControlFlow::Continue(()) };
        if lane.sender.owes_base() && !lane.sender.has_source() {
            return ControlFlow::Break(Some(Slot::Base(id)));
        }
        if let Some(slice) = lane.sender.owed_slice() {
            return ControlFlow::Break((limit >= BASE_SIZE).then_some(Slot::Slice(id, slice)));
        }
        if let Some(slot) = self.withheld_lost_slot(id, limit) {
            return slot;
        }
        let Some(lane) = self.lanes.get_mut(id) else { return ControlFlow::Continue(()) };
        // The peer may have decoded the symbols of a deferred repair in the meantime.
        let base = lane.sender.base();
        let deferred = lane.deferred.take().filter(|repair| repair.end() > base);
        let repair = deferred.or_else(|| {
            let repair = self.ask_policies(now, id, |policies, cx| policies.next(cx))?;
            self.make_ahead(id);
            repair
        });
        let is_whole = repair.is_none_or(|repair| self.fill_span(now, id, repair.end()));
        let Some(lane) = self.lanes.get_mut(id) else { return ControlFlow::Continue(()) };
        if !is_whole {
            // The bytes of a symbol are final when it was sent or withheld. Credit or room are missing
            // for that.
            lane.deferred = repair;
            return ControlFlow::Continue(());
        }
        if let Some(repair) = repair.filter(|repair| lane.sender.keeps(repair)) {
            let len = packet_len(id, &lane.sender, &repair);
            if len <= limit {
                // If nothing else can fill the slot, the slot would be lost, so the repair is computed at
                // once.
                let is_coming = lane.sender.is_coming(&repair);
                if !is_coming || !self.may_leave(now, id, limit) {
                    return ControlFlow::Break(Some(Slot::Repair(id, repair)));
                }
                self.lanes.get_mut(id).into_iter().for_each(|lane| lane.deferred = Some(repair));
                return ControlFlow::Break(Some(Slot::Source(id)));
            }
            // The repair must wait for the next batch, whose segments may be larger.
            let is_possible = len <= usize::from(self.path.mtu.current());
            if is_possible || limit < BASE_SIZE {
                lane.deferred = Some(repair);
                return ControlFlow::Break(None);
            }
            if let Repair::Coded { first, count, .. } = repair {
                lane.sender.lose_withheld(first, count);
            }
            let withholds = lane.slides_without_sources();
            if let Some(slot) = self.slice_lost(id) {
                return ControlFlow::Break(Some(slot));
            }
            if withholds {
                // The symbols that the repair is for are on their way in parts. A new symbol would be
                // withheld and ask for the same repair.
                return ControlFlow::Continue(());
            }
        }
        let may_leave = self.may_leave(now, id, limit);
        if may_leave { ControlFlow::Break(Some(Slot::Source(id))) } else { ControlFlow::Continue(()) }
    }

    /// Whether a source symbol of the lane may fill a slot of `limit` bytes now.
    fn may_leave(&mut self, now: Time, lane: u32, limit: usize) -> bool {
        !self.is_held(now, lane) && self.has_source(lane, limit)
    }

    /// Whether the next source symbol of the lane is held back for more bytes.
    fn is_held(&self, now: Time, lane: u32) -> bool {
        // Messages are not held, because their lifetimes may be shorter.
        lane == STREAMS && self.held_until().is_some_and(|until| until > now)
    }

    /// Until when the open symbol of the streams is held back for more bytes; `None` if it is not held.
    pub(super) fn held_until(&self) -> Option<Time> {
        let Lane { sender, policies, .. } = &self.lanes.streams;
        sender.held_until(|| {
            let planned = policies.plan().map_or(Duration::ZERO, |plan| plan.target.latency);
            let target = self.config.repair.latency.unwrap_or(planned);
            let most = self.config.repair.latency.map_or(Duration::MAX, |latency| latency / MOST_HOLD);
            (target / HOLD).max(LEAST_HOLD).min(most).min(self.path.rtt.smoothed() / HOLD_RTT)
        })
    }

    /// When a policy wants to be asked again.
    pub(super) fn policy_timeout(&mut self, now: Time) -> Option<Time> {
        let lanes = self.lanes.iter().count() as u32;
        (0..lanes).filter_map(|lane| self.ask_policies(now, lane, |policies, cx| policies.poll_timeout(cx))?).min()
    }

    /// Calls the policies of a lane with their context.
    fn ask_policies<R>(
        &mut self,
        now: Time,
        lane: u32,
        ask: impl FnOnce(&mut Policies, &CodingContext<'_>) -> R,
    ) -> Option<R> {
        let saturated = self.path.usage.is_saturated();
        let waiting = lane == STREAMS && self.streams.has_waiting();
        let path = &self.path;
        let Lane { sender, policies, .. } = self.lanes.get_mut(lane)?;
        let lost = sender.first_lost();
        let sender = &*sender;
        let cx = CodingContext {
            now,
            base: sender.base(),
            settled: sender.settled(),
            sent: sender.sent(),
            report: sender.report(),
            lost,
            in_flight: sender.repairs(),
            oldest: if sender.report().deficit > 0 {
                sender.oldest_age(now).unwrap_or_default()
            } else {
                Duration::ZERO
            },
            path: PathState {
                loss: path.losses.estimator.estimate(),
                rtt: path.rtt.smoothed(),
                saturated,
                room: path.room(),
                is_silent: path.silence.probes > 0,
            },
            flow: FlowState {
                backlog: sender.has_source() || waiting,
                credit: sender.credit(),
                interval: sender.source_interval(),
                last: sender.last_source(),
                in_order: lane == STREAMS || sender.is_in_order(now),
                important: sender.has_important(),
            },
            limits: CodingLimits {
                max_span: self.agreed.max_span,
                max_overhead: self.config.max_overhead(),
                protects_lone: self.config.repair.max_overhead.is_none(),
                target: self.config.target(),
                code: self.agreed.profile.code,
                is_withheld: policies.withholds_sources() && sender.layout() == Layout::Sliding,
            },
            planned: &Planned::NONE,
        };
        Some(ask(policies, &cx))
    }

    /// Lets workers compute the repairs of a generation that the policy has just closed.
    fn make_ahead(&mut self, lane: u32) {
        let inline = self.config.inline();
        let Some(Lane { sender, policies, .. }) = self.lanes.get_mut(lane) else { return };
        if let Some(closed) = policies.poll_closed() {
            sender.make_ahead(closed, inline);
        }
    }

    /// Longest symbol of a lane whose repair still fits a packet. Repairs have the longer header.
    pub(super) fn symbol_len(&self, lane: u32) -> usize {
        let Some(Lane { sender, .. }) = self.lanes.get(lane) else { return 0 };
        let first = SourceId(sender.sent().0 + sender.reach() as u64);
        let far = SourceId(sender.base().0.saturating_sub(sender.reach() as u64));
        let id = RepairId { first, count: self.agreed.max_span, key: FAR_KEY };
        let code = longest_parameters(self.agreed.profile.code, self.agreed.max_span);
        let header = repair_header_len(lane, sender.layout(), code, id, far);
        let longest = (usize::from(self.path.mtu.current()) - PACKET_OVERHEAD - header).min(self.agreed.symbol_limit);
        match sender.layout() {
            Layout::Sliding => longest,
            // Repairs of generations have an even length.
            Layout::Generations => longest & !1,
        }
    }

    fn write_slot(&mut self, now: Time, number: u64, slot: &Slot, limit: usize, w: &mut Writer<'_>) -> Option<Carried> {
        match slot {
            Slot::Ping => {
                Frame::Ping.emit(w).ok()?;
                Some(Carried::Control)
            }
            Slot::SizeProbe(_) => {
                Frame::Ping.emit(w).ok()?;
                pad(w, limit - TAG_LEN);
                self.path.mtu.on_probe_sent();
                Some(Carried::SizeProbe)
            }
            Slot::Base(id) => {
                let Lane { sender, .. } = self.lanes.get_mut(*id)?;
                Frame::Base { lane: *id, base: sender.base() }.emit(w).ok()?;
                sender.on_base_said(number);
                Some(Carried::Data(Data::Base { lane: *id }))
            }
            Slot::Source(lane) => {
                let Lane { sender, .. } = self.lanes.get_mut(*lane)?;
                let (base, layout) = (sender.base(), sender.layout());
                let fits = source_len(*lane, sender, sender.sent()) <= limit;
                let (id, symbol) = sender.send_source(now)?;
                let carried = if fits {
                    write_source_header(w, *lane, layout, id, base, false).ok()?;
                    w.bytes(symbol).ok()?;
                    sender.on_base_said(number);
                    Carried::Data(Data::Source { lane: *lane, id, again: false })
                } else {
                    self.write_first_slice(*lane, id, number, w)?
                };
                self.on_source_sent(now, *lane);
                Some(carried)
            }
            Slot::Recoded(generation) => self.write_recoded(*generation, w),
            Slot::Slice(lane, slice) => self.write_slice(*lane, *slice, number, w),
            Slot::Repair(lane, repair) => self.write_repair(*lane, *repair, number, w),
        }
    }

    /// Tells the policies of a lane that a source symbol was sent for the first time, and what follows from
    /// it.
    pub(super) fn on_source_sent(&mut self, now: Time, lane: u32) {
        let changed = self.ask_policies(now, lane, |policies, cx| {
            let before = policies.planned();
            policies.on_source_sent(cx);
            policies.planned().filter(|&planned| Some(planned) != before)
        });
        if let Some(planned) = changed.flatten() {
            self.tracer.record(now, || TraceEvent::Planned { lane: LaneId(lane), planned });
        }
        self.make_ahead(lane);
    }

    fn write_repair(&mut self, lane: u32, repair: Repair, number: u64, w: &mut Writer<'_>) -> Option<Carried> {
        let Lane { sender, .. } = self.lanes.get_mut(lane)?;
        let base = sender.base();
        let carried = match repair {
            Repair::Resend(id) => {
                if id < base {
                    return None;
                }
                write_source_header(w, lane, sender.layout(), id, base, true).ok()?;
                w.bytes(sender.resend(id, number)?).ok()?;
                Carried::Data(Data::Source { lane, id, again: true })
            }
            Repair::Coded { first, count, row, on_feedback } => {
                let (first, count, row) = match sender.layout() {
                    Layout::Generations => (first, count, row),
                    // The window may have moved since the repair was deferred. Decoded symbols need no
                    // repair. A row covers only the whole span; for the rest of a span, a random combination
                    // is as good.
                    Layout::Sliding => {
                        let gone = base.0.saturating_sub(first.0);
                        let left = u64::from(count).checked_sub(gone).filter(|&left| left > 0)?;
                        (first.max(base), u16::try_from(left).ok()?, row.filter(|_| gone == 0))
                    }
                };
                let code = GenerationRow::code_of(row);
                let id = sender.name_repair(code, first, count, row.map(|row| row.key));
                write_repair_header(w, lane, sender.layout(), code, id, base, on_feedback).ok()?;
                let len = sender.send_repair(code, id, on_feedback, number, w.spare()).ok()?;
                w.advance(len).ok()?;
                Carried::Data(Data::Repair { lane, first: id.first, count, on_feedback })
            }
        };
        sender.on_base_said(number);
        Some(carried)
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

/// Length of the packet that carries a repair.
fn packet_len(lane: u32, sender: &LaneSender, repair: &Repair) -> usize {
    match *repair {
        Repair::Resend(id) => source_len(lane, sender, id),
        Repair::Coded { first, count, row, .. } => {
            let id = RepairId { first, count, key: row.map_or(0, |row| row.key) };
            PACKET_OVERHEAD
                + repair_header_len(lane, sender.layout(), GenerationRow::code_of(row), id, sender.base())
                + sender.repair_len(first, count).unwrap_or(0)
        }
    }
}

/// Length of the packet that carries a source symbol.
pub(super) fn source_len(lane: u32, sender: &LaneSender, id: SourceId) -> usize {
    PACKET_OVERHEAD + source_header_len(lane, id, sender.base()) + sender.repair_len(id, 1).unwrap_or(0)
}
