//! Collects symbols that arrive in parts (SLICE) until they are complete: the receiving side of
//! `sender/slices.rs`.
//!
//! The parts are not kept in the decoder's ring, because the slot of a missing symbol may hold a row. Memory
//! grows with the bytes that came, not with the length that a part states. An honest sender has as few such
//! symbols in flight as [`super::most_sliced`] says, and gives one up only by moving the base past it. So if
//! there is no room for another symbol, the lowest id is dropped.

use std::collections::BTreeMap;

use tidewire_codec::SourceId;

use crate::close::CloseCode;

/// Shortest part that does not end its symbol (docs/wire.md section 5). It bounds the runs of a symbol.
/// Chosen: less than half of what the shortest full packet takes, so that a sender can cut any part in equal
/// halves.
pub(super) const SHORTEST_PART: usize = 256;

/// Adjacent bytes of a symbol. Two runs of a symbol never touch, and each holds at least one whole part.
#[derive(Debug)]
struct Run {
    offset: usize,
    bytes: Vec<u8>,
}

impl Run {
    fn end(&self) -> usize {
        self.offset + self.bytes.len()
    }
}

/// A symbol of which some parts were received.
#[derive(Debug)]
struct Partial {
    total: usize,
    /// In ascending order.
    runs: Vec<Run>,
}

/// The symbols of a lane of which some parts were received.
#[derive(Debug, Default)]
pub(super) struct Partials {
    symbols: BTreeMap<SourceId, Partial>,
    /// Bytes of memory of all symbols.
    memory: usize,
}

impl Partials {
    /// Takes a part. Returns the symbol when it is complete. A part that contradicts an earlier one is a
    /// `protocol` error, and so is a short one. At most `most` symbols are kept. The caller has checked that
    /// the part lies within `total`, and that `total` is allowed.
    pub(super) fn insert(
        &mut self,
        id: SourceId,
        offset: usize,
        total: usize,
        part: &[u8],
        most: usize,
    ) -> Result<Option<Vec<u8>>, CloseCode> {
        if part.len() < SHORTEST_PART && offset + part.len() < total {
            return Err(CloseCode::Protocol);
        }
        let symbol = self.symbols.entry(id).or_insert_with(|| Partial { total, runs: Vec::new() });
        if symbol.total != total {
            return Err(CloseCode::Protocol);
        }
        self.memory -= if symbol.runs.is_empty() { 0 } else { symbol.memory() };
        let taken = symbol.insert(offset, part);
        self.memory += symbol.memory();
        taken?;
        if symbol.is_whole() {
            return Ok(self.remove(id).and_then(|symbol| symbol.runs.into_iter().next()).map(|run| run.bytes));
        }
        while self.symbols.len() > most
            && let Some((&lowest, _)) = self.symbols.first_key_value()
        {
            self.remove(lowest);
        }
        Ok(None)
    }

    fn remove(&mut self, id: SourceId) -> Option<Partial> {
        let symbol = self.symbols.remove(&id)?;
        self.memory -= symbol.memory();
        Some(symbol)
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    /// Forgets a symbol that became known or was skipped.
    pub(super) fn forget(&mut self, id: SourceId) {
        self.remove(id);
    }
}

impl Partial {
    /// Takes a part. Copies at most its bytes and the symbol once.
    fn insert(&mut self, offset: usize, part: &[u8]) -> Result<(), CloseCode> {
        let end = offset + part.len();
        // The runs that the part overlaps or touches.
        let first = self.runs.partition_point(|run| run.end() < offset);
        let last = self.runs.partition_point(|run| run.offset <= end);
        let Some(joined) = self.runs.get(first..last).filter(|runs| !runs.is_empty()) else {
            self.runs.reserve_exact(1);
            self.runs.insert(first, Run { offset, bytes: part.to_vec() });
            return Ok(());
        };
        for run in joined {
            let (from, to) = (run.offset.max(offset), run.end().min(end));
            if run.bytes[from - run.offset..to - run.offset] != part[from - offset..to - offset] {
                return Err(CloseCode::Protocol);
            }
        }
        let (begin, stop) = (joined[0].offset.min(offset), joined[joined.len() - 1].end().max(end));
        if joined.len() == 1 && begin == joined[0].offset {
            let run = &mut self.runs[first];
            let known = run.end();
            run.bytes.reserve_exact(stop - known);
            run.bytes.extend_from_slice(&part[known.min(end) - offset..]);
            return Ok(());
        }
        let mut bytes = vec![0; stop - begin];
        bytes[offset - begin..end - begin].copy_from_slice(part);
        for run in joined {
            bytes[run.offset - begin..run.end() - begin].copy_from_slice(&run.bytes);
        }
        self.runs.splice(first..last, [Run { offset: begin, bytes }]);
        Ok(())
    }

