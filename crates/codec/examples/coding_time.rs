//! How long each code takes to encode and to decode a block, beside the time to copy the block.
//!
//! A block has 100 source symbols. A systematic code encodes 14 repair symbols, and then 14 source symbols
//! are lost. The LT code encodes 142 repair symbols and sends no source symbol. The dense codes decode by a
//! plan, which each run makes anew. `PeelingDecoder`, with elimination, decodes the sparse codes; it takes
//! repair symbols in the order of their keys until it has decoded the block, which can be more than 14. Its
//! time includes the copy of each symbol that it takes. The repair symbols beyond those 14 or 142 are not in
//! the time to encode.
//!
//! Each cell is the median of all runs. Every run is another generation and loses other symbols. The codes
//! take turns, so that a busy machine slows all of them.
//!
//! ```text
//! cargo run --release -p tidewire-codec --features raptorq,rs-fft --example coding_time -- [--csv] [RUNS]
//! ```
//!
//! With `--csv` it prints one line for each code and length. The ratios are against copying the 100 symbols.
//! `TIDEWIRE_KERNEL=avx2` runs on that kernel instead of the fastest.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use tidewire_codec::kernel::Kernel;
use tidewire_codec::{Code, DecodePlan, Elimination, Generation, PeelingDecoder, SourceId, SplitMix64};
use tidewire_figures::median;

const COUNT: u16 = 100;
const LOST: usize = 14;
/// What a sender of the LT code sends on average at 6 % loss to a decoder that only peels: 41.4 % more than
/// the source symbols (`docs/sphinx.md` section 5), rounded up.
const LT_REPAIRS: usize = 142;
/// Repair symbols of a sparse code that a run may use. 400 suffice for all runs; a run that needs more fails.
const MOST_SPARSE: usize = 400;
const LENGTHS: [usize; 6] = [100, 200, 500, 1_000, 1_500, 2_000];
const CODES: [(&str, Code); 7] = [
    ("SemiRandomLt 17", Code::SemiRandomLt { degree: 17 }),
    ("Lt 0.1 0.5", Code::Lt { c_milli: 100, delta_milli: 500 }),
    ("Cauchy", Code::Cauchy),
    ("Rlc", Code::Rlc),
    ("Rlc16", Code::Rlc16),
    ("RsFft", Code::RsFft),
    ("RaptorQ", Code::RaptorQ),
];
/// Copies of the block in one measurement: a copy of the shortest one takes as long as a few readings of the
/// clock.
const COPIES: u32 = 16;

/// Different indices of a block, in order.
fn losses(random: &mut SplitMix64) -> Vec<u16> {
    let mut all: Vec<u16> = (0..COUNT).collect();
    for at in 0..LOST {
        let other = at + random.below((all.len() - at) as u64) as usize;
        all.swap(at, other);
    }
    all.truncate(LOST);
    all.sort_unstable();
    all
}

/// A symbol.
fn filled(random: &mut SplitMix64, len: usize) -> Vec<u8> {
    let mut symbol = vec![0; len];
    random.fill(&mut symbol);
    symbol
}

/// Microseconds that a call takes.
#[allow(clippy::disallowed_methods, reason = "a measurement of time, not a part of the crate")]
fn timed<T>(call: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let result = black_box(call());
    (start.elapsed().as_secs_f64() * 1e6, result)
}

/// Number of repair symbols that a sender of this code makes for one block.
fn repairs(code: Code) -> usize {
    if code.is_systematic() { LOST } else { LT_REPAIRS }
}

