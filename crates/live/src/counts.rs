//! Counts of datagrams at each end. Their names are those of the lines of `tidewire live --json`.

use serde::Serialize;
use tidewire_figures::Delay;

use super::feed::Taken;
use super::wire::Played;

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
    /// RTP packets that came too late for their timestamps: by more than half of the latency.
    pub late: u64,
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
    pub(crate) fn new(taken: Taken, receivers: usize, wire_bytes: u64, played: Played) -> Self {
        let Taken { packets, bytes, unheard, refused, strange, gaps, late } = taken;
        let Played { played, missing, .. } = played;
        Self { packets, bytes, unheard, refused, strange, gaps, late, receivers, wire_bytes, played, missing }
    }
}

/// Counts of a receiver.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Received {
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
    /// How often the sender's clock, or the path's one-way time, changed by more than a queue explains.
    pub jumps: u64,
    /// From a datagram's stamp, moved by the least one-way time, to the moment at which it left.
    pub delay_ms: Delay,
    /// From the moment at which it was due to the moment at which it left.
    pub jitter_ms: Delay,
}
