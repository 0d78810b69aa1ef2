//! The most memory that a decoder holds and the most work it does in one call. The tests check the promises
//! of `Limits` and of `Decoder::row_operations` for the windows in use, under a hostile peer and under heavy
//! loss.

use crate::bounded::{Meter, promised};
use tidewire_codec::{Code, Decoder, Encoder, Limits, Reception, RepairId, SourceId};

const SYMBOL: usize = 1_408;

/// One value for capacity, span and rows of a window. The last two are the transport's, before and after its
/// ring grew.
fn all_limits() -> impl Iterator<Item = Limits> {
    let window = |w: usize| Limits { slot_len: SYMBOL, capacity: w, max_span: w as u16, max_rows: w };
    let transport = |capacity| Limits { slot_len: SYMBOL, capacity, max_span: 256, max_rows: 256 };
    [2, 4, 8, 64, 128, 256, 1_024].into_iter().map(window).chain([256, 2_048].map(transport))
}

/// The bound of the design, and the tighter one that `Limits` promises.
fn check_memory(limits: Limits, meter: &Meter) {
    let window = limits.capacity;
    let most = window * (SYMBOL + window) * 11 / 10;
    assert!(meter.most <= promised(limits), "{limits:?}: {} bytes, promised {}", meter.most, promised(limits));
    assert!(meter.most <= most as isize, "{limits:?}: {} bytes, at most {most}", meter.most);
}

fn check_operations(limits: Limits, before: u64, decoder: &Decoder) {
    let most = (limits.max_rows + 1).min(limits.capacity) as u64;
    let operations = decoder.row_operations() - before;
    assert!(operations <= most, "{limits:?}: {operations} row operations");
}

/// The matrix gets the most rows and columns it can hold; then everything is solved one symbol after the
/// other.
#[test]
fn a_window_of_nothing_but_repairs() {
    for limits in all_limits() {
        let mut meter = Meter::default();
        let mut decoder = meter.run(|| Decoder::new(limits));
        let span = limits.max_span.min(limits.capacity as u16);
        let spans = limits.capacity as u64 - u64::from(span);
        for key in 0..2 * limits.capacity as u16 {
            let first = SourceId(u64::from(key).wrapping_mul(97) % (spans + 1));
            let before = decoder.row_operations();
            // Zeros, so that no sequence contradicts itself. Rows and columns may run out.
            let id = RepairId { first, count: span, key };
            let _ = meter.run(|| decoder.receive_repair(Code::Rlc, id, &[0; SYMBOL]));
            check_operations(limits, before, &decoder);
        }
        for id in 0..limits.capacity as u64 {
            let before = decoder.row_operations();
            let _ = meter.run(|| decoder.receive_source(SourceId(id), &[0; SYMBOL])).unwrap();
            check_operations(limits, before, &decoder);
        }
        assert_eq!((decoder.edge().0, decoder.rows()), (limits.capacity as u64, 0));
        check_memory(limits, &meter);
    }
}

/// Half of all symbols are lost, and a repair follows each: rows come and go for several windows. Then the
/// ring grows while it holds them.
#[test]
fn half_of_a_long_stream_is_lost() {
    for limits in all_limits() {
        let mut meter = Meter::default();
        let mut decoder = meter.run(|| Decoder::new(limits));
        let mut encoder = Encoder::new(SYMBOL, limits.capacity);
        let mut repair = [0; SYMBOL];
        let mut random = 1u32;
        for round in 0..4 * limits.capacity as u64 {
            random = random.wrapping_mul(0x915F_77F5).wrapping_add(1);
            encoder.release_before(decoder.edge());
            if let Ok(id) = encoder.push(&[round as u8; SYMBOL])
                && random >> 31 == 0
            {
                meter.run(|| decoder.receive_source(id, encoder.symbol(id).unwrap())).unwrap();
            }
            let window = encoder.window();
            let count = window.end.since(window.start).min(limits.max_span.into()) as u16;
            let id = RepairId { first: window.start, count, key: round as u16 };
            let len = encoder.write_repair(Code::Rlc, id, &mut repair).unwrap();
            let before = decoder.row_operations();
            meter.run(|| decoder.receive_repair(Code::Rlc, id, &repair[..len])).unwrap();
            check_operations(limits, before, &decoder);
        }
        assert!(decoder.edge().0 > limits.capacity as u64);
        check_memory(limits, &meter);
        let grown = Limits { capacity: 4 * limits.capacity, ..limits };
        meter.run(|| decoder.grow(grown.capacity));
        check_memory(grown, &meter);
    }
}

/// Every row mentions every id that is given up. To keep what the rows say of the other ids would take 127 +
/// 126 + ... row operations.
#[test]
fn giving_up_what_a_hundred_rows_share_is_cut_short() {
    let limits = Limits { slot_len: 64, capacity: 256, max_span: 256, max_rows: 128 };
    let filled = || {
        let mut decoder = Decoder::new(limits);
        for key in 0..128 {
            let id = RepairId { first: SourceId(0), count: 256, key };
            assert_eq!(decoder.receive_repair(Code::Rlc, id, &[0; 64]), Ok(Reception::Innovative));
        }
        decoder
    };
    for given_up in [1, 2, 64, 127, 128, 255, 256] {
        let mut decoder = filled();
        let before = decoder.row_operations();
        let lost = decoder.skip_before(SourceId(given_up));
        assert!(decoder.row_operations() - before <= 128, "{given_up}");
        assert_eq!(decoder.edge(), SourceId(given_up));
        match given_up {
            // One row is lost for the id; the others are written.
            1 => assert_eq!((decoder.rows(), lost), (127, 0)),
            // One row operation is left at the second id, and nearly all rows mention it.
            2..=128 => assert!(decoder.rows() <= 3 && lost >= 120, "{given_up}: {} rows, {lost} lost", decoder.rows()),
            // No row, or only the last, has information about the remaining ids.
            _ => assert_eq!((decoder.rows(), lost), (0, 0)),
        }
        // The remaining symbols decode as usual.
        for id in given_up..256 {
            decoder.receive_source(SourceId(id), &[0; 64]).unwrap();
        }
        assert_eq!((decoder.edge(), decoder.rows()), (SourceId(256), 0));
    }
}
