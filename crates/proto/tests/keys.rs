//! Authentication `key`: which peers are accepted, which get no response, and what each costs
//! (docs/survival.md, rows H6 and H7, with and without a psk).

use std::net::SocketAddr;
use std::sync::Arc;

use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::{CloseCode, CloseReason, Event, Received};
use tidewire_proto::crypto::{AwsLc, MacKey, PrivateKey, Provider, PublicKey, Secret};
use tidewire_proto::endpoint::{Endpoint, EndpointConfig};
use tidewire_proto::handshake::{
    Credentials, HandshakeError, Initiator, KeyCredentials, Parameters, PeerKeyError, Responder, ResponderStats, Terms,
    Unauthorized,
};
use tidewire_proto::wire::{
    ConnectionId, HELLO_LEN, LONG_HEADER_LEN, MAC_LEN, REPLY_MAX, SHORT_HEADER_LEN, TAG_LEN, Writer, write_short_header,
};

fn private(n: u8) -> PrivateKey {
    PrivateKey::new([n; 32])
}

/// A key pair, an optional secret, and the public keys that it accepts.
fn credentials(n: u8, psk: Option<u8>, authorized: &[u8]) -> Credentials {
    let authorized = Arc::new(authorized.iter().map(|&n| private(n).public()).collect());
    let psk = psk.map(|psk| Secret::new([psk; 32]));
    Credentials::Key(KeyCredentials { authorized, psk, ..KeyCredentials::new(private(n)) })
}

fn client() -> SocketAddr {
    "192.0.2.1:4000".parse().unwrap()
}

fn provider() -> Arc<dyn Provider> {
    Arc::new(AwsLc)
}

fn initiator(own: &Credentials, peer: &PublicKey, seed: u8) -> Initiator {
    let keys = own.to_connect(Some(peer)).unwrap();
    Initiator::new(keys, ConnectionId([1; 8]), &Parameters::default(), provider(), [seed; 32], Time::ZERO)
}

fn responder(own: Credentials) -> Responder {
    Responder::new(own, provider(), [99; 32])
}

fn terms() -> Terms {
    Terms { parameters: Parameters::default(), source: ConnectionId([2; 8]), known: false }
}

fn hello_of(initiator: &mut Initiator) -> [u8; HELLO_LEN] {
    let mut hello = [0; HELLO_LEN];
    initiator.poll_transmit(Time::ZERO, &mut hello).unwrap();
    hello
}

fn reply_of(responder: &mut Responder) -> Option<Vec<u8>> {
    let mut reply = [0; REPLY_MAX];
    let (_, len) = responder.poll_transmit(Time::ZERO, &mut reply)?;
    Some(reply[..len].to_vec())
}

#[test]
fn both_sides_learn_the_others_key_and_agree() {
    for psk in [None, Some(7)] {
        let (ours, theirs) = (credentials(1, psk, &[]), credentials(2, psk, &[1, 3]));
        let mut initiator = initiator(&ours, &private(2).public(), 5);
        let mut responder = responder(theirs);
        let accepted = responder.handle_hello(Time::ZERO, client(), &hello_of(&mut initiator), &terms()).unwrap();
        let mut there = accepted.session(&provider());
        let mut here = initiator.handle_reply(&reply_of(&mut responder).unwrap()).unwrap();
        assert_eq!((here.peer_key, there.peer_key), (Some(private(2).public()), Some(private(1).public())));
        assert!(!initiator.found_connection());
        let mut packet = vec![1; SHORT_HEADER_LEN + 100 + TAG_LEN];
        write_short_header(&mut Writer::new(&mut packet), here.remote, 0, 9).unwrap();
        here.sealing.seal(0, 0, &mut packet).unwrap();
        let opened = there.opening.open(0, &mut packet).unwrap();
        assert_eq!(packet[opened.payload], [1; 100]);
    }
}

