//! Authentic but false FEEDBACK (docs/survival.md, row S10). An acknowledgement of unsent numbers ends the
//! connection, see `connection/tests/mod.rs`.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::Duration;

use tidewire_codec::SourceId;
use tidewire_proto::config::Config;
use tidewire_proto::connection::{CloseCode, CloseReason};
use tidewire_proto::rate::RateControl;
use tidewire_proto::wire::{FeedbackRepr, Frame, Frames, LaneRepr, TrainReport};

use super::host::Host;
use super::peer::Peer;

/// Sends bulk data to a peer that acknowledges every packet at once and reports for the lane what `lie` makes
/// of the highest id it saw. Returns the host after `millis`.
fn told(millis: u64, lie: impl Fn(u64) -> (u64, u64, u64, u64)) -> Host {
    let mut host = Host::new(Config::default(), 2);
    let mut peer: Peer = host.meet(1);
    let stream = host.with(|connection| connection.open_stream()).expect("allowed");
    let (mut written, mut newest, mut end): (u64, Option<u64>, u64) = (0, None, 0);
    for _ in 0..millis {
        if host.closed.is_empty() {
            written = host.write(stream, written);
        }
        let mut numbers = Vec::new();
        host.turn(|_, datagram| {
            let Some((number, payload)) = peer.open(datagram) else { return };
            numbers.push(number);
            for frame in Frames::new(payload).flatten() {
                if let Frame::Source { id, .. } = frame {
                    end = end.max(id.0 + 1);
                }
            }
        });
        newest = numbers.last().copied().or(newest);
        host.wait(Duration::from_millis(1));
        let received: Vec<RangeInclusive<u64>> = numbers.iter().rev().map(|&number| number..=number).collect();
        let received = merged(received);
        let (edge, end, deficit, limit) = lie(end);
        let undecoded = [SourceId(edge)..SourceId(end)];
        let undecoded = if edge < end { &undecoded[..] } else { &[] };
        let lane = LaneRepr {
            lane: 0,
            edge: SourceId(edge),
            end: SourceId(end),
            deficit,
            limit: SourceId(limit),
            undecoded,
            regions: &[],
        };
        let delay = Duration::ZERO;
        // A clock that jumps by minutes from packet to packet.
        let arrival = newest.map(|number| (number as u32).wrapping_mul(0x9e37_79b9));
        let lanes = &[lane];
        let feedback =
            FeedbackRepr { received: &received, delay, arrival, ecn: None, stream_credit: None, lanes, elicits: false };
        if newest.is_some() {
            host.hear(&mut peer, |w| feedback.emit(w).expect("room"));
        }
    }
    host.turn(|_, _| {});
    host
}

/// Sorts the ranges newest first and joins adjacent ones.
pub fn merged(ranges: Vec<RangeInclusive<u64>>) -> Vec<RangeInclusive<u64>> {
    let mut joined: Vec<RangeInclusive<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if *range.end() + 1 == *last.start() => *last = *range.start()..=*last.end(),
            _ => joined.push(range),
        }
    }
    joined
}

#[test]
fn s10_a_lane_that_knows_what_was_never_sent_ends_the_connection() {
    for lie in [|end: u64| (end + 1, end + 1, 0, 1 << 20), |end: u64| (0, end + 1, 1, 1 << 20)] {
        let host = told(50, lie);
        assert_eq!(host.closed, [CloseReason::Fault(CloseCode::Protocol)]);
    }
}

/// A peer that always reports everything as missing gets repairs for no more than was sent: its own share,
/// not a storm.
/// A report of a train whose packets were never sent. What a report of sent packets can do to the rate,
/// `rate/train.rs` tests.
#[test]
fn s10_a_report_of_a_train_that_was_never_sent_ends_the_connection() {
    for (first, distance) in [(1 << 40, 1), (0, 1_000), ((1 << 62) - 2, 1)] {
        let mut host = Host::new(Config::default(), 2);
        let mut peer = host.meet(1);
        let report = TrainReport { first, distance, arrival: 0, span: Duration::from_micros(1) };
        host.hear(&mut peer, |w| Frame::TrainReport(report).emit(w).expect("room"));
        host.turn(|_, _| {});
        assert_eq!(host.closed, [CloseReason::Fault(CloseCode::Protocol)], "{first} {distance}");
    }
}

#[test]
fn s10_a_deficit_that_never_ends_makes_no_storm_of_repairs() {
    let mut host = told(5_000, |end| (0, end, end, 1 << 20));
    let packets = host.with(|connection| connection.stats()).packets;
    println!("{packets:?}");
    assert!(packets.repair + packets.feedback_repair <= packets.source.max(1_000), "{packets:?}");
    assert!(host.closed.is_empty());
}

