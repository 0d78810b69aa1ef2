//! Lanes in generations: what authentic but hostile symbols cost, announcements of blocks that contradict
//! each other or exceed a limit, and false FEEDBACK about blocks. A block is reported before it is decoded.

use std::time::Duration;

use tidewire_codec::{Code, RepairId, SourceId};
use tidewire_proto::config::Config;
use tidewire_proto::connection::{CloseCode, CloseReason};
use tidewire_proto::profile::{rcdp, sphinx};
use tidewire_proto::wire::{FeedbackRepr, Frame, Frames, LaneRepr, Layout, SYMBOL_HEADER_LEN, SymbolHeader, Writer};

use super::host::Host;
use super::peer::Peer;

const KIB: isize = 1 << 10;
/// Length of a long repair.
const LONG: usize = 1_300;

fn repair(code: Code, id: RepairId, symbol: &[u8]) -> Frame<'_> {
    let (layout, base) = (Layout::Generations, SourceId(0));
    Frame::Repair { lane: 0, layout, code, id, base, on_feedback: false, symbol }
}

/// One repair over as many symbols as the credit allows costs its own bytes and some for each id. Many
/// repairs cost what they hold.
#[test]
fn repairs_of_sparse_codes_cost_what_they_hold() {
    let lt = Code::Lt { c_milli: 100, delta_milli: 500 };
    for code in [lt, Code::SemiRandomLt { degree: 128 }, Code::SemiRandomLt { degree: 1 }] {
        let mut host = Host::new(Config::default(), 2);
        let mut peer: Peer = host.meet(1);
        let before = host.meter.held;
        for (packets, most) in [(1, 64 * KIB), (600, 64 * KIB + 600 * (2 * LONG as isize + 600))] {
            host.meter.most = before;
            for key in 0..packets {
                let id = RepairId { first: SourceId(0), count: 256, key };
                host.hear(&mut peer, |w| repair(code, id, &[7; LONG]).emit(w).expect("room"));
                host.wait(Duration::from_millis(1));
                host.turn(|_, _| {});
            }
            let held = host.meter.most - before;
            println!("{code:?}: {held} bytes for {packets} repairs, {:?}", host.closed);
            assert!(held <= most, "{code:?}: {held} bytes for {packets} repairs");
        }
    }
}

/// Repairs of one generation with other parameters, another length or another span are the peer's fault.
#[test]
fn repairs_that_contradict_each_other_end_the_connection() {
    let id = RepairId { first: SourceId(0), count: 100, key: 0 };
    let sparse = Code::SemiRandomLt { degree: 17 };
    let contradictions = [sparse, Code::Rlc, Code::RsFft, Code::RaptorQ].map(|code| {
        [
            (code, Code::SemiRandomLt { degree: 18 }, id, 100),
            (code, Code::Rlc16, id, 100),
            (code, code, id, 102),
            (code, code, RepairId { count: 99, ..id }, 100),
            (code, code, RepairId { first: SourceId(50), ..id }, 100),
            (code, code, RepairId { first: SourceId(99), count: 2, ..id }, 100),
        ]
    });
    for (code, other, of, len) in contradictions.into_iter().flatten() {
        let mut host = Host::new(Config::default(), 2);
        let mut peer: Peer = host.meet(1);
        let symbol = [7; 102];
        host.hear(&mut peer, |w| repair(code, id, &symbol[..100]).emit(w).expect("room"));
        host.hear(&mut peer, |w| repair(other, RepairId { key: 1, ..of }, &symbol[..len]).emit(w).expect("room"));
        host.turn(|_, _| {});
        assert_eq!(host.closed, [CloseReason::Fault(CloseCode::Protocol)], "{code:?} {other:?} {of:?} {len}");
    }
}

/// Writes a REPAIR of a lane in generations, whatever its span and key. The base is 0.
fn write_repair(w: &mut Writer<'_>, first: u64, count: u64, key: u64) {
    w.u8(0x16).expect("room");
    for field in [0, 0, first, count, key, (first + count).min((1 << 62) - 1)] {
        w.varint(field).expect("room");
    }
    w.bytes(&[7; 100]).expect("room");
}

/// The limits of a block: 1 to 1,024 symbols on the wire, the span of the receiver (100 here), its credit
/// (256 at first), and the ids and keys that the wire can name.
#[test]
fn a_block_without_symbols_or_over_a_limit_ends_the_connection() {
    let most = (1 << 62) - 1;
    for (first, count, key, code) in [
        (0, 0, 0, CloseCode::Malformed),
        (0, 1_025, 0, CloseCode::Malformed),
        (0, 1 << 32, 0, CloseCode::Malformed),
        (0, 65_536 + 84, 0, CloseCode::Malformed),
        (0, 84, 1 << 24, CloseCode::Malformed),
        (most - 3, 84, 0, CloseCode::Malformed),
        (0, 101, 0, CloseCode::Protocol),
        (0, 1_024, 0, CloseCode::FlowControl),
        (173, 84, 0, CloseCode::FlowControl),
        (most - 84, 84, 0, CloseCode::FlowControl),
    ] {
        let mut host = Host::new(Config::builder().max_span(100).build().expect("in range"), 2);
        let mut peer: Peer = host.meet(1);
        host.hear(&mut peer, |w| write_repair(w, 0, 84, 0));
        host.turn(|_, _| {});
        assert_eq!(host.closed, [], "an honest block");
        let before = host.meter.held;
        host.meter.most = before;
        host.hear(&mut peer, |w| write_repair(w, first, count, key));
        host.turn(|_, _| {});
        assert_eq!(host.closed, [CloseReason::Fault(code)], "{first} {count} {key}");
        let grown = host.meter.most - before;
        assert!(grown < 64 * KIB, "{first} {count} {key}: {grown} bytes");
    }
}

