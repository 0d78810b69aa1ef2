//! Many connections at one endpoint, some of which come and go all the time (docs/survival.md, row S17, at a
//! smaller scale).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use tidewire_proto::config::Config;
use tidewire_proto::connection::StreamId;
use tidewire_proto::wire::{FeedbackRepr, Frame, SymbolFrame};

use super::host::Host;
use super::peer::Peer;

/// Each peer acknowledges the newest packet it got, so that the host can forget all packets.
fn acknowledge(host: &mut Host, peers: &mut [Peer]) {
    let mut newest = BTreeMap::new();
    let of: BTreeMap<SocketAddr, usize> = peers.iter().enumerate().map(|(at, peer)| (peer.from, at)).collect();
    host.turn(|to, datagram| {
        let Some(&at) = of.get(&to) else { return };
        newest.extend(peers[at].open(datagram).map(|(number, _)| (at, number)));
    });
    for (at, number) in newest {
        let (received, delay) = (&[number..=number][..], Duration::ZERO);
        let feedback =
            FeedbackRepr { received, delay, arrival: None, ecn: None, stream_credit: None, lanes: &[], elicits: false };
        host.hear(&mut peers[at], |w| feedback.emit(w).expect("room"));
    }
}

/// In every round one connection in ten ends and another begins.
#[test]
fn s17_connections_that_come_and_go_leave_nothing_behind() {
    let (connections, rounds) = if tidewire_testing::few_seeds() { (100, 12) } else { (1_000, 60) };
    let config = Config::builder().idle_timeout(Duration::from_secs(20)).build().expect("in range");
    let mut host = Host::new(config, 2);
    let mut peers: Vec<_> = (1..=connections).map(|nth| host.meet(nth)).collect();
    let (mut next, mut held) = (connections, Vec::new());
    for round in 0..rounds {
        for (at, peer) in peers.iter_mut().enumerate() {
            match at % 10 {
                // Half of those that end send CLOSE. The others are silent and time out.
                0 => {
                    if at % 20 == 0 {
                        host.hear(peer, |w| Frame::Close { code: 0, reason: "" }.emit(w).expect("room"));
                    }
                    next += 1;
                    *peer = host.meet(next);
                    let bytes = SymbolFrame::Stream { stream: 0, offset: 0, fin: true, data: &[1; 1_000], data_at: 0 };
                    host.hear_symbol(peer, 0, &[bytes]);
                    host.read_all(StreamId(0));
                }
                _ => host.hear(peer, |w| Frame::Ping.emit(w).expect("room")),
            }
        }
        for _ in 0..10 {
            host.wait(Duration::from_millis(500));
            acknowledge(&mut host, &mut peers);
        }
        host.closed.clear();
        held.push(host.meter.held);
        println!("round {round}: {} bytes, {} connections", host.meter.held, host.endpoint.connections().count());
    }
    // After half of the time, silent connections time out as fast as others begin, and the tables have their
    // final size.
    let (early, late) = (held[held.len() / 2], held[held.len() - 1]);
    assert!(late <= early + early / 50, "{early} bytes, {late} later");
}