/// Encodes and decodes one block. Returns the times of both.
fn run(
    generation: Generation,
    sources: &[Vec<u8>],
    lost: &[u16],
    plan: &mut DecodePlan,
) -> Result<(f64, f64), Box<dyn Error>> {
    let (code, len) = (generation.code(), sources[0].len());
    let is_sparse = matches!(code, Code::Lt { .. } | Code::SemiRandomLt { .. });
    let mut symbols = vec![vec![0; len]; repairs(code)];
    generation.encode(sources, 0, &mut symbols)?; // touches the memory
    let (encoding, result) = timed(|| generation.encode(sources, 0, &mut symbols));
    result?;
    // A random code needs one repair symbol more now and then.
    let more = if is_sparse {
        MOST_SPARSE - symbols.len()
    } else {
        usize::from(matches!(code, Code::Rlc | Code::RaptorQ)) * 2
    };
    let mut further = vec![vec![0; len]; more];
    generation.encode(sources, symbols.len() as u16, &mut further)?;
    symbols.append(&mut further);
    let mut decoded = vec![vec![0; len]; LOST];
    let (decoding, result) = timed(|| -> Result<(), Box<dyn Error>> {
        if is_sparse {
            let mut decoder = PeelingDecoder::new(generation, len, Elimination::WhenStuck)?;
            if code.is_systematic() {
                for (index, source) in (0..).zip(sources).filter(|(index, _)| lost.binary_search(index).is_err()) {
                    decoder.add_source(index, source)?;
                }
            }
            for (key, symbol) in (0..).zip(&symbols) {
                if decoder.is_recovered() {
                    break;
                }
                decoder.add_repair(key, symbol)?;
            }
            for (&index, decoded) in lost.iter().zip(&mut decoded) {
                decoded.copy_from_slice(decoder.symbol(index).ok_or("too few repair symbols")?);
            }
        } else {
            let keys: Vec<u16> = (0..).take(symbols.len()).collect();
            plan.renew(generation, lost, &keys)?;
            plan.decode(sources, &symbols, &mut decoded)?;
        }
        Ok(())
    });
    result?;
    for (&index, decoded) in lost.iter().zip(&decoded) {
        assert_eq!(*decoded, sources[usize::from(index)], "{code:?}");
    }
    Ok((encoding, decoding))
}

fn main() -> Result<(), Box<dyn Error>> {
    let is_csv = std::env::args().any(|argument| argument == "--csv");
    let runs = std::env::args().skip(1).find(|argument| argument != "--csv").map_or(Ok(301), |runs| runs.parse())?;
    if runs == 0 {
        return Err("at least one run".into());
    }
    if let Ok(name) = std::env::var("TIDEWIRE_KERNEL") {
        let Some(kernel) = Kernel::named(&name) else {
            let names: Vec<_> = Kernel::available().map(Kernel::name).collect();
            return Err(format!("no kernel {name:?}; this processor has {}", names.join(", ")).into());
        };
        kernel.activate();
    }
    if is_csv {
        println!("code,length,encode_us,decode_us,encode_ratio,decode_ratio");
    } else {
        println!("{COUNT} symbols, {LOST} lost, kernel {}, median of {runs} runs\n", Kernel::active().name());
        println!("| code | length | encode, us | decode, us | encode / copy | decode / copy |");
        println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    }
    let mut random = SplitMix64::new(1);
    for len in LENGTHS {
        let mut copying = Vec::new();
        let mut times = vec![(Vec::new(), Vec::new()); CODES.len()];
        let mut plans = CODES
            .iter()
            .map(|&(_, code)| Ok(DecodePlan::nothing_lost(Generation::new(code, COUNT)?)))
            .collect::<Result<Vec<_>, Box<dyn Error>>>()?;
        for number in 0..runs {
            let sources: Vec<Vec<u8>> = (0..COUNT).map(|_| filled(&mut random, len)).collect();
            let lost = losses(&mut random);
            let mut copies = sources.clone();
            let (time, ()) = timed(|| {
                for _ in 0..COPIES {
                    copies.iter_mut().zip(black_box(&sources)).for_each(|(to, from)| to.copy_from_slice(from));
                    black_box(&mut copies);
                }
            });
            copying.push(time / f64::from(COPIES));
            for (place, &(_, code)) in CODES.iter().enumerate() {
                let generation = Generation::new(code, COUNT)?.at(SourceId(number * u64::from(COUNT)))?;
                let (encoding, decoding) = run(generation, &sources, &lost, &mut plans[place])?;
                times[place].0.push(encoding);
                times[place].1.push(decoding);
            }
        }
        let copy = median(copying);
        for ((name, _), (encoding, decoding)) in CODES.iter().zip(times) {
            let (encode, decode) = (median(encoding), median(decoding));
            let (of_encode, of_decode) = (encode / copy, decode / copy);
            if is_csv {
                println!("{name},{len},{encode:.2},{decode:.2},{of_encode:.2},{of_decode:.2}");
            } else {
                println!("| {name} | {len} | {encode:.1} | {decode:.1} | {of_encode:.1} | {of_decode:.1} |");
            }
        }
    }
    Ok(())
}
