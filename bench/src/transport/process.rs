//! Suite `process`: two protocol endpoints in one thread and virtual time, without a socket: what the protocol, the code and the
//! cipher cost, with and without loss.
//!
//! The link delays and drops, at random but the same in every round; it has no rate, the pace is the sender's own bound. CPU time is of
//! both ends together, as if one core did both, and of each, read around its turns.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::{Received, StreamId};
use tidewire_proto::crypto::{AwsLc, Secret};
use tidewire_proto::endpoint::{ConnectionHandle, Endpoint, EndpointConfig};
use tidewire_proto::handshake::Credentials;

use super::{Pattern, Taken, Work, seconds, thread_time};
use crate::goals;
use crate::report::{Cell, Report, Table, Verdict};

/// Percentages of packets that the link drops.
const LOSSES: [u32; 3] = [0, 5, 20];
/// One way. With [`PACE`] some 1,700 packets are under way, many times the longest span.
const DELAY: Duration = Duration::from_millis(10);
/// Bits per second of IP packets.
const PACE: u64 = 1_000_000_000;
/// The clock moves by no less, as a driver's: a batch is some eight packets.
const TICK: Duration = Duration::from_micros(100);
/// Of a datagram, and how many one call makes.
const DATAGRAM: usize = 1_472;
const SEGMENTS: usize = 32;

/// Runs the suite.
pub fn run(work: Work, report: &mut Report) {
    let mut taken = [const { Vec::new() }; LOSSES.len()];
    for round in 0..work.rounds {
        for turn in 0..LOSSES.len() {
            let at = (turn + round) % LOSSES.len();
            eprintln!("process: round {} of {}, {} % lost", round + 1, work.rounds, LOSSES[at]);
            taken[at].push(Pair::new(LOSSES[at]).transfer(work.bytes));
        }
    }
    let megabits = work.bytes as f64 * 8e-6;
    let mut rows = Vec::new();
    for (loss, taken) in LOSSES.iter().zip(&taken) {
        let whole = seconds(taken, |taken| taken.wall).map(|seconds| megabits / seconds);
        let of = |column: fn(&Taken) -> Duration| {
            Some(Cell::plain(seconds(taken, column).map(|seconds| megabits / seconds)))
        };
        rows.push((
            format!("{loss} % lost"),
            vec![Some(Cell::plain(whole)), of(|taken| taken.sender), of(|taken| taken.receiver)],
        ));
        if *loss == 20 {
            report.verdicts.push(Verdict {
                goal: 16,
                tier: "",
                what: "both ends on one core, in process",
                case: rows.last().map_or(String::new(), |(name, _)| name.clone()),
                measured: whole,
                unit: "Mbit/s",
                limit: goals::LOSSY_CORE,
                at_least: true,
            });
        }
    }
    report.tables.push(Table {
        id: "process",
        title: "In process",
        note: format!(
            "Mbit/s of delivered bytes per core, {} MB a transfer, round trip {} ms, pace {} Mbit/s, default settings.",
            work.bytes / 1_000_000,
            2 * DELAY.as_millis(),
            PACE / 1_000_000
        ),
        columns: ["", "both ends on one core", "sender alone", "receiver alone"].map(String::from).into(),
        rows,
    });
}

/// Datagrams on their way: buffers are used again.
#[derive(Default)]
struct Wire {
    under_way: VecDeque<(Time, usize, Box<[u8]>)>,
    spare: Vec<Box<[u8]>>,
}

impl Wire {
    fn send(&mut self, at: Time, datagram: &[u8]) {
        let mut buffer = self.spare.pop().unwrap_or_else(|| vec![0; DATAGRAM].into());
        buffer[..datagram.len()].copy_from_slice(datagram);
        self.under_way.push_back((at, datagram.len(), buffer));
    }

    /// Hands over what has arrived.
    fn deliver(&mut self, now: Time, from: SocketAddr, to: &mut Endpoint) {
        while let Some((at, len, mut buffer)) = self.under_way.pop_front_if(|(at, ..)| *at <= now) {
            to.handle_datagram(Received { at, from, to: None, ecn: None, datagram: &mut buffer[..len] });
            self.spare.push(buffer);
        }
    }
}

