//! Many symbols of `Code::RaptorQ` at once, through the crate `raptorq`.
//!
//! As a dense code it costs a product for each pair of a source symbol and a wanted one. The crate computes
//! the intermediate symbols of RFC 6330 first, whatever is wanted, and then a wanted symbol costs a few XORs.
//! So from some number of wanted symbols on the crate is faster, whatever the length of the generation is.
//!
//! [`Generation::encode`](super::Generation::encode) and [`DecodePlan::decode`](super::DecodePlan::decode)
//! ask here first, and compute the dense sums where the answer is `false`. The bytes are the same. Ranks and
//! plans always use the rows: to find out whether symbols suffice, the crate has to solve for all of them.

use alloc::vec;
use alloc::vec::Vec;

use ::raptorq::{EncodingPacket, ObjectTransmissionInformation, PayloadId, SourceBlockDecoder, SourceBlockEncoder};

use crate::kernel::Kernel;
use crate::raptorq::encoding_plan;

/// Writes the repair symbols of `len` bytes with the keys from `first_key` on, if the crate is faster.
pub(super) fn encode<S: AsRef<[u8]>, R: AsMut<[u8]>>(
    sources: &[S],
    first_key: u16,
    repairs: &mut [R],
    len: usize,
) -> bool {
    // The repair symbols of a single symbol are not those of the RFC.
    if repairs.len() <= most_dense(Kernel::active(), ENCODING_RATE) || sources.len() == 1 {
        return false;
    }
    let Ok(symbol_len) = u16::try_from(len) else { return false };
    let Some((size, plan)) = encoding_plan(sources.len()) else { return false };
    let config = config(size, symbol_len);
    let mut block = vec![0; size * len];
    for (place, source) in block.chunks_exact_mut(len).zip(sources) {
        let source = source.as_ref();
        place[..source.len()].copy_from_slice(source);
    }
    let encoder = SourceBlockEncoder::with_encoding_plan(0, &config, &block, plan);
    let packets = encoder.repair_packets(first_key.into(), repairs.len() as u32);
    repairs.iter_mut().zip(packets).for_each(|(repair, packet)| repair.as_mut().copy_from_slice(packet.data()));
    true
}

/// Writes the symbols `lost` of a generation of `count`, if the crate is faster. `symbols` are those that the
/// plan uses, with their encoding symbol ids.
pub(super) fn decode<'a, D: AsMut<[u8]>>(
    count: usize,
    lost: &[u16],
    symbols: impl Iterator<Item = (u32, &'a [u8])>,
    decoded: &mut [D],
    len: usize,
) -> bool {
    if lost.len() <= most_dense(Kernel::active(), DECODING_RATE) {
        return false;
    }
    let Ok(symbol_len) = u16::try_from(len) else { return false };
    let config = config(count, symbol_len);
    let packets = symbols.map(|(id, symbol)| {
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(symbol);
        bytes.resize(len, 0);
        EncodingPacket::new(PayloadId::new(0, id), bytes)
    });
    // The crate solves what the plan could invert. The sums would be right if it did not.
    let Some(block) = SourceBlockDecoder::new(0, &config, (count * len) as u64).decode(packets) else { return false };
    for (&index, decoded) in lost.iter().zip(decoded) {
        decoded.as_mut().copy_from_slice(&block[usize::from(index) * len..][..len]);
    }
    true
}

/// A block of symbols of one length, without sub-blocks.
fn config(symbols: usize, len: u16) -> ObjectTransmissionInformation {
    ObjectTransmissionInformation::new(symbols as u64 * u64::from(len), len, 1, 1, 1)
}

/// The most wanted symbols for which the dense sums are faster than a crate with this rate.
fn most_dense(kernel: &Kernel, rate: usize) -> usize {
    let dense = DENSE_RATES.iter().find(|(name, _)| *name == kernel.name());
    dense.map_or(usize::MAX, |(_, dense)| dense / rate)
}

/// Products of the dense code in MB of source symbols per second: the rate of encoding and decoding times the
/// number of wanted symbols. Measured on one core of an Intel Xeon with AVX-512 and GFNI, for 64 to 1,024
/// symbols of 1,280 bytes (`docs/coding.md` section 1.3). That of NEON is assumed to be that of SSSE3, which
/// has the same width and instructions.
const DENSE_RATES: [(&str, usize); 6] = [
    ("gfni-512", 140_000),
    ("gfni-256", 105_000),
    ("avx2", 55_000),
    ("ssse3", 33_000),
    ("neon", 33_000),
    ("scalar", 3_600),
];

/// MB of source symbols per second that the crate encodes with a plan, measured as above. It has vector
/// instructions only with the standard library.
const ENCODING_RATE: usize = if cfg!(feature = "std") { 1_100 } else { 160 };

/// MB of source symbols per second that the crate decodes, measured as above.
const DECODING_RATE: usize = if cfg!(feature = "std") { 450 } else { 120 };

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Code, Generation};

    /// With and without the crate. The slowest kernel is on every machine, and uses the crate first.
    #[test]
    #[cfg_attr(miri, ignore = "slow there, and no unsafe code in it")]
    fn many_symbols_go_through_the_crate_and_are_the_dense_ones() {
        for kernel in Kernel::available() {
            let [encoding, decoding] = [ENCODING_RATE, DECODING_RATE].map(|rate| most_dense(kernel, rate));
            assert!(0 < encoding && encoding < decoding, "{}", kernel.name());
        }
        let scalar = Kernel::named("scalar").unwrap();
        scalar.activate();
        let [encoding, decoding] = [ENCODING_RATE, DECODING_RATE].map(|rate| most_dense(scalar, rate));
        let (count, len) = (300, 37);
        let generation = Generation::new(Code::RaptorQ, count).unwrap();
        let sources: Vec<Vec<u8>> = (0..usize::from(count))
            .map(|index| (0..len - index % 3).map(|at| ((at * 31) ^ (index * 101) ^ (at / 7 * index)) as u8).collect())
            .collect();
        let mut repairs = vec![vec![0x55; len]; decoding + 10];
        assert!(encode(&sources, 250, &mut repairs, len));
        assert!(!encode(&sources, 250, &mut repairs[..encoding], len));
        for (key, expected) in (250..).zip(&repairs) {
            let mut repair = [vec![0; len]];
            generation.encode(&sources, key, &mut repair).unwrap();
            assert_eq!(repair[0], *expected, "key {key}");
        }
        let keys: Vec<u16> = (250..).take(repairs.len()).collect();
        for losses in [decoding, decoding + 1] {
            let lost: Vec<u16> = (0..count).rev().step_by(3).take(losses).collect();
            let plan = generation.plan(&lost, &keys).unwrap();
            let mut decoded = vec![vec![0x55; len]; losses];
            plan.decode(&sources, &repairs, &mut decoded).unwrap();
            for (&index, decoded) in lost.iter().zip(&decoded) {
                let truth = &sources[usize::from(index)];
                assert!(decoded.starts_with(truth) && decoded[truth.len()..].iter().all(|&byte| byte == 0));
            }
        }
        // Symbols that are too long for the crate.
        assert!(!encode(&[[1; 1]; 3], 0, &mut vec![vec![0; 70_000]; encoding + 1], 70_000));
    }
}
