//! S17, scaled down: many connections at one endpoint, some of which come and go all the time.

use std::time::Duration;

use tidewire_proto::config::Config;
use tidewire_proto::connection::StreamId;
use tidewire_proto::wire::{Frame, SymbolFrame};

use super::host::{Host, quick};

/// One in ten goes and another comes in every round.
#[test]
fn s17_connections_that_come_and_go_leave_nothing_behind() {
    let (connections, rounds) = if quick() { (100, 12) } else { (1_000, 60) };
    let mut config = Config::default();
    config.idle_timeout = Duration::from_secs(20);
    let mut host = Host::new(config, 2);
    let mut peers: Vec<_> = (1..=connections).map(|nth| host.meet(nth)).collect();
    let (mut next, mut held) = (connections, Vec::new());
    for round in 0..rounds {
        for (at, peer) in peers.iter_mut().enumerate() {
            match at % 10 {
                // Half of those that go say so; the others are silent, and time out.
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
            host.turn(|_, _| {});
        }
        host.closed.clear();
        held.push(host.meter.held);
        println!("round {round}: {} bytes, {} connections", host.meter.held, host.endpoint.connections().count());
    }
    // The silent of the last rounds are still believed to live; from then on nothing grows.
    let (early, late) = (held[held.len() / 3], held[held.len() - 1]);
    assert!(late <= early + early / 50, "{early} bytes, {late} later");
}
