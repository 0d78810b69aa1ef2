//! The relay's side of a generation. It receives symbols over one hop and sends new combinations of them over
//! the next, without decoding.
//!
//! A relay that only forwards passes every loss on. A relay that recodes replaces the losses of its own hop,
//! so each hop needs redundancy for its own losses only. It need not wait either: a combination of the
//! symbols received so far can leave at once. Pipeline coding follows this rule: each innovative arrival
//! sends about R new combinations, a redundant one sends nothing. The caller decides when to send; see
//! `examples/relay.rs`.
//!
//! Invariants: slot i of `symbols` and of `vectors` holds the i-th innovative symbol and its coding vector as
//! received. The vectors span the space of the [`Echelon`], which says whether the next one is innovative.
//! Payloads are copied in once, and only [`write_recoded`](Recoder::write_recoded) reads them.

use core::iter;
use core::ops::Range;

use crate::code::multipliers;
use crate::id::span;
use crate::ring::SymbolRing;
use crate::{Code, Echelon, Reception, RecodeError, RepairId, SourceId, SpanError};

/// The symbols that a relay holds of one generation, and the source of its recoded symbols.
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
    symbols: SymbolRing,
    vectors: SymbolRing,
    echelon: Echelon,
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
    /// A recoder for symbols of up to `slot_len` bytes and generations of up to `max_count` symbols. It is
    /// empty at first. It allocates all its memory here: `max_count * (slot_len + 2 * max_count)` bytes, with
    /// the first factor rounded up to a power of two and the terms of the second to a multiple of 64, and
    /// some bytes for each symbol.
    ///
    /// # Panics
    /// A slot is over 4 GiB, or the slots do not fit the address space.
    pub fn new(slot_len: usize, max_count: u16) -> Self {
        let count = usize::from(max_count);
        Self {
            max_count,
            first: 0,
            count: 0,
            symbols: SymbolRing::with_all_slots(slot_len, count),
            vectors: SymbolRing::with_all_slots(count, count),
            echelon: Echelon::new(max_count),
        }
    }

    /// Forgets everything and begins the generation of the `count` source symbols from `first`.
    ///
    /// # Errors
    /// The generation is empty, longer than there is room for, or runs past the last source id. Nothing is
    /// changed.
    pub fn begin(&mut self, first: SourceId, count: u16) -> Result<(), RecodeError> {
        span(first, count)?;
        if count > self.max_count {
            return Err(RecodeError::GenerationTooLong { count, limit: self.max_count });
        }
        (self.first, self.count) = (first.0, count);
        self.echelon.begin(count);
        Ok(())
    }

    /// The ids of the generation; empty before the first [`begin`](Self::begin).
    pub fn generation(&self) -> Range<SourceId> {
        SourceId(self.first)..SourceId(self.first + u64::from(self.count))
    }

    /// Number of independent symbols held: how much of the generation a receiver can decode from this relay's
    /// symbols.
    pub fn rank(&self) -> u16 {
        self.echelon.rank()
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.symbols.memory() + self.vectors.memory() + self.echelon.memory()
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

    /// Takes a symbol that another relay recoded, with the coefficients that came with it, the first of them
    /// for `first`.
    ///
    /// # Errors
    /// There are no coefficients, all are 0, or some lie outside the generation; or the symbol is empty or
    /// longer than a slot. Nothing is changed.
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

    /// Length of the next recoded symbol in bytes: that of the longest symbol held, or 0 if none is held.
    pub fn recoded_len(&self) -> usize {
        (0..self.rank().into()).map(|slot| self.symbols.len(slot)).max().unwrap_or(0)
    }

    /// Writes a random combination of all symbols held to the front of `symbol` and returns its length, which
    /// is [`recoded_len`](Self::recoded_len). `coefficients` receives its coding vector: one coefficient for
    /// each symbol of the generation, never all 0. It costs one multiply-accumulate per symbol held.
    ///
    /// The multipliers are drawn from `key`. Use each key once for a generation. Relays that work side by
    /// side must use different keys (for example a packet number and a number of the relay), or they may send
    /// the same symbol.
    ///
    /// # Errors
    /// Nothing is held, the length of `coefficients` is not that of the generation, or `symbol` is too short.
    /// Neither is changed then.
    pub fn write_recoded(&self, key: u64, coefficients: &mut [u8], symbol: &mut [u8]) -> Result<usize, RecodeError> {
        if self.rank() == 0 {
            return Err(RecodeError::NothingHeld);
        }
        if coefficients.len() != usize::from(self.count) {
            return Err(RecodeError::WrongCoefficients { len: coefficients.len(), count: self.count });
        }
        let (len, needed) = (symbol.len(), self.recoded_len());
        let symbol = symbol.get_mut(..needed).ok_or(RecodeError::OutputTooShort { len, needed })?;
        // The vectors are independent and no multiplier is 0, so the sum is not 0 either.
        let terms = || (0..self.rank().into()).zip(multipliers(key));
        coefficients.fill(0);
        self.vectors.mix(coefficients, terms());
        symbol.fill(0);
        self.symbols.mix(symbol, terms());
        Ok(needed)
    }

    /// Keeps a combination of the source symbols from `first` on if it is innovative.
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
        let slot = u64::from(self.rank());
        if !self.echelon.insert(at, row) {
            return Ok(Reception::Redundant);
        }
        self.vectors.write(slot, self.echelon.inserted());
        self.symbols.write(slot, symbol);
        Ok(Reception::Innovative)
    }

    /// The index in the generation at which a coding vector of `count` coefficients begins.
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
}
