//! Streams against a peer that resets, stops and floods at will.

use super::*;
use crate::connection::{ReadError, StreamId, WriteError};
use crate::wire::SymbolFrame;

fn data(stream: u64, offset: u64, fin: bool, data: &[u8]) -> SymbolFrame<'_> {
    SymbolFrame::Stream { stream, offset, fin, data, data_at: 0 }
}

fn reset(stream: u64, last: u64) -> SymbolFrame<'static> {
    SymbolFrame::Reset { stream, code: 9, last }
}

fn stop(stream: u64) -> SymbolFrame<'static> {
    SymbolFrame::Stop { stream, code: 8 }
}

/// Number of streams kept, both the peer's and ours.
fn held(us: &Connection) -> usize {
    us.streams.len()
}

#[test]
fn a_reset_is_read_with_its_code_and_the_stream_is_forgotten_with_its_last_byte() {
    let (mut us, mut peer) = connected(Config::default());
    peer.symbol(&mut us, 0, &[data(0, 0, false, b"abc"), reset(0, 10)]);
    let id = StreamId(0);
    assert_eq!(us.chunk(id), Err(ReadError::Reset(9)));
    us.finish(id).expect("the other half is open");
    assert_eq!(held(&us), 1, "7 bytes are on their way");
    peer.symbol(&mut us, 1, &[data(0, 3, false, b"defghij")]);
    assert_eq!((held(&us), us.chunk(id)), (0, Err(ReadError::UnknownStream)));
    // Frames that crossed the end in flight have no effect. Bytes that arrive twice are a fault.
    peer.symbol(&mut us, 2, &[reset(0, 10), stop(0)]);
    assert_eq!(close_reason(&mut us), None);
    peer.symbol(&mut us, 3, &[data(0, 3, false, b"d")]);
    assert_eq!(close_reason(&mut us), Some(CloseReason::Fault(CloseCode::Protocol)));
}

