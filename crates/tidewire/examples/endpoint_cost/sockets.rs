//! A hostile peer beside an honest neighbour, over loopback: each flood at 20 Mbit/s.
//!
//! The control is the same flood at a socket that nobody reads, because its sender takes time of the same
//! cores.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tidewire::{Config, Endpoint};
use tidewire_proto::Time;
use tidewire_proto::wire::ConnectionId;

use super::floods;
use super::host::{DATAGRAM, Peer, initiator, secret};
use super::hostile::{FLOOD, IP_UDP_HEADER};
use super::neighbour::measure;
use super::rows::Rows;
use super::server::{Server, runtime};

/// Connections of the part `idle`, and how long each look at them takes.
const IDLE: usize = 10_000;
const LOOK: Duration = Duration::from_secs(10);

/// Prints a row for each flood whose name contains `word`.
pub fn run(word: &str, writes: bool) {
    let mut rows = Rows::new("flood", "rate");
    for (at, (name, _)) in floods::all().into_iter().enumerate().filter(|(_, (name, _))| name.contains(word)) {
        let [without, with] = [false, true].map(|hits| {
            let server = Server::start(config());
            measure(&server, |stop| {
                let (_, frames) = floods::all().swap_remove(at);
                send_flood(server.address, hits, frames, stop);
            })
        });
        rows.add(name, FLOOD / 1e6, with, without);
    }
    rows.end("survival-floods", writes);
}

/// The settings of an endpoint for many connections that live long.
fn config() -> Config {
    let builder = Config::builder().max_connections(2 * IDLE).idle_timeout(Duration::from_secs(3_600));
    builder.build().expect("in range")
}

/// A peer by hand at a socket.
pub fn connect(address: SocketAddr) -> (UdpSocket, Peer) {
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
    let server = Server::start(config());
    let before = resident();
    let (address, ran) = (server.address, server.ran());
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        runtime().block_on(async move {
            let endpoint = Endpoint::bind(([127, 0, 0, 1], 0).into(), secret(), config()).expect("binds");
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
        thread::sleep(LOOK);
        let share = (server.ran() - ran).as_secs_f64() / LOOK.as_secs_f64();
        println!("{IDLE} idle connections: {:.2} % of a core over ten seconds", 100.0 * share);
    }
}
