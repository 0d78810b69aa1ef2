//! What happens when a process or an interface goes.

use std::net::SocketAddr;
use std::time::Duration;

use tidewire::{CloseReason, Config, Endpoint, XdpConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::child::{Server, serve_if_told};
use super::{BYTES, bind, connect, transfer};
use crate::namespaces::{self, INTERFACE};
use crate::pair::{pseudo_random, secret, within};

#[tokio::test]
async fn a_killed_process_leaves_nothing_behind() {
    serve_if_told().await;
    let a = namespaces::host(1);
    let client = bind(&a, (a.v4[0], 0)).expect("binds");
    for round in 0..3 {
        let b = namespaces::host(1);
        let name = "bypass::outages::a_killed_process_leaves_nothing_behind";
        let mut server = Server::start(&b, name, &[]);
        let connection = server.connected(&client).await;
        let (mut stream, data) = (connection.open().await.expect("open"), pseudo_random(round, 300_000));
        stream.write_all(&data).await.expect("taken");
        let mut back = vec![0; data.len()];
        within(stream.read_exact(&mut back)).await.expect("echoed");
        assert!(back == data);
        assert_eq!(b.hook(INTERFACE).as_deref(), Some("xdp"));
        // The server has frames to send and to receive when it is killed.
        let _ = tokio::time::timeout(Duration::from_millis(1), stream.write_all(&data)).await;
        server.process.kill().expect("killed");
        server.process.wait().expect("a child");
        assert_eq!(b.hook(INTERFACE), None);
        // Port, hook and queues are free at once.
        let next = bind(&b, server.address).unwrap_or_else(|error| panic!("{error}"));
        let (ours, theirs) = connect(&client, &next, b.v4[0]).await;
        transfer(&ours, &theirs, 100_000).await;
        assert_eq!(b.hook(INTERFACE).as_deref(), Some("xdp"));
        // What still comes for a killed server meets the kernel's socket of the next one before its program.
        assert!(a.by_kernel()[0] == 0 && b.by_kernel()[0] < 100);
    }
}

#[tokio::test]
async fn an_interface_that_goes_down_and_comes_up_loses_no_byte() {
    let (a, b) = (namespaces::host(1), namespaces::host(1));
    let (client, server) = (bind(&a, (a.v4[0], 0)).expect("binds"), bind(&b, (b.v4[0], 0)).expect("binds"));
    let (ours, theirs) = connect(&client, &server, b.v4[0]).await;
    for (round, host) in [(0, &a), (1, &b)] {
        let before = (round * BYTES) as u64;
        let goes = async {
            while theirs.stats().bytes.app_received < before + 400_000 {
                tokio::task::yield_now().await;
            }
            host.ip(&format!("link set {INTERFACE} down"));
            // Stays down until the sender noticed: its kernel has no way any more, or nothing is answered.
            let before = ours.stats().packets;
            let noticed = || {
                let now = ours.stats().packets;
                if round == 0 { now.refused > before.refused } else { now.sent > before.sent + 10 }
            };
            while !noticed() {
                tokio::task::yield_now().await;
            }
            host.ip(&format!("link set {INTERFACE} up"));
        };
        tokio::join!(transfer(&ours, &theirs, BYTES), goes);
    }
    assert_eq!([a.by_kernel()[0], b.by_kernel()[0]], [0, 0]);
}

#[tokio::test]
async fn an_interface_that_is_removed_ends_its_connections_cleanly() {
    let (a, b) = (namespaces::host(1), namespaces::host(1));
    let server = bind(&b, (b.v4[0], 0)).expect("binds");
    let config = Config::builder().idle_timeout(Duration::from_secs(1)).build().expect("in range");
    let any = SocketAddr::from(([0, 0, 0, 0], 0));
    let xdp = XdpConfig::new(INTERFACE);
    let client = a.enter(|| Endpoint::bind_xdp(any, secret(), config, std::num::NonZeroUsize::MIN, &xdp));
    let client = client.expect("binds");
    let (ours, theirs) = connect(&client, &server, b.v4[0]).await;
    transfer(&ours, &theirs, 100_000).await;
    a.ip(&format!("link delete {INTERFACE}"));
    let mut stream = ours.open().await.expect("open");
    let _ = stream.write_all(&pseudo_random(1, 100_000)).await;
    assert_eq!(within(ours.closed()).await, CloseReason::Idle);
    // The endpoint goes on over the kernel.
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let near = a.enter(|| Endpoint::bind(local, secret(), Config::default())).expect("binds");
    let (ours, theirs) = connect(&client, &near, local.ip()).await;
    transfer(&ours, &theirs, 100_000).await;
}
