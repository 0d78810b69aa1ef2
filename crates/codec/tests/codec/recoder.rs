//! Recoding against naive linear algebra: a relay's symbols match their coefficients. Over any number of
//! hops, nothing independent is lost and nothing is invented.

use crate::reference::Reference;
use crate::setup;
use proptest::prelude::*;
use proptest::sample::Index;
use tidewire_codec::field::gf256;
use tidewire_codec::{Code, Decoder, Encoder, Limits, Reception, RecodeError, Recoder, RepairId, SourceId, SpanError};

const SLOT: usize = 128;
/// Longest generation: not a multiple of 64, and longer than one call of the kernel takes.
const MOST: u16 = 70;
/// Where the generation begins.
const FIRST: u64 = 100;
const HOPS: usize = 3;

/// Odd bytes of different lengths.
fn symbol(id: u64) -> Vec<u8> {
    (0..1 + id * 37 % SLOT as u64).map(|i| (i * 31 + id * 101 + 7) as u8 | 1).collect()
}

/// The combination that a coding vector over the generation stands for, as long as a slot.
fn mixed(coefficients: &[u8]) -> Vec<u8> {
    let mut sum = vec![0; SLOT];
    for (id, &factor) in (FIRST..).zip(coefficients) {
        sum.iter_mut().zip(symbol(id)).for_each(|(sum, byte)| *sum ^= gf256::mul(factor, byte));
    }
    sum
}

/// One event on the way source, relay, ..., relay, sink.
#[derive(Clone, Debug)]
enum Step {
    Source(Index),
    /// A code, a span and a key.
    Repair(Code, Index, Index, u16),
    /// The relay with this number sends to the next relay or to the sink.
    Recode(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let code = prop_oneof![Just(Code::Rlc), Just(Code::Rlc8681), Just(Code::Cauchy)];
    let step = prop_oneof![
        1 => any::<Index>().prop_map(Step::Source),
        1 => (code, any::<Index>(), any::<Index>(), 0..9u16).prop_map(|(code, a, b, key)| Step::Repair(code, a, b, key)),
        4 => (0..HOPS).prop_map(Step::Recode),
    ];
    prop::collection::vec(step, 0..400)
}

/// A line of relays between a source and a sink, and the naive model of what each of them knows.
struct Line {
    count: u16,
    encoder: Encoder,
    relays: Vec<(Recoder, Reference, u16)>,
    sink: (Decoder, Reference, u16),
    sent: u64,
}

impl Line {
    fn new(count: u16) -> Self {
        let mut encoder = Encoder::new(SLOT, 256);
        (0..FIRST + u64::from(count)).for_each(|id| _ = encoder.push(&symbol(id)).unwrap());
        let relay = || {
            let mut relay = Recoder::new(SLOT, MOST);
            relay.begin(SourceId(FIRST), count).unwrap();
            (relay, Reference::new(count.into()), 0)
        };
        let limits = Limits { slot_len: SLOT, capacity: 128, max_span: MOST, max_rows: MOST.into() };
        let mut sink = (Decoder::new(limits), Reference::new(count.into()), 0);
        sink.0.skip_before(SourceId(FIRST));
        Self { count, encoder, relays: (0..HOPS).map(|_| relay()).collect(), sink, sent: 0 }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Source(index) => {
                let at = index.index(self.count.into());
                let id = SourceId(FIRST + at as u64);
                let (relay, reference, rank) = &mut self.relays[0];
                let reception = relay.receive_source(id, self.encoder.symbol(id).unwrap()).unwrap();
                agree(reception, reference, wide(self.count, at, [1]), rank);
            }
            Step::Repair(code, first, count, key) => {
                let at = first.index(self.count.into());
                let count = 1 + count.index(usize::from(self.count) - at) as u16;
                let id = RepairId { first: SourceId(FIRST + at as u64), count, key: *key };
                let mut bytes = [0; SLOT];
                let len = self.encoder.write_repair(*code, id, &mut bytes).unwrap();
                let (relay, reference, rank) = &mut self.relays[0];
                let reception = relay.receive_repair(*code, id, &bytes[..len]).unwrap();
                agree(reception, reference, wide(self.count, at, code.row(id)), rank);
            }
            Step::Recode(hop) => self.recode(*hop),
        }
        self.check();
    }

