//! BLAKE3 of a file in groups: the state can be stored after any group, and hashing can continue without the
//! bytes before.
//!
//! Sender and receiver each use one [`Tree`] per file. BLAKE3 is a tree over chunks of 1 KiB, and a group is
//! a whole subtree of 4,096 chunks. So the state after some groups is one chaining value for each bit set in
//! their number (BLAKE3 paper, section 5.1.2). Invariant: a group is closed only if more bytes follow, so
//! [`Tree::finish`] returns the ordinary BLAKE3 of the file, however often the state was stored.

use blake3::Hasher;
use blake3::hazmat::{ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};

/// Bytes of a group. A killed transfer sends at most this much of each file again (row S13 of
/// `docs/survival.md`). It is a power of two, because subtrees of BLAKE3 are.
pub const GROUP: u64 = 4 << 20;
/// Groups of the longest file whose size fits into 64 bits.
const MAX_GROUPS: u64 = u64::MAX / GROUP;

/// The state after complete groups, from which hashing can continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    groups: u64,
    last: ChainingValue,
    stack: Vec<ChainingValue>,
}

impl Prefix {
    /// The state after `groups` complete groups: the chaining value of the last group, and those of the
    /// subtrees. `None` if they are inconsistent.
    pub fn new(groups: u64, last: ChainingValue, stack: Vec<ChainingValue>) -> Option<Self> {
        let fits = (1..=MAX_GROUPS).contains(&groups) && stack.len() == groups.count_ones() as usize;
        fits.then_some(Self { groups, last, stack })
    }

    /// Number of groups.
    pub fn groups(&self) -> u64 {
        self.groups
    }

    /// Number of bytes in the groups.
    pub fn offset(&self) -> u64 {
        self.groups * GROUP
    }

    /// The chaining value of the last group.
    pub fn last(&self) -> &ChainingValue {
        &self.last
    }

    /// The chaining values of the subtrees, largest first.
    pub fn stack(&self) -> &[ChainingValue] {
        &self.stack
    }

    /// Whether `bytes` are the last group.
    pub fn ends_in(&self, bytes: &[u8]) -> bool {
        if bytes.len() as u64 != GROUP {
            return false;
        }
        let value = Hasher::new().set_input_offset(self.offset() - GROUP).update(bytes).finalize_non_root();
        // `blake3::Hash` compares in constant time.
        blake3::Hash::from_bytes(value) == blake3::Hash::from_bytes(self.last)
    }
}

/// The hash of a file in progress.
#[derive(Clone, Debug)]
pub struct Tree {
    stack: Vec<ChainingValue>,
    groups: u64,
    group: Box<Hasher>,
}

impl Tree {
    /// Starts with nothing, or after complete groups.
    pub fn new(prefix: Option<&Prefix>) -> Self {
        let (groups, stack) = prefix.map_or((0, Vec::new()), |prefix| (prefix.groups, prefix.stack.clone()));
        let mut group = Box::new(Hasher::new());
        group.set_input_offset(groups * GROUP);
        Self { stack, groups, group }
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.groups * GROUP + self.group.count()
    }

    /// Bytes that the current group may still take.
    pub fn room(&self) -> u64 {
        GROUP - self.group.count()
    }

    /// Adds the next bytes, at most [`room`](Self::room) of them.
    pub fn update(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len() as u64 <= self.room());
        self.group.update(bytes);
    }

    /// Ends the current group, which must be full and not the last of the file. Returns the state.
    pub fn close_group(&mut self) -> Prefix {
        debug_assert_eq!(self.room(), 0);
        let last = self.group.finalize_non_root();
        self.groups += 1;
        let mut subtree = last;
        for _ in 0..self.groups.trailing_zeros() {
            // Always there: the number of groups before had as many bits set at its end as there are
            // subtrees.
            if let Some(left) = self.stack.pop() {
                subtree = merge_subtrees_non_root(&left, &subtree, Mode::Hash);
            }
        }
        self.stack.push(subtree);
        // A new hasher, because `Hasher::reset` keeps the input offset and then counts wrongly.
        *self.group = Hasher::new();
        self.group.set_input_offset(self.groups * GROUP);
        Prefix { groups: self.groups, last, stack: self.stack.clone() }
    }

    /// The BLAKE3 of the whole file; `None` if its last group was closed, after which bytes must follow.
    pub fn finish(mut self) -> Option<blake3::Hash> {
        let Some(first) = (!self.stack.is_empty()).then(|| self.stack.remove(0)) else {
            return Some(self.group.finalize());
        };
        if self.group.count() == 0 {
            return None;
        }
        let mut right = self.group.finalize_non_root();
        while let Some(left) = self.stack.pop() {
            right = merge_subtrees_non_root(&left, &right, Mode::Hash);
        }
        Some(merge_subtrees_root(&first, &right, Mode::Hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes `content`, and stores and restores the state after every group.
    fn interrupted(content: &[u8]) -> blake3::Hash {
        let mut tree = Tree::new(None);
        for chunk in content.chunks(64 << 10) {
            if tree.room() == 0 {
                let prefix = tree.close_group();
                assert!(prefix.ends_in(&content[(prefix.offset() - GROUP) as usize..prefix.offset() as usize]));
                tree = Tree::new(Some(&prefix));
            }
            tree.update(chunk);
        }
        assert_eq!(tree.bytes(), content.len() as u64);
        tree.finish().unwrap()
    }

    #[test]
    fn however_often_it_is_put_down_it_is_the_blake3_of_the_file() {
        let mut content = vec![0; 7 * GROUP as usize + 70_000];
        Hasher::new().update(b"tree").finalize_xof().fill(&mut content);
        let group = GROUP as usize;
        for length in [0, 1, group - 1, group, group + 1, 2 * group, 3 * group + 5, 4 * group, 5 * group, content.len()]
        {
            assert_eq!(interrupted(&content[..length]), blake3::hash(&content[..length]), "{length} bytes");
        }
    }

    #[test]
    fn a_prefix_that_does_not_fit_together_is_none() {
        let cv = [7; 32];
        assert!(Prefix::new(0, cv, vec![]).is_none());
        assert!(Prefix::new(3, cv, vec![cv]).is_none());
        assert!(Prefix::new(u64::MAX, cv, vec![cv; 64]).is_none());
        assert!(Prefix::new(3, cv, vec![cv; 2]).is_some_and(|prefix| !prefix.ends_in(&vec![0; GROUP as usize])));
        assert!(Prefix::new(1, cv, vec![cv]).is_some_and(|prefix| !prefix.ends_in(&[])));
    }

    #[test]
    fn a_closed_group_must_be_followed() {
        let mut tree = Tree::new(None);
        tree.update(&vec![1; GROUP as usize]);
        tree.close_group();
        assert_eq!(tree.finish(), None);
    }
}
