//! A set of source ids inside a sliding window: one bit for each id, in a ring.
//!
//! The decoder keeps three of these. Ids share a bit if they are a multiple of the ring's length apart. So
//! every range given to a method must lie within one window of at most the capacity, and the owner removes
//! ids before the window moves past them: outside the window all bits are clear.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

pub(crate) struct IdSet {
    /// A power of two of words, at least the window's length in bits.
    words: Vec<u64>,
}

impl IdSet {
    /// A set for windows of up to `capacity` ids, a power of two.
    pub fn new(capacity: usize) -> Self {
        Self { words: vec![0; capacity.div_ceil(64)] }
    }

    #[inline]
    pub fn insert(&mut self, id: u64) {
        let index = self.index(id);
        self.words[index] |= 1 << (id % 64);
    }

    pub fn remove(&mut self, id: u64) {
        let index = self.index(id);
        self.words[index] &= !(1 << (id % 64));
    }

    #[inline]
    pub fn contains(&self, id: u64) -> bool {
        self.words[self.index(id)] >> (id % 64) & 1 == 1
    }

    /// Removes a range from several sets of the same window.
    pub fn remove_from_all<const N: usize>(mut sets: [&mut Self; N], range: Range<u64>) {
        for (at, mask) in words_of(range) {
            for set in &mut sets {
                let index = set.index(at);
                set.words[index] &= !mask;
            }
        }
    }

    /// Number of members in the range.
    pub fn count(&self, range: Range<u64>) -> u64 {
        words_of(range).map(|(at, mask)| u64::from((self.words[self.index(at)] & mask).count_ones())).sum()
    }

    /// First member in the range.
    pub fn first_in(&self, range: Range<u64>) -> Option<u64> {
        self.first(range, 0)
    }

    /// First id of the range that is not a member.
    pub fn first_out(&self, range: Range<u64>) -> Option<u64> {
        self.first(range, u64::MAX)
    }

    /// Members in the range, in ascending order.
    pub fn members(&self, range: Range<u64>) -> impl Iterator<Item = u64> + Clone + '_ {
        self.ids(range, 0)
    }

    /// Ids of the range that are not members, in ascending order.
    pub fn others(&self, range: Range<u64>) -> impl Iterator<Item = u64> + Clone + '_ {
        self.ids(range, u64::MAX)
    }

    /// Maximal runs of ids of the range that are not members, in ascending order.
    pub fn gaps(&self, mut range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        core::iter::from_fn(move || {
            let start = self.first_out(range.clone())?;
            let end = self.first_in(start..range.end).unwrap_or(range.end);
            range.start = end;
            Some(start..end)
        })
    }

    /// Makes room for windows of `capacity` ids; members lie in `window`.
    pub fn grow(&mut self, capacity: usize, window: Range<u64>) {
        let mut larger = Self::new(capacity);
        for id in self.members(window) {
            larger.insert(id);
        }
        *self = larger;
    }

    /// Ids whose bit is set after XOR of each word with `flip`. It works word by word and takes a few
    /// instructions for each id.
    fn ids(&self, range: Range<u64>, flip: u64) -> impl Iterator<Item = u64> + Clone + '_ {
        words_of(range).flat_map(move |(at, mask)| {
            let mut left = (self.words[self.index(at)] ^ flip) & mask;
            core::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                (left != 0).then(|| {
                    left &= left - 1;
                    at + u64::from(bit)
                })
            })
        })
    }

    fn first(&self, range: Range<u64>, flip: u64) -> Option<u64> {
        words_of(range).find_map(|(at, mask)| {
            let found = (self.words[self.index(at)] ^ flip) & mask;
            (found != 0).then(|| at + u64::from(found.trailing_zeros()))
        })
    }

    fn index(&self, id: u64) -> usize {
        // Truncation is harmless: the number of words is a power of two.
        (id / 64) as usize & (self.words.len() - 1)
    }
}

/// Splits a range into words: the id of each word's bit 0 and the mask of the range's bits in it.
fn words_of(range: Range<u64>) -> impl Iterator<Item = (u64, u64)> + Clone {
    let first = range.start / 64;
    let last = if range.is_empty() { first } else { (range.end - 1) / 64 + 1 };
    (first..last).map(move |word| {
        let at = word * 64;
        let low = u64::MAX << range.start.saturating_sub(at);
        let high = u64::MAX >> (64 - (range.end - at).min(64));
        (at, low & high)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "slow there, and no unsafe code in it")]
    fn answers_like_a_list_of_booleans() {
        for (capacity, start) in [(4, 0), (4, 62), (64, 100), (256, 1_000), (256, u64::MAX - 300)] {
            let mut set = IdSet::new(capacity);
            let window = start..start + capacity as u64;
            let is_member = |id: u64| id.is_multiple_of(3) || id % 7 < 2;
            window.clone().filter(|&id| is_member(id)).for_each(|id| set.insert(id));
            for from in window.clone() {
                for to in [from, from + 1, from.saturating_add(70), window.end] {
                    let range = from..to.min(window.end);
                    let members: Vec<u64> = range.clone().filter(|&id| is_member(id)).collect();
                    let others: Vec<u64> = range.clone().filter(|&id| !is_member(id)).collect();
                    assert_eq!(set.members(range.clone()).collect::<Vec<_>>(), members);
                    assert_eq!(set.others(range.clone()).collect::<Vec<_>>(), others);
                    assert_eq!(set.count(range.clone()), members.len() as u64);
                    assert_eq!(set.gaps(range).flatten().collect::<Vec<_>>(), others);
                }
            }
            set.grow(capacity * 2, window.clone());
            assert!(window.clone().all(|id| set.contains(id) == is_member(id)));
            IdSet::remove_from_all([&mut set], window.start + 1..window.end);
            assert_eq!(set.count(window.clone()), u64::from(is_member(window.start)));
        }
    }
}