#[test]
fn who_is_not_authorized_gets_silence_and_is_named() {
    let mut responder = responder(credentials(2, None, &[3]));
    let mut stranger = initiator(&credentials(1, None, &[]), &private(2).public(), 5);
    let hello = hello_of(&mut stranger);
    assert!(responder.handle_hello(Time::ZERO, client(), &hello, &terms()).is_none());
    assert_eq!((reply_of(&mut responder), responder.half_open()), (None, 0));
    let told = Unauthorized { key: private(1).public(), from: client() };
    assert_eq!((responder.poll_unauthorized(), responder.poll_unauthorized()), (Some(told), None));
    // However many come, only a few wait to be reported.
    for _ in 0..50 {
        responder.handle_hello(Time::ZERO, client(), &hello, &terms());
    }
    assert_eq!(std::iter::from_fn(|| responder.poll_unauthorized()).count(), 16);
    assert_eq!(responder.stats().unauthorized, 51);
}

/// Passes everything that one endpoint sends, with the source address `source`.
fn pass(now: Time, from: &mut Endpoint, to: &mut Endpoint, source: SocketAddr) {
    let mut out = vec![0; 2_048];
    from.handle_timeout(now);
    while let Some(sent) = from.poll_transmit(now, 1, &mut out) {
        to.handle_datagram(Received { at: now, from: source, to: None, ecn: None, datagram: &mut out[..sent.len] });
    }
}

/// A list that changes. A peer on the new list is accepted, even with the HELLO that was refused before, and
/// a peer removed from it is refused.
#[test]
fn another_list_lets_others_in_and_closes_the_connections_of_those_who_left() {
    let config =
        |own, listen| EndpointConfig { credentials: own, listen, connection: Config::default(), provider: provider() };
    let mut listener = Endpoint::new(config(credentials(2, None, &[3]), true), [9; 32]);
    let mut peer = Endpoint::new(config(credentials(1, None, &[]), false), [8; 32]);
    let there = "192.0.2.2:7700".parse().unwrap();
    peer.connect_to(Time::ZERO, there, &private(2).public()).unwrap();
    let mut exchange = |listener: &mut Endpoint, ms| {
        let now = Time::from_millis(ms);
        for _ in 0..20 {
            pass(now, &mut peer, listener, client());
            pass(now, listener, &mut peer, there);
        }
        let events = |endpoint: &mut Endpoint| {
            std::iter::from_fn(|| endpoint.poll_event()).map(|(_, event)| event).collect::<Vec<_>>()
        };
        [events(&mut peer), events(listener)]
    };
    assert_eq!(exchange(&mut listener, 0), [vec![], vec![]]);
    assert_eq!(listener.poll_unauthorized().map(|refused| refused.key), Some(private(1).public()));
    let list = |keys: &[u8]| Arc::new(keys.iter().map(|&n| private(n).public()).collect());
    listener.authorize(Time::from_millis(100), list(&[1, 3]));
    let [ours, theirs] = exchange(&mut listener, 400);
    assert!(ours.contains(&Event::Connected) && theirs.contains(&Event::Connected), "{ours:?} {theirs:?}");
    // A list that still contains the key changes nothing.
    listener.authorize(Time::from_millis(500), list(&[1]));
    assert_eq!(exchange(&mut listener, 600), [vec![], vec![]]);
    listener.authorize(Time::from_millis(700), list(&[3]));
    let [ours, theirs] = exchange(&mut listener, 700);
    let refused = |event: &Event| matches!(event, Event::Closed(CloseReason::Peer { code: CloseCode::Refused, .. }));
    assert!(ours.iter().any(refused) && theirs.contains(&Event::Closed(CloseReason::Local)), "{ours:?} {theirs:?}");
}

