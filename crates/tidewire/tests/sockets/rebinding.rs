//! Clients that move in the middle of a transfer, over real sockets: behind an address translator that gives
//! them another port, or by themselves. And a thief that copies the datagrams it sees.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::pair::{endpoint, plain, pseudo_random, secret, within};
use crate::places::Place;
use tidewire::{Config, Connection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;

/// Datagrams between two changes, and the number of changes.
const DATAGRAMS: usize = 400;
const CHANGES: usize = 5;

/// Forwards datagrams between `inside`, to which the client sends, and the server. The socket towards the
/// server is replaced every [`DATAGRAMS`].
async fn translate(inside: UdpSocket, server: SocketAddr, changes: Arc<AtomicUsize>) {
    let (mut outside, mut client, mut passed) = (plain().await, None, 0);
    let (mut there, mut back) = ([0; 2_000], [0; 2_000]);
    loop {
        tokio::select! {
            received = inside.recv_from(&mut there) => {
                let (len, from) = received.unwrap();
                client = Some(from);
                outside.send_to(&there[..len], server).await.unwrap();
            }
            received = outside.recv_from(&mut back) => {
                let (len, _) = received.unwrap();
                inside.send_to(&back[..len], client.unwrap()).await.unwrap();
            }
        }
        passed += 1;
        if passed % DATAGRAMS == 0 && passed / DATAGRAMS <= CHANGES {
            // Datagrams under way to the old socket are lost.
            outside = plain().await;
            changes.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Sends up, then down: the end that moves first sends and then only answers. Compares every byte.
async fn there_and_back(ours: &Connection, theirs: &Connection) {
    let data = pseudo_random(8, 1_500_000);
    let up = async {
        let mut stream = ours.open().await.unwrap();
        stream.write_all(&data).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).await.unwrap();
        back
    };
    let down = async {
        let mut stream = theirs.accept().await.unwrap();
        let mut there = Vec::new();
        stream.read_to_end(&mut there).await.unwrap();
        stream.write_all(&there).await.unwrap();
        stream.shutdown().await.unwrap();
        there
    };
    let (back, there) = within(async { tokio::join!(up, down) }).await;
    assert!(there == data && back == data);
}

#[tokio::test]
async fn every_byte_arrives_though_the_port_changes_under_way() {
    let (server, client) = (endpoint(Config::default()).await, endpoint(Config::default()).await);
    let (inside, changes) = (plain().await, Arc::new(AtomicUsize::new(0)));
    let nat = inside.local_addr().unwrap();
    let translator = tokio::spawn(translate(inside, server.local_addr(), Arc::clone(&changes)));
    let (ours, theirs) = within(async { tokio::join!(client.connect(nat), server.accept()) }).await;
    let (ours, theirs) = (ours.unwrap(), theirs.unwrap());

    there_and_back(&ours, &theirs).await;
    let moves = theirs.stats().moves;
    assert_eq!(changes.load(Ordering::Relaxed), CHANGES);
    assert!((1..=CHANGES as u64).contains(&moves), "{moves} moves");
    translator.abort();
}

#[tokio::test]
async fn an_endpoint_goes_over_to_another_socket_under_way() {
    let place = Place::new();
    let address = SocketAddr::new(place.v4[0], 0);
    let client = place.bind(address, secret(), Config::default()).unwrap();
    let server = endpoint(Config::default()).await;
    let (ours, theirs) = within(async { tokio::join!(client.connect(server.local_addr()), server.accept()) }).await;
    let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
    let before = client.local_addr();
    assert_eq!((theirs.remote(), theirs.current_remote()), (before, before));
    let moves = async {
        while theirs.stats().bytes.app_received < 200_000 {
            tokio::task::yield_now().await;
        }
        place.rebind(&client, address).unwrap();
    };
    tokio::join!(there_and_back(&ours, &theirs), moves);
    assert_ne!(client.local_addr(), before);
    assert_eq!(theirs.stats().moves, 1);
    assert_eq!((theirs.remote(), theirs.current_remote()), (before, client.local_addr()));
    let error = place.rebind(&client, SocketAddr::new(place.v6, 0)).unwrap_err();
    assert!(matches!(error.kind(), std::io::ErrorKind::InvalidInput | std::io::ErrorKind::AddrNotAvailable), "{error}");
}

/// A thief forwards every datagram of the client from its own address, ahead of the original. It gets a few
/// small packets and not the connection.
#[tokio::test]
async fn a_thief_that_is_always_first_wins_nothing() {
    let (server, client) = (endpoint(Config::default()).await, endpoint(Config::default()).await);
    let (inside, outside, thief) = (plain().await, plain().await, plain().await);
    let (nat, address) = (inside.local_addr().unwrap(), server.local_addr());
    let (sent, got) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (Arc::clone(&sent), Arc::clone(&got));
    let path = tokio::spawn(async move {
        let (mut there, mut back, mut loot) = ([0; 2_000], [0; 2_000], [0; 2_000]);
        let (mut client, mut passed) = (None, 0);
        loop {
            tokio::select! {
                received = inside.recv_from(&mut there) => {
                    let (len, from) = received.unwrap();
                    client = Some(from);
                    passed += 1;
                    // The thief starts in the middle of the transfer.
                    if passed > 20 {
                        thief.send_to(&there[..len], address).await.unwrap();
                        counts.0.fetch_add(len, Ordering::Relaxed);
                    }
                    outside.send_to(&there[..len], address).await.unwrap();
                }
                received = outside.recv_from(&mut back) => {
                    let (len, _) = received.unwrap();
                    inside.send_to(&back[..len], client.unwrap()).await.unwrap();
                }
                received = thief.recv_from(&mut loot) => {
                    let (len, _) = received.unwrap();
                    counts.1.fetch_add(len, Ordering::Relaxed);
                }
            }
        }
    });
    let (ours, theirs) = within(async { tokio::join!(client.connect(nat), server.accept()) }).await;
    let theirs = theirs.unwrap();
    there_and_back(&ours.unwrap(), &theirs).await;
    let (sent, got) = (sent.load(Ordering::Relaxed), got.load(Ordering::Relaxed));
    assert!(sent > 1_000_000 && (1..sent / 100).contains(&got), "{got} bytes for {sent}");
    assert_eq!(theirs.stats().moves, 0);
    path.abort();
}
