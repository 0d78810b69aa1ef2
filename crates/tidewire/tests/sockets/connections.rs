//! Connections over real sockets: how they are made, refused and ended, and what strangers can do
//! to them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::pair::{between, bind, endpoint, pair, plain, pseudo_random, secret, within};
use crate::places::Place;
use tidewire::{CloseCode, CloseReason, Config, ConnectError, ConnectionLost, EndpointEnded, new_secret};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[test]
fn a_setting_out_of_range_is_named() {
    let error = Config::builder().max_span(0).build().unwrap_err();
    assert_eq!(error.to_string(), "max_span must be from 1 to 1024 symbols");
}

#[tokio::test]
async fn who_has_another_secret_gets_no_answer_and_is_counted() {
    let server = endpoint(Config::default()).await;
    let config = Config::builder().handshake_timeout(Duration::from_millis(300)).build().expect("in range");
    let stranger = bind(new_secret().unwrap(), config);
    let error = within(stranger.connect(server.local_addr())).await.unwrap_err();
    assert_eq!(error, ConnectError::NoAnswer);
    assert_eq!(error.to_string(), "no answer: wrong host, port or secret");
    let stats = server.stats();
    assert!(stats.strangers > 0 && stats.strangers == stats.received, "{stats:?}");
    // Nothing came back.
    assert_eq!(stranger.stats().received, 0);
}

