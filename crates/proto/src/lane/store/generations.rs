//! The received symbols of a lane in generations.
//!
//! Source symbols are kept by id. The first repair of a generation tells which ids it contains. From then on,
//! a rank computed from coefficients alone tells when the generation is *recovered*: FEEDBACK then reports it
//! as decoded, and a job computes the missing symbols. Invariants: the generations are disjoint; the rows of
//! a generation are its rank minus its received source symbols; a generation that was reported is kept until
//! it is decoded.

use core::ops::{Range, RangeBounds};
use std::collections::{BTreeMap, VecDeque};

use tidewire_codec::{Code, Elimination, Generation, Reception, RepairId, SourceId};

use super::lacking::Lacking;
use super::progress::{Progress, Weight};
use super::regions::Regions;
use crate::close::CloseCode;
use crate::lane::job::{Decode, Decoded, Symbol};

/// The received symbols of a lane in generations; see the module.
#[derive(Debug)]
pub(crate) struct Generations {
    slot_len: usize,
    /// Length of the longest generation.
    max_span: u16,
    /// For generations of sparse codes.
    elimination: Elimination,
    /// Number of ids for which symbols are kept, once all of them are known.
    capacity: usize,
    /// The lowest id whose symbol is kept.
    floor: u64,
    /// Symbols from the floor up; `None` if one is missing or was given up.
    symbols: VecDeque<Option<Symbol>>,
    /// All lower ids are decoded or given up.
    edge: u64,
    /// All lower ids are decoded, recovered or given up.
    reported: u64,
    /// No symbol below this id will be sent any more. Recovered symbols are still decoded.
    given_up: u64,
    /// Generations of which a repair was received and which end above the edge, by their first id.
    open: BTreeMap<u64, Open>,
    /// Symbols that became known and were not returned by [`Self::poll_decoded`] yet.
    fresh: VecDeque<tidewire_codec::Decoded>,
    jobs: VecDeque<Decode>,
    /// Ids from `reported` to the end that FEEDBACK reports as missing.
    lacking: Lacking,
    repairs: Repairs,
    /// Number of symbols and rows held.
    held: usize,
}

/// Sums over all open generations, so that neither a packet nor FEEDBACK visits each of them.
#[derive(Debug)]
struct Repairs {
    total: Weight,
    /// Rows by region: those of a generation count at its first id.
    rows: Regions,
}

impl Repairs {
    /// The generation that begins at `first` had the weight `before` and has now the weight `after`.
    fn replace(&mut self, first: u64, before: Weight, after: Weight) {
        let Weight { rows, pending, kept, memory } = &mut self.total;
        *rows = *rows - before.rows + after.rows;
        *pending = *pending - before.pending + after.pending;
        *kept = *kept - before.kept + after.kept;
        *memory = *memory - before.memory + after.memory;
        self.rows.replace(first, before.rows, after.rows);
    }
}

/// A generation of which a repair was received.
#[derive(Debug)]
struct Open {
    generation: Generation,
    progress: Progress,
}

impl Open {
    fn end(&self) -> u64 {
        self.generation.first().0 + u64::from(self.generation.count())
    }

    /// Index of a source symbol in the generation.
    fn index(&self, id: u64) -> u16 {
        (id - self.generation.first().0) as u16
    }
}

impl Generations {
    /// Starts at `edge`. Symbols have at most `slot_len` bytes, generations at most `max_span` symbols.
    pub(super) fn new(
        slot_len: usize,
        max_span: u16,
        elimination: Elimination,
        capacity: usize,
        edge: SourceId,
    ) -> Self {
        Self {
            slot_len,
            max_span,
            elimination,
            capacity,
            floor: edge.0,
            symbols: VecDeque::new(),
            edge: edge.0,
            reported: edge.0,
            given_up: edge.0,
            open: BTreeMap::new(),
            fresh: VecDeque::new(),
            jobs: VecDeque::new(),
            lacking: Lacking::new(max_span.into()),
            repairs: Repairs { total: Weight::default(), rows: Regions::new(max_span.into()) },
            held: 0,
        }
    }

