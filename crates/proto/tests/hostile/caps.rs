//! Limits over all connections of an endpoint together, with the default rings of 64 MiB.

use std::sync::Arc;
use std::time::Duration;

use tidewire_proto::config::Config;
use tidewire_proto::connection::{CloseCode, CloseReason, StreamId};
use tidewire_proto::crypto::AwsLc;
use tidewire_proto::handshake::{Initiator, Parameters};
use tidewire_proto::wire::{ConnectionId, Frame, HELLO_LEN, SymbolFrame};

use super::host::{Host, secret};
use super::peer::Peer;

fn byte(offset: u64) -> SymbolFrame<'static> {
    SymbolFrame::Stream { stream: 0, offset, fin: false, data: b"x", data_at: 0 }
}

/// Whether the host answers a HELLO of a new peer that knows the secret.
fn answers(host: &mut Host, nth: u64) -> bool {
    host.wait(Duration::from_secs(1));
    let id = ConnectionId((nth << 8).to_be_bytes());
    let parameters = Parameters::default();
    let mut initiator = Initiator::new(&secret(), id, &parameters, Arc::new(AwsLc), [nth as u8; 32], host.now);
    let mut hello = [0; HELLO_LEN];
    initiator.poll_transmit(host.now, &mut hello).expect("a HELLO");
    let from = ([10, 0, 1, nth as u8], 4_000).into();
    host.take(from, &mut hello);
    let mut answered = false;
    host.turn(|to, _| answered |= to == from);
    answered
}

#[test]
fn issue_13_connections_are_refused_in_silence_while_there_are_too_many() {
    let config = Config::builder().max_connections(3).build().expect("in range");
    let mut host = Host::new(config, 2);
    let mut peers: Vec<Peer> = (1..=3).map(|nth| host.meet(nth)).collect();
    assert!(!answers(&mut host, 1));
    assert_eq!((host.endpoint.stats().full, host.endpoint.half_open()), (1, 0));
    // The existing connections continue.
    for peer in &mut peers {
        host.hear_symbol(peer, 0, &[byte(0)]);
    }
    host.turn(|_, _| {});
    assert!(host.closed.is_empty());
    assert_eq!(
        host.endpoint.connections().filter(|(_, connection)| connection.stats().symbols.delivered == 1).count(),
        3
    );
    // A connection that ends makes room for another.
    host.hear(&mut peers[0], |w| Frame::Close { code: 0, reason: "" }.emit(w).expect("room"));
    host.turn(|_, _| {});
    host.wait(Duration::from_secs(10));
    host.turn(|_, _| {});
    assert_eq!(host.endpoint.connections().count(), 2);
    assert!(answers(&mut host, 2));
}

/// Forty peers fill all that the handshake allows them at once. Another peer, which was connected before,
/// keeps its share.
#[test]
fn issue_13_peers_that_fill_their_rings_cost_what_the_endpoint_allows() {
    const MEMORY: usize = 8 << 20;
    let config = Config::builder().max_memory(MEMORY).build().expect("in range");
    assert_eq!(config.ring_memory(), 64 << 20);
    let mut host = Host::new(config, 2);
    let before = host.meter.held;
    let mut honest = host.meet(1);
    let handle = host.handle.expect("connected");
    let mut peers: Vec<Peer> = (2..=41).map(|nth| host.meet(nth)).collect();
    for round in 0..20 {
        for peer in &mut peers {
            host.hear_symbol(peer, 255 + 100 * round, &[byte(255 + 100 * round)]);
            host.turn(|_, _| {});
        }
        host.wait(Duration::from_millis(100));
    }
    let held = host.meter.most - before;
    println!("{held} bytes, {} closed", host.closed.len());
    assert!(held <= MEMORY as isize, "{held} bytes");
    assert!(!host.closed.is_empty());
    let faults = [CloseReason::Local, CloseReason::Fault(CloseCode::FlowControl)];
    assert!(host.closed.iter().all(|reason| faults.contains(reason)), "{:?}", host.closed);
    for id in 0..20 {
        host.hear_symbol(&mut honest, id, &[byte(id)]);
    }
    host.turn(|_, _| {});
    let (now, mut data) = (host.now, [0; 32]);
    let connection = host.endpoint.connection_mut(handle).expect("alive");
    assert_eq!(connection.read(now, StreamId(0), &mut data), Ok(20));
}

/// The host accepts nobody while memory is short, and everybody again afterwards.
#[test]
fn issue_13_nobody_is_let_in_while_memory_is_short() {
    let config = Config::builder().max_memory(1 << 20).build().expect("in range");
    let mut host = Host::new(config, 2);
    // Half of the memory is enough for 15 idle connections and part of another.
    let mut peers: Vec<Peer> = (1..=16).map(|nth| host.meet(nth)).collect();
    assert!(!answers(&mut host, 1));
    assert_eq!(host.endpoint.stats().full, 1);
    host.hear(&mut peers[0], |w| Frame::Close { code: 0, reason: "" }.emit(w).expect("room"));
    host.turn(|_, _| {});
    host.wait(Duration::from_secs(10));
    host.turn(|_, _| {});
    assert!(answers(&mut host, 2));
}
