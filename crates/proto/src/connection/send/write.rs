//! Writes what a slot carries into the outgoing packet, and knows how long that packet is.
//!
//! The file `mod.rs` calls it with what `slot` has chosen. A repair is computed here, from the newest window,
//! directly into the outgoing buffer.

use tidewire_codec::{RepairId, SourceId};

use super::super::Connection;
use super::super::carried::{Carried, Data};
use super::super::lanes::Lane;
use super::slot::Slot;
use crate::Time;
use crate::lane::LaneSender;
use crate::redundancy::{GenerationRow, Repair};
use crate::wire::{
    Frame, Layout, SHORT_HEADER_LEN, TAG_LEN, Writer, longest_parameters, pad, repair_header_len, source_header_len,
    write_repair_header, write_source_header,
};

impl Connection {
    pub(super) fn write_slot(
        &mut self,
        now: Time,
        number: u64,
        slot: &Slot,
        limit: usize,
        w: &mut Writer<'_>,
    ) -> Option<Carried> {
        match slot {
            Slot::Ping => {
                Frame::Ping.emit(w).ok()?;
                Some(Carried::Control)
            }
            Slot::SizeProbe(size) => {
                Frame::Ping.emit(w).ok()?;
                pad(w, limit - TAG_LEN);
                self.path.mtu.on_probe_sent(*size);
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

    /// Longest symbol of a lane whose repair still fits a packet. Repairs have the longer header.
    pub(in crate::connection) fn symbol_len(&self, lane: u32) -> usize {
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
}

/// Length of the packet that carries a repair.
pub(super) fn packet_len(lane: u32, sender: &LaneSender, repair: &Repair) -> usize {
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

/// Least number of bytes that a data packet carries beside its symbol header and symbol.
pub(in crate::connection) const PACKET_OVERHEAD: usize = SHORT_HEADER_LEN + TAG_LEN;
/// Symbols leave room for repairs with keys up to this one, whose key takes two bytes. No policy of this
/// crate needs as many repairs of a generation.
const FAR_KEY: u16 = 0x3fff;
