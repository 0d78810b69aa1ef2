//! What a dashboard knows of one connection: counters, the newest figures, delays, and the ledger.
//!
//! The gatherer hands it every event of the connection and takes a [`Sample`] at each step. Invariant: each
//! counter is a sum over events, and has the name and meaning of the same counter in [`tidewire::Stats`], so
//! that page and summary agree.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use serde::Serialize;
use tidewire::{DelayHistogram, Plan, TraceEvent};
use tidewire_figures::milliseconds;
use tidewire_proto::connection::StreamId;
use tidewire_proto::trace::{PacketContent, SymbolOrigin};

use super::channel::Buckets;
use super::marks::{Content, Fate, Mark, Track};

/// Most streams that are counted as open. Chosen: more than a connection allows by default.
const MOST_STREAMS: usize = 1_024;
/// Most repaired symbols that wait for the receiver's edge to pass them. Chosen: a long span.
const MOST_REPAIRED: usize = 4_096;
/// Runs of losses whose mean length is shown. Chosen: about those of the estimator's 512 packets at 12 %.
const RUNS: usize = 64;

/// Packets by what they carry and by their fate, as [`tidewire::PacketStats`] counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Packets {
    pub sent: u64,
    pub source: u64,
    pub repair: u64,
    pub feedback_repair: u64,
    pub recoded: u64,
    pub control: u64,
    pub received: u64,
    pub redundant: u64,
    pub acked: u64,
    pub lost: u64,
}

/// Packets that were dropped at our own rate, as [`tidewire::AtOwnRate`] counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dropped {
    pub packets: u64,
    pub bytes: u64,
}

/// Symbols that this end delivered, as [`tidewire::SymbolStats`] counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Symbols {
    pub delivered: u64,
    pub direct: u64,
    pub repaired: u64,
    pub resent: u64,
    pub expired: u64,
}

/// The newest figures of rate control and planner. Null before they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Newest {
    /// Smoothed and least round trip, in milliseconds.
    pub rtt_ms: [Option<f64>; 2],
    /// Time that packets wait in queues of the path, in milliseconds.
    pub queue_ms: Option<f64>,
    /// Bytes that may be in flight.
    pub window: Option<u64>,
    /// Bytes in flight.
    pub in_flight: Option<u64>,
    /// Pacing rate in bits per second.
    pub pacing_bps: Option<u64>,
    /// Recent loss rate.
    pub loss: Option<f64>,
    /// Proactive repairs per source symbol, as planned for the lane that was planned last.
    pub planned: Option<f64>,
}

/// One step of a connection. Counts are those since it began.
#[derive(Debug, Serialize)]
pub struct Sample<'a> {
    /// The connection.
    pub c: u16,
    /// Seconds since the job began.
    pub t: f64,
    /// Bytes of the application that were sent and received.
    pub app: [u64; 2],
    /// Bytes on the wire that were sent and received, IP and UDP headers included.
    pub wire: [u64; 2],
    pub packets: Packets,
    /// What was dropped at our own rate, which `packets.lost` does not contain.
    pub dropped: Dropped,
    pub symbols: Symbols,
    /// Phase of rate control; null before it is known.
    pub state: Option<&'a str>,
    #[serde(flatten)]
    pub newest: Newest,
    /// Mean length of the latest runs of losses.
    pub burst: Option<f64>,
    /// Streams that are open.
    pub streams: usize,
    /// Delays since the step before.
    pub delay: Buckets<'a>,
}

/// Runs of losses, by the numbers of lost packets.
#[derive(Debug, Default)]
struct Runs {
    lengths: std::collections::VecDeque<u64>,
    last: Option<u64>,
}

impl Runs {
    fn lost(&mut self, number: u64) {
        match self.lengths.back_mut() {
            Some(length) if self.last.is_some_and(|last| last + 1 == number) => *length += 1,
            _ => {
                self.lengths.push_back(1);
                if self.lengths.len() > RUNS {
                    self.lengths.pop_front();
                }
            }
        }
        self.last = Some(number);
    }

    fn mean(&self) -> Option<f64> {
        let count = self.lengths.len();
        (count > 0).then(|| self.lengths.iter().sum::<u64>() as f64 / count as f64)
    }
}

