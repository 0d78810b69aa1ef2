//! A peer that contradicts itself. The decoder refuses each contradiction it can see, names the symbol, and
//! stays unchanged. It never takes an honest peer's symbols for contradictions.

use crate::bounded::{State, state};
use tidewire_codec::{Code, DecodeError, Decoder, Encoder, Limits, Reception, RepairId, SourceId};

const SLOT: usize = 128;
const LIMITS: Limits = Limits { slot_len: SLOT, capacity: 32, max_span: 16, max_rows: 16 };

fn repair(first: u64, count: u16, key: u16) -> RepairId {
    RepairId { first: SourceId(first), count, key }
}

/// Sixteen symbols of 40 to 70 bytes that do not end in zeros.
fn sender() -> Encoder {
    let mut encoder = Encoder::new(SLOT, 16);
    for id in 0..16u8 {
        encoder.push(&vec![id + 1; 40 + 2 * usize::from(id)]).unwrap();
    }
    encoder
}

fn written(encoder: &Encoder, id: RepairId) -> Vec<u8> {
    let mut out = vec![0; SLOT];
    let len = encoder.write_repair(Code::Rlc, id, &mut out).unwrap();
    out.truncate(len);
    out
}

/// Sends the source symbols of `ids`.
fn send(decoder: &mut Decoder, encoder: &Encoder, ids: impl IntoIterator<Item = u64>) {
    for id in ids.into_iter().map(SourceId) {
        assert_eq!(decoder.receive_source(id, encoder.symbol(id).unwrap()), Ok(Reception::Innovative));
    }
}

fn refuses(
    decoder: &mut Decoder,
    error: DecodeError,
    receive: impl Fn(&mut Decoder) -> Result<Reception, DecodeError>,
) {
    let before: State = state(decoder);
    assert_eq!(receive(decoder), Err(error));
    assert_eq!(state(decoder), before);
}

#[test]
fn a_repair_shorter_than_a_known_symbol_of_its_span() {
    let (encoder, mut decoder) = (sender(), Decoder::new(LIMITS));
    send(&mut decoder, &encoder, [0, 1, 3]);
    let id = repair(0, 4, 0);
    let error = DecodeError::RepairTooShort { len: 45, source: SourceId(3), source_len: 46 };
    refuses(&mut decoder, error, |decoder| decoder.receive_repair(Code::Rlc, id, &[1; 45]));
    refuses(&mut decoder, error, |decoder| decoder.receive_recoded(SourceId(0), &[0, 0, 1, 1], &[1; 45]));
    // Symbols that it does not mix do not matter.
    assert_eq!(decoder.receive_recoded(SourceId(0), &[0, 1, 1, 0], &[1; 45]), Ok(Reception::Innovative));
}

/// A symbol decoded from a long repair is longer than the original: a shorter repair over it is correct.
#[test]
fn a_repair_shorter_than_a_repaired_symbol_is_no_contradiction() {
    let (encoder, mut decoder) = (sender(), Decoder::new(LIMITS));
    send(&mut decoder, &encoder, 1..16);
    assert_eq!(
        decoder.receive_repair(Code::Rlc, repair(0, 16, 0), &written(&encoder, repair(0, 16, 0))),
        Ok(Reception::Innovative)
    );
    assert_eq!(decoder.symbol(SourceId(0)).unwrap().len(), 70);
    let (mut long, mut short) = (Decoder::new(LIMITS), Decoder::new(LIMITS));
    for decoder in [&mut long, &mut short] {
        send(decoder, &encoder, 3..16);
        for key in 0..2 {
            let id = repair(1, 15, key);
            assert_eq!(decoder.receive_repair(Code::Rlc, id, &written(&encoder, id)), Ok(Reception::Innovative));
        }
        // 1 and 2 are 70 bytes long now; this one has 44.
        let id = repair(0, 3, 9);
        assert_eq!(decoder.receive_repair(Code::Rlc, id, &written(&encoder, id)), Ok(Reception::Innovative));
        assert_eq!(decoder.edge(), SourceId(16));
    }
}

#[test]
fn a_source_symbol_longer_than_a_row_that_mixes_it() {
    for id in [repair(0, 2, 0), repair(0, 3, 0)] {
        for lost in 0..u64::from(id.count) {
            let mut decoder = Decoder::new(LIMITS);
            assert_eq!(decoder.receive_repair(Code::Rlc, id, &[7; 50]), Ok(Reception::Innovative));
            let error = DecodeError::LongerThanRow { id: SourceId(lost), len: 51, limit: 50 };
            refuses(&mut decoder, error, |decoder| decoder.receive_source(SourceId(lost), &[1; 51]));
            assert_eq!(decoder.receive_source(SourceId(lost), &[1; 50]), Ok(Reception::Innovative));
        }
    }
}

