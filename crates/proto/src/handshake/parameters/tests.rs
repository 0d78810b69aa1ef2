use proptest::prelude::*;

use super::*;

fn any_parameters() -> impl Strategy<Value = Parameters> {
    (
        (1_200..=65_527_u16, 1_024..=65_472_u16, 16..=1_u32 << 24, 1..=1_024_u16),
        (0..1_u32 << 30, 0..=1_u32 << 20, 0..1_u32 << 30, 1..1_u16 << 14),
    )
        .prop_map(|((max_datagram, max_symbol, lane_credit, max_span), (stream_credit, streams, idle, codes))| {
            Parameters {
                max_datagram,
                max_symbol,
                lane_credit,
                max_span,
                stream_credit,
                streams,
                idle_timeout_ms: idle,
                codes: CodeSet(codes),
            }
        })
}

fn hello(parameters: &Parameters, offer: Offer, grease: &Grease) -> Vec<u8> {
    let mut buffer = [0; 195];
    let mut w = Writer::new(&mut buffer);
    HelloPayload::emit(parameters, offer, grease, &mut w).unwrap();
    w.written().to_vec()
}

fn reply(parameters: &Parameters, aead: Aead, source: ConnectionId, known: bool, grease: &Grease) -> Vec<u8> {
    let mut buffer = [0; 61];
    let mut w = Writer::new(&mut buffer);
    ReplyPayload { parameters: *parameters, aead, source, known }.emit(grease, &mut w).unwrap();
    w.written().to_vec()
}

proptest! {
    #[test]
    fn hello_round_trip(parameters in any_parameters(), aes: bool, both: bool, grease: Grease) {
        let offer = Offer { both, ..Offer::new(aes) };
        let said = HelloPayload::parse(&hello(&parameters, offer, &grease)).unwrap();
        prop_assert_eq!(said.parameters, parameters);
        prop_assert_eq!(said.offer, offer);
    }

    #[test]
    fn reply_round_trip(parameters in any_parameters(), aes: bool, source: [u8; 8], known: bool, grease: Grease) {
        let aead = Offer::new(aes).first;
        let said = ReplyPayload::parse(&reply(&parameters, aead, ConnectionId(source), known, &grease)).unwrap();
        prop_assert_eq!(said.parameters, parameters);
        prop_assert_eq!(said.aead, aead);
        prop_assert_eq!(said.source, ConnectionId(source));
        prop_assert_eq!(said.known, known);
    }

    #[test]
    fn any_bytes_are_parameters_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = HelloPayload::parse(&bytes);
        let _ = ReplyPayload::parse(&bytes);
    }
}

/// The largest values of all parameters fit a REPLY with room for grease, as docs/wire.md section 1.1 says.
#[test]
fn the_largest_fit_a_reply() {
    let largest = Parameters {
        max_datagram: 65_527,
        max_symbol: 65_472,
        lane_credit: 1 << 24,
        max_span: 1_024,
        stream_credit: (1 << 30) - 1,
        streams: 1 << 20,
        idle_timeout_ms: (1 << 30) - 1,
        codes: CodeSet((1 << 14) - 1),
    };
    assert_eq!(largest.validate(), Ok(()));
    let len = |known, grease| reply(&largest, Aead::Aes256Gcm, ConnectionId([1; 8]), known, &[grease; 17]).len();
    assert_eq!([len(false, 0), len(false, 255)], [57 + 2, 57 + 4]);
    // Without room there is no grease.
    assert_eq!([len(true, 0), len(true, 255)], [59 + 2, 59]);
    assert_eq!(Parameters::default().validate(), Ok(()));
    let wrong = Parameters { max_span: 2_000, ..Parameters::default() };
    assert_eq!(wrong.validate(), Err(ParameterError { kind: 3, fault: Fault::Range }));
}

#[test]
fn each_fault_is_named() {
    let good = hello(&Parameters::default(), Offer::new(true), &[0; 17]);
    let fails = |bytes: &[u8], kind, fault| {
        assert_eq!(HelloPayload::parse(bytes).err(), Some(ParameterError { kind, fault }), "{bytes:?}");
    };
    let with = |more: &[u8]| [&good[..], more].concat();
    fails(&with(&[3, 2, 0x44]), 3, Fault::Truncated);
    fails(&with(&[3, 1, 0]), 3, Fault::Range);
    fails(&with(&[3, 2, 0x44, 0x01]), 3, Fault::Range);
    fails(&with(&[3, 2, 5, 5]), 3, Fault::Range);
    fails(&with(&[3, 1, 5, 3, 1, 5]), 3, Fault::Twice);
    fails(&with(&[11, 8, 0, 0, 0, 0, 0, 0, 0, 0]), 11, Fault::Range);
    fails(&with(&[12, 0]), 12, Fault::Range);
    fails(&with(&[12, 1, 0]), 12, Fault::Range);
    fails(&[], 7, Fault::Missing);
    fails(&[7, 1, 1], 8, Fault::Missing);
    fails(&[7, 0, 8, 4, 0, 0, 0, 0], 7, Fault::Range);
    fails(&[7, 1, 9, 8, 4, 0x54, 0x57, 0, 1], 7, Fault::Range);
    fails(&[7, 1, 1, 8, 4, 0x54, 0x57, 0, 2], 8, Fault::Range);
    fails(&[7, 1, 1, 8, 5, 0x54, 0x57, 0, 1, 0], 8, Fault::Range);
    // Unknown types are accepted, even twice.
    assert!(HelloPayload::parse(&with(&[27, 1, 9, 27, 0, 13, 0])).is_ok());
}

#[test]
fn aes_only_where_both_sides_have_it() {
    assert_eq!(Offer::new(true).choose(true), Some(Aead::Aes256Gcm));
    assert_eq!(Offer::new(true).choose(false), Some(Aead::ChaCha20Poly1305));
    assert_eq!(Offer::new(false).choose(true), Some(Aead::ChaCha20Poly1305));
    assert_eq!(Offer { both: false, ..Offer::new(true) }.choose(false), None);
}
