//! Source symbols that no longer fit the path MTU. They are sent in parts, and each part is tracked until it
//! was received.
//!
//! The bytes of a numbered symbol never change. So a symbol that was numbered while the path MTU was larger
//! is sent as SLICE frames (docs/wire.md section 5). A symbol is cut into equal parts that fit the present
//! path MTU, and a part is cut again if the MTU falls further. Only lost parts are sent again. At most
//! [`most_sliced`] symbols are in flight in parts: a receiver keeps no more, and the sender must not take a
//! part as received that the receiver dropped.

use std::collections::{BTreeMap, BTreeSet};

use tidewire_codec::SourceId;

use super::{LaneSender, Source};
use crate::lane::most_sliced;

/// State of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Must be sent, for the first time or again.
    Owed,
    /// In flight; the number is that of the newest packet with this part.
    Open(u64),
    Arrived,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    offset: u16,
    len: u16,
    state: State,
}

/// A symbol that is sent in parts.
#[derive(Debug)]
struct Sliced {
    /// In ascending order, without gaps.
    parts: Vec<Part>,
    /// True if the symbol was sent as a whole before.
    again: bool,
}

/// The symbols of a lane that are sent in parts.
#[derive(Debug, Default)]
pub(super) struct Slicing {
    symbols: BTreeMap<SourceId, Sliced>,
    /// Those with a part that must be sent.
    owed: BTreeSet<SourceId>,
    /// The largest credit that the peer has reported.
    credit: u64,
    /// Withheld symbols below this id were looked at when repairs over them did not fit the path.
    pub looked: SourceId,
}

/// A part of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    pub id: SourceId,
    /// Where it begins in the symbol. Parts are told apart by it.
    pub offset: u16,
    pub len: u16,
}

/// The content of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SliceBytes<'a> {
    pub total: usize,
    pub bytes: &'a [u8],
    /// True if the symbol was sent as a whole before.
    pub again: bool,
}

impl LaneSender {
    /// Whether one more symbol may be sent in parts.
    pub(crate) fn may_slice(&self) -> bool {
        self.sliced.symbols.len() < most_sliced(self.sliced.credit)
    }

    /// From now on, sends a symbol that is out in parts of at most `room` bytes. `again` means that it was
    /// sent as a whole before. Returns whether the symbol is now sent in parts.
    pub(crate) fn slice(&mut self, id: SourceId, room: usize, again: bool) -> bool {
        let known = self.sliced.symbols.contains_key(&id);
        let Some(index) = self.index(id).filter(|_| known || self.may_slice()) else { return false };
        if self.sources[index] == Source::Lost {
            self.sources[index] = Source::Again;
        }
        let Some(total) = self.symbol(id).map(<[u8]>::len).filter(|_| !known) else { return known };
        let whole = Part { offset: 0, len: total as u16, state: State::Owed };
        self.sliced.symbols.insert(id, Sliced { parts: whole.cut(room).collect(), again });
        self.sliced.owed.insert(id);
        true
    }

    /// The part of at most `room` bytes that must be sent next.
    pub(crate) fn owed_slice(&mut self, room: usize) -> Option<Slice> {
        let id = *self.sliced.owed.first()?;
        self.sliced.symbols.get_mut(&id)?.first(id, room, |state| state == State::Owed)
    }

    /// The first part of a symbol that is not known to be received, whether it is in flight or not.
    pub(crate) fn lacking_slice(&mut self, id: SourceId, room: usize) -> Option<Slice> {
        self.sliced.symbols.get_mut(&id)?.first(id, room, |state| state != State::Arrived)
    }

