//! How often k + h received symbols of a generation of k do not decode it, for the codes that do not promise
//! it.
//!
//! Each trial loses random source symbols, a tenth or all, and receives repair symbols with random keys until
//! the rank suffices. Three quarters of the trials draw them below 4 k, as a sender numbers them, the others
//! from all keys. The last column is what RCDP (Baguena and others, 2013, equation 1) assumes of its Raptor
//! code: at most 10^(-2 (h + 1)).
//!
//! ```text
//! cargo run --release -p tidewire-codec --features raptorq --example decode_failures -- [TRIALS]
//! ```

use std::error::Error;

use tidewire_codec::{Code, Generation, Rank, SplitMix64};

const COUNTS: [u16; 7] = [2, 10, 16, 84, 256, 500, 1_024];
/// Blocks of this many symbols get all trials. Longer ones get fewer, in proportion to the square of their
/// length, because a trial of them takes that much longer.
const FULL: u64 = 84;
/// Largest number of symbols beyond k that is counted.
const MOST_MORE: usize = 3;

/// Losses and keys.
struct Random(SplitMix64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.0.bits()) * u128::from(end)) >> 64) as u64
    }

    /// Some different numbers below `end`.
    fn different(&mut self, count: usize, end: u64) -> Vec<u16> {
        let mut drawn = std::collections::BTreeSet::new();
        while drawn.len() < count {
            drawn.insert(self.below(end) as u16);
        }
        drawn.into_iter().collect()
    }
}

/// The number of symbols beyond k after which a generation is decoded, at most `MOST_MORE`.
fn more(generation: Generation, lost: usize, random: &mut Random) -> Result<usize, Box<dyn Error>> {
    let count = generation.count();
    let lost = random.different(lost, count.into());
    let mut rank = Rank::new(generation);
    rank.end(count)?;
    for index in (0..count).filter(|index| lost.binary_search(index).is_err()) {
        rank.add_source(index)?;
    }
    let end = if random.below(4) == 0 { 1 << 16 } else { 4 * u64::from(count) };
    let keys = random.different(lost.len() + MOST_MORE, end);
    for (received, key) in keys.into_iter().enumerate() {
        if rank.is_recovered() {
            return Ok(received - lost.len());
        }
        rank.add_repair(count, key)?;
    }
    Ok(MOST_MORE)
}

fn main() -> Result<(), Box<dyn Error>> {
    let trials = std::env::args().nth(1).map_or(Ok(1_000_000), |trials| trials.parse::<u64>())?;
    println!("| code | k | lost | trials | not with k | k + 1 | k + 2 | bound of RCDP |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |");
    let mut random = Random(SplitMix64::new(1));
    for code in [Code::RaptorQ, Code::Rlc] {
        for count in COUNTS {
            let generation = Generation::new(code, count)?;
            let each = (trials * FULL.pow(2) / u64::from(count).pow(2)).clamp(1, trials);
            for lost in [usize::from(count).div_ceil(10), count.into()] {
                let mut failed = [0_u64; MOST_MORE];
                for _ in 0..each {
                    let more = more(generation, lost, &mut random)?;
                    failed[..more].iter_mut().for_each(|failed| *failed += 1);
                }
                let [none, one, two] = failed.map(|failed| format!("{failed} ({:.2e})", failed as f64 / each as f64));
                println!("| {code:?} | {count} | {lost} | {each} | {none} | {one} | {two} | 1e-2, 1e-4, 1e-6 |");
            }
        }
    }
    Ok(())
}
