//! A relay as a host: whom it sends to, how many paths it takes, and what it refuses.
#![cfg(feature = "aws-lc-rs")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::{CloseCode, CloseReason, Event, Received};
use tidewire_proto::crypto::{AwsLc, PrivateKey, PublicKey, Secret};
use tidewire_proto::endpoint::{ConnectionHandle, Endpoint, EndpointConfig};
use tidewire_proto::handshake::{Credentials, KeyCredentials};
use tidewire_proto::recode::Relaying;
use tidewire_proto::relay::Relay;

fn address(host: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], port))
}

fn endpoint(listen: bool, seed: u8) -> Endpoint {
    keyed(Secret::new([7; 32]).into(), listen, seed)
}

fn keyed(credentials: Credentials, listen: bool, seed: u8) -> Endpoint {
    let connection = Config::builder().relaying(Some(Relaying::default())).build().expect("in range");
    let provider = Arc::new(AwsLc);
    Endpoint::new(EndpointConfig { credentials, listen, connection, provider }, [seed; 32])
}

/// One relay, and clients of its listening side.
struct Host {
    now: Time,
    near: Endpoint,
    far: Endpoint,
    relay: Relay,
    clients: Vec<Endpoint>,
    /// The host of each client's address.
    homes: Vec<u8>,
    /// The relay's key, if keys authenticate its clients.
    key: Option<PublicKey>,
    closed: Vec<(usize, CloseReason)>,
    out: Vec<u8>,
}

impl Host {
    fn new(clients: u8) -> Self {
        Self {
            now: Time::from_millis(1),
            near: endpoint(true, 1),
            far: endpoint(false, 2),
            relay: Relay::new(address(9, 9_999), None),
            clients: (0..clients).map(|n| endpoint(false, 10 + n)).collect(),
            homes: vec![2; clients.into()],
            key: None,
            closed: Vec::new(),
            out: vec![0; 65_527],
        }
    }

    fn connect(&mut self, client: usize) -> ConnectionHandle {
        let (now, client, to) = (self.now, &mut self.clients[client], address(1, 1));
        match &self.key {
            Some(key) => client.connect_to(now, to, key).expect("a key pair"),
            None => client.connect(now, to).expect("a secret"),
        }
    }

    /// Runs for 100 ms. All that the relay's far side sends goes to the configured host, which is silent.
    fn run(&mut self) {
        for _ in 0..100 {
            self.now += Duration::from_millis(1);
            let Self { now, near, far, relay, clients, homes, closed, out, .. } = self;
            near.handle_timeout(*now);
            far.handle_timeout(*now);
            relay.drive(*now, near, far);
            while let Some(transmit) = far.poll_transmit(*now, 1, out) {
                assert_eq!(transmit.destination, address(9, 9_999));
            }
            while let Some(transmit) = near.poll_transmit(*now, 1, out) {
                let client = &mut clients[usize::from(transmit.destination.port())];
                let (from, datagram) = (address(1, 1), &mut out[..transmit.len]);
                client.handle_datagram(Received { at: *now, from, to: None, ecn: None, datagram });
            }
            for (n, client) in clients.iter_mut().enumerate() {
                client.handle_timeout(*now);
                while let Some(transmit) = client.poll_transmit(*now, 1, out) {
                    assert_eq!(transmit.destination, address(1, 1));
                    let (from, datagram) = (address(homes[n], n as u16), &mut out[..transmit.len]);
                    near.handle_datagram(Received { at: *now, from, to: None, ecn: None, datagram });
                }
                while let Some((_, event)) = client.poll_event() {
                    if let Event::Closed(reason) = event {
                        closed.push((n, reason));
                    }
                }
            }
        }
    }
}

fn refused(reason: &CloseReason, words: &str) -> bool {
    matches!(reason, CloseReason::Peer { code: CloseCode::Refused, reason } if reason.contains(words))
}

#[test]
fn a_relay_sends_only_to_its_host_and_takes_a_bounded_number_of_paths() {
    let mut host = Host::new(66);
    for client in 0..66 {
        host.connect(client);
    }
    host.run();
    assert_eq!(host.relay.pairs(), 64);
    let (count, connections) = (host.closed.len(), host.far.connections().count());
    assert!(count == 2 && host.closed.iter().all(|(_, reason)| refused(reason, "no room")), "{:?}", host.closed);
    assert_eq!(connections, 64);
}

