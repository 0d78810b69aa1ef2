//! How many of something lie in each region of ids: so that FEEDBACK, which reports regions, visits neither
//! each id nor each generation of a window.
//!
//! Region `n` has the ids from `n * length` on. `lacking` counts missing ids with it, `generations` rows.

use core::ops::Range;
use std::collections::BTreeMap;

/// Counts by region; see the module. A region without any has no entry.
#[derive(Debug)]
pub(super) struct Regions {
    length: u64,
    counts: BTreeMap<u64, u64>,
}

impl Regions {
    /// Regions of `length` ids, at least one.
    pub(super) fn new(length: u64) -> Self {
        Self { length: length.max(1), counts: BTreeMap::new() }
    }

    /// Counts each of these ids once.
    pub(super) fn add(&mut self, ids: Range<u64>) {
        let length = self.length;
        each(length, ids, |region, ids| *self.counts.entry(region).or_default() += ids);
    }

    /// Counts none of these ids any more.
    pub(super) fn remove(&mut self, ids: Range<u64>) {
        let length = self.length;
        each(length, ids, |region, ids| self.replace(region * length, ids, 0));
    }

    /// What counts at an id was `before` and is now `after`.
    pub(super) fn replace(&mut self, id: u64, before: u64, after: u64) {
        if before == after {
            return;
        }
        let count = self.counts.entry(id / self.length).or_default();
        *count = count.saturating_sub(before) + after;
        if *count == 0 {
            self.counts.remove(&(id / self.length));
        }
    }

    /// The count of these ids. `partly` counts those of a part of a region: at most two parts, each shorter
    /// than a region.
    pub(super) fn sum(&self, ids: Range<u64>, partly: impl Fn(Range<u64>) -> u64) -> u64 {
        let (first, last) = (ids.start.div_ceil(self.length), ids.end / self.length);
        if first > last {
            return partly(ids);
        }
        let whole: u64 = self.counts.range(first..last).map(|(_, count)| count).sum();
        whole + partly(ids.start..first * self.length) + partly(last * self.length..ids.end)
    }

    /// Approximate memory in bytes. Tree nodes are at least half full.
    pub(super) fn memory(&self) -> usize {
        self.counts.len() * 2 * size_of::<(u64, u64)>()
    }
}

/// Calls `act` with each region of the ids, and how many of the ids lie in it.
fn each(length: u64, ids: Range<u64>, mut act: impl FnMut(u64, u64)) {
    let mut start = ids.start;
    while start < ids.end {
        let end = ((start / length + 1) * length).min(ids.end);
        act(start / length, end - start);
        start = end;
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    /// A report of 63 regions over 16,000 ids looks at single ids of two regions at most.
    #[test]
    fn whatever_is_asked_for_fewer_than_two_regions_are_counted_one_by_one() {
        let mut regions = Regions::new(256);
        regions.add(5..16_000);
        regions.remove(100..300);
        regions.remove(700..701);
        let is_in = |id: &u64| (5..100).contains(id) || (300..700).contains(id) || (701..16_000).contains(id);
        for from in (0..1_500).step_by(7) {
            for to in (from..from + 1_500).step_by(11).chain([16_000, 20_000]) {
                let looks = Cell::new(0);
                let sum = regions.sum(from..to, |part| {
                    looks.set(looks.get() + part.clone().count());
                    part.filter(is_in).count() as u64
                });
                assert!(looks.get() < 2 * 256, "{from} {to}: {} looks", looks.get());
                assert_eq!(sum, (from..to).filter(is_in).count() as u64, "{from} {to}");
            }
        }
        regions.remove(5..100);
        regions.remove(300..700);
        regions.remove(701..16_000);
        assert_eq!(regions.memory(), 0);
    }
}
