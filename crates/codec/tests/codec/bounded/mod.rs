//! What the tests of the decoder's bounds measure: memory held, state seen from outside, invariants.
//!
//! Shared by the tests of bounds, contradictions, memory and generations, and by the fuzz target `decoder`.
#![allow(dead_code, reason = "each of them uses its part")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tidewire_codec::{Code, DecodeError, Decoder, Limits, Reception, RepairId, SourceId};

/// Counts the memory that each thread holds, so that tests do not affect each other.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every request goes unchanged to the system allocator. The counters are plain cells that do not
// allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.set(HELD.get() - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    // Counted as growth in place, without the copy that some systems make.
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn count(bytes: isize) {
    HELD.set(HELD.get() + bytes);
    MOST.set(MOST.get().max(HELD.get()));
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

/// Allocations of this thread so far.
pub fn allocations() -> usize {
    ALLOCATIONS.get()
}

/// The memory of one decoder: the allocations and releases of the calls that go through it.
#[derive(Default)]
pub struct Meter {
    held: isize,
    pub most: isize,
}

impl Meter {
    pub fn run<R>(&mut self, call: impl FnOnce() -> R) -> R {
        let before = HELD.get();
        MOST.set(before);
        let result = call();
        self.most = self.most.max(self.held + MOST.get() - before);
        self.held += HELD.get() - before;
        result
    }
}

/// The most that a decoder with these limits promises to hold (see [`Limits`]).
pub fn promised(limits: Limits) -> isize {
    let (slot_len, capacity) = (limits.slot_len.next_multiple_of(64), limits.capacity.next_power_of_two());
    let (rows, columns) = (limits.max_rows.min(capacity), (4 * usize::from(limits.max_span)).min(capacity));
    (capacity * (slot_len + 88) + rows * columns + usize::from(limits.max_span) + 88) as isize
}

/// Everything that a caller can ask of a decoder.
#[derive(Debug, PartialEq)]
pub struct State {
    pub edge: SourceId,
    pub end: SourceId,
    pub limit: SourceId,
    pub deficit: u64,
    pub rows: usize,
    pub undecoded: Vec<std::ops::Range<SourceId>>,
    pub symbols: Vec<(u64, Vec<u8>)>,
}

pub fn state(decoder: &Decoder) -> State {
    let reach = decoder.capacity() as u64 + 2;
    let around = decoder.end().0.saturating_sub(reach)..decoder.end().0.saturating_add(2);
    State {
        edge: decoder.edge(),
        end: decoder.end(),
        limit: decoder.limit(),
        deficit: decoder.rank_deficit(),
        rows: decoder.rows(),
        undecoded: decoder.undecoded().collect(),
        symbols: around.filter_map(|id| Some((id, decoder.symbol(SourceId(id))?.to_vec()))).collect(),
    }
}

/// The invariants after any step of any peer.
pub fn check_invariants(decoder: &Decoder, limits: Limits) {
    let state = state(decoder);
    assert!(state.edge <= state.end && state.end <= state.limit);
    assert!(state.rows <= limits.max_rows);
    let missing: u64 = state.undecoded.iter().map(|run| run.end.since(run.start)).sum();
    assert_eq!(state.deficit, missing - state.rows as u64);
    assert!(missing <= decoder.capacity() as u64);
    assert_eq!(decoder.undecoded_in(SourceId(0)..SourceId(u64::MAX)), missing);
    assert_eq!(state.undecoded.first().map_or(state.end, |run| run.start), state.edge);
    assert!(state.symbols.len() <= decoder.capacity());
    for (id, symbol) in &state.symbols {
        assert!(
            decoder.is_decoded(SourceId(*id))
                && !symbol.is_empty()
                && symbol.len() <= limits.slot_len.next_multiple_of(64)
        );
    }
}

/// A step that a peer can send or a user can request.
#[derive(Clone, Debug)]
pub enum Step {
    Source(u64, Vec<u8>),
    Repair(Code, RepairId, Vec<u8>),
    /// Relative to the edge, so that windows move.
    SourceAhead(u64, Vec<u8>),
    RepairAhead(Code, i8, u16, u16, Vec<u8>),
    Recoded(u64, Vec<u8>, Vec<u8>),
    RecodedAhead(i8, Vec<u8>, Vec<u8>),
    Skip(u64),
    SkipAhead(u64),
    Poll,
    Grow(usize),
}

/// Performs a step. Receptions return their result.
pub fn perform(decoder: &mut Decoder, step: &Step) -> Option<Result<Reception, DecodeError>> {
    let edge = decoder.edge();
    match *step {
        Step::Source(id, ref bytes) => Some(decoder.receive_source(SourceId(id), bytes)),
        Step::Repair(code, id, ref bytes) => Some(decoder.receive_repair(code, id, bytes)),
        Step::SourceAhead(ahead, ref bytes) => Some(decoder.receive_source(edge.plus(ahead), bytes)),
        Step::RepairAhead(code, ahead, count, key, ref bytes) => {
            let first = SourceId(edge.0.saturating_add_signed(ahead.into()));
            Some(decoder.receive_repair(code, RepairId { first, count, key }, bytes))
        }
        Step::Recoded(first, ref row, ref bytes) => Some(decoder.receive_recoded(SourceId(first), row, bytes)),
        Step::RecodedAhead(ahead, ref row, ref bytes) => {
            let first = SourceId(edge.0.saturating_add_signed(ahead.into()));
            Some(decoder.receive_recoded(first, row, bytes))
        }
        Step::Skip(id) => {
            decoder.skip_before(SourceId(id));
            None
        }
        Step::SkipAhead(ahead) => {
            decoder.skip_before(edge.plus(ahead));
            None
        }
        Step::Poll => {
            while decoder.poll_decoded().is_some() {}
            None
        }
        Step::Grow(capacity) => {
            decoder.grow(capacity);
            None
        }
    }
}
