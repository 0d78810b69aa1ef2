//! Repairs that are computed before the policy asks for them.
//!
//! When a policy closes a generation, it says how many repairs it will want. The lane makes a job for
//! them, a worker runs the job, and the repairs wait here until the policy asks for their rows.
//! Invariants: the repairs that wait here or are being computed are no more than the longest span; a
//! job shares the symbols of the window and does not copy them.

use std::collections::{BTreeMap, VecDeque};

use tidewire_codec::{Code, Generation, RepairId, SourceId};

use super::LaneSender;
use crate::lane::job::{Encode, Encoded};
use crate::redundancy::{Closed, OpenBlocks, Repair};

/// The repairs computed in advance; see the module.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// Closed generations of which the peer may lack symbols.
    pub closed: OpenBlocks<Closed>,
    jobs: VecDeque<Encode>,
    /// Batches by the first symbol of their generation.
    batches: BTreeMap<u64, Batch>,
    /// Repairs of all batches.
    count: usize,
}

/// The repairs of one generation, with keys from 0 up.
#[derive(Debug)]
struct Batch {
    generation: Generation,
    /// Length of each repair in bytes.
    len: usize,
    /// The repairs by key; `None` after one was taken.
    symbols: Vec<Option<Vec<u8>>>,
    is_made: bool,
}

impl Batch {
    fn end(&self) -> SourceId {
        self.generation.first().plus(self.generation.count().into())
    }

    /// The index of this repair in the batch, if it belongs to the batch.
    fn place(&self, code: Code, id: RepairId) -> Option<usize> {
        let is_own = self.generation.code() == code && self.generation.repair_id(id.key) == id;
        (is_own && usize::from(id.key) < self.symbols.len()).then_some(id.key.into())
    }
}

impl Ahead {
    /// Copies a repair to `out`, removes it here, and returns its length.
    pub(super) fn take(&mut self, code: Code, id: RepairId, out: &mut [u8]) -> Option<usize> {
        let batch = self.batches.get_mut(&id.first.0)?;
        let place = batch.place(code, id)?;
        let symbol = batch.symbols.get_mut(place)?.take()?;
        out.get_mut(..symbol.len())?.copy_from_slice(&symbol);
        Some(symbol.len())
    }

    /// Whether a worker is computing this repair or will compute it.
    fn is_coming(&self, code: Code, id: RepairId) -> bool {
        let batch = self.batches.get(&id.first.0);
        batch.is_some_and(|batch| !batch.is_made && batch.place(code, id).is_some())
    }

    /// Drops the generations below `base`, whose repairs are no longer needed.
    pub(super) fn release_before(&mut self, base: SourceId) {
        while let Some(first) = self.batches.first_entry().filter(|first| first.get().end() <= base) {
            self.count -= first.remove().symbols.len();
        }
        while self.jobs.front().is_some_and(|job| job.end() <= base) {
            self.jobs.pop_front();
        }
    }

    pub(super) fn memory(&self) -> usize {
        let made = self.batches.values().filter(|batch| batch.is_made);
        made.map(|batch| batch.symbols.iter().flatten().count() * batch.len).sum()
    }
}

impl LaneSender {
    /// Called when a policy closed a generation. Makes a job for its repairs, unless they take at most
    /// `inline` products. Repairs beyond the bound are computed when they are sent.
    pub(crate) fn make_ahead(&mut self, closed: Closed, inline: usize) {
        self.ahead.closed.push(closed);
        // The window keeps no symbol that is further below the base.
        let kept = self.ids.base.0.saturating_sub(self.window.span().into());
        self.ahead.closed.release_before(SourceId(kept), drop);
        let Closed { first, count, code, repairs } = closed;
        let room = usize::from(self.window.span()).saturating_sub(self.ahead.count);
        let repairs = repairs.min(u16::try_from(room).unwrap_or(u16::MAX));
        let Ok(len) = self.window.repair_len(first, count) else { return };
        let products = usize::from(count) * usize::from(repairs) * len;
        // A block that is not yet full gets its last symbols when its first repair leaves: their bytes
        // are not final before.
        if first.plus(count.into()) > self.ids.sent {
            return;
        }
        // The repair of a single symbol is the symbol itself.
        if products <= inline || count < 2 || self.ahead.batches.contains_key(&first.0) {
            return;
        }
        let generation = Generation::new(code, count).and_then(|generation| generation.at(first));
        let Some((generation, sources)) = generation.ok().zip(self.window.share(first, count)) else { return };
        if code.check(generation.repair_id(repairs - 1)).is_err() {
            return;
        }
        self.ahead.jobs.push_back(Encode { generation, sources, repairs, len });
        let batch = Batch { generation, len, symbols: vec![None; repairs.into()], is_made: false };
        self.ahead.batches.insert(first.0, batch);
        self.ahead.count += usize::from(repairs);
    }

