//! What a datagram costs an endpoint beside many idle connections, and what those cost: CPU and memory.
//!
//! `cargo run --release -p tidewire --example many_connections [-- COUNT...]`. The endpoint runs without a socket and in virtual time, driven as the
//! library's driver drives it; the peers are keys and packet numbers alone. The last column compares each row with the first.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidewire_codec::SourceId;
use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::Received;
use tidewire_proto::crypto::{AwsLc, OpeningKey, SealingKey, Secret};
use tidewire_proto::endpoint::{Endpoint, EndpointConfig};
use tidewire_proto::handshake::{Credentials, Initiator, Parameters, Session};
use tidewire_proto::wire::{ConnectionId, FeedbackRepr, Frame, LaneRepr, TAG_LEN, Writer, write_short_header};

const COUNTS: [usize; 4] = [10, 100, 1_000, 10_000];
const DATAGRAM: usize = 1_472;
/// Datagrams of a batch that is timed at once, and batches: the quickest batch counts, since others use the machine.
const BATCH: usize = 200;
const BATCHES: usize = 25;
/// Virtual time over which idle connections are driven.
const IDLE: Duration = Duration::from_secs(60);

fn main() {
    let given: Vec<usize> = std::env::args().skip(1).filter_map(|count| count.parse().ok()).collect();
    let counts = if given.is_empty() { COUNTS.to_vec() } else { given };
    println!(
        "connections   opening  memory of one   idle, one core   PING, one peer   PING, each peer   over the first"
    );
    let mut first = None;
    for count in counts {
        let memory = resident();
        let (mut host, mut peers, opening) = open(count);
        let memory = resident().saturating_sub(memory) / count;
        // Idle connections first: PINGs leave answers behind that nobody acknowledges.
        let idle = host.idle(&mut peers);
        let one = host.pings(&mut peers[..1]);
        let each = host.pings(&mut peers);
        let (one_first, each_first) = *first.get_or_insert((one, each));
        println!(
            "{count:11} {:7.2} s {:10.1} KiB {:14.3} % {:13.2} us {:14.2} us   {:5.2} and {:.2}",
            opening.as_secs_f64(),
            memory as f64 / 1_024.0,
            100.0 * idle,
            one,
            each,
            one / one_first,
            each / each_first
        );
    }
}

/// Bytes of memory that this process has in use.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|line| line.split_whitespace().nth(1)?.parse::<usize>().ok());
    pages.unwrap_or(0) * 4_096
}

/// A peer by hand: it sends PINGs, and acknowledges what it is told to.
struct Peer {
    sealing: SealingKey,
    opening: OpeningKey,
    us: ConnectionId,
    from: SocketAddr,
    next: u64,
}

impl Peer {
    fn ping(&mut self) -> Vec<u8> {
        self.seal(|w| Frame::Ping.emit(w).expect("room"))
    }

    /// Acknowledges a datagram of the endpoint: then the endpoint has nothing more to ask.
    fn acknowledge(&mut self, mut datagram: Vec<u8>) -> Option<Vec<u8>> {
        // What does not open is a REPLY, said once more.
        let number = self.opening.open(0, &mut datagram).ok()?.number;
        let lane =
            LaneRepr { lane: 0, edge: SourceId(0), end: SourceId(0), deficit: 0, limit: SourceId(256), undecoded: &[] };
        let feedback = FeedbackRepr {
            received: &[number..=number],
            delay: Duration::ZERO,
            ecn: None,
            stream_credit: None,
            lanes: &[lane],
            elicits: false,
        };
        Some(self.seal(|w| feedback.emit(w).expect("room")))
    }

    fn seal(&mut self, frames: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut datagram = vec![0; 128];
        let mut w = Writer::new(&mut datagram[..128 - TAG_LEN]);
        write_short_header(&mut w, self.us, self.next, 0).expect("room");
        frames(&mut w);
        let len = w.len() + TAG_LEN;
        datagram.truncate(len);
        self.sealing.seal(0, self.next, &mut datagram).expect("sealed");
        self.next += 1;
        datagram
    }
}

/// The endpoint that is measured.
struct Host {
    endpoint: Endpoint,
    now: Time,
    due: Time,
    out: Vec<u8>,
}

