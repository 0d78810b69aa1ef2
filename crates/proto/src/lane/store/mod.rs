//! The symbols that a lane has received, held in a sliding matrix or in generations. The lane's first symbol
//! decides which.
//!
//! [`super::LaneReceiver`] puts symbols in. Streams and messages read the symbols that became known, and
//! FEEDBACK reports the missing ones. None of them depends on which engine holds the symbols.

mod generations;
mod lacking;
mod progress;
mod regions;
#[cfg(test)]
mod tests;

use core::ops::{Range, RangeBounds};

use tidewire_codec::{Code, DecodeError, Decoded, Decoder, Elimination, Limits, Reception, RepairId, SourceId};

use super::job;
use crate::close::CloseCode;
use crate::wire::Layout;

use generations::Generations;

/// The received symbols of a lane; see the module.
#[derive(Debug)]
pub(crate) struct Store {
    engine: Engine,
    /// The layout of the first symbol; `None` before it.
    layout: Option<Layout>,
    /// For generations of sparse codes.
    elimination: Elimination,
}

#[derive(Debug)]
enum Engine {
    /// Also used before the first symbol.
    Sliding(Box<Decoder>),
    Generations(Box<Generations>),
}

/// Whether a reception was innovative. `None` means that it was refused because of a local bound; it then
/// counts as lost.
type Received = Result<Option<Reception>, CloseCode>;

/// Makes the same call on either engine.
macro_rules! either {
    ($store:expr, $engine:ident => $call:expr) => {
        match $store {
            Engine::Sliding($engine) => $call,
            Engine::Generations($engine) => $call,
        }
    };
}

impl Store {
    pub(crate) fn new(limits: Limits, elimination: Elimination) -> Self {
        Self { engine: Engine::Sliding(Box::new(Decoder::new(limits))), layout: None, elimination }
    }

    /// Called when a symbol of this layout was received. The first symbol decides the layout; a different
    /// layout later is the peer's fault.
    pub(crate) fn expect(&mut self, layout: Layout, slot_len: usize, max_span: u16) -> Result<(), CloseCode> {
        if *self.layout.get_or_insert(layout) != layout {
            return Err(CloseCode::Protocol);
        }
        if let (Engine::Sliding(decoder), Layout::Generations) = (&self.engine, layout) {
            let generations =
                Generations::new(slot_len, max_span, self.elimination, decoder.capacity(), decoder.edge());
            self.engine = Engine::Generations(Box::new(generations));
        }
        Ok(())
    }

    /// Whether the lane is in generations.
    pub(crate) fn is_in_generations(&self) -> bool {
        matches!(self.engine, Engine::Generations(_))
    }

    /// Takes a source symbol.
    pub(crate) fn receive_source(&mut self, id: SourceId, symbol: &[u8]) -> Received {
        match &mut self.engine {
            Engine::Sliding(decoder) => judge(decoder.receive_source(id, symbol)),
            Engine::Generations(generations) => generations.receive_source(id, symbol).map(Some),
        }
    }

    /// Takes a repair symbol.
    pub(crate) fn receive_repair(&mut self, code: Code, id: RepairId, symbol: &[u8]) -> Received {
        match &mut self.engine {
            Engine::Sliding(decoder) => judge(decoder.receive_repair(code, id, symbol)),
            Engine::Generations(generations) => generations.receive_repair(code, id, symbol).map(Some),
        }
    }

    /// The next symbol that became known; each is returned once.
    pub(crate) fn poll_decoded(&mut self) -> Option<Decoded> {
        either!(&mut self.engine, engine => engine.poll_decoded())
    }

    /// The next job whose number of products is in `products`.
    pub(crate) fn poll_job(&mut self, products: impl RangeBounds<usize>) -> Option<job::Decode> {
        match &mut self.engine {
            Engine::Sliding(_) => None,
            Engine::Generations(generations) => generations.poll_job(products),
        }
    }

    /// Whether a job is waiting.
    pub(crate) fn has_job(&self) -> bool {
        match &self.engine {
            Engine::Sliding(_) => false,
            Engine::Generations(generations) => generations.has_job(),
        }
    }

