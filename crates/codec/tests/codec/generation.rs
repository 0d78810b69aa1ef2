//! The dense block code against a naive matrix, its errors, and its promise to allocate nothing after the
//! first run.

use crate::bounded::allocations;
use crate::setup::{activate_kernel, cases};
use proptest::prelude::*;
use proptest::sample::subsequence;
use tidewire_codec::field::{gf256, gf65536};
use tidewire_codec::{
    Code, DecodePlan, Encoder, Generation, GenerationError, PlanError, RepairId, SourceId, SpanError,
};

/// Bytes without a pattern that could hide a mistake.
fn symbol(index: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31) ^ (index * 101) ^ (i / 7 * index)) as u8).collect()
}

/// The coefficients of a repair symbol over either field.
fn row(generation: Generation, key: u16) -> Vec<u16> {
    let (code, id) = (generation.code(), generation.repair_id(key));
    code.row(id).map(u16::from).chain(code.row_16(id)).collect()
}

/// Bytes of an element.
fn bytes(code: Code) -> usize {
    if code == Code::Rlc16 { 2 } else { 1 }
}

fn mul(code: Code, a: u16, b: u16) -> u16 {
    if bytes(code) == 2 { gf65536::mul(a, b) } else { gf256::mul(a as u8, b as u8).into() }
}

fn inv(code: Code, a: u16) -> u16 {
    if bytes(code) == 2 { gf65536::inv(a) } else { gf256::inv(a as u8).into() }
}

/// Sum of factor times symbol, element by element.
fn naive_sum(code: Code, factors: &[u16], symbols: &[Vec<u8>], len: usize) -> Vec<u8> {
    let elements = len / bytes(code);
    let byte = |symbol: &[u8], at: usize| u16::from(symbol.get(at).copied().unwrap_or(0));
    let element = |symbol: &[u8], at: usize| {
        (0..bytes(code)).map(|part| byte(symbol, part * elements + at) << (8 * part)).fold(0, |sum, part| sum | part)
    };
    let sum = |at: usize| factors.iter().zip(symbols).fold(0, |sum, (&c, s)| sum ^ mul(code, c, element(s, at)));
    let sums: Vec<u16> = (0..elements).map(sum).collect();
    (0..bytes(code)).flat_map(|part| sums.iter().map(move |sum| (sum >> (8 * part)) as u8)).collect()
}

/// The first rows that are not combinations of the rows before them, by plain elimination.
fn independent(code: Code, rows: &[Vec<u16>]) -> Vec<usize> {
    let mut reduced: Vec<Vec<u16>> = Vec::new();
    let mut found = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let mut row = row.clone();
        for known in &reduced {
            let lead = known.iter().position(|&c| c != 0).unwrap();
            let factor = mul(code, row[lead], inv(code, known[lead]));
            row.iter_mut().zip(known).for_each(|(c, k)| *c ^= mul(code, factor, *k));
        }
        if row.iter().any(|&c| c != 0) {
            reduced.push(row);
            found.push(index);
        }
    }
    found
}

/// Encodes, loses, decodes and compares. Lost symbols are overwritten; unused symbols are noise.
fn lose_and_decode(plan: &DecodePlan, sources: &[Vec<u8>], keys: &[u16], len: usize) {
    let generation = plan.generation();
    let used: Vec<usize> = plan.used().collect();
    let mut repairs = vec![vec![0xEE; 3]; keys.len()];
    for &place in &used {
        repairs[place] = vec![0; len];
        generation.encode(sources, keys[place], std::slice::from_mut(&mut repairs[place])).unwrap();
    }
    let mut received = sources.to_vec();
    plan.lost().iter().for_each(|&index| received[usize::from(index)] = vec![0xEE; len + 9]);
    let mut decoded = vec![vec![0x55; len]; plan.lost().len()];
    plan.decode(&received, &repairs, &mut decoded).unwrap();
    for (&index, decoded) in plan.lost().iter().zip(&decoded) {
        let truth = &sources[usize::from(index)];
        assert!(decoded.starts_with(truth) && decoded[truth.len()..].iter().all(|&byte| byte == 0), "symbol {index}");
    }
}

/// A generation anywhere in a lane.
fn generation() -> impl Strategy<Value = Generation> {
    let dense = prop_oneof![Just(Code::Rlc), Just(Code::Rlc8681), Just(Code::Cauchy), Just(Code::Rlc16)];
    let sparse = prop_oneof![
        (1..=300u16, 1..=900u16).prop_map(|(c_milli, delta_milli)| Code::Lt { c_milli, delta_milli }),
        (1..=60u16).prop_map(|degree| Code::SemiRandomLt { degree }),
    ];
    let code = prop_oneof![2 => dense, 1 => sparse];
    (code, 1..=64u16, prop_oneof![Just(0), 0..u64::MAX / 2])
        .prop_map(|(code, count, first)| Generation::new(code, count).unwrap().at(SourceId(first)).unwrap())
}

