//! Jobs over AF_XDP between two hosts: the bytes arrive unchanged, and no datagram reaches a socket of either
//! kernel.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::forward::{exchange_over, start_server_at};
use crate::namespaces::{Host, INTERFACE, host};
use crate::pipe::End;
use crate::process::Running;

const BACKEND: [&str; 2] = ["--backend", "xdp:eth0"];

/// A host that connects and one that listens, of two queues each.
struct Hosts {
    near: Host,
    far: Host,
}

impl Hosts {
    /// `None`, and a sentence, if this user may make none.
    fn new() -> Self {
        Self { near: host(2), far: host(2) }
    }

    /// Starts a listening verb at the far host. Returns its link.
    fn listen(&self, arguments: &[&str]) -> (Running, String) {
        let address = format!("{}:0", self.far.v4[0]);
        let arguments = [arguments, &["--json", "--listen", &address], &BACKEND].concat();
        let mut listener = self.far.enter(|| Running::start(&arguments));
        let link = listener.wait_for("link")["link"].as_str().unwrap().to_owned();
        (listener, link)
    }

    /// Starts a verb at the near host.
    fn start(&self, arguments: &[&str]) -> Running {
        self.near.enter(|| Running::start(&[arguments, &["--json"], &BACKEND].concat()))
    }

    /// Checks that both ends have a program at their interface, and that it took all datagrams.
    fn bypassed(&self) {
        for host in [&self.near, &self.far] {
            assert_eq!(
                (host.hook(INTERFACE).as_deref(), host.by_kernel()[0]),
                (Some("xdp"), 0),
                "host {}",
                host.number
            );
        }
    }
}

/// Bytes that do not compress.
fn noise(bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    blake3::Hasher::new().finalize_xof().fill(&mut noise);
    noise
}

#[test]
#[ignore = "needs root: network namespaces"]
fn bench_and_probe() {
    let hosts = Hosts::new();
    let (_server, link) = hosts.listen(&["bench", "-s", "--threads", "2"]);
    for direction in [&[][..], &["-R"]] {
        let load = ["bench", "-c", &link, "-b", "8mbit", "-t", "2", "-l", "1000", "-i", "200ms"];
        let mut client = hosts.start(&[&load, direction].concat());
        client.wait_for("interval");
        hosts.bypassed();
        let (code, lines) = client.end();
        let summary = lines.last().unwrap();
        assert_eq!((code, &summary["records"]["delivered"]), (Some(0), &2_000.into()), "{summary}");
    }
    let (code, lines) = hosts.start(&["probe", &link, "--time", "3s"]).end();
    assert_eq!(code, Some(0), "{lines:?}");
}

#[test]
#[ignore = "needs root: network namespaces"]
fn a_folder() {
    let hosts = Hosts::new();
    let folder = tempfile::tempdir().unwrap();
    let (from, into) = (folder.path().join("from"), folder.path().join("into"));
    fs::create_dir_all(&from).unwrap();
    fs::create_dir_all(&into).unwrap();
    let files = [("empty", 0), ("small", 1_000), ("large", 20_000_000)];
    for (name, bytes) in files {
        fs::write(from.join(name), noise(bytes)).unwrap();
    }
    let (receiver, link) = hosts.listen(&["receive", "--once", "--dir", into.to_str().unwrap()]);
    let mut sender = hosts.start(&["send", from.to_str().unwrap(), &link, "--max-rate", "80mbit"]);
    sender.wait_for("progress");
    hosts.bypassed();
    assert_eq!((sender.end().0, receiver.end().0), (Some(0), Some(0)));
    for (name, bytes) in files {
        assert!(fs::read(into.join("from").join(name)).unwrap() == noise(bytes), "{name}");
    }
}

#[test]
#[ignore = "needs root: network namespaces"]
fn a_pipe() {
    let hosts = Hosts::new();
    let address = format!("{}:0", hosts.far.v4[0]);
    let (mut listener, link) = hosts.far.enter(|| End::listen_with(&[&["--listen", &address][..], &BACKEND].concat()));
    let mut connector = hosts.near.enter(|| End::start(&[&[link.as_str()][..], &BACKEND].concat()));
    let (bytes, mut stdin) = (noise(5_000_000), connector.stdin.take().unwrap());
    let mut arrived = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| listener.stdout.read_to_end(&mut arrived).unwrap());
        stdin.write_all(&bytes).unwrap();
        hosts.bypassed();
        drop(stdin);
    });
    assert!(arrived == bytes, "{} of {} bytes, or others", arrived.len(), bytes.len());
    drop(listener.stdin.take());
    assert_eq!((connector.end().0, listener.end().0), (Some(0), Some(0)));
}

#[test]
#[ignore = "needs root: network namespaces"]
fn forwarded_connections() {
    let hosts = Hosts::new();
    let target = hosts.far.enter(|| start_server_at("127.0.0.1:0"));
    let (_server, link) = hosts.listen(&["serve", "--allow", &target, "--threads", "2"]);
    let mut client = hosts.start(&["forward", "-L", &format!("0:{target}"), &link]);
    let local = client.wait_for("listening")["listening"].as_str().unwrap().to_owned();
    let connect = || hosts.near.enter(|| TcpStream::connect(&local).unwrap());
    let connections: Vec<_> = (0..20).map(|n| (n, connect())).collect();
    thread::scope(|scope| {
        for (n, connection) in connections {
            scope.spawn(move || exchange_over(connection, 100_000 * n, 50_000 + n));
        }
    });
    hosts.bypassed();
    client.interrupt();
    assert_eq!(client.end().0, Some(130));
}

#[test]
#[ignore = "needs root: network namespaces"]
fn a_tunnel() {
    tidewire_testing::needs("/dev/net/tun", fs::metadata("/dev/net/tun").is_ok());
    let hosts = Hosts::new();
    let (_listener, link) = hosts.listen(&["tunnel", "up", "--address", "10.77.0.1/24"]);
    let mut dialer = hosts.start(&["tunnel", "up", &link, "--address", "10.77.0.2/24"]);
    dialer.wait_for("connected");
    let target = hosts.far.enter(|| start_server_at("10.77.0.1:0"));
    let connection = hosts.near.enter(|| TcpStream::connect(&target).unwrap());
    exchange_over(connection, 3_000_000, 3_000_000);
    hosts.bypassed();
}

/// The interface goes down while the job runs, and comes up again.
#[test]
#[ignore = "needs root: network namespaces"]
fn an_outage() {
    let hosts = Hosts::new();
    let (_server, link) = hosts.listen(&["bench", "-s"]);
    let mut client = hosts.start(&["bench", "-c", &link, "-b", "4mbit", "-t", "4", "-l", "1000", "-i", "500ms"]);
    client.wait_for("interval");
    hosts.far.ip("link set eth0 down");
    thread::sleep(Duration::from_millis(500));
    hosts.far.ip("link set eth0 up");
    let (code, lines) = client.end();
    let summary = lines.last().unwrap();
    assert_eq!((code, &summary["records"]["delivered"]), (Some(0), &2_000.into()), "{summary}");
}