    pub(super) fn receive_source(&mut self, id: SourceId, symbol: &[u8]) -> Result<Reception, CloseCode> {
        if symbol.is_empty() || symbol.len() > self.slot_len {
            return Err(CloseCode::Protocol);
        }
        if self.is_known(id.0) {
            return Ok(Reception::Redundant);
        }
        self.put(id.0, symbol.into(), false);
        self.lacking.remove(id.0..id.0 + 1);
        if let Some(open) = self.containing(id.0) {
            let (first, index) = (open.generation.first().0, open.index(id.0));
            self.take(first, |progress| progress.add_source(index, symbol))?;
        }
        self.advance();
        Ok(Reception::Innovative)
    }

    pub(super) fn receive_repair(&mut self, code: Code, id: RepairId, symbol: &[u8]) -> Result<Reception, CloseCode> {
        let is_wrong = symbol.is_empty() || symbol.len() > self.slot_len || id.count > self.max_span;
        if is_wrong || code.check(id).is_err() {
            return Err(CloseCode::Protocol);
        }
        let (first, end) = (id.first.0, id.first.0 + u64::from(id.count));
        if end <= self.reported {
            return Ok(Reception::Redundant);
        }
        if id.count == 1 {
            return self.receive_source(id.first, symbol);
        }
        if first < self.floor {
            // Some of the symbols that it mixes were forgotten.
            return Ok(Reception::Redundant);
        }
        self.open(code, id, symbol.len())?;
        if !self.take(first, |progress| progress.add_repair(id, symbol))? {
            return Ok(Reception::Redundant);
        }
        self.advance();
        Ok(Reception::Innovative)
    }

    /// Lets an open generation take a symbol, and settles it.
    fn take<T>(
        &mut self,
        first: u64,
        symbol: impl FnOnce(&mut Progress) -> Result<T, CloseCode>,
    ) -> Result<T, CloseCode> {
        let open = self.open.get_mut(&first).ok_or(CloseCode::Internal)?;
        let before = open.progress.weight();
        let taken = symbol(&mut open.progress)?;
        let after = open.progress.weight();
        self.repairs.replace(first, before, after);
        self.held = self.held - before.kept + after.kept;
        self.take_peeled(first);
        self.settle(first);
        Ok(taken)
    }

    /// Takes the symbols that were peeled or eliminated since the last call.
    fn take_peeled(&mut self, first: u64) {
        let (floor, symbols) = (self.floor, &self.symbols);
        let is_lacking = |id: u64| symbols.get((id - floor) as usize).is_some_and(Option::is_none);
        let Some(decoder) = self.open.get_mut(&first).and_then(|open| open.progress.news()) else { return };
        let lacking = (0..).zip(first..).take(decoder.generation().count().into()).filter(|&(_, id)| is_lacking(id));
        let known: Vec<_> = lacking.filter_map(|(index, id)| Some((id, decoder.symbol(index)?.into()))).collect();
        for (id, symbol) in known {
            self.put(id, symbol, true);
            self.lacking.remove(id..id + 1);
        }
    }

    /// Finds the generation of a repair, or opens it with the source symbols received so far.
    fn open(&mut self, code: Code, id: RepairId, len: usize) -> Result<(), CloseCode> {
        let (first, end) = (id.first.0, id.first.0 + u64::from(id.count));
        let below = self.open.range(..end).next_back().filter(|(_, open)| open.end() > first);
        if let Some((_, open)) = below {
            let generation = open.generation;
            let is_same = generation.first() == id.first && generation.count() == id.count && generation.code() == code;
            return if is_same { Ok(()) } else { Err(CloseCode::Protocol) };
        }
        let generation = Generation::new(code, id.count).and_then(|generation| generation.at(id.first));
        let generation = generation.map_err(|_| CloseCode::Protocol)?;
        self.reach(end);
        let arrived = (first..end).filter(|&id| self.slot(id).is_some()).count();
        let mut progress = Progress::new(generation, len, arrived, self.elimination)?;
        for (index, id) in (0..).zip(first..end) {
            if let Some(symbol) = self.slot(id) {
                progress.add_source(index, symbol)?;
            }
        }
        self.repairs.replace(first, Weight::default(), progress.weight());
        self.open.insert(first, Open { generation, progress });
        Ok(())
    }

