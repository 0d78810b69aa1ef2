//! Endpoints over AF_XDP, between two namespaces with a veth pair: connections of both families, what passes
//! the kernel instead, and interfaces that cannot be used.
//!
//! The tests need root and are skipped without it. Each makes namespaces of its own and removes them. A
//! thread enters a namespace, so each end has a runtime of its own.

#![cfg(all(feature = "xdp", target_os = "linux"))]

use std::fs::{self, File};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use tidewire::{Config, Endpoint, Secret, XdpConfig, XdpMode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Bytes of a transfer: some thousand packets.
const BYTES: usize = 4_000_000;

/// Two namespaces with one link.
struct Hosts {
    names: [String; 2],
}

impl Hosts {
    /// Makes them, or says why the test is skipped.
    fn new(test: &str, queues: u32) -> Option<Self> {
        if !nix::unistd::Uid::effective().is_root() {
            println!("SKIPPED: namespaces need root");
            return None;
        }
        let names = ["a", "b"].map(|end| format!("tw{}-{test}-{end}", std::process::id()));
        let hosts = Self { names };
        let [a, b] = &hosts.names;
        let commands = [
            format!("ip netns add {a}"),
            format!("ip netns add {b}"),
            format!(
                "ip link add veth0 netns {a} numrxqueues {queues} numtxqueues {queues} type veth \
                 peer name veth0 netns {b} numrxqueues {queues} numtxqueues {queues}"
            ),
            format!("ip -n {a} address add 10.77.0.1/24 dev veth0"),
            format!("ip -n {b} address add 10.77.0.2/24 dev veth0"),
            format!("ip -n {a} address add fd77::1/64 dev veth0 nodad"),
            format!("ip -n {b} address add fd77::2/64 dev veth0 nodad"),
            format!("ip -n {a} link set lo up"),
            format!("ip -n {a} link set veth0 up"),
            format!("ip -n {b} link set veth0 up"),
        ];
        for command in commands {
            let mut words = command.split_whitespace();
            let status = Command::new(words.next().unwrap()).args(words).status().expect("ip is there");
            assert!(status.success(), "{command}");
        }
        Some(hosts)
    }

    /// Runs a future in a namespace, in a thread.
    fn spawn<T: Send + 'static, F: Future<Output = T>>(
        &self,
        host: usize,
        work: impl FnOnce() -> F + Send + 'static,
    ) -> thread::JoinHandle<T> {
        let namespace = format!("/run/netns/{}", self.names[host]);
        thread::spawn(move || {
            setns(File::open(namespace).expect("a namespace"), CloneFlags::CLONE_NEWNET).expect("entered");
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let result = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), work()).await });
            result.expect("still waiting after a minute")
        })
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "delete", name]).status();
        }
    }
}

fn bind(address: &str, shards: usize, xdp: &XdpConfig) -> std::io::Result<Endpoint> {
    let address: SocketAddr = address.parse().expect("an address");
    let shards = NonZeroUsize::new(shards).expect("not zero");
    Endpoint::bind_xdp(address, Secret::new([7; 32]), Config::default(), shards, xdp)
}

/// Datagrams that the kernel gave to UDP sockets in the namespace of this thread.
fn from_kernel() -> u64 {
    let text = |path| fs::read_to_string(path).unwrap_or_default();
    let v6 = text("/proc/thread-self/net/snmp6");
    let v6 = v6.lines().find_map(|line| line.strip_prefix("Udp6InDatagrams")).map_or("0", str::trim);
    let v4 = text("/proc/thread-self/net/snmp");
    let v4 = v4.lines().filter_map(|line| line.strip_prefix("Udp: ")).nth(1).and_then(|line| line.split(' ').next());
    v6.parse::<u64>().expect("a number") + v4.unwrap_or("0").parse::<u64>().expect("a number")
}