/// Everything is acknowledged at once, whatever the path carries. The window follows the bytes sent.
#[test]
fn s10_the_window_is_not_above_what_was_sent() {
    let mut host = told(5_000, |end| (end, end, 0, 1 << 40));
    let stats = host.with(|connection| connection.stats());
    println!(
        "window {}, pace {}, rtt {:?}, sent {}",
        stats.rate.window, stats.rate.pacing_bps, stats.rtt.least, stats.bytes.wire_sent
    );
    assert!(stats.rate.window <= stats.bytes.wire_sent, "{} of {}", stats.rate.window, stats.bytes.wire_sent);
}

/// Sends for `seconds` to a peer that claims arrivals as `claims` says for a packet number and a time in
/// milliseconds. Returns the bytes sent and the bytes that the peer claimed, IP headers included.
fn claimed(control: RateControl, seconds: u64, claims: impl Fn(u64, u64) -> bool) -> (u64, u64) {
    let config = Config::builder().rate_control(control).max_rate(Some(20_000_000)).build().expect("in range");
    let mut host = Host::new(config, 2);
    let mut peer: Peer = host.meet(1);
    let stream = host.with(|connection| connection.open_stream()).expect("allowed");
    let (mut written, mut acked, mut end) = (0, 0, 0);
    // The path of this peer takes 20 ms.
    let mut back: VecDeque<(u64, Vec<RangeInclusive<u64>>, u64)> = VecDeque::new();
    for milli in 0..seconds * 1_000 {
        if host.closed.is_empty() {
            written = host.write(stream, written);
        }
        let mut numbers = Vec::new();
        host.turn(|_, datagram| {
            let len = datagram.len() as u64 + 28;
            let Some((number, payload)) = peer.open(datagram) else { return };
            if claims(number, milli) {
                numbers.push(number);
                acked += len;
                for frame in Frames::new(payload).flatten() {
                    if let Frame::Source { id, .. } = frame {
                        end = end.max(id.0 + 1);
                    }
                }
            }
        });
        if !numbers.is_empty() {
            let received = numbers.iter().rev().map(|&number| number..=number).collect();
            back.push_back((milli + 20, merged(received), end));
        }
        host.wait(Duration::from_millis(1));
        while back.front().is_some_and(|(at, ..)| *at <= milli) {
            let Some((_, received, end)) = back.pop_front() else { break };
            let lane = LaneRepr {
                lane: 0,
                edge: SourceId(end),
                end: SourceId(end),
                deficit: 0,
                limit: SourceId(end + (1 << 20)),
                undecoded: &[],
                regions: &[],
            };
            let (delay, lanes) = (Duration::ZERO, &[lane]);
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
    }
    (host.with(|connection| connection.stats()).bytes.wire_sent, acked)
}

/// A peer that claims nothing gets a probe now and then. One that claims a part gets no more than one that
/// claims all, as an honest peer on a better path does, and a tenth opens the circuit breaker. The user's
/// limit is 20 Mbit/s.
#[test]
fn s10_false_arrivals_bring_no_more_than_an_honest_path() {
    const SECOND: u64 = 2_500_000;
    for text in ["share", "train", "aimd:1,80", "open"] {
        let control: RateControl = text.parse().expect("a control");
        let most = 10 * SECOND + 50_000;
        for (name, claims, most) in [
            ("all", (|_, _| true) as fn(u64, u64) -> bool, most),
            // The flight until the first probe timeout and a second of probes are over, and probes.
            ("none", |_, _| false, 5 * SECOND / 2),
            ("all for a second, then none", |_, milli| milli < 1_000, 5 * SECOND / 2),
            ("all and none in turns", |_, milli| milli / 500 % 2 == 0, most),
            ("half", |number, _| number % 2 == 0, most),
            // The first two seconds, of which a test takes a part, and half a megabit per second from then
            // on.
            ("a tenth", |number, _| number % 10 == 0, 3 * SECOND),
            ("all for a second, then a tenth", |number, milli| milli < 1_000 || number % 10 == 0, 4 * SECOND),
        ] {
            let (sent, acked) = claimed(control, 10, claims);
            println!("{text}, {name}: {sent} sent, {acked} claimed, {:.2}", sent as f64 / acked.max(1) as f64);
            assert!(sent <= most, "{text}, {name}: {sent} sent, {acked} claimed");
        }
    }
}
