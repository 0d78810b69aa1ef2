//! Decoding of sparse codes by peeling: a repair symbol all but one of whose neighbours are known gives the
//! last one, which may do the same for other repair symbols.
//!
//! A caller that holds a generation of [`Code::Lt`](crate::Code::Lt) or
//! [`Code::SemiRandomLt`](crate::Code::SemiRandomLt) passes in each symbol as it arrives. Peeling takes
//! one XOR for each neighbour of each repair symbol, where elimination takes a sum over all symbols for
//! each lost one. But peeling can be stuck although the received symbols determine all others.
//! [`Elimination::WhenStuck`] then solves for the rest, once, as soon as the rank suffices.
//!
//! Invariant: the payload of an equation is the sum of its unknown symbols, whose number and XOR of
//! indices it holds. `bits.rs` has the rank and the elimination over GF(2).

mod bits;

use alloc::vec;
use alloc::vec::Vec;

use super::{Generation, GenerationError};
use crate::kernel::Kernel;
use crate::neighbours::Degrees;
use bits::{Echelon, Matrix};

/// What a [`PeelingDecoder`] does when peeling is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Elimination {
    /// It waits for more symbols, as an LT decoder does.
    Never,
    /// It counts the rank, and decodes all symbols as soon as the received ones determine them.
    WhenStuck,
}

/// Decodes a generation of a sparse code while its symbols arrive.
///
/// ```
/// use tidewire_codec::{Code, Elimination, Generation, PeelingDecoder};
///
/// let sources = [b"the tide", b"comes in", b"goes out"];
/// let generation = Generation::new(Code::SemiRandomLt { degree: 2 }, 3)?;
/// let mut repairs = [[0; 8]; 4];
/// generation.encode(&sources, 0, &mut repairs)?;
///
/// let mut decoder = PeelingDecoder::new(generation, 8, Elimination::WhenStuck)?;
/// decoder.add_source(1, sources[1])?;
/// for (key, repair) in (0..).zip(&repairs) {
///     decoder.add_repair(key, repair)?;
/// }
/// assert!(decoder.is_recovered());
/// assert_eq!(decoder.symbol(2), Some(&sources[2][..]));
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
///
/// Memory for a generation of `k` symbols of L bytes: the known source symbols, the repair symbols that are
/// held with L + 8 bytes and 4 bytes for each neighbour, 64 bytes for each source symbol, and `k^2 / 8`
/// bytes for the rank. With [`Elimination::WhenStuck`] at most `k` repair symbols are held, with
/// [`Elimination::Never`] at most `4 k`; further ones are ignored. A caller that takes the length of a
/// generation from a peer must limit it.
///
/// Work: a repair symbol costs one XOR of symbols for each neighbour and, with [`Elimination::WhenStuck`], a
/// reduction of `k` bits by at most `k` rows. The elimination, at most once, takes at most `u^2` XORs of
/// symbols for `u` unknown ones.
#[derive(Clone, Debug)]
pub struct PeelingDecoder {
    generation: Generation,
    degrees: Degrees,
    /// Bytes of a repair symbol.
    len: usize,
    /// Source symbols at their places, padded with zeros; empty while unknown, so that memory follows what
    /// arrived.
    symbols: Vec<Vec<u8>>,
    is_known: Vec<bool>,
    /// Number of known source symbols.
    known: u16,
    /// Number of those that repair symbols gave.
    revealed: u16,
    equations: Vec<Equation>,
    /// Payloads of the equations, one after the other.
    payloads: Vec<u8>,
    /// The equations that mixed each source symbol when they arrived. Empty for symbols that were known.
    mixed_in: Vec<Vec<u32>>,
    /// Known symbols that the equations still mix. Empty between calls.
    ripple: Vec<u16>,
    /// What is received, over all source symbols. `None` if the decoder only peels.
    echelon: Option<Echelon>,
}

/// A received repair symbol.
#[derive(Clone, Copy, Debug)]
struct Equation {
    key: u16,
    /// Number of its unknown symbols.
    unknown: u16,
    /// XOR of their indices: the index of the last one.
    indices: u16,
}

