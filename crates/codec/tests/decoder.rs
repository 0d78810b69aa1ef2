//! The decoder against a naive one, over arbitrary sequences of receptions and skips.
//!
//! After every step both must agree on the rank and on every decoded symbol: that is at once "rank never falls", "a
//! unit vector in the row space is delivered" and "innovative means the rank rose".
#![cfg(not(miri))]

mod reference;
mod setup;

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::Index;
use reference::Reference;
use tidewire_codec::field::gf256;
use tidewire_codec::{Code, Decoded, Decoder, Encoder, Limits, Reception, RepairId, SourceId};

/// Ids in play: a few words of the decoder's sets, and small enough for the naive elimination.
const IDS: usize = 72;
const SLOT: usize = 128;
const LIMITS: Limits = Limits { slot_len: SLOT, capacity: IDS, max_span: IDS as u16, max_rows: IDS };

#[derive(Clone, Debug)]
enum Step {
    Source(usize),
    Repair(Code, RepairId),
    /// First id and coefficients, not all of them 0.
    Recoded(usize, Vec<u8>),
    Skip(usize),
}

fn repair() -> impl Strategy<Value = Step> {
    // Few keys: duplicates are part of life. Short spans more often than long ones.
    let code = prop_oneof![Just(Code::Rlc), Just(Code::Rlc8681), Just(Code::Cauchy)];
    let span = (0..IDS, prop_oneof![1..8usize, 1..=IDS], code, 0..6u16);
    span.prop_map(|(first, count, code, key)| {
        let count = count.min(IDS - first) as u16;
        Step::Repair(code, RepairId { first: SourceId(first as u64), count, key })
    })
}

fn recoded() -> impl Strategy<Value = Step> {
    // Zeros at the ends, in the middle, everywhere but in one place.
    let coefficient = prop_oneof![2 => Just(0), 1 => any::<u8>()];
    let coefficients =
        prop_oneof![1..8usize, 1..=IDS].prop_flat_map(move |n| prop::collection::vec(coefficient.clone(), n));
    let coefficients = coefficients.prop_filter("all zero", |row| row.iter().any(|&factor| factor != 0));
    (coefficients, any::<Index>())
        .prop_map(|(coefficients, first)| Step::Recoded(first.index(IDS + 1 - coefficients.len()), coefficients))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..IDS).prop_map(Step::Source),
        8 => repair(),
        8 => recoded(),
        1 => (0..IDS).prop_map(Step::Skip),
    ];
    prop::collection::vec(step, 0..150)
}

/// An encoder with all symbols in it: odd bytes of odd lengths.
fn sender() -> Encoder {
    let mut encoder = Encoder::new(SLOT, IDS);
    for id in 0..IDS {
        let len = 1 + id * 37 % SLOT;
        let symbol: Vec<u8> = (0..len).map(|i| (i * 31 + id * 101 + 7) as u8 | 1).collect();
        encoder.push(&symbol).unwrap();
    }
    encoder
}

/// Coefficients from `first` on, among all ids.
fn wide(first: usize, coefficients: impl Iterator<Item = u8>) -> Vec<u8> {
    let mut row = vec![0; first];
    row.extend(coefficients);
    row.resize(IDS, 0);
    row
}

/// Both decoders, and what the real one reported.
struct Pair {
    encoder: Encoder,
    decoder: Decoder,
    reference: Reference,
    end: usize,
    reported: BTreeSet<u64>,
}