    fn recode(&mut self, hop: usize) {
        let (mut coefficients, mut bytes) = (vec![0; self.count.into()], [0; SLOT]);
        self.sent += 1;
        let (relay, ..) = &self.relays[hop];
        let len = match relay.write_recoded(self.sent, &mut coefficients, &mut bytes) {
            Ok(len) => len,
            Err(error) => {
                assert_eq!((error, relay.rank()), (RecodeError::NothingHeld, 0));
                return;
            }
        };
        assert_eq!(len, relay.recoded_len());
        assert_eq!(bytes[..], mixed(&coefficients), "the payload is what the coefficients say, and ends at {len}");
        assert!(coefficients.iter().any(|&factor| factor != 0));
        let (reception, reference, rank) = match self.relays.get_mut(hop + 1) {
            Some((relay, reference, rank)) => {
                (relay.receive_recoded(SourceId(FIRST), &coefficients, &bytes[..len]).unwrap(), reference, rank)
            }
            None => {
                let (decoder, reference, rank) = &mut self.sink;
                let reception = decoder.receive_recoded(SourceId(FIRST), &coefficients, &bytes[..len]).unwrap();
                (reception, reference, rank)
            }
        };
        agree(reception, reference, coefficients, rank);
    }

    /// Ranks never increase along the line, and the sink decoded the true bytes.
    fn check(&self) {
        let mut before = self.count;
        for (relay, _, rank) in &self.relays {
            assert_eq!(relay.rank(), *rank);
            assert!(*rank <= before);
            before = *rank;
        }
        let (decoder, reference, rank) = &self.sink;
        assert!(*rank <= before);
        for at in 0..self.count.into() {
            let id = FIRST + at as u64;
            assert_eq!(decoder.symbol(SourceId(id)).is_some(), reference.is_decoded(at));
            if let Some(found) = decoder.symbol(SourceId(id)) {
                let truth = symbol(id);
                assert!(found.starts_with(&truth) && found[truth.len()..].iter().all(|&byte| byte == 0), "{id}");
            }
        }
    }
}

/// A coding vector of the generation with `row` at `at`.
fn wide(count: u16, at: usize, row: impl IntoIterator<Item = u8>) -> Vec<u8> {
    let mut wide = vec![0; at];
    wide.extend(row);
    wide.resize(count.into(), 0);
    wide
}

fn agree(reception: Reception, reference: &mut Reference, row: Vec<u8>, rank: &mut u16) {
    let is_innovative = reference.receive(row);
    assert_eq!(reception, if is_innovative { Reception::Innovative } else { Reception::Redundant });
    *rank += u16::from(is_innovative);
}

proptest! {
    #![proptest_config(setup::cases(48))]
    #[test]
    fn relays_agree_with_naive_algebra_after_every_step(count in prop_oneof![1..12u16, 1..=MOST], steps in steps()) {
        let mut line = Line::new(count);
        steps.iter().for_each(|step| line.take(step));
    }

    /// Recoding over several hops: each hop receives from the one before until it knows as much, and the sink
    /// decodes everything.
    #[test]
    fn every_hop_gets_all_that_the_one_before_has(count in 1..=MOST, sources in prop::collection::vec(any::<Index>(), 1..60)) {
        let mut line = Line::new(count);
        sources.iter().for_each(|index| line.take(&Step::Source(*index)));
        let rank = line.relays[0].2;
        for hop in 0..HOPS {
            for _ in 0..rank + 8 {
                line.recode(hop);
            }
        }
        line.check();
        prop_assert_eq!(line.sink.2, rank);
        // Only some symbols of the generation went in: the same symbols come out.
        for index in &sources {
            prop_assert!(line.sink.0.is_decoded(SourceId(FIRST + index.index(count.into()) as u64)));
        }
    }
}

