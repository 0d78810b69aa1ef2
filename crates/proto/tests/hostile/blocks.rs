//! Lanes in generations under sparse codes: what authentic but hostile symbols cost, and false FEEDBACK
//! about blocks.

use std::time::Duration;

use tidewire_codec::{Code, RepairId, SourceId};
use tidewire_proto::config::Config;
use tidewire_proto::connection::{CloseCode, CloseReason};
use tidewire_proto::profile::sphinx;
use tidewire_proto::wire::{FeedbackRepr, Frame, LaneRepr, Layout};

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
    let code = Code::SemiRandomLt { degree: 17 };
    for (other, of, len) in [
        (Code::SemiRandomLt { degree: 18 }, id, 100),
        (Code::Rlc, id, 100),
        (code, id, 101),
        (code, RepairId { count: 99, ..id }, 100),
        (code, RepairId { first: SourceId(50), ..id }, 100),
    ] {
        let mut host = Host::new(Config::default(), 2);
        let mut peer: Peer = host.meet(1);
        let symbol = [7; 101];
        host.hear(&mut peer, |w| repair(code, id, &symbol[..100]).emit(w).expect("room"));
        host.hear(&mut peer, |w| repair(other, RepairId { key: 1, ..of }, &symbol[..len]).emit(w).expect("room"));
        host.turn(|_, _| {});
        assert_eq!(host.closed, [CloseReason::Fault(CloseCode::Protocol)], "{other:?} {of:?} {len}");
    }
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
            let feedback =
                FeedbackRepr { received: &received, delay, ecn: None, stream_credit: None, lanes, elicits: false };
            host.hear(&mut peer, |w| feedback.emit(w).expect("room"));
        }
        assert_eq!(!host.closed.is_empty(), is_fault, "{:?}", host.closed);
        if !is_fault {
            let packets = host.with(|connection| connection.stats()).packets;
            assert!(packets.repair + packets.feedback_repair <= packets.source.max(1_000), "{packets:?}");
        }
    }
}
