//! Coding work that leaves the connection: what to compute, with the symbols to compute it from.
//!
//! A lane in generations makes jobs; `Connection::poll_job` hands them out, a worker
//! runs them, and their results come back through `handle_job`. A job owns references to symbols that nobody
//! writes any more, so that no payload byte is copied to make one, and it needs nothing of the connection
//! while it runs.

use std::sync::Arc;

use tidewire_codec::{DecodePlan, Generation, SourceId};

/// The bytes of one symbol. Nobody writes them while more than one owner has them.
pub(crate) type Symbol = Arc<Vec<u8>>;

/// One generation to be decoded.
#[derive(Clone, Debug)]
pub(crate) struct Decode {
    /// Which generation, under which code.
    pub generation: Generation,
    /// Its source symbols, as far as they came.
    pub sources: Vec<Option<Symbol>>,
    /// Keys and bytes of as many repair symbols as source symbols are lacking.
    pub repairs: Vec<(u16, Symbol)>,
}

/// Repairs of one generation, to be made ahead.
#[derive(Clone, Debug)]
pub(crate) struct Encode {
    /// Which generation, under which code.
    pub generation: Generation,
    /// All of its source symbols.
    pub sources: Vec<Symbol>,
    /// The repairs with the keys from 0 up to here.
    pub repairs: u16,
    /// Bytes of each.
    pub len: usize,
}

/// What came of [`Encode`].
#[derive(Debug)]
pub(crate) struct Encoded {
    /// See [`Encode`].
    pub generation: Generation,
    /// The repairs by their keys; none where lengths contradict each other.
    pub symbols: Vec<Vec<u8>>,
}

impl Encode {
    /// One past the last symbol of the generation.
    pub fn end(&self) -> SourceId {
        self.generation.first().plus(self.generation.count().into())
    }

    /// Products of a coefficient and a byte that it takes: what it costs.
    pub fn products(&self) -> usize {
        self.sources.len() * usize::from(self.repairs) * self.len
    }

    /// Does the work.
    pub fn run(self) -> Encoded {
        let sources: Vec<&[u8]> = self.sources.iter().map(|symbol| symbol.as_slice()).collect();
        let mut symbols = vec![vec![0; self.len]; self.repairs.into()];
        if self.generation.encode(&sources, 0, &mut symbols).is_err() {
            symbols.clear();
        }
        Encoded { generation: self.generation, symbols }
    }
}

/// What came of [`Decode`].
#[derive(Debug)]
pub(crate) struct Decoded {
    /// First source symbol of the generation.
    pub first: SourceId,
    /// Repair symbols that the job had.
    pub repairs: usize,
    /// The symbols that were lacking, by their place in the generation. `None` where lengths of symbols
    /// contradict each other.
    pub symbols: Option<Vec<(u16, Symbol)>>,
}

impl Decode {
    /// Products of a coefficient and a byte that it takes: what it costs.
    pub fn products(&self) -> usize {
        let len = self.repairs.first().map_or(0, |(_, symbol)| symbol.len());
        self.repairs.len() * self.sources.len() * len
    }

    /// Does the work.
    pub fn run(self) -> Decoded {
        let first = self.generation.first();
        let lost: Vec<u16> = (0..).zip(&self.sources).filter(|(_, symbol)| symbol.is_none()).map(|(n, _)| n).collect();
        let keys: Vec<u16> = self.repairs.iter().map(|&(key, _)| key).collect();
        let len = self.repairs.iter().map(|(_, symbol)| symbol.len()).max().unwrap_or(0);
        let mut decoded = vec![vec![0; len]; lost.len()];
        let mut plan = DecodePlan::nothing_lost(self.generation);
        let sources: Vec<&[u8]> =
            self.sources.iter().map(|symbol| symbol.as_ref().map_or(&[][..], |symbol| symbol.as_slice())).collect();
        let repairs: Vec<&[u8]> = self.repairs.iter().map(|(_, symbol)| symbol.as_slice()).collect();
        let is_decoded =
            plan.renew(self.generation, &lost, &keys).is_ok() && plan.decode(&sources, &repairs, &mut decoded).is_ok();
        let symbols = is_decoded.then(|| lost.into_iter().zip(decoded.into_iter().map(Arc::new)).collect());
        Decoded { first, repairs: keys.len(), symbols }
    }
}