impl PeelingDecoder {
    /// An empty decoder for a generation whose repair symbols have `len` bytes.
    ///
    /// # Errors
    /// The code is not sparse, or `len` is 0.
    pub fn new(generation: Generation, len: usize, elimination: Elimination) -> Result<Self, GenerationError> {
        let code = generation.code();
        let degrees = code.degrees(generation.count()).ok_or(GenerationError::NotSparse { code })?;
        generation.check_len(len)?;
        let count = usize::from(generation.count());
        Ok(Self {
            generation,
            degrees,
            len,
            symbols: vec![Vec::new(); count],
            is_known: vec![false; count],
            known: 0,
            revealed: 0,
            equations: Vec::new(),
            payloads: Vec::new(),
            mixed_in: vec![Vec::new(); count],
            ripple: Vec::new(),
            echelon: (elimination == Elimination::WhenStuck).then(|| Echelon::new(count)),
        })
    }

    /// Takes a source symbol, by its index from 0 within the generation. Returns whether it was of use: it
    /// was unknown or, with [`Elimination::WhenStuck`], it raised the rank.
    ///
    /// # Errors
    /// The index is outside the generation, or the symbol is longer than a repair symbol. Nothing is changed.
    pub fn add_source(&mut self, index: u16, symbol: &[u8]) -> Result<bool, GenerationError> {
        let (at, expected) = (usize::from(index), self.is_known.len());
        if at >= expected {
            return Err(GenerationError::SourceCount { given: at + 1, expected });
        }
        if symbol.len() > self.len {
            return Err(GenerationError::SourceTooLong { index: at, len: symbol.len(), limit: self.len });
        }
        if self.is_known[at] {
            return Ok(false);
        }
        let is_innovative = self.echelon.as_mut().is_none_or(|echelon| echelon.add([index].into_iter()));
        let mut padded = Vec::with_capacity(self.len);
        padded.extend_from_slice(symbol);
        padded.resize(self.len, 0);
        self.symbols[at] = padded;
        self.learn(index);
        self.peel();
        self.eliminate();
        Ok(is_innovative)
    }

    /// Takes the repair symbol with this key over the whole generation. Returns whether it was of use: it
    /// was kept because it mixes unknown symbols and, with [`Elimination::WhenStuck`], because it raised
    /// the rank.
    ///
    /// # Errors
    /// The code has no such repair symbol, or it has another length. Nothing is changed.
    pub fn add_repair(&mut self, key: u16, symbol: &[u8]) -> Result<bool, GenerationError> {
        let id = self.generation.repair_id(key);
        self.generation.code().check(id)?;
        if symbol.len() != self.len {
            return Err(GenerationError::RepairLen { index: key.into(), len: symbol.len(), expected: self.len });
        }
        let neighbours = self.degrees.neighbours(id);
        if neighbours.clone().all(|index| self.is_known[usize::from(index)]) {
            return Ok(false);
        }
        let is_kept = match &mut self.echelon {
            Some(echelon) => echelon.add(neighbours.clone()),
            None => self.equations.len() < MOST_EQUATIONS * self.is_known.len(),
        };
        if is_kept {
            self.keep(key, symbol, neighbours);
            self.peel();
            self.eliminate();
        }
        Ok(is_kept)
    }

    /// The generation that it decodes.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// A source symbol that arrived or is decoded, padded with zeros to the length of a repair symbol.
    pub fn symbol(&self, index: u16) -> Option<&[u8]> {
        let at = usize::from(index);
        self.is_known.get(at)?.then(|| &self.symbols[at][..])
    }

    /// Number of source symbols that arrived or are decoded.
    pub fn known(&self) -> u16 {
        self.known
    }

    /// Number of further symbols that it needs: of independent ones with [`Elimination::WhenStuck`],
    /// otherwise of source symbols, since a decoder that only peels cannot tell what its repair symbols are
    /// worth.
    pub fn deficit(&self) -> u16 {
        let count = self.generation.count();
        self.echelon.as_ref().map_or(count - self.known, |echelon| count - echelon.rank() as u16)
    }

    /// Number of repair symbols that it keeps and that gave no source symbol yet.
    pub fn pending(&self) -> usize {
        self.equations.len().saturating_sub(self.revealed.into())
    }

