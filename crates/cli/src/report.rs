//! What the program tells its caller: one JSON object a line on stdout with `--json`, or sentences on stderr.
//!
//! Every verb writes through one [`Console`]; `docs/json-schema.json` describes the lines. Invariant: the
//! last line of a job that ran is its [`Summary`], whatever its exit code; with `--json` nothing else is ever
//! on stdout (the verb `pipe`, whose stdout is data, writes its lines to stderr). Everything is made safe for
//! a terminal here ([`crate::terminal`]), whoever chose the words. A reader that goes away (a broken pipe) is
//! no failure.

mod console;
mod spread;

use serde::{Deserialize, Serialize};
use tidewire_lab::distribution::Distribution;

use crate::bench::{Interval, Records};
use crate::probe;

pub use console::Console;
pub use spread::Spread;

/// Version of the JSON lines; grows when a name changes its meaning.
const VERSION: u8 = 1;

/// One line of `--json`.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event<'a> {
    /// A listener waits; the link opens it.
    Link {
        /// The whole link, secret and all.
        link: &'a str,
    },
    /// A peer is connected.
    Connected {
        /// Its address.
        peer: String,
    },
    /// A peer got no answer since its key is not authorized.
    Refused {
        /// Where its HELLO came from.
        peer: String,
        /// Its public key.
        key: String,
    },
    /// About once a second while a transfer runs.
    Progress(Progress),
    /// A file is whole at the receiver, or failed.
    File {
        /// Its path.
        path: &'a str,
        /// Whether it is whole, verified and under its final name.
        ok: bool,
        /// Its size, if it is.
        #[serde(skip_serializing_if = "Option::is_none")]
        bytes: Option<u64>,
        /// Why not, if it is not: one of the reasons of `docs/transfer.md`.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'static str>,
        /// What the operating system or the peer said.
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<&'a str>,
    },
    /// A file did not begin at its beginning, or did though an earlier session had some of it.
    Resumed {
        /// Its path.
        path: &'a str,
        /// Bytes that were there; 0 when it changed meanwhile and nothing of it counts.
        offset: u64,
        /// Bytes of the file.
        bytes: u64,
    },
    /// How many entries a transfer kept and lost.
    Tally {
        /// Files and directories kept by the receiver.
        kept: u32,
        /// Entries that did not arrive.
        failed: u32,
        /// Bytes of files that this session carried.
        moved_bytes: u64,
        /// Bytes of files that earlier sessions had carried.
        resumed_bytes: u64,
    },
    /// `lab link` waits for datagrams, `forward` for TCP connections.
    Listening {
        /// Where others send or connect to.
        listening: String,
        /// Where it goes on to.
        to: String,
    },
    /// A forwarded TCP connection ended, or a request for one was refused.
    Forwarded {
        /// Who asked: the TCP client, at the far end the tidewire client.
        peer: String,
        /// What for.
        target: &'a str,
        /// Whether both directions came to their own end.
        ok: bool,
        /// Bytes written toward the target.
        there_bytes: u64,
        /// Bytes written back from it.
        back_bytes: u64,
        /// What was wrong, if something was.
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<&'a str>,
    },
    /// What `lab link` has carried so far, or `sim` in all.
    LinkStats {
        /// Toward the target.
        forward: LinkCounts,
        /// From the target.
        back: LinkCounts,
        /// Clients seen.
        clients: u64,
    },
    /// The hosts of `lab up` and `lab run` are there.
    Hosts {
        /// The near host's namespace.
        near: &'a str,
        /// Its address.
        near_address: String,
        /// The far host's namespace.
        far: &'a str,
        /// Its address.
        far_address: String,
    },
    /// What crossed the link between hosts so far.
    LabStats {
        /// From the near host.
        forward: LinkCounts,
        /// From the far host.
        back: LinkCounts,
        /// Packets that the kernel did not take.
        refused: u64,
        /// How much later than due packets were handed on.
        late_ms: Delay,
    },
    /// Who had the processor in a crossing of `lab check`, in shares of all processors' time.
    Processor {
        /// Which crossing.
        crossing: &'a str,
        /// The lab itself.
        lab: f64,
        /// Other programs of this machine.
        others: f64,
        /// What the hypervisor gave to others.
        stolen: f64,
    },
    /// A figure of `lab check`.
    Finding {
        /// What it is.
        name: &'a str,
        /// Of which crossing.
        crossing: &'a str,
        /// Its unit; empty for ratios and counts.
        unit: &'a str,
        /// What it should be.
        wanted: f64,
        /// How far from that it may be.
        allowed: f64,
        /// What it was.
        measured: f64,
        /// Whether it is within what is allowed.
        holds: bool,
    },
    /// What a flow of `lab contest` had.
    Flow {
        /// `tidewire`, or the kernel's name of its congestion control.
        name: &'a str,
        /// What its application received.
        goodput_bps: f64,
        /// That over the link's rate.
        share: f64,
    },
    /// A run of one peer in `lab run --peer`.
    PeerRun {
        /// The peer.
        name: &'a str,
        /// What the link's randomness followed from.
        seed: u64,
        /// Records that were due; 0 where a peer has a load of its own.
        made: u64,
        /// Those that arrived.
        delivered: u64,
        /// What arrived once the run had settled.
        goodput_bps: f64,
        /// In-order delay beyond the one-way time.
        delay_ms: Delay,
        /// That of records made once the run had settled.
        settled_delay_ms: Delay,
        /// IP bytes sent over bytes delivered.
        sent_per_app: Option<f64>,
        /// IP bytes sent back over bytes delivered.
        back_per_app: Option<f64>,
        /// Share of the packets there that a full queue dropped.
        queue_dropped: f64,
        /// Mean wait in the queue there.
        queueing_ms: f64,
        /// How late the emulator handed packets on, 95th percentile.
        late_p95_ms: f64,
        /// Packets that it did not read in time.
        unread: u64,
    },
    /// All runs of one peer in `lab run --peer`.
    Peer {
        /// The peer.
        name: &'a str,
        /// How many there were.
        runs: usize,
        /// Share of the records that arrived.
        delivered: Option<Spread>,
        /// As in a run.
        goodput_bps: Option<Spread>,
        /// Mean delay of a run.
        mean_ms: Option<Spread>,
        /// Its median.
        p50_ms: Option<Spread>,
        /// Its 95th percentile.
        p95_ms: Option<Spread>,
        /// Its 99th percentile.
        p99_ms: Option<Spread>,
        /// As in a run.
        sent_per_app: Option<Spread>,
    },
    /// One of the runs of `demo`.
    Run {
        /// What was run, in words.
        name: &'a str,
        /// The profile, as `--profile` takes it.
        profile: &'a str,
        /// Whether the file arrived with the hash it left with.
        hash_ok: bool,
        /// As measured at the receiver.
        summary: &'a Summary,
    },
    /// What arrived within a part of a `bench`.
    Interval(&'a Interval),
    /// Whether a figure that `bench --require` names was reached.
    Requirement {
        /// As typed.
        text: &'a str,
        /// In the unit of the summary; null when it was not measured.
        measured: Option<f64>,
        /// Whether it holds.
        met: bool,
    },
    /// How far a phase of `probe` is.
    Probing(&'a probe::phase::Probing),
    /// What a phase of `probe` showed.
    Phase(&'a probe::Phase),
    /// Delay at one overhead, as `probe` predicts it.
    Prediction(&'a probe::outlook::Point),
    /// What follows from a `probe`.
    Advice(&'a probe::advice::Advice),
    /// What is done for the target of `--latency`, or why it cannot be met; when it begins and when it changes.
    Explain {
        /// Proactive repairs per source symbol.
        repair: f64,
        /// Predicted fraction of source symbols later than the target.
        late: f64,
        /// Whether the target can be met.
        feasible: bool,
        /// Where it cannot: the latency that the fraction asked for can keep to.
        #[serde(skip_serializing_if = "Option::is_none")]
        feasible_latency_ms: Option<f64>,
        /// The fraction that can keep to the latency asked for.
        #[serde(skip_serializing_if = "Option::is_none")]
        feasible_deliver: Option<f64>,
        /// The cap of proactive repair that would do, if one does.
        #[serde(skip_serializing_if = "Option::is_none")]
        feasible_max_overhead: Option<f64>,
        /// The same as a sentence.
        words: &'a str,
    },
    /// Why the program ends early.
    Error {
        /// The exit code.
        exit: u8,
        /// What was wrong and what to do.
        message: String,
    },
    /// The last line.
    Summary(&'a Summary),
}

/// How far a transfer is.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Progress {
    /// Bytes of files written to the stream or read from it.
    pub bytes: u64,
    /// Bytes that were there from earlier sessions.
    pub resumed_bytes: u64,
    /// Bytes announced.
    pub total_bytes: u64,
    /// Over the last second or so.
    pub rate_bps: f64,
    /// Seconds left at the mean rate so far; absent before anything moved.
    pub eta_seconds: Option<f64>,
    /// Round trip, smoothed.
    pub rtt_ms: Option<f64>,
    /// Fraction of our packets lost.
    pub loss: Option<f64>,
    /// Symbols that arrived through a repair; known where they arrive.
    pub repaired: Option<u64>,
    /// Wire bytes over file bytes, minus 1.
    pub overhead: Option<f64>,
}

impl Progress {
    /// Bytes that are there by now.
    pub fn there(&self) -> u64 {
        self.bytes + self.resumed_bytes
    }
}

/// What one direction of an emulated link did with its datagrams.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LinkCounts {
    /// Datagrams that came.
    pub offered: u64,
    /// Datagrams that went on.
    pub delivered: u64,
    /// Taken by the loss model, blackouts or the MTU.
    pub lost: u64,
    /// Dropped by the full queue.
    pub queue_dropped: u64,
    /// Mean wait in the queue.
    pub queueing_ms: f64,
    /// IP bytes that came.
    pub offered_bytes: u64,
    /// IP bytes that went on.
    pub delivered_bytes: u64,
}

/// How a job went. The names are the same for every verb; what this end cannot know is null.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Bytes of the job that this connection delivered: of whole files, without what earlier sessions had
    /// left of them.
    pub bytes: u64,
    /// Bytes of the same files that earlier sessions had left; only `send` and `receive` have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_bytes: Option<u64>,
    /// From the first handshake packet to the last answer.
    pub seconds: f64,
    /// `8 * bytes / seconds`.
    pub goodput_bps: f64,
    /// IP bytes of the direction the data goes, as counted at this end.
    pub wire_bytes: u64,
    /// `wire_bytes / bytes - 1`; null when nothing was delivered.
    pub overhead: Option<f64>,
    /// Round trip in milliseconds.
    pub rtt_ms: Rtt,
    /// Fraction of our packets that were lost.
    pub loss: Option<f64>,
    /// Packets of this end.
    pub packets: Packets,
    /// Symbols delivered at this end: direct + repaired + resent = delivered.
    pub symbols: Symbols,
    /// In-order delivery delay of the symbols delivered at this end, in milliseconds; null at a sender.
    pub delay_ms: Delay,
    /// What of the data came out of order, where it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reordering: Option<Reordering>,
    /// Times that the peer was followed to another address, which it had proven; only where that happened, at the
    /// end that was connected to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves: Option<u64>,
    /// The records of `bench`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<Records>,
}

/// Packets that came after one that was sent later (RFC 4737 section 3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reordering {
    /// How many.
    pub packets: u64,
    /// Of so many that came.
    pub of: u64,
    /// Numbers by which the latest of them was behind.
    pub depth: u64,
}

/// Round trip in milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Rtt {
    /// Least seen.
    pub min: Option<f64>,
    /// Mean.
    pub mean: Option<f64>,
}