/// A generation, its symbols and their greatest length. The symbols have the same length, or none is longer.
/// Some lengths are cut into pieces.
fn filled() -> impl Strategy<Value = (Generation, Vec<Vec<u8>>, usize)> {
    let len = prop_oneof![4 => 1..200usize, 1 => 1_000..20_000usize];
    (generation(), len, any::<bool>()).prop_flat_map(|(generation, len, is_ragged)| {
        let len = len.next_multiple_of(bytes(generation.code()));
        let lens = if is_ragged { 0..=len } else { len..=len };
        prop::collection::vec(lens, usize::from(generation.count())).prop_map(move |lens| {
            (generation, lens.into_iter().enumerate().map(|(index, len)| symbol(index, len)).collect(), len)
        })
    })
}

/// A generation, which of its symbols are lost, and keys to repair them: as many as the losses, or a few more
/// or fewer.
fn losses() -> impl Strategy<Value = (Generation, Vec<u16>, Vec<u16>)> {
    generation().prop_flat_map(|generation| {
        let all: Vec<u16> = (0..generation.count()).collect();
        let lost = subsequence(all.clone(), 0..=all.len().min(20)).prop_shuffle();
        let keys = subsequence((0..60).collect::<Vec<u16>>(), 0..=24).prop_shuffle();
        (Just(generation), lost, keys)
    })
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn repair_symbols_are_the_matrix_times_the_sources(
        (generation, sources, len) in filled(), first_key in 0..100u16, repairs in 0..20usize, offset in 0..64usize,
    ) {
        let mut memory = vec![0x55; repairs * len + offset];
        let mut outs: Vec<&mut [u8]> = memory[offset..].chunks_exact_mut(len).collect();
        generation.encode(&sources, first_key, &mut outs).unwrap();
        for (key, out) in (first_key..).zip(outs) {
            prop_assert_eq!(&*out, naive_sum(generation.code(), &row(generation, key), &sources, len), "key {}", key);
        }
        prop_assert!(memory[..offset].iter().all(|&byte| byte == 0x55));
    }

    #[test]
    fn what_the_repair_symbols_determine_is_decoded_and_nothing_else_is_promised((generation, lost, keys) in losses()) {
        let submatrix: Vec<Vec<u16>> = keys.iter().map(|&key| {
            let row = row(generation, key);
            lost.iter().map(|&index| row[usize::from(index)]).collect()
        }).collect();
        let mut expected = independent(generation.code(), &submatrix);
        if generation.code() == Code::Cauchy {
            prop_assert_eq!(expected.len(), lost.len().min(keys.len()), "a Cauchy matrix has only regular minors");
        }
        match generation.plan(&lost, &keys) {
            Ok(plan) => {
                let mut used: Vec<usize> = plan.used().collect();
                used.sort_unstable();
                expected.truncate(lost.len());
                prop_assert_eq!(used, expected);
                prop_assert_eq!((plan.generation(), plan.lost()), (generation, &lost[..]));
                let sources: Vec<Vec<u8>> = (0..usize::from(generation.count())).map(|i| symbol(i, 40 - i % 3)).collect();
                lose_and_decode(&plan, &sources, &keys, 40);
            }
            Err(error) => {
                let deficit = lost.len() - expected.len();
                prop_assert_eq!(error, PlanError::Deficit { lost: lost.len(), offered: keys.len(), deficit });
            }
        }
    }

    #[test]
    fn symbols_of_any_length_come_back(
        (generation, sources, len) in filled(), losses in 1..8u16,
    ) {
        let lost: Vec<u16> = (0..losses.min(generation.count())).map(|i| generation.count() - 1 - i).collect();
        // Few of the repair symbols of a sparse code may mix the lost symbols.
        let is_sparse = generation.code().neighbours(generation.repair_id(0)).is_some();
        let keys: Vec<u16> = (0..if is_sparse { 60 } else { losses + 3 }).collect();
        match generation.plan(&lost, &keys) {
            Ok(plan) => lose_and_decode(&plan, &sources, &keys, len),
            Err(error) => prop_assert!(is_sparse, "{}", error),
        }
    }
}

