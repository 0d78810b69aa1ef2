//! The symbols that the sender of a lane keeps: in a ring under a sliding code, or as separate buffers if
//! they are coded in generations.
//!
//! The ring is send buffer, retransmission buffer and coding window in one. Each symbol of a generation has
//! its own buffer, so a job can share a generation while the lane continues. Repairs mix whole generations,
//! so symbols are kept below the base too, as many as the longest span.

use core::ops::Range;
use std::collections::VecDeque;
use std::sync::Arc;

use tidewire_codec::{Code, EncodeError, Encoder, Generation, Prepared, RepairId, SourceId};

use crate::lane::job::Symbol;
use crate::wire::Layout;

/// The symbols of a lane's sender; see the module.
#[derive(Debug)]
pub(super) enum Window {
    Sliding(Encoder),
    Generations(Kept),
}

/// Makes the same call on either kind of window.
macro_rules! either {
    ($window:expr, $kind:ident => $call:expr) => {
        match $window {
            Window::Sliding($kind) => $call,
            Window::Generations($kind) => $call,
        }
    };
}

impl Window {
    /// `slot_len` is the length of the longest symbol; `span` is the length of the longest generation.
    pub(super) fn new(layout: Layout, slot_len: usize, capacity: usize, span: u16) -> Self {
        match layout {
            Layout::Sliding => Self::Sliding(Encoder::new(slot_len, capacity)),
            Layout::Generations => Self::Generations(Kept::new(slot_len, capacity, span)),
        }
    }

    pub(super) fn layout(&self) -> Layout {
        match self {
            Self::Sliding(_) => Layout::Sliding,
            Self::Generations(_) => Layout::Generations,
        }
    }

    pub(super) fn slot_len(&self) -> usize {
        either!(self, kind => kind.slot_len())
    }

    pub(super) fn capacity(&self) -> usize {
        either!(self, kind => kind.capacity())
    }

    pub(super) fn memory(&self) -> usize {
        either!(self, kind => kind.memory())
    }

    pub(super) fn grow(&mut self, capacity: usize) {
        either!(self, kind => kind.grow(capacity));
    }

    /// Ids from the base to the newest closed symbol.
    pub(super) fn ids(&self) -> Range<SourceId> {
        either!(self, kind => kind.window())
    }

    pub(super) fn is_full(&self) -> bool {
        either!(self, kind => kind.is_full())
    }

    /// The buffer for the next symbol; `None` if there is no room.
    pub(super) fn open(&mut self) -> Option<&mut [u8]> {
        either!(self, kind => kind.open())
    }

    /// Closes the open symbol with a length of `len` bytes.
    pub(super) fn commit(&mut self, len: usize) -> Result<SourceId, EncodeError> {
        either!(self, kind => kind.commit(len))
    }

    pub(super) fn symbol(&self, id: SourceId) -> Option<&[u8]> {
        either!(self, kind => kind.symbol(id))
    }

    /// A mutable symbol. The caller must not change a symbol that a repair already mixes.
    pub(super) fn symbol_mut(&mut self, id: SourceId) -> Option<&mut [u8]> {
        either!(self, kind => kind.symbol_mut(id))
    }

    pub(super) fn release_before(&mut self, base: SourceId) {
        either!(self, kind => kind.release_before(base));
    }

    /// Length of a repair over this span.
    pub(super) fn repair_len(&self, first: SourceId, count: u16) -> Result<usize, EncodeError> {
        either!(self, kind => kind.repair_len(first, count))
    }

    /// Writes a repair and returns its length.
    pub(super) fn write_repair(&self, code: Code, id: RepairId, out: &mut [u8]) -> Result<usize, EncodeError> {
        either!(self, kind => kind.write_repair(code, id, out))
    }

    /// Writes a repair of the random code over the newest span, from prepared repairs if there are any. Only
    /// a sliding window prepares repairs.
    pub(super) fn write_prepared(
        &self,
        prepared: &mut Prepared,
        id: RepairId,
        out: &mut [u8],
    ) -> Result<usize, EncodeError> {
        match self {
            Self::Sliding(encoder) => encoder.write_prepared(prepared, id, out),
            Self::Generations(kept) => kept.write_repair(Code::Rlc, id, out),
        }
    }

