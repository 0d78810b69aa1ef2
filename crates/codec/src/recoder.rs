//! The relay's side of a generation: symbols come in over one hop, new combinations of them go out over the
//! next, without decoding.
//!
//! A relay that only forwards passes every loss on; one that recodes replaces what its own hop loses, so that
//! each hop needs redundancy for its own losses only. It also need not wait: a combination of what has
//! arrived so far can leave at once. That is the rule of pipeline coding: each innovative arrival sends about
//! R new combinations, a redundant one sends nothing. When to send is the caller's; see `examples/relay.rs`.
//!
//! Invariants: slot i of `symbols` and of `vectors` holds the i-th innovative symbol and its coding vector as
//! they were received; row p of `echelon`, where `is_pivot[p]`, is 0 before column p and 1 there; both sets
//! of vectors span the same space, so that a symbol is innovative if the echelon does not reduce its vector
//! to 0. Payloads are copied in once and read by [`write_recoded`](Recoder::write_recoded), nothing else
//! touches them.

use alloc::vec;
use alloc::vec::Vec;
use core::iter;
use core::ops::Range;

use crate::code::multipliers;
use crate::field::gf256;
use crate::id::span;
use crate::kernel::Kernel;
use crate::ring::SymbolRing;
use crate::{Code, Reception, RecodeError, RepairId, SourceId, SpanError};

/// What a relay holds of one generation, and the source of its recoded symbols.
///
/// ```
/// use tidewire_codec::{Code, Decoder, Encoder, Limits, Recoder, RepairId, SourceId};
///
/// let mut encoder = Encoder::new(64, 4);
/// encoder.push(b"ebb")?;
/// encoder.push(b"flow")?;
/// let id = RepairId { first: SourceId(0), count: 2, key: 1 };
/// let mut repair = [0; 64];
/// let len = encoder.write_repair(Code::Rlc, id, &mut repair)?;
///
/// // The relay receives one source symbol and one repair symbol, and sends two combinations of them.
/// let mut relay = Recoder::new(64, 16);
/// relay.begin(SourceId(0), 2)?;
/// relay.receive_source(SourceId(1), b"flow")?;
/// relay.receive_repair(Code::Rlc, id, &repair[..len])?;
///
/// let mut decoder = Decoder::new(Limits { slot_len: 64, capacity: 4, max_span: 4, max_rows: 4 });
/// let (mut coefficients, mut symbol) = ([0; 2], [0; 64]);
/// for key in 0..2 {
///     let len = relay.write_recoded(key, &mut coefficients, &mut symbol)?;
///     decoder.receive_recoded(SourceId(0), &coefficients, &symbol[..len])?;
/// }
/// assert_eq!(decoder.symbol(SourceId(0)), Some(&b"ebb\0"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Recoder {
    max_count: u16,
    first: u64,
    count: u16,
    rank: u16,
    symbols: SymbolRing,
    vectors: SymbolRing,
    echelon: SymbolRing,
    is_pivot: Vec<bool>,
    /// The coding vector being reduced.
    candidate: Vec<u8>,
}

impl core::fmt::Debug for Recoder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Recoder")
            .field("generation", &self.generation())
            .field("rank", &self.rank())
            .finish_non_exhaustive()
    }
}

impl Recoder {
    /// A recoder for symbols of up to `slot_len` bytes and generations of up to `max_count` symbols; it holds
    /// none yet. All its memory is taken here: `max_count * (slot_len + 2 * max_count)` bytes, the first
    /// factor rounded up to a power of two, the terms of the second to a multiple of 64, and some bytes for
    /// each symbol.
    ///
    /// # Panics
    /// A slot is over 4 GiB, or the slots do not fit the address space.
    pub fn new(slot_len: usize, max_count: u16) -> Self {
        let count = usize::from(max_count);
        Self {
            max_count,
            first: 0,
            count: 0,
            rank: 0,
            symbols: SymbolRing::with_all_slots(slot_len, count),
            vectors: SymbolRing::with_all_slots(count, count),
            echelon: SymbolRing::with_all_slots(count, count),
            is_pivot: vec![false; count],
            candidate: Vec::with_capacity(count),
        }
    }

    /// Forgets all and begins the generation of the `count` source symbols from `first`.
    ///
    /// # Errors
    /// The generation is empty, longer than there is room for, or runs past the last source id. Nothing is
    /// changed.
    pub fn begin(&mut self, first: SourceId, count: u16) -> Result<(), RecodeError> {
        span(first, count)?;
        if count > self.max_count {
            return Err(RecodeError::GenerationTooLong { count, limit: self.max_count });
        }
        (self.first, self.count, self.rank) = (first.0, count, 0);
        self.is_pivot.fill(false);
        self.candidate.resize(count.into(), 0);
        Ok(())
    }

    /// The ids of the generation; empty before the first [`begin`](Self::begin).
    pub fn generation(&self) -> Range<SourceId> {
        SourceId(self.first)..SourceId(self.first + u64::from(self.count))
    }

    /// Independent symbols held: how much of the generation can be decoded from what this relay sends.
    pub fn rank(&self) -> u16 {
        self.rank
    }

