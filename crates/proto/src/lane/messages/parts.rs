//! The message boundaries in the symbols above a lane's edge, and where a message begins and ends.
//!
//! [`super::Messages`] puts in each symbol once, when it became known. A message whose first symbol is
//! missing can have as many symbols behind it as the ring holds, and a peer can send them without data. So
//! the symbols that only continue a message are kept as runs, and each call looks at a fixed number of
//! symbols.
//!
//! Invariant: the first and the last symbol of a run know its length, as far as the run lies above the edge.

use std::collections::VecDeque;

use crate::close::CloseCode;

/// The message boundaries in a symbol above the edge.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part {
    known: bool,
    /// The first frame continues a message of the symbol before.
    pub before: bool,
    /// The message in the last frame continues in the next symbol.
    pub after: bool,
    /// The message that ends in the first frame was delivered early, out of order.
    pub taken: bool,
    /// 0 if a message begins or ends in the symbol. Otherwise its one frame continues a message, and at the
    /// ends of a run of such symbols this is the length of the run.
    run: u32,
}

impl Part {
    /// The boundaries of a known symbol. `middle` means that its one frame neither begins nor ends its
    /// message.
    pub(super) fn new(before: bool, after: bool, middle: bool) -> Self {
        Self { known: true, before, after, taken: false, run: middle.into() }
    }

    /// Whether a message begins in this symbol and continues in the next one.
    pub(super) fn is_first(&self) -> bool {
        self.after && self.run == 0
    }
}

/// The parts from the edge on; see the module.
#[derive(Debug, Default)]
pub(super) struct Parts {
    edge: u64,
    parts: VecDeque<Part>,
    /// Number of parts that were looked at.
    #[cfg(test)]
    pub looks: core::cell::Cell<u64>,
}

