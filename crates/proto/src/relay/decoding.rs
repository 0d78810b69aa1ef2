//! What an end decodes of the relayed lane, and delivers in order.
//!
//! Each generation has a decoder of its own, so no row is ever refused for want of space: the ranks that the
//! hop reports and the decoders agree. Invariant: symbols are returned in order, each once.

use std::collections::VecDeque;

use tidewire_codec::{Decoder, Limits, SourceId};

use crate::recode::RELAYED_SYMBOL;
use crate::wire::Recoded;

/// Generations that are not wholly delivered; see the module.
#[derive(Debug, Default)]
pub(super) struct Decoding {
    /// Number of the first of `open`.
    edge: u64,
    length: u8,
    open: VecDeque<Option<Decoder>>,
    /// Symbols of the first generation that were returned.
    returned: u8,
}

impl Decoding {
    /// All generations below are delivered.
    pub(super) fn edge(&self) -> u64 {
        self.edge
    }

    /// Takes an innovative row. The hop's receiver has checked it: its generation is open, its vector fits
    /// the length, which never changes.
    pub(super) fn receive(&mut self, row: &Recoded<'_>) {
        let Some(index) = row.generation.checked_sub(self.edge) else { return };
        self.length = row.length;
        let index = index as usize;
        if index >= self.open.len() {
            self.open.resize_with(index + 1, || None);
        }
        let length = usize::from(row.length);
        let decoder = self.open[index].get_or_insert_with(|| {
            let limits =
                Limits { slot_len: RELAYED_SYMBOL, capacity: length, max_span: row.length.into(), max_rows: length };
            Decoder::new(limits)
        });
        // All rows get one length. A row that is shorter than a known symbol that it mixes would be refused,
        // and the hop would never send another for it.
        let mut whole = [0; RELAYED_SYMBOL];
        whole.iter_mut().zip(row.symbol).for_each(|(to, from)| *to = *from);
        let taken = decoder.receive_recoded(SourceId(0), row.vector, &whole);
        debug_assert!(taken.is_ok(), "the hop checked the row: {taken:?}");
    }

    /// Copies the next symbol to the front of `out` and returns its length. It may have zeros at its end.
    pub(super) fn poll(&mut self, out: &mut [u8]) -> Option<usize> {
        if self.length > 0 && self.returned == self.length {
            self.open.pop_front();
            (self.edge, self.returned) = (self.edge + 1, 0);
        }
        let decoder = self.open.front()?.as_ref()?;
        let id = SourceId(self.returned.into());
        if id >= decoder.edge() {
            return None;
        }
        let symbol = decoder.symbol(id)?;
        out.get_mut(..symbol.len())?.copy_from_slice(symbol);
        self.returned += 1;
        Some(symbol.len())
    }
}
