//! A peer cannot make the decoder panic, grow or change on an error, whatever it sends. A healthy stream does
//! not make it allocate.

use crate::bounded::{Meter, Step, allocations, check_invariants, perform, promised, state};
use crate::setup;
use proptest::prelude::*;
use tidewire_codec::{Code, DecodeError, Decoder, Encoder, Limits, Reception, Recoder, RepairId, SourceId, SpanError};

const SLOT: usize = 64;
const LIMITS: Limits = Limits { slot_len: SLOT, capacity: 32, max_span: 16, max_rows: 5 };

fn id() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0..100u64, 1 => u64::MAX - 40..=u64::MAX, 1 => any::<u64>()]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    // Mostly of full length: a repair that is shorter than a symbol it mixes is refused.
    prop_oneof![
        25 => prop::collection::vec(any::<u8>(), SLOT),
        5 => prop::collection::vec(any::<u8>(), 1..=SLOT),
        1 => prop::collection::vec(any::<u8>(), 0..=SLOT + 2),
    ]
}

fn code() -> impl Strategy<Value = Code> {
    prop_oneof![Just(Code::Rlc), Just(Code::Rlc8681), Just(Code::Cauchy)]
}

fn coefficients() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![1 => Just(0), 1 => any::<u8>()], 0..20)
}

fn step() -> impl Strategy<Value = Step> {
    let count = || prop_oneof![10 => 0..20u16, 1 => any::<u16>()];
    let key = || prop_oneof![3 => 0..3u16, 1 => any::<u16>()];
    prop_oneof![
        2 => (id(), bytes()).prop_map(|(id, bytes)| Step::Source(id, bytes)),
        2 => (code(), id(), count(), key(), bytes()).prop_map(|(code, first, count, key, bytes)| {
            Step::Repair(code, RepairId { first: SourceId(first), count, key }, bytes)
        }),
        8 => (0..40u64, bytes()).prop_map(|(ahead, bytes)| Step::SourceAhead(ahead, bytes)),
        8 => (code(), -30..40i8, count(), key(), bytes()).prop_map(|(code, ahead, count, key, bytes)| {
            Step::RepairAhead(code, ahead, count, key, bytes)
        }),
        1 => (id(), coefficients(), bytes()).prop_map(|(first, row, bytes)| Step::Recoded(first, row, bytes)),
        4 => (-30..40i8, coefficients(), bytes()).prop_map(|(ahead, row, bytes)| Step::RecodedAhead(ahead, row, bytes)),
        1 => prop_oneof![20 => 0..100u64, 1 => id()].prop_map(Step::Skip),
        1 => (0..50u64).prop_map(Step::SkipAhead),
        3 => Just(Step::Poll),
        1 => (0..200usize).prop_map(Step::Grow),
    ]
}

proptest! {
    #![proptest_config(setup::cases(1_000))]
    /// Contents are random bytes, so rows contradict each other most of the time. A second decoder gets only
    /// what the first one did not refuse: anything that an error changed shows in a later step.
    #[test]
    fn nothing_a_peer_sends_breaks_an_invariant(steps in prop::collection::vec(step(), 0..120)) {
        let mut meter = Meter::default();
        let mut decoder = meter.run(|| Decoder::new(LIMITS));
        let mut undisturbed = Decoder::new(LIMITS);
        for step in steps {
            let (before, rows, operations) = (state(&decoder), decoder.rows(), decoder.row_operations());
            let result = meter.run(|| perform(&mut decoder, &step));
            check_invariants(&decoder, LIMITS);
            prop_assert!(decoder.row_operations() - operations <= LIMITS.max_rows as u64 + 1, "{:?}", step);
            let limits = Limits { capacity: decoder.capacity(), ..LIMITS };
            prop_assert!(meter.most <= promised(limits), "{} bytes held, {:?}", meter.most, step);
            let after = state(&decoder);
            match result {
                Some(Err(error)) => prop_assert_eq!(&before, &after, "{:?} gave {}", step, error),
                Some(Ok(Reception::Redundant)) => prop_assert_eq!(&before, &after, "{:?}", step),
                Some(Ok(Reception::Innovative)) => {
                    let grown = before.end.0.max(after.end.0) - before.end.0;
                    let gave_way = before.deficit + grown < after.deficit + 1;
                    // Only a full matrix drops a row for a new one.
                    prop_assert!(before.deficit + grown <= after.deficit + 1, "{:?}", step);
                    prop_assert!(!gave_way || rows == LIMITS.max_rows, "{:?}", step);
                }
                Some(Ok(Reception::Stale)) | None => {}
            }
            if !matches!(result, Some(Err(_))) {
                prop_assert_eq!(perform(&mut undisturbed, &step), result);
                prop_assert_eq!(after, state(&undisturbed), "{:?}", step);
            }
        }
    }
}