    /// If the generation is recovered, takes its decoded symbols or makes the job that decodes them.
    fn settle(&mut self, first: u64) {
        let Some(open) = self.open.get_mut(&first) else { return };
        if open.progress.is_done() || !open.progress.is_recovered() {
            return;
        }
        let weight = open.progress.weight();
        self.repairs.replace(first, weight, Weight::default());
        let (generation, end) = (open.generation, open.end());
        let progress = core::mem::take(&mut open.progress);
        self.lacking.remove(first..end);
        match progress {
            Progress::Names { repairs, .. } => {
                let sources: Vec<_> = (first..end).map(|id| self.slot(id).cloned()).collect();
                if sources.iter().all(Option::is_some) {
                    self.held -= weight.kept;
                } else {
                    self.jobs.push_back(Decode { generation, sources, repairs });
                }
            }
            Progress::Bytes { decoder, .. } => {
                self.held -= weight.kept;
                decoder.decoded().for_each(|(index, symbol)| self.put(first + u64::from(index), symbol.into(), true));
            }
            Progress::Peeled { .. } | Progress::Done => {}
        }
    }

    /// The next job whose number of products is in `products`.
    pub(super) fn poll_job(&mut self, products: impl RangeBounds<usize>) -> Option<Decode> {
        let next = self.jobs.iter().position(|job| products.contains(&job.products()))?;
        self.jobs.remove(next)
    }

