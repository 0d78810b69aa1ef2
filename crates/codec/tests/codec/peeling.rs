//! The peeling decoder against the rank by elimination, against peeling on plain sets, and LT codes against
//! Luby's definition in floating point.

use std::collections::{BTreeMap, BTreeSet};

use crate::setup::{activate_kernel, cases};
use proptest::prelude::*;
use tidewire_codec::{
    Code, DecodePlan, Elimination, Generation, GenerationError, PeelingDecoder, Rank, SourceId, SpanError,
};

const KEYS: u16 = 250;

/// A symbol that a receiver gets.
#[derive(Clone, Copy, Debug)]
enum Event {
    Source(u16),
    Repair(u16),
}

/// A generation, the bytes of its symbols, and the arrivals, in any order and some of them twice.
fn history() -> impl Strategy<Value = (Generation, Vec<Vec<u8>>, Vec<Event>)> {
    let code = prop_oneof![
        (1..=500u16, 1..=1_000u16).prop_map(|(c_milli, delta_milli)| Code::Lt { c_milli, delta_milli }),
        (1..=40u16).prop_map(|degree| Code::SemiRandomLt { degree }),
    ];
    (code, 1..=140u16, 1..=70usize, 0..1_000u64, 0..=3u32).prop_flat_map(|(code, count, len, first, weight)| {
        let generation = Generation::new(code, count).unwrap().at(SourceId(first)).unwrap();
        let sources = prop::collection::vec(prop::collection::vec(any::<u8>(), 1..=len), usize::from(count));
        let event = prop_oneof![
            weight => (0..count).prop_map(Event::Source),
            2 => (0..KEYS).prop_map(Event::Repair),
        ];
        (Just(generation), sources, prop::collection::vec(event, 0..3 * usize::from(count)))
    })
}

/// Peeling as a set of indices: which symbols become known, whatever the order.
fn peeled(generation: Generation, events: &[Event]) -> BTreeSet<u16> {
    let mut known = BTreeSet::new();
    let mut equations: Vec<BTreeSet<u16>> = events
        .iter()
        .map(|event| match *event {
            Event::Source(index) => BTreeSet::from([index]),
            Event::Repair(key) => generation.code().neighbours(generation.repair_id(key)).unwrap().collect(),
        })
        .collect();
    while let Some(last) = equations.iter().find(|equation| equation.len() == 1).and_then(BTreeSet::first).copied() {
        known.insert(last);
        equations.iter_mut().for_each(|equation| equation.retain(|&index| index != last));
    }
    known
}

/// What the documentation of the decoder promises. Vectors grow to at most twice what they hold.
fn bound(generation: Generation, len: usize, held: usize) -> usize {
    let count = usize::from(generation.count());
    count * len + 2 * held * (len + 8 + 4 * count) + 64 * count + count.next_multiple_of(64).pow(2) / 4 + 1_024
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn with_elimination_it_decodes_exactly_when_the_rank_suffices_and_alone_what_peeling_reaches(
        (generation, sources, events) in history(),
    ) {
        let len = sources.iter().map(Vec::len).max().unwrap();
        let mut repairs = vec![vec![0; len]; KEYS.into()];
        generation.encode(&sources, 0, &mut repairs).unwrap();
        let mut rank = Rank::new(generation);
        rank.end(generation.count()).unwrap();
        let mut both = [Elimination::WhenStuck, Elimination::Never]
            .map(|elimination| PeelingDecoder::new(generation, len, elimination).unwrap());
        for (at, event) in events.iter().enumerate() {
            let (is_new, of_use) = match *event {
                Event::Source(index) => {
                    let symbol = &sources[usize::from(index)];
                    (rank.add_source(index), both.each_mut().map(|decoder| decoder.add_source(index, symbol).unwrap()))
                }
                Event::Repair(key) => {
                    let symbol = &repairs[usize::from(key)];
                    let of_use = both.each_mut().map(|decoder| decoder.add_repair(key, symbol).unwrap());
                    (rank.add_repair(generation.count(), key), of_use)
                }
            };
            prop_assert_eq!(Ok(of_use[0]), is_new, "{:?}", event);
            prop_assert_eq!(both[0].is_recovered(), rank.is_recovered(), "after {:?}", event);
            for decoder in &both {
                let known = (0..generation.count()).filter(|&index| decoder.symbol(index).is_some()).count();
                prop_assert_eq!(known, usize::from(decoder.known()));
                prop_assert!(decoder.memory() <= bound(generation, len, at + 1), "{} bytes", decoder.memory());
            }
        }
        let [complete, alone] = &both;
        let known: BTreeSet<u16> = (0..generation.count()).filter(|&index| alone.symbol(index).is_some()).collect();
        prop_assert_eq!(known, peeled(generation, &events));
        for decoder in [complete, alone] {
            for (index, truth) in (0..).zip(&sources) {
                if let Some(symbol) = decoder.symbol(index) {
                    prop_assert!(symbol.starts_with(truth) && symbol[truth.len()..].iter().all(|&byte| byte == 0));
                }
            }
        }
    }
}

