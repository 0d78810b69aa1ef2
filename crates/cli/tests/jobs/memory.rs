//! What a listener does when its peers ask for more than `--max-memory`, or are more than
//! `--max-connections`.

use std::fs;
use std::time::Duration;

use tidewire::{CloseCode, CloseReason, Config, ConnectError, Connection, Endpoint, Secret};
use tokio::io::AsyncWriteExt;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::process::{Running, address, tidewire};

/// Starts a receiver with these limits. Returns it, its link, and a peer with the same secret.
fn receiver(limits: &[&str], into: &std::path::Path) -> (Running, String, Runtime, Endpoint) {
    fs::create_dir(into).unwrap();
    let mut command = tidewire(&["receive", "--json", "--listen", "127.0.0.1:0", "--dir"]);
    let mut receiver = Running::spawn(command.arg(into).args(limits));
    let line = receiver.line();
    let link = line["link"].as_str().unwrap_or_else(|| panic!("{line}")).to_owned();
    let secret: Secret = link.split_once('#').unwrap().1.parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    // This is long enough for a busy machine. A refused connection waits for all of it.
    let config = Config::builder().handshake_timeout(Duration::from_secs(5)).build().expect("in range");
    let any = "127.0.0.1:0".parse().unwrap();
    let endpoint = {
        let _entered = runtime.enter();
        Endpoint::bind(any, secret, config).unwrap()
    };
    (receiver, link, runtime, endpoint)
}

/// Sends a small file; returns the exit code.
fn send(folder: &std::path::Path, name: &str, link: &str) -> Option<i32> {
    let file = folder.join(name);
    fs::write(&file, b"content").unwrap();
    let output = tidewire(&["send"]).arg(file).arg(link).output().unwrap();
    output.status.code()
}

/// Ends it as an operator does, which is no error.
fn end(receiver: Running) {
    receiver.interrupt();
    let (code, lines) = receiver.end();
    assert_eq!(code, Some(130), "{lines:?}");
}

/// A peer writes to streams that nobody reads. Their windows allow 32 MiB. One peer alone may fill half of
/// the 4 MiB.
#[test]
fn a_peer_that_fills_the_memory_is_closed_and_others_are_served() {
    let folder = tempfile::tempdir().unwrap();
    let (receiver, link, runtime, endpoint) = receiver(&["--max-memory", "4MiB"], &folder.path().join("into"));
    let peer = address(&link).parse().unwrap();
    let reason = runtime.block_on(async {
        let idle = endpoint.connect(peer).await.unwrap();
        let greedy = endpoint.connect(peer).await.unwrap();
        // The receiver reads only the first stream.
        let _silent = greedy.open().await.unwrap();
        let mut writers = JoinSet::new();
        for _ in 0..100 {
            let mut stream = greedy.open().await.unwrap();
            // Each write fails when the connection ends.
            writers.spawn(async move { stream.write_all(&vec![1; 256 << 10]).await });
        }
        let reason = greedy.closed().await;
        // The earlier connection, which took nothing, still exists.
        assert!(idle.open().await.is_ok());
        reason
    });
    let refused = CloseReason::Peer { code: CloseCode::Refused, reason: "no memory is left".to_owned() };
    assert_eq!(reason, refused);
    assert_eq!(send(folder.path(), "f", &link), Some(0));
    assert_eq!(fs::read(folder.path().join("into/f")).unwrap(), b"content");
    end(receiver);
}

/// Idle connections count for 32 KiB each. New ones are accepted while less than half of the memory is taken:
/// 64 in 4 MiB. The 65th gets no answer, and the others stay. When one ends, there is room again.
#[test]
#[ignore = "slow: waits in real time"]
fn when_the_memory_is_short_the_newest_gets_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let (receiver, link, runtime, endpoint) = receiver(&["--max-memory", "4MiB"], &folder.path().join("into"));
    let peer = address(&link).parse().unwrap();
    runtime.block_on(async {
        let mut kept: Vec<Connection> = Vec::new();
        let refused = loop {
            match endpoint.connect(peer).await {
                Ok(connection) => kept.push(connection),
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, ConnectError::NoAnswer), "{refused:?}");
        assert!((32..=66).contains(&kept.len()), "{} connections", kept.len());
        for connection in &kept {
            assert!(connection.open().await.is_ok(), "an older one was given up for it");
        }
        kept.drain(..8).for_each(|connection| connection.close(CloseCode::Done, ""));
        endpoint.connect(peer).await.expect("there is room again");
    });
    end(receiver);
}

#[test]
#[ignore = "slow: waits in real time"]
fn one_connection_too_many_gets_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let (receiver, link, runtime, endpoint) = receiver(&["--max-connections", "2"], &folder.path().join("into"));
    let peer = address(&link).parse().unwrap();
    runtime.block_on(async {
        let first = endpoint.connect(peer).await.unwrap();
        let second = endpoint.connect(peer).await.unwrap();
        assert!(matches!(endpoint.connect(peer).await, Err(ConnectError::NoAnswer)));
        assert!(second.open().await.is_ok());
        first.close(CloseCode::Done, "");
        endpoint.connect(peer).await.expect("there is room again");
    });
    end(receiver);
}