    fn is_whole(&self) -> bool {
        self.runs.first().is_some_and(|run| run.bytes.len() == self.total)
    }

    /// Bytes of memory, with the entry in the table, whose nodes are at least half full.
    fn memory(&self) -> usize {
        let runs = self.runs.iter().map(|run| run.bytes.capacity()).sum::<usize>();
        2 * size_of::<(SourceId, Self)>() + self.runs.capacity() * size_of::<Run>() + runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 64;

    /// The byte at each offset of a symbol of `total` bytes.
    fn symbol(total: usize) -> Vec<u8> {
        (0..total).map(|at| (at * 7 % 251) as u8).collect()
    }

    #[test]
    fn parts_in_any_order_and_overlap_make_the_symbol() {
        let symbol = symbol(2_000);
        let mut partials = Partials::default();
        let mut insert = |from: usize, to: usize| partials.insert(SourceId(5), from, 2_000, &symbol[from..to], MOST);
        for (from, to) in [(1_500, 2_000), (1_000, 1_800), (1_000, 1_800), (300, 600), (0, 299), (1_999, 2_000)] {
            assert_eq!(insert(from, to), Ok(None), "{from}");
        }
        assert_eq!(insert(600, 900), Ok(None), "the bytes from 299 on and from 900 on are missing");
        assert_eq!(insert(200, 460), Ok(None));
        assert_eq!(insert(744, 1_000), Ok(Some(symbol.clone())));
        assert_eq!((partials.symbols.len(), partials.memory()), (0, 0));
    }

    #[test]
    fn parts_that_contradict_each_other_or_are_short_are_refused() {
        let mut partials = Partials::default();
        assert_eq!(partials.insert(SourceId(5), 0, 2_000, &[1; 300], MOST), Ok(None));
        assert_eq!(partials.insert(SourceId(5), 300, 2_001, &[1; 300], MOST), Err(CloseCode::Protocol));
        assert_eq!(partials.insert(SourceId(5), 299, 2_000, &[2; 300], MOST), Err(CloseCode::Protocol));
        assert_eq!(partials.insert(SourceId(5), 1_000, 2_000, &[1; SHORTEST_PART - 1], MOST), Err(CloseCode::Protocol));
        assert_eq!(partials.insert(SourceId(5), 1_999, 2_000, &[1], MOST), Ok(None), "it ends the symbol");
    }

    #[test]
    fn the_lowest_gives_way_when_there_are_too_many() {
        let mut partials = Partials::default();
        for id in (0..=MOST as u64).rev() {
            assert_eq!(partials.insert(SourceId(id), 0, 600, &[1; 300], MOST), Ok(None));
        }
        assert_eq!(partials.symbols.len(), MOST);
        assert_eq!(partials.insert(SourceId(0), 300, 600, &[2; 300], MOST), Ok(None), "the lowest was dropped");
        let whole = partials.insert(SourceId(9), 300, 600, &[2; 300], MOST).expect("no fault").expect("whole");
        assert_eq!((whole.len(), partials.symbols.len()), (600, MOST - 1));
        (0..100).for_each(|id| partials.forget(SourceId(id)));
        assert_eq!(partials.memory(), 0);
    }

    /// One byte of each of many symbols, and the parts of one symbol in the order that copies most.
    #[test]
    fn memory_follows_the_bytes_that_came() {
        let mut partials = Partials::default();
        for id in 0..1_000 {
            assert_eq!(partials.insert(SourceId(id), 65_471, 65_472, &[1], 1_000), Ok(None));
        }
        assert!(partials.memory() <= 1_000 * 256, "{} bytes", partials.memory());
        (0..1_000).for_each(|id| partials.forget(SourceId(id)));
        for offset in (0..65_472 - 256).rev().step_by(255) {
            assert!(partials.insert(SourceId(0), offset, 65_472, &[1; 256], 1_000).is_ok());
            let came = 65_472 - offset;
            assert!(partials.memory() <= came + 256, "{} bytes for {came}", partials.memory());
        }
        assert_eq!(partials.symbols[&SourceId(0)].runs.len(), 1);
    }

    /// The runs bound the work for a part, and its bytes and one copy of the symbol do.
    #[test]
    fn no_parts_make_more_runs_than_fit_side_by_side() {
        let (mut partials, mut random) = (Partials::default(), 1_u64);
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let offset = (random >> 33) as usize % (65_472 - 257);
            assert_eq!(partials.insert(SourceId(0), offset, 65_472, &[1; 256], 1), Ok(None));
            let runs = partials.symbols[&SourceId(0)].runs.len();
            assert!(runs <= 65_472 / 257, "{runs} runs");
        }
    }
}
