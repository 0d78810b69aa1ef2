//! Two protocol endpoints in one thread and virtual time, without a socket. The suites `process` and `policy`
//! run transfers over them.
//!
//! The link delays and drops packets, at random but identically in every round; it has no rate. The clock
//! moves in steps, as a driver's does, so that packets leave in batches. Invariant: a transfer is the same in
//! every round, whatever the machine does.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidewire_codec::SplitMix64;
use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::{Received, StreamId};
use tidewire_proto::crypto::{AwsLc, Secret};
use tidewire_proto::endpoint::{ConnectionHandle, Endpoint, EndpointConfig};
use tidewire_proto::handshake::Credentials;

use super::{Pattern, Taken, thread_time};

/// The least step of the clock, as in a driver: at 1 Gbit/s a batch is about eight packets.
const TICK: Duration = Duration::from_micros(100);
/// Of a datagram, and how many one call makes.
const DATAGRAM: usize = 1_472;
const SEGMENTS: usize = 32;

/// Datagrams in flight. Their buffers are reused.
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

    /// Delivers the datagrams that have arrived.
    fn deliver(&mut self, now: Time, from: SocketAddr, to: &mut Endpoint) {
        while let Some((at, len, mut buffer)) = self.under_way.pop_front_if(|(at, ..)| *at <= now) {
            to.handle_datagram(Received { at, from, to: None, ecn: None, datagram: &mut buffer[..len] });
            self.spare.push(buffer);
        }
    }
}

/// One end and the datagrams it has sent.
struct Side {
    endpoint: Endpoint,
    address: SocketAddr,
    sent: Wire,
    spent: Duration,
}

impl Side {
    fn new(port: u16, connection: Config) -> Self {
        let config = EndpointConfig {
            credentials: Credentials::Psk(Secret::new([7; 32])),
            listen: true,
            connection,
            provider: Arc::new(AwsLc),
        };
        let endpoint = Endpoint::new(config, [port as u8; 32]);
        Self { endpoint, address: ([127, 0, 0, 1], port).into(), sent: Wire::default(), spent: Duration::ZERO }
    }

    /// Takes arrived datagrams, lets the application act, and sends what is ready.
    fn turn(&mut self, now: Time, from: &mut Self, path: &mut Path, out: &mut [u8], act: impl FnOnce(&mut Endpoint)) {
        let start = thread_time();
        from.sent.deliver(now, from.address, &mut self.endpoint);
        self.endpoint.handle_timeout(now);
        act(&mut self.endpoint);
        while let Some(transmit) = self.endpoint.poll_transmit(now, SEGMENTS, out) {
            for datagram in out[..transmit.len].chunks(transmit.segment_size.unwrap_or(transmit.len)) {
                if !path.loss.drops() {
                    self.sent.send(now + path.delay, datagram);
                }
            }
            act_on_events(&mut self.endpoint);
        }
        act_on_events(&mut self.endpoint);
        self.spent += thread_time() - start;
    }
}

/// No end waits for events here: both try on each of their turns.
fn act_on_events(endpoint: &mut Endpoint) {
    while endpoint.poll_event().is_some() {}
}

/// Drops a share of all packets, independently or in runs (Gilbert).
#[derive(Clone, Copy)]
pub(super) struct Loss {
    /// Probability of a loss after an arrival, and after a loss.
    after: [f64; 2],
    lost: bool,
    random: SplitMix64,
}

impl Loss {
    /// Drops the share `rate` in runs of mean length `burst`; 1 for independent losses.
    pub(super) fn new(rate: f64, burst: f64) -> Self {
        let independent = 1.0 / (1.0 - rate);
        let burst = burst.max(independent);
        Self { after: [rate * independent / burst, 1.0 - 1.0 / burst], lost: false, random: SplitMix64::new(1) }
    }

    fn drops(&mut self) -> bool {
        self.lost = self.random.unit() < self.after[usize::from(self.lost)];
        self.lost
    }
}

/// The path between the two ends, without a rate.
#[derive(Clone, Copy)]
pub(super) struct Path {
    /// Delay of one direction.
    pub(super) delay: Duration,
    /// Losses of both directions, with one model for all packets.
    pub(super) loss: Loss,
}

/// Both ends of a connection.
pub(super) struct Pair {
    now: Time,
    near: Side,
    far: Side,
    path: Path,
    connection: ConnectionHandle,
    out: Vec<u8>,
}

impl Pair {
    /// Both ends use `config`.
    pub(super) fn new(path: Path, config: Config) -> Self {
        let (mut near, far) = (Side::new(1, config.clone()), Side::new(2, config));
        let now = Time::from_millis(1);
        let connection = near.endpoint.connect(now, far.address).expect("a secret needs no key of the peer");
        Self { now, near, far, path, connection, out: vec![0; DATAGRAM * SEGMENTS] }
    }

    /// Transfers that many bytes, as fast as possible or written at `rate` bytes per second.
    ///
    /// # Panics
    /// The bytes that arrive differ from those sent, or none arrive.
    pub(super) fn transfer(mut self, bytes: u64, rate: Option<u64>) -> Taken {
        let pattern = Pattern::new();
        let (mut written, mut read) = (0, 0);
        let (mut stream, mut finished, mut buffer) = (None, false, vec![0; 1 << 16]);
        let start = thread_time();
        while read < bytes {
            let due = rate.map_or(bytes, |rate| (rate as f64 * self.now.as_secs_f64()) as u64).min(bytes);
            let (near, far) = (&mut self.near, &mut self.far);
            near.turn(self.now, far, &mut self.path, &mut self.out, |endpoint| {
                let Some(connection) = endpoint.connection_mut(self.connection) else { return };
                if stream.is_none() {
                    stream = connection.open_stream().ok();
                }
                let Some(stream) = stream else { return };
                while written < due {
                    let piece = pattern.at(written, (due - written).min(Pattern::BLOCK as u64) as usize);
                    let Ok(taken) = connection.write(stream, piece) else { return };
                    written += taken as u64;
                }
                finished = finished || (written == bytes && connection.finish(stream).is_ok());
            });
            far.turn(self.now, near, &mut self.path, &mut self.out, |endpoint| {
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
