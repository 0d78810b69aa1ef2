//! How to decode lost symbols: coefficients computed from symbol names alone, then applied to bytes.
//!
//! If `m` of `k` source symbols are lost, `m` repair symbols give `m` equations. The plan inverts the `m x m`
//! matrix of the lost symbols' coefficients and multiplies the inverse by the other coefficients. Then each
//! lost symbol is one sum over `k` symbols: the received source symbols, and one repair symbol in the place
//! of each lost one. Applying the plan takes `m * k` products, the minimum, four lost symbols per pass.
//! Invariant: a plan always belongs to a pattern of losses that it can decode. A failed renewal leaves the
//! previous plan in place.

use alloc::vec::Vec;

use super::inverse::Inverse;
#[cfg(feature = "raptorq")]
use super::raptorq;
use super::row::{RowField, get, set};
#[cfg(feature = "rs-fft")]
use super::rs_fft::Interpolation;
use super::{Generation, GenerationError, PlanError, check_not_longer, one_length};
#[cfg(feature = "raptorq")]
use crate::Code;
use crate::RepairId;
use crate::kernel::LINE;
use crate::mix::{Gf256, Gf65536, combine, combine_piece};

/// How to decode one pattern of losses in a generation, in any number of stripes. Made by
/// [`Generation::plan`].
///
/// A plan for `m` lost symbols of `k` holds about `2 * m * k + m * m` coefficients, with rows rounded up to
/// 64. A coefficient has one byte, or two over GF(2^16). The plan keeps its memory: a renewal allocates
/// nothing if losses, keys and generation are not larger than before. A plan under `RsFft` holds 12 bytes for
/// each symbol instead, and decoding copies all symbols to memory that it allocates. Under `RaptorQ`
/// decoding does so if many symbols are lost.
#[derive(Debug)]
pub struct DecodePlan {
    generation: Generation,
    lost: Vec<u16>,
    /// Number of repair symbols that the caller offered.
    offered: usize,
    /// The symbol that each column multiplies. Numbers below `count` are source symbols, others are repair
    /// symbols.
    columns: Vec<u32>,
    /// The coefficients of each lost symbol, one row after the other.
    matrix: Vec<u8>,
    /// What stands in the place of the matrix under `RsFft`.
    #[cfg(feature = "rs-fft")]
    interpolation: Interpolation,
    /// Under `RaptorQ`: the keys of the offered repair symbols, if all mix the whole generation.
    #[cfg(feature = "raptorq")]
    keys: Vec<u16>,
    scratch: Scratch,
}

/// Buffers used only while a plan is made. They are kept to avoid allocation.
#[derive(Debug, Default)]
struct Scratch {
    sorted: Vec<u32>,
    inverse: Inverse,
    /// For each used repair symbol: its index, and the index of the lost symbol whose place it takes.
    chosen: Vec<(u32, usize)>,
    /// One row for each lost symbol: the coefficients of the repair symbol in its place. The columns of lost
    /// symbols hold the coefficients of the repair symbols themselves. One extra row holds the next
    /// candidate.
    known: Vec<u8>,
}

