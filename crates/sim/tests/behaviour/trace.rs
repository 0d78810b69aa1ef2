//! The trace of both ends agrees with their statistics.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::LaneId;
use tidewire_proto::endpoint::ConnectionHandle;
use tidewire_proto::trace::{PacketContent, SymbolOrigin, Trace, TraceEvent};
use tidewire_sim::pair::End;
use tidewire_sim::settings::Direction;

use super::{bulk, whole};

#[derive(Debug, Default)]
struct Recorder(Mutex<Vec<(Time, TraceEvent)>>);

impl Trace for Recorder {
    fn record(&self, now: Time, connection: ConnectionHandle, event: &TraceEvent) {
        assert_eq!(connection, ConnectionHandle(0));
        self.0.lock().unwrap().push((now, event.clone()));
    }
}

#[test]
fn every_packet_and_symbol_is_traced_once_with_its_fate() {
    let ends = [Arc::<Recorder>::default(), Arc::<Recorder>::default()];
    let mut trial = bulk(5_000_000, &[(Direction::Both, "loss", "10%")]);
    [trial.near, trial.far] = ends.clone().map(|end| Config::default().with_trace(end));
    let report = trial.run();
    whole(&report);
    for (recorder, stats) in ends.iter().zip([&report.near, &report.far]) {
        let events = recorder.0.lock().unwrap();
        assert!(events.is_sorted_by_key(|(at, _)| *at), "time goes backwards");
        assert!(events.iter().any(|(_, event)| matches!(event, TraceEvent::Connected { .. })));
        // A packet is sent once, then lost at most once, then acknowledged at most once.
        let (mut fates, mut bytes, mut repairs) = (BTreeMap::new(), 0, 0);
        let (mut received, mut passed) = (0, BTreeMap::<_, u64>::new());
        for (_, event) in events.iter() {
            match *event {
                TraceEvent::PacketSent { number, bytes: len, content } => {
                    assert_eq!(fates.insert(number, "sent"), None);
                    bytes += u64::from(len);
                    let is_repair = matches!(content, PacketContent::Repair { on_feedback: false, .. });
                    repairs += u64::from(is_repair);
                }
                TraceEvent::PacketLost { number, .. } => assert_eq!(fates.insert(number, "lost"), Some("sent")),
                TraceEvent::PacketAcked { number, was_lost } => {
                    let before = if was_lost { "lost" } else { "sent" };
                    assert_eq!(fates.insert(number, "acked"), Some(before));
                }
                TraceEvent::PacketReceived { .. } => received += 1,
                TraceEvent::SymbolPassed { lane, id, origin, .. } => {
                    assert_eq!(lane, LaneId(0));
                    let count: u64 = passed.values().sum();
                    assert_eq!(id.0, count, "symbols pass in order");
                    *passed.entry(format!("{origin:?}")).or_default() += 1;
                }
                _ => {}
            }
        }
        let fate = |name| fates.values().filter(|&&fate| fate == name).count() as u64;
        assert_eq!((fates.len() as u64, fate("acked")), (stats.packets.sent, stats.packets.acked));
        assert!(fate("lost") >= stats.packets.lost, "probes of the packet size do not count as lost");
        assert!(
            bytes <= stats.bytes.wire_sent && stats.bytes.wire_sent < bytes + 10_000,
            "handshake packets are extra"
        );
        assert_eq!((received, repairs), (stats.packets.received, stats.packets.repair));
        let of = |origin: SymbolOrigin| passed.get(&format!("{origin:?}")).copied().unwrap_or_default();
        let origins = [SymbolOrigin::Direct, SymbolOrigin::Repaired, SymbolOrigin::Resent].map(of);
        assert_eq!(origins, [stats.symbols.direct, stats.symbols.repaired, stats.symbols.resent]);
    }
    let near = ends[0].0.lock().unwrap();
    let of_feedback = |event: &TraceEvent| matches!(event, TraceEvent::FeedbackReceived { .. });
    let reported = near.iter().filter(|(_, event)| of_feedback(event)).count();
    assert!(reported > 100, "{reported} FEEDBACKs");
    let far = ends[1].0.lock().unwrap();
    let written: u64 = near.iter().map(|(_, event)| written(event)).sum();
    assert_eq!(written, report.near.bytes.app_sent);
    let of_repairs = repaired(&far);
    assert_eq!(of_repairs, report.far.symbols.repaired);
    let redundant = far.iter().filter(|(_, event)| matches!(event, TraceEvent::PacketRedundant { .. })).count();
    assert_eq!(redundant as u64, report.far.packets.redundant);
    let planned = near.iter().filter(|(_, event)| matches!(event, TraceEvent::Planned { .. })).count();
    let rates = near.iter().filter(|(_, event)| matches!(event, TraceEvent::Rate { .. })).count();
    assert!(planned > 1 && rates > 100, "{planned} plans, {rates} rates");
    assert_eq!(report.sender, End::Near);
}

fn written(event: &TraceEvent) -> u64 {
    match event {
        TraceEvent::StreamWritten { bytes, .. } => *bytes,
        _ => 0,
    }
}

/// Number of repaired symbols. Each names the packet that was handled last, and that carried no such symbol.
fn repaired(events: &[(Time, TraceEvent)]) -> u64 {
    let (mut latest, mut count) = (None, 0);
    for (_, event) in events {
        match *event {
            TraceEvent::PacketReceived { number, content, .. } => latest = Some((number, content)),
            TraceEvent::SymbolRepaired { id, packet, .. } => {
                let (number, content) = latest.expect("a packet caused it");
                assert_eq!(packet, number);
                assert!(!matches!(content, PacketContent::Source { id: own, .. } if own == id), "{id:?} came itself");
                count += 1;
            }
            _ => {}
        }
    }
    count
}
