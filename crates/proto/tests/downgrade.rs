//! An attacker between two ends edits the handshake: no session, or the session that they would have had.
//!
//! Without the mac1 key (authentication psk, or key with a psk) every edit fails at mac1. With authentication
//! `key` and no psk, everybody who knows the responder's public key can make mac1, so here each edit has a
//! right one. `handshake.rs` and `keys.rs` have what a forgery costs.

use std::net::SocketAddr;
use std::sync::Arc;

use tidewire_proto::Time;
use tidewire_proto::crypto::{Aead, AwsLc, HeaderKey, MacKey, PacketKey, PrivateKey, Provider, PublicKey, Secret};
use tidewire_proto::handshake::{
    Credentials, HandshakeError, Initiator, KeyCredentials, Parameters, Responder, Session, Terms,
};
use tidewire_proto::wire::{
    ConnectionId, HELLO_LEN, LONG_HEADER_LEN, MAC_LEN, REPLY_MAX, SHORT_HEADER_LEN, TAG_LEN, Writer, write_short_header,
};

/// Native ciphers of a machine with AES hardware, so that both ends prefer AES-256-GCM.
struct Aes;

impl Provider for Aes {
    fn aes_hardware(&self) -> bool {
        true
    }

    fn packet_key(&self, aead: Aead, key: &[u8; 32]) -> Box<dyn PacketKey> {
        AwsLc.packet_key(aead, key)
    }

    fn header_key(&self, aead: Aead, key: &[u8; 32]) -> Box<dyn HeaderKey> {
        AwsLc.header_key(aead, key)
    }
}

/// What authenticates the two ends, and what the attacker knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// A secret, which the attacker does not know.
    Psk,
    /// Key pairs. The attacker knows both public keys, and so the mac1 key.
    Keys,
    /// Key pairs and a secret, which the attacker does not know.
    KeysAndPsk,
}

const MODES: [Mode; 3] = [Mode::Psk, Mode::Keys, Mode::KeysAndPsk];

impl Mode {
    fn credentials(self, own: u8, peer: u8) -> Credentials {
        let private = |n: u8| PrivateKey::new([n; 32]);
        let secret = Secret::new([0x5a; 32]);
        let keys = |psk| {
            let authorized = Arc::new([private(peer).public()].into());
            Credentials::Key(KeyCredentials { authorized, psk, ..KeyCredentials::new(private(own)) })
        };
        match self {
            Self::Psk => secret.into(),
            Self::Keys => keys(None),
            Self::KeysAndPsk => keys(Some(secret)),
        }
    }

    fn initiator(self, seed: u8) -> Initiator {
        let listener: Option<PublicKey> = (self != Self::Psk).then(|| PrivateKey::new([2; 32]).public());
        let keys = self.credentials(1, 2).to_connect(listener.as_ref()).unwrap();
        Initiator::new(keys, LOCAL, &ours(), Arc::new(Aes), [seed; 32], Time::ZERO)
    }

    fn responder(self, seed: u8) -> Responder {
        Responder::new(self.credentials(2, 1), Arc::new(Aes), [seed; 32])
    }

    /// Writes a right mac1 over `datagram`, if the attacker can. `after` bytes follow mac1.
    fn authenticate(self, datagram: &mut [u8], after: usize) {
        let Some(end) = datagram.len().checked_sub(MAC_LEN + after).filter(|_| self == Self::Keys) else { return };
        let mac = MacKey::of_listener(&PrivateKey::new([2; 32]).public(), &Secret::new([0; 32]));
        let tag = mac.tag(&datagram[..end]);
        datagram[end..end + MAC_LEN].copy_from_slice(&tag);
    }
}

const LOCAL: ConnectionId = ConnectionId([1; 8]);
const REMOTE: ConnectionId = ConnectionId([2; 8]);

/// More than the defaults in every number, so that a value that is left out shows.
fn ours() -> Parameters {
    Parameters {
        max_datagram: 9_000,
        max_symbol: 8_900,
        lane_credit: 1_000,
        max_span: 1_024,
        stream_credit: 1 << 28,
        streams: 1_000,
        idle_timeout_ms: 90_000,
        ..Parameters::default()
    }
}

fn theirs() -> Parameters {
    Parameters { max_span: 512, streams: 999, ..ours() }
}

fn client() -> SocketAddr {
    "192.0.2.1:4000".parse().unwrap()
}

fn hello_of(initiator: &mut Initiator) -> Vec<u8> {
    let mut hello = vec![0; HELLO_LEN];
    assert_eq!(initiator.poll_transmit(Time::ZERO, &mut hello), Some(HELLO_LEN));
    hello
}