    /// Whether all source symbols are known.
    pub fn is_recovered(&self) -> bool {
        self.known == self.generation.count()
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        let edges = self.mixed_in.iter().map(|edges| size_of::<Vec<u32>>() + edges.capacity() * size_of::<u32>());
        let small = self.is_known.capacity() + self.ripple.capacity() * size_of::<u16>();
        let equations = self.equations.capacity() * size_of::<Equation>() + self.payloads.capacity();
        let symbols = self.symbols.capacity() * size_of::<Vec<u8>>() + usize::from(self.known) * self.len;
        symbols + small + equations + edges.sum::<usize>() + self.echelon.as_ref().map_or(0, Echelon::memory)
    }

    /// Makes an equation of a repair symbol that mixes unknown symbols. It is of use at once if it mixes one.
    fn keep(&mut self, key: u16, symbol: &[u8], neighbours: impl Iterator<Item = u16>) {
        let place = self.equations.len() as u32;
        let begin = self.payloads.len();
        self.payloads.extend_from_slice(symbol);
        let mut equation = Equation { key, unknown: 0, indices: 0 };
        for index in neighbours {
            let at = usize::from(index);
            if self.is_known[at] {
                Kernel::active().xor(&mut self.payloads[begin..], &self.symbols[at]);
            } else {
                equation.unknown += 1;
                equation.indices ^= index;
                self.mixed_in[at].push(place);
            }
        }
        self.equations.push(equation);
        if equation.unknown == 1 {
            self.release(place as usize);
        }
    }

    /// Takes the last unknown symbol from an equation that mixes one.
    fn release(&mut self, place: usize) {
        let index = self.equations[place].indices;
        if !self.is_known[usize::from(index)] {
            self.symbols[usize::from(index)] = self.payloads[place * self.len..][..self.len].to_vec();
            self.revealed += 1;
            self.learn(index);
        }
    }

    /// Marks a symbol whose bytes are in place.
    fn learn(&mut self, index: u16) {
        self.is_known[usize::from(index)] = true;
        self.known += 1;
        self.ripple.push(index);
    }

    /// Takes known symbols out of all equations until no equation gives another one.
    fn peel(&mut self) {
        while let Some(index) = self.ripple.pop() {
            let at = usize::from(index);
            for place in core::mem::take(&mut self.mixed_in[at]) {
                let place = place as usize;
                let equation = &mut self.equations[place];
                equation.unknown -= 1;
                equation.indices ^= index;
                let unknown = equation.unknown;
                if unknown > 0 {
                    let payload = &mut self.payloads[place * self.len..][..self.len];
                    Kernel::active().xor(payload, &self.symbols[at]);
                }
                if unknown == 1 {
                    self.release(place);
                }
            }
        }
    }

    /// Solves for the unknown symbols if what was received determines them.
    fn eliminate(&mut self) {
        let count = usize::from(self.generation.count());
        if self.is_recovered() || self.echelon.as_ref().is_none_or(|echelon| echelon.rank() < count) {
            return;
        }
        let unknown: Vec<u16> = (0..self.generation.count()).filter(|&i| !self.is_known[usize::from(i)]).collect();
        let mut matrix = Matrix::new(unknown.len());
        for (place, equation) in self.equations.iter().enumerate().filter(|(_, equation)| equation.unknown > 0) {
            let neighbours = self.degrees.neighbours(self.generation.repair_id(equation.key));
            matrix.push(place, neighbours.filter_map(|index| unknown.binary_search(&index).ok()));
        }
        let (len, payloads) = (self.len, &mut self.payloads);
        let solution = matrix.solve(|to, from| xor_within(payloads, len, to, from));
        for (index, place) in unknown.into_iter().zip(solution) {
            self.symbols[usize::from(index)] = self.payloads[place * self.len..][..self.len].to_vec();
            self.is_known[usize::from(index)] = true;
            self.known += 1;
            self.revealed += 1;
        }
    }
}

/// Adds payload `from` to payload `to`, which is another one.
fn xor_within(payloads: &mut [u8], len: usize, to: usize, from: usize) {
    let (first, second) = payloads.split_at_mut(to.max(from) * len);
    let (low, high) = (&mut first[to.min(from) * len..][..len], &mut second[..len]);
    if to < from { Kernel::active().xor(low, high) } else { Kernel::active().xor(high, low) }
}

/// Repair symbols held per source symbol by a decoder that only peels. Chosen: an LT code of 100 symbols
/// took at most 2.7 packets per source symbol in 10,000 runs (`examples/sparse.rs`).
const MOST_EQUATIONS: usize = 4;