#[tokio::test]
async fn addresses_that_cannot_be_reached_are_refused_at_once() {
    let client = endpoint(Config::default()).await;
    for (address, says) in [("[::1]:7700", "bind to [::]:0"), ("127.0.0.1:0", "no port"), ("0.0.0.0:7700", "no host")] {
        let error = client.connect(address.parse().unwrap()).await.unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[tokio::test]
async fn an_ipv6_wildcard_takes_both_families() {
    let place = Place::new();
    let Ok(server) = place.bind("[::]:0".parse().unwrap(), secret(), Config::default()) else {
        return println!("skipped: no IPv6 here");
    };
    let of_family: [fn(&Place) -> IpAddr; 2] = [|place| place.v4[0], |place| place.v6];
    for address in of_family {
        let theirs = Place::new();
        let client = theirs.bind(SocketAddr::new(address(&theirs), 0), secret(), Config::default()).unwrap();
        let remote = SocketAddr::new(address(&place), server.local_addr().port());
        let (ours, theirs) = within(async { tokio::join!(client.connect(remote), server.accept()) }).await;
        assert_eq!(ours.unwrap().remote(), remote);
        assert_eq!(theirs.unwrap().remote(), client.local_addr());
        // The wildcard socket also connects to an IPv4 and an IPv6 address.
        let (ours, theirs) = within(async { tokio::join!(server.connect(client.local_addr()), client.accept()) }).await;
        assert!(ours.is_ok() && theirs.is_ok());
    }
}

#[tokio::test]
async fn both_sides_learn_why_a_connection_ended() {
    let pair = pair(Config::default()).await;
    within(async {
        let waits_for_stream = tokio::spawn({
            let theirs = pair.theirs.clone();
            async move { theirs.accept().await.unwrap_err() }
        });
        let mut stream = pair.ours.open().await.unwrap();
        pair.ours.close(CloseCode::Done, "all is said");
        assert_eq!(pair.ours.closed().await, CloseReason::Local);
        let reason = CloseReason::Peer { code: CloseCode::Done, reason: "all is said".into() };
        assert_eq!(pair.theirs.closed().await, reason);
        assert_eq!(waits_for_stream.await.unwrap(), ConnectionLost(reason));
        assert_eq!(stream.write(b"x").await.unwrap_err().kind(), std::io::ErrorKind::NotConnected);
        assert_eq!(pair.ours.open().await.unwrap_err().0, CloseReason::Local);
    })
    .await;
}

#[tokio::test]
async fn a_dropped_connection_is_closed() {
    let pair = pair(Config::default()).await;
    drop(pair.ours);
    let reason = within(pair.theirs.closed()).await;
    assert_eq!(reason, CloseReason::Peer { code: CloseCode::Done, reason: String::new() });
}

#[tokio::test]
#[ignore = "slow: waits in real time"]
async fn a_closed_endpoint_accepts_and_connects_no_more() {
    let pair = pair(Config::default()).await;
    within(pair.server.close()).await;
    assert_eq!(pair.server.accept().await.unwrap_err(), EndpointEnded::Closed);
    assert_eq!(
        pair.server.connect(pair.client.local_addr()).await.unwrap_err(),
        ConnectError::Endpoint(EndpointEnded::Closed)
    );
    assert_eq!(pair.theirs.closed().await, CloseReason::Local);
    assert!(matches!(within(pair.ours.closed()).await, CloseReason::Peer { .. }));
}

#[test]
fn dropping_everything_ends_the_task_and_frees_the_port() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let place = Place::new();
        let server = place.bind(SocketAddr::new(place.v4[0], 0), secret(), Config::default()).unwrap();
        let address = server.local_addr();
        let pair = between(endpoint(Config::default()).await, server).await;
        let mut stream = pair.ours.open().await.unwrap();
        stream.write_all(&pseudo_random(1, 10_000)).await.unwrap();
        drop((pair, stream));
        let tasks = tokio::runtime::Handle::current().metrics();
        within(async {
            while tasks.num_alive_tasks() > 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        // The socket closes when its task ends and no process that another test starts holds it any more.
        within(async {
            while place.bind(address, secret(), Config::default()).is_err() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    });
}

#[test]
fn the_end_of_the_runtime_ends_every_wait() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let pair = runtime.block_on(pair(Config::default()));
    let mut stream = runtime.block_on(pair.ours.open()).unwrap();
    runtime.shutdown_timeout(Duration::from_secs(60));
    let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    other.block_on(within(async {
        assert_eq!(pair.ours.closed().await, CloseReason::Local);
        assert!(stream.read_u8().await.is_err());
        assert_eq!(pair.server.accept().await.unwrap_err(), EndpointEnded::DriverStopped);
        assert_eq!(
            pair.client.connect(pair.server.local_addr()).await.unwrap_err(),
            ConnectError::Endpoint(EndpointEnded::DriverStopped)
        );
        pair.server.close().await;
    }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_connections_at_once() {
    const CONNECTIONS: u64 = 50;
    let server = Arc::new(endpoint(Config::default()).await);
    let client = Arc::new(endpoint(Config::default()).await);
    let echo = tokio::spawn({
        let server = Arc::clone(&server);
        async move {
            while let Ok(connection) = server.accept().await {
                tokio::spawn(async move {
                    let (mut reader, mut writer) = tokio::io::split(connection.accept().await.unwrap());
                    tokio::io::copy(&mut reader, &mut writer).await.unwrap();
                    writer.shutdown().await.unwrap();
                    connection.closed().await;
                });
            }
        }
    });
    let mut tasks = tokio::task::JoinSet::new();
    for seed in 0..CONNECTIONS {
        let (client, address) = (Arc::clone(&client), server.local_addr());
        tasks.spawn(async move {
            let connection = client.connect(address).await.unwrap();
            let (mut reader, mut writer) = tokio::io::split(connection.open().await.unwrap());
            let data = pseudo_random(seed, 50_000);
            let mut back = Vec::new();
            let write = async {
                writer.write_all(&data).await.unwrap();
                writer.shutdown().await.unwrap();
            };
            tokio::join!(write, async { reader.read_to_end(&mut back).await.unwrap() });
            assert!(back == data, "connection {seed}");
        });
    }
    within(tasks.join_all()).await;
    assert_eq!(server.stats().hellos.accepted, CONNECTIONS);
    within(server.close()).await;
    within(echo).await.unwrap();
}

#[tokio::test]
async fn garbage_changes_nothing() {
    let pair = pair(Config::default()).await;
    let address = pair.server.local_addr();
    let garbage = plain().await;
    within(async {
        let (mut ours, data) = (pair.ours.open().await.unwrap(), pseudo_random(3, 200_000));
        let write = async {
            for (n, part) in data.chunks(1_000).enumerate() {
                ours.write_all(part).await.unwrap();
                let len = n * 7;
                garbage.send_to(&pseudo_random(n as u64, len.min(1_400)), address).await.unwrap();
            }
            ours.shutdown().await.unwrap();
        };
        let mut received = Vec::new();
        let read = async {
            pair.theirs.accept().await.unwrap().read_to_end(&mut received).await.unwrap();
        };
        tokio::join!(write, read);
        assert!(received == data);
    })
    .await;
    let stats = pair.server.stats();
    let refused = stats.malformed + stats.unknown + stats.strangers;
    assert!(refused > 100, "{stats:?}");
    // No endpoint answers garbage.
    let mut buffer = [0; 2_000];
    assert_eq!(garbage.try_recv(&mut buffer).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}
