//! The sender's side of a lane. Each symbol is stored once; transmission, retransmission and mixing read it
//! in place.
//!
//! The transport fills the next slot in place ([`open`](Encoder::open), [`commit`](Encoder::commit)) and
//! reads symbols for transmission. It has repair symbols written straight into the outgoing datagram, and
//! releases what the peer has decoded. Invariant: every id in the window has its symbol, and there are at
//! most `capacity` of them.

use core::ops::Range;

use crate::mix::combine_repairs;
use crate::ring::SymbolRing;
use crate::{Code, EncodeError, RepairId, SourceId};

/// Send buffer, retransmit store and coding window of one lane.
pub struct Encoder {
    ring: SymbolRing,
    base: u64,
    next: u64,
}

impl core::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Encoder")
            .field("window", &self.window())
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

impl Encoder {
    /// An encoder for symbols of up to `slot_len` bytes (rounded up to a multiple of 64) that holds up to
    /// `capacity` of them (rounded up to a power of two).
    ///
    /// # Panics
    /// A slot is over 4 GiB, or the ring does not fit the address space.
    pub fn new(slot_len: usize, capacity: usize) -> Self {
        Self { ring: SymbolRing::new(slot_len, capacity), base: 0, next: 0 }
    }

    /// Bytes in a slot: the longest symbol.
    pub fn slot_len(&self) -> usize {
        self.ring.slot_len()
    }