proptest! {
    #![proptest_config(setup::cases(256))]

    /// The encoder's caller is trusted more, but its numbers also come from a peer's feedback.
    #[test]
    fn nothing_asked_of_an_encoder_breaks_its_window(
        steps in prop::collection::vec((0..5u8, id(), 0..40u16, code(), prop::collection::vec(any::<u8>(), 0..70)), 0..100),
    ) {
        let mut encoder = Encoder::new(SLOT, 8);
        for (step, id, number, code, bytes) in steps {
            let before = encoder.window();
            match step {
                0 | 1 => prop_assert_eq!(encoder.push(&bytes).is_ok(), encoder.window().end > before.end),
                2 => encoder.release_before(SourceId(id)),
                3 => encoder.grow(number.into()),
                _ => {
                    let (first, mut out) = (SourceId(before.start.0.wrapping_add(id)), [0; SLOT]);
                    let repair = RepairId { first, count: number, key: number };
                    let len = encoder.write_repair(code, repair, &mut out);
                    prop_assert!(len.is_err() || len == encoder.repair_len(first, number));
                }
            }
            let window = encoder.window();
            prop_assert!(before.start <= window.start && before.end <= window.end);
            prop_assert!(window.end.since(window.start) <= encoder.capacity() as u64);
            prop_assert_eq!(encoder.open().is_none(), encoder.is_full());
            prop_assert_eq!(encoder.symbol(window.start).is_some(), !window.is_empty());
            prop_assert_eq!(encoder.symbol(window.end), None);
        }
    }
}

#[test]
fn errors_name_the_limit() {
    let mut decoder = Decoder::new(LIMITS);
    let repair = |first, count, key| RepairId { first: SourceId(first), count, key };
    let long = [1; SLOT + 1];
    assert_eq!(decoder.receive_source(SourceId(0), &[]), Err(DecodeError::EmptySymbol));
    let too_long = Err(DecodeError::SymbolTooLong { len: SLOT + 1, limit: SLOT });
    assert_eq!(decoder.receive_source(SourceId(0), &long), too_long);
    assert_eq!(decoder.receive_repair(Code::Rlc, repair(0, 2, 0), &long), too_long);
    let (id, limit) = (SourceId(32), SourceId(32));
    assert_eq!(decoder.receive_source(id, &[1]), Err(DecodeError::BeyondLimit { id, limit }));
    assert_eq!(decoder.receive_repair(Code::Rlc, repair(20, 13, 0), &[1]), Err(DecodeError::BeyondLimit { id, limit }));
    let (id, limit) = (SourceId(u64::MAX), SourceId(32));
    assert_eq!(decoder.receive_source(id, &[1]), Err(DecodeError::BeyondLimit { id, limit }));
    assert_eq!(
        decoder.receive_repair(Code::Rlc, repair(0, 17, 0), &[1]),
        Err(DecodeError::SpanTooLong { count: 17, limit: 16 })
    );
    assert_eq!(decoder.receive_repair(Code::Rlc, repair(0, 0, 0), &[1]), Err(SpanError::Empty.into()));
    assert_eq!(
        decoder.receive_repair(Code::Cauchy, repair(0, 16, 240), &[1]),
        Err(SpanError::KeyTooLarge { key: 240, count: 16 }.into())
    );
    // The same limits hold for a recoded symbol, by the ids that it mentions.
    let too_many = Err(DecodeError::SpanTooLong { count: 70_000, limit: 16 });
    assert_eq!(decoder.receive_recoded(SourceId(0), &[1; 70_000], &[1]), too_many);
    assert_eq!(decoder.receive_recoded(SourceId(0), &[], &[1]), Err(SpanError::Empty.into()));
    assert_eq!(decoder.receive_recoded(SourceId(0), &[0; 16], &[1]), Err(DecodeError::AllZero));
    assert_eq!(decoder.receive_recoded(SourceId(0), &[1, 1], &[]), Err(DecodeError::EmptySymbol));
    assert_eq!(decoder.receive_recoded(SourceId(0), &[1, 1], &long), too_long);
    let (id, limit, last) = (SourceId(32), SourceId(32), SourceId(u64::MAX));
    assert_eq!(decoder.receive_recoded(SourceId(30), &[0, 1, 2], &[1]), Err(DecodeError::BeyondLimit { id, limit }));
    let past = SpanError::PastLastId { first: last, count: 2 };
    assert_eq!(decoder.receive_recoded(last, &[1, 1], &[1]), Err(past.into()));
    assert_eq!(state(&decoder), state(&Decoder::new(LIMITS)));
    assert_eq!(decoder.receive_recoded(SourceId(30), &[1, 2, 0], &[1]), Ok(Reception::Innovative));
}

