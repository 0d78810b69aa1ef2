//! The decoder of short symbols, against the rank from names alone and against the plan for the same symbols.

use crate::setup::cases;
use proptest::prelude::*;
use tidewire_codec::{Code, Generation, GenerationError, Rank, ShortDecoder, SpanError};

/// A symbol that a receiver learns of.
#[derive(Clone, Copy, Debug)]
enum Event {
    Source(u16),
    Repair(u16),
}

/// A generation, the bytes of its symbols, and the arrivals, in any order and sometimes twice.
fn history() -> impl Strategy<Value = (Generation, Vec<Vec<u8>>, Vec<Event>)> {
    let dense = prop_oneof![Just(Code::Rlc), Just(Code::Rlc8681), Just(Code::Cauchy), Just(Code::Rlc16)];
    let sparse = prop_oneof![
        (1..=300u16, 1..=900u16).prop_map(|(c_milli, delta_milli)| Code::Lt { c_milli, delta_milli }),
        (1..=60u16).prop_map(|degree| Code::SemiRandomLt { degree }),
    ];
    let code = prop_oneof![2 => dense, 1 => sparse];
    (code, 1..=90u16, 1..=90usize, 0..1_000u64).prop_flat_map(|(code, count, len, first)| {
        let generation = Generation::new(code, count).unwrap().at(tidewire_codec::SourceId(first)).unwrap();
        let symbol = prop::collection::vec(any::<u8>(), 1..=len);
        let sources = prop::collection::vec(symbol, usize::from(count));
        let event = prop_oneof![(0..count).prop_map(Event::Source), (0..120u16).prop_map(Event::Repair)];
        let event = prop_oneof![1 => event, 3 => (0..120u16).prop_map(Event::Repair)];
        (Just(generation), sources, prop::collection::vec(event, 0..3 * usize::from(count)))
    })
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn the_decoder_counts_as_the_rank_does_and_decodes_what_the_plan_decodes(
        (generation, sources, events) in history(),
    ) {
        let len = sources.iter().map(Vec::len).max().unwrap().next_multiple_of(2);
        let mut repairs = vec![vec![0; len]; 120];
        generation.encode(&sources, 0, &mut repairs).unwrap();
        let mut rank = Rank::new(generation);
        rank.end(generation.count()).unwrap();
        let mut decoder = ShortDecoder::new(generation, len).unwrap();
        let mut keys = Vec::new();
        for event in events {
            match event {
                Event::Source(index) => {
                    let is_new = rank.add_source(index).unwrap();
                    prop_assert_eq!(decoder.add_source(index, &sources[usize::from(index)]), Ok(is_new), "{:?}", event);
                }
                Event::Repair(key) => {
                    let is_new = rank.add_repair(generation.count(), key).unwrap();
                    prop_assert_eq!(decoder.add_repair(key, &repairs[usize::from(key)]), Ok(is_new), "{:?}", event);
                    if is_new {
                        keys.push(key);
                    }
                }
            }
            prop_assert_eq!(decoder.is_recovered(), rank.is_recovered());
            let mut decoded: Vec<_> = decoder.decoded().collect();
            decoded.sort();
            if !rank.is_recovered() {
                prop_assert_eq!(decoded.len(), 0);
                continue;
            }
            let lost: Vec<u16> = rank.lacking().collect();
            let plan = generation.plan(&lost, &keys).unwrap();
            let offered: Vec<_> = keys.iter().map(|&key| &repairs[usize::from(key)]).collect();
            let mut expected = vec![vec![0; len]; lost.len()];
            plan.decode(&sources, &offered, &mut expected).unwrap();
            let expected: Vec<_> = lost.into_iter().zip(expected).collect();
            prop_assert_eq!(decoded, expected);
        }
    }
}

#[test]
fn contradictions_are_named_and_change_nothing() {
    let generation = Generation::new(Code::Rlc16, 10).unwrap();
    assert_eq!(ShortDecoder::new(generation, 0).unwrap_err(), GenerationError::EmptySymbol);
    assert_eq!(ShortDecoder::new(generation, 3).unwrap_err(), GenerationError::OddLen { len: 3 });
    let mut decoder = ShortDecoder::new(generation, 4).unwrap();
    let outside = GenerationError::SourceCount { given: 11, expected: 10 };
    assert_eq!(decoder.add_source(10, &[1; 4]), Err(outside));
    let too_long = GenerationError::SourceTooLong { index: 3, len: 5, limit: 4 };
    assert_eq!(decoder.add_source(3, &[1; 5]), Err(too_long));
    let wrong_len = GenerationError::RepairLen { index: 7, len: 2, expected: 4 };
    assert_eq!(decoder.add_repair(7, &[1; 2]), Err(wrong_len));
    assert_eq!((decoder.add_source(3, &[1; 4]), decoder.add_repair(7, &[1; 4])), (Ok(true), Ok(true)));
    let mut decoder = ShortDecoder::new(Generation::new(Code::Cauchy, 10).unwrap(), 4).unwrap();
    let no_such_key = SpanError::KeyTooLarge { key: 246, count: 10 };
    assert_eq!(decoder.add_repair(246, &[1; 4]), Err(no_such_key.into()));
}

#[test]
fn the_decoder_is_for_symbols_that_are_short_beside_their_coefficients() {
    let of = |code, count| move |len| ShortDecoder::is_for(Generation::new(code, count).unwrap(), len);
    assert_eq!([20, 128, 130, 21, 0].map(of(Code::Rlc16, 256)), [true, true, false, false, false]);
    assert_eq!([1, 21, 25, 26].map(of(Code::Cauchy, 100)), [true, true, true, false]);
}
