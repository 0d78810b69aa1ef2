//! Row S11 of `docs/survival.md` on a real system: routes of loopback that disappear and return.

use std::process::Command;

use tidewire::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::pair::{Pair, pair, pseudo_random, within};

/// This variable is set in the process that runs in its own network namespace.
const INSIDE: &str = "TIDEWIRE_TEST_NETWORK";

fn ip(words: &str) {
    let done = Command::new("ip").args(words.split(' ')).status().unwrap();
    assert!(done.success(), "ip {words}");
}

/// Starts this test again in its own network namespace, where it may remove the routes: ENETUNREACH.
#[test]
#[ignore = "needs root: a network namespace"]
fn s11_a_network_that_goes_and_comes_back() {
    if std::env::var_os(INSIDE).is_some() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        return runtime.block_on(network_goes());
    }
    let possible = Command::new("unshare").args(["-n", "ip", "link", "set", "lo", "up"]).output();
    let possible = possible.is_ok_and(|output| output.status.success());
    tidewire_testing::needs("root, unshare and ip", possible);
    let mut again = Command::new("unshare");
    again.arg("-n").arg(std::env::current_exe().unwrap()).args([
        "--exact",
        "--ignored",
        "routes::s11_a_network_that_goes_and_comes_back",
    ]);
    let output = again.arg("--nocapture").env(INSIDE, "1").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

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
