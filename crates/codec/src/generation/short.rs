//! Decoding a closed generation of short symbols while it arrives.
//!
//! A [`Rank`] eliminates the coefficients of each repair symbol on arrival. If symbols are short, eliminating
//! their bytes in the same rows adds little work. When the generation is recovered, the rows are the lost
//! symbols, and no plan is needed. The store of a lane in generations uses this decoder.
//!
//! Invariant: the payload of a row is its pivot symbol plus the symbols of its free columns, each times its
//! coefficient.

use alloc::vec::Vec;

use super::{Generation, GenerationError, Rank};

/// Decodes a closed generation of short symbols while they arrive. It gives the same bytes as a
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
    /// Whether repair symbols of `len` bytes are short enough for this decoder to cost less than a plan if
    /// most symbols are lost: at most a quarter of the bytes of the generation's coefficients. Never for
    /// `RsFft`, which has no rows.
    pub fn is_for(generation: Generation, len: usize) -> bool {
        let element = if generation.code().is_over_gf256() { 1 } else { 2 };
        let has_rows = !generation.code().is_rs_fft();
        has_rows && generation.check_len(len).is_ok() && 4 * len <= element * usize::from(generation.count())
    }

    /// An empty decoder for a generation whose repair symbols have `len` bytes.
    ///
    /// # Errors
    /// `len` is 0 or, over GF(2^16), odd; or the code has no rows (`RsFft`).
    pub fn new(generation: Generation, len: usize) -> Result<Self, GenerationError> {
        let code = generation.code();
        if code.is_rs_fft() {
            return Err(GenerationError::NoRows { code });
        }
        generation.check_len(len)?;
        let element = if generation.code().is_over_gf256() { 1 } else { 2 };
        let mut rank = Rank::with_payload(generation, len / element);
        // An empty rank accepts the length of its own generation, so this cannot fail.
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

    /// Takes the repair symbol with this key over the whole generation. Returns whether it raised the rank.
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

    /// Whether the received symbols determine all symbols of the generation.
    pub fn is_recovered(&self) -> bool {
        self.rank.is_recovered()
    }

    /// The decoded symbols with their indices. Empty until the generation [is recovered](Self::is_recovered).
    /// All have the length of a repair symbol.
    pub fn decoded(&self) -> impl Iterator<Item = (u16, Vec<u8>)> {
        self.is_recovered().then(|| self.rank.decoded()).into_iter().flatten()
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.rank.memory() + self.sources.capacity()
    }
}
