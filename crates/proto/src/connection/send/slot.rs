//! Chooses what a slot carries: a probe after a silence, a probe of the packet size, a repair, or a source
//! symbol.
//!
//! `build_packet` asks for each packet without FEEDBACK. The choice changes policies and lanes, but writes
//! nothing: `write` follows at once. Invariant: what was chosen fits the slot.

use core::ops::ControlFlow;
use core::time::Duration;

use super::super::Connection;
use super::super::lanes::Lane;
use super::write::{packet_len, source_len};
use crate::Time;
use crate::lane::{STREAMS, Slice};
use crate::redundancy::Repair;

/// Content of a slot, except FEEDBACK.
pub(in crate::connection) enum Slot {
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
    /// Decides what the next slot carries.
    pub(super) fn next_slot(&mut self, now: Time, limit: usize) -> Option<Slot> {
        if self.path.pto.probe_owed {
            return self.probe(now, limit);
        }
        if core::mem::take(&mut self.path.pto.ping_owed) {
            return Some(Slot::Ping);
        }
        if self.path.pto.is_broken() || !self.path.pacer.is_open(now) || !self.path.has_room(limit) {
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
        // If no further symbol may leave in parts, the peer is the limit and not the path.
        let is_sliced_out = |lane: &Lane| limit >= usize::from(self.path.mtu.current()) && !lane.sender.may_slice();
        let has_none =
            |(id, lane): (u32, &Lane)| lane.sender.queued() == 0 || (id == STREAMS && is_held) || is_sliced_out(lane);
        if self.path.app_limited.idle_since.is_none() && self.lanes.iter().all(has_none) {
            self.path.app_limited.idle_since = Some(now);
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
        self.path.pto.probe_owed = false;
        self.path.pto.last_probe = now;
        if self.path.pto.is_broken() && self.path.mtu.is_doubtful() && self.path.pto.probes.is_multiple_of(2) {
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
        len.is_some_and(|len| len <= limit || (len > size && limit >= size && sender.may_slice()))
    }

    /// Chooses what a lane puts in a slot of `limit` bytes. `Break(None)` means that it must wait for the
    /// next batch.
    fn lane_slot(&mut self, now: Time, id: u32, limit: usize) -> ControlFlow<Option<Slot>> {
        loop {
            let slot = self.offered_slot(now, id, limit);
            let is_source = matches!(slot, ControlFlow::Break(Some(Slot::Source(_))));
            if !is_source || !self.withhold_source(now, id) {
                return slot;
            }
        }
    }

    /// The slot that policies and source symbols of the lane offer.
    fn offered_slot(&mut self, now: Time, id: u32, limit: usize) -> ControlFlow<Option<Slot>> {
        let Some(lane) = self.lanes.get_mut(id) else { return ControlFlow::Continue(()) };
        if lane.sender.owes_base() && !lane.sender.has_source() {
            return ControlFlow::Break(Some(Slot::Base(id)));
        }
        self.owed_slice(id, limit)?;
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
            let size = usize::from(self.path.mtu.current());
            if len <= size || limit < size {
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
    pub(in crate::connection) fn held_until(&self) -> Option<Time> {
        let Lane { sender, policies, .. } = &self.lanes.streams;
        sender.held_until(|| {
            let planned = policies.plan().map_or(Duration::ZERO, |plan| plan.target.latency);
            let target = self.config.repair.latency.unwrap_or(planned);
            let most = self.config.repair.latency.map_or(Duration::MAX, |latency| latency / MOST_HOLD);
            (target / HOLD).max(LEAST_HOLD).min(most).min(self.path.rtt.smoothed() / HOLD_RTT)
        })
    }
}

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