impl DecodePlan {
    /// A plan that decodes nothing and allocates nothing. [Renew](Self::renew) it later.
    pub fn nothing_lost(generation: Generation) -> Self {
        let (lost, columns, matrix) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            generation,
            lost,
            offered: 0,
            columns,
            matrix,
            #[cfg(feature = "rs-fft")]
            interpolation: Interpolation::default(),
            #[cfg(feature = "raptorq")]
            keys: Vec::new(),
            scratch: Scratch::default(),
        }
    }

    /// Replaces the plan by one for another pattern of losses, possibly in another generation. `lost` are the
    /// indices of the source symbols to decode, counted from 0 within the generation. `keys` name the repair
    /// symbols to use. Both may be in any order. All other source symbols must be present.
    ///
    /// # Errors
    /// A lost symbol is outside the generation. A lost symbol or a key is named twice. The code has no repair
    /// symbol with such a key. There are too few independent repair symbols; the error says how many more are
    /// needed. The plan is unchanged.
    pub fn renew(&mut self, generation: Generation, lost: &[u16], keys: &[u16]) -> Result<(), PlanError> {
        self.renew_by(generation, lost, keys.iter().map(|&key| generation.repair_id(key)))
    }

    /// Like [`renew`](Self::renew), with repair symbols that may mix only the first symbols of the
    /// generation. All spans begin with its first symbol.
    ///
    /// # Errors
    /// As [`renew`](Self::renew). A repair symbol begins elsewhere or mixes symbols beyond the end of the
    /// generation, or, under `RsFft`, not all of its symbols.
    pub fn renew_from(&mut self, generation: Generation, lost: &[u16], repairs: &[RepairId]) -> Result<(), PlanError> {
        let (first, count) = (generation.first(), generation.count());
        let is_whole = generation.code().is_rs_fft();
        let is_outside =
            |repair: &RepairId| repair.first != first || repair.count > count || is_whole && repair.count != count;
        if let Some(&repair) = repairs.iter().find(|repair| is_outside(repair)) {
            return Err(PlanError::RepairOutside { repair, first, count });
        }
        self.renew_by(generation, lost, repairs.iter().copied())
    }

    fn renew_by(
        &mut self,
        generation: Generation,
        lost: &[u16],
        repairs: impl ExactSizeIterator<Item = RepairId> + Clone,
    ) -> Result<(), PlanError> {
        let count = generation.count();
        if let Some(&index) = lost.iter().find(|&&index| index >= count) {
            return Err(PlanError::LostOutside { index, count });
        }
        for repair in repairs.clone() {
            generation.code().check(repair)?;
        }
        if let Some(index) = self.scratch.first_twice(lost.iter().map(|&index| index.into())) {
            return Err(PlanError::LostTwice { index: index as u16 });
        }
        let names = repairs.clone().map(|RepairId { count, key, .. }| u32::from(count) << 16 | u32::from(key));
        if let Some(name) = self.scratch.first_twice(names) {
            return Err(PlanError::KeyTwice { key: name as u16 });
        }
        #[cfg(feature = "rs-fft")]
        if generation.code().is_rs_fft() {
            return self.renew_rs_fft(generation, lost, repairs);
        }
        if generation.code().is_over_gf256() {
            self.renew_in::<Gf256>(generation, lost, repairs)
        } else {
            self.renew_in::<Gf65536>(generation, lost, repairs)
        }
    }

    fn renew_in<F: RowField>(
        &mut self,
        generation: Generation,
        lost: &[u16],
        repairs: impl ExactSizeIterator<Item = RepairId> + Clone,
    ) -> Result<(), PlanError> {
        let (count, offered) = (u32::from(generation.count()), repairs.len());
        self.scratch.choose::<F>(generation, lost, repairs.clone())?;
        #[cfg(feature = "raptorq")]
        {
            self.keys.clear();
            let are_whole = repairs.clone().all(|repair| repair.count == generation.count());
            if generation.code() == Code::RaptorQ && are_whole {
                self.keys.extend(repairs.map(|repair| repair.key));
            }
        }

        self.generation = generation;
        self.lost.clear();
        self.lost.extend_from_slice(lost);
        self.offered = offered;
        self.columns.clear();
        self.columns.extend(0..count);
        for &(repair, place) in &self.scratch.chosen {
            self.columns[usize::from(lost[place])] = count + repair;
        }
        self.scratch.solve::<F>(lost.len(), width(generation), &mut self.matrix);
        Ok(())
    }

    /// Any repair symbols do, so the plan uses the first ones.
    #[cfg(feature = "rs-fft")]
    fn renew_rs_fft(
        &mut self,
        generation: Generation,
        lost: &[u16],
        repairs: impl ExactSizeIterator<Item = RepairId>,
    ) -> Result<(), PlanError> {
        let (count, offered) = (u32::from(generation.count()), repairs.len());
        if offered < lost.len() {
            return Err(PlanError::Deficit { lost: lost.len(), offered, deficit: lost.len() - offered });
        }
        self.generation = generation;
        self.lost.clear();
        self.lost.extend_from_slice(lost);
        self.offered = offered;
        self.columns.clear();
        self.columns.extend(0..count);
        for (repair, &index) in (count..).zip(lost) {
            self.columns[usize::from(index)] = repair;
        }
        if !lost.is_empty() {
            self.interpolation.renew(generation.count(), lost, repairs.map(|repair| repair.key));
        }
        Ok(())
    }

    /// The generation of this plan.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The indices of the source symbols that it decodes, in the order given.
    pub fn lost(&self) -> &[u16] {
        &self.lost
    }

    /// The repair symbols that it uses, as indices into the given `keys`. There is one for each lost symbol.
    pub fn used(&self) -> impl Iterator<Item = usize> {
        let count = u32::from(self.generation.count());
        self.columns.iter().filter_map(move |column| column.checked_sub(count)).map(|repair| repair as usize)
    }

    /// Writes the lost symbols to `decoded`, in the order of [`lost`](Self::lost).
    ///
    /// `sources` has a place for each symbol of the generation; those of lost symbols are ignored. `repairs`
    /// has a place for each key of the plan; only the [used](Self::used) ones are read. Repair and decoded
    /// symbols have one length, and no source symbol is longer. Shorter source symbols count as padded with
    /// zeros. A decoded symbol that was shorter ends in zeros.
    ///
    /// # Errors
    /// The number of symbols does not match the plan, or lengths contradict each other or are 0. Then nothing
    /// is written.
    pub fn decode<S: AsRef<[u8]>, R: AsRef<[u8]>, D: AsMut<[u8]>>(
        &self,
        sources: &[S],
        repairs: &[R],
        decoded: &mut [D],
    ) -> Result<(), GenerationError> {
        let count = usize::from(self.generation.count());
        if sources.len() != count {
            return Err(GenerationError::SourceCount { given: sources.len(), expected: count });
        }
        if repairs.len() != self.offered {
            return Err(GenerationError::RepairCount { given: repairs.len(), expected: self.offered });
        }
        if decoded.len() != self.lost.len() {
            return Err(GenerationError::DecodedCount { given: decoded.len(), expected: self.lost.len() });
        }
        let one_length = one_length(decoded);
        let len = match one_length {
            Ok(None) => return Ok(()),
            Ok(Some(len)) => len,
            Err((index, len, expected)) => return Err(GenerationError::DecodedLen { index, len, expected }),
        };
        self.generation.check_len(len)?;
        let there = self.columns.iter().map(|&column| column as usize).filter(|&column| column < count);
        check_not_longer(there.map(|index| (index, sources[index].as_ref())), len)?;
        if let Some((index, repair)) =
            self.used().map(|index| (index, repairs[index].as_ref())).find(|(_, repair)| repair.len() != len)
        {
            return Err(GenerationError::RepairLen { index, len: repair.len(), expected: len });
        }

        let symbols = self.columns.iter().map(|&column| match (column as usize).checked_sub(count) {
            None => sources[column as usize].as_ref(),
            Some(repair) => repairs[repair].as_ref(),
        });
        #[cfg(feature = "rs-fft")]
        if self.generation.code().is_rs_fft() {
            self.interpolation.decode(&self.lost, symbols, decoded, len);
            return Ok(());
        }
        #[cfg(feature = "raptorq")]
        if self.generation.code() == Code::RaptorQ && self.keys.len() == self.offered {
            let id = |column: u32| match (column as usize).checked_sub(count) {
                None => column,
                Some(repair) => count as u32 + u32::from(self.keys[repair]),
            };
            let symbols = self.columns.iter().map(|&column| id(column)).zip(symbols.clone());
            if raptorq::decode(count, &self.lost, symbols, decoded, len) {
                return Ok(());
            }
        }
        if self.generation.code().is_over_gf256() {
            combine::<Gf256, _, _, _>(decoded, len, symbols, |row| self.row::<Gf256>(row));
        } else {
            combine::<Gf65536, _, _, _>(decoded, len, symbols, |row| self.row::<Gf65536>(row));
        }
        Ok(())
    }

    /// The coefficients of a lost symbol, and then zeros up to whole lines.
    fn row<F: RowField>(&self, row: usize) -> F::Source<'_> {
        let width = width(self.generation);
        let len = width * F::BYTES;
        F::source(&self.matrix[row * len..][..len], len, &(0..width))
    }
}

