//! The closed blocks of a lane that the peer may be unable to decode, and which of them have news.
//!
//! Policies that answer whole blocks keep their blocks here, and the lane keeps the generations whose symbols
//! it may free. Invariants: no call walks over all blocks; a report costs one search for each run that it
//! names, and each block is removed once; a block that nothing happened to is not looked at.

use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};

use tidewire_codec::SourceId;

use super::{Closed, Report};

/// What has a span of source symbols.
pub(crate) trait HasSpan {
    /// The symbols.
    fn span(&self) -> Range<SourceId>;
}

impl HasSpan for Closed {
    fn span(&self) -> Range<SourceId> {
        self.first..self.first.plus(self.count.into())
    }
}

/// The blocks; see the module. Bound: the symbols from the base to the newest one, since each block has a
/// symbol of its own.
#[derive(Debug)]
pub(crate) struct OpenBlocks<T> {
    /// By their first symbols. Their spans do not overlap.
    blocks: BTreeMap<SourceId, T>,
    /// First symbols of the blocks that a policy has to look at.
    news: BTreeSet<SourceId>,
}

impl<T> Default for OpenBlocks<T> {
    fn default() -> Self {
        Self { blocks: BTreeMap::new(), news: BTreeSet::new() }
    }
}

impl<T: HasSpan> OpenBlocks<T> {
    /// Adds a block above all others.
    pub(crate) fn push(&mut self, block: T) {
        self.blocks.insert(block.span().start, block);
    }

    /// The block that contains the symbol.
    pub(crate) fn of(&mut self, id: SourceId) -> Option<&mut T> {
        self.blocks.range_mut(..=id).next_back().map(|(_, block)| block).filter(|block| id < block.span().end)
    }

    /// The block that begins at `first`.
    pub(crate) fn get_mut(&mut self, first: SourceId) -> Option<&mut T> {
        self.blocks.get_mut(&first)
    }

    /// The lowest block.
    pub(crate) fn lowest(&mut self) -> Option<&mut T> {
        self.lowest_from(SourceId(0))
    }

    /// The lowest block that begins at `from` or above.
    pub(crate) fn lowest_from(&mut self, from: SourceId) -> Option<&mut T> {
        self.blocks.range_mut(from..).next().map(|(_, block)| block)
    }

    /// The blocks from the lowest up.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.blocks.values()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Removes the block that begins at `first`.
    pub(crate) fn remove(&mut self, first: SourceId) -> Option<T> {
        self.news.remove(&first);
        self.blocks.remove(&first)
    }

    /// Records that something happened to the block that begins at `first`.
    pub(crate) fn add_news(&mut self, first: SourceId) {
        self.news.insert(first);
    }

    /// First symbol of the lowest block that something happened to.
    pub(crate) fn news(&self) -> Option<SourceId> {
        self.news.first().copied()
    }

    /// The policy has looked at the block that begins at `first`.
    pub(crate) fn remove_news(&mut self, first: SourceId) {
        self.news.remove(&first);
    }

    /// Removes the blocks of which the peer needs nothing, because they end at `base` or below.
    pub(crate) fn release_before(&mut self, base: SourceId, mut gone: impl FnMut(T)) {
        while let Some((first, block)) = self.blocks.first_key_value() {
            if block.span().end > base {
                break;
            }
            let first = *first;
            self.remove(first).map(&mut gone);
        }
    }

    /// Removes the blocks that the report says are decoded.
    pub(crate) fn forget_decoded(&mut self, report: &Report, mut gone: impl FnMut(T)) {
        for run in report.decoded() {
            while let Some((&first, block)) = self.blocks.range(run.clone()).next() {
                if block.span().end > run.end {
                    break;
                }
                self.remove(first).map(&mut gone);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tidewire_codec::Code;

    use super::*;

    /// Blocks of four symbols from 8 up.
    fn blocks(count: u64) -> OpenBlocks<Closed> {
        let mut blocks = OpenBlocks::default();
        for n in 2..2 + count {
            blocks.push(Closed { first: SourceId(4 * n), count: 4, code: Code::Rlc, repairs: 0 });
        }
        blocks
    }

    /// Reports with runs of every kind forget the blocks that [`Report::is_all_decoded`] names, and no other.
    #[test]
    fn what_a_report_decodes_is_forgotten_and_nothing_else() {
        for (edge, end, runs) in [
            (0, 0, vec![]),
            (9, 9, vec![]),
            (16, 16, vec![]),
            (9, 30, vec![(9, 10)]),
            (9, 30, vec![(9, 10), (15, 17), (28, 30)]),
            (12, 32, vec![(12, 13), (20, 24)]),
            (12, 32, vec![(12, 32)]),
            (0, 48, vec![(0, 7), (47, 48)]),
        ] {
            let undecoded = runs.iter().map(|&(start, end)| SourceId(start)..SourceId(end)).collect();
            let report = Report { edge: SourceId(edge), end: SourceId(end), undecoded, ..Report::default() };
            let (mut blocks, mut gone) = (blocks(10), Vec::new());
            let kept: Vec<_> = blocks.iter().copied().filter(|block| !report.is_all_decoded(block.span())).collect();
            blocks.forget_decoded(&report, |block| gone.push(block));
            assert_eq!(blocks.iter().copied().collect::<Vec<_>>(), kept, "{edge} {end} {runs:?}");
            assert!(gone.iter().all(|block| report.is_all_decoded(block.span())), "{gone:?}");
        }
    }

    #[test]
    fn a_block_is_found_by_each_of_its_symbols_and_its_news_go_with_it() {
        let mut blocks = blocks(2);
        assert_eq!(blocks.of(SourceId(7)), None);
        assert_eq!(blocks.of(SourceId(11)).map(|block| block.first.0), Some(8));
        assert_eq!(blocks.of(SourceId(16)), None);
        blocks.add_news(SourceId(12));
        blocks.add_news(SourceId(8));
        assert_eq!(blocks.news(), Some(SourceId(8)));
        blocks.release_before(SourceId(15), drop);
        assert_eq!((blocks.news(), blocks.iter().count()), (Some(SourceId(12)), 1));
    }
}