/// The responder's session and its REPLY, if the HELLO makes them.
fn answer(responder: &mut Responder, hello: &[u8]) -> Option<(Session, Vec<u8>)> {
    let terms = Terms { parameters: theirs(), source: REMOTE, known: false };
    let session = responder.handle_hello(Time::ZERO, client(), hello, &terms)?.session(&(Arc::new(Aes) as _));
    let mut reply = [0; REPLY_MAX];
    let (_, len) = responder.poll_transmit(Time::ZERO, &mut reply).expect("a REPLY");
    Some((session, reply[..len].to_vec()))
}

/// Two sessions have the values that both ends wanted, and keys of each other.
fn assert_agreed(mode: Mode, here: &mut Session, there: &mut Session, what: &str) {
    let keys = [2, 1].map(|n| (mode != Mode::Psk).then(|| PrivateKey::new([n; 32]).public()));
    assert_eq!((here.aead, there.aead), (Aead::Aes256Gcm, Aead::Aes256Gcm), "{what}");
    assert_eq!((here.peer, there.peer), (theirs(), ours()), "{what}");
    assert_eq!([here.peer_key, there.peer_key], keys, "{what}");
    assert_eq!((here.local, here.remote, there.local, there.remote), (LOCAL, REMOTE, REMOTE, LOCAL), "{what}");
    let mut packet = vec![1; SHORT_HEADER_LEN + 100 + TAG_LEN];
    write_short_header(&mut Writer::new(&mut packet), here.remote, 0, 9).unwrap();
    here.sealing.seal(0, 0, &mut packet).unwrap();
    assert!(there.opening.open(0, &mut packet).is_ok(), "{what}");
}

/// Every edit that the attacker tries on a datagram: each bit changed, each byte set to 0 and to 255, and
/// every shorter and some longer lengths.
fn edits(datagram: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut edits = Vec::new();
    let mut changed = |what: String, at: usize, byte: u8| {
        let mut copy = datagram.to_vec();
        copy[at] = byte;
        edits.push((what, copy));
    };
    for (at, &byte) in datagram.iter().enumerate() {
        (0..8).for_each(|bit| changed(format!("bit {bit} of byte {at}"), at, byte ^ 1 << bit));
        [0, 255].into_iter().filter(|&set| set != byte).for_each(|set| changed(format!("byte {at} = {set}"), at, set));
    }
    edits.extend((0..datagram.len()).map(|len| (format!("cut to {len}"), datagram[..len].to_vec())));
    edits.extend([1, 4, 16].map(|more| (format!("{more} more"), [datagram, &vec![0; more]].concat())));
    edits
}

/// The responder either makes no session of an edited HELLO, or the REPLY leads both ends to the session that
/// they wanted.
#[test]
fn an_edited_hello_makes_no_session_or_the_same() {
    for mode in MODES {
        let hello = hello_of(&mut mode.initiator(5));
        let (mut sessions, mut none, mut refused) = (0, 0, 0);
        for (what, mut edited) in edits(&hello) {
            mode.authenticate(&mut edited, MAC_LEN);
            let mut responder = mode.responder(9);
            let Some((mut there, reply)) = answer(&mut responder, &edited) else {
                none += 1;
                continue;
            };
            match mode.initiator(5).handle_reply(&reply) {
                Ok(mut here) => {
                    assert_agreed(mode, &mut here, &mut there, &what);
                    sessions += 1;
                }
                Err(_) => refused += 1,
            }
        }
        println!("{mode:?}: HELLO: {none} without an answer, {refused} answers refused, {sessions} sessions");
        // What reaches the same session: mac2, which nobody reads without load; and with a right mac1 also
        // the padding and mac1 itself.
        let noise_end = LONG_HEADER_LEN + usize::from(u16::from_be_bytes([hello[23], hello[24]]));
        let free = if mode == Mode::Keys { HELLO_LEN - noise_end } else { MAC_LEN };
        assert!(none > 0 && (free * 8..=free * 10).contains(&sessions), "{mode:?}: {sessions} of {free} bytes");
        assert_eq!(refused, 0, "{mode:?}");
    }
}