#[test]
fn full_rows_refuse_rows_and_nothing_else() {
    let mut decoder = Decoder::new(LIMITS);
    let repair = |key| RepairId { first: SourceId(0), count: 8, key };
    for key in 0..5 {
        assert_eq!(decoder.receive_repair(Code::Cauchy, repair(key), &[0; SLOT]), Ok(Reception::Innovative));
    }
    let full = Err(DecodeError::TooManyRows { limit: 5 });
    assert_eq!(decoder.receive_repair(Code::Cauchy, repair(5), &[0; SLOT]), full);
    // Source symbols and spans of one need no row and reduce the others.
    assert_eq!(decoder.receive_source(SourceId(3), &[0; SLOT]), Ok(Reception::Innovative));
    let one = RepairId { first: SourceId(0), count: 1, key: 0 };
    assert_eq!(decoder.receive_repair(Code::Cauchy, one, &[0; SLOT]), Ok(Reception::Innovative));
    // The last one determines a symbol at once, and all rows with it: no room is needed.
    assert_eq!((decoder.rank_deficit(), decoder.rows()), (1, 5));
    assert_eq!(decoder.receive_repair(Code::Cauchy, repair(5), &[0; SLOT]), Ok(Reception::Innovative));
    assert_eq!((decoder.rank_deficit(), decoder.rows(), decoder.edge()), (0, 0, SourceId(8)));
}

/// A window with losses everywhere fills the matrix with rows that solve nothing yet. Rows of later symbols
/// are dropped, so that the lowest gap closes.
#[test]
fn rows_of_later_symbols_give_way_to_earlier_ones() {
    let mut decoder = Decoder::new(Limits { capacity: 256, max_span: 16, max_rows: 4, slot_len: SLOT });
    let repair = |first, key| RepairId { first: SourceId(first), count: 8, key };
    for first in [200, 168, 136, 104] {
        assert_eq!(decoder.receive_repair(Code::Cauchy, repair(first, 0), &[0; SLOT]), Ok(Reception::Innovative));
    }
    assert_eq!(
        decoder.receive_repair(Code::Cauchy, repair(232, 0), &[0; SLOT]),
        Err(DecodeError::TooManyRows { limit: 4 })
    );
    for key in 0..3 {
        assert_eq!(decoder.receive_repair(Code::Cauchy, repair(0, key), &[0; SLOT]), Ok(Reception::Innovative));
        assert_eq!(decoder.rows(), 4);
    }
    for id in 3..8 {
        assert_eq!(decoder.receive_source(SourceId(id), &[0; SLOT]), Ok(Reception::Innovative));
    }
    assert_eq!((decoder.edge(), decoder.rows()), (SourceId(8), 1));
}

