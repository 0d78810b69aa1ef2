//! Row S11 of `docs/survival.md` on a real system: a port where nobody listens, and routes that disappear and
//! return.

mod pair;

use std::process::Command;
use std::time::Duration;

use pair::{Pair, endpoint, pair, pseudo_random, within};
use tidewire::{Config, ConnectError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// This variable is set in the process that runs in its own network namespace.
const INSIDE: &str = "TIDEWIRE_TEST_NETWORK";

#[tokio::test]
async fn s11_a_closed_port_is_no_answer() {
    let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = Config::builder().handshake_timeout(Duration::from_secs(1)).build().expect("in range");
    let client = endpoint(config).await;
    assert_eq!(within(client.connect(closed)).await.err(), Some(ConnectError::NoAnswer));
    // The socket still works.
    let Pair { ours, .. } = pair(Config::default()).await;
    assert_eq!(ours.stats().packets.refused, 0);
}

#[cfg(target_os = "linux")]
fn ip(words: &str) {
    let done = Command::new("ip").args(words.split(' ')).status().unwrap();
    assert!(done.success(), "ip {words}");
}

/// Starts this test again in its own network namespace, where it may remove the routes: ENETUNREACH.
#[test]
#[cfg(target_os = "linux")]
fn s11_a_network_that_goes_and_comes_back() {
    if std::env::var_os(INSIDE).is_some() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        return runtime.block_on(network_goes());
    }
    let possible = Command::new("unshare").args(["-n", "ip", "link", "set", "lo", "up"]).output();
    if !possible.is_ok_and(|output| output.status.success()) {
        println!("skipped: a network of one's own needs root, unshare and ip");
        return;
    }
    let mut again = Command::new("unshare");
    again.arg("-n").arg(std::env::current_exe().unwrap()).args(["--exact", "s11_a_network_that_goes_and_comes_back"]);
    let output = again.arg("--nocapture").env(INSIDE, "1").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[cfg(target_os = "linux")]
async fn network_goes() {
    ip("link set lo up");
    let Pair { ours, theirs, client: _client, server: _server } = pair(Config::default()).await;
    let data = pseudo_random(11, 3_000_000);
    let (mut stream, mut received) = (ours.open().await.unwrap(), vec![0; data.len()]);
    let (first, rest) = data.split_at(100_000);
    within(stream.write_all(first)).await.unwrap();
    let mut reader = within(theirs.accept()).await.unwrap();
    within(reader.read_exact(&mut received[..first.len()])).await.unwrap();

    ip("route flush table local");
    let write = async {
        stream.write_all(rest).await.unwrap();
        stream.shutdown().await.unwrap();
    };
    let refused = async {
        while ours.stats().packets.refused < 10 {
            tokio::task::yield_now().await;
        }
        let packets = ours.stats().packets;
        ip("route add local 127.0.0.0/8 dev lo table local");
        packets
    };
    let read = reader.read_exact(&mut received[first.len()..]);
    let ((), packets, read) = within(async { tokio::join!(write, refused, read) }).await;
    read.unwrap();
    assert!(received == data);
    assert!(packets.refused >= 10 && packets.refused <= packets.sent, "{packets:?}");
}
