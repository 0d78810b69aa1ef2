//! What the policies of a connection look at while a hostile peer reads: it asks for small blocks, and
//! acknowledges only some of the packets, so that blocks stay open and repairs stay in flight.
//!
//! `Connection::looks` counts blocks and repairs. Policies that walked over all open blocks, and over all
//! repairs in flight for each of them, took 0.7 to 2 ms for each packet.

use std::collections::VecDeque;
use std::time::Duration;

use tidewire_codec::SourceId;
use tidewire_proto::config::Config;
use tidewire_proto::rate::RateControl;
use tidewire_proto::wire::{FeedbackRepr, Frame, Frames, LaneRepr};

use super::host::{Host, Random};
use super::lying::merged;
use super::peer::Peer;

const RATE: u64 = 100_000_000;
/// In milliseconds.
const TIME: u64 = 1_500;
const ROUND_TRIP: u64 = 100;
/// FEEDBACK comes so often, and so often under a flood.
const OFTEN: u64 = 10;

/// Bounds of the looks for each packet, sent or acknowledged: in all, and in each millisecond but one of a
/// thousand. Each fate is at most one look at a block, which asks for the packets of this block. Few packets
/// follow a silence, after which each block that waits for packets in flight is looked at once.
const MOST: f64 = 8.0;
const MOST_OF_A_TURN: f64 = 128.0;

/// What the peer says of the lane.
#[derive(Clone, Copy, Debug)]
enum Report {
    /// Nothing.
    Silent,
    /// In turn nothing, all symbols as missing, and every second of the lowest as missing.
    Changing,
}

/// Reads from a host for a while. Returns the looks for each packet of each millisecond, and those of all.
fn looks(policy: &str, share: usize, report: Report, often: u64) -> (Vec<f64>, f64) {
    let config = Config::builder().rate_control(RateControl::Fixed { bits_per_second: RATE });
    let mut host = Host::new(config.build().expect("in range"), 2);
    let mut peer: Peer = host.meet(1);
    host.hear(&mut peer, |w| Frame::Policy(policy).emit(w).expect("room"));
    let stream = host.with(|connection| connection.open_stream()).expect("allowed");
    let (mut written, mut end, mut random) = (0, 0, Random(7));
    let (mut came, mut acked) = (VecDeque::new(), Vec::new());
    let (mut each, mut packets) = (Vec::new(), 0);
    for milli in 0..TIME {
        written = host.write(stream, written);
        let before = host.with(|connection| connection.looks());
        let mut busy = 0;
        host.turn(|_, datagram| {
            let Some((number, payload)) = peer.open(datagram) else { return };
            busy += 1;
            came.push_back((milli, number));
            for frame in Frames::new(payload).flatten() {
                end = match frame {
                    Frame::Source { id, .. } => end.max(id.0 + 1),
                    Frame::Repair { id, .. } => end.max(id.first.0 + u64::from(id.count)),
                    _ => end,
                };
            }
        });
        host.wait(Duration::from_millis(1));
        while let Some(&(_, number)) = came.front().filter(|(at, _)| *at + ROUND_TRIP <= milli) {
            came.pop_front();
            // The newest packet of a FEEDBACK keeps the connection alive.
            if random.below(100) < share || number % 64 == 0 {
                acked.push(number);
            }
        }
        if milli % often == 0 && !acked.is_empty() {
            busy += acked.len();
            let received = merged(acked.drain(..).rev().map(|number| number..=number).collect());
            let runs: Vec<_> = match (report, milli / often % 3) {
                (Report::Changing, 1) => vec![SourceId(0)..SourceId(end)],
                (Report::Changing, 2) => (0..32).map(|n| SourceId(4 * n)..SourceId(4 * n + 2)).collect(),
                _ => Vec::new(),
            };
            let last = runs.last().map_or(SourceId(0), |run| run.end).min(SourceId(end));
            let runs = if last.0 < 128 { &[] } else { &runs[..] };
            let deficit = runs.iter().map(|run| run.end.0 - run.start.0).sum();
            let (edge, limit, last) =
                (SourceId(0), SourceId(1 << 20), if runs.is_empty() { SourceId(0) } else { last });
            let lanes = [LaneRepr { lane: 0, edge, end: last, deficit, limit, undecoded: runs, regions: &[] }];
            let feedback = FeedbackRepr {
                received: &received,
                delay: Duration::ZERO,
                arrival: None,
                ecn: None,
                stream_credit: None,
                lanes: &lanes,
                elicits: false,
            };
            host.hear(&mut peer, |w| feedback.emit(w).expect("room"));
        }
        let looks = host.with(|connection| connection.looks()) - before;
        each.push(looks as f64 / busy.max(1) as f64);
        packets += busy;
    }
    assert_eq!(host.closed, [], "{policy}");
    assert!(host.with(|connection| connection.stats()).policy_followed, "{policy}");
    let all = host.with(|connection| connection.looks()) as f64 / packets as f64;
    each.sort_by(f64::total_cmp);
    (each, all)
}

fn check(policies: &[&str]) {
    for policy in policies {
        for (share, report, often) in [
            (0, Report::Silent, OFTEN),
            (30, Report::Silent, OFTEN),
            (70, Report::Silent, OFTEN),
            (30, Report::Changing, OFTEN),
            (70, Report::Changing, 1),
        ] {
            let (each, all) = looks(policy, share, report, often);
            let most = each[each.len() - 1 - each.len() / 1_000];
            println!("{policy}, {share} %, {report:?}, {often} ms: {all:.1} for a packet, {most:.1} in a turn");
            assert!(all <= MOST && most <= MOST_OF_A_TURN, "{policy}, {share} %, {report:?}: {all:.1}, {most:.1}");
        }
    }
}

#[test]
fn small_blocks_cost_what_is_new_and_not_what_is_open() {
    check(&["generations rlc block:2,1", "generations rlc block:8,4", "generations cauchy block:32,8"]);
}

#[test]
fn combinations_instead_of_symbols_cost_what_is_new_and_not_what_is_open() {
    check(&["generations rlc bucket:15,1.25", "generations rlc bucket:1,1.5", "sliding rlc pipeline:4,1.5"]);
}

#[test]
fn answers_of_papers_cost_what_is_new_and_not_what_is_open() {
    check(&[
        "generations rlc sphinx:2",
        "generations rlc sphinx:4",
        "generations rlc sphinx:20,icm:2/3",
        "generations rlc sphinx:4,block-sack",
        "generations rlc rcdp:2",
    ]);
}

#[test]
fn a_sliding_lane_costs_what_is_new_and_not_what_is_in_flight() {
    check(&["sliding rlc every:3", "sliding rlc adaptive,deficit"]);
}
