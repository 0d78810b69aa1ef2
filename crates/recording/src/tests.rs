//! What is written is read again, and whatever else a file holds is refused with its place.

use core::time::Duration;
use std::net::SocketAddr;

use proptest::prelude::*;
use tidewire_codec::SourceId;
use tidewire_proto::connection::{CloseCode, CloseReason, LaneId, Side, StreamId};
use tidewire_proto::endpoint::ConnectionHandle;
use tidewire_proto::profile::{ARQ, Profile, block};
use tidewire_proto::redundancy::plan::{Conditions, Nearest, Plan, Planned, Target};
use tidewire_proto::trace::{Choices, PacketContent, SymbolOrigin, TraceEvent};

use super::{Entry, Header, Item, ReadError, Reader, WriteError, Writer};

const LIMIT: u64 = 1 << 30;

fn header() -> Header {
    Header::new("0.1.0", "bench", 1_800_000_000_000)
}

fn written(entries: &[Entry]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header(), LIMIT).unwrap();
    entries.iter().for_each(|entry| writer.push(entry).unwrap());
    writer.end().unwrap()
}

fn read(file: &[u8]) -> (Vec<Item>, Option<ReadError>) {
    match Reader::open(file) {
        Ok(mut reader) => reader.read_all(),
        Err(error) => (Vec::new(), Some(error)),
    }
}

fn micros() -> impl Strategy<Value = Duration> {
    prop_oneof![0..5_000u64, any::<u64>()].prop_map(Duration::from_micros)
}

fn lane() -> impl Strategy<Value = LaneId> {
    (0..16u32).prop_map(LaneId)
}

fn id() -> impl Strategy<Value = SourceId> {
    prop_oneof![0..100u64, any::<u64>()].prop_map(SourceId)
}

fn content() -> impl Strategy<Value = PacketContent> {
    prop_oneof![
        Just(PacketContent::Control),
        Just(PacketContent::SizeProbe),
        lane().prop_map(|lane| PacketContent::Base { lane }),
        (lane(), id(), any::<bool>()).prop_map(|(lane, id, again)| PacketContent::Source { lane, id, again }),
        (lane(), id(), any::<u16>(), any::<bool>())
            .prop_map(|(lane, first, count, on_feedback)| PacketContent::Repair { lane, first, count, on_feedback }),
        any::<u64>().prop_map(|generation| PacketContent::Recoded { generation }),
    ]
}

fn plan() -> impl Strategy<Value = Plan> {
    let nearest = (micros(), 0.0..1.0, proptest::option::of(0.0..1.0))
        .prop_map(|(latency, deliver, max_overhead)| Nearest { latency, deliver, max_overhead });
    (micros(), micros(), micros(), [0.0..1.0, 0.0..1.0, 0.0..1.0, 0.0..1.0], proptest::option::of(nearest)).prop_map(
        |(latency, rtt, interval, [deliver, loss, share, late], nearest)| {
            let target = Target { latency, deliver, max_overhead: 0.5 };
            Plan::restored(target, Conditions { loss, burst: 1.5, rtt, interval }, share, late, nearest)
        },
    )
}

fn reason() -> impl Strategy<Value = CloseReason> {
    let reason = own_reason().boxed();
    prop_oneof![4 => reason.clone(), 1 => reason.prop_map(|reason| CloseReason::Hop(Box::new(reason)))]
}

fn own_reason() -> impl Strategy<Value = CloseReason> {
    prop_oneof![
        ".{0,200}".prop_map(CloseReason::Polluted),
        Just(CloseReason::Local),
        (256..u64::MAX, ".{0,200}")
            .prop_map(|(code, reason)| CloseReason::Peer { code: CloseCode::Application(code), reason }),
        Just(CloseReason::Fault(CloseCode::FlowControl)),
        Just(CloseReason::Idle),
        Just(CloseReason::Forgotten),
        Just(CloseReason::NoAnswer),
        Just(CloseReason::UnknownCode("raptorq")),
        Just(CloseReason::KeyExhausted),
        (any::<u16>(), any::<u16>()).prop_map(|(carries, needed)| CloseReason::PathTooNarrow { carries, needed }),
    ]
}