/// A relay pads: a combination is as long as the longest symbol the relay holds, even if that one cancels
/// out.
#[test]
fn a_recoded_symbol_padded_beyond_a_row_that_mixes_it_is_no_contradiction() {
    let encoder = sender();
    for lost in 0..2 {
        let mut decoder = Decoder::new(LIMITS);
        let id = repair(0, 2, 0);
        assert_eq!(decoder.receive_repair(Code::Rlc, id, &written(&encoder, id)), Ok(Reception::Innovative));
        let mut padded = encoder.symbol(SourceId(lost)).unwrap().to_vec();
        padded.resize(70, 0);
        let mut too_long = padded.clone();
        too_long[42] = 1;
        let error = DecodeError::LongerThanRow { id: SourceId(lost), len: 43, limit: 42 };
        refuses(&mut decoder, error, |decoder| decoder.receive_recoded(SourceId(lost), &[1], &too_long));
        assert_eq!(decoder.receive_recoded(SourceId(lost), &[1], &padded), Ok(Reception::Innovative));
        for id in (0..2).map(SourceId) {
            let (truth, found) = (encoder.symbol(id).unwrap(), decoder.symbol(id).unwrap());
            assert!(found.starts_with(truth) && found[truth.len()..].iter().all(|&byte| byte == 0), "{id}");
        }
    }
}

#[test]
fn a_source_symbol_again_with_other_contents() {
    let (encoder, mut decoder) = (sender(), Decoder::new(LIMITS));
    send(&mut decoder, &encoder, [2]);
    let id = SourceId(2);
    let mut changed = encoder.symbol(id).unwrap().to_vec();
    assert_eq!(decoder.receive_source(id, &changed), Ok(Reception::Redundant));
    changed[17] ^= 1;
    let error = |at| DecodeError::SourceChanged { id, at };
    refuses(&mut decoder, error(17), |decoder| decoder.receive_source(id, &changed));
    refuses(&mut decoder, error(17), |decoder| decoder.receive_repair(Code::Rlc, repair(2, 1, 0), &changed));
    changed[17] ^= 1;
    refuses(&mut decoder, error(43), |decoder| decoder.receive_source(id, &changed[..43]));
    changed.push(0);
    refuses(&mut decoder, error(44), |decoder| decoder.receive_source(id, &changed));
    // A sum of itself may be padded.
    assert_eq!(decoder.receive_recoded(id, &[1], &changed), Ok(Reception::Redundant));
}

/// A repaired symbol is padded: its source symbol may be shorter, and no other.
#[test]
fn a_source_symbol_after_it_was_repaired() {
    let (encoder, mut decoder) = (sender(), Decoder::new(LIMITS));
    send(&mut decoder, &encoder, [1]);
    let id = repair(0, 2, 0);
    assert_eq!(decoder.receive_repair(Code::Rlc, id, &written(&encoder, id)), Ok(Reception::Innovative));
    let truth = encoder.symbol(SourceId(0)).unwrap().to_vec();
    assert_eq!((decoder.symbol(SourceId(0)).unwrap().len(), truth.len()), (42, 40));
    assert_eq!(decoder.receive_source(SourceId(0), &truth), Ok(Reception::Redundant));
    let error = |at| DecodeError::SourceChanged { id: SourceId(0), at };
    refuses(&mut decoder, error(39), |decoder| decoder.receive_source(SourceId(0), &truth[..39]));
    refuses(&mut decoder, error(0), |decoder| decoder.receive_source(SourceId(0), &[9; 40]));
}

/// It also holds after the row was mixed with others and got another pivot. Its name is forgotten when it is
/// solved.
#[test]
fn a_repair_again_with_other_contents_while_its_row_is_held() {
    let (encoder, mut decoder) = (sender(), Decoder::new(LIMITS));
    let ids = [repair(0, 8, 0), repair(2, 10, 1), repair(4, 8, 2)];
    send(&mut decoder, &encoder, [1, 3]);
    for id in ids {
        assert_eq!(decoder.receive_repair(Code::Rlc, id, &written(&encoder, id)), Ok(Reception::Innovative));
    }
    for known in [[11, 10], [7, 9]] {
        send(&mut decoder, &encoder, known);
        for id in ids {
            let mut again = written(&encoder, id);
            assert_eq!(decoder.receive_repair(Code::Rlc, id, &again), Ok(Reception::Redundant));
            again[20] ^= 0x80;
            let error = DecodeError::RepairChanged { id, at: 20 };
            refuses(&mut decoder, error, |decoder| decoder.receive_repair(Code::Rlc, id, &again));
        }
    }
    send(&mut decoder, &encoder, [0, 2, 4]);
    let again = vec![0; 70];
    for key in 3..9 {
        let id = repair(4, 8, key);
        let _ = decoder.receive_repair(Code::Rlc, id, &written(&encoder, id));
    }
    assert_eq!((decoder.edge(), decoder.rows()), (SourceId(12), 0));
    assert_eq!(decoder.receive_repair(Code::Rlc, ids[0], &again), Ok(Reception::Redundant));
    for id in (0..12).map(SourceId) {
        assert!(decoder.symbol(id).unwrap().starts_with(encoder.symbol(id).unwrap()));
    }
}