/// A peer may send anything: errors change nothing, and no symbol counts for more than it carries.
#[test]
fn errors_carry_numbers_and_change_nothing() {
    let mut relay = Recoder::new(SLOT, 8);
    let (mut coefficients, mut bytes) = ([0; 4], [0; SLOT]);
    let outside = |first, count, generation: std::ops::Range<u64>| {
        let generation = SourceId(generation.start)..SourceId(generation.end);
        Err(RecodeError::OutsideGeneration { first: SourceId(first), count, generation })
    };
    assert_eq!(relay.receive_source(SourceId(0), &[1]), outside(0, 1, 0..0), "before the first generation");
    assert_eq!(relay.write_recoded(0, &mut [], &mut bytes), Err(RecodeError::NothingHeld));
    assert_eq!(relay.begin(SourceId(5), 0), Err(SpanError::Empty.into()));
    assert_eq!(relay.begin(SourceId(5), 9), Err(RecodeError::GenerationTooLong { count: 9, limit: 8 }));
    let first = SourceId(u64::MAX);
    assert_eq!(relay.begin(first, 2), Err(SpanError::PastLastId { first, count: 2 }.into()));
    assert_eq!(relay.begin(SourceId(5), 4), Ok(()));
    assert_eq!(relay.receive_source(SourceId(6), &[7; 9]), Ok(Reception::Innovative));

    assert_eq!(relay.begin(SourceId(5), 9), Err(RecodeError::GenerationTooLong { count: 9, limit: 8 }));
    assert_eq!(relay.receive_source(SourceId(4), &[1]), outside(4, 1, 5..9));
    assert_eq!(relay.receive_source(SourceId(9), &[1]), outside(9, 1, 5..9));
    assert_eq!(relay.receive_source(SourceId(u64::MAX), &[1]), outside(u64::MAX, 1, 5..9));
    let repair = |first, count, key| RepairId { first: SourceId(first), count, key };
    assert_eq!(relay.receive_repair(Code::Rlc, repair(6, 4, 0), &[1]), outside(6, 4, 5..9));
    assert_eq!(relay.receive_repair(Code::Rlc, repair(6, 0, 0), &[1]), Err(SpanError::Empty.into()));
    let key = Err(SpanError::KeyTooLarge { key: 254, count: 2 }.into());
    assert_eq!(relay.receive_repair(Code::Cauchy, repair(6, 2, 254), &[1]), key);
    assert_eq!(relay.receive_recoded(SourceId(5), &[1; 5], &[1]), outside(5, 5, 5..9));
    assert_eq!(relay.receive_recoded(SourceId(5), &[1; 70_000], &[1]), outside(5, 70_000, 5..9));
    assert_eq!(relay.receive_recoded(SourceId(5), &[], &[1]), Err(SpanError::Empty.into()));
    assert_eq!(relay.receive_recoded(SourceId(5), &[0; 4], &[1]), Err(RecodeError::AllZero));
    assert_eq!(relay.receive_recoded(SourceId(5), &[1], &[]), Err(RecodeError::EmptySymbol));
    let too_long = Err(RecodeError::SymbolTooLong { len: SLOT + 1, limit: SLOT });
    assert_eq!(relay.receive_source(SourceId(5), &[1; SLOT + 1]), too_long);

    // One symbol is held, and the errors before did not change how it comes out.
    assert_eq!((relay.rank(), relay.recoded_len()), (1, 9));
    let wrong = Err(RecodeError::WrongCoefficients { len: 3, count: 4 });
    assert_eq!(relay.write_recoded(0, &mut [0; 3], &mut bytes), wrong);
    let short = Err(RecodeError::OutputTooShort { len: 8, needed: 9 });
    assert_eq!(relay.write_recoded(0, &mut coefficients, &mut [0; 8]), short);
    assert_eq!(coefficients, [0; 4]);
    assert_eq!(relay.write_recoded(0, &mut coefficients, &mut bytes), Ok(9));
    assert!(matches!(coefficients, [0, 1..=255, 0, 0]), "{coefficients:?}");
    assert_eq!(bytes[..9], [gf256::mul(coefficients[1], 7); 9]);
}