/// The plan that works for every code decodes a generation of LT repair symbols alone.
#[test]
fn a_plan_decodes_an_lt_code_from_repair_symbols_alone() {
    activate_kernel();
    let generation = Generation::new(LT, 40).unwrap();
    let sources: Vec<[u8; 9]> = (0..40).map(|index| [index * 5 + 1; 9]).collect();
    let mut repairs = vec![[0; 9]; 100];
    generation.encode(&sources, 0, &mut repairs).unwrap();
    let (lost, keys): (Vec<u16>, Vec<u16>) = ((0..40).collect(), (0..100).collect());
    let plan: DecodePlan = generation.plan(&lost, &keys).unwrap();
    let mut decoded = vec![[0; 9]; 40];
    plan.decode(&vec![&[][..]; 40], &repairs, &mut decoded).unwrap();
    assert_eq!(decoded, sources);
}

const LT: Code = Code::Lt { c_milli: 100, delta_milli: 500 };

/// SplitMix64 as the tests' own randomness, not that of the codec.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// How many of these numbers of repair symbols do not suffice, as many repair symbols arrive.
type Failures = BTreeMap<u16, u32>;

/// Generations of an LT code that a peeling decoder does not decode, from repair symbols alone.
fn failures(count: u16, most: &[u16], runs: u32) -> Failures {
    let generation = Generation::new(LT, count).unwrap();
    let mut failures: Failures = most.iter().map(|&most| (most, 0)).collect();
    for run in 0..runs {
        let generation = generation.at(SourceId(u64::from(run) * u64::from(count))).unwrap();
        let mut decoder = PeelingDecoder::new(generation, 1, Elimination::Never).unwrap();
        let mut symbol = [[0; 1]];
        for key in 0..*most.iter().max().unwrap() {
            generation.encode(&vec![[7]; count.into()], key, &mut symbol).unwrap();
            decoder.add_repair(key, &symbol[0]).unwrap();
            if let Some(failed) = failures.get_mut(&(key + 1)) {
                *failed += u32::from(!decoder.is_recovered());
            }
        }
    }
    failures
}

/// The same by Luby's definition in floating point, with other draws and with plain sets.
fn reference(count: u16, most: &[u16], runs: u32) -> Failures {
    let (k, c, delta) = (f64::from(count), 0.1, 0.5f64);
    let ripple = c * (k / delta).ln() * k.sqrt();
    let spike = (k / ripple).floor();
    let weights: Vec<f64> = (1..=count)
        .map(f64::from)
        .map(|d| {
            let ideal = if d == 1.0 { 1.0 / k } else { 1.0 / (d * (d - 1.0)) };
            let robust = [ripple / (d * k), ripple * (ripple / delta).ln() / k, 0.0];
            ideal + robust[usize::from(d >= spike) + usize::from(d > spike)]
        })
        .collect();
    let total: f64 = weights.iter().sum();
    let mut random = Random(count.into());
    let mut failures: Failures = most.iter().map(|&most| (most, 0)).collect();
    for _ in 0..runs {
        let mut repairs = Vec::new();
        for _ in 0..*most.iter().max().unwrap() {
            let mut target = random.uniform() * total;
            let below = weights.iter().take_while(|&&weight| {
                target -= weight;
                target >= 0.0
            });
            let degree = (below.count() + 1).min(count.into());
            let mut places = BTreeSet::new();
            while places.len() < degree {
                places.insert((random.next() % u64::from(count)) as u16);
            }
            repairs.push(places);
        }
        for (&most, failed) in &mut failures {
            *failed += u32::from(!is_peelable(&repairs[..most.into()], count));
        }
    }
    failures
}

/// Whether peeling gives all symbols. It passes over all sets until nothing changes.
fn is_peelable(repairs: &[BTreeSet<u16>], count: u16) -> bool {
    let mut known = vec![false; count.into()];
    loop {
        let mut has_changed = false;
        for repair in repairs {
            let mut unknown = repair.iter().filter(|&&place| !known[usize::from(place)]);
            if let (Some(&last), None) = (unknown.next(), unknown.next()) {
                known[usize::from(last)] = true;
                has_changed = true;
            }
        }
        if !has_changed {
            return known.into_iter().all(|known| known);
        }
    }
}