/// Sends bytes from host 0 to host 1 and an answer back. Returns how many datagrams each kernel saw.
fn transfer(hosts: &Hosts, bound: [&'static str; 2], to: &'static str, shards: usize, mode: XdpMode) -> [u64; 2] {
    let xdp = XdpConfig::new("veth0").mode(mode);
    let (theirs, (told, hears)) = (xdp.clone(), std::sync::mpsc::channel());
    let server = hosts.spawn(1, move || async move {
        let endpoint = bind(bound[1], shards, &theirs).expect("binds");
        told.send(()).expect("waited for");
        let connection = endpoint.accept().await.expect("a peer");
        let mut stream = connection.accept().await.expect("a stream");
        let mut received = Vec::new();
        stream.read_to_end(&mut received).await.expect("comes");
        assert!(received.iter().zip(0_u32..).all(|(byte, n)| *byte == n.wrapping_mul(2_654_435_761).to_be_bytes()[0]));
        stream.write_all(&received.len().to_be_bytes()).await.expect("taken");
        stream.shutdown().await.expect("ended");
        let _ = connection.accept().await;
        from_kernel()
    });
    hears.recv().expect("a listener");
    let client = hosts.spawn(0, move || async move {
        let endpoint = bind(bound[0], 1, &xdp).expect("binds");
        let connection = endpoint.connect(to.parse().expect("an address")).await.expect("connects");
        let mut stream = connection.open().await.expect("open");
        let data: Vec<u8> = (0..BYTES as u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
        stream.write_all(&data).await.expect("taken");
        stream.shutdown().await.expect("ended");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("comes");
        assert_eq!(answer, BYTES.to_be_bytes());
        drop((stream, connection));
        endpoint.close().await;
        from_kernel()
    });
    [client, server].map(|end| end.join().expect("no panic"))
}

#[test]
fn transfers_of_both_families_bypass_the_kernel() {
    let Some(hosts) = Hosts::new("families", 1) else { return };
    for (bound, to) in [
        (["0.0.0.0:0", "0.0.0.0:7700"], "10.77.0.2:7700"),
        (["10.77.0.1:0", "10.77.0.2:7701"], "10.77.0.2:7701"),
        (["[::]:0", "[::]:7702"], "[fd77::2]:7702"),
        (["[::]:0", "[::]:7703"], "[::ffff:10.77.0.2]:7703"),
    ] {
        assert_eq!(transfer(&hosts, bound, to, 1, XdpMode::Any), [0, 0], "{to}");
    }
}

#[test]
fn several_queues_are_spread_over_shards() {
    let Some(hosts) = Hosts::new("queues", 4) else { return };
    let from_kernel = transfer(&hosts, ["0.0.0.0:0", "0.0.0.0:7700"], "10.77.0.2:7700", 2, XdpMode::Copy);
    assert_eq!(from_kernel, [0, 0]);
}

#[test]
fn what_does_not_pass_the_interface_goes_through_the_kernel() {
    let Some(hosts) = Hosts::new("loopback", 1) else { return };
    let done = hosts.spawn(0, || async {
        let server = bind("0.0.0.0:7700", 1, &XdpConfig::new("veth0")).expect("binds");
        let client = Endpoint::bind(([127, 0, 0, 1], 0).into(), Secret::new([7; 32]), Config::default());
        let client = client.expect("binds");
        let connecting = client.connect("127.0.0.1:7700".parse().expect("an address"));
        let (ours, theirs) = tokio::join!(connecting, server.accept());
        drop((ours.expect("connects"), theirs.expect("accepts")));
        assert!(from_kernel() > 2);
    });
    done.join().expect("no panic");
}

#[test]
fn interfaces_that_cannot_be_used_are_named_with_the_reason() {
    let Some(hosts) = Hosts::new("refused", 1) else { return };
    let refused = hosts.spawn(0, || async {
        let refused = |name: &str, mode| {
            let bound = bind("0.0.0.0:0", 1, &XdpConfig::new(name).mode(mode));
            bound.err().map(|error| error.to_string()).unwrap_or_default()
        };
        let taken = bind("0.0.0.0:7700", 1, &XdpConfig::new("veth0")).expect("binds");
        let second = refused("veth0", XdpMode::Any);
        drop(taken);
        // The driver ends in a task of its own.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let no_copy = refused("veth0", XdpMode::ZeroCopy);
        let _ = Command::new("ip").args(["link", "set", "veth0", "down"]).status();
        [refused("absent", XdpMode::Any), second, no_copy, refused("veth0", XdpMode::Any), refused("lo", XdpMode::Any)]
    });
    let [absent, taken, no_copy, down, no_ethernet] = refused.join().expect("no panic");
    assert!(absent.starts_with("there is no interface `absent`"), "{absent}");
    assert!(taken.contains("`veth0`") && taken.contains("another program has it"), "{taken}");
    assert!(no_copy.contains("`veth0`"), "{no_copy}");
    assert_eq!(down, "interface `veth0` is down: `ip link set veth0 up`");
    assert_eq!(no_ethernet, "interface `lo` is no Ethernet");
}