#[test]
fn repair_symbols_are_those_of_the_sliding_encoder() {
    activate_kernel();
    let mut encoder = Encoder::new(64, 64);
    let sources: Vec<Vec<u8>> = (0..40).map(|index| symbol(index, 64 - index)).collect();
    sources.iter().for_each(|source| assert!(encoder.push(source).is_ok()));
    let generation = Generation::new(Code::Rlc, 30).unwrap().at(SourceId(7)).unwrap();
    let mut repairs = vec![vec![0; 57]; 5];
    generation.encode(&sources[7..37], 100, &mut repairs).unwrap();
    for (key, repair) in (100..).zip(&repairs) {
        let id = RepairId { first: SourceId(7), count: 30, key };
        assert_eq!(generation.repair_id(key), id);
        let mut out = [0; 64];
        assert_eq!(encoder.write_repair(Code::Rlc, id, &mut out), Ok(57));
        assert_eq!(out[..57], repair[..]);
    }
}

#[test]
fn the_largest_generations_decode() {
    activate_kernel();
    for (code, count, losses, keys) in [
        (Code::Rlc, 1_024, 105, 108),
        (Code::Rlc, 300, 300, 303),
        (Code::Cauchy, 200, 56, 56),
        (Code::Cauchy, 255, 1, 1),
        (Code::Rlc16, 1_024, 105, 105),
        (Code::Rlc16, 1_024, 1_024, 1_025),
        (Code::Rlc16, 1, 1, 1),
    ] {
        let generation = Generation::new(code, count).unwrap();
        let lost: Vec<u16> = (0..losses).map(|i| (i * 7) % count).collect();
        let keys: Vec<u16> = (0..keys).collect();
        let sources: Vec<Vec<u8>> = (0..count.into()).map(|index| symbol(index, 70)).collect();
        lose_and_decode(&generation.plan(&lost, &keys).unwrap(), &sources, &keys, 70);
    }
}

/// Over q - 1 = 255 non-zero values a 2 x 2 matrix is singular with probability 1/255 exactly (three entries
/// determine the fourth), a larger one with 1/255 within 10^-6.
#[test]
fn random_repair_symbols_are_dependent_as_often_as_theory_says() {
    let draws = 30_000;
    for losses in [2, 3, 6] {
        let mut plan = DecodePlan::nothing_lost(Generation::new(Code::Rlc, 1).unwrap());
        let mut dependent = 0;
        for draw in 0..draws {
            let generation = Generation::new(Code::Rlc, 8).unwrap().at(SourceId(draw * 8)).unwrap();
            let lost: Vec<u16> = (0..losses).collect();
            let keys: Vec<u16> = (0..losses).map(|key| key + (draw % 1_000) as u16 * 8).collect();
            match plan.renew(generation, &lost, &keys) {
                Ok(()) => {}
                Err(PlanError::Deficit { deficit: 1, .. }) => dependent += 1,
                Err(error) => assert!(matches!(error, PlanError::Deficit { deficit: 2, .. }), "{error}"),
            }
        }
        let (mean, deviation) = (draws as f64 / 255.0, (draws as f64 / 255.0).sqrt());
        assert!((f64::from(dependent) - mean).abs() < 3.0 * deviation, "{losses} lost: {dependent} of {mean}");
    }
}

#[test]
fn impossible_generations_are_refused() {
    assert_eq!(Generation::new(Code::Rlc, 0), Err(SpanError::Empty));
    assert_eq!(Generation::new(Code::Cauchy, 256), Err(SpanError::KeyTooLarge { key: 0, count: 256 }));
    let first = SourceId(u64::MAX - 3);
    let generation = Generation::new(Code::Rlc, 4).unwrap();
    assert_eq!(generation.at(first), Err(SpanError::PastLastId { first, count: 4 }));
    assert_eq!((generation.code(), generation.first(), generation.count()), (Code::Rlc, SourceId(0), 4));
}

