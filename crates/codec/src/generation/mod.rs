//! Block codes: any `m` repair symbols of a generation recover any `m` of its lost symbols.
//!
//! This module is for callers that hold all symbols of a block in their own memory: erasure-coded storage,
//! multicast, the closed generations of a transport. A [`Generation`] is a closed span of source symbols
//! under a code, and encodes them. A [`DecodePlan`] computes the lost symbols from the others. Both work on
//! the caller's slices, at any alignment, and keep no copy.
//!
//! ```
//! use tidewire_codec::{Code, Generation};
//!
//! let sources = [b"the tide", b"comes in", b"goes out"];
//! let generation = Generation::new(Code::Cauchy, 3)?;
//! let mut repairs = [[0; 8]; 2];
//! generation.encode(&sources, 0, &mut repairs)?; // the repair symbols with keys 0 and 1
//!
//! // The first two symbols are lost: say so, and which repair symbols are there.
//! let plan = generation.plan(&[0, 1], &[0, 1])?;
//! let mut decoded = [[0; 8]; 2];
//! plan.decode(&[&[], &[], &sources[2][..]], &repairs, &mut decoded)?;
//! assert_eq!([&decoded[0], &decoded[1]], [b"the tide", b"comes in"]);
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
//!
//! Decoding has two steps, because the result of the first can often be reused: the coefficients depend on
//! which symbols are lost, not on their bytes. For example, a failed disk loses the same symbol of every
//! stripe:
//!
//! ```
//! use tidewire_codec::{Code, Generation};
//!
//! // Eight stripes of ten symbols over ten disks, and four disks of repair symbols.
//! let stripes: Vec<Vec<[u8; 512]>> = (0..8).map(|n| (0..10).map(|k| [10 * n + k; 512]).collect()).collect();
//! let generation = Generation::new(Code::Cauchy, 10)?;
//! let mut repairs = vec![vec![[0; 512]; 4]; 8];
//! for (stripe, repairs) in stripes.iter().zip(&mut repairs) {
//!     generation.encode(stripe, 0, repairs)?;
//! }
//!
//! // Disks 3 and 7 fail, and the first two disks of repair symbols: one plan for all stripes.
//! let plan = generation.plan(&[3, 7], &[2, 3])?;
//! for (stripe, repairs) in stripes.iter().zip(&repairs) {
//!     let mut decoded = [[0; 512]; 2];
//!     plan.decode(stripe, &repairs[2..], &mut decoded)?; // what stands at 3 and 7 is not looked at
//!     assert_eq!(decoded, [stripe[3], stripe[7]]);
//! }
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
//!
//! A plan keeps its memory when it is [renewed](DecodePlan::renew) for other losses. The repair symbols equal
//! those of [`Encoder`](crate::Encoder) and [`Decoder`](crate::Decoder) with the id
//! [`Generation::repair_id`].

mod error;
mod inverse;
mod peeling;
mod plan;
mod rank;
#[cfg(feature = "raptorq")]
mod raptorq;
mod row;
#[cfg(feature = "rs-fft")]
mod rs_fft;
mod short;

pub use error::{GenerationError, PlanError, RankError};
pub use peeling::{Elimination, PeelingDecoder};
pub use plan::DecodePlan;
pub use rank::Rank;
pub use short::ShortDecoder;

use crate::kernel::Kernel;
use crate::mix::{Gf65536, combine, combine_repairs};
use crate::{Code, RepairId, SourceId, SpanError};

/// A closed span of source symbols under a code. Its symbols have indices from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Generation {
    code: Code,
    first: SourceId,
    count: u16,
}

impl Generation {
    /// The generation of `count` source symbols from id 0.
    ///
    /// # Errors
    /// `count` is 0, or there is no room for a first repair symbol: a Cauchy matrix takes up to 255 source
    /// symbols, `RsFft` up to 32,768, and `RaptorQ` up to 1,024.
    pub fn new(code: Code, count: u16) -> Result<Self, SpanError> {
        Self { code, first: SourceId(0), count }.at(SourceId(0))
    }

    /// The generation of the same length and code that begins at the source id `first`. The coefficients of
    /// [`Code::Rlc`] depend on the ids, so encode and decode with the same ids.
    ///
    /// # Errors
    /// It would run past the last source id.
    pub fn at(self, first: SourceId) -> Result<Self, SpanError> {
        let generation = Self { first, ..self };
        self.code.check(generation.repair_id(0))?;
        Ok(generation)
    }

    /// Its code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Id of its first source symbol.
    pub fn first(&self) -> SourceId {
        self.first
    }

    /// How many source symbols it has.
    pub fn count(&self) -> u16 {
        self.count
    }

    /// The name of a repair symbol of this generation.
    pub fn repair_id(&self, key: u16) -> RepairId {
        RepairId { first: self.first, count: self.count, key }
    }

