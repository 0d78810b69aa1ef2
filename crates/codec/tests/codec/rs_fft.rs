//! `Code::RsFft`: its repair symbols are those of the crate `reed-solomon-simd`, any `count` symbols decode a
//! generation, and fewer never claim to.

use crate::setup::{activate_kernel, cases};
use proptest::prelude::*;
use proptest::sample::subsequence;
use reed_solomon_simd::engine::DefaultEngine;
use reed_solomon_simd::rate::{LowRateDecoder, LowRateEncoder, RateDecoder, RateEncoder};
use tidewire_codec::{
    Code, DecodePlan, Elimination, Encoder, Generation, GenerationError, PeelingDecoder, PlanError, Rank, RankError,
    RepairId, ShortDecoder, SourceId, SpanError,
};

/// Bytes without a pattern that could hide a mistake.
fn symbol(index: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31) ^ (index * 101) ^ (i / 7 * index)) as u8).collect()
}

fn padded(symbol: &[u8], len: usize) -> Vec<u8> {
    let mut symbol = symbol.to_vec();
    symbol.resize(len, 0);
    symbol
}

/// The first recovery shards that the crate computes.
fn recovery(sources: &[Vec<u8>], shards: usize, len: usize) -> Vec<Vec<u8>> {
    let mut encoder = LowRateEncoder::new(sources.len(), shards, len, DefaultEngine::new(), None).unwrap();
    sources.iter().for_each(|source| encoder.add_original_shard(padded(source, len)).unwrap());
    let result = encoder.encode().unwrap();
    result.recovery_iter().map(<[u8]>::to_vec).collect()
}

/// Number of symbols, symbols of odd and unequal lengths, and the length of repair symbols.
fn filled(most: usize) -> impl Strategy<Value = (Generation, Vec<Vec<u8>>, usize)> {
    let len = prop_oneof![1..=260usize, 1..=3usize, Just(64), Just(1_500)];
    (1..=most, len, any::<bool>(), 0..1u64 << 40).prop_flat_map(|(count, longest, is_ragged, first)| {
        let lens = if is_ragged { 0..=longest } else { longest..=longest };
        prop::collection::vec(lens, count).prop_map(move |lens| {
            let generation = Generation::new(Code::RsFft, count as u16).unwrap().at(SourceId(first)).unwrap();
            let sources = lens.into_iter().enumerate().map(|(index, len)| symbol(index, len)).collect();
            (generation, sources, longest.next_multiple_of(2))
        })
    })
}

/// Keys of a generation: most are low, some anywhere.
fn keys(count: usize, most: usize) -> impl Strategy<Value = Vec<u16>> {
    let end = 65_536 - count.next_power_of_two();
    let low = subsequence((0..(2 * most as u16 + 2)).collect::<Vec<_>>(), most);
    let any = prop::collection::btree_set(0..end as u16, most).prop_map(|keys| keys.into_iter().collect());
    prop_oneof![3 => low, 1 => any].prop_shuffle()
}

