//! Symbols that are longer than the path MTU allows: the MTU fell after they were numbered, or the path
//! changed.
//!
//! `send` calls this if a symbol or a repair does not fit a packet. A repair over a span with such a symbol
//! cannot be sent at all. In its place the lowest lost symbol is sent again, in parts that fit the path.

use core::ops::ControlFlow;

use tidewire_codec::SourceId;

use super::carried::{Carried, Data};
use super::driving::{SendFailure, Transmit};
use super::lanes::Lane;
use super::send::{PACKET_OVERHEAD, Slot};
use super::{CloseCode, CloseReason, Connection, State};
use crate::Time;
use crate::lane::{Slice, SliceBytes};
use crate::path::BASE_DATAGRAM;
use crate::wire::{Frame, Writer};

/// Datagram size that every path supports.
pub(super) const BASE_SIZE: usize = BASE_DATAGRAM as usize;
/// Length of what a packet with a part of a symbol carries beside it, at most: of the SLICE the type, lane,
/// id, and offset, total and length of at most four bytes each.
const SLICE_OVERHEAD: usize = PACKET_OVERHEAD + 1 + 1 + 8 + 4 + 4 + 4;

impl Connection {
    /// Called when the socket refused `transmit`, the result of the last [`Self::poll_transmit`]. The
    /// datagrams count as sent, and are detected as lost like any others.
    pub fn handle_send_failure(&mut self, now: Time, transmit: &Transmit, failure: SendFailure) {
        let segment = transmit.segment_size.unwrap_or(transmit.len).max(1);
        self.stats.packets.refused += transmit.len.div_ceil(segment) as u64;
        if failure == SendFailure::TooLong && transmit.destination == self.path.remote {
            self.path.mtu.on_refused(now, segment as u16);
            self.leave_if_too_narrow(now);
        }
    }

    /// Closes the connection if the path was found not to carry the packet size that it must carry. Nothing
    /// long would ever arrive.
    pub(super) fn leave_if_too_narrow(&mut self, now: Time) {
        let Some((carries, needed)) = self.path.mtu.too_narrow() else { return };
        if matches!(self.state, State::Established { .. }) {
            let reason = CloseReason::PathTooNarrow { carries, needed };
            self.start_closing(now, CloseCode::PathTooNarrow, reason.to_string());
            self.tell_closed(now, reason);
        }
    }

    /// Returns a part of the oldest symbol that the peer may lack.
    pub(super) fn slice_oldest(&mut self, lane: u32) -> Option<Slot> {
        let room = self.slice_room();
        let Lane { sender, .. } = self.lanes.get_mut(lane)?;
        let base = sender.base();
        sender.slice(base, room, true);
        sender.lacking_slice(base, room).map(|slice| Slot::Slice(lane, slice))
    }

    /// Returns a part of the lowest symbol that is lost and has no retransmission in flight.
    pub(super) fn slice_lost(&mut self, lane: u32) -> Option<Slot> {
        let room = self.slice_room();
        let Lane { sender, .. } = self.lanes.get_mut(lane)?;
        let lost = sender.first_lost()?;
        sender.slice(lost, room, true);
        sender.owed_slice(room).map(|slice| Slot::Slice(lane, slice))
    }

    /// Returns the part that must be sent next, if it fits a slot of `limit` bytes. `Break(None)` means that
    /// it must wait for the next batch.
    pub(super) fn owed_slice(&mut self, lane: u32, limit: usize) -> ControlFlow<Option<Slot>> {
        let room = self.slice_room();
        let owed = self.lanes.get_mut(lane).and_then(|Lane { sender, .. }| sender.owed_slice(room));
        let Some(slice) = owed else { return ControlFlow::Continue(()) };
        let fits = SLICE_OVERHEAD + usize::from(slice.len) <= limit;
        ControlFlow::Break(fits.then_some(Slot::Slice(lane, slice)))
    }

    /// Longest part that fits a packet of the present size.
    fn slice_room(&self) -> usize {
        usize::from(self.path.mtu.current()) - SLICE_OVERHEAD
    }

    /// Writes the first part of a symbol that was never sent.
    pub(super) fn write_first_slice(
        &mut self,
        lane: u32,
        id: SourceId,
        number: u64,
        w: &mut Writer<'_>,
    ) -> Option<Carried> {
        let room = self.slice_room();
        let Lane { sender, .. } = self.lanes.get_mut(lane)?;
        sender.slice(id, room, false);
        let first = sender.lacking_slice(id, room)?;
        self.write_slice(lane, first, number, w)
    }

    pub(super) fn write_slice(&mut self, lane: u32, slice: Slice, number: u64, w: &mut Writer<'_>) -> Option<Carried> {
        let Lane { sender, .. } = self.lanes.get_mut(lane)?;
        let layout = sender.layout();
        let part = sender.send_slice(slice, number)?;
        let again = part.again;
        let Slice { id, offset, .. } = slice;
        let SliceBytes { total, bytes, .. } = part;
        Frame::Slice { lane, layout, id, offset: offset.into(), total, bytes }.emit(w).ok()?;
        Some(Carried::Data(Data::Slice { lane, id, offset, again }))
    }
}