impl Parts {
    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.parts.capacity() * size_of::<Part>()
    }

    /// Puts in a symbol that became known. Returns the lowest symbol from which on all up to `id` continue
    /// one message, for [`Self::beginning`]. Ignores a symbol below the edge, or so far above it that a ring
    /// of `capacity` symbols cannot hold it.
    pub(super) fn insert(&mut self, id: u64, part: Part, capacity: usize) -> Option<u64> {
        let index = usize::try_from(id.checked_sub(self.edge)?).ok().filter(|index| *index < capacity)?;
        if index >= self.parts.len() {
            self.parts.resize(index + 1, Part::default());
        }
        self.parts[index] = part;
        // What lies below the edge does not count.
        let left = id.checked_sub(1).map_or(0, |id| self.run(id)).min(index as u64);
        if part.run > 0 {
            let right = self.run(id + 1);
            let run = u32::try_from(left + 1 + right).unwrap_or(u32::MAX);
            for end in [id - left, id + right] {
                if let Some(part) = self.get_mut(end) {
                    part.run = run;
                }
            }
        }
        Some(id - left)
    }

    /// The symbol in which the message begins that symbol `continued` continues, which [`Self::insert`]
    /// returned; `None` if that is not known or is below the edge.
    pub(super) fn beginning(&self, continued: u64) -> Result<Option<u64>, CloseCode> {
        let first = continued.checked_sub(1).ok_or(CloseCode::Protocol)?;
        match self.get(first) {
            None => Ok(None),
            Some(part) if !part.after => Err(CloseCode::Protocol),
            Some(_) => Ok(Some(first)),
        }
    }

    /// The symbol in which the message that begins in symbol `id` ends; `None` if that is not known.
    pub(super) fn ending(&self, id: u64) -> Result<Option<u64>, CloseCode> {
        let last = id + 1 + self.run(id + 1);
        match self.get(last) {
            None => Ok(None),
            Some(part) if !part.before => Err(CloseCode::Protocol),
            Some(_) => Ok(Some(last)),
        }
    }

    /// Notes that the message that ends in symbol `id` was delivered. Returns whether it was not before.
    pub(super) fn mark_taken(&mut self, id: u64) -> bool {
        self.get_mut(id).is_some_and(|part| !core::mem::replace(&mut part.taken, true))
    }

    /// Removes the part at the edge, symbol `id`, and moves the edge past it.
    pub(super) fn pass(&mut self, id: u64) -> Part {
        self.edge = id + 1;
        self.parts.pop_front().unwrap_or_default()
    }

    /// Length of the run that begins or ends in symbol `id`. 0 if the symbol does not continue a message, or
    /// is not known.
    fn run(&self, id: u64) -> u64 {
        self.get(id).map_or(0, |part| part.run.into())
    }

    fn get(&self, id: u64) -> Option<&Part> {
        #[cfg(test)]
        self.looks.set(self.looks.get() + 1);
        self.parts.get(usize::try_from(id.checked_sub(self.edge)?).ok()?).filter(|part| part.known)
    }

    fn get_mut(&mut self, id: u64) -> Option<&mut Part> {
        #[cfg(test)]
        self.looks.set(self.looks.get() + 1);
        self.parts.get_mut(usize::try_from(id.checked_sub(self.edge)?).ok()?).filter(|part| part.known)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// What a symbol holds: before, after, middle.
    type Kind = (bool, bool, bool);

    /// The kinds that frames can make.
    const KINDS: [Kind; 5] =
        [(false, false, false), (true, false, false), (false, true, false), (true, true, false), (true, true, true)];

    /// Goes from symbol to symbol.
    fn walk(known: &BTreeMap<u64, Kind>, id: u64, back: bool) -> Result<Option<u64>, CloseCode> {
        let mut at = id;
        loop {
            let next = if back { at.checked_sub(1) } else { Some(at + 1) };
            at = next.ok_or(CloseCode::Protocol)?;
            match known.get(&at).copied() {
                None => return Ok(None),
                Some((before, after, _)) if !(if back { after } else { before }) => return Err(CloseCode::Protocol),
                Some((_, _, true)) => {}
                Some(_) => return Ok(Some(at)),
            }
        }
    }

    proptest! {
        /// Symbols come in any order while the edge moves. Half of them continue a message.
        #[test]
        fn messages_begin_and_end_where_a_walk_finds_it(
            steps in prop::collection::vec((0_u64..40, 0_usize..9, prop::bool::weighted(0.1)), 0..120),
        ) {
            let (mut parts, mut known, mut edge) = (Parts::default(), BTreeMap::new(), 0);
            for (ahead, kind, passes) in steps {
                if passes {
                    known.remove(&edge);
                    parts.pass(edge);
                    edge += 1;
                    continue;
                }
                let (id, kind) = (edge + ahead, KINDS[kind.min(4)]);
                // A run from symbol 0 on continues nothing, and closes the connection.
                if known.contains_key(&id) || id == 0 && kind.0 {
                    continue;
                }
                known.insert(id, kind);
                let continued = parts.insert(id, Part::new(kind.0, kind.1, kind.2), 40).unwrap();
                if kind.0 {
                    prop_assert_eq!(parts.beginning(continued), walk(&known, id, true));
                }
                for (&first, kind) in &known {
                    if kind.1 && !kind.2 {
                        prop_assert_eq!(parts.ending(first), walk(&known, first, false));
                    }
                }
            }
        }
    }

    #[test]
    fn a_message_that_begins_before_the_first_symbol_is_a_fault() {
        let mut parts = Parts::default();
        assert_eq!(parts.insert(1, Part::new(true, true, true), 8), Some(1));
        assert_eq!(parts.insert(0, Part::new(true, true, true), 8), Some(0));
        assert_eq!(parts.insert(2, Part::new(true, false, false), 8), Some(0));
        assert_eq!(parts.beginning(0), Err(CloseCode::Protocol));
    }

    #[test]
    fn symbols_below_the_edge_and_beyond_the_ring_are_ignored() {
        let mut parts = Parts::default();
        (0..3).for_each(|id| _ = parts.pass(id));
        let middle = Part::new(true, true, true);
        assert_eq!([2, 11, 10].map(|id| parts.insert(id, middle, 8)), [None, None, Some(10)]);
        assert_eq!(parts.memory() / size_of::<Part>(), parts.parts.capacity());
    }
}
