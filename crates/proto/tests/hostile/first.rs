//! The first packets of a connection, from addresses that are not the peer's (docs/survival.md, rows H3 and
//! S3).
//!
//! Strangers copy HELLOs and packets and send them from other addresses, and a peer with the keys writes any
//! source address into its packets. No address gets more than three times the bytes that came from it before
//! it answered something that was sent to it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use tidewire_proto::config::Config;
use tidewire_proto::connection::CloseCode;
use tidewire_proto::crypto::AwsLc;
use tidewire_proto::wire::{Frame, Frames};

use super::host::{Host, Random, secret};
use super::peer::Peer;

fn victim() -> SocketAddr {
    ([198, 51, 100, 7], 53).into()
}

fn elsewhere(n: u16) -> SocketAddr {
    ([203, 0, 113, 1], 4_000 + n).into()
}

/// Bytes of UDP payload that the host and each address sent each other, and the challenges to that address.
#[derive(Default)]
struct Address {
    sent: usize,
    got: usize,
    challenges: Vec<[u8; 8]>,
    /// Something was sent from there after somebody there received a packet and could read it.
    proven: bool,
}

struct World {
    host: Host,
    addresses: BTreeMap<SocketAddr, Address>,
    /// Addresses whose datagrams the peer gets.
    own: Vec<SocketAddr>,
    wrote: bool,
}

impl World {
    fn new(own: Vec<SocketAddr>) -> Self {
        Self { host: Host::new(Config::default(), 2), addresses: BTreeMap::new(), own, wrote: false }
    }

    fn send(&mut self, from: SocketAddr, datagram: &[u8]) {
        let address = self.addresses.entry(from).or_default();
        address.sent += datagram.len();
        address.proven |= self.own.contains(&from) && address.got > 0;
        self.host.take(from, &mut datagram.to_vec());
    }

    /// Sends everything that is due now, and returns the first REPLY to an address of the peer's own. The
    /// application on the host writes as soon as it can.
    fn turn(&mut self, peer: Option<&mut Peer>) -> Option<Vec<u8>> {
        let mut reply = None;
        let (addresses, own, mut peer) = (&mut self.addresses, &self.own, peer);
        self.host.turn(|to, datagram| {
            let address = addresses.entry(to).or_default();
            address.got += datagram.len();
            let (sent, got) = (address.sent, address.got);
            assert!(address.proven || got <= 3 * sent, "{got} bytes to {to}, which sent {sent} and is not proven");
            if datagram[0] & 0x80 != 0 {
                reply = reply.take().or_else(|| own.contains(&to).then(|| datagram.to_vec()));
            } else if own.contains(&to)
                && let Some((_, payload)) = peer.as_mut().and_then(|peer| peer.open(datagram))
            {
                address.challenges.extend(Frames::new(payload).flatten().filter_map(|frame| match frame {
                    Frame::PathChallenge(token) => Some(token),
                    _ => None,
                }));
            }
        });
        if self.host.handle.is_some() && !self.wrote && self.host.closed.is_empty() {
            let stream = self.host.with(|connection| connection.open_stream()).expect("allowed");
            self.host.write(stream, 0);
            self.wrote = true;
        }
        reply
    }

    /// Lets `time` pass in steps of a millisecond.
    fn pass(&mut self, time: u64, mut peer: Option<&mut Peer>) {
        for _ in 0..time {
            self.host.wait(Duration::from_millis(1));
            self.turn(peer.as_deref_mut());
        }
    }

    /// A handshake whose HELLO comes from these addresses in turn, all copies at once.
    fn meet(&mut self, sources: &[SocketAddr], nth: u16) -> Peer {
        let now = self.host.now;
        Peer::connect(Arc::new(AwsLc), &secret(), now, nth, |_, buffer, len| {
            for &from in sources {
                self.send(from, &buffer[..len]);
            }
            let reply = self.turn(None).expect("one of the addresses is the peer's");
            buffer[..reply.len()].copy_from_slice(&reply);
            reply.len()
        })
    }

    /// Sends one packet of the peer.
    fn say(&mut self, peer: &mut Peer, from: SocketAddr, frame: &Frame<'_>) {
        let datagram = peer.seal(|w| frame.emit(w).expect("room")).to_vec();
        self.send(from, &datagram);
    }

    fn got(&self, address: SocketAddr) -> usize {
        self.addresses.get(&address).map_or(0, |address| address.got)
    }

    /// The peer echoes the challenges sent to `address`.
    fn answer(&mut self, peer: &mut Peer, address: SocketAddr) {
        let challenge = self.addresses.get_mut(&address).and_then(|address| address.challenges.pop());
        self.say(peer, address, &Frame::PathResponse(challenge.expect("a challenge")));
    }
}

/// The exploit: a peer with valid keys sends its first packet from a victim's address, and the server sends
/// first. Before the fix, 44 bytes caused 130 KB.
#[test]
fn a_first_packet_from_a_victims_address_draws_three_times_its_bytes_at_most() {
    let own = elsewhere(1);
    let mut world = World::new(vec![own]);
    let mut peer = world.meet(&[own], 1);
    world.say(&mut peer, victim(), &Frame::Ping);
    world.pass(20_000, Some(&mut peer));
    let (sent, got) = (world.addresses[&victim()].sent, world.got(victim()));
    println!("{got} bytes for {sent}");
    assert!((1..=3 * sent).contains(&got), "{got} bytes for {sent}");
    // The address of the HELLO gets no more than its REPLYs either, before a packet came from there.
    assert!(world.got(own) <= 300, "{} bytes", world.got(own));
    // The peer is served as soon as it sends from its real address and echoes.
    world.say(&mut peer, own, &Frame::Ping);
    world.pass(1, Some(&mut peer));
    world.answer(&mut peer, own);
    world.pass(100, Some(&mut peer));
    assert!(world.got(own) > 10_000, "{} bytes", world.got(own));
}