#[test]
fn encoding_errors_name_what_contradicts_and_write_nothing() {
    let cauchy = Generation::new(Code::Cauchy, 3).unwrap();
    let rlc = Generation::new(Code::Rlc, 3).unwrap();
    let sources = [vec![1; 8], vec![2; 7], vec![3; 8]];
    let mut outs = [vec![9; 8], vec![9; 8]];
    let refused = [
        (cauchy.encode(&sources[..2], 0, &mut outs), GenerationError::SourceCount { given: 2, expected: 3 }),
        (cauchy.encode(&sources, 252, &mut outs), SpanError::KeyTooLarge { key: 253, count: 3 }.into()),
        (rlc.encode(&sources, 65_535, &mut outs), SpanError::PastLastKey { key: 65_535, repairs: 2 }.into()),
        (
            rlc.encode(&[vec![1; 8], vec![2; 9], vec![3; 8]], 0, &mut outs),
            GenerationError::SourceTooLong { index: 1, len: 9, limit: 8 },
        ),
    ];
    for (result, expected) in refused {
        assert_eq!(result, Err(expected));
    }
    assert_eq!(outs, [[9; 8], [9; 8]]);
    let mut uneven = [vec![9; 8], vec![9; 8], vec![9; 10]];
    let expected = GenerationError::RepairLen { index: 2, len: 10, expected: 8 };
    assert_eq!(rlc.encode(&sources, 0, &mut uneven), Err(expected));
    assert!(uneven.iter().flatten().all(|&byte| byte == 9));
    assert_eq!(rlc.encode(&[[]; 3], 0, &mut [[]; 2]), Err(GenerationError::EmptySymbol));
    assert_eq!(rlc.encode(&sources, 65_535, &mut [[0; 8]; 0]), Ok(()));
    assert_eq!(cauchy.encode(&sources, 251, &mut outs), Ok(()));
}

#[test]
fn repair_symbols_of_a_growing_generation_decode_it() {
    activate_kernel();
    for code in [Code::Rlc, Code::Rlc8681, Code::Cauchy, Code::Rlc16] {
        let generation = |count| Generation::new(code, count).unwrap().at(SourceId(77)).unwrap();
        let sources: Vec<Vec<u8>> = (0..31).map(|index| symbol(index, 50 - index)).collect();
        let names: Vec<RepairId> =
            [9, 20, 31].into_iter().flat_map(|count| [4, 5].map(|key| generation(count).repair_id(key))).collect();
        let mut repairs = vec![[0; 50]; names.len()];
        for (name, repair) in names.iter().zip(&mut repairs) {
            let grown = &sources[..usize::from(name.count)];
            generation(name.count).encode(grown, name.key, std::slice::from_mut(repair)).unwrap();
        }
        let (whole, lost) = (generation(31), [30, 3, 17, 0, 12, 29]);
        // In both orders: the symbols that only a longer repair mixes must not stay in the row of a shorter
        // one.
        for names in [names.clone(), names.iter().rev().copied().collect()] {
            let mut decoded = [[9; 50]; 6];
            whole.plan_from(&lost, &names).unwrap().decode(&sources, &repairs, &mut decoded).unwrap();
            for (index, decoded) in lost.into_iter().zip(&decoded) {
                assert!(decoded.starts_with(&sources[usize::from(index)]), "{code:?}, symbol {index}");
            }
            repairs.reverse();
        }
        // The two repairs over the first 9 symbols carry no information about symbol 9 and later ones.
        let deficit = PlanError::Deficit { lost: 6, offered: 2, deficit: 4 };
        assert_eq!(whole.plan_from(&lost, &names[..2]).unwrap_err(), deficit);
        let deficit = PlanError::Deficit { lost: 2, offered: 2, deficit: 2 };
        assert_eq!(whole.plan_from(&[9, 30], &names[..2]).unwrap_err(), deficit);
        assert_eq!(whole.plan_from(&[9], &[names[3], names[0], names[3]]).unwrap_err(), PlanError::KeyTwice { key: 5 });
        let (first, count) = (whole.first(), 20);
        for repair in [RepairId { first: first.next(), ..names[0] }, names[5]] {
            let outside = PlanError::RepairOutside { repair, first, count };
            assert_eq!(generation(20).plan_from(&[1], &[names[1], repair]).unwrap_err(), outside);
        }
    }
}

#[test]
fn a_plan_that_cannot_be_made_leaves_the_one_before() {
    let generation = Generation::new(Code::Cauchy, 6).unwrap();
    let sources: Vec<Vec<u8>> = (0..6).map(|index| symbol(index, 33)).collect();
    let mut plan = generation.plan(&[4, 1], &[2, 0, 1]).unwrap();
    let other = Generation::new(Code::Cauchy, 9).unwrap();
    let refused = [
        (plan.renew(other, &[9, 10], &[0, 1]), PlanError::LostOutside { index: 9, count: 9 }),
        (plan.renew(other, &[3, 5, 3], &[0, 1, 2]), PlanError::LostTwice { index: 3 }),
        (plan.renew(other, &[3, 5], &[0, 7, 7]), PlanError::KeyTwice { key: 7 }),
        (plan.renew(other, &[3, 5], &[0, 247]), SpanError::KeyTooLarge { key: 247, count: 9 }.into()),
        (plan.renew(other, &[3, 5, 0], &[0]), PlanError::Deficit { lost: 3, offered: 1, deficit: 2 }),
        (plan.renew(other, &[3], &[]), PlanError::Deficit { lost: 1, offered: 0, deficit: 1 }),
    ];
    for (result, expected) in refused {
        assert_eq!(result, Err(expected));
        assert_eq!((plan.generation(), plan.lost()), (generation, &[4, 1][..]));
        lose_and_decode(&plan, &sources, &[2, 0, 1], 33);
    }
}

