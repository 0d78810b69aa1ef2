//! The guarantees of the codes: enough symbols decode, whichever they are, in generations and in a sliding
//! window.

use crate::setup;
use proptest::prelude::*;
use tidewire_codec::DecodeError::{TooManyColumns, TooManyRows};
use tidewire_codec::{
    Code, DecodeError, Decoder, EncodeError, Encoder, Limits, Reception, RecodeError, Recoder, RepairId, SourceId,
    SpanError,
};

const SLOT: usize = 192;

/// The bytes of a source symbol.
fn symbol(id: u64) -> Vec<u8> {
    let len = 1 + (id * 53 % SLOT as u64) as usize;
    (0..len as u64).map(|i| (i * 29 + id * 113 + id / 256 + 3) as u8 | 1).collect()
}

fn assert_bit_exact(decoder: &Decoder, id: SourceId) {
    let (truth, found) = (symbol(id.0), decoder.symbol(id).expect("decoded"));
    assert!(found.starts_with(&truth) && found[truth.len()..].iter().all(|&byte| byte == 0), "{id}");
}

/// Sends a generation in the given order and stops when it is decoded. Returns the numbers of innovative and
/// redundant symbols.
fn receive_generation(code: Code, k: u16, order: &[usize]) -> (u16, u16) {
    let mut encoder = Encoder::new(SLOT, usize::from(k));
    (0..u64::from(k)).for_each(|id| assert_eq!(encoder.push(&symbol(id)), Ok(SourceId(id))));
    let limits = Limits { slot_len: SLOT, capacity: k.into(), max_span: k, max_rows: k.into() };
    let mut decoder = Decoder::new(limits);
    let (mut innovative, mut redundant) = (0, 0);
    for &index in order {
        let reception = match index.checked_sub(usize::from(k)) {
            None => decoder.receive_source(SourceId(index as u64), encoder.symbol(SourceId(index as u64)).unwrap()),
            Some(key) => {
                let id = RepairId { first: SourceId(0), count: k, key: key as u16 };
                let mut repair = [0; SLOT];
                let len = encoder.write_repair(code, id, &mut repair).unwrap();
                decoder.receive_repair(code, id, &repair[..len])
            }
        };
        match reception.unwrap() {
            Reception::Innovative => innovative += 1,
            Reception::Redundant => redundant += 1,
            Reception::Stale => panic!("nothing can be stale in one generation"),
        }
        assert_eq!(decoder.rank_deficit() + u64::from(innovative), decoder.end().0);
        if innovative == k {
            break;
        }
    }
    if innovative == k {
        assert_eq!((decoder.edge(), decoder.rank_deficit()), (SourceId(k.into()), 0));
        (0..u64::from(k)).for_each(|id| assert_bit_exact(&decoder, SourceId(id)));
    }
    (innovative, redundant)
}

/// A generation of k and more symbols than that, in a random order.
fn generation(most: u16) -> impl Strategy<Value = (u16, Vec<usize>)> {
    (2..=most, 1..=24usize)
        .prop_flat_map(|(k, repairs)| (Just(k), Just((0..usize::from(k) + repairs).collect::<Vec<_>>()).prop_shuffle()))
}

proptest! {
    #![proptest_config(setup::cases(256))]

    #[test]
    fn any_k_innovative_symbols_decode_a_random_generation(
        (k, order) in generation(80), code in prop_oneof![Just(Code::Rlc), Just(Code::Rlc8681)],
    ) {
        receive_generation(code, k, &order);
    }

    #[test]
    fn any_k_symbols_decode_a_cauchy_generation((k, order) in generation(120)) {
        prop_assert_eq!(receive_generation(Code::Cauchy, k, &order[..usize::from(k)]), (k, 0));
    }

    /// The largest matrices: k + r = 256, of which exactly k arrive.
    #[test]
    fn cauchy_holds_to_the_last_row(k in 200..=255u16, losses in prop::collection::btree_set(0..200usize, 0..60)) {
        let sources = (0..usize::from(k)).filter(|id| !losses.contains(id));
        let order: Vec<usize> = sources.chain((usize::from(k)..256).rev()).take(usize::from(k)).collect();
        let expected = (order.len() as u16, 0);
        prop_assert_eq!(receive_generation(Code::Cauchy, k, &order), expected);
    }
}

/// A random code fails by chance: k repairs decode k unknowns with probability prod (1 - 255^-i), about
/// 0.9961. So 16 of 4,000 generations need more than k, and four deviations either way give 0..=32. Both ends
/// can fail.
#[test]
fn random_repairs_are_dependent_about_as_often_as_theory_says() {
    const GENERATIONS: u16 = 4_000;
    const K: usize = 6;
    setup::activate_kernel();
    for code in [Code::Rlc, Code::Rlc8681] {
        let failed = (0..GENERATIONS).filter(|generation| {
            let keys = (0..K).map(|i| K + usize::from(*generation) * K + i);
            receive_generation(code, K as u16, &keys.collect::<Vec<_>>()).0 < K as u16
        });
        let failed = failed.count();
        assert!((1..=32).contains(&failed), "{code:?}: {failed} of {GENERATIONS}");
    }
}