    /// Returns the bytes of a part, and records that packet `packet` carries it.
    pub(crate) fn send_slice(&mut self, slice: Slice, packet: u64) -> Option<SliceBytes<'_>> {
        let sliced = self.sliced.symbols.get_mut(&slice.id)?;
        let at = sliced.parts.binary_search_by_key(&slice.offset, |part| part.offset).ok()?;
        sliced.parts[at].state = State::Open(packet);
        let again = sliced.again;
        if !sliced.parts.iter().any(|part| part.state == State::Owed) {
            self.sliced.owed.remove(&slice.id);
        }
        let symbol = self.symbol(slice.id)?;
        let offset = usize::from(slice.offset);
        let bytes = symbol.get(offset..offset + usize::from(slice.len))?;
        Some(SliceBytes { total: symbol.len(), bytes, again })
    }

    /// Called when the part at `offset` in packet `packet` is known to be received or lost.
    pub(crate) fn on_slice_settled(&mut self, id: SourceId, offset: u16, packet: u64, arrived: bool) {
        let Some(sliced) = self.sliced.symbols.get_mut(&id) else { return };
        let Ok(at) = sliced.parts.binary_search_by_key(&offset, |part| part.offset) else { return };
        let part = &mut sliced.parts[at];
        if arrived {
            part.state = State::Arrived;
        } else if part.state == State::Open(packet) {
            part.state = State::Owed;
            self.sliced.owed.insert(id);
        }
        if sliced.parts.iter().all(|part| part.state == State::Arrived) {
            self.sliced.remove(id);
            self.on_source_acked(id);
        } else if !sliced.parts.iter().any(|part| part.state == State::Owed) {
            self.sliced.owed.remove(&id);
        }
    }

    /// Forgets symbols that the peer has decoded.
    pub(super) fn forget_sliced(&mut self) {
        for run in self.reported.report.decoded() {
            while let Some((&id, _)) = self.sliced.symbols.range(run.clone()).next() {
                self.sliced.remove(id);
            }
        }
    }
}

impl Slicing {
    /// Nothing is sent in parts yet. The peer accepts `credit` symbols from the start.
    pub(super) fn new(credit: u64) -> Self {
        Self { credit, ..Self::default() }
    }

    /// The peer reported a credit of so many symbols.
    pub(super) fn on_credit(&mut self, credit: u64) {
        self.credit = self.credit.max(credit);
    }

    /// Forgets symbols below `base`, which were decoded or given up.
    pub(super) fn release_before(&mut self, base: SourceId) {
        while let Some((&lowest, _)) = self.symbols.first_key_value()
            && lowest < base
        {
            self.remove(lowest);
        }
    }

    fn remove(&mut self, id: SourceId) {
        self.symbols.remove(&id);
        self.owed.remove(&id);
    }

    /// Bytes of memory held. A symbol in parts has about two of them.
    pub(super) fn memory(&self) -> usize {
        self.symbols.len() * 2 * (size_of::<(SourceId, Sliced)>() + size_of::<Part>())
    }
}

impl Sliced {
    /// The first part in such a state. It is cut again if it is longer than `room` bytes.
    fn first(&mut self, id: SourceId, room: usize, which: impl Fn(State) -> bool) -> Option<Slice> {
        let at = self.parts.iter().position(|part| which(part.state))?;
        let part = self.parts[at];
        if usize::from(part.len) > room {
            self.parts.splice(at..=at, Part { state: State::Owed, ..part }.cut(room));
        }
        let Part { offset, len, .. } = *self.parts.get(at)?;
        Some(Slice { id, offset, len })
    }
}

