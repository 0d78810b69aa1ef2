//! Copies, reordering, and the replay of a whole capture (docs/survival.md, row S14).

use std::time::Duration;

use tidewire_codec::SourceId;
use tidewire_proto::config::Config;
use tidewire_proto::connection::StreamId;
use tidewire_proto::wire::{Frame, Layout, SYMBOL_HEADER_LEN, SymbolFrame, SymbolHeader, Writer};

use super::flow::Flow;
use super::host::{Host, Random, pattern};

/// Numbers of the replay window. A peer that reorders packets further loses packets, and nothing else.
const WINDOW: usize = 65_536;
const COPIES: usize = 10;
/// Bytes in each symbol, and number of symbols: as many as the first credit.
const PIECE: u64 = 64;
const SYMBOLS: usize = 256;

/// As many packets as the window has, in any order, each ten times.
#[test]
fn s14_ten_copies_in_any_order_are_one_delivery() {
    let mut host = Host::new(Config::default(), 2);
    let mut peer = host.meet(1);
    let before = host.with(|connection| connection.stats()).packets;
    let mut datagrams: Vec<Vec<u8>> = (0..WINDOW)
        .map(|at| match at % (WINDOW / SYMBOLS) {
            0 => piece(&mut peer, (at / (WINDOW / SYMBOLS)) as u64),
            _ => peer.seal(|w| Frame::Ping.emit(w).expect("room")).to_vec(),
        })
        .collect();
    let mut random = Random(14);
    (1..datagrams.len()).for_each(|at| datagrams.swap(at, random.below(at + 1)));
    let mut read = 0;
    for (at, datagram) in datagrams.iter().enumerate() {
        for _ in 0..COPIES {
            host.take(peer.from, &mut datagram.clone());
        }
        read = host.read(StreamId(0), read);
        host.wait(Duration::from_micros(10));
        // Not after each packet: this peer acknowledges nothing, and the host counts unacknowledged answers.
        if at % 16 == 0 {
            host.turn(|_, _| {});
        }
    }
    let packets = host.with(|connection| connection.stats()).packets;
    assert_eq!(read, SYMBOLS as u64 * PIECE);
    assert_eq!(packets.received - before.received, WINDOW as u64);
    assert_eq!(packets.dropped - before.dropped, (WINDOW * (COPIES - 1)) as u64);
    assert_eq!((packets.redundant, &host.closed), (0, &Vec::new()));
}

/// A packet with a piece of the pattern in its own symbol.
fn piece(peer: &mut super::peer::Peer, id: u64) -> Vec<u8> {
    let mut symbol = [0; 200];
    let bytes: Vec<u8> = (id * PIECE..(id + 1) * PIECE).map(pattern).collect();
    let mut w = Writer::resume(&mut symbol, SYMBOL_HEADER_LEN);
    let frame = SymbolFrame::Stream { stream: 0, offset: id * PIECE, fin: false, data: &bytes, data_at: 0 };
    frame.emit(&mut w).expect("room");
    let len = w.len();
    SymbolHeader { length: len as u16, time: 0 }.emit(&mut symbol).expect("room");
    let (id, base) = (SourceId(id), SourceId(0));
    let source = Frame::Source { lane: 0, layout: Layout::Sliding, id, base, again: false, symbol: &symbol[..len] };
    peer.seal(|w| source.emit(w).expect("room")).to_vec()
}

/// All datagrams again, from the old address and from another. The host drops each at the cost of a look-up.
#[test]
fn s14_a_replayed_capture_delivers_nothing() {
    let config = Config::builder().max_rate(Some(50_000_000)).build().expect("in range");
    let mut flow = Flow::new(config, Duration::from_millis(5));
    let mut capture = Vec::new();
    for _ in 0..if tidewire_testing::few_seeds() { 2_000 } else { 20_000 } {
        flow.step(Duration::from_millis(1), |datagram| capture.push(datagram.to_vec()));
    }
    flow.assert_alive();
    let (before, held) = (flow.far.with(|connection| connection.stats()), flow.far.meter.held);
    flow.far.meter.most = held;
    for from in [flow.near.address, ([192, 0, 2, 7], 4_444).into()] {
        for datagram in &capture {
            flow.far.take(from, &mut datagram.clone());
        }
    }
    let after = flow.far.with(|connection| connection.stats());
    let packets =
        capture.len() as u64 - flow.far.endpoint.stats().hellos.accepted - flow.far.endpoint.stats().hellos.repeated;
    println!("{} datagrams, {} bytes more at most", capture.len(), flow.far.meter.most - held);
    assert_eq!(
        (after.packets.received, after.bytes.app_received),
        (before.packets.received, before.bytes.app_received)
    );
    assert!(after.packets.dropped - before.packets.dropped >= 2 * packets, "{after:?}");
    assert_eq!((after.moves, after.bytes.wire_sent), (before.moves, before.bytes.wire_sent));
    assert!(flow.far.meter.most - held <= 64 << 10, "{} bytes", flow.far.meter.most - held);
    // The flow continues.
    let read = flow.read;
    for _ in 0..1_000 {
        flow.step(Duration::from_millis(1), |_| {});
    }
    assert!(flow.read - read > 5_000_000, "{} bytes", flow.read - read);
}