#[test]
fn a_relay_refuses_streams_for_itself_and_ends_both_hops() {
    let mut host = Host::new(1);
    let handle = host.connect(0);
    host.run();
    assert_eq!((host.relay.pairs(), host.far.connections().count()), (1, 1));
    let client = host.clients[0].connection_mut(handle).expect("connected");
    let stream = client.open_stream().expect("allowed");
    client.write(stream, b"to whom?").expect("room");
    host.run();
    assert!(matches!(&host.closed[..], [(0, reason)] if refused(reason, "no streams")), "{:?}", host.closed);
    assert_eq!(host.relay.pairs(), 0);
}

/// Clients 0 to 63 are Ann's, 64 to 103 Bob's and the others Eve's.
const OWNED: [std::ops::Range<usize>; 3] = [0..64, 64..104, 104..140];

/// A relay and 140 clients of three owners: told apart by their keys, each at an address of its own, or by
/// their addresses, all with one secret.
fn of_three_owners(has_keys: bool) -> Host {
    let mut host = Host::new(140);
    let owner = |client: usize| OWNED.iter().position(|clients| clients.contains(&client)).expect("an owner") as u8;
    if !has_keys {
        host.homes = (0..140).map(|client| 2 + owner(client)).collect();
        return host;
    }
    let private = |n: u8| PrivateKey::new([n; 32]);
    let credentials = |own: u8, authorized: &[u8]| {
        let authorized = Arc::new(authorized.iter().map(|&n| private(n).public()).collect());
        Credentials::Key(KeyCredentials { authorized, ..KeyCredentials::new(private(own)) })
    };
    host.near = keyed(credentials(1, &[2, 3, 4]), true, 1);
    host.clients = (0..140).map(|n| keyed(credentials(2 + owner(n), &[]), false, 10 + n as u8)).collect();
    host.homes = (10..150).collect();
    host.key = Some(private(1).public());
    host
}

/// The hops that each owner has. The port tells the client.
fn hops(host: &Host) -> [usize; 3] {
    let established = host.near.connections().filter(|(_, hop)| hop.is_established());
    let clients: Vec<usize> = established.map(|(_, hop)| hop.remote().port().into()).collect();
    OWNED.map(|of| clients.iter().filter(|client| of.contains(client)).count())
}

/// One key from many addresses, or one address, opens pairs until none is left. Others still get in, up to an
/// equal part, and the greedy one loses its newest pairs.
#[test]
fn whoever_has_most_pairs_gives_way_to_one_that_has_two_fewer() {
    for has_keys in [false, true] {
        let mut host = of_three_owners(has_keys);
        let mut begin = |clients: std::ops::Range<usize>, expected: [[usize; 3]; 2]| {
            for client in clients {
                host.connect(client);
                // Slowly enough not to look like a flood.
                if client % 20 == 0 {
                    host.run();
                }
            }
            (0..10).for_each(|_| host.run());
            assert_eq!(host.relay.pairs(), 64);
            let counts = hops(&host);
            assert!(expected.contains(&counts), "keys: {has_keys}, {counts:?}");
        };
        begin(OWNED[0].clone(), [[64, 0, 0]; 2]);
        begin(OWNED[1].clone(), [[32, 32, 0]; 2]);
        begin(OWNED[2].clone(), [[21, 22, 21], [22, 21, 21]]);
        assert_eq!(host.far.connections().count(), 64);
        let told = |words: &str| -> Vec<usize> {
            host.closed.iter().filter(|(_, reason)| refused(reason, words)).map(|(client, _)| *client).collect()
        };
        let (gave_way, no_room) = (told("to another peer"), told("no room"));
        assert_eq!(gave_way.len() + no_room.len(), 140 - 64, "{:?}", host.closed);
        // The oldest of each owner stay, and an owner with its part is refused more.
        assert!(gave_way.iter().all(|&client| OWNED.iter().all(|of| client < of.start || client > of.start + 20)));
        assert!(no_room.iter().all(|&client| client >= OWNED[1].start + 32), "{no_room:?}");
    }
}