/// An endpoint with so many connections, their peers, and how long it took to open them.
fn open(count: usize) -> (Host, Vec<Peer>, Duration) {
    let mut connection = Config::default();
    connection.idle_timeout = Duration::from_secs(86_400);
    let secret = Secret::new([7; 32]);
    let credentials = Credentials::Psk(secret.clone());
    let config = EndpointConfig { credentials, listen: true, connection, provider: Arc::new(AwsLc) };
    let endpoint = Endpoint::new(config, [1; 32]).expect("valid settings");
    let mut host = Host { endpoint, now: Time::from_millis(1), due: Time::NEVER, out: vec![0; DATAGRAM] };
    let mut opening = Duration::ZERO;
    let mut peers = Vec::with_capacity(count);
    for nth in 0..count {
        // Slower than what is asked for a cookie.
        host.run_for(Duration::from_millis(20), &mut peers);
        let from = address(nth);
        let (now, id) = (host.now, ConnectionId((nth as u64).to_be_bytes()));
        let parameters = Parameters { idle_timeout_ms: 0, ..Parameters::default() };
        let mut initiator = Initiator::new(&secret, id, &parameters, Arc::new(AwsLc), [nth as u8; 32], now);
        let mut hello = vec![0; DATAGRAM];
        let len = initiator.poll_transmit(now, &mut hello).expect("a HELLO");
        let began = Instant::now();
        let replies = host.take(from, &mut hello[..len]);
        opening += began.elapsed();
        let session = replies.iter().find_map(|(_, reply)| initiator.handle_reply(reply).ok()).expect("the REPLY fits");
        let Session { sealing, opening: key, remote: us, .. } = session;
        let mut peer = Peer { sealing, opening: key, us, from, next: 0 };
        let mut ping = peer.ping();
        peers.push(peer);
        let began = Instant::now();
        let sent = host.take(from, &mut ping);
        opening += began.elapsed();
        host.answer(sent, &mut peers);
    }
    // The search of the packet size is over by then.
    host.run_for(Duration::from_secs(60), &mut peers);
    assert_eq!(host.endpoint.connections().count(), count);
    (host, peers, opening)
}

/// Where the nth peer is.
fn address(nth: usize) -> SocketAddr {
    ([10, 0, (nth >> 8) as u8, nth as u8], 4_000).into()
}

impl Host {
    /// The peers acknowledge what was sent, and what is sent thereupon.
    fn answer(&mut self, mut sent: Vec<(SocketAddr, Vec<u8>)>, peers: &mut [Peer]) {
        while let Some((to, datagram)) = sent.pop() {
            let SocketAddr::V4(v4) = to else { continue };
            let [_, _, high, low] = v4.ip().octets();
            let peer = peers.get_mut(usize::from(high) << 8 | usize::from(low));
            if let Some(mut answer) = peer.and_then(|peer| peer.acknowledge(datagram)) {
                sent.extend(self.take(to, &mut answer));
            }
        }
    }

    /// A datagram comes, and all that follows from it at once is done. Returns what was sent.
    fn take(&mut self, from: SocketAddr, datagram: &mut [u8]) -> Vec<(SocketAddr, Vec<u8>)> {
        self.endpoint.handle_datagram(Received { at: self.now, from, to: None, ecn: None, datagram });
        let mut sent = Vec::new();
        self.turn(|to, datagram| sent.push((to, datagram.to_vec())));
        sent
    }

    fn turn(&mut self, mut send: impl FnMut(SocketAddr, &[u8])) {
        if self.due <= self.now {
            self.endpoint.handle_timeout(self.now);
        }
        while let Some(transmit) = self.endpoint.poll_transmit(self.now, 1, &mut self.out) {
            send(transmit.destination, &self.out[..transmit.len]);
        }
        while self.endpoint.poll_event().is_some() {}
        self.due = self.endpoint.poll_timeout().map_or(Time::NEVER, |(at, _)| at);
    }

    /// Microseconds of a PING, the peers taking turns.
    fn pings(&mut self, peers: &mut [Peer]) -> f64 {
        self.run_for(Duration::from_secs(30), peers);
        let mut turn = 0;
        let batches = (0..BATCHES).map(|_| {
            let pings: Vec<_> = (0..BATCH)
                .map(|_| {
                    turn = (turn + 1) % peers.len();
                    (peers[turn].from, peers[turn].ping())
                })
                .collect();
            let began = Instant::now();
            for (from, mut ping) in pings {
                self.now += Duration::from_micros(500);
                self.endpoint.handle_datagram(Received {
                    at: self.now,
                    from,
                    to: None,
                    ecn: None,
                    datagram: &mut ping,
                });
                self.turn(|_, _| {});
            }
            began.elapsed().as_secs_f64() * 1e6 / BATCH as f64
        });
        batches.fold(f64::INFINITY, f64::min)
    }

    /// Time passes, and the peers answer.
    fn run_for(&mut self, time: Duration, peers: &mut [Peer]) {
        let end = self.now + time;
        while self.due <= end {
            self.now = self.now.max(self.due);
            let mut sent = Vec::new();
            self.turn(|to, datagram| sent.push((to, datagram.to_vec())));
            self.answer(sent, peers);
        }
        self.now = end;
    }

    /// Share of a core that is used while nothing comes.
    fn idle(&mut self, peers: &mut [Peer]) -> f64 {
        self.run_for(Duration::from_secs(30), peers);
        let began = Instant::now();
        self.run_for(IDLE, peers);
        began.elapsed().as_secs_f64() / IDLE.as_secs_f64()
    }
}
