//! Goal G6 over a real socket: strangers send malformed datagrams to an endpoint in use, and its flow arrives
//! unchanged.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::pair::{pair, plain, pseudo_random, within};
use tidewire::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Bytes that the flow carries while the malformed datagrams arrive.
const BYTES: usize = 4 << 20;

/// Sends datagrams of every length, with first bytes and connection ids of all kinds, in bursts that fit the
/// receiver's socket buffer.
fn throw(socket: &UdpSocket, to: std::net::SocketAddr, count: usize, over: &AtomicBool) -> usize {
    let noise = pseudo_random(6, 1 << 16);
    for at in 0..count {
        let len = at * 7 % 1_500;
        let from = at * 131 % (noise.len() - 1_500);
        // A full queue may drop some of them. The flow would show a closed port.
        let _ = socket.send_to(&noise[from..from + len], to);
    }
    over.store(true, Ordering::Release);
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_thousand_malformed_datagrams_change_no_byte() {
    let count = if tidewire_testing::few_seeds() { 20_000 } else { 200_000 };
    let pair = pair(Config::default()).await;
    let (to, over) = (pair.server.local_addr(), std::sync::Arc::new(AtomicBool::new(false)));
    let thrower = std::thread::spawn({
        let (over, socket) = (over.clone(), plain().await.into_std().unwrap());
        socket.set_nonblocking(false).unwrap();
        move || throw(&socket, to, count, &over)
    });
    within(async {
        let mut round = 0;
        // Goes on until the flow is over, for at least one round.
        while round == 0 || !over.load(Ordering::Acquire) {
            let sent = pseudo_random(round, BYTES);
            let mut stream = pair.ours.open().await.unwrap();
            let (_, read) = tokio::join!(
                async {
                    stream.write_all(&sent).await.unwrap();
                    stream.shutdown().await.unwrap();
                },
                async {
                    let mut read = Vec::new();
                    pair.theirs.accept().await.unwrap().read_to_end(&mut read).await.unwrap();
                    read
                }
            );
            assert!(read == sent, "other bytes in round {round}");
            round += 1;
        }
    })
    .await;
    let stats = pair.server.stats();
    let junk = stats.malformed + stats.unknown + stats.strangers;
    println!("{count} thrown, {junk} came: {stats:?}");
    assert_eq!(thrower.join().unwrap(), count);
    assert!(junk > count as u64 / 20, "{junk} of {count} came");
    assert_eq!(stats.hellos.accepted, 1);
}