/// The initiator either ignores an edited REPLY, and takes the right one afterwards, or has the session that
/// it wanted.
#[test]
fn an_edited_reply_makes_no_session_or_the_same() {
    for mode in MODES {
        let hello = hello_of(&mut mode.initiator(5));
        let reply = answer(&mut mode.responder(9), &hello).expect("a session").1;
        let (mut sessions, mut none) = (0, 0);
        let mut waiting = mode.initiator(5);
        for (what, mut edited) in edits(&reply) {
            mode.authenticate(&mut edited, 0);
            let Ok(mut here) = waiting.handle_reply(&edited) else {
                none += 1;
                continue;
            };
            let mut there = answer(&mut mode.responder(9), &hello).expect("a session").0;
            assert_agreed(mode, &mut here, &mut there, &what);
            sessions += 1;
            waiting = mode.initiator(5);
        }
        println!("{mode:?}: REPLY: {none} ignored, {sessions} sessions");
        // Five grease bits and, as the attacker writes it anew, mac1 do not count. Byte 0 set to 255 and to 0
        // is another type.
        let free = if mode == Mode::Keys { 5 + MAC_LEN * 8..=5 + MAC_LEN * 10 } else { 0..=0 };
        assert!(free.contains(&sessions), "{mode:?}: {sessions}");
        let mut here = waiting.handle_reply(&reply).expect("the right REPLY still counts");
        let mut there = answer(&mut mode.responder(9), &hello).expect("a session").0;
        assert_agreed(mode, &mut here, &mut there, "the right REPLY");
    }
}

/// Whole packets in the place of others: those of other handshakes of the same ends, the HELLO sent back, and
/// a list of versions, which this version never sends.
#[test]
fn swapped_and_reflected_packets_make_no_session() {
    for mode in MODES {
        let (hello, other) = (hello_of(&mut mode.initiator(5)), hello_of(&mut mode.initiator(6)));
        let (mut there, reply) = answer(&mut mode.responder(9), &hello).expect("a session");
        let crossed = answer(&mut mode.responder(9), &other).expect("a session").1;
        let mut waiting = mode.initiator(5);
        // An answer to another HELLO, and parts of both answers joined.
        let mut wrong = vec![crossed.clone(), hello.clone(), other.clone()];
        for cut in 0..reply.len().min(crossed.len()) {
            wrong.push([&reply[..cut], &crossed[cut..]].concat());
            wrong.push([&crossed[..cut], &reply[cut..]].concat());
        }
        // As COOKIE, VERSIONS and HELLO to this initiator.
        for kind in [0, 2, 3] {
            let mut turned = reply.clone();
            turned[0] = 0x80 | kind << 5;
            wrong.push(turned.clone());
            turned.truncate(LONG_HEADER_LEN);
            turned[23..].fill(0);
            turned.extend_from_slice(&[0x54, 0x57, 0, 0]);
            turned.extend_from_slice(&[0; MAC_LEN]);
            wrong.push(turned);
        }
        let mut ignored = 0;
        for mut datagram in wrong {
            mode.authenticate(&mut datagram, 0);
            let is_right = datagram[LONG_HEADER_LEN..] == reply[LONG_HEADER_LEN..];
            match waiting.handle_reply(&datagram) {
                Ok(mut here) => {
                    // The header of the other answer differs in grease only.
                    assert!(is_right && mode == Mode::Keys || datagram == reply);
                    assert_agreed(mode, &mut here, &mut there, "joined");
                    (waiting, there) = (mode.initiator(5), answer(&mut mode.responder(9), &hello).unwrap().0);
                }
                Err(error) => {
                    assert_ne!(error, HandshakeError::Finished);
                    ignored += 1;
                }
            }
            waiting.handle_cookie(Time::ZERO, &datagram).unwrap_err();
        }
        assert!(ignored > 2 * LONG_HEADER_LEN, "{mode:?}: {ignored}");
        assert!(waiting.handle_reply(&reply).is_ok());
    }
}

/// A HELLO joined of two, each part with its place: the parameters of one and the key share of another.
#[test]
fn a_hello_joined_of_two_makes_no_session() {
    for mode in MODES {
        let (hello, other) = (hello_of(&mut mode.initiator(5)), hello_of(&mut mode.initiator(6)));
        let noise_end = LONG_HEADER_LEN + usize::from(u16::from_be_bytes([hello[23], hello[24]]));
        let mut responder = mode.responder(9);
        for cut in 1..noise_end {
            let mut joined = [&hello[..cut], &other[cut..]].concat();
            mode.authenticate(&mut joined, MAC_LEN);
            // Before the first byte in which the two differ, it is the other HELLO.
            let is_whole = joined[..noise_end] == other[..noise_end] || joined[..noise_end] == hello[..noise_end];
            assert!(is_whole || answer(&mut responder, &joined).is_none(), "{mode:?}: cut at {cut}");
        }
    }
}
