//! Both roles of the handshake with mutated flights, mac1 made right again so that mutations get past it.
//!
//! Input: `flags u8`, then `(position u16, xor u8)*`, a third of them for the HELLO, a third for the REPLY, the rest
//! applied to a second HELLO. Whatever came before, the unchanged REPLY to the unchanged HELLO must make a session.
#![no_main]

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use tidewire_fuzz::Null;
use tidewire_proto::Time;
use tidewire_proto::crypto::{MacKey, Secret};
use tidewire_proto::handshake::{Initiator, Parameters, Responder};
use tidewire_proto::wire::{ConnectionId, HELLO_LEN, LONG_HEADER_LEN, MAC_LEN, REPLY_MAX};

static SECRET: LazyLock<Secret> = LazyLock::new(|| Secret::new([7; 32]));
static MAC: LazyLock<MacKey> = LazyLock::new(|| MacKey::new(&SECRET));

/// Applies the mutations; `fix` puts a right mac1 at the place where `macs` bytes of MACs begin.
fn mutate(datagram: &[u8], mutations: &[u8], fix: bool, macs: usize) -> Vec<u8> {
    let mut mutated = datagram.to_vec();
    for mutation in mutations.chunks_exact(3) {
        let position = usize::from(u16::from_be_bytes([mutation[0], mutation[1]])) % mutated.len();
        mutated[position] ^= mutation[2];
    }
    if fix {
        let (authenticated, place) = mutated.split_at_mut(datagram.len() - macs);
        place[..MAC_LEN].copy_from_slice(&MAC.tag(authenticated));
    }
    mutated
}

fuzz_target!(|data: &[u8]| {
    let Some((flags, mutations)) = data.split_first() else { return };
    let third = mutations.len() / 9 * 3;
    let (for_hello, rest) = mutations.split_at(third);
    let (for_reply, for_again) = rest.split_at(third);
    let from: SocketAddr = ([192, 0, 2, 1], 7700).into();
    let parameters = Parameters::default();
    let (mine, yours) = (ConnectionId([1; 8]), ConnectionId([2; 8]));
    let mut initiator = Initiator::new(&SECRET, mine, &parameters, Arc::new(Null), [3; 32], Time::ZERO);
    let mut responder = Responder::new(&SECRET, Arc::new(Null), [4; 32]);
    let mut hello = [0; HELLO_LEN];
    initiator.poll_transmit(Time::ZERO, &mut hello).expect("due at once");

    let bound = LONG_HEADER_LEN + usize::from(u16::from_be_bytes([hello[23], hello[24]]));

    for mutations in [for_hello, for_again] {
        let mutated = mutate(&hello, mutations, flags & 1 != 0, 2 * MAC_LEN);
        responder.handle_hello(Time::ZERO, from, &mutated, &parameters, yours);
        let mut reply = [0; REPLY_MAX];
        while let Some((_, len)) = responder.poll_transmit(Time::ZERO, &mut reply) {
            assert!(responder.stats().accepted > 0);
            // The padding behind the Noise message is under mac1 alone.
            if mutated[..bound] != hello[..bound] {
                assert!(initiator.handle_reply(&reply[..len]).is_err(), "a session from a hello that was never sent");
            }
        }
    }
    let mut responder = Responder::new(&SECRET, Arc::new(Null), [5; 32]);
    let accepted = responder.handle_hello(Time::ZERO, from, &hello, &parameters, yours);
    assert!(accepted.is_some(), "the unchanged hello");
    let mut reply = [0; REPLY_MAX];
    let (_, len) = responder.poll_transmit(Time::ZERO, &mut reply).expect("its reply");
    let mutated = mutate(&reply[..len], for_reply, flags & 2 != 0, MAC_LEN);
    if mutated != reply[..len] && initiator.handle_reply(&mutated).is_ok() {
        // Five bits of the first byte are grease, ignored when read.
        assert!(mutated[1..len - MAC_LEN] == reply[1..len - MAC_LEN], "a session from a changed reply");
        return;
    }
    initiator.handle_reply(&reply[..len]).expect("the unchanged reply");
});
