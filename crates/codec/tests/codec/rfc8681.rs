//! `Rlc8681` against the crate `cu-fec`, another implementation of RFC 8681. The coefficients are the same,
//! and each decodes the other's symbols.

use crate::setup;
use cu_fec::{
    DensityThreshold, EncodingSymbolId, Field, RepairParameters, RepairPayloadId, RlcConfig, RlcDecoder, RlcEncoder,
    generate_coding_coefficients,
};
use proptest::prelude::*;
use tidewire_codec::{Code, Decoder, Encoder, Limits, Reception, RepairId, SourceId};

/// All symbols of the peer have the same length.
const LEN: usize = 48;
/// The longest span of the streams below.
const SPAN: usize = 24;
/// Repair symbols beyond the losses. Each makes failure 255 times less likely; with eight it does not happen.
const EXTRA: u16 = 8;

fn symbol(id: u64) -> [u8; LEN] {
    core::array::from_fn(|i| (i as u64 * 31 + id * 101 + 7) as u8)
}

#[test]
fn coefficients_are_equal_for_every_key() {
    let mut theirs = [0; 64];
    for key in 0..=u16::MAX {
        generate_coding_coefficients(Field::Gf256, key, DensityThreshold::FULL, &mut theirs);
        let id = RepairId { first: SourceId(1_000), count: 64, key };
        assert!(Code::Rlc8681.row(id).eq(theirs), "key {key}");
    }
}

/// The longest span that the RFC can name, and every shorter one: a row is the start of a longer one.
#[test]
fn coefficients_are_equal_for_every_count() {
    const MOST: u16 = 4_095;
    for key in [0, 1, 255, 256, 43_690, u16::MAX] {
        let mut theirs = [0; MOST as usize];
        generate_coding_coefficients(Field::Gf256, key, DensityThreshold::FULL, &mut theirs);
        for count in [1, 2, 3, 255, 256, 257, 1_024, MOST] {
            let id = RepairId { first: SourceId(5), count, key };
            assert!(Code::Rlc8681.row(id).eq(theirs[..count.into()].iter().copied()), "key {key}, count {count}");
        }
    }
}

/// A span somewhere in a stream, its losses, and the first key of its repair symbols.
fn losses() -> impl Strategy<Value = (u32, usize, Vec<bool>, u16)> {
    // Spans of one are frequent, because the RFC differs from the other codes there.
    (0..50u32, prop_oneof![1 => Just(1), 4 => 1..=SPAN], prop::collection::vec(any::<bool>(), SPAN), any::<u16>())
}

proptest! {
    #![proptest_config(setup::cases(256))]

    #[test]
    fn ours_decodes_what_theirs_encoded((first, count, lost, key) in losses()) {
        let config = RlcConfig::new(LEN, count, Field::Gf256).unwrap();
        let mut encoder = RlcEncoder::<LEN, SPAN>::new(config, EncodingSymbolId::new(first)).unwrap();
        let limits = Limits { slot_len: LEN, capacity: 128, max_span: SPAN as u16, max_rows: SPAN };
        let mut decoder = Decoder::new(limits);
        decoder.skip_before(SourceId(first.into()));
        let span = u64::from(first)..u64::from(first) + count as u64;
        for (id, lost) in span.clone().zip(&lost) {
            encoder.push_source(&symbol(id)).unwrap();
            if !lost {
                decoder.receive_source(SourceId(id), &symbol(id)).unwrap();
            }
        }
        let mut repair = [0; LEN];
        for extra in 0..count as u16 + EXTRA {
            let parameters = RepairParameters::new(key.wrapping_add(extra), DensityThreshold::FULL);
            let theirs = encoder.encode_repair(parameters, &mut repair).unwrap();
            let id = RepairId {
                first: SourceId(theirs.first_source_esi().get().into()),
                count: theirs.source_symbols(),
                key: theirs.repair_key(),
            };
            decoder.receive_repair(Code::Rlc8681, id, &repair).unwrap();
        }
        for id in span {
            prop_assert_eq!(decoder.symbol(SourceId(id)), Some(&symbol(id)[..]));
        }
    }

    #[test]
    fn theirs_decodes_what_ours_encoded((first, count, lost, key) in losses()) {
        let mut encoder = Encoder::new(LEN, 128);
        let config = RlcConfig::new(LEN, count, Field::Gf256).unwrap();
        let mut decoder = RlcDecoder::<LEN, SPAN, SPAN>::new(config, SPAN).unwrap();
        let span = u64::from(first)..u64::from(first) + count as u64;
        for id in 0..span.end {
            encoder.push(&symbol(id)).unwrap();
            if id >= span.start && !lost[(id - span.start) as usize] {
                let _ = decoder.receive_source(EncodingSymbolId::new(id as u32), &symbol(id)).unwrap();
            }
        }
        let mut repair = [0; LEN];
        for extra in 0..count as u16 + EXTRA {
            let id = RepairId { first: SourceId(first.into()), count: count as u16, key: key.wrapping_add(extra) };
            encoder.write_repair(Code::Rlc8681, id, &mut repair).unwrap();
            let theirs = RepairPayloadId::new(id.key, DensityThreshold::FULL, id.count, EncodingSymbolId::new(first));
            let _ = decoder.receive_repair(theirs.unwrap(), &repair).unwrap();
        }
        for id in span {
            prop_assert_eq!(decoder.symbol(EncodingSymbolId::new(id as u32)), Some(&symbol(id)[..]));
        }
    }
}

/// A repair over a span of one is not the symbol itself here but a multiple of it.
#[test]
fn a_span_of_one_is_divided_by_its_coefficient() {
    let mut encoder = Encoder::new(LEN, 4);
    encoder.push(&symbol(0)).unwrap();
    let id = RepairId { first: SourceId(0), count: 1, key: 1 };
    let mut repair = [0; LEN];
    encoder.write_repair(Code::Rlc8681, id, &mut repair).unwrap();
    assert_ne!(repair, symbol(0));
    let mut decoder = Decoder::new(Limits { slot_len: LEN, capacity: 4, max_span: 4, max_rows: 4 });
    assert_eq!(decoder.receive_repair(Code::Rlc8681, id, &repair), Ok(Reception::Innovative));
    assert_eq!(decoder.symbol(SourceId(0)), Some(&symbol(0)[..]));
}
