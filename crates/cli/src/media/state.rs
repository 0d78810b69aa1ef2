//! What `live` reports: counts of datagrams at each end, for programs and for people.

use serde::Serialize;
use tidewire_command::report::Delay;

use super::feed::Taken;
use super::wire::Played;

/// What `live` prints with `--json`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event<'a> {
    /// A session has begun.
    Session {
        /// The peer's address.
        peer: &'a str,
        /// The latency that both ends use, in milliseconds.
        latency_ms: f64,
    },
    /// A connection has ended.
    Lost {
        /// The peer's address.
        peer: &'a str,
        /// In words for people.
        reason: String,
    },
    /// The bitrate that an encoder may have, when it has changed.
    Target {
        /// The receiver's address.
        peer: &'a str,
        /// Bits of the stream in each second, without what repair and headers take.
        bitrate_bps: u64,
    },
    /// What the sender took in and sent, every five seconds and at the end.
    Sent(Sent),
    /// What the receiver played out, every five seconds and at the end.
    Played(Out),
}

/// Counts of a sender.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sent {
    /// Datagrams that came in.
    pub packets: u64,
    /// Bytes in these datagrams, without UDP headers.
    pub bytes: u64,
    /// Datagrams that came while no receiver was connected.
    pub unheard: u64,
    /// Datagrams that a receiver's lane had no room for.
    pub refused: u64,
    /// Datagrams of `rtp://` that are no RTP packets. They are not sent.
    pub strange: u64,
    /// RTP packets that did not come in, by their sequence numbers.
    pub gaps: u64,
    /// Receivers that are connected now.
    pub receivers: usize,
    /// IP bytes that were sent, to all receivers so far.
    pub wire_bytes: u64,
    /// Datagrams that receivers played out, of sessions that have ended with a report.
    pub played: u64,
    /// Datagrams that they did not play out.
    pub missing: u64,
}

impl Sent {
    /// From the counts of the feed, and what receivers reported at the end.
    pub fn new(taken: Taken, receivers: usize, wire_bytes: u64, played: Played) -> Self {
        let Taken { packets, bytes, unheard, refused, strange, gaps } = taken;
        let Played { played, missing, .. } = played;
        Self { packets, bytes, unheard, refused, strange, gaps, receivers, wire_bytes, played, missing }
    }

    /// For people. Counts of trouble appear only above 0.
    pub fn sentence(&self) -> String {
        let Self { packets, receivers, unheard, refused, strange, gaps, .. } = self;
        let mut text = format!("{packets} datagrams in, {receivers} receivers");
        if *unheard > 0 {
            text.push_str(&format!(", {unheard} without a receiver"));
        }
        if *gaps > 0 {
            text.push_str(&format!(", {gaps} missing before they came in"));
        }
        if *strange > 0 {
            text.push_str(&format!(", {strange} that are no RTP packets and were left out"));
        }
        if *refused > 0 {
            text.push_str(&format!(", {refused} too many for the path"));
        }
        text
    }
}

/// Counts of a receiver.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Out {
    /// Datagrams that left on time.
    pub packets: u64,
    /// Bytes in these datagrams, without UDP headers.
    pub bytes: u64,
    /// Datagrams that were not played out.
    pub missing: u64,
    /// Those of them that arrived after their time.
    pub late: u64,
    /// Datagrams that the output refused.
    pub refused: u64,
    /// How often the sender's clock, or the path's one-way time, jumped by more than the latency.
    pub jumps: u64,
    /// From a datagram's stamp, moved by the least one-way time, to the moment at which it left.
    pub delay_ms: Delay,
    /// From the moment at which it was due to the moment at which it left.
    pub jitter_ms: Delay,
}

impl Out {
    /// For people. Counts of trouble appear only above 0.
    pub fn sentence(&self) -> String {
        let Self { packets, missing, late, .. } = self;
        let mut text = format!("{packets} datagrams out, {missing} missing");
        if *late > 0 {
            text.push_str(&format!(", {late} of them late"));
        }
        if let (Some(p50), Some(p999)) = (self.delay_ms.p50, self.jitter_ms.p999) {
            text.push_str(&format!(", delay {p50:.1} ms, jitter p99.9 {p999:.2} ms"));
        }
        text
    }
}
