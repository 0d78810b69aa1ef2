//! Hosts that read late, and what their full sockets drop.

use super::*;
use crate::endpoint::{Endpoint, EndpointConfig};

/// Every fourth packet is lost; `drops` of them at the peer's host.
fn lose_a_quarter(drops: u64) -> (Connection, Peer) {
    let (mut us, mut peer) = connected(Config::default());
    peer.wait(Duration::from_millis(20));
    let first = peer.hear(&mut us).last().map_or(0, |last| last + 1);
    peer.acknowledge(&mut us, &[0..=first.saturating_sub(1)]);
    let stream = us.open_stream().expect("allowed");
    let (mut newest, mut received) = (0, Vec::new());
    for _ in 0..50 {
        // Without a lane report the ring fills up.
        let _ = us.write(stream, &[1; 4_800]);
        peer.wait(Duration::from_millis(20));
        let numbers = peer.hear(&mut us);
        newest = numbers.iter().copied().max().unwrap_or(newest);
        received.extend(numbers.into_iter().filter(|number| number % 4 != 3));
        let mut ranges: Vec<RangeInclusive<u64>> = Vec::new();
        for &number in received.iter().rev().take(60) {
            match ranges.last_mut() {
                Some(range) if *range.start() == number + 1 => *range = number..=*range.end(),
                _ => ranges.push(number..=number),
            }
        }
        let delay = Duration::ZERO;
        let feedback = FeedbackRepr {
            received: &ranges,
            delay,
            arrival: None,
            ecn: None,
            stream_credit: None,
            lanes: &[],
            elicits: false,
        };
        peer.write(&mut us, |w| {
            if drops > 0 {
                Frame::HostDrops(drops.min(newest / 4)).emit(w).expect("room");
            }
            feedback.emit(w).expect("room");
        });
    }
    (us, peer)
}

/// Losses that the peer's host explains are no losses of the path, so no redundancy answers them.
#[test]
fn what_the_peers_host_drops_says_nothing_about_the_path() {
    let (us, _) = lose_a_quarter(0);
    let path = us.stats();
    assert!(path.packets.lost > 20 && path.loss.recent > 0.1, "{path:?}");
    let (us, _) = lose_a_quarter(u64::MAX);
    let host = us.stats();
    assert_eq!((host.packets.lost, host.loss.recent), (0, 0.0), "{host:?}");
    assert!(host.loss.at_own_rate.packets > 8, "{host:?}");
    assert!(us.pacing() < 100_000, "{} bytes a second", us.pacing());
}

/// Of the packets that are missing, as many are reported as the host has dropped. FEEDBACK repeats the count.
#[test]
fn missing_packets_are_reported_up_to_what_the_host_dropped() {
    let (mut us, mut peer) = connected(Config::default());
    for (skipped, dropped, left, reported) in [(3, 5, 2, 3), (4, 2, 0, 5), (4, 0, 0, 5), (0, 7, 7, 5)] {
        peer.next += skipped;
        let mut datagram = [0; DATAGRAM];
        let mut w = Writer::new(&mut datagram);
        write_short_header(&mut w, peer.us, peer.next, 0).expect("room");
        Frame::Ping.emit(&mut w).expect("room");
        let len = w.len() + TAG_LEN;
        peer.sealing.seal(0, peer.next, &mut datagram[..len]).expect("sealed");
        peer.next += 1;
        peer.wait(Duration::from_millis(50));
        let mut count = dropped;
        let received = Received { at: peer.now, from: peer.from, to: None, ecn: None, datagram: &mut datagram[..len] };
        us.handle_datagram_after(received, &mut count);
        assert_eq!(count, left);
        let mut buffer = [0; DATAGRAM];
        us.handle_timeout(peer.now);
        let mut said = Vec::new();
        while let Some(transmit) = us.poll_transmit(peer.now, 1, &mut buffer) {
            let opened = peer.opening.open(0, &mut buffer[..transmit.len]).expect("authentic");
            let frames = Frames::new(&buffer[opened.payload]).map(|frame| frame.expect("well formed"));
            said.extend(frames.filter_map(|frame| match frame {
                Frame::HostDrops(packets) => Some(packets),
                _ => None,
            }));
        }
        assert_eq!(said, [reported]);
    }
}

/// An end that has not read its socket takes nothing for silence: it neither probes nor gives up. Once it has
/// read, it does.
#[test]
fn what_is_unread_is_no_silence() {
    let end = |listen, seed| {
        let credentials = Secret::new([7; 32]).into();
        let (connection, provider) = (Config::default(), Arc::new(AwsLc));
        Endpoint::new(EndpointConfig { credentials, listen, connection, provider }, [seed; 32])
    };
    let (mut near, mut far, mut now) = (end(false, 1), end(true, 2), Time::from_millis(1));
    let handle = near.connect(now, address()).expect("a secret needs no key");
    let mut buffer = [0; DATAGRAM];
    let mut carry = |from: &mut Endpoint, to: Option<&mut Endpoint>, now: Time| {
        let mut count = 0;
        let mut to = to;
        while let Some(transmit) = from.poll_transmit(now, 1, &mut buffer) {
            count += 1;
            let datagram = &mut buffer[..transmit.len];
            if let Some(to) = &mut to {
                to.handle_datagram(Received { at: now, from: address(), to: None, ecn: None, datagram });
            }
        }
        count
    };
    for _ in 0..40 {
        carry(&mut near, Some(&mut far), now);
        carry(&mut far, Some(&mut near), now);
        now += Duration::from_millis(10);
        near.handle_timeout(now);
        far.handle_timeout(now);
        while near.poll_event().is_some() || far.poll_event().is_some() {}
    }
    let us = near.connection_mut(handle).expect("connected");
    let stream = us.open_stream().expect("allowed");
    us.write(stream, &[1; 1_200]).expect("room");
    near.handle_read(now);
    assert!(carry(&mut near, None, now) > 0, "the symbol leaves");
    // The timers of the next two seconds, and the end of a silent connection.
    for later in [20, 50, 100, 500, 1_000, 2_000] {
        let late = now + Duration::from_millis(later);
        near.handle_timeout(late);
        let sent = near.connection(handle).map(|us| us.stats().packets.control);
        carry(&mut near, None, late);
        assert_eq!(near.connection(handle).map(|us| us.stats().packets.control), sent, "{later} ms late");
    }
    near.handle_timeout(now + Duration::from_secs(3_600));
    assert_eq!(near.poll_event(), None);
    near.handle_read(Time::NEVER);
    let late = now + Duration::from_secs(2);
    near.handle_timeout(late);
    assert!(carry(&mut near, None, late) > 0, "a probe");
}