    /// Takes the result of a job from [`Self::poll_job`].
    pub(crate) fn handle_job(&mut self, done: job::Decoded) -> Result<(), CloseCode> {
        match &mut self.engine {
            Engine::Sliding(_) => Ok(()),
            Engine::Generations(generations) => generations.handle_job(done),
        }
    }

    /// Gives up all symbols below `id`: the peer will not send them any more.
    pub(crate) fn skip_before(&mut self, id: SourceId) {
        either!(&mut self.engine, engine => { engine.skip_before(id); });
    }

    /// Forgets symbols below `floor`, except those that a repair still mixes. Does nothing for a sliding
    /// window, whose ring forgets by itself.
    pub(crate) fn release_before(&mut self, floor: SourceId) {
        if let Engine::Generations(generations) = &mut self.engine {
            generations.release_before(floor);
        }
    }

    /// The bytes of a known symbol, unless it was forgotten.
    pub(crate) fn symbol(&self, id: SourceId) -> Option<&[u8]> {
        either!(&self.engine, engine => engine.symbol(id))
    }

    /// Whether FEEDBACK reports the symbol as decoded. Also true for ids below [`Self::reported`].
    pub(crate) fn is_decoded(&self, id: SourceId) -> bool {
        either!(&self.engine, engine => engine.is_decoded(id))
    }

    /// All lower ids are decoded or given up.
    pub(crate) fn edge(&self) -> SourceId {
        either!(&self.engine, engine => engine.edge())
    }

    /// FEEDBACK reports all lower ids as decoded or given up. A generation counts as decoded as soon as its
    /// rank suffices.
    pub(crate) fn reported(&self) -> SourceId {
        match &self.engine {
            Engine::Sliding(decoder) => decoder.edge(),
            Engine::Generations(generations) => generations.reported(),
        }
    }

    /// One past the highest id seen.
    pub(crate) fn end(&self) -> SourceId {
        either!(&self.engine, engine => engine.end())
    }

    /// Number of symbols that can be kept.
    pub(crate) fn capacity(&self) -> usize {
        either!(&self.engine, engine => engine.capacity())
    }

    /// Makes room for at least `capacity` symbols.
    pub(crate) fn grow(&mut self, capacity: usize) {
        either!(&mut self.engine, engine => engine.grow(capacity));
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        either!(&self.engine, engine => engine.memory())
    }

    /// Adds the lowest runs of missing ids to `runs`, at most `most`. The runs are maximal.
    pub(crate) fn name_undecoded(&self, most: usize, runs: &mut Vec<Range<SourceId>>) {
        either!(&self.engine, engine => runs.extend(engine.undecoded().take(most)));
    }

    /// Number of independent symbols needed to decode everything seen so far.
    pub(crate) fn rank_deficit(&self) -> u64 {
        either!(&self.engine, engine => engine.rank_deficit())
    }

    /// Number of symbols and rows held beyond [`Self::reported`]. Each arrived in a packet of its own.
    pub(crate) fn held_beyond(&self) -> u64 {
        match &self.engine {
            Engine::Sliding(decoder) => decoder.end().0.saturating_sub(decoder.edge().0 + decoder.rank_deficit()),
            Engine::Generations(generations) => generations.held_beyond(),
        }
    }

    /// See [`Decoder::region_deficits`].
    pub(crate) fn region_deficits(&self, from: SourceId, length: u64, deficits: &mut [u64]) -> u64 {
        either!(&self.engine, engine => engine.region_deficits(from, length, deficits))
    }
}

/// Converts the result of the sliding decoder.
fn judge(reception: Result<Reception, DecodeError>) -> Received {
    match reception {
        Ok(reception) => Ok(Some(reception)),
        // These are local bounds on rows and work, not faults of the peer.
        Err(DecodeError::TooManyRows { .. } | DecodeError::TooManyColumns { .. }) => Ok(None),
        Err(DecodeError::BeyondLimit { .. }) => Err(CloseCode::FlowControl),
        Err(_) => Err(CloseCode::Protocol),
    }
}