    /// Writes the repair symbols with the keys `first_key`, `first_key + 1` and so on, one to each output of
    /// `repairs`.
    ///
    /// All repair symbols have one length, and no source symbol is longer. Shorter source symbols count as
    /// padded with zeros, at no cost. The work is one multiply-accumulate for each pair of source and repair
    /// symbol. Four repair symbols share a pass, so multiples of four are most efficient. A sparse code
    /// ([`Code::Lt`], [`Code::SemiRandomLt`]) takes one XOR for each neighbour instead. Nothing is allocated,
    /// except for `RsFft` and `RaptorQ`.
    ///
    /// Over GF(2^16) ([`Code::Rlc16`]) repair symbols have an even length: that of the longest source symbol
    /// or one more. Encoding is fastest if all source symbols have that length too: a batch of 32 symbols
    /// that contains a shorter one takes four products over GF(2^8) instead of three.
    ///
    /// `RsFft` takes either one product for each pair of source and repair symbol or the transforms that
    /// give all keys from `first_key` on, whichever costs less: few repair symbols cost the former. Its
    /// layout ends in a block of its own, so it copies all symbols, to memory that it allocates.
    ///
    /// `RaptorQ` takes the products up to a number of repair symbols that depends on the kernel, and beyond
    /// it the crate, which copies all symbols too.
    ///
    /// # Errors
    /// The number of `sources` is not that of the generation; lengths contradict each other, are 0 or, over
    /// GF(2^16), odd; or the code has no such key. Then nothing is written.
    pub fn encode<S: AsRef<[u8]>, R: AsMut<[u8]>>(
        &self,
        sources: &[S],
        first_key: u16,
        repairs: &mut [R],
    ) -> Result<(), GenerationError> {
        let (given, expected) = (sources.len(), usize::from(self.count));
        if given != expected {
            return Err(GenerationError::SourceCount { given, expected });
        }
        self.code.check_keys(self.repair_id(first_key), repairs.len())?;
        let Some(len) = one_length(repairs).map_err(|(index, len, expected)| GenerationError::RepairLen {
            index,
            len,
            expected,
        })?
        else {
            return Ok(());
        };
        self.check_len(len)?;
        check_not_longer(sources.iter().map(S::as_ref).enumerate(), len)?;
        #[cfg(feature = "rs-fft")]
        if self.code.is_rs_fft() {
            rs_fft::encode(sources, first_key, repairs, len);
            return Ok(());
        }
        #[cfg(feature = "raptorq")]
        if self.code == Code::RaptorQ && raptorq::encode(sources, first_key, repairs, len) {
            return Ok(());
        }
        let symbols = sources.iter().map(S::as_ref);
        let id = |j| self.repair_id(first_key + j as u16);
        if let Some(degrees) = self.code.degrees(self.count) {
            for (j, repair) in repairs.iter_mut().enumerate() {
                let neighbours = degrees.neighbours(id(j));
                xor_all(repair.as_mut(), neighbours.map(|place| sources[usize::from(place)].as_ref()));
            }
        } else if self.code.is_over_gf256() {
            combine_repairs(self.code, id(0), repairs, len, symbols);
        } else {
            combine::<Gf65536, _, _, _>(repairs, len, symbols, |j| self.code.row_16(id(j)));
        }
        Ok(())
    }

    /// Makes the plan to decode the source symbols `lost` from the others and from the repair symbols with
    /// these `keys`, in any order. There may be more keys than losses: the plan uses the first independent
    /// ones, which [`DecodePlan::used`] lists.
    ///
    /// # Errors
    /// As [`DecodePlan::renew`].
    pub fn plan(self, lost: &[u16], keys: &[u16]) -> Result<DecodePlan, PlanError> {
        let mut plan = DecodePlan::nothing_lost(self);
        plan.renew(self, lost, keys)?;
        Ok(plan)
    }

    /// Like [`plan`](Self::plan), with repair symbols that may mix only the first symbols of the generation,
    /// because the sender made them while it was still growing.
    ///
    /// # Errors
    /// As [`DecodePlan::renew_from`].
    pub fn plan_from(self, lost: &[u16], repairs: &[RepairId]) -> Result<DecodePlan, PlanError> {
        let mut plan = DecodePlan::nothing_lost(self);
        plan.renew_from(self, lost, repairs)?;
        Ok(plan)
    }

    /// Whether repair and decoded symbols can be of this length.
    fn check_len(&self, len: usize) -> Result<(), GenerationError> {
        if len == 0 {
            return Err(GenerationError::EmptySymbol);
        }
        if self.code.is_over_gf256() || len.is_multiple_of(2) { Ok(()) } else { Err(GenerationError::OddLen { len }) }
    }
}

/// Writes the sum of some symbols. Each is at most as long as the output.
fn xor_all<'a>(out: &mut [u8], symbols: impl Iterator<Item = &'a [u8]>) {
    out.fill(0);
    let kernel = Kernel::active();
    symbols.for_each(|symbol| kernel.xor(&mut out[..symbol.len()], symbol));
}

/// The common length of these buffers, or `None` if there is no buffer. The error is the index and length of
/// the first buffer that differs, and the length of buffer 0.
fn one_length<B: AsMut<[u8]>>(buffers: &mut [B]) -> Result<Option<usize>, (usize, usize, usize)> {
    let mut lens = buffers.iter_mut().map(|buffer| buffer.as_mut().len()).enumerate();
    let Some((_, expected)) = lens.next() else { return Ok(None) };
    match lens.find(|&(_, len)| len != expected) {
        Some((index, len)) => Err((index, len, expected)),
        None => Ok(Some(expected)),
    }
}

fn check_not_longer<'a>(
    mut sources: impl Iterator<Item = (usize, &'a [u8])>,
    limit: usize,
) -> Result<(), GenerationError> {
    match sources.find(|(_, source)| source.len() > limit) {
        Some((index, source)) => Err(GenerationError::SourceTooLong { index, len: source.len(), limit }),
        None => Ok(()),
    }
}
