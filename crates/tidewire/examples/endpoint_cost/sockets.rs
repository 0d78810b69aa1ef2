//! A hostile peer beside an honest connection, over loopback: the endpoint of the library, with its socket
//! and its driver in a thread of its own.
//!
//! Prints the share of a core that the thread of the endpoint takes, kernel time included, and the honest
//! connection's goodput, each with and without a flood at 20 Mbit/s; then what idle connections cost.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tidewire::{Config, Endpoint};
use tidewire_proto::Time;
use tidewire_proto::rate::RateControl;
use tidewire_proto::wire::ConnectionId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::floods;
use super::host::{DATAGRAM, Peer, initiator, secret};
use super::hostile::{FLOOD, IP_UDP_HEADER};

/// What the honest connection sends, in bits per second.
const HONEST: u64 = 100_000_000;
/// Each measurement, after the time in which connections open and find their rate.
const TIME: Duration = Duration::from_secs(2);
const SETTLING: Duration = Duration::from_millis(500);
/// Connections of the last part.
const IDLE: usize = 10_000;

/// The endpoint under test, in a thread of its own, with an application that reads and forgets everything.
struct Server {
    address: SocketAddr,
    /// Where the system says how long the thread ran.
    schedstat: String,
    /// Bytes that the application read of the first connection.
    read: Arc<AtomicU64>,
}

/// Prints a row for each flood. It is compared with the same flood at a socket that nobody reads, because its
/// sender takes time of the same cores.
pub fn run() {
    println!("flood at 20 Mbit/s                        endpoint   without   goodput         of that without");
    for (at, (name, _)) in floods::all().into_iter().enumerate() {
        let (without, goodput) = measure(at, false);
        let (share, beside) = measure(at, true);
        println!(
            "{name:40} {:7.1} % {:7.1} % {:6.1} Mbit/s {:8.2}",
            100.0 * share,
            100.0 * without,
            beside / 1e6,
            beside / goodput
        );
    }
}

/// The share of a core that the endpoint takes and the goodput of the honest connection in bits per second,
/// while a flood goes to the endpoint (`hits`) or elsewhere.
fn measure(flood: usize, hits: bool) -> (f64, f64) {
    let server = Server::start();
    let stop = Arc::new(AtomicBool::new(false));
    let (address, stopped) = (server.address, Arc::clone(&stop));
    let honest = thread::spawn(move || send_bulk(address, &stopped));
    while server.read.load(Ordering::Relaxed) == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    let stopped = Arc::clone(&stop);
    let hostile = thread::spawn(move || {
        let (_, frames) = floods::all().swap_remove(flood);
        send_flood(address, hits, frames, &stopped);
    });
    thread::sleep(SETTLING);
    let (ran, read, began) = (server.ran(), server.read.load(Ordering::Relaxed), Instant::now());
    thread::sleep(TIME);
    let time = began.elapsed().as_secs_f64();
    let share = (server.ran() - ran).as_secs_f64() / time;
    let goodput = (server.read.load(Ordering::Relaxed) - read) as f64 * 8.0 / time;
    stop.store(true, Ordering::Relaxed);
    honest.join().expect("no panic");
    hostile.join().expect("no panic");
    (share, goodput)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

impl Server {
    fn start() -> Self {
        let (tell, told) = mpsc::channel();
        let read = Arc::new(AtomicU64::new(0));
        let reads = Arc::clone(&read);
        thread::spawn(move || {
            runtime().block_on(async move {
                let config = Config::builder()
                    .max_connections(2 * IDLE)
                    .idle_timeout(Duration::from_secs(3_600))
                    .build()
                    .expect("in range");
                let endpoint = Endpoint::bind(([127, 0, 0, 1], 0).into(), secret(), config).expect("binds");
                let thread = std::fs::read_link("/proc/thread-self").expect("Linux");
                let schedstat = format!("/proc/{}/schedstat", thread.display());
                tell.send((endpoint.local_addr(), schedstat)).expect("awaited");
                let mut first = Some(reads);
                let mut kept = Vec::new();
                while let Ok(connection) = endpoint.accept().await {
                    let (connection, reads) = (Arc::new(connection), first.take());
                    kept.push(Arc::clone(&connection));
                    tokio::spawn(async move {
                        while let Ok(stream) = connection.accept().await {
                            let (mut reader, reads) = (stream.split().0, reads.clone());
                            tokio::spawn(async move {
                                let mut buffer = vec![0; 1 << 16];
                                while let Ok(n @ 1..) = reader.read(&mut buffer).await {
                                    if let Some(reads) = &reads {
                                        reads.fetch_add(n as u64, Ordering::Relaxed);
                                    }
                                }
                            });
                        }
                    });
                }
            });
        });
        let (address, schedstat) = told.recv().expect("started");
        Self { address, schedstat, read }
    }

    /// How long its thread ran.
    fn ran(&self) -> Duration {
        let line = std::fs::read_to_string(&self.schedstat).expect("the thread runs");
        Duration::from_nanos(line.split_whitespace().next().and_then(|ns| ns.parse().ok()).expect("nanoseconds"))
    }
}

/// The honest peer.
fn send_bulk(address: SocketAddr, stop: &AtomicBool) {
    runtime().block_on(async {
        let config =
            Config::builder().rate_control(RateControl::Fixed { bits_per_second: HONEST }).build().expect("in range");
        let endpoint = Endpoint::bind(([127, 0, 0, 1], 0).into(), secret(), config).expect("binds");
        let connection = endpoint.connect(address).await.expect("connects");
        let mut writer = connection.open().await.expect("allowed").split().1;
        let data = vec![1; 1 << 16];
        while !stop.load(Ordering::Relaxed) {
            writer.write_all(&data).await.expect("the connection lives");
        }
    });
}

/// A peer by hand at a socket.
fn connect(address: SocketAddr) -> (UdpSocket, Peer) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(address).expect("an address");
    socket.set_read_timeout(Some(Duration::from_millis(200))).expect("not zero");
    let mut initiator = initiator(ConnectionId([7; 8]), Time::from_millis(1));
    let (mut now, mut buffer) = (Time::from_millis(1), [0; DATAGRAM]);
    loop {
        if let Some(len) = initiator.poll_transmit(now, &mut buffer) {
            socket.send(&buffer[..len]).expect("sent");
        }
        now += Duration::from_millis(500);
        let Ok(len) = socket.recv(&mut buffer) else { continue };
        if initiator.handle_cookie(now, &buffer[..len]).is_ok() {
            continue;
        }
        if let Ok(session) = initiator.handle_reply(&buffer[..len]) {
            let mut peer = Peer::new(session, address);
            socket.send(&peer.ping()).expect("sent");
            return (socket, peer);
        }
    }
}