/// A peer with another listener's key, with another secret, or with the other authentication fails the first
/// MAC.
#[test]
fn h6_a_hello_with_a_wrong_secret_costs_no_noise() {
    let wrong = [
        (credentials(2, None, &[1]), initiator(&credentials(1, None, &[]), &private(3).public(), 5)),
        (credentials(2, Some(7), &[1]), initiator(&credentials(1, None, &[]), &private(2).public(), 5)),
        (credentials(2, Some(7), &[1]), initiator(&credentials(1, Some(8), &[]), &private(2).public(), 5)),
        (Secret::new([2; 32]).into(), initiator(&credentials(1, None, &[]), &private(2).public(), 5)),
    ];
    for (listener, mut initiator) in wrong {
        let mut responder = responder(listener);
        assert!(responder.handle_hello(Time::ZERO, client(), &hello_of(&mut initiator), &terms()).is_none());
        assert_eq!((reply_of(&mut responder), responder.poll_timeout()), (None, None));
        assert_eq!(*responder.stats(), stats(|stats| (stats.received, stats.strangers) = (1, 1)));
    }
}

fn stats(fill: impl FnOnce(&mut ResponderStats)) -> ResponderStats {
    let mut stats = ResponderStats::default();
    fill(&mut stats);
    stats
}

/// A completed handshake runs Noise once at the responder, however many copies come. The example
/// `handshake_cost` prints the cost.
#[test]
fn h7_a_handshake_costs_one_noise() {
    let mut responder = responder(credentials(2, None, &[1]));
    let mut initiator = initiator(&credentials(1, None, &[]), &private(2).public(), 5);
    let hello = hello_of(&mut initiator);
    for copy in 0..8 {
        assert_eq!(responder.handle_hello(Time::ZERO, client(), &hello, &terms()).is_some(), copy == 0);
    }
    let counts = (responder.stats().accepted, responder.stats().repeated);
    assert_eq!(counts, (1, 7));
}

/// A peer that knows the listener's public key can make a valid mac1. Any other change of the HELLO breaks
/// the Noise message.
#[test]
fn a_changed_hello_with_a_right_mac1_makes_no_session() {
    let (ours, listener) = (credentials(1, None, &[]), private(2).public());
    let hello = hello_of(&mut initiator(&ours, &listener, 5));
    let noise_end = LONG_HEADER_LEN + usize::from(u16::from_be_bytes([hello[23], hello[24]]));
    let mac = MacKey::of_listener(&listener, &Secret::new([0; 32]));
    for at in 0..noise_end {
        let mut responder = responder(credentials(2, None, &[1]));
        let mut changed = hello;
        changed[at] ^= 1;
        let (authenticated, macs) = changed.split_at_mut(HELLO_LEN - 2 * MAC_LEN);
        macs[..MAC_LEN].copy_from_slice(&mac.tag(authenticated));
        let accepted = responder.handle_hello(Time::ZERO, client(), &changed, &terms());
        assert!(accepted.is_none() && responder.stats().accepted == 0, "byte {at}");
    }
}

#[test]
fn an_answer_of_another_listener_is_refused() {
    let own = credentials(1, None, &[]);
    let mut initiator = initiator(&own, &private(2).public(), 5);
    let mut right = responder(credentials(2, None, &[1]));
    right.handle_hello(Time::ZERO, client(), &hello_of(&mut initiator), &terms()).unwrap();
    let reply = reply_of(&mut right).unwrap();
    // Made for the same HELLO's listener, but without its private key.
    let mac = MacKey::of_listener(&private(2).public(), &Secret::new([0; 32]));
    let mut forged = reply.clone();
    forged[LONG_HEADER_LEN + 40] ^= 1;
    let end = forged.len() - MAC_LEN;
    let tag = mac.tag(&forged[..end]);
    forged[end..].copy_from_slice(&tag);
    assert_eq!(initiator.handle_reply(&forged).err(), Some(HandshakeError::Noise));
    assert!(initiator.handle_reply(&reply).is_ok());
}

#[test]
fn a_key_too_many_or_too_few_is_named() {
    let (pair, secret) = (credentials(1, None, &[]), Credentials::from(Secret::new([1; 32])));
    let peer = private(2).public();
    assert_eq!(pair.to_connect(None).err(), Some(PeerKeyError::Missing));
    assert_eq!(secret.to_connect(Some(&peer)).err(), Some(PeerKeyError::Unused));
    assert!(pair.to_connect(Some(&peer)).is_ok() && secret.to_connect(None).is_ok());
}