#[test]
fn a_code_for_generations_is_refused_by_whatever_slides() {
    let of_rlc16 = SpanError::GenerationsOnly { code: Code::Rlc16 }.to_string();
    assert_eq!(of_rlc16, "the code Rlc16 is for generations only, a sliding window takes dense codes over GF(2^8)");
    for code in [Code::Rlc16, Code::Lt { c_milli: 100, delta_milli: 500 }, Code::SemiRandomLt { degree: 2 }] {
        is_refused_by_whatever_slides(code);
    }
}

fn is_refused_by_whatever_slides(code: Code) {
    let id = RepairId { first: SourceId(0), count: 2, key: 0 };
    let error = SpanError::GenerationsOnly { code };
    let mut encoder = Encoder::new(64, 4);
    (0..2).for_each(|_| assert!(encoder.push(&[7; 64]).is_ok()));
    let mut out = [9; 64];
    assert_eq!(encoder.write_repair(code, id, &mut out), Err(EncodeError::Span(error)));
    assert_eq!(out, [9; 64]);
    let mut decoder = Decoder::new(Limits { slot_len: 64, capacity: 4, max_span: 4, max_rows: 4 });
    for count in [1, 2] {
        let id = RepairId { count, ..id };
        assert_eq!(decoder.receive_repair(code, id, &out), Err(DecodeError::Span(error)));
    }
    assert_eq!(decoder.end(), SourceId(0));
    let mut recoder = Recoder::new(64, 4);
    recoder.begin(SourceId(0), 2).unwrap();
    assert_eq!(recoder.receive_repair(code, id, &out), Err(RecodeError::Span(error)));
    assert_eq!(recoder.rank(), 0);
}

/// One datagram on its way: a source symbol or a repair symbol with its bytes.
#[derive(Clone)]
enum Packet {
    Source(SourceId),
    Repair(RepairId, Vec<u8>),
}

/// A link in which a packet may be lost, doubled, or overtaken by some that follow it.
struct Link {
    random: u64,
    loss_percent: u64,
    late: Vec<(u64, Packet)>,
}

impl Link {
    /// A number below `bound` (xorshift64*; the modulo's bias does not matter here).
    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }

    /// Takes a packet and returns the ones that come out now.
    fn pass(&mut self, now: u64, packet: Packet) -> Vec<Packet> {
        let copies = if self.below(100) < self.loss_percent { 0 } else { 1 + u64::from(self.below(20) == 0) };
        for _ in 0..copies {
            let delay = if self.below(8) == 0 { self.below(12) } else { 0 };
            self.late.push((now + delay, packet.clone()));
        }
        let (due, late) = std::mem::take(&mut self.late).into_iter().partition(|(at, _)| *at <= now);
        self.late = late;
        let due: Vec<(u64, Packet)> = due;
        due.into_iter().map(|(_, packet)| packet).collect()
    }
}

/// Streams `total` symbols through a ring of `capacity` with one repair after every `spacing` sources. If the
/// window is full, the sender repeats the receiver's edge until it moves. Every symbol must arrive once, bit
/// for bit.
fn stream(total: u64, capacity: usize, max_span: u16, spacing: u64, mut link: Link) {
    let mut encoder = Encoder::new(SLOT, capacity);
    let mut decoder = Decoder::new(Limits { slot_len: SLOT, capacity, max_span, max_rows: max_span.into() });
    let (mut decoded, mut now, mut key) = (0, 0u64, 0u16);
    while decoded < total {
        now += 1;
        assert!(now < 100 * total, "stuck at {} with {decoded} decoded", decoder.edge());
        let window = encoder.window();
        let packet = if now.is_multiple_of(spacing + 1) && !window.is_empty() {
            key = key.wrapping_add(1);
            let count = window.end.since(window.start).min(max_span.into());
            let id = RepairId { first: SourceId(window.end.0 - count), count: count as u16, key };
            let mut repair = vec![0; SLOT];
            let len = encoder.write_repair(Code::Rlc, id, &mut repair).unwrap();
            repair.truncate(len);
            Packet::Repair(id, repair)
        } else if window.end.0 < total && !encoder.is_full() {
            Packet::Source(encoder.push(&symbol(window.end.0)).unwrap())
        } else {
            Packet::Source(window.start)
        };
        for packet in link.pass(now, packet) {
            // Late packets may be below the sender's window; they keep their original bytes.
            let reception = match packet {
                Packet::Source(id) => decoder.receive_source(id, &symbol(id.0)),
                Packet::Repair(id, bytes) => decoder.receive_repair(Code::Rlc, id, &bytes),
            };
            // A symbol without room counts as one more loss.
            assert!(matches!(reception, Ok(_) | Err(TooManyRows { .. } | TooManyColumns { .. })), "{reception:?}");
            while let Some(found) = decoder.poll_decoded() {
                assert_bit_exact(&decoder, found.id);
                decoded += 1;
            }
        }
        encoder.release_before(decoder.edge());
    }
    assert_eq!((decoder.edge(), decoded, decoder.rows()), (SourceId(total), total, 0));
}

proptest! {
    #![proptest_config(setup::cases(64))]
    #[test]
    fn a_sliding_window_streams_through_loss_reordering_and_duplication(
        seed in 1..u64::MAX, loss_percent in 0..40u64, spacing in 1..12u64, span in 2..64u16, capacity in 16..200usize,
    ) {
        stream(2_000, capacity, span, spacing, Link { random: seed, loss_percent, late: Vec::new() });
    }
}
