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
    stack: Vec<ChainingValue>,
}

impl Prefix {
    /// The state after `groups` complete groups: the chaining values of the subtrees. `None` if they are
    /// inconsistent.
    pub fn new(groups: u64, stack: Vec<ChainingValue>) -> Option<Self> {
        let fits = (1..=MAX_GROUPS).contains(&groups) && stack.len() == groups.count_ones() as usize;
        fits.then_some(Self { groups, stack })
    }

    /// Number of groups.
    pub fn groups(&self) -> u64 {
        self.groups
    }

    /// Number of bytes in the groups.
    pub fn offset(&self) -> u64 {
        self.groups * GROUP
    }

    /// The chaining values of the subtrees, largest first.
    pub fn stack(&self) -> &[ChainingValue] {
        &self.stack
    }

    /// Each subtree: the offset behind it, and its chaining value.
    pub(super) fn subtrees(&self) -> impl Iterator<Item = (u64, &ChainingValue)> {
        let bits = (0..u64::BITS).rev().map(|bit| 1 << bit).filter(|bit| self.groups & bit != 0);
        let ends = bits.scan(0, |groups, bit| {
            *groups += bit;
            Some(*groups * GROUP)
        });
        ends.zip(&self.stack)
    }

    /// The first subtrees, of which the last ends at `offset`; `None` if none does.
    pub(super) fn cut(&self, offset: u64) -> Option<Self> {
        let trees = self.subtrees().position(|(end, _)| end == offset)? + 1;
        Some(Self { groups: offset / GROUP, stack: self.stack[..trees].to_vec() })
    }
}

/// Compares the beginning of a file with a [`Prefix`], subtree by subtree.
pub(super) struct Comparison {
    prefix: Prefix,
    /// Subtrees that are equal.
    equal: usize,
    /// Where the next one begins.
    begin: u64,
    hasher: Box<Hasher>,
}

impl Comparison {
    pub(super) fn new(prefix: Prefix) -> Self {
        Self { prefix, equal: 0, begin: 0, hasher: Box::new(Hasher::new()) }
    }

    /// Bytes that [`update`](Self::update) may take now; 0 if the whole beginning was compared.
    pub(super) fn room(&self) -> u64 {
        self.end().map_or(0, |end| end - self.begin - self.hasher.count())
    }

    /// Takes the next bytes of the file, at most [`room`](Self::room). Returns false if a subtree differs.
    pub(super) fn update(&mut self, bytes: &[u8]) -> bool {
        self.hasher.update(bytes);
        if self.room() > 0 {
            return true;
        }
        let Some((end, value)) = self.prefix.subtrees().nth(self.equal) else { return true };
        // `blake3::Hash` compares in constant time.
        let found = blake3::Hash::from_bytes(self.hasher.finalize_non_root());
        if found != blake3::Hash::from_bytes(*value) {
            return false;
        }
        *self.hasher = Hasher::new();
        self.hasher.set_input_offset(end);
        (self.equal, self.begin) = (self.equal + 1, end);
        true
    }

    /// The offset up to which the file is known to be equal.
    pub(super) fn equal(&self) -> u64 {
        self.begin
    }

    fn end(&self) -> Option<u64> {
        self.prefix.subtrees().nth(self.equal).map(|(end, _)| end)
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

    /// Ends the current group, which must be full and not the last of the file. Returns its chaining value.
    pub fn close_group(&mut self) -> ChainingValue {
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
        last
    }

    /// The state after the groups that were closed; `None` before the first.
    pub fn prefix(&self) -> Option<Prefix> {
        (self.groups > 0).then(|| Prefix { groups: self.groups, stack: self.stack.clone() })
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
                tree.close_group();
                tree = Tree::new(tree.prefix().as_ref());
            }
            tree.update(chunk);
        }
        assert_eq!(tree.bytes(), content.len() as u64);
        tree.finish().unwrap()
    }

    /// The offset up to which `content` is equal to what `prefix` was made of.
    fn compared(content: &[u8], prefix: &Prefix) -> u64 {
        let (mut comparison, mut rest) = (Comparison::new(prefix.clone()), content);
        while comparison.room() > 0 {
            let now = (comparison.room() as usize).min(1_000_000);
            let (bytes, later) = rest.split_at(now);
            if !comparison.update(bytes) {
                break;
            }
            rest = later;
        }
        comparison.equal()
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
    fn a_changed_byte_is_found_in_its_subtree() {
        let group = GROUP as usize;
        let mut content = vec![0; 7 * group];
        Hasher::new().update(b"comparison").finalize_xof().fill(&mut content);
        let mut tree = Tree::new(None);
        for chunk in content.chunks(group) {
            tree.update(chunk);
            tree.close_group();
        }
        let prefix = tree.prefix().unwrap();
        // Seven groups: subtrees of four, two and one.
        assert_eq!(prefix.subtrees().map(|(end, _)| end).collect::<Vec<_>>(), [4, 6, 7].map(|end| end * GROUP));
        assert_eq!(compared(&content, &prefix), 7 * GROUP);
        for (at, equal) in
            [(0, 0), (4 * group - 1, 0), (4 * group, 4), (5 * group, 4), (6 * group, 6), (7 * group - 1, 6)]
        {
            content[at] ^= 1;
            assert_eq!(compared(&content, &prefix), equal * GROUP, "byte {at}");
            content[at] ^= 1;
        }
        let cut = prefix.cut(6 * GROUP).unwrap();
        assert_eq!((cut.groups(), compared(&content, &cut)), (6, 6 * GROUP));
        assert_eq!((prefix.cut(5 * GROUP), prefix.cut(0), prefix.cut(7 * GROUP)), (None, None, Some(prefix.clone())));
    }

    #[test]
    fn a_prefix_that_does_not_fit_together_is_none() {
        let cv = [7; 32];
        assert!(Prefix::new(0, vec![]).is_none());
        assert!(Prefix::new(3, vec![cv]).is_none());
        assert!(Prefix::new(u64::MAX, vec![cv; 64]).is_none());
        assert!(Prefix::new(3, vec![cv; 2]).is_some());
    }

    #[test]
    fn a_closed_group_must_be_followed() {
        let mut tree = Tree::new(None);
        tree.update(&vec![1; GROUP as usize]);
        tree.close_group();
        assert_eq!(tree.finish(), None);
    }
}