/// Number of coefficients in a row over a generation, padding included.
fn width(generation: Generation) -> usize {
    usize::from(generation.count()).next_multiple_of(LINE)
}

impl Scratch {
    /// The lowest number that occurs twice.
    fn first_twice(&mut self, numbers: impl Iterator<Item = u32>) -> Option<u32> {
        self.sorted.clear();
        self.sorted.extend(numbers);
        self.sorted.sort_unstable();
        self.sorted.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
    }

    /// Takes repair symbols until there is an independent one for each lost symbol. Fills `chosen`, `known`
    /// and the inverse.
    fn choose<F: RowField>(
        &mut self,
        generation: Generation,
        lost: &[u16],
        repairs: impl ExactSizeIterator<Item = RepairId>,
    ) -> Result<(), PlanError> {
        let len = width(generation) * F::BYTES;
        let offered = repairs.len();
        self.chosen.clear();
        self.known.clear();
        self.known.resize((lost.len() + 1) * len, 0);
        self.inverse.reset::<F>(lost.len());
        for (repair, id) in repairs.enumerate() {
            if self.chosen.len() == lost.len() {
                break;
            }
            let row = &mut self.known[lost.len() * len..];
            F::write(row, generation.code(), id);
            if let Some(place) = self.inverse.take::<F>(lost.iter().map(|&index| get::<F>(row, index.into()))) {
                lost.iter().for_each(|&index| set::<F>(row, index.into(), 0));
                set::<F>(row, lost[place].into(), 1);
                self.known.copy_within(lost.len() * len.., place * len);
                self.chosen.push((repair as u32, place));
            }
        }
        match lost.len() - self.chosen.len() {
            0 => Ok(()),
            deficit => Err(PlanError::Deficit { lost: lost.len(), offered, deficit }),
        }
    }

    /// Computes the coefficients of the lost symbols: the inverse times `known`.
    fn solve<F: RowField>(&self, lost: usize, width: usize, matrix: &mut Vec<u8>) {
        let len = width * F::BYTES;
        matrix.resize(lost * len, 0);
        let all = 0..width;
        let known = self.known[..lost * len].chunks_exact(len).map(|row| F::source(row, len, &all));
        let rows = matrix.chunks_exact_mut(len).map(|row| F::out(row, &all));
        combine_piece::<F, _, _>(rows, known, |row| self.inverse.row::<F>(row));
    }
}