/// The hostile peer: it never reads, and sends 20 Mbit/s with IP and UDP headers, in turns of a millisecond.
fn send_flood(address: SocketAddr, hits: bool, mut frames: floods::Frames, stop: &AtomicBool) {
    let (socket, mut peer) = connect(address);
    let elsewhere = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    if !hits {
        socket.connect(elsewhere.local_addr().expect("bound")).expect("an address");
    }
    let (began, mut sent, mut n) = (Instant::now(), 0.0, 0);
    while !stop.load(Ordering::Relaxed) {
        while sent < began.elapsed().as_secs_f64() * FLOOD / 8.0 {
            let datagram = peer.seal(|w| frames(n, w));
            socket.send(&datagram).expect("sent");
            sent += (datagram.len() + IP_UDP_HEADER) as f64;
            n += 1;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Bytes of memory that this process has in use.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|line| line.split_whitespace().nth(1)?.parse::<usize>().ok());
    pages.unwrap_or(0) * 4_096
}

/// What idle connections cost the endpoint. Their peers are connections of one endpoint in another thread of
/// this process, so that half of the memory is theirs.
pub fn idle() {
    let server = Server::start();
    let before = resident();
    let (address, ran) = (server.address, server.ran());
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        runtime().block_on(async move {
            let config = Config::builder()
                .max_connections(2 * IDLE)
                .idle_timeout(Duration::from_secs(3_600))
                .build()
                .expect("in range");
            let endpoint = Endpoint::bind(([127, 0, 0, 1], 0).into(), secret(), config).expect("binds");
            let mut connections = Vec::new();
            while connections.len() < IDLE {
                connections.push(endpoint.connect(address).await.expect("connects"));
            }
            tell.send(()).expect("awaited");
            std::future::pending::<()>().await;
        });
    });
    told.recv().expect("all connected");
    println!(
        "{IDLE} connections: {:.2} s of the endpoint's thread to open, {:.0} MB of memory at both ends",
        (server.ran() - ran).as_secs_f64(),
        (resident() - before) as f64 / 1e6
    );
    // First the search of the packet size ends.
    for _ in 0..8 {
        let ran = server.ran();
        thread::sleep(5 * TIME);
        let share = (server.ran() - ran).as_secs_f64() / (5 * TIME).as_secs_f64();
        println!("{IDLE} idle connections: {:.2} % of a core over ten seconds", 100.0 * share);
    }
}
