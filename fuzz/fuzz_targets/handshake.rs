//! Runs both roles of the handshake with mutated packets. Their MACs can be corrected, so that mutations get
//! past them.
//!
//! Input: `flags u8`, then `(position u16, xor u8)*`, one quarter each for the HELLO, for a second HELLO, for
//! the COOKIE and for the REPLY. Bits of `flags`: 0 corrects mac1 of HELLOs, 1 corrects mac1 of the REPLY, 2
//! authenticates by key pairs, 3 puts the responder under load. After all mutations, the unchanged answers to
//! the unchanged HELLO must still make a session.
#![no_main]

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use tidewire_fuzz::Null;
use tidewire_proto::Time;
use tidewire_proto::crypto::{MacKey, PrivateKey, Secret};
use tidewire_proto::handshake::{Credentials, Initiator, KeyCredentials, Keys, Parameters, Responder, Terms};
use tidewire_proto::wire::{ConnectionId, HELLO_LEN, LONG_HEADER_LEN, MAC_LEN, REPLY_MAX};

/// One kind of authentication: the initiator's keys, the responder's credentials, the key of mac1.
struct Side {
    keys: Keys,
    listener: Credentials,
    mac: MacKey,
}

static PROFILES: LazyLock<[Side; 2]> = LazyLock::new(|| {
    let secret = Secret::new([7; 32]);
    let psk = Side { keys: (&secret).into(), listener: (&secret).into(), mac: MacKey::new(&secret) };
    let (ours, theirs) = (PrivateKey::new([8; 32]), PrivateKey::new([9; 32]));
    let authorized = Arc::new([ours.public()].into());
    let listener = KeyCredentials { authorized, ..KeyCredentials::new(theirs.clone()) };
    let own = Credentials::Key(KeyCredentials::new(ours));
    let keys = own.to_connect(Some(&theirs.public())).expect("a key pair and a key");
    let mac = MacKey::of_listener(&theirs.public(), &Secret::new([0; 32]));
    [psk, Side { keys, listener: Credentials::Key(listener), mac }]
});

const FROM: ([u8; 4], u16) = ([192, 0, 2, 1], 7700);

/// Applies the mutations. If `mac` is given, writes a correct mac1 where the last `macs` bytes of the packet
/// begin.
fn mutate(datagram: &[u8], mutations: &[u8], mac: Option<&MacKey>, macs: usize) -> Vec<u8> {
    let mut mutated = datagram.to_vec();
    for mutation in mutations.chunks_exact(3) {
        let position = usize::from(u16::from_be_bytes([mutation[0], mutation[1]])) % mutated.len();
        mutated[position] ^= mutation[2];
    }
    if let Some(mac) = mac {
        let (authenticated, place) = mutated.split_at_mut(datagram.len() - macs);
        place[..MAC_LEN].copy_from_slice(&mac.tag(authenticated));
    }
    mutated
}

/// Returns the next HELLO of an initiator.
fn hello_of(initiator: &mut Initiator, now: Time) -> [u8; HELLO_LEN] {
    let mut hello = [0; HELLO_LEN];
    initiator.poll_transmit(now, &mut hello).expect("due at once");
    hello
}

/// Makes a responder. Under `load` it demands a cookie from every address.
fn responder(side: &Side, seed: u8, load: bool, now: Time) -> Responder {
    let mut responder = Responder::new(side.listener.clone(), Arc::new(Null), [seed; 32]);
    let mut hello = [0; HELLO_LEN];
    let id = ConnectionId([3; 8]);
    Initiator::new(side.keys.clone(), id, &Parameters::default(), Arc::new(Null), [6; 32], now)
        .poll_transmit(now, &mut hello);
    // A HELLO without a Noise message is dropped early, but still counts for the load.
    hello[LONG_HEADER_LEN - 2..LONG_HEADER_LEN].fill(0);
    for n in 0..if load { 128_u8 } else { 0 } {
        hello[HELLO_LEN - 2 * MAC_LEN - 1] = n;
        let hello = mutate(&hello, &[], Some(&side.mac), 2 * MAC_LEN);
        responder.handle_hello(now, SocketAddr::from(FROM), &hello, &terms());
    }
    responder
}

fn terms() -> Terms {
    Terms { parameters: Parameters::default(), source: ConnectionId([2; 8]), known: false }
}

fuzz_target!(|data: &[u8]| {
    let Some((flags, mutations)) = data.split_first() else { return };
    let quarter = mutations.len() / 12 * 3;
    let part = |n: usize| &mutations[n * quarter..(n + 1) * quarter];
    let side = &PROFILES[usize::from(flags >> 2 & 1)];
    let (load, from) = (flags & 8 != 0, SocketAddr::from(FROM));
    let fixed = |flag: u8| (flags & flag != 0).then_some(&side.mac);
    let (now, mine) = (Time::from_millis(1_000), ConnectionId([1; 8]));
    let parameters = Parameters::default();
    let mut initiator = Initiator::new(side.keys.clone(), mine, &parameters, Arc::new(Null), [3; 32], now);
    let mut hello = hello_of(&mut initiator, now);
    let bound = LONG_HEADER_LEN + usize::from(u16::from_be_bytes([hello[23], hello[24]]));

    let mut first = responder(side, 4, load, now);
    for mutations in [part(0), part(1)] {
        let mutated = mutate(&hello, mutations, fixed(1), 2 * MAC_LEN);
        first.handle_hello(now, from, &mutated, &terms());
        let mut answer = [0; REPLY_MAX];
        while let Some((_, len)) = first.poll_transmit(now, &mut answer) {
            // The padding behind the Noise message is covered by mac1 alone.
            if mutated[..bound] != hello[..bound] {
                assert!(initiator.handle_reply(&answer[..len]).is_err(), "a session from a hello that was never sent");
            }
        }
    }
    let mut second = responder(side, 5, load, now);
    let mut answer = [0; REPLY_MAX];
    if load {
        assert!(second.handle_hello(now, from, &hello, &terms()).is_none(), "an address that proved nothing");
        let (_, len) = second.poll_transmit(now, &mut answer).expect("a cookie");
        let mutated = mutate(&answer[..len], part(2), None, 0);
        let opened = initiator.handle_cookie(now, &mutated).is_ok();
        assert!(!opened || mutated == answer[..len], "a changed cookie");
        initiator.handle_cookie(now, &answer[..len]).expect("the unchanged cookie");
        hello = hello_of(&mut initiator, now);
    }
    assert!(second.handle_hello(now, from, &hello, &terms()).is_some(), "the unchanged hello");
    let (_, len) = second.poll_transmit(now, &mut answer).expect("its reply");
    let mutated = mutate(&answer[..len], part(3), fixed(2), MAC_LEN);
    if mutated != answer[..len] && initiator.handle_reply(&mutated).is_ok() {
        // Five bits of the first byte are grease: the reader ignores them.
        assert!(mutated[1..len - MAC_LEN] == answer[1..len - MAC_LEN], "a session from a changed reply");
        return;
    }
    initiator.handle_reply(&answer[..len]).expect("the unchanged reply");
});
