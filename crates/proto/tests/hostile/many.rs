//! Many connections: a datagram costs the same beside ten and beside thousands. The cost is the number of
//! connections visited.

use std::time::Duration;

use tidewire_codec::SourceId;
use tidewire_proto::config::Config;
use tidewire_proto::wire::{FeedbackRepr, Frame, LaneRepr};

use super::host::Host;
use super::peer::Peer;

/// Number of counted datagrams.
const PINGS: u64 = 200;

/// A host and `count` idle peers.
fn beside(count: u16) -> (Host, Vec<Peer>) {
    let mut host = Host::new(Config::default(), 2);
    let mut peers: Vec<_> = (1..=count).map(|nth| host.meet(nth)).collect();
    // Acknowledges every answer until nothing is open. All of this takes less than the idle timeout.
    for _ in 0..10 {
        host.wait(Duration::from_secs(1));
        let mut sent = Vec::new();
        host.turn(|to, datagram| sent.push((to, datagram.to_vec())));
        for (to, mut datagram) in sent {
            let peer = &mut peers[usize::from(to.port()) - 1];
            // Otherwise it is a repeated REPLY.
            let Some((number, _)) = peer.open(&mut datagram) else { continue };
            acknowledge(&mut host, peer, number);
        }
    }
    (host, peers)
}

fn acknowledge(host: &mut Host, peer: &mut Peer, number: u64) {
    let none = SourceId(0);
    let lane =
        LaneRepr { lane: 0, edge: none, end: none, deficit: 0, limit: SourceId(256), undecoded: &[], regions: &[] };
    let (received, lanes) = (&[number..=number], &[lane]);
    let (ecn, stream_credit) = (None, None);
    let feedback =
        FeedbackRepr { received, delay: Duration::ZERO, arrival: None, ecn, stream_credit, lanes, elicits: false };
    host.hear(peer, |w| feedback.emit(w).expect("room"));
}

/// Connections visited per PING, including timers and answers.
fn visits_of_a_ping(count: u16) -> f64 {
    let (mut host, mut peers) = beside(count);
    let before = host.endpoint.visits();
    for n in 0..PINGS {
        let peer = &mut peers[(n * 7) as usize % usize::from(count)];
        host.hear(peer, |w| Frame::Ping.emit(w).expect("room"));
        host.turn(|_, _| {});
        host.wait(Duration::from_millis(50));
        host.turn(|_, _| {});
        host.endpoint.poll_timeout();
    }
    assert!(host.closed.is_empty(), "{:?}", host.closed);
    (host.endpoint.visits() - before) as f64 / PINGS as f64
}

#[test]
fn issue_13_a_datagram_looks_at_its_own_connection_alone() {
    let (few, many) = (visits_of_a_ping(10), visits_of_a_ping(if tidewire_testing::few_seeds() { 300 } else { 1_000 }));
    println!("{few} and {many} looks for a PING");
    assert!(many <= few + 1.0, "{few} looks beside ten connections, {many} beside many");
    assert!(few <= 16.0, "{few} looks");
}

/// The calls of a driver: when to wake up, and what is due then.
#[test]
fn issue_13_idle_connections_are_not_looked_at() {
    let (mut host, _peers) = beside(100);
    host.turn(|_, _| {});
    host.endpoint.poll_timeout();
    let before = host.endpoint.visits();
    for _ in 0..1_000 {
        host.wait(Duration::from_millis(1));
        host.turn(|_, _| {});
        assert!(host.endpoint.poll_timeout().expect("the idle timeout").0 > host.now);
    }
    assert_eq!(host.endpoint.visits(), before);
}

/// A connection with much to send gets no more turns than the others.
#[test]
fn issue_13_connections_take_turns_at_sending() {
    const PEERS: u16 = 8;
    let (mut host, _peers) = beside(PEERS);
    let handles: Vec<_> = host.endpoint.connections().map(|(handle, _)| handle).collect();
    for &handle in &handles {
        let connection = host.endpoint.connection_mut(handle).expect("alive");
        let stream = connection.open_stream().expect("allowed");
        assert!(connection.write(stream, &[1; 100_000]).expect("room") > 2_000);
    }
    let (mut order, mut out) = (Vec::new(), [0; super::host::DATAGRAM]);
    let now = host.now;
    while order.len() < 2 * handles.len() {
        let transmit = host.endpoint.poll_transmit(now, 1, &mut out).expect("two datagrams each");
        order.push(transmit.destination.port());
    }
    let (first, second) = order.split_at(handles.len());
    assert_eq!(first, second);
    let mut each = first.to_vec();
    each.sort_unstable();
    assert_eq!(each, (1..=PEERS).collect::<Vec<_>>());
}