impl Part {
    /// This part in equal pieces of at most `room` bytes.
    fn cut(self, room: usize) -> impl Iterator<Item = Self> {
        let len = usize::from(self.len);
        let count = len.div_ceil(room.max(1)).max(1);
        let cut = move |nth| (len * nth / count) as u16;
        (0..count).map(move |nth| Self { offset: self.offset + cut(nth), len: cut(nth + 1) - cut(nth), ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;
    use crate::wire::Layout;

    /// Symbols in parts that the credit of these tests allows.
    const MOST: u64 = 250;

    /// A lane with `count` symbols of 1,400 bytes that were sent and lost.
    fn lost(count: u64) -> LaneSender {
        let mut sender = LaneSender::new(Layout::Sliding, 256, 1_472, 1 << 20, 4 * MOST);
        for n in 0..count {
            sender.write(0, n * 1_385, &[7; 1_385], false, 1_400, usize::MAX);
            sender.close();
            sender.next_source();
            sender.send_source(Time::from_millis(n)).expect("queued");
        }
        (0..count).for_each(|n| sender.on_source_lost(SourceId(n)));
        sender
    }

    /// Sends the next part. Returns where it begins and its length.
    fn send(sender: &mut LaneSender, room: usize, packet: u64) -> Option<(u16, u16)> {
        let slice = sender.owed_slice(room)?;
        let sent = sender.send_slice(slice, packet).expect("held");
        assert_eq!(sent.bytes.len(), usize::from(slice.len));
        Some((slice.offset, slice.len))
    }

    #[test]
    fn only_the_part_that_was_lost_goes_again() {
        let mut sender = lost(1);
        assert!(sender.slice(SourceId(0), 1_000, true) && sender.slice(SourceId(0), 1_000, true));
        assert_eq!(sender.first_lost(), None);
        let total = sender.symbol(SourceId(0)).expect("held").len() as u16;
        let half = total / 2;
        assert_eq!(send(&mut sender, 1_000, 10), Some((0, half)));
        assert_eq!(send(&mut sender, 1_000, 11), Some((half, total - half)));
        assert_eq!(send(&mut sender, 1_000, 12), None);
        sender.on_slice_settled(SourceId(0), 0, 10, false);
        sender.on_slice_settled(SourceId(0), half, 11, true);
        assert_eq!((send(&mut sender, 1_000, 12), sender.base()), (Some((0, half)), SourceId(0)));
        sender.on_slice_settled(SourceId(0), 0, 10, false);
        assert_eq!(sender.owed_slice(1_000), None, "the newer packet is still in flight");
        sender.on_slice_settled(SourceId(0), 0, 12, true);
        assert_eq!((sender.base(), sender.sliced.memory()), (SourceId(1), 0));
    }

    #[test]
    fn parts_that_no_longer_fit_are_cut_again() {
        let mut sender = lost(1);
        sender.slice(SourceId(0), 1_000, true);
        let total = sender.symbol(SourceId(0)).expect("held").len() as u16;
        let half = total / 2;
        (0..2).for_each(|packet| assert!(send(&mut sender, 1_000, packet).is_some()));
        sender.on_slice_settled(SourceId(0), 0, 0, true);
        sender.on_slice_settled(SourceId(0), half, 1, false);
        let quarter = (total - half) / 2;
        assert_eq!(send(&mut sender, 600, 2), Some((half, quarter)));
        assert_eq!(send(&mut sender, 600, 3), Some((half + quarter, total - half - quarter)));
        assert_eq!(sender.lacking_slice(SourceId(0), 600).map(|slice| slice.offset), Some(half));
        sender.on_slice_settled(SourceId(0), half, 1, true);
        sender.on_slice_settled(SourceId(0), half, 2, false);
        assert_eq!(sender.owed_slice(600), None, "the longer part of before arrived late");
        sender.on_slice_settled(SourceId(0), half + quarter, 3, true);
        assert_eq!(sender.base(), SourceId(1));
    }

    #[test]
    fn no_more_are_under_way_than_a_receiver_keeps() {
        let mut sender = lost(MOST + 1);
        for n in 0..MOST {
            assert!(sender.slice(SourceId(n), 1_000, true));
        }
        assert!(!sender.slice(SourceId(MOST), 1_000, true));
        let offsets: Vec<u16> =
            (0..2).filter_map(|packet| send(&mut sender, 1_000, packet)).map(|part| part.0).collect();
        offsets.into_iter().zip(0..).for_each(|(offset, n)| sender.on_slice_settled(SourceId(0), offset, n, true));
        assert!(sender.slice(SourceId(MOST), 1_000, true));
    }
}
