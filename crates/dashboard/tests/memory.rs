//! Memory of a replay: what a file makes it hold, beside the bytes of its blocks.

#[path = "../../proto/tests/hostile/meter.rs"]
mod meter;

use std::path::Path;
use std::time::Duration;

use meter::Meter;
use tidewire::SourceId;
use tidewire_dashboard::what_if::{self, Alternative};
use tidewire_proto::connection::{LaneId, Side, StreamId};
use tidewire_proto::endpoint::ConnectionHandle;
use tidewire_proto::trace::{PacketContent, TraceEvent};
use tidewire_recording::{Entry, Header, Writer};

/// The factor of docs/recording.md, "What a file can cost": bytes of memory for each byte of the blocks after
/// decompression.
const PER_BYTE: usize = 32;
/// What does not depend on the file: a block, what is kept of 1,000 connections, and the rings of two ends.
const FIXED: usize = 8 << 20;

/// Passes an event of a connection on.
type Push<'a> = dyn FnMut(u64, TraceEvent) + 'a;

/// Writes a recording, and returns the bytes of its blocks after decompression.
fn write(path: &Path, events: impl FnOnce(&mut Push<'_>)) -> usize {
    let mut writer = Writer::new(Vec::new(), &Header::new("test", "send", 0), u64::MAX).unwrap();
    events(&mut |connection, event| {
        let (at, connection) = (Duration::from_millis(1), ConnectionHandle(connection));
        writer.push(&Entry { at, endpoint: 0, connection, event }).unwrap();
    });
    let file = writer.end().unwrap();
    std::fs::write(path, &file).unwrap();
    let (mut at, mut bytes) = (12, 0);
    while let Some(head) = file.get(at..at + 13) {
        let length = |from: usize| u32::from_le_bytes(head[from..from + 4].try_into().unwrap()) as usize;
        bytes += length(5);
        at += 13 + length(1);
    }
    bytes
}

/// The most memory of a replay of these events, beside a connection that is made, and the bytes of the
/// blocks.
fn replayed(events: impl FnOnce(&mut Push<'_>)) -> (usize, usize) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recorded");
    let bytes = write(&path, |push| {
        let remote = "192.0.2.1:7700".parse().unwrap();
        push(0, TraceEvent::Connected { remote, side: Side::Initiator });
        events(push);
    });
    let mut meter = Meter::default();
    // Most of these files have no flow, and are refused after they were read.
    let _ = meter.run(|| what_if::run(&path, None, &Alternative::default(), &mut |_| true));
    (usize::try_from(meter.most).unwrap(), bytes)
}

fn check(name: &str, events: impl FnOnce(&mut Push<'_>)) {
    let (most, bytes) = replayed(events);
    println!("{name}: {most} bytes of memory for {bytes} bytes, {:.1} a byte", most as f64 / bytes as f64);
    assert!(most <= FIXED + PER_BYTE * bytes, "{name}: {most} bytes of memory for {bytes} bytes");
}

/// Before the fix, each event made a thousand entries: 24,000 bytes of memory for six bytes, which LZ4 puts
/// into a fiftieth of a byte. 1,593 bytes of a file became 1.5 GB.
#[test]
fn a_packet_that_leaves_a_thousand_numbers_out_costs_what_another_packet_costs() {
    let content = PacketContent::Control;
    check("gaps", |push| {
        (0..100_000).for_each(|n| push(0, TraceEvent::PacketReceived { number: 1_001 * n, bytes: 1, content }));
    });
}

/// The shortest event of each kind that is kept.
#[test]
fn each_kind_of_event_costs_a_bounded_share_of_its_bytes() {
    const EVENTS: u64 = 200_000;
    let (lane, control) = (LaneId(0), PacketContent::Control);
    let sent = |number, content| TraceEvent::PacketSent { number, bytes: 0, content };
    let source = |n| PacketContent::Source { lane, id: SourceId(n), again: false };
    let repair = |n| PacketContent::Repair { lane, first: SourceId(n), count: 1, on_feedback: false };
    let kinds: [(&str, &dyn Fn(u64) -> TraceEvent); 6] = [
        ("packets", &|n| sent(n, control)),
        ("symbols", &|n| sent(n, source(n))),
        ("repairs", &|n| sent(n, repair(n))),
        ("arrivals", &|number| TraceEvent::PacketReceived { number, bytes: 0, content: control }),
        ("writes", &|_| TraceEvent::StreamWritten { stream: StreamId(0), bytes: 1, end: false }),
        ("rates", &|_| rate()),
    ];
    for (name, event) in kinds {
        check(name, |push| (0..EVENTS).for_each(|n| push(0, event(n))));
    }
    check("connections", |push| (0..EVENTS).for_each(|n| push(n, TraceEvent::KeyUpdated)));
}

/// A flow that is replayed, with all of these.
#[test]
fn a_whole_flow_costs_a_bounded_share_of_its_bytes() {
    check("flow", |push| {
        for n in 0..20_000 {
            let (lane, first) = (LaneId(0), SourceId(n));
            let content = PacketContent::Source { lane, id: first, again: false };
            push(0, TraceEvent::StreamWritten { stream: StreamId(0), bytes: 1, end: false });
            push(0, TraceEvent::PacketSent { number: 2 * n, bytes: 0, content });
            let content = PacketContent::Repair { lane, first, count: 1, on_feedback: false };
            push(0, TraceEvent::PacketSent { number: 2 * n + 1, bytes: 0, content });
            push(0, TraceEvent::PacketReceived { number: 1_001 * n, bytes: 0, content: PacketContent::Control });
            push(0, TraceEvent::FeedbackReceived { packet: n, delay: Duration::ZERO });
            push(0, TraceEvent::PacketAcked { number: 2 * n, was_lost: false });
            push(0, TraceEvent::PacketLost { number: 2 * n + 1, bytes: 0, at_own_rate: false });
            push(0, rate());
        }
    });
}

fn rate() -> TraceEvent {
    let none = Duration::ZERO;
    TraceEvent::Rate {
        window: 1 << 20,
        in_flight: 0,
        pacing_bps: 1 << 24,
        rtt: none,
        latest_rtt: none,
        least_rtt: none,
        queueing: none,
        loss: 0.0,
    }
}
