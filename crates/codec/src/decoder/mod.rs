//! The receiver's side of a lane. It takes source and repair symbols and gives each lost symbol as soon as it
//! is determined.
//!
//! The transport passes received symbols in, drains [`poll_decoded`](Decoder::poll_decoded) and reads symbols
//! in place. It reports [`edge`](Decoder::edge), [`end`](Decoder::end) and
//! [`rank_deficit`](Decoder::rank_deficit) to the sender.
//!
//! ```text
//!      floor            edge                      end              limit = edge + capacity
//!   ------|--------------|-------------------------|------------------|------
//!   gone  |   readable   | decoded, row or missing |     not seen     | refused
//! ```
//! One ring holds all symbols. The bytes of an unsolved row lie in the slot of its pivot (see [`rows`]), so a
//! row that is solved already *is* its symbol. Invariants: `floor <= edge <= end <= limit` and `end - floor
//! <= capacity`; the bits of the three sets are clear outside `floor..end`; every pivot and every free id is
//! a missing id of `edge..end`. [`row_operations`](Decoder::row_operations) says what a call may cost
//! whatever a peer sends, and [`Limits`] how much memory the decoder may hold.

mod reception;
mod rows;

use alloc::vec::Vec;
use core::ops::Range;

use crate::SourceId;
use crate::id_set::IdSet;
use crate::ring::SymbolRing;
use rows::Rows;

/// The missing ids that rows may mention besides their pivots, in units of the longest span. The four spans
/// are the newest one, the one that feedback repairs work on, and two that reordering or a burst leaves
/// behind. Chosen: more would only take memory.
const FREE_SPANS: usize = 4;

/// The pivots of rows, each with the row's factor.
type Terms = Vec<(u64, u8)>;

/// How a received symbol changed what the decoder knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a decoder cannot do anything else with a symbol")]
pub enum Reception {
    /// It raised the rank.
    Innovative,
    /// The decoder already knew all of its content.
    Redundant,
    /// It can no longer be used: it is, or mixes, a symbol that was given up or whose slot has been reused.
    Stale,
}

/// A source symbol that became readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Which symbol.
    pub id: SourceId,
    /// Whether the symbol was decoded from repair symbols (also from a repair of span one), rather than
    /// received.
    pub repaired: bool,
}

/// The limits of a [`Decoder`] and of its memory.
///
/// With `W` for the capacity, the decoder never holds more than `W * (slot_len + 88) + rows * columns +
/// max_span + 88` bytes. Here `rows` is the lesser of `max_rows` and `W`. `columns` is the number of missing
/// ids that rows may mention besides their pivots: the lesser of `4 * max_span` and `W`. With at least eight
/// symbols of at least 1,024 bytes, the sum is less than `W * (slot_len + W)` and a tenth.
///
/// Construction allocates `9 * W` of these bytes. The memory of the slots follows the symbols that arrive:
/// one and a half times what they take, whatever their ids. The first repair symbol with a missing symbol in
/// its span allocates the rest. Once every place of the ring has been used, nothing allocates until the
/// decoder [grows](Decoder::grow).
///
/// If `max_rows` is at least `max_span`, the lowest gap always closes: a repair symbol whose span begins at
/// or below the [edge](Decoder::edge) is never refused for want of rows or columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest symbol in bytes, rounded up to a multiple of 64.
    pub slot_len: usize,
    /// Most symbols held at once, rounded up to a power of two.
    pub capacity: usize,
    /// Longest span of a repair symbol.
    pub max_span: u16,
    /// Most unsolved rows.
    pub max_rows: usize,
}

/// Reorder buffer, decoder and read buffer of one lane.
pub struct Decoder {
    max_span: u16,
    ring: SymbolRing,
    floor: u64,
    edge: u64,
    end: u64,
    /// Number of missing ids in `edge..end`.
    undecoded: u64,
    decoded: IdSet,
    /// Decoded ids whose symbols came only from repair symbols.
    repaired: IdSet,
    /// Decoded ids that `poll_decoded` has not returned yet; none is below `fresh_from`.
    fresh: IdSet,
    fresh_from: u64,
    rows: Rows,
    operations: u64,
    /// Rows that are added to the candidate, or that the candidate is added to. Kept to reuse its memory.
    terms: Terms,
    /// Pivots of rows that the current reception solved. Kept to reuse its memory.
    solved: Vec<u64>,
    /// Coefficients of the symbol being received, in the order of its span. Kept to reuse its memory.
    row: Vec<u8>,
}

