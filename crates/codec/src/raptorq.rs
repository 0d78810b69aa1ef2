//! `Code::RaptorQ` as a dense code: the coefficients of its repair symbols over GF(2^8).
//!
//! RFC 6330 computes a repair symbol from *intermediate symbols*, which are linear combinations of the source
//! symbols. So each repair symbol is a sum of source symbols too, and the crate `raptorq` tells the
//! coefficients: encoding the unit vectors gives them, one byte of a repair symbol for each.
//! [`Code::row`](crate::Code::row) asks for one row at a time, when symbols are encoded, planned or counted.
//!
//! A block of K symbols counts as padded with zero symbols to K', a size of the RFC's table, and the repair
//! symbol with key x has the internal symbol id K' + x. So a row depends on K' and x only, and the row of K
//! symbols is the start of it. Rows are therefore kept by K', for the whole process.
//!
//! Invariant: what is kept is bounded by the number of sizes, whatever counts and keys a peer names.
//! [`OnceBox`] keeps it without a lock: threads that need the same rows at the same time may all compute
//! them, and one result stays. No thread waits for another, which a codec without an operating system could
//! do only by spinning.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use ::raptorq::{ObjectTransmissionInformation, SourceBlockEncoder, SourceBlockEncodingPlan};
use once_cell::race::OnceBox;

/// The most source symbols of a block: those of a span on the wire. The RFC has 56,403, for which one block's
/// rows would take gigabytes.
pub(crate) const MOST_SYMBOLS: u16 = 1_024;

/// Keys from 0 up whose rows are kept. Chosen: repairs of a quarter of the longest block. Rows take 264 KB
/// for the largest size, and 13.3 MB for all sizes.
const KEPT_KEYS: u16 = 256;

/// Encoding plans that are kept. Chosen: a process has few sizes of blocks in use that many repair symbols at
/// once are made for. A plan takes up to 2.5 MB, and those of all sizes would take 129 MB.
const MOST_PLANS: usize = 8;

/// The coefficients of a repair symbol in the order of its block.
#[derive(Clone, Debug)]
pub(crate) enum Coefficients {
    Kept(&'static [u8]),
    Made { cells: Vec<u8>, taken: usize },
}

impl Coefficients {
    /// The coefficients of the repair symbol with this key over `count` symbols. `None` if the code has no
    /// such block.
    pub fn new(count: u16, key: u16) -> Option<Self> {
        let (size, block) = block(count)?;
        let count = usize::from(count);
        if key < KEPT_KEYS {
            let near = block.near.get_or_init(|| Box::new(rows(&encoder(size), 0, KEPT_KEYS)));
            return Some(Self::Kept(&near[usize::from(key) * size..][..count]));
        }
        let mut cells = rows(block.far.get_or_init(|| Box::new(encoder(size))), key, 1);
        cells.truncate(count);
        Some(Self::Made { cells, taken: 0 })
    }

    /// Takes up to `most` of the next coefficients.
    pub fn take(&mut self, most: usize) -> &[u8] {
        match self {
            Self::Kept(left) => {
                let (next, rest) = left.split_at(most.min(left.len()));
                *left = rest;
                next
            }
            Self::Made { cells, taken } => {
                let start = *taken;
                *taken = cells.len().min(start + most);
                &cells[start..*taken]
            }
        }
    }
}

/// The size K' to which a block of this many symbols is padded, and the crate's plan to encode it. `None` if
/// the code has no such block, or if plans of enough other sizes are kept.
pub(crate) fn encoding_plan(count: usize) -> Option<(usize, &'static SourceBlockEncodingPlan)> {
    let (size, block) = block(u16::try_from(count).ok()?)?;
    if block.plan.get().is_none() {
        // Two threads that make the same plan count it twice, which leaves room for one fewer.
        let one_more = |plans| (plans < MOST_PLANS).then_some(plans + 1);
        PLANS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
    }
    Some((size, block.plan.get_or_init(|| Box::new(SourceBlockEncodingPlan::generate(size as u16)))))
}

/// The size to which a block of this many symbols is padded, and what is kept for it.
fn block(count: u16) -> Option<(usize, &'static Block)> {
    if count > MOST_SYMBOLS {
        return None;
    }
    let index = SIZES.partition_point(|&size| size < count);
    Some((SIZES[index].into(), &BLOCKS[index]))
}

/// What is kept for one size of blocks.
struct Block {
    /// The rows of the keys below [`KEPT_KEYS`].
    near: OnceBox<Vec<u8>>,
    /// What other rows are computed from, by the XOR of about 7 vectors of K' bytes each.
    far: OnceBox<SourceBlockEncoder>,
    /// For many repair symbols of one block at once.
    plan: OnceBox<SourceBlockEncodingPlan>,
}

/// The number of plans.
static PLANS: AtomicUsize = AtomicUsize::new(0);

static BLOCKS: [Block; SIZES.len()] =
    [const { Block { near: OnceBox::new(), far: OnceBox::new(), plan: OnceBox::new() } }; SIZES.len()];

/// The crate's encoder of the unit vectors.
fn encoder(size: usize) -> SourceBlockEncoder {
    let mut units = vec![0; size * size];
    units.iter_mut().step_by(size + 1).for_each(|cell| *cell = 1);
    // One block without sub-blocks, aligned to one byte. The crate asserts limits that are far above.
    let config = ObjectTransmissionInformation::new(units.len() as u64, size as u16, 1, 1, 1);
    // With a plan of its own: without one, the crate would keep the plan under a lock, if it has the standard
    // library.
    SourceBlockEncoder::with_encoding_plan(0, &config, &units, &SourceBlockEncodingPlan::generate(size as u16))
}

/// The rows of some keys, one after the other.
fn rows(encoder: &SourceBlockEncoder, first: u16, keys: u16) -> Vec<u8> {
    let packets = encoder.repair_packets(first.into(), keys.into());
    packets.iter().flat_map(|packet| packet.data()).copied().collect()
}

/// K' of RFC 6330 section 5.6, table 2: the sizes to which blocks of up to [`MOST_SYMBOLS`] are padded.
#[rustfmt::skip]
const SIZES: [u16; 122] = [
    10, 12, 18, 20, 26, 30, 32, 36, 42, 46, 48, 49, 55, 60, 62, 69, 75, 84, 88, 91, 95, 97, 101, 114, 119, 125, 127,
    138, 140, 149, 153, 160, 166, 168, 179, 181, 185, 187, 200, 213, 217, 225, 236, 242, 248, 257, 263, 269, 280, 295,
    301, 305, 324, 337, 341, 347, 355, 362, 368, 372, 380, 385, 393, 405, 418, 428, 434, 447, 453, 466, 478, 486, 491,
    497, 511, 526, 532, 542, 549, 557, 563, 573, 580, 588, 594, 600, 606, 619, 633, 640, 648, 666, 675, 685, 693, 703,
    718, 728, 736, 747, 759, 778, 792, 802, 811, 821, 835, 845, 860, 870, 891, 903, 913, 926, 938, 950, 963, 977, 989,
    1_002, 1_020, 1_032,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_padded_as_the_crate_pads_them() {
        for count in 1..=MOST_SYMBOLS {
            let size = SIZES[SIZES.partition_point(|&size| size < count)];
            assert_eq!(u32::from(size), ::raptorq::extended_source_block_symbols(count.into()), "{count}");
        }
    }
}
