//! Progress of an open generation: its rank, and either its repair symbols or rows that already hold bytes.
//!
//! If the symbols are long, their repairs are kept for a job that decodes them on a worker. If the symbols
//! are short and most are lost, making a plan costs more than applying it. Then the rows hold the bytes, and
//! no job is made. Under a sparse code the symbols are peeled as they arrive: that costs a few XORs, and each
//! symbol is known as early as possible.

use tidewire_codec::{Elimination, Generation, PeelingDecoder, Rank, RepairId, ShortDecoder};

use crate::close::CloseCode;
use crate::lane::job::Symbol;

/// What was received of an open generation.
#[derive(Debug, Default)]
pub(super) enum Progress {
    /// The rank computed from ids alone, and the keys and bytes of independent repairs.
    Names { rank: Box<Rank>, repairs: Vec<(u16, Symbol)> },
    /// Rows that hold bytes, and the number of rows.
    Bytes { decoder: Box<ShortDecoder>, rows: usize },
    /// Symbols of a sparse code, and how many of them were known when the store last took them.
    Peeled { decoder: Box<PeelingDecoder>, taken: u16 },
    /// Recovered: a job or the store has taken the content. Nothing received later is innovative.
    #[default]
    Done,
}

/// What a generation adds to the sums of its lane.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weight {
    /// By how much the rank exceeds the number of known source symbols.
    pub rows: u64,
    /// Number of repairs that were taken and gave no source symbol yet. Larger than `rows` if the receiver
    /// only peels.
    pub pending: u64,
    /// Number of repairs that are kept beside what `memory` counts.
    pub kept: usize,
    /// Bytes of memory beyond these repairs.
    pub memory: usize,
}

impl Progress {
    /// Creates the progress of a generation with repairs of `len` bytes, of which `arrived` source symbols
    /// were received. The caller must add those symbols. `elimination` is for sparse codes.
    pub(super) fn new(
        generation: Generation,
        len: usize,
        arrived: usize,
        elimination: Elimination,
    ) -> Result<Self, CloseCode> {
        if generation.code().is_sparse() {
            let decoder = PeelingDecoder::new(generation, len, elimination).map_err(|_| CloseCode::Internal)?;
            return Ok(Self::Peeled { decoder: Box::new(decoder), taken: 0 });
        }
        let most_are_lost = 4 * arrived <= usize::from(generation.count());
        if most_are_lost && ShortDecoder::is_for(generation, len) {
            let decoder = ShortDecoder::new(generation, len).map_err(|_| CloseCode::Internal)?;
            return Ok(Self::Bytes { decoder: Box::new(decoder), rows: 0 });
        }
        let mut rank = Rank::new(generation);
        rank.end(generation.count()).map_err(|_| CloseCode::Protocol)?;
        Ok(Self::Names { rank: Box::new(rank), repairs: Vec::new() })
    }

    /// Takes a source symbol by its index in the generation.
    pub(super) fn add_source(&mut self, index: u16, symbol: &[u8]) -> Result<(), CloseCode> {
        match self {
            Self::Names { rank, .. } => rank.add_source(index).map_err(|_| CloseCode::Internal)?,
            // A source symbol that is longer than the repairs contradicts them.
            Self::Bytes { decoder, .. } => decoder.add_source(index, symbol).map_err(|_| CloseCode::Protocol)?,
            Self::Peeled { decoder, .. } => decoder.add_source(index, symbol).map_err(|_| CloseCode::Protocol)?,
            Self::Done => false,
        };
        Ok(())
    }

    /// Takes a repair symbol. Returns whether it raised the rank.
    pub(super) fn add_repair(&mut self, id: RepairId, symbol: &[u8]) -> Result<bool, CloseCode> {
        match self {
            Self::Names { rank, repairs } => {
                if repairs.first().is_some_and(|(_, repair)| repair.len() != symbol.len()) {
                    return Err(CloseCode::Protocol);
                }
                let is_new = rank.add_repair(id.count, id.key).map_err(|_| CloseCode::Protocol)?;
                if is_new {
                    repairs.push((id.key, symbol.into()));
                }
                Ok(is_new)
            }
            Self::Bytes { decoder, rows } => {
                let is_new = decoder.add_repair(id.key, symbol).map_err(|_| CloseCode::Protocol)?;
                *rows += usize::from(is_new);
                Ok(is_new)
            }
            Self::Peeled { decoder, .. } => decoder.add_repair(id.key, symbol).map_err(|_| CloseCode::Protocol),
            Self::Done => Ok(false),
        }
    }

    /// The decoder of a sparse code, if more symbols are known than at the last call.
    pub(super) fn news(&mut self) -> Option<&PeelingDecoder> {
        match self {
            Self::Peeled { decoder, taken } if *taken < decoder.known() => {
                *taken = decoder.known();
                Some(decoder)
            }
            _ => None,
        }
    }

    /// Whether the generation was recovered and its content taken.
    pub(super) fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    /// Whether the received symbols determine all symbols.
    pub(super) fn is_recovered(&self) -> bool {
        match self {
            Self::Names { rank, .. } => rank.is_recovered(),
            Self::Bytes { decoder, .. } => decoder.is_recovered(),
            Self::Peeled { decoder, .. } => decoder.is_recovered(),
            Self::Done => true,
        }
    }

    /// What it adds to the sums of its lane.
    pub(super) fn weight(&self) -> Weight {
        let of_rows = |rows: usize, memory| Weight { rows: rows as u64, pending: rows as u64, kept: rows, memory };
        match self {
            Self::Names { rank, repairs } => of_rows(repairs.len(), rank.memory()),
            Self::Bytes { decoder, rows } => of_rows(*rows, decoder.memory()),
            Self::Peeled { decoder, .. } => Weight {
                rows: (decoder.generation().count() - decoder.known() - decoder.deficit()).into(),
                pending: decoder.pending() as u64,
                kept: 0,
                memory: decoder.memory(),
            },
            Self::Done => Weight::default(),
        }
    }
}
