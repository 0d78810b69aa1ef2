//! The receiver's side of a lane: source and repair symbols come in, each lost symbol comes out as soon as it is
//! determined.
//!
//! The transport hands over what it received, drains [`poll_decoded`](Decoder::poll_decoded), reads symbols where they
//! lie, and reports [`edge`](Decoder::edge), [`end`](Decoder::end) and [`rank_deficit`](Decoder::rank_deficit) to the
//! sender.
//!
//! ```text
//!      floor            edge                      end              limit = edge + capacity
//!   ------|--------------|-------------------------|------------------|------
//!   gone  |   readable   | decoded, row or missing |     not seen     | refused
//! ```
//! One ring holds it all: the bytes of an unsolved row lie in the slot of its pivot (see [`rows`]), so that the row
//! which pins one symbol already *is* that symbol. Invariants: `floor <= edge <= end <= limit` and
//! `end - floor <= capacity`; the bits of the three sets are clear outside `floor..end`; every pivot is a missing id
//! of `edge..end`. One reception costs at most one pass over the span and the rows to reduce it, and one row operation
//! per row to eliminate it: `2 x max_rows` row operations, whatever a peer sends.

mod rows;

use alloc::vec::Vec;
use core::iter;
use core::ops::Range;

use crate::field::gf256;
use crate::id::span;
use crate::id_set::IdSet;
use crate::ring::SymbolRing;
use crate::{Code, DecodeError, RepairId, SourceId};
use rows::{Lead, Place, Rows};

/// Missing ids that rows may mention besides their pivots, in units of the longest span: the newest span, the one that
/// feedback repairs work on, and two that reordering or a burst leaves behind. Chosen; more would only be memory.
const FREE_SPANS: usize = 4;

/// What a received symbol was good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reception {
    /// It raised the rank.
    Innovative,
    /// All it says was known.
    Redundant,
    /// It cannot be used any more: it is, or mixes, a symbol that was given up or whose slot has been reused.
    Stale,
}

/// A source symbol that became readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Which symbol.
    pub id: SourceId,
    /// Whether repair symbols gave it (a repair of span one included), rather than the source symbol itself.
    pub repaired: bool,
}

