//! The symbols that a lane has received: a sliding matrix or generations, as the lane's first frame says.
//!
//! [`super::LaneReceiver`] puts symbols in; streams and messages read those that became known, and FEEDBACK
//! says what is lacking. They do not know which engine holds the symbols.

mod generations;
mod lacking;
mod progress;
#[cfg(test)]
mod tests;

use core::ops::{Range, RangeBounds};

use tidewire_codec::{Code, DecodeError, Decoded, Decoder, Limits, Reception, RepairId, SourceId};

use super::job;
use crate::close::CloseCode;
use crate::wire::Layout;

use generations::Generations;

/// See the module.
#[derive(Debug)]
pub(crate) struct Store {
    engine: Engine,
    /// What the first symbol said; `None` before it.
    layout: Option<Layout>,
}

#[derive(Debug)]
enum Engine {
    /// Also as long as nothing has come.
    Sliding(Box<Decoder>),
    Generations(Box<Generations>),
}

/// What a reception was worth; `None`: it was refused for a bound of our own, and is as good as lost.
type Received = Result<Option<Reception>, CloseCode>;

/// The same call on either engine.
macro_rules! either {
    ($store:expr, $engine:ident => $call:expr) => {
        match $store {
            Engine::Sliding($engine) => $call,
            Engine::Generations($engine) => $call,
        }
    };
}

impl Store {
    pub fn new(limits: Limits) -> Self {
        Self { engine: Engine::Sliding(Box::new(Decoder::new(limits))), layout: None }
    }

    /// A symbol of this layout came. The first one decides; another layout after it is the peer's fault.
    pub fn expect(&mut self, layout: Layout, slot_len: usize, max_span: u16) -> Result<(), CloseCode> {
        if *self.layout.get_or_insert(layout) != layout {
            return Err(CloseCode::Protocol);
        }
        if let (Engine::Sliding(decoder), Layout::Generations) = (&self.engine, layout) {
            let generations = Generations::new(slot_len, max_span, decoder.capacity(), decoder.edge());
            self.engine = Engine::Generations(Box::new(generations));
        }
        Ok(())
    }

    /// A source symbol.
    pub fn receive_source(&mut self, id: SourceId, symbol: &[u8]) -> Received {
        match &mut self.engine {
            Engine::Sliding(decoder) => judge(decoder.receive_source(id, symbol)),
            Engine::Generations(generations) => generations.receive_source(id, symbol).map(Some),
        }
    }

    /// A repair symbol.
    pub fn receive_repair(&mut self, code: Code, id: RepairId, symbol: &[u8]) -> Received {
        match &mut self.engine {
            Engine::Sliding(decoder) => judge(decoder.receive_repair(code, id, symbol)),
            Engine::Generations(generations) => generations.receive_repair(code, id, symbol).map(Some),
        }
    }

    /// The next symbol that became known, each once.
    pub fn poll_decoded(&mut self) -> Option<Decoded> {
        either!(&mut self.engine, engine => engine.poll_decoded())
    }

    /// The next job, if it takes as many products as that.
    pub fn poll_job(&mut self, products: impl RangeBounds<usize>) -> Option<job::Decode> {
        match &mut self.engine {
            Engine::Sliding(_) => None,
            Engine::Generations(generations) => generations.poll_job(products),
        }
    }

    /// Whether a job waits to be polled.
    pub fn has_job(&self) -> bool {
        match &self.engine {
            Engine::Sliding(_) => false,
            Engine::Generations(generations) => generations.has_job(),
        }
    }

    /// What came of [`Self::poll_job`].
    pub fn handle_job(&mut self, done: job::Decoded) -> Result<(), CloseCode> {
        match &mut self.engine {
            Engine::Sliding(_) => Ok(()),
            Engine::Generations(generations) => generations.handle_job(done),
        }
    }

    /// Nothing below `id` will come any more.
    pub fn skip_before(&mut self, id: SourceId) {
        either!(&mut self.engine, engine => { engine.skip_before(id); });
    }

    /// Symbols below `floor` may be forgotten, but for those that a repair still mixes. The ring of a sliding
    /// window forgets by itself.
    pub fn release_before(&mut self, floor: SourceId) {
        if let Engine::Generations(generations) = &mut self.engine {
            generations.release_before(floor);
        }
    }

    /// A known symbol, unless it was forgotten.
    pub fn symbol(&self, id: SourceId) -> Option<&[u8]> {
        either!(&self.engine, engine => engine.symbol(id))
    }

    /// Whether the peer is told that the symbol is decoded; also true below [`Self::reported`].
    pub fn is_decoded(&self, id: SourceId) -> bool {
        either!(&self.engine, engine => engine.is_decoded(id))
    }

    /// All ids below are decoded or given up.
    pub fn edge(&self) -> SourceId {
        either!(&self.engine, engine => engine.edge())
    }

    /// The peer is told that all ids below are decoded or given up: a generation counts as soon as its rank
    /// suffices.
    pub fn reported(&self) -> SourceId {
        match &self.engine {
            Engine::Sliding(decoder) => decoder.edge(),
            Engine::Generations(generations) => generations.reported(),
        }
    }

    /// One past the highest id seen.
    pub fn end(&self) -> SourceId {
        either!(&self.engine, engine => engine.end())
    }

    /// Symbols that are kept.
    pub fn capacity(&self) -> usize {
        either!(&self.engine, engine => engine.capacity())
    }

    /// Makes room for at least `capacity` symbols.
    pub fn grow(&mut self, capacity: usize) {
        either!(&mut self.engine, engine => engine.grow(capacity));
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        either!(&self.engine, engine => engine.memory())
    }

    /// Adds the lowest maximal runs of ids that are lacking, at most so many.
    pub fn name_undecoded(&self, most: usize, runs: &mut Vec<Range<SourceId>>) {
        either!(&self.engine, engine => runs.extend(engine.undecoded().take(most)));
    }

    /// Independent symbols lacking for all that was seen.
    pub fn rank_deficit(&self) -> u64 {
        either!(&self.engine, engine => engine.rank_deficit())
    }

    /// See [`Decoder::region_deficits`].
    pub fn region_deficits(&self, from: SourceId, length: u64, deficits: &mut [u64]) -> u64 {
        either!(&self.engine, engine => engine.region_deficits(from, length, deficits))
    }
}

/// What the sliding decoder says of a reception.
fn judge(reception: Result<Reception, DecodeError>) -> Received {
    match reception {
        Ok(reception) => Ok(Some(reception)),
        // Our own bounds on rows and work, not the peer's fault.
        Err(DecodeError::TooManyRows { .. } | DecodeError::TooManyColumns { .. }) => Ok(None),
        Err(DecodeError::BeyondLimit { .. }) => Err(CloseCode::FlowControl),
        Err(_) => Err(CloseCode::Protocol),
    }
}
