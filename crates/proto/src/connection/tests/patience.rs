//! Which packets say that their FEEDBACK may wait.

use super::*;
use crate::connection::StreamId;

/// Lets `work` write and takes the packets that may be sent. Returns whether the FEEDBACK for each may wait.
/// The peer acknowledges all packets but those in `lost`.
fn send(us: &mut Connection, peer: &mut Peer, lost: &[u64], work: impl FnOnce(&mut Connection)) -> Vec<bool> {
    us.path.skip_at = Time::NEVER;
    work(us);
    let opened = peer.open(us);
    peer.wait(Duration::from_millis(10));
    if let Some(newest) = opened.last().map(|opened| opened.number) {
        let mut ranges: Vec<RangeInclusive<u64>> = Vec::new();
        for number in (0..=newest).rev().filter(|number| !lost.contains(number)) {
            match ranges.last_mut() {
                Some(range) if *range.start() == number + 1 => *range = number..=*range.end(),
                _ => ranges.push(number..=number),
            }
        }
        peer.acknowledge(us, &ranges);
    }
    peer.wait(Duration::from_millis(10));
    opened.iter().map(|opened| opened.may_wait).collect()
}

/// A connection of which enough packets were acknowledged, with a stream that is not at its end.
fn known() -> (Connection, Peer, StreamId) {
    let (mut us, mut peer) = connected(Config::default());
    let stream = us.open_stream().expect("allowed");
    for n in 0..100 {
        let waits = send(&mut us, &mut peer, &[], |us| assert_eq!(us.write(stream, &[7; 800]), Ok(800)));
        assert!(n > 60 || waits.iter().all(|waits| !waits), "nothing is known of the path after {n} packets");
    }
    (us, peer, stream)
}

#[test]
fn data_of_a_slow_flow_may_wait_and_the_end_of_a_stream_may_not() {
    let (mut us, mut peer, stream) = known();
    let data = |us: &mut Connection| assert_eq!(us.write(stream, &[7; 800]), Ok(800));
    assert_eq!(send(&mut us, &mut peer, &[], data), [true]);
    let other = us.open_stream().expect("allowed");
    let end = |us: &mut Connection| {
        us.write(other, b"end").expect("room");
        us.finish(other).expect("open");
    };
    assert_eq!(send(&mut us, &mut peer, &[], end), [false]);
    assert_eq!(send(&mut us, &mut peer, &[], data), [true]);
    assert_eq!(send(&mut us, &mut peer, &[], |us| us.reset(stream, 7).expect("open")), [false]);
}

#[test]
fn nothing_waits_on_a_path_with_losses_or_without_an_answer() {
    let (mut us, mut peer, stream) = known();
    let data = |us: &mut Connection| assert_eq!(us.write(stream, &[7; 800]), Ok(800));
    let next = us.path.flight.next_number();
    assert_eq!(send(&mut us, &mut peer, &[next], data), [true]);
    for _ in 0..4 {
        send(&mut us, &mut peer, &[next], data);
    }
    assert!(send(&mut us, &mut peer, &[next], data).iter().all(|waits| !waits));

    let (mut us, mut peer, stream) = known();
    us.write(stream, &[7; 800]).expect("room");
    peer.hear(&mut us);
    // The answer is late, so a probe leaves.
    peer.wait(Duration::from_secs(1));
    us.write(stream, &[7; 800]).expect("room");
    assert!(peer.open(&mut us).iter().all(|opened| !opened.may_wait));
}
