//! The relayed lane of a hop: RECODED and RANKS in and out, and what an end or a relay does with the lane.
//!
//! `receive` passes the frames in, `send` asks for packets, `feedback` tells what became of them. The room
//! `relay` drives it from outside. Invariant: RANKS follows every FEEDBACK once the lane is used, so that the
//! sender never sees a packet acknowledged without the rank that it raised.

use core::ops::ControlFlow;

use super::carried::{Carried, Data};
use super::send::{PACKET_OVERHEAD, Slot};
use super::{CloseCode, Connection};
use crate::Time;
use crate::recode::{Recoding, RelayStats};
use crate::wire::{Frame, MAX_GENERATIONS, Ranks, Recoded, Writer};

/// Maximum length of RANKS: type, edge, room, number and ranks.
const MAX_RANKS: usize = 1 + 8 + 8 + 2 + MAX_GENERATIONS as usize;

impl Connection {
    /// Counts of the relayed lane.
    pub fn relay_stats(&self) -> RelayStats {
        self.lanes.recoding.as_ref().map(|recoding| recoding.stats()).unwrap_or_default()
    }

    /// Most relays that a symbol passed which came over this hop.
    pub fn relays(&self) -> u8 {
        self.lanes.recoding.as_ref().map_or(0, |recoding| recoding.receiver.relays())
    }

    /// Whether the relayed lane takes a symbol of this end now.
    pub(crate) fn has_relayed_room(&self) -> bool {
        self.lanes.recoding.as_ref().is_some_and(|recoding| recoding.sender.has_room())
    }

    /// Puts the next symbol of this end into the relayed lane. Returns whether it was taken; see
    /// [`Self::has_relayed_room`].
    pub(crate) fn push_relayed(&mut self, symbol: &[u8]) -> bool {
        let loss = self.hop_loss();
        let taken = self.lanes.recoding.as_mut().is_some_and(|recoding| recoding.sender.push(symbol, loss));
        self.look_for_size();
        taken
    }

    /// Puts a row of the hop before into the relayed lane, at a relay. Returns whether it was kept.
    pub fn forward_recoded(&mut self, row: Recoded<'_>) -> bool {
        let loss = self.hop_loss();
        let taken = self.lanes.recoding.as_mut().is_some_and(|recoding| recoding.sender.forward(row, loss));
        self.look_for_size();
        taken
    }

    /// Passes the innovative rows that came since the last call to `take`.
    pub fn take_recoded(&mut self, take: impl FnMut(Recoded<'_>)) {
        if let Some(recoding) = &mut self.lanes.recoding {
            recoding.receiver.take(take);
        }
    }

    /// Whether rows wait for [`Self::take_recoded`].
    pub(crate) fn has_recoded(&self) -> bool {
        self.lanes.recoding.as_ref().is_some_and(|recoding| recoding.receiver.has_pending())
    }

    /// The last value of [`Self::release_recoded`].
    pub(crate) fn recoded_released(&self) -> u64 {
        self.lanes.recoding.as_ref().map_or(0, |recoding| recoding.receiver.released())
    }

    /// The first generation that the next hop has not completed. A relay keeps rows from here on.
    pub fn recoded_base(&self) -> u64 {
        self.lanes.recoding.as_ref().map_or(0, |recoding| recoding.sender.base())
    }

    /// The rows below `generation` that this connection received are no longer kept, so the peer gets room
    /// for others.
    pub fn release_recoded(&mut self, now: Time, generation: u64) {
        if self.lanes.recoding.as_mut().is_some_and(|recoding| recoding.receiver.release(generation)) {
            self.path.feedback.request(now);
        }
    }

    /// Searches for a larger packet if the next row does not fit: it cannot be sent in parts, and a search
    /// may have lost its probes by chance.
    pub(super) fn look_for_size(&mut self) {
        let sender = self.lanes.recoding.as_ref().map(|recoding| &recoding.sender);
        let needed = sender.and_then(|sender| Some(PACKET_OVERHEAD + sender.frame_len(sender.next()?)));
        if needed.is_some_and(|needed| needed > usize::from(self.path.mtu.current())) {
            self.path.mtu.search_soon();
        }
    }

    fn hop_loss(&self) -> f64 {
        self.path.losses.estimator.estimate().rate
    }

    fn relaying(&mut self) -> Result<&mut Recoding, CloseCode> {
        self.lanes.recoding.as_deref_mut().ok_or(CloseCode::Protocol)
    }

    pub(super) fn on_recoded(&mut self, frame: &Recoded<'_>) -> Result<(), CloseCode> {
        self.relaying()?.receiver.receive(frame);
        Ok(())
    }

    pub(super) fn on_ranks(&mut self, number: u64, ranks: &Ranks<'_>) -> Result<(), CloseCode> {
        if self.relaying()?.sender.on_ranks(number, ranks) { Ok(()) } else { Err(CloseCode::Protocol) }
    }

    pub(super) fn on_recoded_settled(&mut self, generation: u64) {
        if let Some(recoding) = &mut self.lanes.recoding {
            recoding.sender.on_settled(generation);
        }
    }

    /// Bytes that RANKS may take behind FEEDBACK.
    pub(super) fn ranks_len(&self) -> usize {
        let is_used = self.lanes.recoding.as_ref().is_some_and(|recoding| recoding.receiver.is_used());
        if is_used { MAX_RANKS } else { 0 }
    }

    pub(super) fn write_ranks(&mut self, w: &mut Writer<'_>) {
        if let Some(recoding) = self.lanes.recoding.as_mut().filter(|recoding| recoding.receiver.is_used()) {
            let written = Frame::Ranks(recoding.receiver.report()).emit(w);
            debug_assert!(written.is_ok(), "FEEDBACK left room");
        }
    }

    /// The slot that the relayed lane offers. `Break(None)` means that it must wait for the next batch.
    pub(super) fn recoded_slot(&self, limit: usize) -> ControlFlow<Option<Slot>> {
        let Some(recoding) = &self.lanes.recoding else { return ControlFlow::Continue(()) };
        let Some(generation) = recoding.sender.next() else { return ControlFlow::Continue(()) };
        let len = PACKET_OVERHEAD + recoding.sender.frame_len(generation);
        if len <= limit {
            return ControlFlow::Break(Some(Slot::Recoded(generation)));
        }
        let is_possible = len <= usize::from(self.path.mtu.current());
        if is_possible { ControlFlow::Break(None) } else { ControlFlow::Continue(()) }
    }

    /// The generation to probe with after a silence.
    pub(super) fn lacking_recoded(&self, limit: usize) -> Option<u64> {
        let sender = &self.lanes.recoding.as_ref()?.sender;
        sender.lacking().filter(|&generation| PACKET_OVERHEAD + sender.frame_len(generation) <= limit)
    }

    pub(super) fn write_recoded(&mut self, generation: u64, w: &mut Writer<'_>) -> Option<Carried> {
        self.lanes.recoding.as_mut()?.sender.write(generation, w).ok()?;
        Some(Carried::Data(Data::Recoded { generation }))
    }
}