proptest! {
    #![proptest_config(cases(100))]

    /// It holds for many repair symbols in one call and for each by itself.
    #[test]
    fn every_repair_symbol_is_the_recovery_shard_of_the_crate(
        (generation, sources, len) in filled(300), first_key in 0..700u16, repairs in 1..80usize,
    ) {
        let expected = recovery(&sources, usize::from(first_key) + repairs, len);
        let mut outs = vec![vec![0x55; len]; repairs];
        generation.encode(&sources, first_key, &mut outs).unwrap();
        prop_assert_eq!(&outs[..], &expected[first_key.into()..]);
        for (key, expected) in (first_key..).zip(&outs).step_by(9) {
            let mut out = [vec![0x55; len]];
            generation.encode(&sources, key, &mut out).unwrap();
            prop_assert_eq!(&out[0], expected, "key {}", key);
        }
    }

    /// Therefore the code has no fixed rate.
    #[test]
    fn a_recovery_shard_of_the_crate_does_not_depend_on_their_number(
        (_, sources, len) in filled(40), shards in 1..200usize, more in 0..200usize,
    ) {
        prop_assert_eq!(&recovery(&sources, shards, len)[..], &recovery(&sources, shards + more, len)[..shards]);
    }

    #[test]
    fn any_symbols_of_a_generation_decode_it(
        ((generation, sources, len), lost, keys, extra) in filled(300).prop_flat_map(|filled| {
            let count = filled.1.len();
            let lost = subsequence((0..count as u16).collect::<Vec<_>>(), 0..=count).prop_shuffle();
            (Just(filled), lost, 0..3usize).prop_flat_map(move |(filled, lost, extra)| {
                let keys = keys(count, lost.len() + extra);
                (Just(filled), Just(lost), keys, Just(extra))
            })
        }),
    ) {
        let mut repairs = vec![vec![0; len]; keys.len()];
        for (&key, repair) in keys.iter().zip(&mut repairs) {
            generation.encode(&sources, key, std::slice::from_mut(repair)).unwrap();
        }
        let plan = generation.plan(&lost, &keys).unwrap();
        let used: Vec<usize> = plan.used().collect();
        prop_assert_eq!(used.len(), lost.len());
        (0..keys.len()).filter(|place| !used.contains(place)).for_each(|place| repairs[place].fill(0xEE));
        let mut received = sources.clone();
        lost.iter().for_each(|&index| received[usize::from(index)] = vec![0xEE; len + 9]);
        let mut decoded = vec![vec![0x55; len]; lost.len()];
        plan.decode(&received, &repairs, &mut decoded).unwrap();
        for (&index, decoded) in lost.iter().zip(&decoded) {
            prop_assert_eq!(decoded, &padded(&sources[usize::from(index)], len), "symbol {} with {} extra", index, extra);
        }
        let Some(few) = lost.len().checked_sub(1) else { return Ok(()) };
        let deficit = PlanError::Deficit { lost: lost.len(), offered: few, deficit: 1 };
        prop_assert_eq!(generation.plan(&lost, &keys[..few]).unwrap_err(), deficit);
    }

    /// `count` minus one different symbols never suffice, `count` always do, and a symbol counts once.
    #[test]
    fn the_rank_is_the_number_of_different_symbols(
        count in 1..=300u16,
        names in prop::collection::vec((any::<bool>(), any::<u16>()), 0..900),
    ) {
        let generation = Generation::new(Code::RsFft, count).unwrap();
        let mut rank = Rank::new(generation);
        rank.end(count).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for (is_source, name) in names {
            let before = seen.len().min(count.into());
            let is_new = if is_source {
                let index = name % count;
                seen.insert((is_source, index));
                rank.add_source(index)
            } else {
                // Keys near each other come twice.
                let key = if name % 2 == 0 { name / 2 % (count + 3) } else { name % 60_000 };
                seen.insert((is_source, key));
                rank.add_repair(count, key)
            };
            let now = seen.len().min(count.into());
            prop_assert_eq!(is_new, Ok(now > before));
            prop_assert_eq!(usize::from(rank.deficit()), usize::from(count) - now);
            prop_assert_eq!(rank.is_recovered(), now == usize::from(count));
            let sources = seen.iter().filter(|(is_source, _)| *is_source).count();
            prop_assert_eq!(rank.lacking().count(), usize::from(count) - sources);
            prop_assert!(rank.memory() <= 8 * usize::from(count) + 64);
        }
    }

    /// A receiver of the crate alone decodes what this code encodes.
    #[test]
    fn the_crate_decodes_these_repair_symbols((generation, sources, len) in filled(60), first_key in 0..100u16) {
        let count = sources.len();
        let mut repairs = vec![vec![0; len]; count];
        generation.encode(&sources, first_key, &mut repairs).unwrap();
        let shards = usize::from(first_key) + count;
        let mut decoder = LowRateDecoder::new(count, shards, len, DefaultEngine::new(), None).unwrap();
        for (key, repair) in (usize::from(first_key)..).zip(&repairs) {
            decoder.add_recovery_shard(key, repair).unwrap();
        }
        let result = decoder.decode().unwrap();
        for (index, source) in sources.iter().enumerate() {
            prop_assert_eq!(result.restored_original(index).unwrap(), &padded(source, len)[..]);
        }
    }
}

/// Here both directions take the transforms, and the products of differences are those of the crate's
/// transform.
#[test]
fn large_generations_are_encoded_and_decoded() {
    activate_kernel();
    for (count, lost) in [(1_000, 400), (2_500, 2_500), (32_768, 3)] {
        let generation = Generation::new(Code::RsFft, count).unwrap();
        let sources: Vec<Vec<u8>> = (0..usize::from(count)).map(|index| symbol(index, 70)).collect();
        let mut repairs = vec![vec![0; 70]; lost];
        generation.encode(&sources, 3, &mut repairs).unwrap();
        assert_eq!(repairs, recovery(&sources, 3 + lost, 70)[3..], "{count}");
        let lost: Vec<u16> = (0..count).rev().step_by(usize::from(count) / lost).take(lost).collect();
        let keys: Vec<u16> = (3..).take(lost.len()).collect();
        let mut decoded = vec![vec![0; 70]; lost.len()];
        generation.plan(&lost, &keys).unwrap().decode(&sources, &repairs, &mut decoded).unwrap();
        let expected: Vec<Vec<u8>> = lost.iter().map(|&index| sources[usize::from(index)].clone()).collect();
        assert!(decoded == expected, "{count}");
    }
}