/// Packets of this end.
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

/// A delay distribution in milliseconds; null at a sender and when nothing was delivered.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it: mean, quantiles, maximum")]
pub struct Delay {
    pub mean: Option<f64>,
    pub p50: Option<f64>,
    pub p95: Option<f64>,
    pub p99: Option<f64>,
    pub p999: Option<f64>,
    pub max: Option<f64>,
}

impl From<&Distribution> for Delay {
    fn from(delay: &Distribution) -> Self {
        let quantile = |q| delay.quantile(q);
        Self {
            mean: delay.mean(),
            p50: quantile(0.5),
            p95: quantile(0.95),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: delay.max(),
        }
    }
}

impl Summary {
    /// The figures that follow from bytes, time and wire bytes; the rest is filled in by who knows it.
    pub fn new(bytes: u64, seconds: f64, wire_bytes: u64) -> Self {
        let goodput_bps = if seconds > 0.0 { 8.0 * bytes as f64 / seconds } else { 0.0 };
        let overhead = (bytes > 0).then(|| wire_bytes as f64 / bytes as f64 - 1.0);
        Self { bytes, seconds, goodput_bps, wire_bytes, overhead, ..Self::default() }
    }

    /// One sentence.
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
        add(self.overhead, &|overhead| format!(", overhead {:.1} %", 100.0 * overhead));
        add(self.loss, &|loss| format!(", loss {:.1} %", 100.0 * loss));
        add(self.rtt_ms.mean, &|rtt| format!(", RTT {rtt:.1} ms"));
        add(self.delay_ms.p99.filter(|_| self.records.is_none()), &|p99| format!(", in-order delay p99 {p99:.1} ms"));
        text
    }
}

/// A rate for people: `21.4 Mbit/s`.
pub fn rate(bits_per_second: f64) -> String {
    let (scale, unit) = match bits_per_second {
        b if b >= 1e9 => (1e9, "Gbit/s"),
        b if b >= 1e6 => (1e6, "Mbit/s"),
        b if b >= 1e3 => (1e3, "kbit/s"),
        _ => (1.0, "bit/s"),
    };
    format!("{:.1} {unit}", bits_per_second / scale)
}