/// A copied HELLO has a source address of the attacker's choice. The first packet proves an address only if
/// no other address was answered.
#[test]
fn a_copied_hello_with_a_spoofed_source_proves_no_address() {
    let own = elsewhere(1);
    for (sources, first) in [([victim(), own], victim()), ([victim(), own], own), ([own, victim()], own)] {
        let mut world = World::new(vec![own]);
        let mut peer = world.meet(&sources, 1);
        world.say(&mut peer, first, &Frame::Ping);
        world.pass(500, Some(&mut peer));
        for address in [own, victim()] {
            let Address { sent, got, .. } = world.addresses[&address];
            assert!(got <= 3 * sent, "{got} bytes to {address}, which sent {sent}");
        }
        world.say(&mut peer, own, &Frame::Ping);
        world.pass(101, Some(&mut peer));
        world.answer(&mut peer, own);
        world.pass(100, Some(&mut peer));
        assert!(world.got(own) > 10_000 && world.got(victim()) < 400, "{} bytes", world.got(own));
    }
}

/// The first challenge of a connection must not be drawn before the connection has its seed. Otherwise every
/// peer knows it.
#[test]
fn the_first_challenge_cannot_be_guessed() {
    let own = elsewhere(1);
    let mut world = World::new(vec![own]);
    let mut peer = world.meet(&[own], 1);
    world.say(&mut peer, victim(), &Frame::Ping);
    world.turn(Some(&mut peer));
    let mut guess = [0; 8];
    ChaCha20Rng::from_seed([0; 32]).fill_bytes(&mut guess);
    world.say(&mut peer, victim(), &Frame::PathResponse(guess));
    world.pass(200, Some(&mut peer));
    assert!(world.got(victim()) <= 3 * world.addresses[&victim()].sent);
}

/// A connection that ends before its address is proven sends only a few bytes.
#[test]
fn a_close_to_an_address_that_is_not_proven_keeps_to_its_budget() {
    let own = elsewhere(1);
    let mut world = World::new(vec![own]);
    let mut peer = world.meet(&[own], 1);
    world.say(&mut peer, victim(), &Frame::Ping);
    world.pass(1, Some(&mut peer));
    let (now, reason) = (world.host.now, "long".repeat(60));
    world.host.with(|connection| connection.close(now, CloseCode::Refused, &reason));
    let before = world.got(victim());
    world.pass(10_000, Some(&mut peer));
    assert!(world.got(victim()) > before, "CLOSE leaves");
    assert!(world.host.endpoint.connections().next().is_none());
}

/// Any order of HELLOs, copies, packets and answers, from any address. [`World::turn`] checks every byte that
/// is sent.
#[test]
fn h3_no_address_gets_more_than_three_times_its_bytes_before_it_answers() {
    let seeds = if tidewire_testing::few_seeds() { 200 } else { 2_000 };
    let (mut proven, mut served) = (0, 0);
    for seed in 1..=seeds {
        let mut random = Random(seed);
        let own: Vec<_> = (0..3).map(elsewhere).collect();
        let all: Vec<_> = own.iter().copied().chain([victim(), ([192, 0, 2, 1], 9).into()]).collect();
        let mut world = World::new(own.clone());
        world.host.wait(Duration::from_secs(1));
        let mut sources: Vec<_> = (0..random.below(3)).map(|_| all[random.below(5)]).collect();
        sources.insert(random.below(sources.len() + 1), own[0]);
        let mut peer = world.meet(&sources, seed as u16);
        let mut seen: Vec<Vec<u8>> = Vec::new();
        for _ in 0..random.below(30) {
            match random.below(6) {
                0 => {
                    // A stranger repeats a datagram that it saw.
                    if let Some(datagram) = seen.get(random.below(seen.len())).cloned() {
                        world.send(all[random.below(5)], &datagram);
                    }
                }
                1 | 2 => {
                    let from = all[random.below(5)];
                    let datagram = peer.seal(|w| Frame::Ping.emit(w).expect("room")).to_vec();
                    world.send(from, &datagram);
                    seen.push(datagram);
                }
                3 => {
                    let from = own[random.below(3)];
                    if world.addresses.get(&from).is_some_and(|address| !address.challenges.is_empty()) {
                        world.answer(&mut peer, from);
                    }
                }
                // A guess, or the answer of another address.
                4 => {
                    let known = world.addresses.values().find_map(|address| address.challenges.first().copied());
                    let guess = Frame::PathResponse(known.filter(|_| random.below(2) == 0).unwrap_or([7; 8]));
                    world.say(&mut peer, all[random.below(5)], &guess);
                }
                _ => world.pass(random.below(150) as u64, Some(&mut peer)),
            }
            world.turn(Some(&mut peer));
        }
        world.pass(300, Some(&mut peer));
        proven += own.iter().filter(|own| world.addresses.get(own).is_some_and(|address| address.proven)).count();
        served += usize::from(own.iter().any(|&own| world.got(own) > 10_000));
        assert!(world.got(victim()) < 5_000);
    }
    println!("{seeds} seeds: {proven} addresses proven, {served} connections served");
    assert!(served * 3 > seeds as usize, "{served} of {seeds} connections were served");
}