impl core::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Decoder")
            .field("edge", &self.edge())
            .field("end", &self.end())
            .field("rank_deficit", &self.rank_deficit())
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

impl Decoder {
    /// An empty decoder at source id 0.
    ///
    /// # Panics
    /// A slot is over 4 GiB, or the ring does not fit the address space.
    pub fn new(limits: Limits) -> Self {
        let Limits { slot_len, capacity, max_span, max_rows } = limits;
        let ring = SymbolRing::new(slot_len, capacity);
        let capacity = ring.capacity();
        Self {
            max_span,
            ring,
            floor: 0,
            edge: 0,
            end: 0,
            undecoded: 0,
            decoded: IdSet::new(capacity),
            repaired: IdSet::new(capacity),
            fresh: IdSet::new(capacity),
            fresh_from: 0,
            rows: Rows::new(max_rows, FREE_SPANS * usize::from(max_span), capacity),
            operations: 0,
            terms: Vec::new(),
            solved: Vec::new(),
            row: Vec::new(),
        }
    }

    /// The next symbol that became readable since the last call. Returns the lowest id first and each id
    /// once. Drain it after every reception: if the slot of an id is reused before the poll, that id is never
    /// returned.
    pub fn poll_decoded(&mut self) -> Option<Decoded> {
        let Some(id) = self.fresh.first_in(self.fresh_from..self.end) else {
            self.fresh_from = self.end;
            return None;
        };
        self.fresh.remove(id);
        self.fresh_from = id + 1;
        Some(Decoded { id: SourceId(id), repaired: self.repaired.contains(id) })
    }

    /// A decoded symbol. `None` if it is not decoded, was given up, or its slot has been reused: that happens
    /// when an id higher by a whole capacity is received. A repaired symbol is at least as long as its
    /// repair, with zeros at the end.
    pub fn symbol(&self, id: SourceId) -> Option<&[u8]> {
        self.is_held(id.0).then(|| self.ring.symbol(id.0))
    }

    /// Whether the symbol is decoded. It is also true for every id below [`edge`](Self::edge), even one that
    /// was given up.
    pub fn is_decoded(&self, id: SourceId) -> bool {
        id.0 < self.edge || self.is_held(id.0)
    }

    /// The lowest id that is neither decoded nor given up; all ids below it are one or the other.
    pub fn edge(&self) -> SourceId {
        SourceId(self.edge)
    }

    /// One past the highest id seen, in a source symbol or in the span of a repair symbol.
    pub fn end(&self) -> SourceId {
        SourceId(self.end)
    }

    /// The first id that is refused, because its slot may still be needed: edge plus capacity.
    pub fn limit(&self) -> SourceId {
        SourceId(self.edge).plus(self.ring.capacity() as u64)
    }

    /// Symbols held at once.
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    /// Makes room for at least `capacity` symbols and keeps all that are held. It moves the ring and never
    /// shrinks it.
    ///
    /// # Panics
    /// The ring does not fit the address space.
    pub fn grow(&mut self, capacity: usize) {
        let window = self.floor..self.end;
        self.ring.grow(capacity, window.clone());
        for set in [&mut self.decoded, &mut self.repaired, &mut self.fresh] {
            set.grow(self.ring.capacity(), window.clone());
        }
        self.rows.grow(self.ring.capacity());
        if self.terms.capacity() > 0 {
            self.reserve();
        }
    }

    /// The deficit: the number of independent symbols still needed to decode all ids seen. It is the number
    /// of missing ids minus the number of rows held.
    pub fn rank_deficit(&self) -> u64 {
        self.undecoded - self.rows.len() as u64
    }

    /// Bytes of memory held, without a few hundred of fixed size.
    pub fn memory(&self) -> usize {
        self.ring.memory() + self.rows.memory()
    }

    /// The number of independent symbols that each region of ids from `from` up still needs, once all below
    /// the region is decoded. The first region ends at the next multiple of `length`, each later one `length`
    /// ids further, and none reaches beyond [`end`](Self::end). `deficits` receives those of the lowest
    /// regions. Returns the number needed below `from`; with all regions added, that is
    /// [`rank_deficit`](Self::rank_deficit).
    pub fn region_deficits(&self, from: SourceId, length: u64, deficits: &mut [u64]) -> u64 {
        let (from, first) = (from.0.min(self.end), from.0 / length);
        for (region, deficit) in (first..).zip(deficits.iter_mut()) {
            let ids = (region * length).max(from)..((region + 1) * length).min(self.end);
            *deficit = self.undecoded_in(SourceId(ids.start)..SourceId(ids.end));
        }
        let mut below = self.undecoded_in(SourceId(self.edge)..SourceId(from));
        // A row determines its pivot once all ids below are known.
        for pivot in self.rows.pivots() {
            let region = (pivot / length).checked_sub(first).and_then(|region| deficits.get_mut(region as usize));
            match region {
                _ if pivot < from => below -= 1,
                Some(deficit) => *deficit -= 1,
                None => {}
            }
        }
        below
    }

