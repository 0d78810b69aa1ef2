//! The receiving half of the relayed lane: the ranks of its generations, and rows that wait to be taken.
//!
//! Only coefficients are kept. An innovative row waits in `pending` until the owner of the connection takes
//! it: a relay for its next hop, an end for its decoder. Invariants: a frame that breaks a rule changes only
//! a count; a row is pending at most once; generations are accepted only below `released + capacity`.

use std::collections::VecDeque;

use tidewire_codec::Echelon;

use super::{MOST_PENDING, RELAYED_SYMBOL, RelayStats};
use crate::wire::{MAX_GENERATION, Ranks, Recoded};

/// The receiving half; see the module.
#[derive(Debug)]
pub(crate) struct Receiver {
    capacity: u64,
    /// Symbols of each generation; known from the first frame.
    length: Option<u8>,
    /// All generations below are complete.
    edge: u64,
    /// The generations from `edge` up. `None` where nothing came yet.
    open: VecDeque<Option<Echelon>>,
    spare: Vec<Echelon>,
    /// The owner keeps no row of a generation below this one.
    released: u64,
    /// The limit in the last RANKS.
    told: u64,
    /// Most relays that a frame passed.
    relays: u8,
    pending: Pending,
    ranks: Vec<u8>,
    stats: RelayStats,
    /// Whether RANKS follows FEEDBACK.
    is_used: bool,
}

/// Rows that wait to be taken, one after the other.
#[derive(Debug, Default)]
struct Pending {
    bytes: Vec<u8>,
    rows: Vec<Row>,
}

/// Where a pending row is: its vector and then its symbol end at these places.
#[derive(Clone, Copy, Debug)]
struct Row {
    relays: u8,
    generation: u64,
    vector_end: usize,
    end: usize,
}

impl Receiver {
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            capacity,
            length: None,
            edge: 0,
            open: VecDeque::new(),
            spare: Vec::new(),
            released: 0,
            told: super::FIRST_ROOM,
            relays: 0,
            pending: Pending::default(),
            ranks: Vec::new(),
            stats: RelayStats::default(),
            is_used: false,
        }
    }

    pub(crate) fn stats(&self) -> RelayStats {
        self.stats
    }

    /// Most relays that a symbol passed.
    pub(crate) fn relays(&self) -> u8 {
        self.relays
    }

    /// Whether a frame of the relayed lane came.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used
    }

    /// Whether rows are pending.
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.rows.is_empty()
    }

    /// The owner keeps no row of a generation below this one.
    pub(crate) fn released(&self) -> u64 {
        self.released
    }

    /// Takes a frame. What is wrong with it is counted.
    pub(crate) fn receive(&mut self, frame: &Recoded<'_>) {
        self.is_used = true;
        self.stats.received += 1;
        let count = self.judge(frame);
        *count += 1;
    }

    /// Takes the frame if it is innovative. Returns the count that it belongs to.
    fn judge(&mut self, frame: &Recoded<'_>) -> &mut u64 {
        let Recoded { relays, generation, length, vector, symbol } = *frame;
        let is_sound = (1..=MAX_GENERATION).contains(&length)
            && (1..=usize::from(length)).contains(&vector.len())
            && (1..=RELAYED_SYMBOL).contains(&symbol.len());
        if !is_sound {
            return &mut self.stats.malformed;
        }
        if generation >= self.limit() || *self.length.get_or_insert(length) != length {
            return &mut self.stats.misplaced;
        }
        if vector.iter().all(|&coefficient| coefficient == 0) {
            return &mut self.stats.zero;
        }
        let Some(index) = generation.checked_sub(self.edge) else { return &mut self.stats.redundant };
        if self.pending.rows.len() >= MOST_PENDING {
            return &mut self.stats.overrun;
        }
        let index = index as usize;
        if index >= self.open.len() {
            self.open.resize_with(index + 1, || None);
        }
        let spare = &mut self.spare;
        let begin = || {
            let mut echelon = spare.pop().unwrap_or_else(|| Echelon::new(length.into()));
            echelon.begin(length.into());
            echelon
        };
        if !self.open[index].get_or_insert_with(begin).insert(0, vector.iter().copied()) {
            return &mut self.stats.redundant;
        }
        self.relays = self.relays.max(relays);
        self.pending.push(frame);
        self.advance();
        &mut self.stats.innovative
    }

    /// Moves the edge over complete generations.
    fn advance(&mut self) {
        let length = u16::from(self.length.unwrap_or(0));
        while let Some(Some(first)) = self.open.front()
            && first.rank() == length
        {
            self.spare.extend(self.open.pop_front().flatten());
            self.edge += 1;
        }
    }

    /// Generations from here on are refused.
    fn limit(&self) -> u64 {
        self.released.saturating_add(self.capacity)
    }

    /// The owner keeps no row of generations below `generation` any more. Returns whether the peer should
    /// learn of the room soon, because a quarter of the whole is new to it.
    pub(crate) fn release(&mut self, generation: u64) -> bool {
        self.released = self.released.max(generation.min(self.edge));
        self.is_used && self.limit() >= self.told + self.capacity / 4
    }

    /// Passes all pending rows to `take`, in the order of their arrival.
    pub(crate) fn take(&mut self, mut take: impl FnMut(Recoded<'_>)) {
        let length = self.length.unwrap_or(0);
        let mut start = 0;
        for &Row { relays, generation, vector_end, end } in &self.pending.rows {
            let (vector, symbol) = (&self.pending.bytes[start..vector_end], &self.pending.bytes[vector_end..end]);
            take(Recoded { relays, generation, length, vector, symbol });
            start = end;
        }
        self.pending.rows.clear();
        self.pending.bytes.clear();
    }

    /// The report for the peer.
    pub(crate) fn report(&mut self) -> Ranks<'_> {
        self.told = self.limit();
        self.ranks.clear();
        let rank = |open: &Option<Echelon>| open.as_ref().map_or(0, |open| open.rank() as u8);
        self.ranks.extend(self.open.iter().map(rank));
        Ranks { edge: self.edge, room: self.told - self.edge, ranks: &self.ranks }
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        let echelons = self.open.iter().flatten().chain(&self.spare).map(Echelon::memory).sum::<usize>();
        echelons + self.pending.bytes.capacity()
    }
}

impl Pending {
    fn push(&mut self, frame: &Recoded<'_>) {
        self.bytes.extend_from_slice(frame.vector);
        let vector_end = self.bytes.len();
        self.bytes.extend_from_slice(frame.symbol);
        let (relays, generation, end) = (frame.relays, frame.generation, self.bytes.len());
        self.rows.push(Row { relays, generation, vector_end, end });
    }
}