    /// Takes a source symbol.
    ///
    /// # Errors
    /// The symbol is empty or longer than a slot, or not of this generation. Nothing is changed.
    pub fn receive_source(&mut self, id: SourceId, symbol: &[u8]) -> Result<Reception, RecodeError> {
        self.receive(id, iter::once(1), symbol)
    }

    /// Takes a repair symbol.
    ///
    /// # Errors
    /// The code is over GF(2^16) or has no such repair symbol, its span is not wholly inside the generation,
    /// or the symbol is empty or longer than a slot. Nothing is changed.
    pub fn receive_repair(&mut self, code: Code, id: RepairId, symbol: &[u8]) -> Result<Reception, RecodeError> {
        code.check_sliding()?;
        code.check(id)?;
        self.receive(id.first, code.row(id), symbol)
    }

    /// Takes what another relay recoded, with the coefficients that came with it, the first of them that of
    /// `first`.
    ///
    /// # Errors
    /// The coefficients are none, all 0 or not wholly inside the generation, or the symbol is empty or longer
    /// than a slot. Nothing is changed.
    pub fn receive_recoded(
        &mut self,
        first: SourceId,
        coefficients: &[u8],
        symbol: &[u8],
    ) -> Result<Reception, RecodeError> {
        if !coefficients.is_empty() && coefficients.iter().all(|&factor| factor == 0) {
            return Err(RecodeError::AllZero);
        }
        self.receive(first, coefficients.iter().copied(), symbol)
    }

    /// Length of the next recoded symbol in bytes, that of the longest symbol held; 0 when none is.
    pub fn recoded_len(&self) -> usize {
        (0..self.rank.into()).map(|slot| self.symbols.len(slot)).max().unwrap_or(0)
    }

    /// Writes a random combination of all symbols held to the front of `symbol` and returns its length, that
    /// of [`recoded_len`](Self::recoded_len); `coefficients` becomes its coding vector, one coefficient for
    /// each symbol of the generation, never all of them 0. Costs one multiply-accumulate per symbol held.
    ///
    /// The multipliers are drawn from `key`: use each once for a generation, and on relays that work side by
    /// side different ones (a packet number and something of the relay's own), else they may send the same.
    ///
    /// # Errors
    /// Nothing is held, `coefficients` has not the length of the generation, or `symbol` is too short.
    /// Neither is changed then.
    pub fn write_recoded(&self, key: u64, coefficients: &mut [u8], symbol: &mut [u8]) -> Result<usize, RecodeError> {
        if self.rank == 0 {
            return Err(RecodeError::NothingHeld);
        }
        if coefficients.len() != usize::from(self.count) {
            return Err(RecodeError::WrongCoefficients { len: coefficients.len(), count: self.count });
        }
        let (len, needed) = (symbol.len(), self.recoded_len());
        let symbol = symbol.get_mut(..needed).ok_or(RecodeError::OutputTooShort { len, needed })?;
        // Independent vectors times multipliers of which none is 0: the sum is not 0 either.
        let terms = || (0..self.rank.into()).zip(multipliers(key));
        coefficients.fill(0);
        self.vectors.mix(coefficients, terms());
        symbol.fill(0);
        self.symbols.mix(symbol, terms());
        Ok(needed)
    }

    /// Keeps a combination of the source symbols from `first` on, if it says something new.
    fn receive(
        &mut self,
        first: SourceId,
        row: impl ExactSizeIterator<Item = u8>,
        symbol: &[u8],
    ) -> Result<Reception, RecodeError> {
        let at = self.place(first, row.len())?;
        let (len, limit) = (symbol.len(), self.symbols.slot_len());
        if len == 0 {
            return Err(RecodeError::EmptySymbol);
        }
        if len > limit {
            return Err(RecodeError::SymbolTooLong { len, limit });
        }
        if self.rank == self.count {
            return Ok(Reception::Redundant);
        }
        let slot = u64::from(self.rank);
        self.candidate.fill(0);
        self.candidate[at..].iter_mut().zip(row).for_each(|(coefficient, value)| *coefficient = value);
        self.vectors.write(slot, &self.candidate);
        if !self.reduce() {
            return Ok(Reception::Redundant);
        }
        self.symbols.write(slot, symbol);
        self.rank += 1;
        Ok(Reception::Innovative)
    }

    /// Where in the generation a coding vector of `count` coefficients begins.
    fn place(&self, first: SourceId, count: usize) -> Result<usize, RecodeError> {
        if count == 0 {
            return Err(SpanError::Empty.into());
        }
        let at = first.0.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let room = at.and_then(|at| usize::from(self.count).checked_sub(at));
        match (at, room) {
            (Some(at), Some(room)) if count <= room => Ok(at),
            _ => Err(RecodeError::OutsideGeneration { first, count, generation: self.generation() }),
        }
    }

    /// Reduces the candidate by the echelon and makes what is left of it a row. Whether something was.
    fn reduce(&mut self) -> bool {
        let kernel = Kernel::active();
        for column in 0..self.candidate.len() {
            let factor = self.candidate[column];
            if factor == 0 {
                continue;
            }
            if !self.is_pivot[column] {
                kernel.scale(&mut self.candidate, gf256::inv(factor));
                self.echelon.write(column as u64, &self.candidate);
                self.is_pivot[column] = true;
                return true;
            }
            kernel.mul_add(&mut self.candidate, factor, self.echelon.symbol(column as u64));
        }
        false
    }
}
