//! Counts of repairs by the symbols at which their spans begin and end.
//!
//! [`InFlight`](super::InFlight) adds each repair when it is sent, and takes it back when it is settled. The
//! counts are the leaves of a binary tree over a ring of symbols, whose inner nodes are sums: so every call
//! touches at most twice as many nodes as the tree has levels, and no call depends on how many repairs are in
//! flight. Invariants: the ring covers all ids from the lowest to the highest that has a count; symbols below
//! `forgotten` have none.

use core::ops::{AddAssign, Range, SubAssign};

use tidewire_codec::SourceId;

use super::RepairInFlight;

/// Repairs that begin and end at a symbol, or at any of several. Index 1 counts answers, index 0 all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Repairs whose first symbol it is.
    pub firsts: [u32; 2],
    /// Those of them that have no other symbol.
    pub singles: [u32; 2],
    /// Repairs whose last symbol it is.
    pub lasts: [u32; 2],
}

impl Counts {
    fn each(&mut self, other: &Self, change: impl Fn(u32, u32) -> u32) {
        for (ours, theirs) in
            [(&mut self.firsts, &other.firsts), (&mut self.singles, &other.singles), (&mut self.lasts, &other.lasts)]
        {
            *ours = [change(ours[0], theirs[0]), change(ours[1], theirs[1])];
        }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.each(&other, u32::saturating_add);
    }
}

impl SubAssign for Counts {
    fn sub_assign(&mut self, other: Self) {
        self.each(&other, u32::saturating_sub);
    }
}

/// Leaves of the smallest tree. Chosen: as many symbols as a lane has credit for at first, divided by four.
const FEWEST: usize = 64;

/// The tree; see the module. Bound: twice the next power of two above the number of symbols from the base, or
/// [`LONGEST_SPAN`](super::LONGEST_SPAN) below it, to the newest one. It has no memory before the first
/// repair.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// The root is at index 1, and the leaf of symbol `n` at `leaves + n % leaves`.
    nodes: Vec<Counts>,
    /// The ring covers `low..high`.
    low: u64,
    high: u64,
    forgotten: u64,
}

impl Tally {
    /// Counts a repair. Symbols below `floor` may be forgotten.
    pub(super) fn add(&mut self, repair: &RepairInFlight, floor: SourceId) {
        let (first, end) = (repair.first.0, repair.first.0 + u64::from(repair.count));
        self.cover(first, end, floor.0);
        self.change(repair, |node, counts| *node += counts);
    }

    /// Takes back a repair that was added.
    pub(super) fn remove(&mut self, repair: &RepairInFlight) {
        self.change(repair, |node, counts| *node -= counts);
    }

    fn change(&mut self, repair: &RepairInFlight, change: impl Fn(&mut Counts, Counts)) {
        let mut one = [0; 2];
        one[usize::from(repair.on_feedback)] = 1;
        let singles = if repair.count == 1 { one } else { [0; 2] };
        let (first, last) = (repair.first.0, repair.first.0 + u64::from(repair.count) - 1);
        self.change_leaf(first, Counts { firsts: one, singles, ..Counts::default() }, &change);
        self.change_leaf(last, Counts { lasts: one, ..Counts::default() }, &change);
    }

    fn change_leaf(&mut self, id: u64, by: Counts, change: impl Fn(&mut Counts, Counts)) {
        if id < self.forgotten {
            return;
        }
        let mut at = self.leaf(id);
        while let Some(node) = self.nodes.get_mut(at).filter(|_| at > 0) {
            change(node, by);
            at /= 2;
        }
    }

    /// The sum over the symbols of a range.
    pub(super) fn sum(&self, ids: Range<SourceId>) -> Counts {
        let (from, to) = (ids.start.0.max(self.low), ids.end.0.min(self.high));
        let mut sum = Counts::default();
        if from >= to {
            return sum;
        }
        let (first, last) = (self.leaf(from), self.leaf(to - 1));
        if first <= last {
            self.add_nodes(first, last, &mut sum);
        } else {
            // The ring wraps between the two.
            self.add_nodes(first, self.nodes.len() - 1, &mut sum);
            self.add_nodes(self.leaves(), last, &mut sum);
        }
        sum
    }

    /// Adds the leaves from `first` to `last`.
    fn add_nodes(&self, mut first: usize, mut last: usize, sum: &mut Counts) {
        while first <= last {
            if first % 2 == 1 {
                *sum += self.nodes[first];
                first += 1;
            }
            if last.is_multiple_of(2) {
                *sum += self.nodes[last];
                last -= 1;
            }
            (first, last) = (first / 2, last / 2);
        }
    }

    /// The sum over all symbols from `from` up.
    pub(super) fn sum_from(&self, from: SourceId) -> Counts {
        self.sum(from..SourceId(u64::MAX))
    }

    /// The counts of one symbol.
    pub(super) fn at(&self, id: SourceId) -> Counts {
        if (self.low..self.high).contains(&id.0) { self.nodes[self.leaf(id.0)] } else { Counts::default() }
    }

    /// Bytes of memory.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.nodes.capacity() * size_of::<Counts>()
    }

    fn leaves(&self) -> usize {
        self.nodes.len() / 2
    }

    fn leaf(&self, id: u64) -> usize {
        let leaves = self.leaves();
        // The number of leaves is a power of two.
        leaves + (id as usize & leaves.saturating_sub(1))
    }

    /// Makes the ring cover `first..end` beside all that has a count. Symbols without one leave it at its
    /// lower end first, then those below `floor`, whose counts are forgotten. Otherwise it grows.
    fn cover(&mut self, first: u64, end: u64, floor: u64) {
        if self.nodes.get(1).is_none_or(|root| *root == Counts::default()) {
            (self.low, self.high) = (first.max(self.forgotten), first.max(self.forgotten));
        }
        let first = first.max(self.forgotten);
        let high = self.high.max(end);
        while high.saturating_sub(self.low.min(first)) > self.leaves() as u64 {
            let is_movable = self.low < first && self.low < self.high;
            if is_movable && self.nodes[self.leaf(self.low)] == Counts::default() {
                self.low += 1;
            } else if is_movable && self.low < floor {
                let gone = self.nodes[self.leaf(self.low)];
                self.change_leaf(self.low, gone, |node, counts| *node -= counts);
                self.low += 1;
                self.forgotten = self.low;
            } else {
                self.grow();
            }
        }
        (self.low, self.high) = (self.low.min(first), high);
    }

    fn grow(&mut self) {
        let old = core::mem::take(self);
        let leaves = (2 * old.leaves()).max(FEWEST);
        let Self { low, high, forgotten, .. } = old;
        *self = Self { nodes: vec![Counts::default(); 2 * leaves], low, high, forgotten };
        for id in low..high {
            let at = self.leaf(id);
            self.nodes[at] = old.nodes[old.leaf(id)];
        }
        for at in (1..leaves).rev() {
            let mut sum = self.nodes[2 * at];
            sum += self.nodes[2 * at + 1];
            self.nodes[at] = sum;
        }
    }
}
