//! Memory of a connection: idle, busy, and with a peer that tries to make it hold much.

use std::time::Duration;

use tidewire_codec::{Code, RepairId, SourceId};
use tidewire_proto::config::Config;
use tidewire_proto::connection::{CloseCode, CloseReason, StreamId};
use tidewire_proto::wire::{Frame, Layout, SymbolFrame};

use super::flow::Flow;
use super::host::Host;
use super::peer::Peer;

const KIB: isize = 1_024;
/// Limits for an idle connection, and for a busy one with a bandwidth-delay product of 1 MiB.
const IDLE: isize = 32 * KIB;
const BUSY: isize = 8_192 * KIB;
/// Rings of an attacked connection. Besides its slots, a decoder needs an eighth of them at this span.
const RING: usize = 1 << 20;

fn small() -> Config {
    Config::builder().ring_memory(RING).build().expect("in range")
}

/// A host with a connected peer, and the memory that the host held before.
fn attacked(config: Config) -> (Host, Peer, isize) {
    let mut host = Host::new(config, 2);
    let peer = host.meet(1);
    let before = host.meter.held;
    host.meter.most = before;
    (host, peer, before)
}

fn data(stream: u64, offset: u64, data: &[u8]) -> SymbolFrame<'_> {
    SymbolFrame::Stream { stream, offset, fin: false, data, data_at: 0 }
}

#[test]
fn an_idle_connection_is_small() {
    let mut host = Host::new(Config::default(), 2);
    // The memory of the endpoint itself grows in steps, because many connections share it.
    let before = host.meter.held;
    let peers: Vec<Peer> = (1..=256).map(|nth| host.meet(nth)).collect();
    let each = (host.meter.held - before) / peers.len() as isize;
    println!("{each} bytes an idle connection");
    assert!(each <= IDLE, "{each} bytes");
}

/// 100 Mbit/s over 80 ms: a bandwidth-delay product of 1 MB.
#[test]
fn a_busy_connection_holds_a_few_bandwidth_delay_products() {
    let config = Config::builder().max_rate(Some(100_000_000)).build().expect("in range");
    let mut flow = Flow::new(config, Duration::from_millis(40));
    for _ in 0..10_000 {
        flow.step(Duration::from_millis(1), |_| {});
    }
    flow.assert_alive();
    let (near, far) = (flow.near.meter.most, flow.far.meter.most);
    println!("{near} bytes at the sender, {far} at the receiver, {} read", flow.read);
    assert!(flow.read > 80_000_000, "{} bytes read", flow.read);
    assert!(near.max(far) <= BUSY, "{near} bytes at the sender, {far} at the receiver");
}

#[test]
fn an_application_that_never_reads_costs_its_window() {
    let config = Config::default();
    let window = config.stream_window() as isize;
    let mut flow = Flow::new(config, Duration::from_millis(10));
    flow.reads = false;
    for _ in 0..5_000 {
        flow.step(Duration::from_millis(1), |_| {});
    }
    flow.assert_alive();
    let far = flow.far.meter.most;
    println!("{far} bytes for a window of {window}");
    assert!(far <= 4 * window + 128 * KIB, "{far} bytes");
}

#[test]
fn gaps_of_one_byte_end_the_connection_before_they_cost_anything() {
    let (mut host, mut peer, before) = attacked(small());
    for id in 0..4_200 {
        host.hear_symbol(&mut peer, id, &[data(0, 2 * id + 1, b"x")]);
    }
    host.turn(|_, _| {});
    let most = host.meter.most - before;
    println!("{most} bytes");
    assert_eq!(host.closed, [CloseReason::Fault(CloseCode::Protocol)]);
    assert!(most <= 1_024 * KIB, "{most} bytes");
}

/// Bytes of a slot and half of it again, and of everything else stored per symbol.
const PER_SYMBOL: isize = 1_472 * 3 / 2 + 200;
/// Memory per id within the first credit for which nothing came.
const PER_ID: isize = 32;