/// All jobs leave the connection. When the rank of a block suffices, FEEDBACK reports the block within a
/// sixteenth of a round trip, although nobody has run its job.
#[test]
fn a_block_is_reported_when_its_rank_suffices_and_before_its_job_is_run() {
    let config = Config::builder().profile(rcdp(8)).workers(1).inline_products(0).build().expect("in range");
    let mut host = Host::new(config, 2);
    let mut peer: Peer = host.meet(1);
    let mut symbol = [0; 100];
    SymbolHeader { length: SYMBOL_HEADER_LEN as u16, time: 0 }.emit(&mut symbol).expect("room");
    let edge = |host: &mut Host, peer: &mut Peer| {
        let mut edge = None;
        host.turn(|_, datagram| {
            let Some((_, payload)) = peer.open(datagram) else { return };
            for frame in Frames::new(payload).flatten() {
                if let Frame::Feedback(feedback) = frame {
                    edge = feedback.lanes().next().map(|lane| lane.edge.0).or(edge);
                }
            }
        });
        edge
    };
    // Six of eight symbols, and then two repairs.
    for id in 0..6 {
        let (lane, layout, base) = (0, Layout::Generations, SourceId(0));
        let source = Frame::Source { lane, layout, id: SourceId(id), base, again: false, symbol: &symbol };
        host.hear(&mut peer, |w| source.emit(w).expect("room"));
    }
    host.wait(Duration::from_millis(100));
    assert_eq!(edge(&mut host, &mut peer), Some(6));
    for (key, reported) in [(0, 6), (1, 8)] {
        let id = RepairId { first: SourceId(0), count: 8, key };
        host.wait(Duration::from_millis(100));
        host.hear(&mut peer, |w| repair(Code::Rlc, id, &[7; 100]).emit(w).expect("room"));
        host.wait(Duration::from_millis(100));
        assert_eq!(edge(&mut host, &mut peer), Some(reported));
    }
    let job = host.with(|connection| connection.poll_job());
    assert!(job.is_some(), "the block is not decoded");
}

/// FEEDBACK that knows symbols which were never sent ends the connection. FEEDBACK that acknowledges every
/// packet and decodes nothing costs no more answers than symbols were sent.
#[test]
fn false_feedback_about_blocks_ends_the_connection_or_changes_little() {
    for (ahead, is_fault) in [(1, true), (0, false)] {
        let config = Config::builder().profile(sphinx(20)).build().expect("in range");
        let mut host = Host::new(config, 2);
        let mut peer: Peer = host.meet(1);
        let stream = host.with(|connection| connection.open_stream()).expect("allowed");
        let (mut written, mut newest, mut end) = (0, None, 0);
        for _ in 0..2_000 {
            if host.closed.is_empty() {
                written = host.write(stream, written);
            }
            host.turn(|_, datagram| {
                let Some((number, payload)) = peer.open(datagram) else { return };
                newest = newest.max(Some(number));
                for frame in tidewire_proto::wire::Frames::new(payload).flatten() {
                    if let Frame::Source { id, .. } = frame {
                        end = end.max(id.0 + 1);
                    }
                }
            });
            host.wait(Duration::from_millis(1));
            let Some(newest) = newest else { continue };
            let (received, end) = ([0..=newest], SourceId(end + ahead));
            let undecoded = [SourceId(0)..end];
            let undecoded = if end.0 > 0 { &undecoded[..] } else { &[] };
            let (edge, limit, regions) = (SourceId(0), SourceId(1 << 20), &[][..]);
            let lanes = [LaneRepr { lane: 0, edge, end, deficit: end.0, limit, undecoded, regions }];
            let (delay, lanes) = (Duration::ZERO, &lanes[..]);
            let feedback = FeedbackRepr {
                received: &received,
                delay,
                arrival: None,
                ecn: None,
                stream_credit: None,
                lanes,
                elicits: false,
            };
            host.hear(&mut peer, |w| feedback.emit(w).expect("room"));
        }
        assert_eq!(!host.closed.is_empty(), is_fault, "{:?}", host.closed);
        if !is_fault {
            let packets = host.with(|connection| connection.stats()).packets;
            assert!(packets.repair + packets.feedback_repair <= packets.source.max(1_000), "{packets:?}");
        }
    }
}
