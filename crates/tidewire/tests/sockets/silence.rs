//! A prober with a raw socket: it gets no answer without the secret, and with the secret no more bytes than
//! it sent.

use std::sync::Arc;
use std::time::Duration;

use crate::pair::{bind, endpoint, plain, pseudo_random, secret, within};
use tidewire::{Config, Credentials, Endpoint, KeyCredentials, PrivateKey, PublicKey, Secret};
use tidewire_proto::Time;
use tidewire_proto::crypto::AwsLc;
use tidewire_proto::handshake::{Initiator, Keys, Parameters};
use tidewire_proto::wire::{ConnectionId, HELLO_LEN};
use tokio::net::UdpSocket;

/// Datagrams that the tests send without the secret.
fn thrown() -> u64 {
    let few = tidewire_testing::few_seeds();
    if few { 20_000 } else { 200_000 }
}

/// Sends every kind of datagram that a stranger can send. Returns how many left.
async fn probe(prober: &UdpSocket, server: &Endpoint, hellos: &[[u8; HELLO_LEN]]) -> u64 {
    for n in 0..thrown() {
        let mut datagram = pseudo_random(n, (n % 1_400) as usize);
        let hello = &hellos[n as usize % hellos.len()];
        match n % 5 {
            // A HELLO of another secret, a part of a HELLO, a HELLO with changed bytes, a short packet,
            // random bytes.
            0 => datagram = hello.to_vec(),
            1 => datagram = hello[..n as usize % HELLO_LEN].to_vec(),
            2 => {
                datagram = hello.to_vec();
                datagram[n as usize % HELLO_LEN] ^= 1 << (n % 8);
            }
            3 if !datagram.is_empty() => datagram[0] = datagram[0] & 0x3f | 0x40,
            _ => {}
        }
        prober.send_to(&datagram, server.local_addr()).await.unwrap();
        if n % 64 == 0 {
            // Lets the server receive them before its socket buffer is full.
            tokio::task::yield_now().await;
        }
    }
    thrown()
}

pub fn hello(keys: impl Into<Keys>, n: u8) -> [u8; HELLO_LEN] {
    let mut hello = [0; HELLO_LEN];
    let id = ConnectionId([n; 8]);
    let mut initiator = Initiator::new(keys, id, &Parameters::default(), Arc::new(AwsLc), [n; 32], Time::ZERO);
    initiator.poll_transmit(Time::ZERO, &mut hello).unwrap();
    hello
}

fn between(ours: u8, theirs: &PublicKey) -> Keys {
    Credentials::Key(KeyCredentials::new(PrivateKey::new([ours; 32]))).to_connect(Some(theirs)).unwrap()
}

/// Connects an honest client. When that is done, the server has received all earlier datagrams.
async fn nothing_came(prober: &UdpSocket) {
    let mut buffer = [0; 2_000];
    assert_eq!(prober.try_recv(&mut buffer).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn t17_strangers_get_nothing() {
    let server = endpoint(Config::default()).await;
    let prober = plain().await;
    let hellos: Vec<_> = (1..9).map(|n| hello(&Secret::new([99; 32]), n)).collect();
    let sent = within(probe(&prober, &server, &hellos)).await;
    let client = endpoint(Config::default()).await;
    let (ours, theirs) = within(async { tokio::join!(client.connect(server.local_addr()), server.accept()) }).await;
    assert!(ours.is_ok() && theirs.is_ok());
    nothing_came(&prober).await;
    let stats = server.stats();
    // On a loaded machine the socket buffer loses some, and those are not counted.
    assert!(stats.strangers + stats.malformed + stats.unknown > sent / 10, "{stats:?} of {sent}");
    assert_eq!((stats.hellos.accepted, stats.hellos.unproven), (1, 0));
}

#[tokio::test]
async fn t17_keys_that_are_not_authorized_get_nothing_and_are_named() {
    let (ours, theirs) = (PrivateKey::new([1; 32]), PrivateKey::new([2; 32]));
    let mut listener = KeyCredentials::new(theirs.clone());
    listener.authorized = Arc::new([ours.public()].into());
    let server = bind(Credentials::Key(listener), Config::default());
    let prober = plain().await;
    let stranger = PrivateKey::new([3; 32]);
    prober.send_to(&hello(between(3, &theirs.public()), 7), server.local_addr()).await.unwrap();
    let refused = within(server.unauthorized()).await.unwrap();
    assert_eq!((refused.key, refused.from), (stranger.public(), prober.local_addr().unwrap()));

    let client = bind(Credentials::Key(KeyCredentials::new(ours.clone())), Config::default());
    let peer = theirs.public();
    let connect = client.connect_to(server.local_addr(), &peer);
    let (ours_open, theirs_open) = within(async { tokio::join!(connect, server.accept()) }).await;
    assert_eq!(ours_open.unwrap().peer_key(), Some(peer));
    assert_eq!(theirs_open.unwrap().peer_key(), Some(ours.public()));
    nothing_came(&prober).await;
    assert!(client.connect(server.local_addr()).await.unwrap_err().to_string().contains("public key"));
}

/// What came back to a prober.
#[derive(Default)]
struct Back {
    bytes: usize,
    replies: u64,
    cookies: u64,
}

impl Back {
    /// Takes what has arrived, until `done` says that it was all.
    async fn take(&mut self, prober: &UdpSocket, mut done: impl FnMut(&Self) -> bool) {
        let mut buffer = [0; 2_000];
        while !done(self) {
            while let Ok(len) = prober.try_recv(&mut buffer) {
                let kind = buffer[0] >> 5 & 3;
                self.bytes += len;
                self.replies += u64::from(kind == 1);
                self.cookies += u64::from(kind == 2);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// With the secret but from an address that never proves itself, the server sends no more bytes than it
/// receives.
#[tokio::test]
async fn t17_with_the_secret_no_more_comes_back_than_went() {
    let server = endpoint(Config::default()).await;
    let prober = plain().await;
    let mut back = Back::default();
    // More than an endpoint answers in a second without proof. They go in groups, because a queue on the way
    // may be too short for all of them.
    for group in 1..=10 {
        for n in 1..=20 {
            prober.send_to(&hello(&secret(), 20 * group + n), server.local_addr()).await.unwrap();
        }
        within(back.take(&prober, |_| server.stats().received == 20 * u64::from(group))).await;
    }
    let all = back.take(&prober, |back| {
        let hellos = server.stats().hellos;
        (back.replies, back.cookies) == (2 * hellos.accepted, hellos.unproven)
    });
    within(all).await;
    let sent = 200 * HELLO_LEN;
    println!("{} bytes for {sent}: {} REPLYs, {} COOKIEs", back.bytes, back.replies, back.cookies);
    assert!(back.replies >= 256 && back.bytes <= sent, "{} bytes for {sent}", back.bytes);
}