/// Spans without overlap always mention new ids: the columns run out before the ring does.
#[test]
fn full_columns_refuse_new_ids() {
    let mut decoder = Decoder::new(Limits { capacity: 256, max_span: 4, max_rows: 100, slot_len: SLOT });
    let repair = |first| RepairId { first: SourceId(first), count: 4, key: 0 };
    // Each span is one pivot and three free ids; 16 are allowed.
    for span in 0..5 {
        assert_eq!(decoder.receive_repair(Code::Rlc, repair(4 * span), &[1]), Ok(Reception::Innovative));
    }
    let before = state(&decoder);
    assert_eq!(decoder.receive_repair(Code::Rlc, repair(24), &[1]), Err(DecodeError::TooManyColumns { limit: 16 }));
    assert_eq!(state(&decoder), before);
    // The refused span left no trace: one with a single new id still fits.
    assert_eq!(decoder.receive_repair(Code::Rlc, repair(17), &[1]), Ok(Reception::Innovative));
    // Ids that are given up leave all columns to later ones.
    decoder.skip_before(SourceId(21));
    for span in 6..11 {
        assert_eq!(decoder.receive_repair(Code::Rlc, repair(4 * span), &[1]), Ok(Reception::Innovative));
    }
}

/// However many repairs are refused for want of a row, their ids take no columns.
#[test]
fn refused_rows_take_no_columns() {
    let mut decoder = Decoder::new(Limits { capacity: 256, max_span: 16, max_rows: 1, slot_len: SLOT });
    let repair = |first| RepairId { first: SourceId(first), count: 16, key: 0 };
    assert_eq!(decoder.receive_repair(Code::Rlc, repair(0), &[1]), Ok(Reception::Innovative));
    // Fifteen free ids are there and 64 allowed: the fourth span would be over the limit if the three before
    // it stayed.
    for span in 1..10 {
        let reception = decoder.receive_repair(Code::Rlc, repair(16 * span), &[1]);
        assert_eq!(reception, Err(DecodeError::TooManyRows { limit: 1 }));
    }
}

#[test]
fn a_repair_over_a_reused_slot_is_stale() {
    let mut decoder = Decoder::new(LIMITS);
    (0..20).for_each(|id| assert_eq!(decoder.receive_source(SourceId(id), &[1]), Ok(Reception::Innovative)));
    // 20 is lost; 21..=44 push the floor to 13.
    (21..45).for_each(|id| assert_eq!(decoder.receive_source(SourceId(id), &[1]), Ok(Reception::Innovative)));
    assert_eq!((decoder.symbol(SourceId(12)), decoder.symbol(SourceId(13))), (None, Some(&[1][..])));
    let repair = |first| RepairId { first: SourceId(first), count: 10, key: 0 };
    assert_eq!(decoder.receive_repair(Code::Rlc, repair(12), &[1]), Ok(Reception::Stale));
    assert_eq!(decoder.receive_repair(Code::Rlc, repair(2), &[1]), Ok(Reception::Redundant));
    assert_eq!(decoder.receive_source(SourceId(12), &[1]), Ok(Reception::Stale));
    assert_eq!(decoder.receive_source(SourceId(13), &[1]), Ok(Reception::Redundant));
    assert_eq!(decoder.receive_repair(Code::Rlc, repair(13), &[1]), Ok(Reception::Innovative));
    assert_eq!(decoder.edge(), SourceId(45));
}