    pub(super) fn has_job(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Takes the result of a job and drops the repairs that it used.
    pub(super) fn handle_job(&mut self, done: Decoded) -> Result<(), CloseCode> {
        let first = done.first.0;
        self.held -= done.repairs;
        // A generation of full rank fails to decode only if symbol lengths contradict each other.
        let symbols = done.symbols.ok_or(CloseCode::Protocol)?;
        for (index, symbol) in symbols {
            let id = first + u64::from(index);
            if self.slot(id).is_none() {
                self.put(id, symbol, true);
            }
        }
        self.advance();
        Ok(())
    }

    fn put(&mut self, id: u64, symbol: Symbol, repaired: bool) {
        self.reach(id + 1);
        if let Some(slot) = id.checked_sub(self.floor).and_then(|index| self.symbols.get_mut(index as usize)) {
            *slot = Some(symbol);
            self.held += 1;
            self.fresh.push_back(tidewire_codec::Decoded { id: SourceId(id), repaired });
        }
    }

    /// Adds empty places for the ids below `end`.
    fn reach(&mut self, end: u64) {
        let len = end.saturating_sub(self.floor) as usize;
        if len > self.symbols.len() {
            self.lacking.append(self.end().0..end);
            self.symbols.resize(len, None);
        }
    }

    fn slot(&self, id: u64) -> Option<&Symbol> {
        self.symbols.get(usize::try_from(id.checked_sub(self.floor)?).ok()?)?.as_ref()
    }

    /// The open generation that contains this id.
    fn containing(&mut self, id: u64) -> Option<&mut Open> {
        self.open.range_mut(..=id).next_back().map(|(_, open)| open).filter(|open| id < open.end())
    }

    /// Whether the generation of this id is recovered.
    fn is_recovered(&mut self, id: u64) -> bool {
        self.containing(id).is_some_and(|open| open.progress.is_done())
    }

    /// Whether FEEDBACK reports the symbol as decoded.
    fn is_known(&self, id: u64) -> bool {
        id < self.reported || (id < self.end().0 && !self.lacking.contains(id))
    }

    /// Moves both edges past symbols that are known or given up.
    fn advance(&mut self) {
        self.lacking.remove(self.reported..self.given_up.max(self.reported));
        self.reported = self.lacking.first().unwrap_or(self.end().0).max(self.reported);
        while self.edge < self.reported {
            let is_missing = self.slot(self.edge).is_none();
            if is_missing && (self.edge >= self.given_up || self.is_recovered(self.edge)) {
                break;
            }
            self.edge += 1;
        }
        while self.open.first_key_value().is_some_and(|(_, open)| open.end() <= self.edge) {
            if let Some((first, open)) = self.open.pop_first() {
                let weight = open.progress.weight();
                self.held -= weight.kept;
                self.repairs.replace(first, weight, Weight::default());
            }
        }
    }

    /// Gives up symbols below `id`, which the peer will not send any more. Recovered symbols are still
    /// decoded.
    pub(super) fn skip_before(&mut self, id: SourceId) {
        self.given_up = self.given_up.max(id.0);
        self.reach(id.0);
        self.advance();
    }

    /// Forgets symbols below `floor` that no open generation needs.
    pub(super) fn release_before(&mut self, floor: SourceId) {
        let needed = self.open.first_key_value().map_or(self.edge, |(first, _)| self.edge.min(*first));
        let floor = floor.0.min(needed).max(self.floor);
        let gone = ((floor - self.floor) as usize).min(self.symbols.len());
        self.held -= self.symbols.drain(..gone).filter(Option::is_some).count();
        self.floor = floor;
    }

    pub(super) fn poll_decoded(&mut self) -> Option<tidewire_codec::Decoded> {
        self.fresh.pop_front()
    }

    pub(super) fn symbol(&self, id: SourceId) -> Option<&[u8]> {
        self.slot(id.0).map(|symbol| &symbol[..])
    }

    pub(super) fn is_decoded(&self, id: SourceId) -> bool {
        self.is_known(id.0)
    }

    pub(super) fn edge(&self) -> SourceId {
        SourceId(self.edge)
    }

    pub(super) fn reported(&self) -> SourceId {
        SourceId(self.reported)
    }

    pub(super) fn end(&self) -> SourceId {
        SourceId(self.floor + self.symbols.len() as u64)
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn grow(&mut self, capacity: usize) {
        self.capacity = self.capacity.max(capacity);
    }

    pub(super) fn memory(&self) -> usize {
        let places = self.symbols.capacity() * size_of::<Option<Symbol>>() + self.lacking.memory();
        self.held * self.slot_len + places + self.repairs.total.memory + self.repairs.rows.memory()
    }

    /// Maximal runs of ids that FEEDBACK reports as missing, in ascending order.
    pub(super) fn undecoded(&self) -> impl Iterator<Item = Range<SourceId>> + '_ {
        self.lacking.runs().map(|run| SourceId(run.start)..SourceId(run.end))
    }

    /// Number of independent symbols needed for the ids of `range`. The rows of a generation count at its
    /// first id.
    fn lacking_in(&self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let rows_in =
            |part| self.open.range::<u64, Range<u64>>(part).map(|(_, open)| open.progress.weight().rows).sum();
        let rows = self.repairs.rows.sum(range.clone(), rows_in);
        self.lacking.count_in(range).saturating_sub(rows)
    }

    pub(super) fn rank_deficit(&self) -> u64 {
        self.lacking.count().saturating_sub(self.repairs.total.rows)
    }

    /// Number of symbols from `reported` on and of repairs that are held.
    pub(super) fn held_beyond(&self) -> u64 {
        (self.end().0 + self.repairs.total.pending).saturating_sub(self.reported + self.lacking.count())
    }

    /// See [`tidewire_codec::Decoder::region_deficits`]. Rows count in the region in which their generation
    /// begins.
    pub(super) fn region_deficits(&self, from: SourceId, length: u64, deficits: &mut [u64]) -> u64 {
        let first = from.0 / length;
        for (region, deficit) in (first..).zip(deficits.iter_mut()) {
            *deficit = self.lacking_in((region * length).max(from.0)..((region + 1) * length).min(self.end().0));
        }
        self.lacking_in(self.floor..from.0)
    }
}