/// The state of one connection.
#[derive(Debug, Default)]
pub struct Meter {
    /// Marks of packets that were sent, and of symbols that were delivered.
    pub tracks: [Track; 2],
    /// All delays so far.
    pub delays: DelayHistogram,
    recent: DelayHistogram,
    packets: Packets,
    dropped: Dropped,
    symbols: Symbols,
    state: Option<Cow<'static, str>>,
    newest: Newest,
    wire: [u64; 2],
    app: [u64; 2],
    runs: Runs,
    streams: BTreeSet<StreamId>,
    /// Lane and id of symbols that were repaired, and the packets that did it.
    repaired: HashMap<(u32, u64), u64>,
    /// The plan that was put into words last.
    said: Option<Plan>,
}

impl Meter {
    /// Takes an event of the connection. Returns the plan before and the new one, if they differ so much that
    /// the user is told.
    pub fn take(&mut self, at: Duration, event: &TraceEvent) -> Option<(Option<Plan>, Plan)> {
        match event {
            TraceEvent::PacketSent { number, bytes, content } => self.sent(at, *number, *bytes, *content),
            TraceEvent::PacketAcked { number, was_lost } => self.acked(at, *number, *was_lost),
            TraceEvent::PacketLost { number, bytes, at_own_rate: true } => {
                self.dropped.packets += 1;
                self.dropped.bytes += u64::from(*bytes);
                self.tracks[0].settle(*number, Fate::Dropped, at);
            }
            TraceEvent::PacketLost { number, .. } => {
                self.packets.lost += 1;
                self.runs.lost(*number);
                self.tracks[0].settle(*number, Fate::Lost, at);
            }
            TraceEvent::RateState { state } => self.state = Some(state.clone()),
            TraceEvent::PacketReceived { bytes, .. } => {
                self.packets.received += 1;
                self.wire[1] += u64::from(*bytes);
            }
            TraceEvent::PacketRedundant { .. } => self.packets.redundant += 1,
            TraceEvent::SymbolRepaired { lane, id, packet } if self.repaired.len() < MOST_REPAIRED => {
                self.repaired.insert((lane.0, id.0), *packet);
            }
            TraceEvent::SymbolPassed { lane, id, origin, delay } => self.passed(at, lane.0, id.0, *origin, *delay),
            TraceEvent::Rate { window, in_flight, pacing_bps, rtt, least_rtt, queueing, loss, .. } => {
                self.newest = Newest {
                    rtt_ms: [Some(milliseconds(*rtt)), Some(milliseconds(*least_rtt))],
                    queue_ms: Some(milliseconds(*queueing)),
                    window: Some(*window),
                    in_flight: Some(*in_flight),
                    pacing_bps: Some(*pacing_bps),
                    loss: Some(*loss),
                    planned: self.newest.planned,
                };
            }
            TraceEvent::Planned { planned, .. } => {
                self.newest.planned = Some(planned.share);
                let plan = planned.plan.filter(|plan| self.said.is_none_or(|said| !said.is_like(plan)))?;
                return Some((self.said.replace(plan), plan));
            }
            TraceEvent::StreamWritten { stream, bytes, end } => {
                self.app[0] += bytes;
                self.stream(*stream, *end);
            }
            TraceEvent::MessageWritten { bytes, .. } => self.app[0] += u64::from(*bytes),
            TraceEvent::StreamRead { bytes, .. } => self.app[1] += bytes,
            TraceEvent::MessageRead { bytes } => self.app[1] += u64::from(*bytes),
            _ => {}
        }
        None
    }

    fn stream(&mut self, stream: StreamId, ends: bool) {
        if ends {
            self.streams.remove(&stream);
        } else if self.streams.len() < MOST_STREAMS {
            self.streams.insert(stream);
        }
    }

