//! A relay as a host: whom it sends to, how many paths it takes, and what it refuses.
#![cfg(feature = "aws-lc-rs")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::{CloseCode, CloseReason, Event, Received};
use tidewire_proto::crypto::{AwsLc, Secret};
use tidewire_proto::endpoint::{ConnectionHandle, Endpoint, EndpointConfig};
use tidewire_proto::recode::Relaying;
use tidewire_proto::relay::Relay;

fn address(host: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], port))
}

fn endpoint(listen: bool, seed: u8) -> Endpoint {
    let connection = Config::builder().relaying(Some(Relaying::default())).build().expect("in range");
    let (credentials, provider) = (Secret::new([7; 32]).into(), Arc::new(AwsLc));
    Endpoint::new(EndpointConfig { credentials, listen, connection, provider }, [seed; 32])
}

/// One relay, and clients of its listening side.
struct Host {
    now: Time,
    near: Endpoint,
    far: Endpoint,
    relay: Relay,
    clients: Vec<Endpoint>,
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
            closed: Vec::new(),
            out: vec![0; 65_527],
        }
    }

    fn connect(&mut self, client: usize) -> ConnectionHandle {
        self.clients[client].connect(self.now, address(1, 1)).expect("a secret")
    }

    /// Runs for 100 ms. All that the relay's far side sends goes to the configured host, which is silent.
    fn run(&mut self) {
        for _ in 0..100 {
            self.now += Duration::from_millis(1);
            let Self { now, near, far, relay, clients, closed, out } = self;
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
                    let (from, datagram) = (address(2, n as u16), &mut out[..transmit.len]);
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
