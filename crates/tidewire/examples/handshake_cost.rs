//! The cost of a handshake for the listening side, in microseconds: rows H6 and H7 of `docs/survival.md`.
//!
//! `cargo run --release -p tidewire --example handshake_cost` prints medians of rounds that take turns. Close
//! all other programs first.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use tidewire_figures::median;
use tidewire_proto::Time;
use tidewire_proto::crypto::{AwsLc, MacKey, PrivateKey, Provider, Secret};
use tidewire_proto::handshake::{Credentials, Initiator, KeyCredentials, Keys, Parameters, Responder, Terms};
use tidewire_proto::wire::{ConnectionId, HELLO_LEN, MAC_LEN};

const ROUNDS: usize = 200;
/// HELLOs in a round: fewer than an endpoint answers in a second without proof.
const BATCH: usize = 100;

struct Case {
    name: &'static str,
    listener: Credentials,
    hellos: Vec<[u8; HELLO_LEN]>,
    micros: Vec<f64>,
}

fn main() {
    let (ours, theirs) = (PrivateKey::new([1; 32]), PrivateKey::new([2; 32]));
    let secret = Secret::new([3; 32]);
    let listener =
        KeyCredentials { authorized: Arc::new([ours.public()].into()), ..KeyCredentials::new(theirs.clone()) };
    let key = Credentials::Key(KeyCredentials::new(ours)).to_connect(Some(&theirs.public())).expect("keys");
    let key_mac = MacKey::of_listener(&theirs.public(), &Secret::new([0; 32]));
    let psk_mac = MacKey::new(&secret);
    let case = |name, listener: Credentials, keys: &Keys, mac: &MacKey| Case {
        name,
        listener,
        hellos: hellos(keys, mac),
        micros: Vec::new(),
    };
    let wrong = MacKey::new(&Secret::new([9; 32]));
    let mut cases = [
        case("wrong mac1, psk", (&secret).into(), &(&secret).into(), &wrong),
        case("wrong mac1, key", Credentials::Key(listener.clone()), &key, &wrong),
        case("answered, psk", (&secret).into(), &(&secret).into(), &psk_mac),
        case("answered, key", Credentials::Key(listener), &key, &key_mac),
    ];
    for _ in 0..ROUNDS {
        for case in &mut cases {
            let micros = round(case);
            case.micros.push(micros);
        }
    }
    for Case { name, micros, .. } in cases {
        println!("{name:16} {:7.2} us", median(micros));
    }
}

/// HELLOs that differ only in their padding.
fn hellos(keys: &Keys, mac: &MacKey) -> Vec<[u8; HELLO_LEN]> {
    let mut hello = [0; HELLO_LEN];
    let (id, parameters) = (ConnectionId([1; 8]), Parameters::default());
    let mut initiator = Initiator::new(keys.clone(), id, &parameters, Arc::new(AwsLc), [7; 32], Time::ZERO);
    initiator.poll_transmit(Time::ZERO, &mut hello);
    let numbered = (0..BATCH as u8).map(|n| {
        let (authenticated, macs) = hello.split_at_mut(HELLO_LEN - 2 * MAC_LEN);
        authenticated[HELLO_LEN - 2 * MAC_LEN - 1] = n;
        macs[..MAC_LEN].copy_from_slice(&mac.tag(authenticated));
        hello
    });
    numbered.collect()
}

/// Handles every HELLO. For those that are answered, makes the session's keys as the first packet would.
fn round(case: &Case) -> f64 {
    let provider: Arc<dyn Provider> = Arc::new(AwsLc);
    let mut responder = Responder::new(case.listener.clone(), Arc::clone(&provider), [8; 32]);
    let terms = Terms { parameters: Parameters::default(), source: ConnectionId([2; 8]), known: false };
    let from: SocketAddr = ([192, 0, 2, 1], 4_000).into();
    let began = Instant::now();
    for hello in &case.hellos {
        if let Some(accepted) = responder.handle_hello(Time::ZERO, from, hello, &terms) {
            std::hint::black_box(accepted.session(&provider));
        }
    }
    began.elapsed().as_secs_f64() * 1e6 / BATCH as f64
}
