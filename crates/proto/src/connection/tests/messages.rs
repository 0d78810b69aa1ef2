//! Messages from a peer that divides them wrongly, skips symbols at will and fills all the memory it can.

use super::*;
use crate::connection::{LaneConfig, LaneError, LaneId, MessageError};
use crate::lane::STREAMS;
use crate::profile::Delivery;
use crate::wire::{LaneRepr, SymbolFrames};

/// A part of a message as a peer may write it.
fn part(begins: bool, ends: bool, data: &[u8]) -> SymbolFrame<'_> {
    SymbolFrame::Message { begins, ends, in_order: false, data }
}

fn in_order(begins: bool, ends: bool, data: &[u8]) -> SymbolFrame<'_> {
    SymbolFrame::Message { begins, ends, in_order: true, data }
}

/// The messages that can be taken, as text.
fn taken(us: &mut Connection) -> Vec<String> {
    std::iter::from_fn(|| us.take_message()).map(|message| String::from_utf8(message.data).expect("text")).collect()
}

#[test]
fn messages_come_as_soon_as_they_are_whole_or_in_order() {
    let (mut us, mut peer) = connected(Config::default());
    // Without order: the second message, from three symbols that arrived in reverse order, is delivered
    // before the first.
    peer.symbol_of(&mut us, (1, 4, 0), &[part(false, true, b"three"), part(true, true, b"four")]);
    peer.symbol_of(&mut us, (1, 3, 0), &[part(false, false, b"two")]);
    assert_eq!(taken(&mut us), ["four"]);
    peer.symbol_of(&mut us, (1, 2, 0), &[part(true, false, b"one")]);
    assert_eq!(taken(&mut us), ["onetwothree"]);
    peer.symbol_of(&mut us, (1, 1, 0), &[part(false, true, b"b")]);
    peer.symbol_of(&mut us, (1, 0, 0), &[part(true, true, b""), part(true, false, b"a")]);
    assert_eq!(taken(&mut us), ["", "ab"]);
    // In order: nothing is delivered before the missing symbol arrived or was skipped.
    peer.symbol_of(&mut us, (15, 1, 0), &[in_order(true, false, b"c")]);
    peer.symbol_of(&mut us, (15, 2, 0), &[in_order(false, true, b"d"), in_order(true, true, b"e")]);
    assert_eq!(taken(&mut us), [""; 0]);
    peer.symbol_of(&mut us, (15, 3, 1), &[in_order(true, true, b"f")]);
    assert_eq!(taken(&mut us), ["cd", "e", "f"]);
    assert_eq!((us.stats().messages.delivered, us.stats().messages.dropped, us.stats().symbols.expired), (7, 0, 1));
    assert_eq!(close_reason(&mut us), None);
}

#[test]
fn a_message_that_lost_a_part_is_not_delivered() {
    for order in [part, in_order] {
        let (mut us, mut peer) = connected(Config::default());
        peer.symbol_of(&mut us, (1, 0, 0), &[order(true, false, b"a")]);
        peer.symbol_of(&mut us, (1, 2, 0), &[order(false, true, b"c"), order(true, false, b"x")]);
        peer.symbol_of(&mut us, (1, 4, 0), &[order(false, true, b"z"), order(true, true, b"whole")]);
        peer.say(&mut us, &[Frame::Base { lane: 1, base: SourceId(4) }]);
        assert_eq!(taken(&mut us), ["whole"]);
        assert_eq!((us.stats().messages.dropped, us.stats().symbols.expired), (2, 2));
        // The missing part arrives too late.
        peer.symbol_of(&mut us, (1, 3, 3), &[order(false, false, b"y")]);
        assert_eq!((taken(&mut us).len(), close_reason(&mut us)), (0, None));
    }
}

