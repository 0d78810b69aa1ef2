//! Source symbols that no longer fit the path MTU. They are sent in parts, and each part is tracked until it
//! was received.
//!
//! The bytes of a numbered symbol never change. So a symbol that was numbered while the path MTU was larger
//! is sent as SLICE frames (docs/wire.md section 5). The parts are cut for the smallest allowed path MTU, so
//! they fit however the MTU changes. Only lost parts are sent again. At most [`MAX_SLICED`] symbols are in
//! flight in parts: a receiver keeps no more, and the sender must not take a part as received that the
//! receiver dropped.

use tidewire_codec::SourceId;

use super::{LaneSender, Source};
use crate::lane::MAX_SLICED;

/// State of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Must be sent, for the first time or again.
    Owed,
    /// In flight; the number is that of the newest packet with this part.
    Open(u64),
    Arrived,
}

/// A symbol that is sent in parts of `each` bytes; the last part may be shorter.
#[derive(Debug)]
pub(super) struct Sliced {
    id: SourceId,
    total: usize,
    each: usize,
    parts: Vec<Part>,
    /// True if the symbol was sent as a whole before.
    again: bool,
}

/// Identifies a part of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    pub id: SourceId,
    /// Index of the part, from 0.
    pub part: u16,
}

/// The content of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SliceBytes<'a> {
    pub offset: usize,
    pub total: usize,
    pub bytes: &'a [u8],
    /// True if the symbol was sent as a whole before.
    pub again: bool,
}

impl LaneSender {
    /// Whether one more symbol may be sent in parts.
    pub(crate) fn may_slice(&self) -> bool {
        self.sliced.len() < MAX_SLICED
    }

    /// From now on, sends a symbol that is out in parts of `each` bytes. `again` means that it was sent as a
    /// whole before. Returns whether the symbol is now sent in parts.
    pub(crate) fn slice(&mut self, id: SourceId, each: usize, again: bool) -> bool {
        let known = self.sliced.iter().any(|sliced| sliced.id == id);
        let Some(index) = self.index(id).filter(|_| known || self.may_slice()) else { return false };
        if self.sources[index] == Source::Lost {
            self.sources[index] = Source::Again;
        }
        let Some(total) = self.symbol(id).map(<[u8]>::len).filter(|_| !known) else { return known };
        let parts = vec![Part::Owed; total.div_ceil(each.max(1))];
        self.sliced.push_back(Sliced { id, total, each, parts, again });
        true
    }

    /// The part that must be sent next.
    pub(crate) fn owed_slice(&self) -> Option<Slice> {
        self.sliced.iter().find_map(|sliced| sliced.first(|part| part == Part::Owed))
    }

    /// The first part of a symbol that is not known to be received, whether it is in flight or not.
    pub(crate) fn lacking_slice(&self, id: SourceId) -> Option<Slice> {
        self.sliced.iter().find(|sliced| sliced.id == id)?.first(|part| part != Part::Arrived)
    }

    /// Returns the bytes of a part, and records that packet `packet` carries it.
    pub(crate) fn send_slice(&mut self, slice: Slice, packet: u64) -> Option<SliceBytes<'_>> {
        let sliced = self.sliced.iter_mut().find(|sliced| sliced.id == slice.id)?;
        *sliced.parts.get_mut(usize::from(slice.part))? = Part::Open(packet);
        let (offset, total) = (usize::from(slice.part) * sliced.each, sliced.total);
        let (end, again) = (total.min(offset + sliced.each), sliced.again);
        let bytes = self.symbol(slice.id)?.get(offset..end)?;
        Some(SliceBytes { offset, total, bytes, again })
    }

    /// Called when the part in packet `packet` is known to be received or lost.
    pub(crate) fn on_slice_settled(&mut self, slice: Slice, packet: u64, arrived: bool) {
        let Some(at) = self.sliced.iter().position(|sliced| sliced.id == slice.id) else { return };
        let Some(part) = self.sliced[at].parts.get_mut(usize::from(slice.part)) else { return };
        if arrived {
            *part = Part::Arrived;
        } else if *part == Part::Open(packet) {
            *part = Part::Owed;
        }
        if self.sliced[at].parts.iter().all(|&part| part == Part::Arrived) {
            self.sliced.remove(at);
            self.on_source_acked(slice.id);
        }
    }

    /// Forgets symbols that the peer has decoded or that were given up.
    pub(super) fn forget_sliced(&mut self) {
        let mut sliced = core::mem::take(&mut self.sliced);
        sliced.retain(|sliced| sliced.id >= self.ids.base && !self.is_decoded(sliced.id));
        self.sliced = sliced;
    }
}

impl Sliced {
    fn first(&self, which: impl Fn(Part) -> bool) -> Option<Slice> {
        let part = self.parts.iter().position(|&part| which(part))?;
        Some(Slice { id: self.id, part: part as u16 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;
    use crate::wire::Layout;

    /// A lane with `count` symbols of 1,400 bytes that were sent and lost.
    fn lost(count: u64) -> LaneSender {
        let mut sender = LaneSender::new(Layout::Sliding, 256, 1_472, 1 << 20, 1_000);
        for n in 0..count {
            sender.write(0, n * 1_385, &[7; 1_385], false, 1_400, usize::MAX);
            sender.close();
            sender.next_source();
            sender.send_source(Time::from_millis(n)).expect("queued");
        }
        (0..count).for_each(|n| sender.on_source_lost(SourceId(n)));
        sender
    }

    #[test]
    fn only_the_part_that_was_lost_goes_again() {
        let mut sender = lost(1);
        assert!(sender.slice(SourceId(0), 1_000, true) && sender.slice(SourceId(0), 1_000, true));
        let [first, second] = [0, 1].map(|part| Slice { id: SourceId(0), part });
        assert_eq!((sender.owed_slice(), sender.first_lost()), (Some(first), None));
        assert_eq!(sender.send_slice(first, 10).map(|slice| (slice.offset, slice.bytes.len())), Some((0, 1_000)));
        let rest = sender.send_slice(second, 11).map(|slice| (slice.offset, slice.offset + slice.bytes.len()));
        assert_eq!(rest, Some((1_000, sender.symbol(SourceId(0)).expect("held").len())));
        assert_eq!(sender.owed_slice(), None);
        sender.on_slice_settled(first, 10, false);
        sender.on_slice_settled(second, 11, true);
        assert_eq!((sender.owed_slice(), sender.base()), (Some(first), SourceId(0)));
        sender.send_slice(first, 12);
        sender.on_slice_settled(first, 10, false);
        assert_eq!(sender.owed_slice(), None, "the newer packet is still in flight");
        sender.on_slice_settled(first, 12, true);
        assert_eq!((sender.base(), sender.sliced.len()), (SourceId(1), 0));
    }

    #[test]
    fn no_more_are_under_way_than_a_receiver_keeps() {
        let mut sender = lost(MAX_SLICED as u64 + 1);
        for n in 0..MAX_SLICED as u64 {
            assert!(sender.slice(SourceId(n), 1_000, true));
        }
        assert!(!sender.slice(SourceId(MAX_SLICED as u64), 1_000, true));
        for part in [0, 1] {
            sender.on_slice_settled(Slice { id: SourceId(0), part }, 1, true);
        }
        assert!(sender.slice(SourceId(MAX_SLICED as u64), 1_000, true));
    }
}