    /// Computes the next repairs of a span together. Returns whether it did.
    pub(super) fn prepare(&self, prepared: &mut Prepared, id: RepairId) -> bool {
        match self {
            Self::Sliding(encoder) => encoder.prepare(prepared, id).is_ok(),
            Self::Generations(_) => false,
        }
    }

    /// Frees the symbols of a generation that no repair will mix any more.
    pub(super) fn forget(&mut self, first: SourceId, count: u16) {
        if let Self::Generations(kept) = self {
            kept.forget(first, count);
        }
    }

    /// Whether the symbol was freed by [`Self::forget`].
    pub(super) fn is_forgotten(&self, id: SourceId) -> bool {
        match self {
            Self::Sliding(_) => false,
            Self::Generations(kept) => kept.is_forgotten(id),
        }
    }

    /// The longest generation; 0 under a sliding code.
    pub(super) fn span(&self) -> u16 {
        match self {
            Self::Sliding(_) => 0,
            Self::Generations(kept) => kept.span as u16,
        }
    }

    /// Shares the symbols of a generation, so that a job can read them.
    pub(super) fn share(&self, first: SourceId, count: u16) -> Option<Vec<Symbol>> {
        match self {
            Self::Sliding(_) => None,
            Self::Generations(kept) => Some(kept.span(first, count).ok()?.cloned().collect()),
        }
    }

    /// Reserves the memory for [`Self::prepare`].
    pub(super) fn reserve_prepared(&self, prepared: &mut Prepared) {
        if let Self::Sliding(encoder) = self {
            encoder.reserve_prepared(prepared);
        }
    }
}

/// Symbols in separate buffers, for generations.
#[derive(Debug)]
pub(super) struct Kept {
    slot_len: usize,
    capacity: usize,
    /// Number of symbols kept below the base.
    span: u64,
    base: u64,
    /// Id of the first of `symbols`.
    first: u64,
    symbols: VecDeque<Symbol>,
    /// Stands for each symbol that was forgotten before its turn.
    forgotten: Symbol,
    /// The symbol that is being filled.
    open: Vec<u8>,
}

impl Kept {
    fn new(slot_len: usize, capacity: usize, span: u16) -> Self {
        let (base, first, symbols, open) = (0, 0, VecDeque::new(), Vec::new());
        Self { slot_len, capacity, span: span.into(), base, first, symbols, forgotten: Arc::from([]), open }
    }