impl Pair {
    fn new() -> Self {
        let (decoder, reference) = (Decoder::new(LIMITS), Reference::new(IDS));
        Self { encoder: sender(), decoder, reference, end: 0, reported: BTreeSet::new() }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Skip(id) => {
                self.decoder.skip_before(SourceId(id as u64));
                self.reference.skip_before(id);
                self.end = self.end.max(id);
            }
            Step::Source(id) => {
                let symbol = self.encoder.symbol(SourceId(id as u64)).unwrap();
                let reception = self.decoder.receive_source(SourceId(id as u64), symbol).unwrap();
                let row = (0..IDS).map(|column| u8::from(column == id)).collect();
                let expected = self.reference.receive(row);
                assert_eq!(reception == Reception::Innovative, expected, "{step:?}: {reception:?}");
                self.end = self.end.max(id + 1);
            }
            Step::Repair(code, id) => {
                let mut symbol = [0; SLOT];
                let len = self.encoder.write_repair(code, id, &mut symbol).unwrap();
                let reception = self.decoder.receive_repair(code, id, &symbol[..len]).unwrap();
                let expected = self.reference.receive(wide(id.first.0 as usize, code.row(id)));
                assert_eq!(reception == Reception::Innovative, expected, "{step:?}: {reception:?}");
                self.end = self.end.max(id.first.0 as usize + usize::from(id.count));
            }
            Step::Recoded(first, ref coefficients) => {
                let symbol = self.mixed(first, coefficients);
                let reception = self.decoder.receive_recoded(SourceId(first as u64), coefficients, &symbol).unwrap();
                let expected = self.reference.receive(wide(first, coefficients.iter().copied()));
                assert_eq!(reception == Reception::Innovative, expected, "{step:?}: {reception:?}");
                let last = coefficients.iter().rposition(|&factor| factor != 0).unwrap();
                self.end = self.end.max(first + last + 1);
            }
        }
        while let Some(Decoded { id, .. }) = self.decoder.poll_decoded() {
            assert!(self.reported.insert(id.0), "{id} was told twice");
        }
        self.agree();
    }

    /// What a relay would send: as long as the longest symbol it mixes.
    fn mixed(&self, first: usize, coefficients: &[u8]) -> Vec<u8> {
        let mut mixed = Vec::new();
        for (id, &factor) in (first as u64..).zip(coefficients).filter(|&(_, &factor)| factor != 0) {
            let symbol = self.encoder.symbol(SourceId(id)).unwrap();
            mixed.resize(mixed.len().max(symbol.len()), 0);
            mixed.iter_mut().zip(symbol).for_each(|(sum, &byte)| *sum ^= gf256::mul(factor, byte));
        }
        mixed
    }

    fn agree(&self) {
        let mut missing = Vec::new();
        for id in 0..IDS {
            let (source, is_decoded) = (SourceId(id as u64), self.reference.is_decoded(id));
            let is_given_up = self.reference.is_given_up(id);
            assert_eq!(self.decoder.is_decoded(source), is_decoded || is_given_up, "{id}");
            assert_eq!(self.reported.contains(&source.0), is_decoded, "{id} decoded and told");
            let truth = self.encoder.symbol(source).unwrap();
            match self.decoder.symbol(source) {
                None => assert!(!is_decoded, "{id} is lost again"),
                Some(symbol) => {
                    assert!(is_decoded, "{id} out of nothing");
                    assert!(symbol.starts_with(truth), "bytes of {id}");
                    assert!(symbol[truth.len()..].iter().all(|&byte| byte == 0), "padding of {id}");
                }
            }
            if id < self.end && !is_decoded && !is_given_up {
                missing.push(source);
            }
        }
        let end = SourceId(self.end as u64);
        assert_eq!(self.decoder.end(), end);
        assert_eq!(self.decoder.edge(), *missing.first().unwrap_or(&end));
        assert_eq!(self.decoder.rows(), self.reference.unsolved());
        assert_eq!(self.decoder.rank_deficit(), (missing.len() - self.reference.unsolved()) as u64);
        assert_eq!(self.decoder.undecoded_in(SourceId(0)..SourceId(u64::MAX)), missing.len() as u64);
        let runs = self.decoder.undecoded().flat_map(|run| (run.start.0..run.end.0).map(SourceId));
        assert!(runs.eq(missing.iter().copied()));
    }
}

proptest! {
    #![proptest_config(setup::cases(256))]

    #[test]
    fn agrees_with_the_naive_decoder_after_every_step(steps in steps()) {
        let mut pair = Pair::new();
        steps.iter().for_each(|step| pair.take(step));
    }

    #[test]
    fn order_and_copies_of_receptions_do_not_matter(
        steps in prop::collection::vec(prop_oneof![(0..IDS).prop_map(Step::Source), repair(), recoded()], 1..100),
        order in prop::collection::vec(any::<Index>(), 0..200),
    ) {
        let mut first = Pair::new();
        steps.iter().for_each(|step| first.take(step));
        let mut second = Pair::new();
        order.iter().map(|index| index.get(&steps)).chain(steps.iter().rev()).for_each(|step| second.take(step));
        prop_assert_eq!(first.decoder.rank_deficit(), second.decoder.rank_deficit());
        prop_assert_eq!(first.reported, second.reported);
    }

    /// Growing in the middle of anything changes nothing but the capacity.
    #[test]
    fn growing_keeps_rows_and_symbols(steps in steps(), at in any::<Index>()) {
        let mut pair = Pair::new();
        let (before, after) = steps.split_at(at.index(steps.len() + 1));
        before.iter().for_each(|step| pair.take(step));
        pair.decoder.grow(4 * IDS);
        prop_assert_eq!(pair.decoder.capacity(), (4 * IDS).next_power_of_two());
        pair.agree();
        after.iter().for_each(|step| pair.take(step));
    }
}