    /// The next job for a worker.
    pub(crate) fn poll_job(&mut self) -> Option<Encode> {
        self.ahead.jobs.pop_front()
    }

    /// Whether [`Self::poll_job`] has a job.
    pub(crate) fn has_job(&self) -> bool {
        !self.ahead.jobs.is_empty()
    }

    /// Takes the result of a job from [`Self::poll_job`]. Ignored if the generation is no longer needed.
    pub(crate) fn handle_job(&mut self, made: Encoded) {
        let batch = self.ahead.batches.get_mut(&made.generation.first().0);
        if let Some(batch) = batch.filter(|batch| batch.generation == made.generation && !batch.is_made) {
            batch.symbols = made.symbols.into_iter().map(Some).collect();
            batch.is_made = true;
        }
    }

    /// Whether a proactive repair should wait until a worker has computed it. An answer never waits,
    /// because the peer needs it now.
    pub(crate) fn is_coming(&self, repair: &Repair) -> bool {
        match *repair {
            Repair::Coded { first, count, row: Some(row), on_feedback: false } => {
                self.ahead.is_coming(row.code, RepairId { first, count, key: row.key })
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;
    use crate::redundancy::GenerationRow;
    use crate::wire::Layout;

    const SPAN: u16 = 16;

    /// A lane that has sent `symbols` symbols of at least 500 bytes.
    fn lane(symbols: usize) -> LaneSender {
        let mut lane = LaneSender::new(Layout::Generations, SPAN, 512, 1 << 20, 1_000);
        let data: Vec<u8> = (0..symbols * 512).map(|n| (n % 251) as u8).collect();
        let (taken, _) = lane.write(0, 0, &data, false, 512, symbols + 1);
        assert!(taken > 0);
        for _ in 0..symbols {
            assert!(lane.next_source().is_some() && lane.send_source(Time::from_millis(1)).is_some());
        }
        lane
    }

    fn closed(first: u64, repairs: u16) -> Closed {
        Closed { first: SourceId(first), count: 8, code: Code::Cauchy, repairs }
    }

    fn send(lane: &mut LaneSender, key: u16) -> Vec<u8> {
        let id = RepairId { first: SourceId(0), count: 8, key };
        let mut out = [0; 512];
        let len = lane.send_repair(Code::Cauchy, id, false, key.into(), &mut out).expect("inside");
        out[..len].to_vec()
    }

    #[test]
    fn repairs_made_ahead_are_those_that_would_be_computed_and_no_byte_is_copied_for_them() {
        let (mut ahead, mut inline) = (lane(8), lane(8));
        ahead.make_ahead(closed(0, 3), 0);
        let row = GenerationRow { code: Code::Cauchy, key: 1 };
        let repair = Repair::Coded { first: SourceId(0), count: 8, row: Some(row), on_feedback: false };
        assert!(ahead.has_job() && ahead.is_coming(&repair));
        let job = ahead.poll_job().expect("a batch");
        for (id, symbol) in (0..).map(SourceId).zip(&job.sources) {
            assert_eq!(symbol.as_ptr(), ahead.window.symbol(id).expect("kept").as_ptr());
        }
        // A repair that is sent before its batch is computed.
        assert_eq!(send(&mut ahead, 0), send(&mut inline, 0));
        ahead.handle_job(job.run());
        assert!(!ahead.is_coming(&repair) && ahead.ahead.memory() > 0);
        (1..5).for_each(|key| assert_eq!(send(&mut ahead, key), send(&mut inline, key), "{key}"));
    }

    #[test]
    fn what_is_made_ahead_is_bounded_and_forgotten_with_its_generation() {
        let mut lane = lane(32);
        for first in [0, 8, 16, 24] {
            lane.make_ahead(closed(first, 6), 0);
        }
        let mut made: Vec<_> = core::iter::from_fn(|| lane.poll_job()).collect();
        // The third generation gets only the repairs that the span leaves room for.
        assert_eq!(made.iter().map(|job| job.repairs).collect::<Vec<_>>(), [6, 6, 4]);
        let last = made.pop().expect("the third");
        made.into_iter().for_each(|job| lane.handle_job(job.run()));
        lane.ahead.release_before(SourceId(24));
        lane.handle_job(last.run());
        assert_eq!((lane.ahead.memory(), lane.ahead.count, lane.ahead.batches.len()), (0, 0, 0));
    }

    #[test]
    fn what_is_cheap_is_computed_when_it_is_sent() {
        let mut lane = lane(8);
        lane.make_ahead(closed(0, 2), 2 * 8 * 512);
        assert!(!lane.has_job());
    }
}