    fn slot_len(&self) -> usize {
        self.slot_len
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn memory(&self) -> usize {
        let kept = self.symbols.len() + 1 - (Arc::strong_count(&self.forgotten) - 1);
        kept * self.slot_len
    }

    fn grow(&mut self, capacity: usize) {
        self.capacity = self.capacity.max(capacity);
    }

    fn next(&self) -> u64 {
        self.first + self.symbols.len() as u64
    }

    fn window(&self) -> Range<SourceId> {
        SourceId(self.base)..SourceId(self.next())
    }

    fn is_full(&self) -> bool {
        self.next() - self.base >= self.capacity as u64
    }

    fn open(&mut self) -> Option<&mut [u8]> {
        if self.is_full() {
            return None;
        }
        self.open.resize(self.slot_len, 0);
        Some(&mut self.open)
    }

    fn commit(&mut self, len: usize) -> Result<SourceId, EncodeError> {
        let limit = self.slot_len;
        if self.is_full() {
            return Err(EncodeError::RingFull { capacity: self.capacity });
        } else if len == 0 {
            return Err(EncodeError::EmptySymbol);
        } else if len > limit {
            return Err(EncodeError::SymbolTooLong { len, limit });
        }
        let id = self.next();
        self.open.resize(limit, 0);
        self.symbols.push_back(self.open[..len].into());
        Ok(SourceId(id))
    }

    fn index(&self, id: SourceId) -> Option<usize> {
        usize::try_from(id.0.checked_sub(self.first)?).ok()
    }

    fn symbol(&self, id: SourceId) -> Option<&[u8]> {
        self.symbols.get(self.index(id)?).map(|symbol| &symbol[..])
    }

    fn symbol_mut(&mut self, id: SourceId) -> Option<&mut [u8]> {
        let index = self.index(id)?;
        Arc::get_mut(self.symbols.get_mut(index)?)
    }

    fn release_before(&mut self, base: SourceId) {
        self.base = base.0.clamp(self.base, self.next());
        let gone = self.base.saturating_sub(self.first + self.span) as usize;
        self.symbols.drain(..gone);
        self.first += gone as u64;
    }

    fn forget(&mut self, first: SourceId, count: u16) {
        let Some(index) = self.index(first) else { return };
        for symbol in self.symbols.iter_mut().skip(index).take(count.into()) {
            *symbol = Arc::clone(&self.forgotten);
        }
    }

    fn is_forgotten(&self, id: SourceId) -> bool {
        let symbol = self.index(id).and_then(|index| self.symbols.get(index));
        symbol.is_some_and(|symbol| Arc::ptr_eq(symbol, &self.forgotten))
    }

    /// The symbols of a span, none of them forgotten.
    fn span(&self, first: SourceId, count: u16) -> Result<impl Iterator<Item = &Symbol>, EncodeError> {
        Code::Rlc.check(RepairId { first, count, key: 0 })?;
        let outside =
            EncodeError::OutsideWindow { first, count, base: SourceId(self.first), next: SourceId(self.next()) };
        let index =
            self.index(first).filter(|index| index + usize::from(count) <= self.symbols.len()).ok_or(outside)?;
        let is_forgotten = self.symbols.range(index..).take(count.into()).any(|symbol| symbol.is_empty());
        if is_forgotten {
            return Err(outside);
        }
        Ok(self.symbols.range(index..index + usize::from(count)))
    }

    fn repair_len(&self, first: SourceId, count: u16) -> Result<usize, EncodeError> {
        let longest = self.span(first, count)?.map(|symbol| symbol.len()).max().unwrap_or(0);
        // The repair of a single symbol is the symbol itself. Repairs over GF(2^16) have an even length.
        Ok(if count == 1 { longest } else { longest.next_multiple_of(2) })
    }

    fn write_repair(&self, code: Code, id: RepairId, out: &mut [u8]) -> Result<usize, EncodeError> {
        code.check(id)?;
        let needed = self.repair_len(id.first, id.count)?;
        let len = out.len();
        let out = out.get_mut(..needed).ok_or(EncodeError::OutputTooShort { len, needed })?;
        let sources: Vec<&[u8]> = self.span(id.first, id.count)?.map(|symbol| &symbol[..]).collect();
        if let [source] = sources[..] {
            out.copy_from_slice(source);
            return Ok(needed);
        }
        let generation = Generation::new(code, id.count)?.at(id.first)?;
        let written = generation.encode(&sources, id.key, &mut [out]);
        debug_assert!(written.is_ok(), "lengths and key were checked: {written:?}");
        Ok(needed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_of_generations_make_the_repairs_of_a_ring_and_stay_a_span_below_the_base() {
        let [mut ring, mut kept] = [Layout::Sliding, Layout::Generations].map(|layout| Window::new(layout, 64, 32, 8));
        for n in 0..20_u8 {
            for window in [&mut ring, &mut kept] {
                let slot = window.open().expect("room");
                slot[..40].fill(n);
                assert_eq!(window.commit(usize::from(n) + 1), Ok(SourceId(n.into())));
            }
        }
        let id = RepairId { first: SourceId(8), count: 8, key: 3 };
        for code in [Code::Rlc, Code::Cauchy] {
            let (mut expected, mut got) = ([0; 64], [1; 64]);
            let len = ring.write_repair(code, id, &mut expected).expect("inside");
            expected[len..].fill(0);
            let even = len.next_multiple_of(2);
            assert_eq!(kept.write_repair(code, id, &mut got), Ok(even));
            assert_eq!(got[..even], expected[..even]);
        }
        kept.release_before(SourceId(16));
        assert!(kept.write_repair(Code::Cauchy, id, &mut [0; 64]).is_ok() && kept.symbol(SourceId(7)).is_none());
        assert_eq!(kept.ids(), SourceId(16)..SourceId(20));
        let memory = kept.memory();
        kept.forget(SourceId(16), 4);
        assert_eq!((kept.memory(), kept.is_forgotten(SourceId(16))), (memory - 4 * 64, true));
        let lost = kept.write_repair(Code::Cauchy, RepairId { first: SourceId(12), ..id }, &mut [0; 64]);
        assert!(matches!(lost, Err(EncodeError::OutsideWindow { .. })), "{lost:?}");
        kept.release_before(SourceId(17));
        assert!(matches!(kept.write_repair(Code::Cauchy, id, &mut [0; 64]), Err(EncodeError::OutsideWindow { .. })));
    }
}
