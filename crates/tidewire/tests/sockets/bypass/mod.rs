//! What only AF_XDP can get wrong: which datagrams pass the kernel, interfaces that cannot be used, ways to
//! peers, and what happens when a process or an interface goes.

mod child;
mod interfaces;
mod outages;
mod transfers;
mod ways;

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;

use tidewire::{Config, Connection, Endpoint, XdpConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::namespaces::{Host, INTERFACE};
use crate::pair::{pseudo_random, secret, within};

/// Bytes of a transfer: some thousand packets.
const BYTES: usize = 4_000_000;

/// Binds an endpoint with one shard and default configuration over the interface of a host.
fn bind(host: &Host, address: impl Into<SocketAddr>) -> io::Result<Endpoint> {
    bind_over(host, address, 1, &XdpConfig::new(INTERFACE))
}

fn bind_over(host: &Host, address: impl Into<SocketAddr>, shards: usize, xdp: &XdpConfig) -> io::Result<Endpoint> {
    let (address, shards) = (address.into(), NonZeroUsize::new(shards).expect("not zero"));
    host.enter(|| Endpoint::bind_xdp(address, secret(), Config::default(), shards, xdp))
}

async fn connect(client: &Endpoint, server: &Endpoint, to: IpAddr) -> (Connection, Connection) {
    let to = SocketAddr::new(to, server.local_addr().port());
    let (ours, theirs) = within(async { tokio::join!(client.connect(to), server.accept()) }).await;
    (ours.expect("connects"), theirs.expect("accepts"))
}

/// Sends bytes there and their number back.
async fn transfer(ours: &Connection, theirs: &Connection, bytes: usize) {
    let data = pseudo_random(bytes as u64, bytes);
    let there = async {
        let mut stream = ours.open().await.expect("open");
        stream.write_all(&data).await.expect("taken");
        stream.shutdown().await.expect("ended");
        assert_eq!(stream.read_u64().await.expect("an answer"), bytes as u64);
    };
    let back = async {
        let (mut stream, mut received) = (theirs.accept().await.expect("a stream"), Vec::new());
        stream.read_to_end(&mut received).await.expect("comes");
        assert!(received == data, "{} of {bytes} bytes, or others", received.len());
        stream.write_u64(bytes as u64).await.expect("taken");
        stream.shutdown().await.expect("ended");
    };
    within(async { tokio::join!(there, back) }).await;
}

/// Waits until the endpoint of a host has ended, which it does in a task of its own.
async fn freed(host: &Host) {
    within(async {
        while host.hook(INTERFACE).is_some() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Writes settings of the kernel for a host: paths below `/proc/sys/net`, and values.
fn set(host: &Host, settings: &[(&str, &str)]) {
    host.enter(|| {
        for (path, value) in settings {
            fs::write(format!("/proc/sys/net/{path}"), value).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
    });
}