#[test]
fn what_is_cut_wrongly_is_a_fault() {
    let cases: [&[SymbolFrame<'_>]; 4] = [
        &[part(true, true, b"a"), part(false, true, b"b")],
        &[part(true, false, b"a"), part(true, true, b"b")],
        &[SymbolFrame::Stop { stream: 0, code: 0 }],
        &[part(false, true, b"the first symbol goes on with nothing")],
    ];
    for frames in cases {
        let (mut us, mut peer) = connected(Config::default());
        peer.symbol_of(&mut us, (1, 0, 0), frames);
        assert_eq!(close_reason(&mut us), Some(CloseReason::Fault(CloseCode::Protocol)), "{frames:?}");
    }
    // Symbols that contradict their neighbours, in any order of arrival.
    let (whole, begins, ends) = (part(true, true, b""), part(true, false, b""), part(false, true, b""));
    for (first, second) in [(whole, ends), (begins, whole), (begins, begins)] {
        for order in [[(0, first), (1, second)], [(1, second), (0, first)]] {
            let (mut us, mut peer) = connected(Config::default());
            order.into_iter().for_each(|(id, frame)| peer.symbol_of(&mut us, (1, id, 0), &[frame]));
            assert_eq!(close_reason(&mut us), Some(CloseReason::Fault(CloseCode::Protocol)), "{order:?}");
        }
    }
    let messages_on_lane_0: fn(&mut Connection, &mut Peer) = |us, peer| peer.symbol(us, 0, &[part(true, true, b"a")]);
    let lane_16: fn(&mut Connection, &mut Peer) = |us, peer| peer.symbol_of(us, (16, 0, 0), &[part(true, true, b"a")]);
    for wrong in [messages_on_lane_0, lane_16] {
        let (mut us, mut peer) = connected(Config::default());
        wrong(&mut us, &mut peer);
        assert_eq!(close_reason(&mut us), Some(CloseReason::Fault(CloseCode::Protocol)));
    }
}

#[test]
fn a_base_beyond_the_credit_is_a_fault_and_costs_no_time() {
    for (lane, base, code) in
        [(1, 257, CloseCode::FlowControl), (1, 1 << 60, CloseCode::FlowControl), (0, 1, CloseCode::Protocol)]
    {
        let (mut us, mut peer) = connected(Config::default());
        peer.say(&mut us, &[Frame::Base { lane, base: SourceId(base) }]);
        assert_eq!(close_reason(&mut us), Some(CloseReason::Fault(code)), "{base}");
    }
    let (mut us, mut peer) = connected(Config::default());
    peer.say(&mut us, &[Frame::Base { lane: 1, base: SourceId(256) }]);
    assert_eq!((close_reason(&mut us), us.stats().symbols.expired), (None, 256));
}

#[test]
fn what_nobody_takes_is_bounded_and_the_oldest_goes_first() {
    let (mut us, mut peer) = connected(Config::default());
    for id in 0..2_000 {
        let text = format!("{id:1100}");
        peer.symbol_of(&mut us, (1, id, 0), &[part(true, true, text.as_bytes())]);
    }
    let stats = us.stats().messages;
    assert_eq!(stats.delivered + stats.dropped, 2_000);
    let left = taken(&mut us);
    assert_eq!((left.len() as u64, left[0].trim()), (stats.delivered, &*format!("{}", 2_000 - stats.delivered)));
    assert!(left.len() * 1_100 <= 1 << 20 && left.len() > 850, "{}", left.len());
    // Empty messages are bounded too.
    let frames = [part(true, true, b""); 500];
    (2_000..2_200).for_each(|id| peer.symbol_of(&mut us, (1, id, 0), &frames));
    assert!(taken(&mut us).len() <= (1 << 20) / 64);
    // A message that never ends is bounded too.
    let mut id = 0;
    peer.symbol_of(&mut us, (2, id, 0), &[part(true, false, &[0; 1_100])]);
    while matches!(us.state, State::Established { .. }) && id < 1_000 {
        id += 1;
        peer.symbol_of(&mut us, (2, id, 0), &[part(false, false, &[0; 1_100])]);
    }
    assert_eq!(close_reason(&mut us), Some(CloseReason::Fault(CloseCode::Protocol)));
    assert_eq!(id, (256 << 10) / 1_100);
}

#[test]
fn messages_share_symbols_or_fill_several_and_are_given_up_in_time() {
    let (mut us, mut peer) = connected(Config::default());
    let second = Duration::from_secs(1);
    let lane = us.open_lane(&LaneConfig::default()).expect("allowed");
    assert_eq!(us.send_message(peer.now, LaneId(lane.0 + 1), b"", second), Err(MessageError::UnknownLane));
    assert_eq!(us.send_message(peer.now, LaneId(STREAMS), b"", second), Err(MessageError::UnknownLane));
    let most = 256 << 10;
    let too_long = Err(MessageError::TooLong { len: most + 1, most });
    assert_eq!(us.send_message(peer.now, lane, &vec![0; most + 1], second), too_long);
    for len in [0, 10, 300, 1_100] {
        us.send_message(peer.now, lane, &vec![1; len], second).expect("room");
    }
    let sent: Vec<String> = (0..6).flat_map(|_| peer.frames(&mut us)).collect();
    assert_eq!(sent[..3], ["message of 0", "message of 10", "message of 300"]);
    assert_eq!(sent.len(), 5, "the last message is in two parts: {sent:?}");
    // The deadline passed before it was sent. The base passes its symbols, and is sent although there is
    // nothing else to send.
    let short = us.open_lane(&LaneConfig::default()).expect("allowed");
    us.send_message(peer.now, short, &[2; 5_000], Duration::from_millis(20)).expect("room");
    peer.wait(Duration::from_millis(100));
    (0..6).for_each(|_| drop(peer.frames(&mut us)));
    let stats = us.stats().messages;
    assert_eq!((stats.sent, stats.expired), (5, 1), "{stats:?}");
    assert!(stats.expired_symbols >= 4, "{stats:?}");
    let base_was_said = |us: &Connection, lane: LaneId| {
        let sender = &us.lanes.get(lane.0).expect("open").sender;
        sender.base() == sender.sent() && sender.is_base_news() && !sender.owes_base()
    };
    assert!(base_was_said(&us, short) && !base_was_said(&us, lane));
    peer.wait(second);
    (0..6).for_each(|_| drop(peer.frames(&mut us)));
    assert_eq!(us.stats().messages.expired, 5, "nothing was acknowledged");
    assert!(base_was_said(&us, lane));
}

/// Sends everything that may be sent, then asks for a probe. Returns what the probe carries.
fn asked_for(us: &mut Connection, peer: &mut Peer) -> Carried {
    peer.wait(Duration::from_millis(20));
    peer.hear(us);
    us.path.pto.probe_owed = true;
    let number = peer.hear(us)[0];
    us.path.flight.get(number).expect("just sent").carried
}

#[test]
fn a_silence_asks_for_the_oldest_symbol_of_the_streams_then_of_the_messages_then_for_a_base() {
    let (mut us, mut peer) = connected(Config::default());
    let again = |lane| Carried::Data(Data::Source { lane, id: SourceId(0), again: true });
    assert_eq!(asked_for(&mut us, &mut peer), Carried::Control, "nothing is lacking");
    let lifetimes = [300, 9_999, 9_999].map(Duration::from_millis);
    let lanes = lifetimes.map(|_| us.open_lane(&LaneConfig::default()).expect("allowed"));
    // The lane with the highest number has the oldest symbol.
    for (&lane, lifetime) in lanes.iter().zip(lifetimes).rev() {
        us.send_message(peer.now, lane, &[1; 500], lifetime).expect("room");
        peer.wait(Duration::from_millis(20));
        peer.hear(&mut us);
    }
    assert_eq!(asked_for(&mut us, &mut peer), again(lanes[2].0));
    let stream = us.open_stream().expect("allowed");
    us.write(stream, b"a key stroke").expect("room");
    assert_eq!(asked_for(&mut us, &mut peer), again(0), "the streams' symbol is newer, but it is never given up");
    let carried = |us: &Connection, lane| {
        let of = |carried| matches!(carried, Carried::Data(Data::Source { lane: of, .. }) if of == lane);
        us.path.flight.iter_from(0).find(|(_, sent)| of(sent.carried)).expect("sent").0
    };
    for lane in [0, lanes[2].0, lanes[1].0] {
        assert_eq!(asked_for(&mut us, &mut peer), again(lane));
        let number = carried(&us, lane);
        peer.acknowledge(&mut us, &[number..=number]);
    }
    // The message was given up, and the packet that said so was not acknowledged.
    peer.wait(Duration::from_millis(300));
    assert_eq!(asked_for(&mut us, &mut peer), Carried::Data(Data::Base { lane: lanes[0].0 }));
}

#[test]
fn a_lane_without_room_says_when_there_is_some() {
    let (mut us, mut peer) = connected(Config::default());
    let lane = us.open_lane(&LaneConfig::default()).expect("allowed");
    let mut taken = 0;
    while us.send_message(peer.now, lane, &[0; 200_000], Duration::from_secs(1)).is_ok() {
        taken += 1;
    }
    assert!((3..=10).contains(&taken), "{taken} of 200 kB in a ring of 2 MiB");
    let writable =
        |us: &mut Connection| std::iter::from_fn(|| us.poll_event()).any(|it| it == Event::LaneWritable(lane));
    assert!(!writable(&mut us));
    peer.wait(Duration::from_secs(2));
    us.handle_timeout(peer.now);
    assert!(!writable(&mut us), "the base cannot pass symbols beyond the peer's credit");
    let (edge, limit) = (SourceId(0), SourceId(9_999));
    let lanes = &[LaneRepr { lane: lane.0, edge, end: edge, deficit: 0, limit, undecoded: &[], regions: &[] }];
    let (delay, received) = (Duration::ZERO, &[][..]);
    let feedback =
        FeedbackRepr { received, delay, arrival: None, ecn: None, stream_credit: None, lanes, elicits: false };
    peer.write(&mut us, |w| feedback.emit(w).expect("room"));
    us.handle_timeout(peer.now);
    assert!(writable(&mut us));
    assert_eq!(us.stats().messages.expired, taken);
    for _ in 1..15 {
        us.open_lane(&LaneConfig::default()).expect("allowed");
    }
    assert_eq!(us.open_lane(&LaneConfig::default()), Err(LaneError::Limit));
}

/// The lane holds what leaves within the time, and no more; the application keeps the rest.
#[test]
fn issue_18_a_lane_with_a_queue_takes_messages_as_it_sends_them() {
    let (mut us, mut peer) = connected(Config::builder().max_rate(Some(1_000_000)).build().expect("in range"));
    let config = LaneConfig { queue: Some(Duration::from_millis(1)), ..LaneConfig::default() };
    let lane = us.open_lane(&config).expect("allowed");
    let send = |us: &mut Connection, now| us.send_message(now, lane, &[0; 1_000], Duration::from_secs(1));
    let mut taken = 0;
    while us.has_room(peer.now, lane, 1_000) {
        send(&mut us, peer.now).expect("it has room");
        taken += 1;
    }
    assert_eq!(taken, 2, "two symbols are always allowed");
    assert_eq!(send(&mut us, peer.now), Err(MessageError::Blocked));
    let writable =
        |us: &mut Connection| std::iter::from_fn(|| us.poll_event()).any(|it| it == Event::LaneWritable(lane));
    assert!(!writable(&mut us));
    peer.hear(&mut us);
    assert!(writable(&mut us) && us.has_room(peer.now, lane, 1_000));
}

#[test]
fn issue_18_the_ring_of_a_lane_is_a_setting() {
    let taken = |memory| {
        let (mut us, peer) = connected(Config::builder().message_memory(memory).build().expect("in range"));
        let lane = us.open_lane(&LaneConfig::default()).expect("allowed");
        (0..).take_while(|_| us.send_message(peer.now, lane, &[0; 200_000], Duration::from_secs(9)).is_ok()).count()
    };
    let (usual, wide) = (taken(2 << 20), taken(32 << 20));
    // A ring has a power of two of symbols.
    assert!((5..=10).contains(&usual) && (80..=160).contains(&wide), "{usual} {wide}");
}

#[test]
fn issue_18_a_message_can_have_another_delivery_than_its_lane() {
    let (mut us, mut peer) = connected(Config::default());
    let lane = us.open_lane(&LaneConfig::default()).expect("allowed");
    for (id, delivery) in [(0, Delivery::AsComplete), (1, Delivery::InOrder)] {
        us.send_message_as(peer.now, lane, b"x", Duration::from_secs(1), delivery).expect("room");
        peer.hear(&mut us);
        let symbol = us.lanes.get(lane.0).and_then(|lane| lane.sender.symbol(SourceId(id))).expect("sent");
        let (_, mut frames) = SymbolFrames::new(symbol).expect("well formed");
        let expected =
            SymbolFrame::Message { begins: true, ends: true, in_order: delivery == Delivery::InOrder, data: b"x" };
        assert_eq!(frames.next(), Some(Ok(expected)));
        peer.wait(Duration::from_millis(20));
    }
}

#[test]
fn a_lane_slides_where_its_own_redundancy_mixes_any_span() {
    let (mut us, _) = connected(Config::builder().profile(crate::profile::block(32, 8)).build().expect("in range"));
    for (text, layout) in [(None, Layout::Generations), (Some("every:5"), Layout::Sliding)] {
        let redundancy = text.map(|text| text.parse().expect("a redundancy"));
        let lane = us.open_lane(&LaneConfig { redundancy, ..LaneConfig::default() }).expect("a lane is free");
        assert_eq!(us.lanes.get(lane.0).map(|lane| lane.sender.layout()), Some(layout), "{text:?}");
    }
}
