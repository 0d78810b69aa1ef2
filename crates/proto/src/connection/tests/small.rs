//! Small writes share packets if they follow each other quickly, and are sent at once otherwise.

use super::*;
use crate::connection::{StreamId, WakeReason};

/// Writes `len` bytes and takes the packets that may be sent. Returns how many source symbols were sent.
fn write(us: &mut Connection, peer: &mut Peer, stream: StreamId, len: usize) -> u64 {
    let before = us.stats().packets.source;
    assert_eq!(us.write(stream, &vec![7; len]), Ok(len));
    peer.hear(us);
    us.stats().packets.source - before
}

#[test]
fn a_key_stroke_after_a_pause_leaves_in_the_same_poll() {
    let (mut us, mut peer) = connected(Config::default());
    let stream = us.open_stream().expect("connected");
    for pause_us in [0, 1_000, 5_000, 90_000, 700_000] {
        peer.wait(Duration::from_micros(pause_us));
        assert_eq!(write(&mut us, &mut peer, stream, 1), 1, "after {pause_us} us");
    }
}

#[test]
fn writes_that_follow_within_a_millisecond_share_a_packet() {
    let (mut us, mut peer) = connected(Config::default());
    let stream = us.open_stream().expect("connected");
    assert_eq!(write(&mut us, &mut peer, stream, 20), 1);
    let first = peer.now;
    for _ in 0..9 {
        peer.wait(Duration::from_micros(100));
        assert_eq!(write(&mut us, &mut peer, stream, 20), 0, "held");
        assert_eq!(us.poll_timeout(), Some((first + Duration::from_millis(1), WakeReason::Coalesce)));
    }
    peer.wait(Duration::from_micros(100));
    peer.hear(&mut us);
    assert_eq!(us.stats().packets.source, 2, "nine writes in one packet");
    // A symbol that is half full is not held, because waiting saves little.
    assert_eq!(write(&mut us, &mut peer, stream, 700), 1);
}

#[test]
fn the_end_of_a_record_that_is_longer_than_a_packet_leaves_with_it() {
    let (mut us, mut peer) = connected(Config::default());
    let stream = us.open_stream().expect("connected");
    for _ in 0..5 {
        assert_eq!(write(&mut us, &mut peer, stream, 1_500), 2);
        peer.wait(Duration::from_millis(2));
    }
}

#[test]
fn a_stated_latency_of_a_millisecond_holds_nothing_for_longer_than_a_quarter_of_it() {
    let latency = Some(Duration::from_millis(1));
    let (mut us, mut peer) = connected(Config::builder().latency(latency).build().expect("in range"));
    let stream = us.open_stream().expect("connected");
    assert_eq!(write(&mut us, &mut peer, stream, 20), 1);
    peer.wait(Duration::from_micros(240));
    assert_eq!(write(&mut us, &mut peer, stream, 20), 0);
    peer.wait(Duration::from_micros(10));
    assert_eq!(write(&mut us, &mut peer, stream, 20), 1);
}

#[test]
fn who_writes_once_a_round_trip_is_never_held_however_short_that_is() {
    let (mut us, mut peer) = connected(Config::default());
    let stream = us.open_stream().expect("connected");
    let mut asked = 0;
    for _ in 0..200 {
        asked += write(&mut us, &mut peer, stream, 20);
        peer.wait(Duration::from_micros(200));
        let newest = us.path.flight.next_number() - 1;
        peer.acknowledge(&mut us, &[0..=newest]);
        peer.hear(&mut us);
    }
    // Before the first round trip is measured, a write may be held.
    assert!(asked >= 198, "{asked}");
}
