//! The decoder against a naive one, over arbitrary sequences of receptions and skips.
//!
//! After every step both must agree on the rank and on every decoded symbol. That tests three properties at
//! once: the rank never falls, a unit vector in the row space is delivered, and "innovative" means that the
//! rank rose.

use crate::reference::pair::{IDS, Pair, Step};
use crate::setup;
use proptest::prelude::*;
use proptest::sample::Index;
use tidewire_codec::{Code, RepairId, SourceId};

fn repair() -> impl Strategy<Value = Step> {
    // Few keys, so that duplicates are common. Short spans are more frequent than long ones.
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
        // Mostly short skips: a long one may exceed the bound on row operations, which ends the comparison.
        1 => prop_oneof![3 => 0..12usize, 1 => 0..IDS].prop_map(Step::Skip),
    ];
    prop::collection::vec(step, 0..150)
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

    /// Growing at any point changes only the capacity.
    #[test]
    fn growing_keeps_rows_and_symbols(steps in steps(), at in any::<Index>()) {
        let mut pair = Pair::new();
        let (before, after) = steps.split_at(at.index(steps.len() + 1));
        before.iter().for_each(|step| pair.take(step));
        pair.take(&Step::Grow(4 * IDS));
        after.iter().for_each(|step| pair.take(step));
    }
}
