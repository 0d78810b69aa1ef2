//! Pairs of hops at a relay: strangers open none, those that never confirm return their places, and memory
//! stays bounded while peers with the secret fill all of them.
//!
//! `relay.rs` beside this folder has who gives way when none is left.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidewire_proto::Time;
use tidewire_proto::config::{Config, KEEP_ALIVE};
use tidewire_proto::connection::Received;
use tidewire_proto::crypto::{AwsLc, Secret};
use tidewire_proto::endpoint::{Endpoint, EndpointConfig};
use tidewire_proto::handshake::{Initiator, Parameters};
use tidewire_proto::recode::{RELAYED_SYMBOL, Relaying};
use tidewire_proto::relay::Relay;
use tidewire_proto::wire::{ConnectionId, Frame, HELLO_LEN, Recoded};

use super::host::secret;
use super::meter::Meter;
use super::peer::Peer;

/// The places of a relay.
const PAIRS: usize = 64;
const NEXT: ([u8; 4], u16) = ([10, 0, 9, 9], 9_999);
const RELAY: ([u8; 4], u16) = ([10, 0, 0, 1], 1);
/// Length of a generation, the longest.
const LENGTH: usize = 64;

/// A relay, and the next host, which may be silent.
struct World {
    now: Time,
    near: Endpoint,
    far: Endpoint,
    next: Option<Endpoint>,
    relay: Relay,
    meter: Meter,
    out: Vec<u8>,
    /// Datagrams to peers and to the next host.
    sent: [u64; 2],
}

/// As `tidewire relay` sets its hops up.
fn config(generations: u64) -> Config {
    let mut relaying = Relaying::default();
    relaying.generations = generations;
    Config::builder().relaying(Some(relaying)).keep_alive(Some(KEEP_ALIVE)).build().expect("in range")
}

fn received(at: Time, from: ([u8; 4], u16), datagram: &mut [u8]) -> Received<'_> {
    Received { at, from: from.into(), to: None, ecn: None, datagram }
}

impl World {
    fn new(config: &Config, answers: bool) -> Self {
        let endpoint = |listen, seed| {
            let (credentials, provider) = (secret().into(), Arc::new(AwsLc));
            let config = EndpointConfig { credentials, listen, connection: config.clone(), provider };
            Endpoint::new(config, [seed; 32])
        };
        Self {
            now: Time::from_millis(1),
            near: endpoint(true, 1),
            far: endpoint(false, 2),
            next: answers.then(|| endpoint(true, 3)),
            relay: Relay::new(NEXT.into(), None),
            meter: Meter::default(),
            out: vec![0; 65_527],
            sent: [0; 2],
        }
    }

    fn hear(&mut self, from: SocketAddr, datagram: &mut [u8]) {
        let Self { now, near, meter, .. } = self;
        meter.run(|| near.handle_datagram(Received { at: *now, from, to: None, ecn: None, datagram }));
    }

    /// Runs timers, moves rows and sends what is due. `send` gets what goes to the peers.
    fn turn(&mut self, mut send: impl FnMut(SocketAddr, &mut [u8])) {
        let Self { now, near, far, next, relay, meter, out, sent } = self;
        let now = *now;
        meter.run(|| {
            near.handle_timeout(now);
            far.handle_timeout(now);
        });
        next.iter_mut().for_each(|next| next.handle_timeout(now));
        let mut is_over = false;
        while !is_over {
            is_over = true;
            meter.run(|| relay.drive(now, near, far));
            while let Some(transmit) = meter.run(|| near.poll_transmit(now, 1, out)) {
                sent[0] += 1;
                send(transmit.destination, &mut out[..transmit.len]);
            }
            while let Some(transmit) = meter.run(|| far.poll_transmit(now, 1, out)) {
                assert_eq!(transmit.destination, NEXT.into());
                sent[1] += 1;
                is_over = false;
                let datagram = &mut out[..transmit.len];
                next.iter_mut().for_each(|next| next.handle_datagram(received(now, RELAY, datagram)));
            }
            let Some(next) = next else { continue };
            while next.poll_event().is_some() {}
            while let Some(transmit) = next.poll_transmit(now, 1, out) {
                is_over = false;
                let datagram = &mut out[..transmit.len];
                meter.run(|| far.handle_datagram(received(now, NEXT, datagram)));
            }
        }
    }

    /// Time passes in which nobody sends but the relay and the next host.
    fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            let ends = [Some(&mut self.near), Some(&mut self.far), self.next.as_mut()];
            let due = ends.into_iter().flatten().filter_map(Endpoint::poll_timeout).map(|(at, _)| at).min();
            let soon = self.now + Duration::from_millis(1);
            self.now = due.unwrap_or(until).max(soon).min(until.max(soon));
            self.turn(|_, _| {});
        }
    }

    /// A peer with the secret opens a hop. Slowly enough not to look like a flood.
    fn meet(&mut self, nth: u16) -> Peer {
        self.wait(Duration::from_millis(20));
        let now = self.now;
        let mut peer = Peer::connect(Arc::new(AwsLc), &secret(), now, nth, |from, buffer, len| {
            self.hear(from, &mut buffer[..len]);
            let mut reply = 0;
            self.turn(|to, datagram| {
                if to == from {
                    reply = datagram.len();
                    buffer[..reply].copy_from_slice(datagram);
                }
            });
            reply
        });
        let from = peer.from;
        self.hear(from, peer.seal(|w| Frame::Ping.emit(w).expect("room")));
        self.turn(|_, _| {});
        peer
    }
}