    /// Most symbols held at once.
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.ring.memory()
    }

    /// Makes room for at least `capacity` symbols. It keeps all held symbols and the open slot, and never
    /// shrinks.
    ///
    /// # Panics
    /// The ring does not fit the address space.
    pub fn grow(&mut self, capacity: usize) {
        // A full ring has no open slot to keep.
        let open = u64::from(!self.is_full());
        self.ring.grow(capacity, self.base..self.next + open);
    }

    /// The ids held: from the first that is not released to the one that will be committed next.
    pub fn window(&self) -> Range<SourceId> {
        SourceId(self.base)..SourceId(self.next)
    }

    /// Whether every slot is taken.
    pub fn is_full(&self) -> bool {
        self.next - self.base == self.ring.capacity() as u64
    }

    /// The whole slot of the next id, for the caller to fill. Its contents stay between calls until the
    /// commit. At first it contains what an earlier symbol left there. `None` if the ring is full.
    pub fn open(&mut self) -> Option<&mut [u8]> {
        if self.is_full() { None } else { Some(self.ring.slot_mut(self.next)) }
    }

    /// Makes the first `len` bytes of the open slot the next source symbol.
    ///
    /// # Errors
    /// `len` is 0 or longer than a slot, or the ring is full.
    pub fn commit(&mut self, len: usize) -> Result<SourceId, EncodeError> {
        self.check_symbol(len)?;
        let id = self.next;
        self.ring.close(id, len);
        self.next += 1;
        Ok(SourceId(id))
    }

    /// Copies a symbol into the next slot and commits it.
    ///
    /// # Errors
    /// The same as for [`commit`](Self::commit).
    pub fn push(&mut self, symbol: &[u8]) -> Result<SourceId, EncodeError> {
        self.check_symbol(symbol.len())?;
        let id = self.next;
        self.ring.write(id, symbol);
        self.next += 1;
        Ok(SourceId(id))
    }

    /// A symbol of the window.
    pub fn symbol(&self, id: SourceId) -> Option<&[u8]> {
        self.window().contains(&id).then(|| self.ring.symbol(id.0))
    }

    /// The whole slot of a symbol of the window: zero beyond its length.
    pub(crate) fn slot(&self, id: SourceId) -> &[u8] {
        self.ring.slot(id.0)
    }

    /// A symbol of the window, to complete just before its first transmission (for example a time stamp).
    /// Once it was sent or mixed into a repair symbol, its bytes must never change: the receiver would decode
    /// neither the old nor the new.
    pub fn symbol_mut(&mut self, id: SourceId) -> Option<&mut [u8]> {
        let len = self.symbol(id)?.len();
        Some(&mut self.ring.slot_mut(id.0)[..len])
    }

    /// Length in bytes of a repair symbol over the span: the length of its longest source symbol.
    ///
    /// # Errors
    /// The span is empty or not wholly inside the window.
    pub fn repair_len(&self, first: SourceId, count: u16) -> Result<usize, EncodeError> {
        Code::Rlc.check(RepairId { first, count, key: 0 })?;
        let end = first.plus(u64::from(count)).0;
        if first.0 < self.base || end > self.next {
            let Range { start: base, end: next } = self.window();
            return Err(EncodeError::OutsideWindow { first, count, base, next });
        }
        Ok((first.0..end).map(|id| self.ring.len(id)).max().unwrap_or(0))
    }

    /// Writes the repair symbol `id` to the front of `out` and returns its length, which is
    /// [`repair_len`](Self::repair_len). It costs one multiply-accumulate per symbol of the span.
    ///
    /// # Errors
    /// The code is for generations only or has no such repair symbol, the span is not completely inside the
    /// window, or `out` is too short. `out` is unchanged then.
    pub fn write_repair(&self, code: Code, id: RepairId, out: &mut [u8]) -> Result<usize, EncodeError> {
        self.write_repairs(code, id, &mut [out])
    }

    /// Writes several repair symbols over one span, with the keys `id.key`, `id.key + 1`, ..., one to the
    /// front of each output. Returns their common length. It is cheaper than one call for each, because four
    /// share a pass over the span.
    ///
    /// # Errors
    /// The code is for generations only or lacks one of the repair symbols, the span is not completely inside
    /// the window, or an output is too short. All outputs are unchanged then.
    pub fn write_repairs<R: AsMut<[u8]>>(
        &self,
        code: Code,
        id: RepairId,
        outs: &mut [R],
    ) -> Result<usize, EncodeError> {
        code.check_sliding()?;
        code.check_keys(id, outs.len())?;
        let needed = self.repair_len(id.first, id.count)?;
        if let Some(len) = outs.iter_mut().map(|out| out.as_mut().len()).find(|&len| len < needed) {
            return Err(EncodeError::OutputTooShort { len, needed });
        }
        let symbols = id.span().map(|source| &self.ring.slot(source)[..needed]);
        combine_repairs(code, id, outs, needed, symbols);
        Ok(needed)
    }

    /// Forgets all symbols below `id`; their slots are free for new ones.
    pub fn release_before(&mut self, id: SourceId) {
        self.base = id.0.clamp(self.base, self.next);
    }

    fn check_symbol(&self, len: usize) -> Result<(), EncodeError> {
        let limit = self.slot_len();
        if self.is_full() {
            Err(EncodeError::RingFull { capacity: self.capacity() })
        } else if len == 0 {
            Err(EncodeError::EmptySymbol)
        } else if len > limit {
            Err(EncodeError::SymbolTooLong { len, limit })
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use crate::SpanError;

    #[test]
    fn errors_name_the_limit_and_change_nothing() {
        let mut encoder = Encoder::new(100, 3);
        assert_eq!((encoder.slot_len(), encoder.capacity()), (128, 4));
        assert_eq!(encoder.push(&[]), Err(EncodeError::EmptySymbol));
        assert_eq!(encoder.push(&[0; 129]), Err(EncodeError::SymbolTooLong { len: 129, limit: 128 }));
        for id in 0..4 {
            assert_eq!(encoder.push(&[1; 100]), Ok(SourceId(id)));
        }
        assert_eq!(encoder.commit(1), Err(EncodeError::RingFull { capacity: 4 }));
        assert!(encoder.open().is_none());
        encoder.release_before(SourceId(2));
        let (base, next, first) = (SourceId(2), SourceId(4), SourceId(1));
        assert_eq!(encoder.repair_len(first, 2), Err(EncodeError::OutsideWindow { first, count: 2, base, next }));
        let id = RepairId { first: base, count: 2, key: 0 };
        assert_eq!(
            encoder.write_repair(Code::Rlc, id, &mut [0; 99]),
            Err(EncodeError::OutputTooShort { len: 99, needed: 100 })
        );
        let mut outs = [vec![7; 100], vec![7; 99]];
        let too_short = EncodeError::OutputTooShort { len: 99, needed: 100 };
        assert_eq!(encoder.write_repairs(Code::Rlc, id, &mut outs), Err(too_short));
        let past = SpanError::PastLastKey { key: 65_535, repairs: 2 };
        assert_eq!(encoder.write_repairs(Code::Rlc, RepairId { key: 65_535, ..id }, &mut outs), Err(past.into()));
        let too_large = SpanError::KeyTooLarge { key: 254, count: 2 };
        assert_eq!(encoder.write_repairs(Code::Cauchy, RepairId { key: 253, ..id }, &mut outs), Err(too_large.into()));
        assert_eq!(outs, [vec![7; 100], vec![7; 99]]);
        assert_eq!(encoder.window(), base..next);
    }

    #[test]
    fn repairs_written_together_are_those_written_one_by_one() {
        let mut encoder = Encoder::new(64, 8);
        for len in [64, 3, 40, 64, 1, 17] {
            encoder.push(&(0..len).map(|i: u8| i.wrapping_mul(31) ^ len).collect::<Vec<_>>()).unwrap();
        }
        for count in 1..=6 {
            let id = RepairId { first: SourceId(6 - u64::from(count)), count, key: 3 };
            for repairs in 0..10 {
                let mut together = vec![[9; 64]; repairs];
                let len = encoder.write_repairs(Code::Rlc, id, &mut together).unwrap();
                for (key, together) in (3..).zip(together) {
                    let mut alone = [9; 64];
                    assert_eq!(encoder.write_repair(Code::Rlc, RepairId { key, ..id }, &mut alone), Ok(len));
                    assert_eq!(together, alone);
                }
            }
        }
    }

    #[test]
    fn growing_keeps_the_window_and_the_open_slot() {
        let mut encoder = Encoder::new(64, 2);
        encoder.push(b"zero").unwrap();
        encoder.push(b"one").unwrap();
        encoder.release_before(SourceId(1));
        encoder.open().unwrap()[..3].copy_from_slice(b"two");
        encoder.grow(8);
        assert_eq!(encoder.commit(3), Ok(SourceId(2)));
        assert_eq!(encoder.symbol(SourceId(0)), None);
        assert_eq!(encoder.symbol(SourceId(1)), Some(&b"one"[..]));
        assert_eq!(encoder.symbol(SourceId(2)), Some(&b"two"[..]));
    }

    #[test]
    fn what_an_earlier_symbol_left_in_a_slot_is_never_mixed() {
        let mut encoder = Encoder::new(64, 2);
        encoder.push(&[0xAA; 64]).unwrap();
        encoder.release_before(SourceId(1));
        encoder.push(&[1; 64]).unwrap();
        encoder.push(b"short").unwrap();
        let mut out = [0; 64];
        let id = RepairId { first: SourceId(1), count: 2, key: 0 };
        assert_eq!(encoder.write_repair(Code::Cauchy, id, &mut out), Ok(64));
        assert_eq!((&out[..2], &out[5..]), (&[1 ^ b's', 1 ^ b'h'][..], &[1; 59][..]));
    }
}