#[test]
fn keys_end_with_the_field() {
    activate_kernel();
    for (count, last) in [(1, 65_534), (2, 65_533), (100, 65_407), (128, 65_407), (129, 65_279), (32_768, 32_767)] {
        let generation = Generation::new(Code::RsFft, count).unwrap();
        let sources = vec![[7; 2]; count.into()];
        let mut repair = [[0; 2]];
        assert_eq!(generation.encode(&sources, last, &mut repair), Ok(()), "{count}");
        let past = SpanError::KeyPastField { key: last + 1, count };
        assert_eq!(generation.encode(&sources, last + 1, &mut repair), Err(past.into()), "{count}");
        assert_eq!(generation.plan(&[0], &[last + 1]).unwrap_err(), past.into());
        let mut decoded = [[0; 2]];
        generation.plan(&[count - 1], &[last]).unwrap().decode(&sources, &repair, &mut decoded).unwrap();
        assert_eq!(decoded, [[7; 2]], "{count}");
    }
    let past = SpanError::KeyPastField { key: 0, count: 32_769 };
    assert_eq!(Generation::new(Code::RsFft, 32_769), Err(past));
    assert_eq!(past.to_string(), "key 0 over a Reed-Solomon span of 32769: key + 65536 must stay below 65536");
}

/// A repair symbol over the first symbols of a generation belongs to another Reed-Solomon code.
#[test]
fn repair_symbols_mix_whole_generations() {
    let generation = Generation::new(Code::RsFft, 5).unwrap();
    let repair = RepairId { count: 4, ..generation.repair_id(0) };
    let outside = PlanError::RepairOutside { repair, first: SourceId(0), count: 5 };
    assert_eq!(generation.plan_from(&[1], &[repair]).unwrap_err(), outside);
    assert!(generation.plan_from(&[1], &[generation.repair_id(0)]).is_ok());
    let mut rank = Rank::new(generation);
    assert_eq!(rank.add_repair(4, 0), Err(RankError::RepairOfPart { count: 4, expected: 5 }));
    assert_eq!((rank.count(), rank.deficit()), (0, 0));
    rank.end(4).unwrap();
    assert_eq!(rank.add_repair(4, 0), Ok(true));
    assert_eq!(rank.add_repair(5, 0), Err(RankError::RepairOutside { count: 5, limit: 4 }));
}

#[test]
fn what_needs_rows_refuses_the_code() {
    let (code, generation) = (Code::RsFft, Generation::new(Code::RsFft, 60).unwrap());
    assert!(!code.is_sliding() && code.is_systematic());
    assert_eq!((code.row(generation.repair_id(0)).len(), code.row_16(generation.repair_id(0)).len()), (0, 0));
    assert!(code.neighbours(generation.repair_id(0)).is_none());
    assert!(!ShortDecoder::is_for(generation, 2));
    assert_eq!(ShortDecoder::new(generation, 2).unwrap_err(), GenerationError::NoRows { code });
    let peeling = PeelingDecoder::new(generation, 2, Elimination::WhenStuck);
    assert_eq!(peeling.unwrap_err(), GenerationError::NotSparse { code });
    let mut encoder = Encoder::new(64, 4);
    encoder.push(b"tide").unwrap();
    let id = RepairId { first: SourceId(0), count: 1, key: 0 };
    let refused = SpanError::GenerationsOnly { code };
    assert_eq!(encoder.write_repair(code, id, &mut [0; 64]), Err(refused.into()));
    let sources = vec![[1; 3]; 60];
    assert_eq!(generation.encode(&sources, 0, &mut [[0; 3]]), Err(GenerationError::OddLen { len: 3 }));
}

/// A plan can be renewed from and to codes that have rows.
#[test]
fn a_plan_changes_codes() {
    activate_kernel();
    let sources = [symbol(0, 6), symbol(1, 6), symbol(2, 6)];
    let mut plan = DecodePlan::nothing_lost(Generation::new(Code::Cauchy, 1).unwrap());
    for code in [Code::RsFft, Code::Cauchy, Code::RsFft, Code::Rlc16, Code::RsFft] {
        let generation = Generation::new(code, 3).unwrap();
        let (mut repairs, mut decoded) = ([[0; 6]; 2], [[0; 6]; 2]);
        generation.encode(&sources, 4, &mut repairs).unwrap();
        plan.renew(generation, &[2, 0], &[5, 4]).unwrap();
        repairs.swap(0, 1);
        plan.decode(&sources, &repairs, &mut decoded).unwrap();
        assert_eq!([&decoded[0][..], &decoded[1][..]], [&sources[2][..], &sources[0][..]], "{code:?}");
    }
}

/// The values of `docs/coding.md` section 1.2, for other implementations. They were computed separately, from
/// the formula there.
#[test]
fn repair_symbols_are_pinned() {
    activate_kernel();
    let generation = Generation::new(Code::RsFft, 3).unwrap();
    let sources = [&b"tide"[..], b"comes", b"in"];
    let mut repairs = [[0; 6]; 2];
    generation.encode(&sources, 0, &mut repairs).unwrap();
    assert_eq!(repairs, [[207, 48, 231, 230, 91, 0], [120, 17, 226, 230, 143, 0]]);
    let mut repair = [[0; 6]];
    generation.encode(&sources, 300, &mut repair).unwrap();
    assert_eq!(repair, [[237, 74, 33, 95, 122, 217]]);
    generation.encode(&sources, 65_531, &mut repair).unwrap();
    assert_eq!(repair, [[37, 63, 11, 33, 93, 251]]);
}