/// A relay that knows everything sends combinations of k source symbols, with multipliers m that are
/// independent and uniform over the 255 values that are not 0. Suppose the sink lacks one dimension. Then
/// some linear form is 0 on all it knows, and a combination is redundant if the form of m is 0. Let N(w)
/// count the m for which a form of w terms is 0. The first w - 1 are free and determine the last, which is
/// not 0 unless they sum to 0 themselves. So N(w) = 255^(w-1) - N(w-1) with N(1) = 0, and the probability
/// N(w) / 255^w is (1 + (-1)^w / 255^(w-1)) / 256: 1/256 for all but the shortest forms. A sink that lacks j
/// dimensions has j forms: 256^-j. The number of redundant receptions while it lacks j is geometric. So a
/// generation has 0.003937 of them (1/255 + 1/65,535 and smaller terms), with variance 256/255^2 and smaller
/// terms.
#[test]
fn random_recodings_are_redundant_as_often_as_theory_says() {
    const GENERATIONS: u64 = 20_000;
    const K: u16 = 8;
    let (mut relay, mut sink) = (Recoder::new(1, K), Recoder::new(1, K));
    let (mut redundant, mut coefficients) = (0, [0; K as usize]);
    for generation in 0..GENERATIONS {
        relay.begin(SourceId(0), K).unwrap();
        sink.begin(SourceId(0), K).unwrap();
        (0..K).for_each(|id| _ = relay.receive_source(SourceId(id.into()), &[1]).unwrap());
        for key in 1_000 * generation.. {
            relay.write_recoded(key, &mut coefficients, &mut [0]).unwrap();
            redundant += u64::from(sink.receive_recoded(SourceId(0), &coefficients, &[1]) == Ok(Reception::Redundant));
            if sink.rank() == K {
                break;
            }
        }
    }
    // 20,000 times 0.003937 is 78.7, and the deviation 8.9.
    assert!((52..=105).contains(&redundant), "{redundant} redundant in {GENERATIONS} generations");
}

/// One generation after another in the same memory, shorter and longer, with other symbol lengths: nothing of
/// an earlier one remains.
#[test]
fn a_new_generation_starts_clean() {
    let mut relay = Recoder::new(SLOT, MOST);
    for (generation, count) in [MOST, 3, 65, 1, MOST].into_iter().enumerate() {
        let first = SourceId(10_000 * generation as u64);
        relay.begin(first, count).unwrap();
        assert_eq!((relay.rank(), relay.recoded_len()), (0, 0));
        let len = SLOT - 20 * generation;
        for id in 0..count {
            let symbol = vec![generation as u8 + 1; len];
            assert_eq!(relay.receive_source(first.plus(id.into()), &symbol), Ok(Reception::Innovative));
            assert_eq!(relay.receive_source(first.plus(id.into()), &symbol), Ok(Reception::Redundant));
        }
        let (mut coefficients, mut bytes) = (vec![0xEE; count.into()], [0; SLOT]);
        assert_eq!(relay.write_recoded(7, &mut coefficients, &mut bytes), Ok(len));
        let sum = coefficients.iter().fold(0, |sum, factor| sum ^ factor);
        assert_eq!(bytes[..len], vec![gf256::mul(sum, generation as u8 + 1); len]);
    }
}