#[test]
fn what_contradicts_a_reset_is_a_fault() {
    let window = Config::default().stream_window();
    let cases: [(&[SymbolFrame<'_>], CloseCode); 8] = [
        (&[reset(0, window + 1)], CloseCode::FlowControl),
        (&[data(0, 0, false, b"abc"), reset(0, 2)], CloseCode::Protocol),
        (&[data(0, 0, true, b"abc"), reset(0, 4)], CloseCode::Protocol),
        (&[reset(0, 4), data(0, 2, false, b"abc")], CloseCode::Protocol),
        (&[reset(0, 4), reset(0, 4)], CloseCode::Protocol),
        (&[stop(0), stop(0)], CloseCode::Protocol),
        (&[stop(1)], CloseCode::Protocol),
        (&[reset(2 * 128, 0)], CloseCode::TooManyStreams),
    ];
    for (frames, code) in cases {
        let (mut us, mut peer) = connected(Config::default());
        peer.symbol(&mut us, 0, frames);
        assert_eq!(close_reason(&mut us), Some(CloseReason::Fault(code)), "{frames:?}");
    }
}

#[test]
fn what_was_not_sent_of_a_reset_stream_is_withdrawn_and_of_others_is_not() {
    let (mut us, mut peer) = connected(Config::default());
    let (kept, given_up) = (us.open_stream().expect("allowed"), us.open_stream().expect("allowed"));
    us.write(given_up, &[1; 100]).expect("room");
    assert_eq!(peer.frames(&mut us), ["3: 100 from 0"]);
    us.write(given_up, &[2; 200]).expect("room");
    us.write(kept, &[3; 50]).expect("room");
    us.write(given_up, &[4; 1_500]).expect("room");
    us.write(kept, &[5; 60]).expect("room");
    us.reset(given_up, 5).expect("open");
    assert_eq!(us.write(given_up, b"x"), Err(WriteError::Finished));
    us.write(kept, &[6; 70]).expect("room");
    assert_eq!(peer.frames(&mut us), ["1: 50 from 0", "1: 60 from 50", "3: reset 5 at 100", "1: 70 from 110"]);
    assert_eq!(us.reset(given_up, 6), Err(WriteError::Finished));
}

#[test]
fn a_stopped_stream_is_given_up_and_its_writer_told_once() {
    let (mut us, mut peer) = connected(Config::default());
    let id = us.open_stream().expect("allowed");
    us.write(id, b"abc").expect("room");
    assert_eq!(peer.frames(&mut us), ["1: 3 from 0"]);
    us.write(id, b"def").expect("room");
    peer.symbol(&mut us, 0, &[stop(1), data(1, 0, true, b"")]);
    assert_eq!(peer.frames(&mut us), ["1: reset 8 at 3"]);
    assert_eq!(us.poll_event(), Some(Event::Readable(id)));
    assert_eq!(us.poll_event(), Some(Event::Writable(id)));
    assert_eq!(us.chunk(id), Ok(&[][..]));
    assert_eq!(us.write(id, b"x"), Err(WriteError::Stopped(8)));
    us.consume(peer.now, id, 0);
    assert_eq!((held(&us), us.write(id, b"x")), (0, Err(WriteError::Finished)));
}

#[test]
fn a_stop_of_ours_is_said_once_and_only_where_more_may_come() {
    let (mut us, mut peer) = connected(Config::default());
    peer.symbol(&mut us, 0, &[data(0, 0, false, b"abc"), data(2, 0, true, b"abc"), reset(4, 0)]);
    for stream in [0, 2, 4] {
        us.stop(StreamId(stream), 6).expect("open");
        us.finish(StreamId(stream)).expect("room");
    }
    us.stop(StreamId(0), 6).expect("still there");
    assert_eq!(peer.frames(&mut us), ["0: stop 6", "0: 0 from 0, end", "2: 0 from 0, end", "4: 0 from 0, end"]);
    assert_eq!((held(&us), us.chunk(StreamId(0))), (1, Err(ReadError::UnknownStream)));
    peer.symbol(&mut us, 1, &[reset(0, 3)]);
    assert_eq!(held(&us), 0);
}

#[test]
fn a_flood_of_resets_and_stops_costs_no_memory() {
    let config = Config::builder().max_streams(16).build().expect("in range");
    let (mut us, mut peer) = connected(config);
    // The application neither accepts streams nor answers on them. Only sixteen streams are kept, whatever
    // arrives for them and for closed ones.
    peer.symbol(&mut us, 0, &[reset(30, 0)]);
    for n in 0..15 {
        peer.symbol(&mut us, n + 1, &[reset(2 * n, 0), stop(2 * n)]);
    }
    assert_eq!((held(&us), close_reason(&mut us)), (16, None));
    peer.symbol(&mut us, 16, &[reset(32, 0)]);
    assert_eq!(close_reason(&mut us), Some(CloseReason::Fault(CloseCode::TooManyStreams)));
    // The application closes each stream at once. Each then allows one more stream, and nothing is kept.
    let (mut us, mut peer) = connected(Config::default());
    for n in 0..100 {
        let id = StreamId(2 * n);
        peer.symbol(&mut us, n, &[reset(id.0, 0), stop(id.0)]);
        assert_eq!(us.chunk(id), Err(ReadError::Reset(9)));
        assert_eq!(us.finish(id), Err(WriteError::Stopped(8)));
        let _ = peer.frames(&mut us);
        assert_eq!(held(&us), 0);
    }
}

#[test]
fn windows_widen_together_no_further_than_their_bound() {
    let config = Config::builder().stream_window(1 << 20).max_streams(64).build().expect("in range");
    let (mut us, mut peer) = connected(config);
    let mut next = 0;
    for stream in (0..128).step_by(2) {
        // Each reader keeps up with 4 MiB within a round trip, which widens its window to the maximum.
        let mut offset = 0;
        while offset < 4 << 20 {
            peer.symbol(&mut us, next, &[data(stream, offset, false, &[0; 1_100])]);
            next += 1;
            us.consume(peer.now, StreamId(stream), 1_100);
            offset += 1_100;
        }
        while us.poll_event().is_some() {}
    }
    let total: u64 = us.streams.windows().sum();
    assert!(total > 100 << 20 && total <= (64 << 20) + 64 * (1 << 20), "{total}");
}

#[test]
fn a_window_widens_only_while_there_is_memory() {
    let widened = |spare: usize| {
        let config = Config::builder().stream_window(1 << 20).build().expect("in range");
        let (mut us, mut peer) = connected(config);
        us.allow_memory(spare);
        for n in 0..4_000 {
            peer.symbol(&mut us, n, &[data(0, 1_100 * n, false, &[0; 1_100])]);
            us.consume(peer.now, StreamId(0), 1_100);
        }
        us.streams.windows().sum::<u64>() - (1 << 20)
    };
    assert_eq!((widened(0), widened(3 << 20)), (0, 3 << 20));
    assert!(widened(usize::MAX) > 3 << 20);
}