/// The bounds of a [`Decoder`]. Its memory is at most `capacity * (slot_len + 5)` bytes from the start and, once there
/// are rows, `max_rows * 4 * max_span` bytes for their coefficients and `max_span` for those of the symbol being received,
/// taken as they are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest symbol in bytes; rounded up to a multiple of 64.
    pub slot_len: usize,
    /// Symbols held at once; rounded up to a power of two.
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
    /// Decoded ids that only repair symbols gave.
    repaired: IdSet,
    /// Decoded ids that `poll_decoded` has not told yet, none below `fresh_from`.
    fresh: IdSet,
    fresh_from: u64,
    rows: Rows,
    /// Rows subtracted from the candidate: (pivot, factor). Kept for its memory.
    used: Vec<(u64, u8)>,
    /// Pivots of rows that the current reception solved. Kept for its memory.
    solved: Vec<u64>,
    /// Coefficients of the symbol being received, in the order of its span. Kept for its memory.
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
            rows: Rows::new(max_rows, FREE_SPANS * usize::from(max_span)),
            used: Vec::new(),
            solved: Vec::new(),
            row: Vec::new(),
        }
    }

    /// Takes a source symbol.
    ///
    /// # Errors
    /// The symbol is empty or longer than a slot, or its id is not below [`limit`](Self::limit). Nothing is changed.
    pub fn receive_source(&mut self, id: SourceId, symbol: &[u8]) -> Result<Reception, DecodeError> {
        self.check_symbol(symbol)?;
        self.check_below_limit(id)?;
        Ok(self.accept(id.0, symbol, 1, false))
    }

    /// Takes a repair symbol. When nothing in its span is missing that costs a look at the span's bits.
    ///
    /// # Errors
    /// The code has no such repair symbol, its span is longer than allowed or reaches [`limit`](Self::limit), the
    /// symbol is empty or longer than a slot, or it would take more rows or columns than there may be. Nothing is
    /// changed: such a symbol counts as lost.
    pub fn receive_repair(&mut self, code: Code, id: RepairId, symbol: &[u8]) -> Result<Reception, DecodeError> {
        code.check(id)?;
        let span = self.check_span(id.first, id.count.into())?;
        self.check_symbol(symbol)?;
        self.check_below_limit(SourceId(span.end - 1))?;
        if id.count > 1 && self.is_nothing_missing(span) {
            return Ok(Reception::Redundant);
        }
        self.take_row(code.row(id));
        self.combine(id.first.0, symbol)
    }

    /// Takes a recoded symbol: a combination that a relay made of what it had, with the coefficients that say how, the
    /// first of them that of `first`. Any of them may be 0, but not all; what the symbol says of the others is used as
    /// if it were a repair symbol, within the same limits.
    ///
    /// # Errors
    /// As [`receive_repair`](Self::receive_repair), for the span that the coefficients are given for; no coefficient
    /// differs from 0, so that the symbol says nothing.
    pub fn receive_recoded(
        &mut self,
        first: SourceId,
        coefficients: &[u8],
        symbol: &[u8],
    ) -> Result<Reception, DecodeError> {
        self.check_span(first, coefficients.len())?;
        self.check_symbol(symbol)?;
        let (skipped, coefficients) = without_outer_zeros(coefficients).ok_or(DecodeError::AllZero)?;
        let first = first.0 + skipped as u64;
        let span = first..first + coefficients.len() as u64;
        self.check_below_limit(SourceId(span.end - 1))?;
        if coefficients.len() > 1 && self.is_nothing_missing(span) {
            return Ok(Reception::Redundant);
        }
        self.take_row(coefficients.iter().copied());
        self.combine(first, symbol)
    }

    /// The next symbol that became readable since the last call, lowest id first; each id once. Drain it after every
    /// reception: an id whose slot is reused before it was polled is never told.
    pub fn poll_decoded(&mut self) -> Option<Decoded> {
        let Some(id) = self.fresh.first_in(self.fresh_from..self.end) else {
            self.fresh_from = self.end;
            return None;
        };
        self.fresh.remove(id);
        self.fresh_from = id + 1;
        Some(Decoded { id: SourceId(id), repaired: self.repaired.contains(id) })
    }

    /// A decoded symbol; `None` when it is not decoded, was given up, or its slot has been reused, which happens when
    /// an id a whole capacity higher is received. A repaired symbol is at least as long as the repair, zeros at its end.
    pub fn symbol(&self, id: SourceId) -> Option<&[u8]> {
        self.is_held(id.0).then(|| self.ring.symbol(id.0))
    }

    /// Whether the symbol is decoded; also true for all ids below [`edge`](Self::edge), the given up included.
    pub fn is_decoded(&self, id: SourceId) -> bool {
        id.0 < self.edge || self.is_held(id.0)
    }

    /// All ids below are decoded or given up.
    pub fn edge(&self) -> SourceId {
        SourceId(self.edge)
    }

    /// One past the highest id seen, in a source symbol or in the span of a repair symbol.
    pub fn end(&self) -> SourceId {
        SourceId(self.end)
    }

    /// Ids from here on are refused, since their slots may be needed still: edge plus capacity.
    pub fn limit(&self) -> SourceId {
        SourceId(self.edge).plus(self.ring.capacity() as u64)
    }

    /// Symbols held at once.
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    /// Makes room for at least `capacity` symbols, keeping all that are held. Copies the ring; never shrinks.
    pub fn grow(&mut self, capacity: usize) {
        let window = self.floor..self.end;
        self.ring.grow(capacity, window.clone());
        for set in [&mut self.decoded, &mut self.repaired, &mut self.fresh] {
            set.grow(self.ring.capacity(), window.clone());
        }
    }

    /// The deficit: independent symbols still needed to decode all that was seen. Missing ids less rows held.
    pub fn rank_deficit(&self) -> u64 {
        self.undecoded - self.rows.len() as u64
    }

    /// Unsolved rows held, at most `max_rows`.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Maximal runs of missing ids between edge and end, ascending.
    pub fn undecoded(&self) -> impl Iterator<Item = Range<SourceId>> + '_ {
        self.decoded.gaps(self.edge..self.end).map(|gap| SourceId(gap.start)..SourceId(gap.end))
    }

    /// Number of missing ids in the part of `range` that lies between edge and end.
    pub fn undecoded_in(&self, range: Range<SourceId>) -> u64 {
        let range = range.start.0.max(self.edge)..range.end.0.min(self.end);
        if range.is_empty() { 0 } else { range.end - range.start - self.decoded.count(range) }
    }

    /// Gives up the missing ids below `id`; they will not come, or come too late. Rows that mention them are dropped;
    /// all that the rows say about the ids from `id` up without them is kept.
    pub fn skip_before(&mut self, id: SourceId) {
        let id = id.0;
        if id <= self.edge {
            return;
        }
        let ring = &mut self.ring;
        while self.rows.give_up_below(id, |to, from, factor| ring.mix_into(to, iter::once((from, factor)))) {}
        self.raise_end(id);
        self.edge = id;
        self.undecoded = self.undecoded_in(SourceId(id)..SourceId(self.end));
        self.finish();
    }

    /// Keeps the coefficients of the symbol being received.
    fn take_row(&mut self, coefficients: impl ExactSizeIterator<Item = u8>) {
        self.row.clear();
        // All at once: later symbols of any span find the memory there.
        self.row.reserve(self.max_span.into());
        self.row.resize(coefficients.len(), 0);
        self.row.iter_mut().zip(coefficients).for_each(|(slot, coefficient)| *slot = coefficient);
    }

    /// Takes the combination of the symbols from `first` that `row` says. The first and last coefficient are not 0.
    fn combine(&mut self, first: u64, symbol: &[u8]) -> Result<Reception, DecodeError> {
        if let [factor] = self.row[..] {
            return Ok(self.accept(first, symbol, gf256::inv(factor), true));
        }
        let span = first..first + self.row.len() as u64;
        if self.is_beyond_use(first) {
            self.raise_end(span.end);
            return Ok(Reception::Stale);
        }

        // Coefficients first: most redundant symbols, and all refused ones, never touch a payload.
        let missing = self.decoded.others(span.start.max(self.edge)..span.end.min(self.end));
        let unseen = span.start.max(self.end)..span.end;
        let terms =
            missing.chain(unseen).map(|id| (id, self.row[(id - first) as usize])).filter(|&(_, factor)| factor != 0);
        let Some(lead) = self.rows.reduce(terms, &mut self.used)? else { return Ok(Reception::Redundant) };

        self.raise_end(span.end);
        self.ring.write(lead.id, symbol);
        let held = self.decoded.members(span.start.max(self.floor)..span.end);
        // A zero in a recoded symbol adds nothing; to leave it out would cost every repair symbol 7 %.
        let known = held.map(|id| (id, self.row[(id - first) as usize]));
        self.ring.mix_into(lead.id, self.used.iter().copied().chain(known));
        self.settle(lead);
        self.finish();
        Ok(Reception::Innovative)
    }

    /// Takes `factor` times the bytes of one symbol, from a source symbol or a combination of one.
    fn accept(&mut self, id: u64, symbol: &[u8], factor: u8, repaired: bool) -> Reception {
        if self.is_held(id) {
            return Reception::Redundant;
        }
        if id < self.edge {
            return Reception::Stale;
        }
        self.raise_end(id + 1);
        match self.rows.place(id) {
            None => self.write_scaled(id, symbol, factor),
            Some(Place::Free(column)) => {
                self.write_scaled(id, symbol, factor);
                let lead = self.rows.load_known(id, column);
                self.eliminate(lead);
                self.rows.settle(lead);
            }
            Some(Place::Pivot(row)) => {
                // The row gets another pivot: without the known symbol it is a candidate like any other.
                self.rows.load_row(row);
                let lead = self.rows.lead();
                if let Some(lead) = lead {
                    self.ring.copy(id, lead.id);
                }
                self.write_scaled(id, symbol, factor);
                if let Some(lead) = lead {
                    self.ring.mix_into(lead.id, iter::once((id, 1)));
                    self.settle(lead);
                }
            }
        }
        self.mark_decoded(id, repaired);
        self.finish();
        Reception::Innovative
    }

    fn write_scaled(&mut self, id: u64, symbol: &[u8], factor: u8) {
        self.ring.write(id, symbol);
        self.ring.scale(id, factor);
    }

    /// Makes the candidate, whose payload lies in its lead's slot, a row or a decoded symbol.
    fn settle(&mut self, lead: Lead) {
        let factor = self.rows.normalise(lead);
        self.ring.scale(lead.id, factor);
        self.eliminate(lead);
        self.rows.settle(lead);
        if lead.is_alone {
            self.mark_decoded(lead.id, true);
        }
    }

    /// Subtracts the candidate from all rows that mention its lead, coefficients and payload.
    fn eliminate(&mut self, lead: Lead) {
        let ring = &mut self.ring;
        self.rows.eliminate(lead, &mut self.solved, |pivot, factor| {
            ring.mix_into(pivot, iter::once((lead.id, factor)));
        });
    }

    /// Turns solved rows into decoded symbols and moves the edge.
    fn finish(&mut self) {
        while let Some(pivot) = self.solved.pop() {
            self.rows.remove_solved(pivot);
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

    /// Moves the end up to `end`, the floor after it, and forgets the ids whose slots are reused.
    fn raise_end(&mut self, end: u64) {
        if end <= self.end {
            return;
        }
        let floor = self.floor.max(end.saturating_sub(self.ring.capacity() as u64));
        let gone = self.floor..floor.min(self.end);
        for set in [&mut self.decoded, &mut self.repaired, &mut self.fresh] {
            set.remove_range(gone.clone());
        }
        self.fresh_from = self.fresh_from.max(floor);
        self.floor = floor;
        self.undecoded += end - self.end;
        self.end = end;
    }

    /// Whether all that a span mixes is decoded, or was given up.
    fn is_nothing_missing(&self, span: Range<u64>) -> bool {
        span.end <= self.end && self.decoded.first_out(span.start.max(self.edge)..span.end).is_none()
    }

    /// Whether the symbol being received mentions an id whose bytes are gone, once the end is raised to its own.
    fn is_beyond_use(&self, first: u64) -> bool {
        let end = first + self.row.len() as u64;
        let floor = self.floor.max(end.saturating_sub(self.ring.capacity() as u64));
        let below = first..end.min(self.edge);
        // The bits answer for most spans, and for all without zeros.
        !below.is_empty()
            && (below.start < floor || self.decoded.first_out(below.clone()).is_some())
            && below.zip(&self.row).any(|(id, &factor)| factor != 0 && (id < floor || !self.is_held(id)))
    }

    fn is_held(&self, id: u64) -> bool {
        (self.floor..self.end).contains(&id) && self.decoded.contains(id)
    }

    fn check_span(&self, first: SourceId, count: usize) -> Result<Range<u64>, DecodeError> {
        let limit = self.max_span;
        match u16::try_from(count) {
            Ok(count) if count <= limit => Ok(span(first, count)?),
            _ => Err(DecodeError::SpanTooLong { count, limit }),
        }
    }

    fn check_symbol(&self, symbol: &[u8]) -> Result<(), DecodeError> {
        let (len, limit) = (symbol.len(), self.ring.slot_len());
        match len {
            0 => Err(DecodeError::EmptySymbol),
            _ if len > limit => Err(DecodeError::SymbolTooLong { len, limit }),
            _ => Ok(()),
        }
    }

    fn check_below_limit(&self, id: SourceId) -> Result<(), DecodeError> {
        let limit = self.limit();
        if id < limit { Ok(()) } else { Err(DecodeError::BeyondLimit { id, limit }) }
    }
}

/// The coefficients from the first to the last that is not 0, and how many come before; `None` when all are 0.
fn without_outer_zeros(coefficients: &[u8]) -> Option<(usize, &[u8])> {
    let first = coefficients.iter().position(|&factor| factor != 0)?;
    let last = coefficients.iter().rposition(|&factor| factor != 0)?;
    Some((first, &coefficients[first..=last]))
}
