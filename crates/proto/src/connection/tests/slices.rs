//! Symbols in parts, from a peer that may send them wrongly, and packets that the system refuses to send.

use super::*;
use crate::connection::{SendFailure, Transmit};
use crate::path::BASE_DATAGRAM;

/// A symbol that carries the first bytes of stream 0.
fn symbol(data: &[u8]) -> Vec<u8> {
    let mut symbol = vec![0; 1_400];
    let mut w = Writer::resume(&mut symbol, SYMBOL_HEADER_LEN);
    SymbolFrame::Stream { stream: 0, offset: 0, fin: true, data, data_at: 0 }.emit(&mut w).expect("room");
    let len = w.len();
    symbol.truncate(len);
    SymbolHeader { length: len as u16, time: 0 }.emit(&mut symbol).expect("room");
    symbol
}

fn slice(id: u64, offset: usize, total: usize, bytes: &[u8]) -> Frame<'_> {
    Frame::Slice { lane: 0, layout: Layout::Sliding, id: SourceId(id), offset, total, bytes }
}

#[test]
fn a_symbol_in_parts_is_read_once_it_is_whole() {
    let (mut us, mut peer) = connected(Config::default());
    let (data, mut read) = (vec![7; 1_200], [0; 2_000]);
    let symbol = symbol(&data);
    let (total, half) = (symbol.len(), symbol.len() / 2);
    peer.say(&mut us, &[slice(0, half, total, &symbol[half..])]);
    assert_eq!(us.poll_event(), None);
    peer.say(&mut us, &[slice(0, 0, total, &symbol[..half])]);
    let Some(Event::StreamOpened(stream)) = us.poll_event() else { panic!("its first bytes open the stream") };
    assert_eq!(us.read(peer.now, stream, &mut read).expect("bytes"), data.len());
    peer.say(&mut us, &[slice(0, 0, total, &symbol[..half])]);
    assert_eq!((us.stats().symbols.resent, us.stats().packets.redundant, close_reason(&mut us)), (1, 1, None));
}

#[test]
fn parts_that_no_honest_peer_sends_end_the_connection() {
    let beyond = u64::from(Parameters::default().lane_credit);
    for (parts, code) in [
        (vec![slice(beyond, 0, 10, &[0])], CloseCode::FlowControl),
        (vec![slice(0, 0, 65_000, &[0])], CloseCode::Protocol),
        (vec![slice(0, 0, 300, &[0; 255])], CloseCode::Protocol),
        (vec![slice(0, 0, 300, &[0; 256]), slice(0, 0, 300, &[1; 256])], CloseCode::Protocol),
        (vec![slice(0, 0, 300, &[0; 256]), slice(0, 256, 301, &[0; 45])], CloseCode::Protocol),
        // Complete, but not a valid symbol.
        (vec![slice(0, 0, 2, &[0, 9])], CloseCode::Malformed),
    ] {
        let (mut us, mut peer) = connected(Config::default());
        peer.say(&mut us, &parts);
        assert_eq!(close_reason(&mut us), Some(CloseReason::Fault(code)), "{parts:?}");
    }
}

/// Makes every packet sent now fail with `failure`. Returns the number of datagrams and the longest one.
fn refuse(us: &mut Connection, peer: &mut Peer, failure: SendFailure) -> (u64, usize) {
    let mut buffer = [0; DATAGRAM];
    let (mut count, mut longest) = (0, 0);
    us.handle_timeout(peer.now);
    while let Some(transmit) = us.poll_transmit(peer.now, 1, &mut buffer) {
        us.handle_send_failure(peer.now, &transmit, failure);
        (count, longest) = (count + 1, longest.max(transmit.len));
        assert!(count < 1_000, "a busy loop");
    }
    let timer = us.poll_timeout();
    assert!(timer.is_none_or(|(at, _)| at > peer.now), "{timer:?} is not after {:?}", peer.now);
    (count, longest)
}

/// A connection that sends datagrams of the full size.
fn raised() -> (Connection, Peer) {
    let (mut us, mut peer) = connected(Config::default());
    for _ in 0..20 {
        let newest = peer.hear(&mut us).last().copied();
        peer.wait(Duration::from_millis(20));
        if let Some(newest) = newest {
            peer.acknowledge(&mut us, &[newest..=newest]);
        }
    }
    assert_eq!(usize::from(us.stats().datagram_size), DATAGRAM);
    (us, peer)
}

/// Row S11 of docs/survival.md.
#[test]
fn s11_a_refused_packet_is_counted_lost_and_sent_again() {
    let (mut us, mut peer) = raised();
    let stream = us.open_stream().expect("allowed");
    us.write(stream, &[7; 1_000]).expect("room");
    peer.wait(Duration::from_millis(50));
    let (refused, _) = refuse(&mut us, &mut peer, SendFailure::Other);
    assert_eq!((us.stats().packets.refused, us.stats().datagram_size), (refused, 1_472));
    assert!(refused > 0);
    // A minute without a route is handled like a minute of silence.
    let mut failed = 0;
    for _ in 0..500 {
        peer.wait(Duration::from_millis(100));
        failed += refuse(&mut us, &mut peer, SendFailure::Other).0;
    }
    assert!((40..250).contains(&failed), "{failed} datagrams in 50 s");
    let mut again = 0;
    for _ in 0..20 {
        peer.wait(Duration::from_millis(100));
        again += peer.hear(&mut us).len();
    }
    assert!(again > 0 && close_reason(&mut us).is_none());
}

#[test]
fn s11_a_refused_size_is_left_and_what_was_numbered_goes_in_parts() {
    let (mut us, mut peer) = raised();
    let stream = us.open_stream().expect("allowed");
    us.write(stream, &[7; 1_300]).expect("room");
    peer.wait(Duration::from_millis(50));
    let (_, longest) = refuse(&mut us, &mut peer, SendFailure::TooLong);
    assert!(longest > usize::from(BASE_DATAGRAM), "{longest}");
    assert_eq!(us.stats().datagram_size, BASE_DATAGRAM);
    let (mut buffer, mut parts) = ([0; DATAGRAM], Vec::new());
    for _ in 0..20 {
        peer.wait(Duration::from_millis(100));
        us.handle_timeout(peer.now);
        while let Some(transmit) = us.poll_transmit(peer.now, 1, &mut buffer) {
            let opened = peer.opening.open(0, &mut buffer[..transmit.len]).expect("authentic");
            let payload = buffer[opened.payload].to_vec();
            for frame in Frames::new(&payload) {
                match frame.expect("well formed") {
                    Frame::Slice { offset, bytes, .. } => parts.push((offset, bytes.len())),
                    Frame::Source { symbol, .. } => panic!("{} bytes of symbol at once", symbol.len()),
                    _ => {}
                }
            }
            peer.acknowledge(&mut us, &[opened.number..=opened.number]);
        }
    }
    let [(0, first), (second, rest)] = parts[..] else { panic!("{parts:?}") };
    assert!(first == second && first + rest > 1_300, "{parts:?}");
    assert_eq!(us.lanes.streams.sender.base(), us.lanes.streams.sender.sent(), "both parts were acknowledged");
}

#[test]
fn a_refusal_on_another_way_says_nothing_of_this_one() {
    let (mut us, peer) = raised();
    let elsewhere = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 7_700));
    let transmit = Transmit { destination: elsewhere, source: None, ecn: None, len: 63, segment_size: None };
    us.handle_send_failure(peer.now, &transmit, SendFailure::TooLong);
    assert_eq!((us.stats().packets.refused, us.stats().datagram_size), (1, 1_472));
}
