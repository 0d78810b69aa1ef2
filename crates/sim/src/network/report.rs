//! What came out of a network: its flows, its tunnels, and its links over time.

use core::time::Duration;

use tidewire_proto::Time;
use tidewire_proto::stats::DelayHistogram;

use crate::link::{Link, LinkStats};
use crate::tcp::SenderStats;
use crate::tcp::bucket::{CoderStats, DecoderStats};
use crate::video::{Playback, Viewing};

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The flows in the order of the plan.
    pub flows: Vec<FlowReport>,
    /// The tunnels in the order of the plan.
    pub tunnels: Vec<TunnelReport>,
    /// The links in the order of the topology.
    pub links: Vec<LinkReport>,
    /// Virtual time of the whole run.
    pub seconds: f64,
    /// Hash of every packet sent: time, flow, length and content. Equal simulated runs have equal hashes.
    /// Zero in the lab.
    pub fingerprint: u64,
}

/// The result of a flow. Latency is the time from the sending to the receiving application, of records,
/// frames of live videos and datagrams. What is sent as fast as possible has none.
#[derive(Clone, Debug, Default)]
pub struct FlowReport {
    /// Its name.
    pub name: String,
    /// What carried it: `tidewire`, `newreno`, `cubic`, `bbr`, `udp`, `peer` or `peer-udp`.
    pub kind: &'static str,
    /// The node that sent.
    pub from: String,
    /// The node that received.
    pub to: String,
    /// Bytes that reached the receiving application.
    pub bytes: u64,
    /// Whether all bytes arrived; `None` if the flow has no end.
    pub whole: Option<bool>,
    /// From its start to its end, or to the end of the run.
    pub seconds: f64,
    /// Latencies and their differences.
    pub latencies: Latencies,
    /// Packets with data that were sent.
    pub packets: u64,
    /// Of these, segments sent again (TCP) or repairs (ours).
    pub repeated: u64,
    /// Datagrams that arrived with a changed byte.
    pub damaged: u64,
    /// The congestion window over time: of TCP in segments, of ours in packets of 1,500 bytes.
    pub window: Vec<(Time, f64)>,
    /// What the code below TCP did, of flows of buckets.
    pub buckets: Option<Box<Buckets>>,
    /// What the viewer of a video saw, since the flow started. None of UDP, whose frames are not played.
    pub viewing: Option<Viewing>,
    /// Errors that the oracle found; empty if all is well.
    pub errors: Vec<String>,
}

impl FlowReport {
    /// Bits per second that reached the receiving application.
    pub fn goodput_bps(&self) -> f64 {
        if self.seconds > 0.0 { 8.0 * self.bytes as f64 / self.seconds } else { 0.0 }
    }
}

/// What the code of a flow of buckets did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buckets {
    /// What its sender counted.
    pub sender: CoderStats,
    /// What its receiver counted.
    pub receiver: DecoderStats,
    /// What TCP above it counted.
    pub tcp: SenderStats,
    /// Zero-payload packets sent so far, over time.
    pub empty: Vec<(Time, u64)>,
}

/// What the viewer of a video has seen when the flow is `age` old. A whole video is played to its end.
pub fn viewing(playback: &Playback, age: Duration, is_whole: bool) -> Viewing {
    let now = playback.viewing(age);
    if is_whole { playback.viewing(age + now.buffered()) } else { now }
}

/// What arrived, and when it had been made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When the application had it, since the start of the flow.
    pub made: Duration,
    /// From then to its arrival.
    pub latency: Duration,
}

/// Arrivals that are kept. Chosen: an hour of 72 a second.
const MOST_ARRIVALS: usize = 1 << 18;

/// Latencies of what arrived, in the order of arrival.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// The first 262,144 arrivals one by one, of flows of TCP in the simulator.
    pub arrivals: Vec<Arrival>,
    /// The latencies.
    pub latency: DelayHistogram,
    /// The jitter: differences between the latencies of two that arrived one after the other, without sign.
    pub jitter: DelayHistogram,
    last: Option<Duration>,
}

