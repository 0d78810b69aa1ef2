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
use std::process::Command;

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

/// Datagrams that the kernel of a host gave to UDP sockets, and those that it sent for them.
fn by_kernel(host: &Host) -> [u64; 2] {
    let v4 = ["InDatagrams", "OutDatagrams"].map(|name| counter_v4(host, "Udp", name));
    let v6 = ["Udp6InDatagrams", "Udp6OutDatagrams"].map(|name| counter_v6(host, name));
    [v4[0] + v6[0], v4[1] + v6[1]]
}

/// A counter of `/proc/net/snmp`: a line of names, then a line of values.
fn counter_v4(host: &Host, protocol: &str, name: &str) -> u64 {
    let text = host.enter(|| fs::read_to_string("/proc/thread-self/net/snmp")).expect("proc is mounted");
    let mut lines = text.lines().filter(|line| line.split(':').next() == Some(protocol));
    let [names, values] = [lines.next(), lines.next()].map(|line| line.expect("two lines").split(' '));
    let value = names.zip(values).find(|(found, _)| *found == name).expect("a counter").1;
    value.parse().expect("a number")
}

/// A counter of `/proc/net/snmp6`: a line for each.
fn counter_v6(host: &Host, name: &str) -> u64 {
    let text = host.enter(|| fs::read_to_string("/proc/thread-self/net/snmp6")).expect("proc is mounted");
    let mut lines = text.lines().map(|line| line.split_whitespace());
    let mut line = lines.find(|line| line.clone().next() == Some(name)).expect("a counter");
    line.nth(1).expect("a value").parse().expect("a number")
}

/// The hook of the interface that has a program: `xdp` is the driver's, `xdpgeneric` the generic one.
fn hook(host: &Host, interface: &str) -> Option<String> {
    let shown = host.enter(|| Command::new("ip").args(["link", "show", "dev", interface]).output());
    let shown = String::from_utf8(shown.expect("ip is there").stdout).expect("text");
    shown.split_whitespace().find(|word| word.starts_with("xdp")).map(str::to_owned)
}

/// Waits until the endpoint of a host has ended, which it does in a task of its own.
async fn freed(host: &Host) {
    within(async {
        while hook(host, INTERFACE).is_some() {
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
