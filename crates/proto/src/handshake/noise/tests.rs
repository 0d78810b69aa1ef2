//! The published test vectors (cacophony) of the two Noise names, through `snow` with the features we build it with.

use snow::Builder;

use crate::hex::unhex;

struct Vector {
    name: &'static str,
    hash: &'static str,
    /// Payload and message, in turn from the initiator and the responder; the first two are the handshake.
    messages: [(&'static str, &'static str); 4],
}

/// The same for both.
const PROLOGUE: &str = "4a6f686e2047616c74";
const PSK: &str = "54686973206973206d7920417573747269616e20706572737065637469766521";
const INITIATOR: &str = "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a";
const RESPONDER: &str = "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b";

#[rustfmt::skip]
const VECTORS: [Vector; 2] = [
    Vector {
        name: "Noise_NNpsk0_25519_AESGCM_SHA256",
        hash: "9f3b1f9afd7767767b5b9d1069844a6154fdbdcc36dfb3e31c0fffc5c973d530",
        messages: [
            ("4c756477696720766f6e204d69736573", "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c79447c37a89fc17813788d30df2d59501d6066f5f8aecc3406bbd9829f2d24a531b1"),
            ("4d757272617920526f746862617264", "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f1448088432f29d79368ef9de4e1ae7a362fb05bf0ad668e026bf5714554497b3a720461"),
            ("462e20412e20486179656b", "7c01e898a6201f36aecee532e29cd0b7f8ffa29d3366ad0dce39a6"),
            ("4361726c204d656e676572", "a9ff535aace3db6a1da1a7fb00fe2de2622bb373abad9fb42c00e0"),
        ],
    },
    Vector {
        name: "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s",
        hash: "b3e9c846d264120a4211e18307da91157a21e92e69b639c50f027f101db3e1a6",
        messages: [
            ("4c756477696720766f6e204d69736573", "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944fda936bec35a8adfdff198386f7d5475880897edaaf7495314c99095a2e4d66a"),
            ("4d757272617920526f746862617264", "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f1448088434cd2a371993ba41ea11448024fca32766b169183c9e691a7a433279da7e729"),
            ("462e20412e20486179656b", "bc44da303ae0beb08075fc4eb4e58235c67c2d1f53a4f2fff0bca7"),
            ("4361726c204d656e676572", "416d1af83e9fa6966ce4e871156b131aa9bd7e9a1d6f8794f4872a"),
        ],
    },
];

#[test]
fn published_vectors() {
    for vector in VECTORS {
        let (prologue, initiator, responder) = (unhex(PROLOGUE), unhex(INITIATOR), unhex(RESPONDER));
        let psk: [u8; 32] = unhex(PSK).try_into().unwrap();
        let build = |ephemeral| {
            let builder = Builder::with_resolver(vector.name.parse().unwrap(), Box::new(super::Seeded([0; 32].into())));
            let builder = builder.psk(0, &psk).unwrap().prologue(&prologue).unwrap();
            builder.fixed_ephemeral_key_for_testing_only(ephemeral)
        };
        let mut initiator = build(&initiator).build_initiator().unwrap();
        let mut responder = build(&responder).build_responder().unwrap();
        let mut buffer = [0; 200];
        for (index, (payload, message)) in vector.messages[..2].iter().enumerate() {
            let (from, to) =
                if index == 0 { (&mut initiator, &mut responder) } else { (&mut responder, &mut initiator) };
            let len = from.write_message(&unhex(payload), &mut buffer).unwrap();
            assert_eq!(buffer[..len], unhex(message), "{} message {index}", vector.name);
            let mut read = [0; 200];
            let len = to.read_message(&unhex(message), &mut read).unwrap();
            assert_eq!(read[..len], unhex(payload));
        }
        assert_eq!(initiator.get_handshake_hash(), unhex(vector.hash));
        assert_eq!(responder.dangerously_get_raw_split(), initiator.dangerously_get_raw_split());
        // The two halves of Split, by what they encrypt: the initiator's first.
        let mut initiator = initiator.into_transport_mode().unwrap();
        let mut responder = responder.into_transport_mode().unwrap();
        for ((payload, message), from) in vector.messages[2..].iter().zip([&mut initiator, &mut responder]) {
            let len = from.write_message(&unhex(payload), &mut buffer).unwrap();
            assert_eq!(buffer[..len], unhex(message), "{} transport", vector.name);
        }
    }
}
