//! The ids that a lane in generations lacks, as runs, so that neither a received packet nor FEEDBACK has to
//! scan the window.
//!
//! Invariant: the runs are disjoint and not adjacent, and `count` is the sum of their lengths.

use core::ops::Range;
use std::collections::BTreeMap;

use super::regions::Regions;

/// The runs of lacking ids; see the module.
#[derive(Debug)]
pub(super) struct Lacking {
    /// End of each run, by its start.
    runs: BTreeMap<u64, u64>,
    count: u64,
    /// The ids by region.
    regions: Regions,
}

impl Lacking {
    /// No id is lacking. Regions of `region_len` ids are counted cheaply.
    pub(super) fn new(region_len: u64) -> Self {
        Self { runs: BTreeMap::new(), count: 0, regions: Regions::new(region_len) }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn contains(&self, id: u64) -> bool {
        self.runs.range(..=id).next_back().is_some_and(|(_, &end)| id < end)
    }

    pub(super) fn first(&self) -> Option<u64> {
        self.runs.first_key_value().map(|(&start, _)| start)
    }

    /// Adds ids that are above all others.
    pub(super) fn append(&mut self, ids: Range<u64>) {
        if ids.is_empty() {
            return;
        }
        self.count += ids.end - ids.start;
        self.regions.add(ids.clone());
        match self.runs.last_entry() {
            Some(mut last) if *last.get() == ids.start => *last.get_mut() = ids.end,
            _ => {
                self.runs.insert(ids.start, ids.end);
            }
        }
    }

    /// Removes those of the ids that are lacking.
    pub(super) fn remove(&mut self, ids: Range<u64>) {
        if ids.is_empty() {
            return;
        }
        while let Some((&start, &end)) = self.runs.range(..ids.end).next_back().filter(|&(_, &end)| end > ids.start) {
            self.runs.remove(&start);
            let gone = start.max(ids.start)..end.min(ids.end);
            self.count -= gone.end - gone.start;
            self.regions.remove(gone);
            if end > ids.end {
                self.runs.insert(ids.end, end);
            }
            if start < ids.start {
                self.runs.insert(start, ids.start);
            }
        }
    }

    /// The runs in ascending order.
    pub(super) fn runs(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.runs.iter().map(|(&start, &end)| start..end)
    }

    /// The number of these ids that are lacking. Visits the runs of two parts of regions.
    pub(super) fn count_in(&self, ids: Range<u64>) -> u64 {
        self.regions.sum(ids, |part| self.count_runs(part))
    }

    fn count_runs(&self, ids: Range<u64>) -> u64 {
        if ids.is_empty() {
            return 0;
        }
        let below = self.runs.range(..ids.start).next_back().map(|(_, &end)| end.min(ids.end));
        let within = self.runs.range(ids.clone()).map(|(&start, &end)| end.min(ids.end) - start).sum::<u64>();
        within + below.map_or(0, |end| end.saturating_sub(ids.start))
    }

    /// Approximate memory in bytes. Tree nodes are at least half full.
    pub(super) fn memory(&self) -> usize {
        self.runs.len() * 2 * size_of::<(u64, u64)>() + self.regions.memory()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    use super::*;

    proptest! {
        #[test]
        fn runs_agree_with_a_set(steps in prop::collection::vec((any::<bool>(), 0_u64..80, 0_u64..12), 0..60)) {
            let (mut lacking, mut model, mut end) = (Lacking::new(8), BTreeSet::new(), 0);
            for (append, from, len) in steps {
                if append {
                    let from = end + from % 3;
                    lacking.append(from..from + len);
                    model.extend(from..from + len);
                    end = from + len;
                } else {
                    lacking.remove(from..from + len);
                    model.retain(|id| !(from..from + len).contains(id));
                }
                prop_assert_eq!(lacking.runs().flatten().collect::<Vec<_>>(), model.iter().copied().collect::<Vec<_>>());
                prop_assert!(lacking.runs().zip(lacking.runs().skip(1)).all(|(a, b)| a.end < b.start));
                prop_assert_eq!(lacking.count(), model.len() as u64);
                prop_assert_eq!(lacking.first(), model.first().copied());
                prop_assert_eq!(lacking.contains(from), model.contains(&from));
                let inside = model.range(from..from + len).count() as u64;
                prop_assert_eq!(lacking.count_in(from..from + len), inside);
            }
        }
    }
}