    fn sent(&mut self, at: Duration, number: u64, bytes: u32, content: PacketContent) {
        self.packets.sent += 1;
        self.wire[0] += u64::from(bytes);
        let blank = Mark {
            at,
            number,
            symbol: 0,
            span: 0,
            bytes,
            content: Content::Control,
            lane: 0,
            fate: Fate::Flying,
            after: Duration::ZERO,
            by: 0,
        };
        let (counter, mark) = match content {
            PacketContent::Source { lane, id, again } => {
                let (counter, content) = match again {
                    false => (&mut self.packets.source, Content::Source),
                    true => (&mut self.packets.feedback_repair, Content::Again),
                };
                (counter, Mark { content, lane: lane.0, symbol: id.0, span: 1, ..blank })
            }
            PacketContent::Repair { lane, first, count, on_feedback } => {
                let (counter, content) = match on_feedback {
                    false => (&mut self.packets.repair, Content::Ahead),
                    true => (&mut self.packets.feedback_repair, Content::Asked),
                };
                (counter, Mark { content, lane: lane.0, symbol: first.0, span: count, ..blank })
            }
            PacketContent::Recoded { generation } => {
                (&mut self.packets.recoded, Mark { content: Content::Recoded, symbol: generation, ..blank })
            }
            PacketContent::SizeProbe => (&mut self.packets.control, Mark { content: Content::SizeProbe, ..blank }),
            PacketContent::Base { lane } => {
                (&mut self.packets.control, Mark { content: Content::Base, lane: lane.0, ..blank })
            }
            _ => (&mut self.packets.control, blank),
        };
        *counter += 1;
        self.tracks[0].add(mark);
    }

    fn acked(&mut self, at: Duration, number: u64, was_lost: bool) {
        self.packets.acked += 1;
        let before = self.tracks[0].settle(number, if was_lost { Fate::Late } else { Fate::Arrived }, at);
        match before {
            _ if !was_lost => {}
            Some(Mark { fate: Fate::Dropped, bytes, .. }) => {
                self.dropped.packets = self.dropped.packets.saturating_sub(1);
                self.dropped.bytes = self.dropped.bytes.saturating_sub(bytes.into());
            }
            // A mark that was forgotten was most likely lost to the medium.
            _ => self.packets.lost = self.packets.lost.saturating_sub(1),
        }
    }

    fn passed(&mut self, at: Duration, lane: u32, symbol: u64, origin: SymbolOrigin, delay: Duration) {
        let by = self.repaired.remove(&(lane, symbol)).unwrap_or(0);
        let (counter, fate) = match origin {
            SymbolOrigin::Direct => (&mut self.symbols.direct, Fate::Direct),
            SymbolOrigin::Resent => (&mut self.symbols.resent, Fate::Resent),
            SymbolOrigin::Repaired => (&mut self.symbols.repaired, Fate::Repaired),
            _ => (&mut self.symbols.expired, Fate::GivenUp),
        };
        *counter += 1;
        if fate != Fate::GivenUp {
            self.symbols.delivered += 1;
            self.delays.record(delay);
            self.recent.record(delay);
        }
        let number = self.symbols.delivered + self.symbols.expired;
        let mark =
            Mark { at, number, symbol, span: 1, bytes: 0, content: Content::Symbol, lane, fate, after: delay, by };
        self.tracks[1].add(mark);
    }

