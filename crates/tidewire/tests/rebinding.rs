//! A client behind an address translator that gives it another port in mid-transfer, over real sockets.

mod pair;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pair::{endpoint, pseudo_random, within};
use tidewire::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;

/// Datagrams between two changes, and changes in all.
const DATAGRAMS: usize = 400;
const CHANGES: usize = 5;

async fn bind() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").await.unwrap()
}

/// Passes datagrams on between `inside`, to which the client sends, and the server, by a socket that is another one every [`DATAGRAMS`].
async fn translate(inside: UdpSocket, server: SocketAddr, changes: Arc<AtomicUsize>) {
    let (mut outside, mut client, mut passed) = (bind().await, None, 0);
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
            // What is under way to the old one is lost.
            outside = bind().await;
            changes.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[tokio::test]
async fn every_byte_arrives_though_the_port_changes_under_way() {
    let (server, client) = (endpoint(Config::default()).await, endpoint(Config::default()).await);
    let (inside, changes) = (bind().await, Arc::new(AtomicUsize::new(0)));
    let nat = inside.local_addr().unwrap();
    let translator = tokio::spawn(translate(inside, server.local_addr(), Arc::clone(&changes)));
    let (ours, theirs) = within(async { tokio::join!(client.connect(nat), server.accept()) }).await;
    let (ours, theirs) = (ours.unwrap(), theirs.unwrap());

    // Up, then down: once the end that moves sends, once it only answers.
    let data = pseudo_random(8, 1_500_000);
    within(async {
        let mut stream = ours.open().await.unwrap();
        let up = async {
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
        let (back, there) = tokio::join!(up, down);
        assert!(there == data && back == data);
    })
    .await;
    let moves = theirs.stats().moves;
    assert_eq!(changes.load(Ordering::Relaxed), CHANGES);
    assert!((1..=CHANGES as u64).contains(&moves), "{moves} moves");
    translator.abort();
}
