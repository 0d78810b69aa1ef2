//! Runs any sequence of symbols through a `PeelingDecoder` of any sparse code.
//!
//! An honest sequence holds true symbols, in any order and any number of times. What the decoder knows must
//! then be true, and it must know all symbols once it says so. With elimination it must say so exactly when a
//! `Rank` does. A hostile sequence holds any bytes, lengths and names. Both keep the bound of memory that the
//! decoder documents, and an error changes nothing.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Unstructured};
use libfuzzer_sys::fuzz_target;
use tidewire_codec::{Code, Elimination, Generation, PeelingDecoder, Rank, SourceId};

/// Chosen: it crosses words of 64 coefficients twice, and a run stays below a millisecond or two.
const MOST_SYMBOLS: u16 = 140;
const MOST_LEN: usize = 70;

fuzz_target!(|data: &[u8]| {
    // The run ends where the input ends, even in the middle of a step.
    let _ = run(&mut Unstructured::new(data));
});

/// A code, whose parameters are in range in most cases.
fn code(input: &mut Unstructured) -> arbitrary::Result<Code> {
    Ok(match input.int_in_range(0..=5u8)? {
        0 => Code::Lt { c_milli: input.arbitrary()?, delta_milli: input.arbitrary()? },
        1 | 2 => Code::Lt { c_milli: input.int_in_range(1..=1_000)?, delta_milli: input.int_in_range(1..=1_000)? },
        3 => Code::SemiRandomLt { degree: input.arbitrary()? },
        4 => Code::SemiRandomLt { degree: input.int_in_range(1..=40)? },
        _ => *input.choose(&[Code::Rlc, Code::Cauchy, Code::Rlc16, Code::RsFft, Code::RaptorQ])?,
    })
}

fn run(input: &mut Unstructured) -> arbitrary::Result<()> {
    let is_honest = input.arbitrary()?;
    let code = code(input)?;
    let count = input.int_in_range(0..=MOST_SYMBOLS)?;
    let first = if input.ratio(1, 4)? { input.arbitrary()? } else { 0 };
    let len = input.int_in_range(usize::from(is_honest)..=MOST_LEN)?;
    let elimination = *input.choose(&[Elimination::Never, Elimination::WhenStuck])?;
    let Ok(generation) = Generation::new(code, count).and_then(|generation| generation.at(SourceId(first))) else {
        return Ok(());
    };
    let Ok(decoder) = PeelingDecoder::new(generation, len, elimination) else {
        assert!(len == 0 || code.neighbours(generation.repair_id(0)).is_none());
        return Ok(());
    };
    if is_honest { honest(input, decoder, len, elimination) } else { hostile(input, decoder, len, elimination) }
}

fn honest(
    input: &mut Unstructured,
    mut decoder: PeelingDecoder,
    len: usize,
    elimination: Elimination,
) -> arbitrary::Result<()> {
    let generation = decoder.generation();
    let count = generation.count();
    let sources: Vec<Vec<u8>> = (0..count).map(|index| source(index, len)).collect();
    let mut rank = Rank::new(generation);
    rank.end(count).expect("the generation has this length");
    let mut received = 0;
    while !input.is_empty() {
        let known = decoder.known();
        let (is_new, of_use) = if input.ratio(1, 3)? {
            let index = input.int_in_range(0..=count - 1)?;
            (rank.add_source(index), decoder.add_source(index, &sources[usize::from(index)]))
        } else {
            // Few keys, so that some come twice, and some anywhere.
            let key = if input.ratio(7, 8)? { input.int_in_range(0..=299)? } else { input.arbitrary()? };
            let mut repair = [vec![0; len]];
            generation.encode(&sources, key, &mut repair).expect("every key of a sparse code");
            (rank.add_repair(count, key), decoder.add_repair(key, &repair[0]))
        };
        received += 1;
        let (is_new, of_use) = (is_new.expect("a symbol of the generation"), of_use.expect("a true symbol"));
        if elimination == Elimination::WhenStuck {
            assert_eq!((of_use, decoder.is_recovered()), (is_new, rank.is_recovered()));
        } else {
            assert!(!decoder.is_recovered() || rank.is_recovered());
        }
        assert!(decoder.known() >= known);
        check_bounds(&decoder, len, received, elimination);
        for (index, truth) in (0..).zip(&sources) {
            if let Some(symbol) = decoder.symbol(index) {
                assert!(symbol.starts_with(truth) && symbol[truth.len()..].iter().all(|&byte| byte == 0));
            }
        }
    }
    Ok(())
}

/// The bytes of a source symbol. Some are shorter than the others.
fn source(index: u16, len: usize) -> Vec<u8> {
    let len = if index % 3 == 0 { len } else { len - usize::from(index) % len };
    (0..len).map(|at| (at as u8).wrapping_mul(31) ^ (index as u8).wrapping_mul(101) | 1).collect()
}

fn hostile(
    input: &mut Unstructured,
    mut decoder: PeelingDecoder,
    len: usize,
    elimination: Elimination,
) -> arbitrary::Result<()> {
    let mut received = 0;
    while !input.is_empty() {
        let (known, memory) = (decoder.known(), decoder.memory());
        let symbol_len = if input.ratio(7, 8)? { len } else { input.int_in_range(0..=MOST_LEN + 1)? };
        let symbol = vec![input.arbitrary()?; symbol_len];
        let result = if input.arbitrary()? {
            decoder.add_source(input.int_in_range(0..=MOST_SYMBOLS + 1)?, &symbol)
        } else {
            decoder.add_repair(input.arbitrary()?, &symbol)
        };
        received += 1;
        match result {
            Ok(_) => assert!(decoder.known() >= known),
            Err(_) => assert_eq!((decoder.known(), decoder.memory()), (known, memory)),
        }
        check_bounds(&decoder, len, received, elimination);
    }
    Ok(())
}

/// The memory that the decoder promises, and that its counts agree. Vectors grow to at most twice what they
/// hold.
fn check_bounds(decoder: &PeelingDecoder, len: usize, received: usize, elimination: Elimination) {
    let count = usize::from(decoder.generation().count());
    let most = if elimination == Elimination::WhenStuck { count } else { 4 * count };
    let held = received.min(most);
    let rank = if elimination == Elimination::WhenStuck { count.next_multiple_of(64).pow(2) / 4 } else { 0 };
    let bound = count * len + 2 * held * (len + 8 + 4 * count) + 64 * count + rank + 1_024;
    assert!(decoder.memory() <= bound, "{} bytes, promised {bound}", decoder.memory());
    let known = (0..decoder.generation().count()).filter(|&index| decoder.symbol(index).is_some()).count();
    assert_eq!(known, usize::from(decoder.known()));
    assert_eq!(decoder.is_recovered(), known == count);
}