    /// Unsolved rows held, at most `max_rows`.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Row operations since the beginning. They measure the decoder's work, except for copying what it
    /// receives.
    ///
    /// A row operation is one pass that writes one row, coefficients and payload. The row is either a repair
    /// symbol, from which known symbols and held rows are subtracted (at most as many as its span is long),
    /// or a held row, from which one symbol or one other row is subtracted. A reception does at most one
    /// operation for itself and one for each row held; [`skip_before`](Self::skip_before) does at most
    /// `max_rows`. So no call does more than `max_rows + 1`, nor more than there are missing symbols, which
    /// is at most the capacity.
    pub fn row_operations(&self) -> u64 {
        self.operations
    }

    /// Maximal runs of missing ids between edge and end, in ascending order.
    pub fn undecoded(&self) -> impl Iterator<Item = Range<SourceId>> + '_ {
        self.decoded.gaps(self.edge..self.end).map(|gap| SourceId(gap.start)..SourceId(gap.end))
    }

    /// Number of missing ids in the part of `range` that lies between edge and end.
    pub fn undecoded_in(&self, range: Range<SourceId>) -> u64 {
        let range = range.start.0.max(self.edge)..range.end.0.min(self.end);
        if range.is_empty() { 0 } else { range.end - range.start - self.decoded.count(range) }
    }

    /// Gives up the missing ids below `id`, because they will not arrive or will arrive too late. Rows keep
    /// what they say about the other ids, as long as finding that takes at most `max_rows` row operations.
    /// For each given-up id in `n` rows, one of these rows is lost and `n - 1` are written. Beyond that
    /// bound, all `n` are lost.
    ///
    /// Returns the most rows that this bound may have cost: 0 unless dozens of rows share dozens of given-up
    /// ids. Losing a row is like losing a repair symbol: the deficit grows by one, and another repair
    /// replaces it.
    pub fn skip_before(&mut self, id: SourceId) -> usize {
        let id = id.0;
        if id <= self.edge {
            return 0;
        }
        let Self { ring, operations, .. } = self;
        let lost = self.rows.give_up_below(id, &mut self.terms, |from, targets| {
            ring.add_to(from, targets);
            *operations += targets.len() as u64;
        });
        self.raise_end(id);
        self.edge = id;
        self.undecoded = self.undecoded_in(SourceId(id)..SourceId(self.end));
        self.finish();
        lost
    }

    /// Reserves the memory that receiving a repair needs outside the rows.
    fn reserve(&mut self) {
        let span = usize::from(self.max_span);
        let Self { terms, solved, row, rows, .. } = self;
        terms.reserve_exact(rows.limit().saturating_sub(terms.len()));
        solved.reserve_exact(rows.limit().saturating_sub(solved.len()));
        row.reserve_exact(span.saturating_sub(row.len()));
    }

    /// Marks the symbols of solved rows as decoded and moves the edge.
    fn finish(&mut self) {
        while let Some(pivot) = self.solved.pop() {
            self.mark_decoded(pivot, true);
        }
        self.edge = self.decoded.first_out(self.edge..self.end).unwrap_or(self.end);
    }

    fn mark_decoded(&mut self, id: u64, repaired: bool) {
        self.decoded.insert(id);
        self.fresh.insert(id);
        self.fresh_from = self.fresh_from.min(id);
        if repaired {
            self.repaired.insert(id);
        }
        self.undecoded -= 1;
    }

    /// Moves the end up to `end` and the floor after it. Forgets the ids whose slots are reused.
    fn raise_end(&mut self, end: u64) {
        if end <= self.end {
            return;
        }
        let floor = self.floor.max(end.saturating_sub(self.ring.capacity() as u64));
        let gone = self.floor..floor.min(self.end);
        IdSet::remove_from_all([&mut self.decoded, &mut self.repaired, &mut self.fresh], gone);
        self.fresh_from = self.fresh_from.max(floor);
        self.floor = floor;
        self.undecoded += end - self.end;
        self.end = end;
    }

    fn is_held(&self, id: u64) -> bool {
        (self.floor..self.end).contains(&id) && self.decoded.contains(id)
    }
}
