//! Progress of an open generation: its rank, and either its repair symbols or rows that already hold bytes.
//!
//! If the symbols are long, their repairs are kept for a job that decodes them on a worker. If the symbols
//! are short and most are lost, making a plan costs more than applying it. Then the rows hold the bytes, and
//! no job is made.

use std::sync::Arc;

use tidewire_codec::{Generation, Rank, RepairId, ShortDecoder};

use crate::close::CloseCode;
use crate::lane::job::Symbol;

/// What was received of an open generation.
#[derive(Debug, Default)]
pub(super) enum Progress {
    /// The rank computed from ids alone, and the keys and bytes of independent repairs.
    Names { rank: Rank, repairs: Vec<(u16, Symbol)> },
    /// Rows that hold bytes, and the number of rows.
    Bytes { decoder: ShortDecoder, rows: usize },
    /// Recovered: a job or the store has taken the content. Nothing received later is innovative.
    #[default]
    Done,
}

impl Progress {
    /// Creates the progress of a generation with repairs of `len` bytes, of which `arrived` source symbols
    /// were received. The caller must add those symbols.
    pub fn new(generation: Generation, len: usize, arrived: usize) -> Result<Self, CloseCode> {
        let most_are_lost = 4 * arrived <= usize::from(generation.count());
        if most_are_lost && ShortDecoder::is_for(generation, len) {
            let decoder = ShortDecoder::new(generation, len).map_err(|_| CloseCode::Internal)?;
            return Ok(Self::Bytes { decoder, rows: 0 });
        }
        let mut rank = Rank::new(generation);
        rank.end(generation.count()).map_err(|_| CloseCode::Protocol)?;
        Ok(Self::Names { rank, repairs: Vec::new() })
    }

    /// Takes a source symbol by its index in the generation.
    pub fn add_source(&mut self, index: u16, symbol: &[u8]) -> Result<(), CloseCode> {
        match self {
            Self::Names { rank, .. } => rank.add_source(index).map_err(|_| CloseCode::Internal)?,
            // A source symbol that is longer than the repairs contradicts them.
            Self::Bytes { decoder, .. } => decoder.add_source(index, symbol).map_err(|_| CloseCode::Protocol)?,
            Self::Done => false,
        };
        Ok(())
    }

    /// Takes a repair symbol. Returns whether it raised the rank.
    pub fn add_repair(&mut self, id: RepairId, symbol: &[u8]) -> Result<bool, CloseCode> {
        match self {
            Self::Names { rank, repairs } => {
                if repairs.first().is_some_and(|(_, repair)| repair.len() != symbol.len()) {
                    return Err(CloseCode::Protocol);
                }
                let is_new = rank.add_repair(id.count, id.key).map_err(|_| CloseCode::Protocol)?;
                if is_new {
                    repairs.push((id.key, Arc::new(symbol.to_vec())));
                }
                Ok(is_new)
            }
            Self::Bytes { decoder, rows } => {
                let is_new = decoder.add_repair(id.key, symbol).map_err(|_| CloseCode::Protocol)?;
                *rows += usize::from(is_new);
                Ok(is_new)
            }
            Self::Done => Ok(false),
        }
    }

    /// Whether the generation was recovered and its content taken.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    /// Whether the received symbols determine all symbols.
    pub fn is_recovered(&self) -> bool {
        match self {
            Self::Names { rank, .. } => rank.is_recovered(),
            Self::Bytes { decoder, .. } => decoder.is_recovered(),
            Self::Done => true,
        }
    }

    /// Number of repairs that raised the rank.
    pub fn rows(&self) -> usize {
        match self {
            Self::Names { repairs, .. } => repairs.len(),
            Self::Bytes { rows, .. } => *rows,
            Self::Done => 0,
        }
    }

    /// Bytes of memory beyond the repairs.
    pub fn memory(&self) -> usize {
        match self {
            Self::Names { rank, .. } => rank.memory(),
            Self::Bytes { decoder, .. } => decoder.memory(),
            Self::Done => 0,
        }
    }
}
