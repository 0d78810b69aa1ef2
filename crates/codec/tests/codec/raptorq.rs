//! `Code::RaptorQ`: its repair symbols are those of the crate `raptorq`, and it decodes what the crate
//! decodes.

use crate::setup::{activate_kernel, cases};
use proptest::prelude::*;
use proptest::sample::subsequence;
use raptorq::{
    EncodingPacket, ObjectTransmissionInformation, PayloadId, SourceBlockDecoder, SourceBlockEncoder,
    SourceBlockEncodingPlan,
};
use tidewire_codec::{
    Code, Elimination, Encoder, Generation, GenerationError, PeelingDecoder, Rank, RepairId, ShortDecoder, SourceId,
    SpanError,
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

fn config(symbols: usize, len: usize) -> ObjectTransmissionInformation {
    ObjectTransmissionInformation::new((symbols * len) as u64, len as u16, 1, 1, 1)
}

/// The repair symbols that the crate computes.
fn of_the_crate(sources: &[Vec<u8>], first_key: u16, repairs: usize, len: usize) -> Vec<Vec<u8>> {
    let block: Vec<u8> = sources.iter().flat_map(|source| padded(source, len)).collect();
    let plan = SourceBlockEncodingPlan::generate(sources.len() as u16);
    let encoder = SourceBlockEncoder::with_encoding_plan(0, &config(sources.len(), len), &block, &plan);
    let packets = encoder.repair_packets(first_key.into(), repairs as u32);
    (sources.len() + usize::from(first_key)..)
        .zip(packets)
        .map(|(symbol_id, packet)| {
            assert_eq!(packet.payload_id().encoding_symbol_id() as usize, symbol_id);
            packet.split().1
        })
        .collect()
}

fn generation(count: usize) -> Generation {
    Generation::new(Code::RaptorQ, count as u16).unwrap()
}

/// A generation, its symbols, which may have unequal lengths, and the length of repair symbols.
type Filled = (Generation, Vec<Vec<u8>>, usize);

/// Any generation of up to `most` symbols.
fn filled(most: usize) -> impl Strategy<Value = Filled> {
    let count = prop_oneof![6 => 2..=70usize.min(most), 2 => 2..=300usize.min(most), 1 => 2..=most];
    let len = prop_oneof![1..=260usize, 1..=3usize, Just(1_500)];
    (count, len, any::<bool>(), 0..1u64 << 40).prop_flat_map(|(count, longest, is_ragged, first)| {
        let lens = if is_ragged { 0..=longest } else { longest..=longest };
        prop::collection::vec(lens, count).prop_map(move |lens| {
            let generation = generation(count).at(SourceId(first)).unwrap();
            (generation, lens.into_iter().enumerate().map(|(index, len)| symbol(index, len)).collect(), longest)
        })
    })
}

/// First keys: below and above those whose rows are kept, and the last ones.
fn first_key() -> impl Strategy<Value = u16> {
    prop_oneof![4 => 0..300u16, 1 => any::<u16>(), 1 => 65_500..=65_535u16]
}

/// The keys of a generation that some symbols may be lost from: most are low, some anywhere.
fn keys(most: usize) -> impl Strategy<Value = Vec<u16>> {
    let low = subsequence((0..(2 * most as u16 + 2)).collect::<Vec<_>>(), most);
    let any = prop::collection::btree_set(any::<u16>(), most).prop_map(|keys| keys.into_iter().collect());
    prop_oneof![3 => low, 1 => any].prop_shuffle()
}

/// A generation with symbols, those of them that are lost, and up to two more keys than losses.
fn with_losses(most: usize) -> impl Strategy<Value = (Filled, Vec<u16>, Vec<u16>)> {
    filled(most).prop_flat_map(|filled| {
        let count = filled.1.len();
        let lost = subsequence((0..count as u16).collect::<Vec<_>>(), 0..=count).prop_shuffle();
        (Just(filled), lost, 0..3usize).prop_flat_map(move |(filled, lost, extra)| {
            let keys = keys(lost.len() + extra);
            (Just(filled), Just(lost), keys)
        })
    })
}

/// Whether the crate decodes a block from these symbols, and that it decodes it to the true bytes.
fn does_the_crate_decode(sources: &[Vec<u8>], lost: &[u16], keys: &[u16], repairs: &[Vec<u8>], len: usize) -> bool {
    let count = sources.len();
    let packet = |id: usize, bytes: Vec<u8>| EncodingPacket::new(PayloadId::new(0, id as u32), bytes);
    let there = (0..count).filter(|index| !lost.contains(&(*index as u16)));
    let sent = there.map(|index| packet(index, padded(&sources[index], len)));
    let repairs = keys.iter().zip(repairs).map(|(&key, repair)| packet(count + usize::from(key), repair.clone()));
    let mut decoder = SourceBlockDecoder::new(0, &config(count, len), (count * len) as u64);
    let block = decoder.decode(sent.chain(repairs));
    let truth = || sources.iter().flat_map(|source| padded(source, len));
    block.inspect(|block| assert!(block.iter().copied().eq(truth()))).is_some()
}

proptest! {
    #![proptest_config(cases(150))]

    /// It holds for many repair symbols in one call and for each by itself.
    #[test]
    fn every_repair_symbol_is_that_of_the_crate(
        (generation, sources, len) in filled(1_024), first_key in first_key(), repairs in 1..80usize,
    ) {
        let repairs = repairs.min(65_536 - usize::from(first_key));
        let expected = of_the_crate(&sources, first_key, repairs, len);
        let mut outs = vec![vec![0x55; len]; repairs];
        generation.encode(&sources, first_key, &mut outs).unwrap();
        prop_assert_eq!(&outs, &expected);
        for (key, expected) in (first_key..=u16::MAX).zip(&outs).step_by(9) {
            let mut out = [vec![0x55; len]];
            generation.encode(&sources, key, &mut out).unwrap();
            prop_assert_eq!(&out[0], expected, "key {}", key);
        }
    }

    /// The rank, the plan, the decoder of short symbols and the crate agree on which symbols suffice.
    #[test]
    fn symbols_decode_a_generation_if_they_decode_it_in_the_crate(
        ((generation, sources, len), lost, keys) in with_losses(200), offset in 0..3usize,
    ) {
        let offered = &keys[offset.min(keys.len())..];
        let mut rank = Rank::new(generation);
        let mut short = ShortDecoder::new(generation, len).unwrap();
        rank.end(generation.count()).unwrap();
        for index in (0..generation.count()).filter(|index| !lost.contains(index)) {
            rank.add_source(index).unwrap();
            short.add_source(index, &sources[usize::from(index)]).unwrap();
        }
        let mut repairs = vec![vec![0; len]; offered.len()];
        for (&key, repair) in offered.iter().zip(&mut repairs) {
            generation.encode(&sources, key, std::slice::from_mut(repair)).unwrap();
            let is_new = rank.add_repair(generation.count(), key).unwrap();
            prop_assert_eq!(short.add_repair(key, repair), Ok(is_new));
        }
        let plan = generation.plan(&lost, offered);
        let expected = does_the_crate_decode(&sources, &lost, offered, &repairs, len);
        prop_assert_eq!([plan.is_ok(), rank.is_recovered(), short.is_recovered()], [expected; 3]);
        let Ok(plan) = plan else { return Ok(()) };
        let used: Vec<usize> = plan.used().collect();
        (0..offered.len()).filter(|place| !used.contains(place)).for_each(|place| repairs[place].fill(0xEE));
        let mut received = sources.clone();
        lost.iter().for_each(|&index| received[usize::from(index)] = vec![0xEE; len + 9]);
        let mut decoded = vec![vec![0x55; len]; lost.len()];
        plan.decode(&received, &repairs, &mut decoded).unwrap();
        let truth = |index: u16| padded(&sources[usize::from(index)], len);
        for (&index, decoded) in lost.iter().zip(&decoded) {
            prop_assert_eq!(decoded, &truth(index), "symbol {}", index);
        }
        for (index, decoded) in short.decoded() {
            prop_assert_eq!(decoded, truth(index), "symbol {}", index);
        }
    }

    /// The coefficients of a row are the same however they are taken.
    #[test]
    fn a_row_is_written_in_any_parts(count in 2..=1_024u16, key in first_key(), part in 1..200usize) {
        let id = generation(count.into()).repair_id(key);
        let whole: Vec<u8> = Code::RaptorQ.row(id).collect();
        prop_assert_eq!((whole.len(), Code::RaptorQ.row(id).len()), (count.into(), count.into()));
        let mut rest = Code::RaptorQ.row(id);
        let mut parts = Vec::new();
        while rest.len() > 0 {
            parts.extend(rest.by_ref().take(part));
        }
        prop_assert_eq!(parts, whole);
    }
}

/// Large generations take other paths through the crate, and few random ones are large.
#[test]
fn long_generations_are_those_of_the_crate() {
    activate_kernel();
    for (count, first_key) in [(500, 250), (1_020, 0), (1_024, 200), (1_024, 40_000)] {
        let sources: Vec<Vec<u8>> = (0..count).map(|index| symbol(index, 40)).collect();
        let mut repairs = vec![vec![0; 40]; 70];
        generation(count).encode(&sources, first_key, &mut repairs).unwrap();
        assert!(repairs == of_the_crate(&sources, first_key, 70, 40), "{count} symbols, keys from {first_key}");
        let lost: Vec<u16> = (0..count as u16).step_by(count / 60).collect();
        let keys: Vec<u16> = (first_key..).take(repairs.len()).collect();
        let plan = generation(count).plan(&lost, &keys).unwrap();
        let mut decoded = vec![vec![0; 40]; lost.len()];
        plan.decode(&sources, &repairs, &mut decoded).unwrap();
        assert!(lost.iter().zip(&decoded).all(|(&index, decoded)| *decoded == sources[usize::from(index)]));
    }
}

/// The wire has this rule for every code. In the RFC, a repair symbol of one source symbol is a multiple of
/// it, and under some keys the multiple is 0.
#[test]
fn a_span_of_one_is_the_symbol_itself() {
    activate_kernel();
    let (sources, generation) = ([symbol(3, 50)], generation(1));
    let mut repairs = vec![vec![0; 50]; 300];
    generation.encode(&sources, 0, &mut repairs).unwrap();
    assert!(repairs.iter().all(|repair| *repair == sources[0]));
    assert_eq!(generation.plan(&[0], &[7]).map(|plan| plan.lost().len()), Ok(1));
    let of_the_crate = of_the_crate(&sources, 0, 2_000, 50);
    assert!(of_the_crate.iter().any(|repair| repair.iter().all(|&byte| byte == 0)));
}

#[test]
fn generations_end_with_1024_symbols_and_keys_with_16_bits() {
    activate_kernel();
    let past = SpanError::TooManySymbols { count: 1_025, limit: 1_024 };
    assert_eq!(Generation::new(Code::RaptorQ, 1_025), Err(past));
    assert_eq!(past.to_string(), "a span of 1025 symbols is too long for this code, use at most 1024");
    let id = RepairId { first: SourceId(0), count: 1_025, key: 0 };
    assert_eq!(Code::RaptorQ.row(id).len(), 0);
    assert_eq!(Code::RaptorQ.row(RepairId { count: u16::MAX, ..id }).next(), None);
    let last = RepairId { count: 1_024, key: u16::MAX, ..id };
    assert_eq!((Code::RaptorQ.check(last), Code::RaptorQ.row(last).len()), (Ok(()), 1_024));
    let (sources, mut repairs) = (vec![[1; 3]; 5], [[0; 3]; 2]);
    let past = SpanError::PastLastKey { key: 65_535, repairs: 2 };
    assert_eq!(generation(5).encode(&sources, 65_535, &mut repairs), Err(past.into()));
    assert_eq!(generation(5).encode(&sources, 65_534, &mut repairs), Ok(()));
}

#[test]
fn sliding_windows_and_peeling_refuse_the_code() {
    let (code, generation) = (Code::RaptorQ, generation(60));
    assert!(!code.is_sliding() && code.is_systematic() && !code.is_sparse());
    assert!(code.neighbours(generation.repair_id(0)).is_none() && code.row_16(generation.repair_id(0)).len() == 0);
    let peeling = PeelingDecoder::new(generation, 2, Elimination::WhenStuck);
    assert_eq!(peeling.unwrap_err(), GenerationError::NotSparse { code });
    let mut encoder = Encoder::new(64, 4);
    encoder.push(b"tide").unwrap();
    let id = RepairId { first: SourceId(0), count: 1, key: 0 };
    let refused = SpanError::GenerationsOnly { code };
    assert_eq!(encoder.write_repair(code, id, &mut [0; 64]), Err(refused.into()));
}

/// Threads that compute the same rows at the same time read the same ones.
#[test]
fn threads_share_rows() {
    let row = |key| Code::RaptorQ.row(generation(777).repair_id(key)).collect::<Vec<u8>>();
    let rows = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| [row(5), row(500)])).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(rows.iter().all(|rows| *rows == [row(5), row(500)]));
}

/// The values of `docs/wire.md` section 7, for other implementations.
#[test]
fn repair_symbols_are_pinned() {
    activate_kernel();
    let (generation, sources) = (generation(3), [&b"tide"[..], b"comes", b"in"]);
    for (key, row, expected) in [
        (0, [0x01, 0xE7, 0x86], [0x5B, 0x23, 0x9D, 0xF7, 0x2C, 0]),
        (1, [0xCD, 0x74, 0x87], [0xA0, 0xEC, 0xF2, 0xB8, 0xE5, 0]),
        (300, [0x02, 0x79, 0x7C], [0x25, 0x60, 0x17, 0xFA, 0xF8, 0]),
        (65_535, [0x2E, 0xD6, 0xFE], [0x05, 0x65, 0x75, 0xA5, 0xFA, 0]),
    ] {
        let mut repair = [[0; 6]];
        generation.encode(&sources, key, &mut repair).unwrap();
        assert!(Code::RaptorQ.row(generation.repair_id(key)).eq(row), "{key}");
        assert_eq!(repair[0], expected, "{key}");
    }
}