fn choices() -> impl Strategy<Value = Choices> {
    let profile = prop_oneof![Just(Profile::default()), Just(ARQ), Just(block(32, 8))];
    (profile, proptest::option::of(micros()), 0.5..1.0, 0.0..1.0, proptest::option::of(any::<u64>())).prop_map(
        |(profile, latency, deliver, max_overhead, max_rate)| Choices {
            profile,
            latency,
            deliver,
            max_overhead,
            max_rate,
        },
    )
}

fn connection_event() -> impl Strategy<Value = TraceEvent> {
    let address = (any::<[u8; 16]>(), any::<u16>()).prop_map(SocketAddr::from);
    let other = (any::<[u8; 4]>(), any::<u16>()).prop_map(SocketAddr::from);
    prop_oneof![
        (address, any::<bool>()).prop_map(|(remote, accepted)| {
            let side = if accepted { Side::Responder } else { Side::Initiator };
            TraceEvent::Connected { remote, side }
        }),
        other.prop_map(|remote| TraceEvent::Moved { remote }),
        choices().prop_map(TraceEvent::Agreed),
        reason().prop_map(TraceEvent::Closed),
        Just(TraceEvent::KeyUpdated),
        Just(TraceEvent::FreshKeys),
        (lane(), 0.0..1.0, any::<bool>(), proptest::option::of(plan())).prop_map(|(lane, share, saturated, plan)| {
            TraceEvent::Planned { lane, planned: Planned { share, saturated, plan } }
        }),
        (any::<u64>(), any::<u64>(), any::<bool>()).prop_map(|(stream, bytes, end)| TraceEvent::StreamWritten {
            stream: StreamId(stream),
            bytes,
            end
        }),
        (any::<u64>(), any::<u64>())
            .prop_map(|(stream, bytes)| TraceEvent::StreamRead { stream: StreamId(stream), bytes }),
        any::<u32>().prop_map(|bytes| TraceEvent::MessageRead { bytes }),
        (lane(), any::<u32>(), micros(), any::<bool>()).prop_map(|(lane, bytes, lifetime, in_order)| {
            TraceEvent::MessageWritten { lane, bytes, lifetime, in_order }
        }),
    ]
}

fn packet_event() -> impl Strategy<Value = TraceEvent> {
    let number = || prop_oneof![0..1_000u64, any::<u64>()];
    let origins = [SymbolOrigin::Direct, SymbolOrigin::Resent, SymbolOrigin::Repaired, SymbolOrigin::GivenUp];
    let origin = proptest::sample::select(origins.to_vec());
    prop_oneof![
        (number(), any::<u32>(), content()).prop_map(|(number, bytes, content)| TraceEvent::PacketSent {
            number,
            bytes,
            content
        }),
        (number(), any::<bool>()).prop_map(|(number, was_lost)| TraceEvent::PacketAcked { number, was_lost }),
        (number(), any::<u32>(), any::<bool>()).prop_map(|(number, bytes, at_own_rate)| TraceEvent::PacketLost {
            number,
            bytes,
            at_own_rate
        }),
        "[a-z_]{0,20}".prop_map(|state| TraceEvent::RateState { state: state.into() }),
        (number(), any::<u32>(), content()).prop_map(|(number, bytes, content)| TraceEvent::PacketReceived {
            number,
            bytes,
            content
        }),
        number().prop_map(|number| TraceEvent::PacketRedundant { number }),
        (lane(), id(), number()).prop_map(|(lane, id, packet)| TraceEvent::SymbolRepaired { lane, id, packet }),
        (lane(), id(), origin, micros()).prop_map(|(lane, id, origin, delay)| TraceEvent::SymbolPassed {
            lane,
            id,
            origin,
            delay
        }),
        ([number(), number(), number()], [micros(), micros(), micros(), micros()], any::<f32>()).prop_map(
            |([window, in_flight, pacing_bps], [rtt, latest_rtt, least_rtt, queueing], loss)| {
                let loss = if loss.is_nan() { 0.0 } else { f64::from(loss) };
                TraceEvent::Rate { window, in_flight, pacing_bps, rtt, latest_rtt, least_rtt, queueing, loss }
            }
        ),
        (number(), micros()).prop_map(|(packet, delay)| TraceEvent::FeedbackReceived { packet, delay }),
        (lane(), 0..u64::MAX / 2, 0..1_000u64, number()).prop_map(|(lane, edge, beyond, deficit)| {
            TraceEvent::LaneReported { lane, edge: SourceId(edge), end: SourceId(edge + beyond), deficit }
        }),
        (number(), number()).prop_map(|(packet, deficit)| TraceEvent::FeedbackSent { packet, deficit }),
    ]
}