/// Some packets of a few bytes, with ids as far ahead as the credit allows or farther, and the default ring
/// of 64 MiB. Credit and memory must follow the number of symbols received. Before the fix, eight packets
/// with doubling ids made the ring 48 MiB.
#[test]
fn issue_13_a_few_far_ids_cost_what_a_few_symbols_cost() {
    let highest = |n: u64| 255 - n;
    let doubled = |n: u64| (256 << n.min(16)) - 1;
    let symbol: fn(u64) -> Frame<'static> = |id| {
        let (id, base) = (SourceId(id), SourceId(0));
        Frame::Source { lane: 0, layout: Layout::Sliding, id, base, again: false, symbol: &[0, 5, 0, 0, 0] }
    };
    let repair: fn(u64) -> Frame<'static> = |id| {
        let id = RepairId { first: SourceId(id.saturating_sub(255)), count: 256, key: id as u16 };
        let (code, base) = (Code::Rlc, SourceId(0));
        Frame::Repair { lane: 0, layout: Layout::Sliding, code, id, base, on_feedback: true, symbol: &[7; 5] }
    };
    // A repair needs a matrix with as many rows and columns as there are ids within the credit.
    for (frame, matrix) in [(symbol, 0), (repair, 256 * 256 + 256 * 64)] {
        for ids in [highest as fn(u64) -> u64, doubled] {
            let (mut host, mut peer, before) = attacked(Config::default());
            for n in 0..53 {
                let frame = frame(ids(n));
                host.hear(&mut peer, |w| frame.emit(w).expect("room"));
                host.wait(Duration::from_millis(1));
                host.turn(|_, _| {});
            }
            let most = host.meter.most - before;
            println!("{most} bytes, {:?}", host.closed);
            assert!(most <= 53 * PER_SYMBOL + 256 * PER_ID + matrix + 16 * KIB, "{most} bytes");
        }
    }
}

/// Thousands of tiny symbols raise credit and memory in proportion to their number. The memory that the
/// connection reports is the memory it holds.
#[test]
fn issue_13_memory_follows_the_symbols_that_came() {
    let (mut host, mut peer, before) = attacked(Config::default());
    for id in 1..4_000 {
        host.hear_symbol(&mut peer, id, &[data(0, id, b"x")]);
        host.turn(|_, _| {});
    }
    let (held, said) = (host.meter.held - before, host.with(|connection| connection.memory()) as isize);
    println!("{held} bytes for 3,999 symbols, of which {said} are said");
    assert!(host.closed.is_empty(), "{:?}", host.closed);
    assert!(host.meter.most - before <= 4_000 * (PER_SYMBOL + 8 * PER_ID), "{} bytes", host.meter.most - before);
    assert!(said >= held * 9 / 10 && said <= held * 11 / 10, "{said} bytes said, {held} held");
}

/// Every second symbol, as far ahead as the credit allows, and repairs that solve nothing.
#[test]
fn gaps_of_one_symbol_cost_the_ring_and_its_matrix() {
    let (mut host, mut peer, before) = attacked(small());
    for id in (1..700).step_by(2) {
        host.hear_symbol(&mut peer, id, &[data(0, id * 1_000, &[1; 1_000])]);
        host.turn(|_, _| {});
    }
    for key in 0..512 {
        let id = RepairId { first: SourceId(u64::from(key) % 256), count: 256, key };
        let (code, base) = (Code::Rlc, SourceId(0));
        let repair =
            Frame::Repair { lane: 0, layout: Layout::Sliding, code, id, base, on_feedback: false, symbol: &[7; 1_300] };
        host.hear(&mut peer, |w| repair.emit(w).expect("room"));
        host.wait(Duration::from_millis(1));
        host.turn(|_, _| {});
    }
    let most = host.meter.most - before;
    println!("{most} bytes for a ring of {RING}; {:?}", host.closed);
    assert!(most <= 2 * RING as isize, "{most} bytes");
}

