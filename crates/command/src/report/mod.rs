//! What every verb reports in the same way: [`Console`], the events that several verbs share, and the
//! [`Summary`].
//!
//! An event of one verb is defined beside that verb. With `--json` each event is one JSON object a line on
//! stdout, as `docs/json-schema.json` describes; without it, people read sentences on stderr. Invariants: the
//! last line of a job that ran is its [`Summary`], whatever its exit code. With `--json` nothing else is
//! written to stdout; `pipe`, whose stdout carries data, writes its lines to stderr. [`Console`] makes all
//! text safe for a terminal ([`crate::terminal`]). A reader that closes the pipe is not a failure.

mod console;
mod of_connection;

use serde::{Deserialize, Serialize};
use tidewire::{AtOwnRate, Stats};

use crate::records::Records;

pub use console::{Console, with};
pub use of_connection::{Role, delays, known, summary, wire_bytes};
pub use tidewire_figures::Delay;

/// Version of the JSON lines. It grows when a name changes its meaning.
const VERSION: u8 = 1;

/// An event that several verbs write.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event<'a> {
    /// A peer is connected.
    Connected {
        /// The peer's address.
        peer: String,
    },
    /// `tidewire-lab link` waits for datagrams, or `forward` or `serve` for TCP connections.
    Listening {
        /// The local address that waits.
        listening: String,
        /// Where the traffic goes; `socks5` for a port of `-D`.
        to: String,
        /// Whether the port is open at the far side (`forward -R`).
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        far: bool,
    },
    /// The figures of the job are served.
    Metrics {
        /// Where they are.
        url: String,
    },
    /// The reason why the program ends early.
    Error {
        /// The number of an [`Exit`](crate::exit::Exit).
        exit: u8,
        /// What is wrong and what to do.
        message: String,
    },
    /// The last line of a job.
    Summary(&'a Summary),
}

/// Bytes from which on people are told the overhead. Chosen: the packets of a handshake and of an end are
/// less than a tenth of that; the overhead of a file of six bytes was 129,383 %.
pub const LEAST_FOR_OVERHEAD: u64 = 100_000;

/// The result of a job. The names are the same for every verb. A figure that this end cannot know is null.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Bytes that this connection delivered. For file transfers: bytes of complete files, without the bytes
    /// that earlier sessions delivered.
    pub bytes: u64,
    /// Bytes of the same files that earlier sessions delivered. Only `send` and `receive` report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_bytes: Option<u64>,
    /// Time from the first handshake packet to the last answer.
    pub seconds: f64,
    /// `8 * bytes / seconds`.
    pub goodput_bps: f64,
    /// IP bytes in the direction of the data, counted at this end.
    pub wire_bytes: u64,
    /// `wire_bytes / bytes - 1`. Null if nothing was delivered.
    pub overhead: Option<f64>,
    /// Round-trip time in milliseconds.
    pub rtt_ms: Rtt,
    /// Fraction of the packets sent by this end that the medium lost.
    pub loss: Option<f64>,
    /// Rate control of this end. Absent at a receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_control: Option<RateControl>,
    /// Packets sent and received by this end.
    pub packets: Packets,
    /// Symbols delivered at this end. `delivered` is the sum of `direct`, `repaired` and `resent`.
    pub symbols: Symbols,
    /// In-order delay of the symbols delivered at this end, in milliseconds. Null at a sender.
    pub delay_ms: Delay,
    /// Packets received out of order. Only the receiving end reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reordering: Option<Reordering>,
    /// How often the peer moved to another address and proved it. Only the listening end reports it, and only
    /// if it happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves: Option<u64>,
    /// Only of `bench`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<Records>,
}

/// Packets that arrived after a packet that was sent later (RFC 4737 section 3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reordering {
    /// Packets that arrived out of order.
    pub packets: u64,
    /// All packets that arrived.
    pub of: u64,
    /// Largest difference between the highest packet number received so far and that of a packet out of
    /// order.
    pub depth: u64,
}

/// What rate control did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateControl {
    /// Its phase; empty for a control without phases.
    pub state: String,
    /// Packets dropped at our own rate, which are no loss of the medium.
    pub dropped_packets: u64,
    /// Bytes of these packets, with IP and UDP headers.
    pub dropped_bytes: u64,
    /// How often more was sent for a byte delivered than the floor of sanity allows.
    pub overruns: u64,
}