fn entries(most: usize) -> impl Strategy<Value = Vec<Entry>> {
    let event = prop_oneof![1 => connection_event(), 4 => packet_event()];
    let entry = (0..100_000_000u64, 0..2u32, 0..3u64, event).prop_map(|(at, endpoint, handle, event)| Entry {
        at: Duration::from_micros(at),
        endpoint,
        connection: ConnectionHandle(handle),
        event,
    });
    proptest::collection::vec(entry, 0..most)
}

proptest! {
    #[test]
    fn what_is_written_is_read(entries in entries(200)) {
        let (items, error) = read(&written(&entries));
        prop_assert!(error.is_none(), "{error:?}");
        let expected: Vec<_> = entries.into_iter().map(Item::Event).collect();
        prop_assert_eq!(items, expected);
    }

    /// A job that is killed leaves a part of the file: its whole blocks are read, and the place is named.
    #[test]
    fn a_file_that_is_cut_off_gives_what_precedes(entries in entries(40), part in 0.0..1.0) {
        let mut writer = Writer::new(Vec::new(), &header(), LIMIT).unwrap();
        for entry in &entries {
            writer.push(entry).unwrap();
            // Each entry in a block of its own.
            writer.tick(entry.at + Duration::from_secs(1)).unwrap();
        }
        let file = writer.end().unwrap();
        let cut = (file.len() as f64 * part) as usize;
        let (items, error) = read(&file[..cut]);
        prop_assert!(items.len() <= entries.len());
        for (item, entry) in items.iter().zip(&entries) {
            prop_assert_eq!(item, &Item::Event(entry.clone()));
        }
        match error {
            Some(ReadError::Truncated { offset }) => prop_assert!(offset <= cut as u64),
            Some(ReadError::Foreign) => prop_assert_eq!(cut, 0),
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn a_changed_bit_is_found_and_its_block_named(entries in entries(40), place in 0.0..1.0, bit in 0..8u8) {
        let mut file = written(&entries);
        let place = (file.len() as f64 * place) as usize;
        file[place] ^= 1 << bit;
        let (_, error) = read(&file);
        // Bytes 10 and 11 are reserved, and a reader skips them.
        prop_assert!(error.is_some() || (10..12).contains(&place), "byte {place}");
        if let Some(ReadError::Damaged { offset } | ReadError::Truncated { offset }) = error {
            prop_assert!(offset <= place as u64);
        }
    }

    #[test]
    fn no_file_makes_the_reader_panic(file in proptest::collection::vec(any::<u8>(), 0..500), is_block in any::<bool>()) {
        let bytes = if is_block { super::file_of_block(&file) } else { file };
        read(&bytes);
    }
}

#[test]
fn foreign_files_and_other_versions_are_refused() {
    for foreign in [&b""[..], b"\x89PNG\r\n\x1a\n and more", b"{\"v\":1}"] {
        assert!(matches!(read(foreign), (_, Some(ReadError::Foreign))));
    }
    let mut other = written(&[]);
    other[8] = 1;
    assert!(matches!(read(&other), (_, Some(ReadError::Version(1)))));
    assert_eq!(Reader::open(&written(&[])[..]).unwrap().header(), &header());
}

#[test]
fn a_recording_ends_at_its_limit_and_stays_whole() {
    let event = TraceEvent::Closed(CloseReason::Peer { code: CloseCode::Done, reason: "0123456789".repeat(20) });
    let mut writer = Writer::new(Vec::new(), &header(), 20_000).unwrap();
    let ended = (0..).find_map(|second| {
        let at = Duration::from_secs(second);
        let entry = Entry { at, endpoint: 0, connection: ConnectionHandle(0), event: event.clone() };
        writer.push(&entry).and_then(|()| writer.tick(at + Duration::from_secs(1))).err()
    });
    assert!(matches!(ended, Some(WriteError::Full { limit: 20_000 })));
    let file = writer.end().unwrap();
    let (items, error) = read(&file);
    assert!(file.len() <= 20_000 && error.is_none() && items.len() > 10, "{} bytes", file.len());
}

/// A full disk ends the recording, and says so.
#[test]
fn a_disk_that_is_full_is_an_error() {
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else { return };
    let error = Writer::new(full, &header(), LIMIT).unwrap_err().to_string();
    assert!(error.starts_with("the file cannot be written: "), "{error}");
}