/// Ids at the end of the credit, beyond it, and at the end of the number range; also bases there.
#[test]
fn windows_that_end_far_ahead_cost_the_ring_at_most() {
    let far = [255, 256, 1 << 20, (1 << 62) - 1];
    for (lane, id) in [0, 1].into_iter().flat_map(|lane| far.map(|id| (lane, SourceId(id)))) {
        let (mut host, mut peer, before) = attacked(small());
        let (base, symbol) = (SourceId(0), &[0; 1_000][..]);
        let span = RepairId { first: SourceId(id.0 - 255), count: 256, key: 1 };
        for frame in [
            Frame::Source { lane, layout: Layout::Sliding, id, base, again: false, symbol: &[0, 5, 0, 0, 0] },
            Frame::Repair { lane, layout: Layout::Sliding, code: Code::Rlc, id: span, base, on_feedback: true, symbol },
            Frame::Base { lane, base: id },
        ] {
            for _ in 0..64 {
                host.hear(&mut peer, |w| frame.emit(w).expect("room"));
                host.wait(Duration::from_millis(1));
                host.turn(|_, _| {});
            }
        }
        let most = host.meter.most - before;
        println!("lane {lane}, {id:?}: {most} bytes, {:?}", host.closed);
        assert!(most <= 3 * RING as isize / 2, "lane {lane}, {id:?}: {most} bytes");
    }
}

/// The same on all lanes of messages at once.
#[test]
fn lanes_that_nobody_opened_cost_their_first_ring() {
    let (mut host, mut peer, before) = attacked(small());
    for lane in 1..16 {
        let frame = Frame::Base { lane, base: SourceId(1) };
        host.hear(&mut peer, |w| frame.emit(w).expect("room"));
        host.turn(|_, _| {});
    }
    let most = host.meter.most - before;
    println!("{most} bytes");
    assert!(host.closed.is_empty() && most <= 15 * 16 * KIB, "{most} bytes, {:?}", host.closed);
}

#[test]
fn a_peer_that_never_acknowledges_costs_the_send_ring_and_a_bounded_memory_of_packets() {
    let (mut host, mut peer, before) = attacked(small());
    let stream = host.with(|connection| connection.open_stream()).expect("allowed");
    let mut written = 0;
    while host.closed.is_empty() {
        written = host.write(stream, written);
        // Each makes the host answer.
        (0..2).for_each(|_| host.hear(&mut peer, |w| Frame::Ping.emit(w).expect("room")));
        host.wait(Duration::from_millis(5));
        host.turn(|_, _| {});
    }
    let most = host.meter.most - before;
    println!("{most} bytes, {written} written, {:?}", host.closed);
    assert_eq!(host.closed, [CloseReason::Fault(CloseCode::Protocol)]);
    assert!(most <= BUSY, "{most} bytes");
}

#[test]
fn four_thousand_streams_cost_less_than_a_kilobyte_each() {
    let config = small().to_builder().max_streams(4_096).build().expect("in range");
    let (mut host, mut peer, before) = attacked(config);
    host.hear_symbol(&mut peer, 0, &[data(2 * 4_095, 0, b"x")]);
    host.turn(|_, _| {});
    for id in 1..=4_096 {
        // The last stream gets its first byte.
        host.hear_symbol(&mut peer, id, &[data(2 * (id - 1), u64::from(id == 4_096), b"x")]);
        if id % 64 == 0 {
            host.turn(|_, _| {});
        }
    }
    let most = host.meter.most - before;
    println!("{most} bytes");
    assert!(host.closed.is_empty() && most <= 4_096 * KIB, "{most} bytes, {:?}", host.closed);
    let opened = host.with(|connection| connection.write(StreamId(8_190), b"answer"));
    assert_eq!(opened, Ok(6));
}
