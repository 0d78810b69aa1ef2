//! The published test vectors (cacophony) of the four Noise names, run through `snow` with the features of
//! our build.

use std::sync::Arc;

use snow::Builder;

use super::Resolver;
use crate::crypto::{Aead, HeaderKey, PacketKey, Provider};
use crate::hex::unhex;

struct Vector {
    name: &'static str,
    hash: &'static str,
    /// Pairs of payload and message, alternately from the initiator and the responder. The first two are the
    /// handshake.
    messages: [(&'static str, &'static str); 4],
}

/// The prologue of all vectors.
const PROLOGUE: &str = "4a6f686e2047616c74";
const PSK: &str = "54686973206973206d7920417573747269616e20706572737065637469766521";
const INITIATOR: &str = "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a";
const RESPONDER: &str = "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b";
/// Static keys of `IKpsk2`. The last one is the responder's public key.
const STATICS: [&str; 3] = [
    "e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1",
    "4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893",
    "31e0303fd6418d2f8c0e78b91f22e8caed0fbe48656dcf4767e4834f701b8f62",
];

#[rustfmt::skip]
const VECTORS: [Vector; 4] = [
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
    Vector {
        name: "Noise_IKpsk2_25519_AESGCM_SHA256",
        hash: "48c3f1eb397c797af6b139032c6074cb41282ff033ee25d5aee4a4badd3a2c3f",
        messages: [
            ("4c756477696720766f6e204d69736573", "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c79445a1baf339186d7867062b0dd31f5de322d370165d217939b2b7ed9e2bae7840458ea65c2ce1554e0e8077fe7334c4bd514c658fd04d97b86d216f58f59714a7e24144155045c8f36bed85a2cb0fd9af7"),
            ("4d757272617920526f746862617264", "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f1448088432fe8d675e949799d2a968211a66cc7ba2b0f4cad8eda3c2bd37eae737bbf88"),
            ("462e20412e20486179656b", "38cbf3835c78b7802df0dd0d9640ff8575debd0cb61cfb52590da1"),
            ("4361726c204d656e676572", "ffc365ff6955fc66c5d809b31ac995f812c5770bd29f0df12f0ffd"),
        ],
    },
    Vector {
        name: "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s",
        hash: "f5191b875290abcd41347ac3622d9679688a7e980229cb937ef748336cfde0e5",
        messages: [
            ("4c756477696720766f6e204d69736573", "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944001e21de9f98ddd8e2ad57527207feb56253c9c94a9e496782ecfcb2a75fbcaf1b52948cc48daefe660c62119ab5000980c84831215f2441eba616548e832985464cf17e51ee93109008399a21f7e13f"),
            ("4d757272617920526f746862617264", "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843cb765f2caef0751b8f007572dab0322217755c0632f365717edbf34d33e87a"),
            ("462e20412e20486179656b", "8153ca9833bc3c1b91a7e66e5f4d4f5b59bf9e64c2f20d15f0bba7"),
            ("4361726c204d656e676572", "07af0c9c86e1b4e80f36b04ff7688d51141af3debd0332f0a705ef"),
        ],
    },
];

/// A provider without ciphers, with the default curve in pure Rust.
struct Plain;

impl Provider for Plain {
    fn aes_hardware(&self) -> bool {
        false
    }

    fn packet_key(&self, _: Aead, _: &[u8; 32]) -> Box<dyn PacketKey> {
        unreachable!("a handshake seals no packet")
    }

    fn header_key(&self, _: Aead, _: &[u8; 32]) -> Box<dyn HeaderKey> {
        unreachable!("a handshake seals no packet")
    }
}

#[test]
fn published_vectors() {
    check(&(Arc::new(Plain) as Arc<dyn Provider>));
    #[cfg(feature = "aws-lc-rs")]
    check(&(Arc::new(crate::crypto::AwsLc) as Arc<dyn Provider>));
}

fn check(provider: &Arc<dyn Provider>) {
    for vector in VECTORS {
        let (prologue, initiator, responder) = (unhex(PROLOGUE), unhex(INITIATOR), unhex(RESPONDER));
        let psk: [u8; 32] = unhex(PSK).try_into().unwrap();
        let between_keys = vector.name.contains("IKpsk2");
        let statics = STATICS.map(unhex);
        let build = |ephemeral, own| {
            let resolver = Resolver { seed: [0; 32].into(), provider: Arc::clone(provider), own: None };
            let builder = Builder::with_resolver(vector.name.parse().unwrap(), Box::new(resolver));
            let builder = builder.prologue(&prologue).unwrap().fixed_ephemeral_key_for_testing_only(ephemeral);
            if between_keys {
                builder.psk(2, &psk).unwrap().local_private_key(own).unwrap()
            } else {
                builder.psk(0, &psk).unwrap()
            }
        };
        let mut initiator = build(&initiator, &statics[0]);
        if between_keys {
            initiator = initiator.remote_public_key(&statics[2]).unwrap();
        }
        let mut initiator = initiator.build_initiator().unwrap();
        let mut responder = build(&responder, &statics[1]).build_responder().unwrap();
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
        // The two keys of Split encrypt here; the initiator's comes first.
        let mut initiator = initiator.into_transport_mode().unwrap();
        let mut responder = responder.into_transport_mode().unwrap();
        for ((payload, message), from) in vector.messages[2..].iter().zip([&mut initiator, &mut responder]) {
            let len = from.write_message(&unhex(payload), &mut buffer).unwrap();
            assert_eq!(buffer[..len], unhex(message), "{} transport", vector.name);
        }
    }
}
