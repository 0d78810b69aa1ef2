//! Coding work that runs outside the connection: what to compute, and the symbols to compute it from.
//!
//! Lanes in generations make jobs. `Connection::poll_job` hands them out, a worker runs them, and the results
//! come back through `handle_job`. A job owns references to symbols that nobody writes any more, so no
//! payload byte is copied to make it. It needs nothing from the connection while it runs.

use std::sync::Arc;

use tidewire_codec::{DecodePlan, Generation, SourceId};

/// The bytes of one symbol. They are never written while there is more than one owner.
pub(crate) type Symbol = Arc<[u8]>;

/// A job that decodes one generation.
#[derive(Clone, Debug)]
pub(crate) struct Decode {
    /// The generation and its code.
    pub generation: Generation,
    /// The source symbols; `None` if one was not received.
    pub sources: Vec<Option<Symbol>>,
    /// Keys and bytes of repair symbols, as many as source symbols are missing.
    pub repairs: Vec<(u16, Symbol)>,
}

/// A job that computes repairs of one generation in advance.
#[derive(Clone, Debug)]
pub(crate) struct Encode {
    /// The generation and its code.
    pub generation: Generation,
    /// All source symbols of the generation.
    pub sources: Vec<Symbol>,
    /// Number of repairs to compute, with keys from 0 up.
    pub repairs: u16,
    /// Length of each repair in bytes.
    pub len: usize,
}

/// The result of [`Encode`].
#[derive(Debug)]
pub(crate) struct Encoded {
    /// The generation and its code.
    pub generation: Generation,
    /// The repairs in the order of their keys; empty if the lengths contradict each other.
    pub symbols: Vec<Vec<u8>>,
}

impl Encode {
    /// One past the last symbol of the generation.
    pub(crate) fn end(&self) -> SourceId {
        self.generation.first().plus(self.generation.count().into())
    }

    /// Cost of the job: the number of products of a coefficient and a byte.
    pub(crate) fn products(&self) -> usize {
        self.sources.len() * usize::from(self.repairs) * self.len
    }

    /// Runs the job.
    pub(crate) fn run(self) -> Encoded {
        let sources: Vec<&[u8]> = self.sources.iter().map(|symbol| &symbol[..]).collect();
        let mut symbols = vec![vec![0; self.len]; self.repairs.into()];
        if self.generation.encode(&sources, 0, &mut symbols).is_err() {
            symbols.clear();
        }
        Encoded { generation: self.generation, symbols }
    }
}

/// The result of [`Decode`].
#[derive(Debug)]
pub(crate) struct Decoded {
    /// First source symbol of the generation.
    pub first: SourceId,
    /// Number of repair symbols that the job used.
    pub repairs: usize,
    /// The missing symbols, with their index in the generation. `None` if the lengths of symbols contradict
    /// each other.
    pub symbols: Option<Vec<(u16, Symbol)>>,
}

impl Decode {
    /// Cost of the job: the number of products of a coefficient and a byte.
    pub(crate) fn products(&self) -> usize {
        let len = self.repairs.first().map_or(0, |(_, symbol)| symbol.len());
        self.repairs.len() * self.sources.len() * len
    }

    /// Runs the job.
    pub(crate) fn run(self) -> Decoded {
        let first = self.generation.first();
        let lost: Vec<u16> = (0..).zip(&self.sources).filter(|(_, symbol)| symbol.is_none()).map(|(n, _)| n).collect();
        let keys: Vec<u16> = self.repairs.iter().map(|&(key, _)| key).collect();
        let len = self.repairs.iter().map(|(_, symbol)| symbol.len()).max().unwrap_or(0);
        let mut decoded: Vec<Symbol> = lost.iter().map(|_| core::iter::repeat_n(0, len).collect()).collect();
        let mut places: Vec<&mut [u8]> = decoded.iter_mut().filter_map(Arc::get_mut).collect();
        let mut plan = DecodePlan::nothing_lost(self.generation);
        let sources: Vec<&[u8]> = self.sources.iter().map(|symbol| symbol.as_deref().unwrap_or_default()).collect();
        let repairs: Vec<&[u8]> = self.repairs.iter().map(|(_, symbol)| &symbol[..]).collect();
        let is_decoded =
            plan.renew(self.generation, &lost, &keys).is_ok() && plan.decode(&sources, &repairs, &mut places).is_ok();
        let symbols = is_decoded.then(|| lost.into_iter().zip(decoded).collect());
        Decoded { first, repairs: keys.len(), symbols }
    }
}
