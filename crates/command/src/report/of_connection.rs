//! The summary of a connection: from the statistics of one of its ends to what a verb reports.

use std::time::Duration;

use tidewire::Stats;
use tidewire_figures::{Distribution, milliseconds};

use super::{Delay, Packets, RateControl, Reordering, Rtt, Summary, Symbols};

/// The direction of the data, seen from this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// This end sends the data.
    Sender,
    /// This end receives the data.
    Receiver,
    /// Both ends send data.
    Both,
}

impl Role {
    /// Whether this end sends data.
    pub fn sends(self) -> bool {
        self != Self::Receiver
    }

    /// Whether this end receives data.
    pub fn receives(self) -> bool {
        self != Self::Sender
    }
}

/// Returns the in-order delays of the symbols delivered at this end.
pub fn delays(stats: &Stats) -> Distribution {
    Distribution::new(stats.delay.buckets(), stats.delay.mean(), stats.delay.max())
}

/// Makes the summary of a job that delivered `bytes` in `elapsed`.
pub fn summary(stats: &Stats, role: Role, bytes: u64, elapsed: Duration) -> Summary {
    let Stats { packets, symbols, .. } = stats;
    Summary {
        rtt_ms: Rtt { min: known(stats.rtt.least), mean: known(stats.rtt.mean) },
        loss: role.sends().then_some(stats.loss.rate),
        rate_control: role.sends().then(|| RateControl::of(stats)),
        packets: Packets {
            sent: packets.sent,
            source: packets.source,
            repair: packets.repair,
            feedback_repair: packets.feedback_repair,
            received: packets.received,
            redundant: packets.redundant,
        },
        symbols: Symbols {
            delivered: symbols.delivered,
            direct: symbols.direct,
            repaired: symbols.repaired,
            resent: symbols.resent,
            expired: symbols.expired,
        },
        // A sender receives only answers, and their delay and order say nothing about the job.
        reordering: role.receives().then_some(Reordering {
            packets: packets.reordered,
            of: packets.received,
            depth: packets.reordering_depth,
        }),
        moves: (stats.moves > 0).then_some(stats.moves),
        delay_ms: if role.receives() { Delay::from(&delays(stats)) } else { Delay::default() },
        ..Summary::new(bytes, elapsed.as_secs_f64(), wire_bytes(stats, role))
    }
}

/// IP bytes in the direction of the data, counted at this end.
pub fn wire_bytes(stats: &Stats, role: Role) -> u64 {
    match role {
        Role::Sender => stats.bytes.wire_sent,
        Role::Receiver => stats.bytes.wire_received,
        Role::Both => stats.bytes.wire_sent + stats.bytes.wire_received,
    }
}

/// Returns a round-trip time in milliseconds, if one was measured.
pub fn known(rtt: Duration) -> Option<f64> {
    (!rtt.is_zero()).then(|| milliseconds(rtt))
}