impl Latencies {
    /// Adds the next arrival, and keeps it.
    pub fn keep(&mut self, arrival: Arrival) {
        if self.arrivals.len() < MOST_ARRIVALS {
            self.arrivals.push(arrival);
        }
        self.add(arrival.latency);
    }

    /// Adds the latency of the next arrival.
    pub fn add(&mut self, latency: Duration) {
        self.latency.record(latency);
        if let Some(last) = self.last.replace(latency) {
            self.jitter.record(jitter(last, latency));
        }
    }
}

/// The jitter between two latencies.
pub fn jitter(last: Duration, latency: Duration) -> Duration {
    last.abs_diff(latency)
}

/// The result of a tunnel.
#[derive(Clone, Debug, PartialEq)]
pub struct TunnelReport {
    /// Its name.
    pub name: String,
    /// The node that connected.
    pub from: String,
    /// The node that listened.
    pub to: String,
    /// The end at `from`, and the end at `to`.
    pub ends: [TunnelEnd; 2],
    /// Errors that were found; empty if all is well.
    pub errors: Vec<String>,
}

/// What one end of a tunnel did with packets: those that flows gave to it were sent, dropped before that
/// (`too_long`, `late`, `overflow`), or wait.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TunnelEnd {
    /// Smoothed round trip of its connection at the end of the run; `None` if there was no connection.
    pub rtt: Option<Duration>,
    /// Share of its datagrams that were lost lately; `None` if there was no connection.
    pub loss: Option<f64>,
    /// Datagrams with source symbols.
    pub source: u64,
    /// Datagrams with repair symbols that were sent before a loss was known.
    pub repair: u64,
    /// Datagrams sent because of a reported loss.
    pub feedback_repair: u64,
    /// Packets in its queue at the end of the run; zero in the lab.
    pub waiting: u64,
    /// Packets that it gave to the transport, and their bytes.
    pub sent: [u64; 2],
    /// Packets that came from the other end, and their bytes.
    pub received: [u64; 2],
    /// Packets that its queue marked.
    pub marked: u64,
    /// Packets that it dropped, in the order of [`DROPS`].
    pub dropped: [u64; DROPS.len()],
}

impl TunnelEnd {
    /// Packets dropped for one of the [`DROPS`]; zero for another reason.
    pub fn dropped(&self, reason: &str) -> u64 {
        DROPS.iter().zip(self.dropped).filter(|(name, _)| **name == reason).map(|(_, count)| count).sum()
    }

    /// Repairs of both kinds.
    pub fn repairs(&self) -> u64 {
        self.repair + self.feedback_repair
    }
}

/// Why an end of a tunnel drops packets. `expired` counts packets that were sent and given up before the
/// other end was known to have them; some have arrived. `docs/tunnel.md` says what each means.
pub const DROPS: [&str; 8] = ["malformed", "no_peer", "spoofed", "too_long", "refused", "late", "overflow", "expired"];

/// The result of a link.
#[derive(Clone, Debug)]
pub struct LinkReport {
    /// Its name.
    pub name: String,
    /// Counts forward and back.
    pub stats: [LinkStats; 2],
    /// The state forward and back, over time.
    pub samples: [Vec<LinkSample>; 2],
}

/// The state of one direction of a link at one time. Counts are from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSample {
    /// When.
    pub at: Time,
    /// Packets that wait.
    pub packets: usize,
    /// IP bytes that wait.
    pub bytes: u64,
    /// Packets that the queue dropped: because it was full, or by its discipline.
    pub dropped: u64,
    /// Packets that arrived with a congestion mark.
    pub marked: u64,
}

impl LinkSample {
    /// The state at `now`.
    pub fn of<T>(now: Time, link: &mut Link<T>) -> Self {
        let (packets, bytes) = link.waiting(now);
        let stats = link.stats();
        Self { at: now, packets, bytes, dropped: stats.queue_dropped + stats.codel_dropped, marked: stats.marked }
    }
}