/// An encoder and a decoder at 12 % loss: nothing allocates after the first thousand symbols.
#[test]
fn a_stream_allocates_nothing_once_it_is_warm() {
    setup::activate_kernel();
    let limits = Limits { slot_len: 1_408, capacity: 256, max_span: 128, max_rows: 128 };
    let (mut encoder, mut decoder) = (Encoder::new(1_408, 256), Decoder::new(limits));
    let mut repair = [0; 1_408];
    let mut warm = 0;
    for round in 0..10_000u64 {
        if round == 1_000 {
            warm = allocations();
        }
        let id = encoder.push(&round.to_be_bytes()).unwrap();
        // Losses in bursts of up to 6, so that rows pile up.
        if round % 50 >= 6 {
            decoder.receive_source(id, encoder.symbol(id).unwrap()).unwrap();
        }
        if round % 5 == 4 {
            let count = id.next().since(encoder.window().start).min(128) as u16;
            let span = RepairId { first: SourceId(id.0 + 1 - u64::from(count)), count, key: round as u16 };
            let len = encoder.write_repair(Code::Rlc, span, &mut repair).unwrap();
            decoder.receive_repair(Code::Rlc, span, &repair[..len]).unwrap();
        }
        while let Some(decoded) = decoder.poll_decoded() {
            assert_eq!(decoder.symbol(decoded.id), Some(&decoded.id.0.to_be_bytes()[..]));
        }
        assert!(decoder.undecoded().count() <= 6);
        encoder.release_before(decoder.edge());
    }
    assert!(decoder.rank_deficit() == 0);
    assert_eq!(allocations(), warm);
}

/// A relay allocates its memory once, within its promise. Later generations need no more allocations.
#[test]
fn a_relay_allocates_nothing_after_its_construction() {
    const COUNT: u16 = 64;
    let mut meter = Meter::default();
    let mut relay = meter.run(|| Recoder::new(1_408, COUNT));
    // Besides slots and vectors: three places and a mark for each symbol, two single vectors, and the
    // alignment of three rings.
    let count = COUNT as isize;
    let promised = count * (1_408 + 2 * count) + count * (3 * 8 + 3) + 3 * 64;
    assert!(meter.most <= promised, "{} bytes held, {promised} promised", meter.most);
    let (mut coefficients, mut symbol) = ([0; COUNT as usize], [0; 1_408]);
    let warm = allocations();
    for generation in 0..20 {
        let first = SourceId(generation * u64::from(COUNT));
        relay.begin(first, COUNT).unwrap();
        for key in 0..COUNT {
            relay.receive_source(first.plus(u64::from(key) / 2), &[1; 1_408]).unwrap();
            relay.receive_repair(Code::Rlc, RepairId { first, count: COUNT, key }, &[1; 1_408]).unwrap();
            let len = relay.write_recoded(key.into(), &mut coefficients, &mut symbol).unwrap();
            relay.receive_recoded(first, &coefficients, &symbol[..len]).unwrap();
        }
    }
    assert_eq!(allocations(), warm);
}

/// The end of a span may be the last number there is; no code counts past it.
#[test]
fn the_last_ids_are_ids_like_others() {
    let mut decoder = Decoder::new(LIMITS);
    decoder.skip_before(SourceId(u64::MAX - 8));
    let repair = |key| RepairId { first: SourceId(u64::MAX - 8), count: 8, key };
    for key in 0..2 {
        assert_eq!(decoder.receive_repair(Code::Rlc, repair(key), &[0; SLOT]), Ok(Reception::Innovative));
        assert_eq!(decoder.receive_repair(Code::Rlc, repair(key), &[0; SLOT]), Ok(Reception::Redundant));
    }
    for id in u64::MAX - 6..u64::MAX {
        assert_eq!(decoder.receive_source(SourceId(id), &[0; SLOT]), Ok(Reception::Innovative));
    }
    assert_eq!((decoder.edge(), decoder.rows()), (SourceId(u64::MAX), 0));
}

#[test]
#[should_panic(expected = "ring too large")]
fn a_capacity_past_the_address_space_panics() {
    Decoder::new(Limits { capacity: usize::MAX, ..LIMITS });
}

#[test]
#[should_panic(expected = "slot too long")]
fn a_slot_past_the_address_space_panics() {
    Encoder::new(usize::MAX, 1);
}

#[test]
#[should_panic(expected = "ring too large")]
fn growing_past_the_address_space_panics() {
    Encoder::new(SLOT, 4).grow(usize::MAX);
}
