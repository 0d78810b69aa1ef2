//! Collects symbols that arrive in parts (SLICE) until they are complete: the receiving side of
//! `sender/slices.rs`.
//!
//! The parts are not kept in the decoder's ring, because the slot of a missing symbol may hold a row. An
//! honest sender has at most [`MAX_SLICED`] such symbols in flight, and gives one up only by moving the base
//! past it. So if there is no room for another symbol, the lowest id is dropped.

use tidewire_codec::SourceId;

use super::MAX_SLICED;
use crate::close::CloseCode;

/// A symbol of which some parts were received.
#[derive(Debug)]
struct Partial {
    id: SourceId,
    bytes: Vec<u8>,
    /// One bit for each byte received, and the number of bytes received.
    there: Vec<u64>,
    count: usize,
}

/// The symbols of a lane of which some parts were received.
#[derive(Debug, Default)]
pub(super) struct Partials {
    symbols: Vec<Partial>,
}

impl Partials {
    /// Takes a part. Returns the symbol when it is complete. A part that contradicts an earlier one is a
    /// `protocol` error. The caller has checked that the part lies within `total`, and that `total` is
    /// allowed.
    pub(super) fn insert(
        &mut self,
        id: SourceId,
        offset: usize,
        total: usize,
        part: &[u8],
    ) -> Result<Option<Vec<u8>>, CloseCode> {
        let known = self.symbols.iter().position(|symbol| symbol.id == id);
        let at = known.unwrap_or_else(|| {
            if self.symbols.len() >= MAX_SLICED
                && let Some((lowest, _)) = self.symbols.iter().enumerate().min_by_key(|(_, symbol)| symbol.id)
            {
                self.symbols.swap_remove(lowest);
            }
            self.symbols.push(Partial { id, bytes: vec![0; total], there: vec![0; total.div_ceil(64)], count: 0 });
            self.symbols.len() - 1
        });
        let symbol = &mut self.symbols[at];
        if symbol.bytes.len() != total {
            return Err(CloseCode::Protocol);
        }
        for (at, &byte) in (offset..total).zip(part) {
            let (word, bit) = (&mut symbol.there[at / 64], 1 << (at % 64));
            if *word & bit == 0 {
                (*word, symbol.bytes[at]) = (*word | bit, byte);
                symbol.count += 1;
            } else if symbol.bytes[at] != byte {
                return Err(CloseCode::Protocol);
            }
        }
        let whole = symbol.count == total;
        Ok(whole.then(|| self.symbols.swap_remove(at).bytes))
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.symbols.iter().map(|symbol| symbol.bytes.capacity() * 9 / 8).sum()
    }

    /// Forgets the symbols for which `is_known` is true.
    pub(super) fn forget(&mut self, is_known: impl Fn(SourceId) -> bool) {
        self.symbols.retain(|symbol| !is_known(symbol.id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_in_any_order_and_overlap_make_the_symbol() {
        let symbol: Vec<u8> = (0..200).collect();
        let mut partials = Partials::default();
        let mut insert = |from: usize, to: usize| partials.insert(SourceId(5), from, 200, &symbol[from..to]);
        assert_eq!(insert(150, 200), Ok(None));
        assert_eq!(insert(100, 180), Ok(None));
        assert_eq!(insert(100, 180), Ok(None));
        assert_eq!(insert(0, 99), Ok(None));
        assert_eq!(insert(99, 100), Ok(Some(symbol.clone())));
        assert!(partials.symbols.is_empty());
    }

    #[test]
    fn parts_that_contradict_each_other_are_refused() {
        let mut partials = Partials::default();
        assert_eq!(partials.insert(SourceId(5), 0, 200, &[1; 10]), Ok(None));
        assert_eq!(partials.insert(SourceId(5), 10, 201, &[1; 10]), Err(CloseCode::Protocol));
        assert_eq!(partials.insert(SourceId(5), 9, 200, &[2; 10]), Err(CloseCode::Protocol));
    }

    #[test]
    fn the_lowest_gives_way_when_there_are_too_many() {
        let mut partials = Partials::default();
        for id in (0..=MAX_SLICED as u64).rev() {
            assert_eq!(partials.insert(SourceId(id), 0, 2, &[1]), Ok(None));
        }
        assert_eq!(partials.symbols.len(), MAX_SLICED);
        assert_eq!(partials.insert(SourceId(1), 1, 2, &[2]), Ok(None), "the lowest symbol was dropped");
        assert_eq!(partials.insert(SourceId(9), 1, 2, &[2]), Ok(Some(vec![1, 2])));
        partials.forget(|id| id < SourceId(100));
        assert!(partials.symbols.is_empty());
    }
}