    /// Calls `tell` with the figures at `now`, and begins the next step.
    pub fn step(&mut self, connection: u16, now: Duration, tell: impl FnOnce(&Sample<'_>)) {
        tell(&Sample {
            c: connection,
            t: now.as_secs_f64(),
            app: self.app,
            wire: self.wire,
            packets: self.packets,
            dropped: self.dropped,
            symbols: self.symbols,
            state: self.state.as_deref(),
            newest: self.newest,
            burst: self.runs.mean(),
            streams: self.streams.len(),
            delay: Buckets(&self.recent),
        });
        if self.recent.count() > 0 {
            self.recent = DelayHistogram::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire::SourceId;
    use tidewire_proto::connection::LaneId;

    const MS: Duration = Duration::from_millis(1);

    fn lane() -> LaneId {
        LaneId(0)
    }

    fn sent(meter: &mut Meter, number: u64, content: PacketContent) {
        meter.take(MS * number as u32, &TraceEvent::PacketSent { number, bytes: 1_000, content });
    }

    fn sample(meter: &mut Meter) -> serde_json::Value {
        let mut shown = serde_json::Value::Null;
        meter.step(0, MS, |sample| shown = serde_json::to_value(sample).unwrap());
        shown
    }

    #[test]
    fn packets_are_counted_by_what_they_carry_and_by_their_fate() {
        let mut meter = Meter::default();
        let source = |again| PacketContent::Source { lane: lane(), id: SourceId(7), again };
        let repair = |on_feedback| PacketContent::Repair { lane: lane(), first: SourceId(3), count: 5, on_feedback };
        let contents = [
            source(false),
            source(true),
            repair(false),
            repair(true),
            PacketContent::Control,
            PacketContent::SizeProbe,
        ];
        (0..).zip(contents).for_each(|(number, content)| sent(&mut meter, number, content));
        let lost = |number, at_own_rate| TraceEvent::PacketLost { number, bytes: 1_000, at_own_rate };
        for number in [0, 1, 3] {
            meter.take(MS * 70, &lost(number, false));
        }
        meter.take(MS * 80, &TraceEvent::PacketAcked { number: 1, was_lost: true });
        meter.take(MS * 80, &TraceEvent::PacketAcked { number: 2, was_lost: false });
        let shown = sample(&mut meter);
        let count = |name: &str| shown["packets"][name].as_u64().unwrap();
        assert_eq!(
            [count("sent"), count("source"), count("repair"), count("feedback_repair"), count("control")],
            [6, 1, 1, 2, 2]
        );
        assert_eq!((count("acked"), count("lost"), &shown["wire"][0]), (2, 2, &6_000.into()));
        // Two runs: packets 0 and 1, and packet 3.
        assert_eq!(shown["burst"], 1.5);
        let fates: Vec<Fate> = meter.tracks[0].news(MS * 80, Duration::ZERO).iter().map(|mark| mark.fate).collect();
        assert_eq!(fates, [Fate::Lost, Fate::Late, Fate::Arrived, Fate::Lost, Fate::Flying, Fate::Flying]);
    }

    #[test]
    fn what_was_dropped_at_our_own_rate_is_no_loss() {
        let mut meter = Meter::default();
        (0..4).for_each(|number| sent(&mut meter, number, PacketContent::Control));
        for (number, at_own_rate) in [(0, true), (1, false), (2, true)] {
            meter.take(MS * 70, &TraceEvent::PacketLost { number, bytes: 1_000, at_own_rate });
        }
        meter.take(MS * 75, &TraceEvent::RateState { state: "pause".into() });
        let shown = sample(&mut meter);
        assert_eq!((&shown["packets"]["lost"], &shown["state"]), (&1.into(), &"pause".into()));
        assert_eq!(shown["dropped"], serde_json::json!({"packets": 2, "bytes": 2_000}));
        assert_eq!(shown["burst"], 1.0);
        // One of each arrives after all.
        for number in [0, 1] {
            meter.take(MS * 80, &TraceEvent::PacketAcked { number, was_lost: true });
        }
        let shown = sample(&mut meter);
        assert_eq!(shown["packets"]["lost"], 0);
        assert_eq!(shown["dropped"], serde_json::json!({"packets": 1, "bytes": 1_000}));
        let fates: Vec<Fate> = meter.tracks[0].news(MS * 80, Duration::ZERO).iter().map(|mark| mark.fate).collect();
        assert_eq!(fates, [Fate::Late, Fate::Late, Fate::Dropped, Fate::Flying]);
    }

    #[test]
    fn symbols_are_counted_and_name_the_packet_that_repaired_them() {
        let mut meter = Meter::default();
        meter.take(MS, &TraceEvent::SymbolRepaired { lane: lane(), id: SourceId(1), packet: 42 });
        let origins = [SymbolOrigin::Direct, SymbolOrigin::Repaired, SymbolOrigin::Resent, SymbolOrigin::GivenUp];
        for (id, origin) in (0..).zip(origins) {
            let id = SourceId(id);
            meter.take(MS * 9, &TraceEvent::SymbolPassed { lane: lane(), id, origin, delay: MS * 20 });
        }
        let shown = sample(&mut meter);
        let expected = serde_json::json!({"delivered": 3, "direct": 1, "repaired": 1, "resent": 1, "expired": 1});
        assert_eq!(shown["symbols"], expected);
        assert_eq!(shown["delay"].as_array().unwrap().iter().map(|pair| pair[1].as_u64().unwrap()).sum::<u64>(), 3);
        // The next step has none of these delays, the sum has all.
        assert_eq!(sample(&mut meter)["delay"], serde_json::json!([]));
        assert_eq!(meter.delays.count(), 3);
        let by: Vec<_> = meter.tracks[1].news(MS * 9, Duration::ZERO).iter().map(|mark| (mark.fate, mark.by)).collect();
        assert_eq!(by, [(Fate::Direct, 0), (Fate::Repaired, 42), (Fate::Resent, 0), (Fate::GivenUp, 0)]);
    }
}
