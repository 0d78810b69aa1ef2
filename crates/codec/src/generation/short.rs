//! Decoding a closed generation of short symbols while it arrives.
//!
//! A [`Rank`] eliminates the coefficients of each repair symbol when it comes. Where symbols are short, their
//! bytes go along for little: they stand in the same rows, before the coefficients. When the rank suffices
//! the lost symbols are there, and neither a plan is made nor applied. The store of a lane in generations
//! uses it.
//!
//! Invariant: the sum of a row's pivot and of its free columns, each times its coefficient, is the payload of
//! the row.

use alloc::vec::Vec;

use super::{Generation, GenerationError, Rank};

/// Decodes a closed generation of short symbols while they arrive. The bytes are those of a
/// [`DecodePlan`](crate::DecodePlan).
///
/// ```
/// use tidewire_codec::{Code, Generation, ShortDecoder};
///
/// let sources = [b"the tide", b"comes in", b"goes out"];
/// let generation = Generation::new(Code::Rlc16, 3)?;
/// let mut repairs = [[0; 8]; 2];
/// generation.encode(&sources, 0, &mut repairs)?;
///
/// let mut decoder = ShortDecoder::new(generation, 8)?;
/// decoder.add_repair(0, &repairs[0])?;
/// decoder.add_source(1, sources[1])?;
/// assert!(!decoder.is_recovered());
/// decoder.add_repair(1, &repairs[1])?;
/// assert!(decoder.is_recovered());
/// let mut decoded: Vec<_> = decoder.decoded().collect();
/// decoded.sort();
/// assert_eq!(decoded, [(0, sources[0].to_vec()), (2, sources[2].to_vec())]);
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
///
/// Memory is that of [`Rank`], plus the bytes of all source symbols and those of the rows.
#[derive(Clone, Debug)]
pub struct ShortDecoder {
    rank: Rank,
    /// Bytes of a repair symbol.
    len: usize,
    /// Source symbols that arrived, at their places, padded with zeros.
    sources: Vec<u8>,
}

impl ShortDecoder {
    /// Whether it is cheaper than a plan for repair symbols of `len` bytes. It does as many products with
    /// payloads as a plan, but in smaller pieces, and saves those with coefficients.
    pub fn is_for(generation: Generation, len: usize) -> bool {
        let element = if generation.code().is_over_gf256() { 1 } else { 2 };
        generation.check_len(len).is_ok() && 4 * len <= element * usize::from(generation.count())
    }

    /// Nothing received of a generation whose repair symbols have `len` bytes.
    ///
    /// # Errors
    /// `len` is 0 or, over GF(2^16), odd.
    pub fn new(generation: Generation, len: usize) -> Result<Self, GenerationError> {
        generation.check_len(len)?;
        let element = if generation.code().is_over_gf256() { 1 } else { 2 };
        let mut rank = Rank::with_payload(generation, len / element);
        // A generation can always end with its own length before anything was received.
        let _ = rank.end(generation.count());
        Ok(Self { rank, len, sources: Vec::new() })
    }

    /// Takes a source symbol, by its index from 0 within the generation. Returns whether it raised the rank.
    ///
    /// # Errors
    /// The index is outside the generation, or the symbol is longer than a repair symbol. Nothing is changed.
    pub fn add_source(&mut self, index: u16, symbol: &[u8]) -> Result<bool, GenerationError> {
        let (at, count) = (usize::from(index), usize::from(self.rank.count()));
        if at >= count {
            return Err(GenerationError::SourceCount { given: at + 1, expected: count });
        }
        if symbol.len() > self.len {
            return Err(GenerationError::SourceTooLong { index: at, len: symbol.len(), limit: self.len });
        }
        self.sources.resize(count * self.len, 0);
        let place = &mut self.sources[at * self.len..][..self.len];
        place[..symbol.len()].copy_from_slice(symbol);
        Ok(self.rank.take_source(index, place).unwrap_or_default())
    }

    /// Takes the repair symbol of this key over the whole generation. Returns whether it raised the rank.
    ///
    /// # Errors
    /// The code has no such repair symbol, or it has another length. Nothing is changed.
    pub fn add_repair(&mut self, key: u16, symbol: &[u8]) -> Result<bool, GenerationError> {
        let generation = self.rank.longest();
        generation.code().check(generation.repair_id(key))?;
        if symbol.len() != self.len {
            return Err(GenerationError::RepairLen { index: key.into(), len: symbol.len(), expected: self.len });
        }
        Ok(self.rank.take_repair(generation.count(), key, symbol, &self.sources).unwrap_or_default())
    }

    /// Whether what was received determines all symbols.
    pub fn is_recovered(&self) -> bool {
        self.rank.is_recovered()
    }

    /// The symbols that did not arrive, by their index, once the generation [is
    /// recovered](Self::is_recovered); before that none. All have the length of a repair symbol.
    pub fn decoded(&self) -> impl Iterator<Item = (u16, Vec<u8>)> {
        self.is_recovered().then(|| self.rank.decoded()).into_iter().flatten()
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.rank.memory() + self.sources.capacity()
    }
}