/// Two samples of a probability differ by less than four deviations. The seeds are fixed.
#[test]
fn an_lt_code_decodes_as_often_as_lubys_definition() {
    activate_kernel();
    const RUNS: u32 = 1_000;
    for (count, most) in [(100, [115, 130, 145, 170]), (256, [280, 300, 325, 370])] {
        let (ours, theirs) = (failures(count, &most, RUNS), reference(count, &most, RUNS));
        for most in most {
            let [ours, theirs] = [&ours, &theirs].map(|failures| f64::from(failures[&most]) / f64::from(RUNS));
            let mean = (ours + theirs) / 2.0;
            let deviation = (2.0 * mean * (1.0 - mean) / f64::from(RUNS)).sqrt();
            println!("{count} symbols, {most} received: {ours:.3} failed, by the definition {theirs:.3}");
            assert!((ours - theirs).abs() <= 4.0 * deviation + 1e-9, "{count} {most}: {ours} {theirs}");
            assert!((0.001..0.999).contains(&mean), "{count} symbols, {most} received: nothing to compare");
        }
    }
}

#[test]
fn a_decoder_that_only_peels_holds_a_bounded_number_of_repairs() {
    // Repairs of degree 2 over the even or the odd places only would never peel. Here none has degree 1.
    let generation = Generation::new(Code::SemiRandomLt { degree: 3 }, 16).unwrap();
    let mut decoder = PeelingDecoder::new(generation, 8, Elimination::Never).unwrap();
    let kept = (0..1_000).filter(|&key| decoder.add_repair(key, &[0; 8]) == Ok(true)).count();
    assert_eq!((kept, decoder.known()), (64, 0));
    let mut decoder = PeelingDecoder::new(generation, 8, Elimination::WhenStuck).unwrap();
    let kept = (0..1_000).filter(|&key| decoder.add_repair(key, &[0; 8]) == Ok(true)).count();
    assert_eq!((kept, decoder.is_recovered()), (16, true));
}

#[test]
fn the_printed_degree_of_sphinx_at_low_loss_makes_all_repairs_the_same() {
    // The block of 100 symbols at 1 % loss: 1/p = 100 neighbours of 100, and half as many if corrected.
    for (degree, ranks) in [(100, [1, 1]), (50, [2, 4])] {
        let generation = Generation::new(Code::SemiRandomLt { degree }, 100).unwrap();
        let ranks_found = [2, 4].map(|lost: u16| {
            let mut rank = Rank::new(generation);
            (lost..100).for_each(|index| assert_eq!(rank.add_source(index), Ok(true)));
            rank.end(100).unwrap();
            (0..60).filter(|&key| rank.add_repair(100, key) == Ok(true)).count()
        });
        assert_eq!(ranks_found, ranks, "degree {degree}");
    }
}

#[test]
fn wrong_symbols_are_named_and_change_nothing() {
    let dense = Generation::new(Code::Rlc, 10).unwrap();
    let refused = PeelingDecoder::new(dense, 8, Elimination::Never).unwrap_err();
    assert_eq!(refused, GenerationError::NotSparse { code: Code::Rlc });
    assert!(refused.to_string().starts_with("Rlc mixes all symbols"));
    let generation = Generation::new(LT, 10).unwrap();
    let empty = PeelingDecoder::new(generation, 0, Elimination::Never).unwrap_err();
    assert_eq!(empty, GenerationError::EmptySymbol);
    let mut decoder = PeelingDecoder::new(generation, 8, Elimination::WhenStuck).unwrap();
    let outside = GenerationError::SourceCount { given: 11, expected: 10 };
    assert_eq!(decoder.add_source(10, &[1; 8]), Err(outside));
    let long = GenerationError::SourceTooLong { index: 3, len: 9, limit: 8 };
    assert_eq!(decoder.add_source(3, &[1; 9]), Err(long));
    let short = GenerationError::RepairLen { index: 7, len: 6, expected: 8 };
    assert_eq!(decoder.add_repair(7, &[1; 6]), Err(short));
    assert_eq!((decoder.known(), decoder.symbol(3), decoder.symbol(10)), (0, None, None));
    let code = Code::SemiRandomLt { degree: 0 };
    assert_eq!(Generation::new(code, 10), Err(SpanError::CodeParameter { code }));
    assert!(SpanError::CodeParameter { code }.to_string().contains("degree 0"));
}