impl RateControl {
    /// The figures of a connection.
    pub fn of(stats: &Stats) -> Self {
        let AtOwnRate { packets, bytes, .. } = stats.loss.at_own_rate;
        let overruns = stats.loss.floor.exceeded;
        Self { state: stats.rate.state.into(), dropped_packets: packets, dropped_bytes: bytes, overruns }
    }

    /// The same for people.
    pub fn words(&self) -> String {
        let state = if self.state.is_empty() { "no phases" } else { &self.state };
        format!("{state}, {}", self.dropped())
    }

    /// What was dropped, for people.
    pub fn dropped(&self) -> String {
        let bytes = indicatif::DecimalBytes(self.dropped_bytes);
        format!("{} packets ({bytes}) dropped at our own rate", self.dropped_packets)
    }
}

/// Round-trip time in milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Rtt {
    /// Least measured.
    pub min: Option<f64>,
    /// Mean.
    pub mean: Option<f64>,
}

/// Packets sent and received by this end.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the glossary defines each of these words")]
pub struct Packets {
    pub sent: u64,
    pub source: u64,
    pub repair: u64,
    pub feedback_repair: u64,
    pub received: u64,
    pub redundant: u64,
}

/// Symbols delivered at this end.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the glossary defines each of these words")]
pub struct Symbols {
    pub delivered: u64,
    pub direct: u64,
    pub repaired: u64,
    pub resent: u64,
    pub expired: u64,
}

impl Summary {
    /// Computes the figures that follow from bytes, time and wire bytes. The caller fills in the others.
    pub fn new(bytes: u64, seconds: f64, wire_bytes: u64) -> Self {
        let goodput_bps = if seconds > 0.0 { 8.0 * bytes as f64 / seconds } else { 0.0 };
        let overhead = (bytes > 0).then(|| wire_bytes as f64 / bytes as f64 - 1.0);
        Self { bytes, seconds, goodput_bps, wire_bytes, overhead, ..Self::default() }
    }

    /// The summary as one sentence for people.
    fn sentence(&self) -> String {
        let mut text =
            format!("{} in {:.1} s, {}", indicatif::DecimalBytes(self.bytes), self.seconds, rate(self.goodput_bps));
        let mut add = |value: Option<f64>, say: &dyn Fn(f64) -> String| {
            if let Some(value) = value {
                text.push_str(&say(value));
            }
        };
        add(self.resumed_bytes.filter(|bytes| *bytes > 0).map(|bytes| bytes as f64), &|bytes| {
            format!(", {} were there before", indicatif::DecimalBytes(bytes as u64))
        });
        add(self.overhead.filter(|_| self.bytes >= LEAST_FOR_OVERHEAD), &|overhead| {
            format!(", overhead {:.1} %", 100.0 * overhead)
        });
        let dropped = self.rate_control.as_ref().filter(|control| control.dropped_packets > 0);
        let dropped = dropped.map_or_else(String::new, |control| format!(", {}", control.dropped()));
        add(self.loss, &|loss| format!(", loss {:.1} %{dropped}", 100.0 * loss));
        let overruns = self.rate_control.as_ref().map(|control| control.overruns).filter(|&times| times > 0);
        add(overruns.map(|times| times as f64), &|times| {
            format!(", too fast for the path {times:.0} times (see docs/recovery.md, the floor of sanity)")
        });
        add(self.rtt_ms.mean, &|rtt| format!(", RTT {rtt:.1} ms"));
        add(self.delay_ms.p99.filter(|_| self.records.is_none()), &|p99| format!(", in-order delay p99 {p99:.1} ms"));
        text
    }
}

/// Formats a rate for people, for example `21.4 Mbit/s`.
pub fn rate(bits_per_second: f64) -> String {
    let (scale, unit) = match bits_per_second {
        b if b >= 1e9 => (1e9, "Gbit/s"),
        b if b >= 1e6 => (1e6, "Mbit/s"),
        b if b >= 1e3 => (1e3, "kbit/s"),
        _ => (1.0, "bit/s"),
    };
    format!("{:.1} {unit}", bits_per_second / scale)
}