/// One end and what it has sent.
struct Side {
    endpoint: Endpoint,
    address: SocketAddr,
    sent: Wire,
    spent: Duration,
}

impl Side {
    fn new(port: u16) -> Self {
        let mut connection = Config::default();
        connection.max_rate = Some(PACE);
        let config = EndpointConfig {
            credentials: Credentials::Psk(Secret::new([7; 32])),
            listen: true,
            connection,
            provider: Arc::new(AwsLc),
        };
        let endpoint = Endpoint::new(config, [port as u8; 32]).expect("the default settings are valid");
        Self { endpoint, address: ([127, 0, 0, 1], port).into(), sent: Wire::default(), spent: Duration::ZERO }
    }

    /// Takes what has arrived, lets the application act, sends what there is to send.
    fn turn(&mut self, now: Time, from: &mut Self, loss: &mut Loss, out: &mut [u8], act: impl FnOnce(&mut Endpoint)) {
        let start = thread_time();
        from.sent.deliver(now, from.address, &mut self.endpoint);
        self.endpoint.handle_timeout(now);
        act(&mut self.endpoint);
        while let Some(transmit) = self.endpoint.poll_transmit(now, SEGMENTS, out) {
            for datagram in out[..transmit.len].chunks(transmit.segment_size.unwrap_or(transmit.len)) {
                if !loss.drops() {
                    self.sent.send(now + DELAY, datagram);
                }
            }
            act_on_events(&mut self.endpoint);
        }
        act_on_events(&mut self.endpoint);
        self.spent += thread_time() - start;
    }
}

/// Nobody waits for events here: both ends try whenever they have their turn.
fn act_on_events(endpoint: &mut Endpoint) {
    while endpoint.poll_event().is_some() {}
}

/// Drops a share of all packets, each on its own.
struct Loss {
    percent: u32,
    state: u64,
}

impl Loss {
    fn drops(&mut self) -> bool {
        self.state = self.state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        ((self.state >> 33) % 100) < self.percent.into()
    }
}

struct Pair {
    now: Time,
    near: Side,
    far: Side,
    loss: Loss,
    connection: ConnectionHandle,
    out: Vec<u8>,
}

impl Pair {
    fn new(percent: u32) -> Self {
        let (mut near, far) = (Side::new(1), Side::new(2));
        let now = Time::from_millis(1);
        let connection = near.endpoint.connect(now, far.address).expect("a secret needs no key of the peer");
        Self { now, near, far, loss: Loss { percent, state: 1 }, connection, out: vec![0; DATAGRAM * SEGMENTS] }
    }

    /// # Panics
    /// Other bytes come than were sent, or none.
    fn transfer(mut self, bytes: u64) -> Taken {
        let pattern = Pattern::new();
        let (mut written, mut read) = (0, 0);
        let (mut stream, mut finished, mut buffer) = (None, false, vec![0; 1 << 16]);
        let start = thread_time();
        while read < bytes {
            let (near, far) = (&mut self.near, &mut self.far);
            near.turn(self.now, far, &mut self.loss, &mut self.out, |endpoint| {
                let Some(connection) = endpoint.connection_mut(self.connection) else { return };
                if stream.is_none() {
                    stream = connection.open_stream().ok();
                }
                let Some(stream) = stream else { return };
                while written < bytes {
                    let piece = pattern.at(written, (bytes - written).min(Pattern::BLOCK as u64) as usize);
                    let Ok(taken) = connection.write(stream, piece) else { return };
                    written += taken as u64;
                }
                finished = finished || connection.finish(stream).is_ok();
            });
            far.turn(self.now, near, &mut self.loss, &mut self.out, |endpoint| {
                let Some((handle, _)) = endpoint.connections().next() else { return };
                let Some(connection) = endpoint.connection_mut(handle) else { return };
                while let Ok(n @ 1..) = connection.read(self.now, stream.unwrap_or(StreamId(0)), &mut buffer) {
                    pattern.check(read, &buffer[..n]);
                    read += n as u64;
                }
            });
            self.now += TICK;
            assert!(self.now < Time::from_millis(3_600_000), "{read} of {bytes} bytes came within an hour");
        }
        Taken { wall: thread_time() - start, sender: self.near.spent, receiver: self.far.spent }
    }
}