/// HELLOs of 10,000 addresses, of strangers and of peers that never confirm.
fn hellos(world: &mut World, secret: &Secret) {
    for n in 0..10_000_u32 {
        let id = ConnectionId((u64::from(n) << 8).to_be_bytes());
        let mut seed = [7; 32];
        seed[..4].copy_from_slice(&n.to_be_bytes());
        let parameters = Parameters::default();
        let mut initiator = Initiator::new(secret, id, &parameters, Arc::new(AwsLc), seed, world.now);
        let mut hello = [0; HELLO_LEN];
        initiator.poll_transmit(world.now, &mut hello).expect("a HELLO");
        let [a, b, c, d] = n.to_be_bytes();
        world.hear(([198, 18 + a, c, d], 4_000 + u16::from(b)).into(), &mut hello);
        if n % 10 == 0 {
            world.wait(Duration::from_millis(10));
        }
    }
}

#[test]
fn strangers_open_no_pair_and_get_nothing() {
    let mut world = World::new(&config(64), true);
    let before = world.meter.held;
    hellos(&mut world, &Secret::new([8; 32]));
    assert_eq!((world.relay.pairs(), world.sent), (0, [0, 0]));
    assert_eq!(world.near.stats().strangers, 10_000);
    assert!(world.meter.most - before <= 1_024, "{} bytes", world.meter.most - before);
    world.meet(1);
    assert_eq!(world.relay.pairs(), 1);
}

/// A hop takes a place only when its peer has shown that it got the REPLY.
#[test]
fn halves_that_never_confirm_open_no_pair() {
    let mut world = World::new(&config(64), true);
    let before = world.meter.held;
    hellos(&mut world, &secret());
    assert_eq!((world.relay.pairs(), world.sent[1]), (0, 0));
    let most = world.meter.most - before;
    println!("{most} bytes, {} half open", world.near.half_open());
    assert!(world.near.half_open() > 1_000 && most <= 2 << 20, "{most} bytes");
    world.wait(Duration::from_secs(31));
    assert_eq!(world.near.half_open(), 0);
    world.meet(1);
    assert_eq!(world.relay.pairs(), 1);
}

/// The time until all places are free again after their peers fell silent, in seconds.
fn seconds_until_free(world: &mut World) -> u64 {
    for nth in 1..=PAIRS as u16 {
        world.meet(nth);
    }
    let free = (1..=300).find(|_| {
        world.wait(Duration::from_secs(1));
        world.relay.pairs() == 0
    });
    free.expect("all places return within five minutes")
}

/// Peers that vanish without a word return their places after the idle timeout, although the relay keeps its
/// hops alive.
#[test]
fn places_of_peers_that_vanish_return_after_the_idle_timeout() {
    let mut world = World::new(&config(64), true);
    let seconds = seconds_until_free(&mut world);
    println!("all places are free after {seconds} s");
    assert!((58..=62).contains(&seconds), "{seconds} s");
    world.meet(100);
    assert_eq!(world.relay.pairs(), 1);
}

/// Half a pair: the next host does not answer. The place returns when the handshake is given up.
#[test]
fn places_of_pairs_without_a_next_hop_return_after_the_handshake() {
    let mut world = World::new(&config(64), false);
    let seconds = seconds_until_free(&mut world);
    println!("all places are free after {seconds} s");
    assert!((28..=32).contains(&seconds), "{seconds} s");
    world.meet(100);
    assert_eq!(world.relay.pairs(), 1);
}

/// Peers in all places send rows of all generations for which there is room, and nobody takes them at the
/// next host. Returns the memory beside that of 64 idle pairs, and the pairs that are left.
fn filled(config: &Config, generations: u64) -> (isize, usize) {
    let mut world = World::new(config, true);
    let mut peers: Vec<Peer> = (1..=PAIRS as u16).map(|nth| world.meet(nth)).collect();
    let before = world.meter.held;
    let symbol = [5; RELAYED_SYMBOL];
    for generation in 0..generations {
        for n in 0..LENGTH {
            for peer in &mut peers {
                let mut vector = [0; LENGTH];
                vector[n] = 1;
                let (from, length) = (peer.from, LENGTH as u8);
                let row = Recoded { relays: 0, generation, length, vector: &vector[..=n], symbol: &symbol[..1_300] };
                world.hear(from, peer.seal(|w| Frame::Recoded(row).emit(w).expect("room")));
            }
            world.turn(|_, _| {});
        }
        world.wait(Duration::from_millis(5));
    }
    (world.meter.most - before, world.relay.pairs())
}

#[test]
fn rows_in_all_pairs_cost_what_their_generations_may_hold() {
    const GENERATIONS: u64 = 4;
    let (most, pairs) = filled(&config(GENERATIONS), GENERATIONS + 4);
    let rows = PAIRS * GENERATIONS as usize * LENGTH;
    println!("{most} bytes, {pairs} pairs, {} a row", most as usize / rows);
    assert_eq!(pairs, PAIRS);
    // Twice a vector, a symbol, and a quarter for packets in flight and tables; and rows that wait.
    let bound = rows * (RELAYED_SYMBOL + 2 * LENGTH) * 5 / 4 + PAIRS * LENGTH * RELAYED_SYMBOL;
    assert!(most as usize <= bound, "{most} bytes, bound {bound}");
}

/// The rows of all pairs count against `--max-memory`. A pair beyond its part ends when memory is short.
#[test]
fn rows_in_all_pairs_fit_into_the_memory_that_is_allowed() {
    const MEMORY: usize = 16 << 20;
    const GENERATIONS: u64 = 8;
    let config = config(GENERATIONS).to_builder().max_memory(MEMORY).build().expect("in range");
    let (most, pairs) = filled(&config, GENERATIONS);
    println!("{most} bytes, {pairs} pairs left");
    // Both endpoints have this limit, and what waits or is in flight does not count.
    assert!(most as usize <= 2 * MEMORY, "{most} bytes");
}
