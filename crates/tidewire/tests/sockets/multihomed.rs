//! A listener on a wildcard address, on a host with several addresses, answers from the address that was
//! called. A peer behind a translator or a firewall receives nothing from any other address. On Linux all of
//! 127.0.0.0/8 belongs to the host, so on loopback the test needs no set-up for its addresses.

use std::net::SocketAddr;

use crate::pair::{endpoint, plain, pseudo_random, secret, within};
use crate::places::Place;
use tidewire::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;

/// Datagrams between two changes of the port, and the number of changes.
const DATAGRAMS: usize = 100;
const CHANGES: usize = 3;

/// A socket that receives only what comes from `server`.
async fn connected(server: SocketAddr) -> UdpSocket {
    let socket = plain().await;
    socket.connect(server).await.unwrap();
    socket
}

/// Forwards datagrams between `inside` and the server, and lets through only what comes from the address that
/// was called.
async fn translate(inside: UdpSocket, server: SocketAddr) {
    let (mut outside, mut client, mut passed) = (connected(server).await, None, 0);
    let (mut there, mut back) = ([0; 2_000], [0; 2_000]);
    loop {
        tokio::select! {
            received = inside.recv_from(&mut there) => {
                let (len, from) = received.unwrap();
                client = Some(from);
                outside.send(&there[..len]).await.unwrap();
            }
            received = outside.recv(&mut back) => {
                inside.send_to(&back[..received.unwrap()], client.unwrap()).await.unwrap();
            }
        }
        passed += 1;
        if passed % DATAGRAMS == 0 && passed / DATAGRAMS <= CHANGES {
            outside = connected(server).await;
        }
    }
}

#[tokio::test]
async fn answers_come_from_the_address_that_was_called() {
    for (wildcard, called) in [("0.0.0.0:0", 0), ("0.0.0.0:0", 1), ("[::]:0", 2)] {
        let place = Place::new();
        let Ok(server) = place.bind(wildcard.parse().unwrap(), secret(), Config::default()) else {
            println!("skipped: no IPv6 here");
            continue;
        };
        let client = endpoint(Config::default()).await;
        let address = SocketAddr::new(place.v4[called], server.local_addr().port());
        let inside = plain().await;
        let nat = inside.local_addr().unwrap();
        let translator = tokio::spawn(translate(inside, address));
        let (ours, theirs) = within(async { tokio::join!(client.connect(nat), server.accept()) }).await;
        let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
        let data = pseudo_random(5, 1_000_000);
        let (mut there, mut stream) = (Vec::new(), ours.open().await.unwrap());
        let write = async {
            stream.write_all(&data).await.unwrap();
            stream.shutdown().await.unwrap();
        };
        let read = async {
            theirs.accept().await.unwrap().read_to_end(&mut there).await.unwrap();
        };
        within(async { tokio::join!(write, read) }).await;
        assert!(there == data, "{wildcard} called address {called}");
        // The new port was proven, so the challenge also came from the address that was called.
        assert!(theirs.stats().moves > 0, "{wildcard} called address {called}");
        translator.abort();
    }
}