#[test]
fn decoding_errors_name_what_contradicts_and_write_nothing() {
    let generation = Generation::new(Code::Rlc, 4).unwrap();
    let sources: Vec<Vec<u8>> = (0..4).map(|index| symbol(index, 8)).collect();
    let mut repairs = vec![vec![0; 8]; 3];
    generation.encode(&sources, 0, &mut repairs).unwrap();
    let plan = generation.plan(&[0, 3], &[0, 1, 2]).unwrap();
    let with = |index: usize, len: usize| {
        let mut symbols = sources.clone();
        symbols[index].resize(len, 0);
        symbols
    };
    let short_repair = [vec![0; 8], vec![0; 7], vec![0; 8]];
    let mut outs = vec![vec![9; 8]; 2];
    let refused = [
        (plan.decode(&sources[..3], &repairs, &mut outs), GenerationError::SourceCount { given: 3, expected: 4 }),
        (plan.decode(&sources, &repairs[1..], &mut outs), GenerationError::RepairCount { given: 2, expected: 3 }),
        (plan.decode(&sources, &repairs, &mut outs[1..]), GenerationError::DecodedCount { given: 1, expected: 2 }),
        (plan.decode(&with(2, 9), &repairs, &mut outs), GenerationError::SourceTooLong { index: 2, len: 9, limit: 8 }),
        (plan.decode(&sources, &short_repair, &mut outs), GenerationError::RepairLen { index: 1, len: 7, expected: 8 }),
    ];
    for (result, expected) in refused {
        assert_eq!(result, Err(expected));
    }
    assert_eq!(outs, [[9; 8]; 2]);
    outs[1].push(9);
    let expected = GenerationError::DecodedLen { index: 1, len: 9, expected: 8 };
    assert_eq!(plan.decode(&sources, &repairs, &mut outs), Err(expected));
    assert!(outs.iter().flatten().all(|&byte| byte == 9));
    let empty = [[0; 0]; 4];
    assert_eq!(plan.decode(&empty, &empty[..3], &mut [[]; 2]), Err(GenerationError::EmptySymbol));
}

#[test]
fn where_nothing_is_lost_there_is_nothing_to_do() {
    let generation = Generation::new(Code::Rlc, 4).unwrap();
    let plan = generation.plan(&[], &[1, 2]).unwrap();
    assert_eq!((plan.lost().len(), plan.used().count()), (0, 0));
    assert_eq!(plan.decode(&[[1; 8]; 4], &[[2; 8]; 2], &mut [[0; 8]; 0]), Ok(()));
}

#[test]
fn encoding_and_a_plan_in_use_allocate_nothing() {
    activate_kernel();
    for code in [Code::Rlc, Code::Rlc16] {
        encode_and_renew_without_allocating(code);
    }
}

fn encode_and_renew_without_allocating(code: Code) {
    let generation = Generation::new(code, 100).unwrap();
    let sources: Vec<Vec<u8>> = (0..100).map(|index| symbol(index, 200 - index)).collect();
    let mut repairs = vec![vec![0; 200]; 20];
    let keys: Vec<u16> = (0..20).collect();
    let lost: Vec<u16> = (0..15).map(|i| i * 6).collect();
    let mut decoded = vec![vec![0; 200]; 15];
    let mut plan = generation.plan(&lost, &keys).unwrap();
    let before = allocations();
    for first in 0..30 {
        let generation = generation.at(SourceId(first * 100)).unwrap();
        generation.encode(&sources, 0, &mut repairs).unwrap();
        for losses in [15, 1, 2, 9] {
            plan.renew(generation, &lost[15 - losses..], &keys).unwrap();
            plan.decode(&sources, &repairs, &mut decoded[..losses]).unwrap();
        }
        let smaller = Generation::new(Code::Cauchy, 64).unwrap();
        assert!(plan.renew(smaller, &lost, &keys[..3]).is_err());
        plan.renew(smaller, &[63, 2, 7], &keys[4..7]).unwrap();
    }
    assert_eq!(allocations() - before, 0);
}
