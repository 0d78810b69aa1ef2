//! The relayed lane of a hop: symbols that a relay mixes again without decoding (docs/wire.md section 8).
//!
//! A [`Connection`](crate::connection::Connection) that is set up for relaying has one `Recoding`: a
//! `Sender` that holds rows and mixes them, and a `Receiver` that counts ranks. An end puts its symbols
//! into the sender and takes what the receiver got; a relay passes rows from the receiver of one hop to the
//! sender of the next (the room `relay`). Neither decodes. Invariants: all memory is bounded by
//! [`Relaying::generations`]; the sender keeps a generation until the next hop has completed it.

mod receiver;
mod sender;

use crate::counts::add_counts;
use crate::wire::{MAX_GENERATION, MAX_GENERATIONS};

pub(crate) use receiver::Receiver;
pub(crate) use sender::Sender;

/// Usual length of the longest datagram of the end-to-end session. With 64 coefficients it fits a datagram of
/// 1,200 bytes, which every hop carries (docs/wire.md section 8.1).
pub const RELAYED_DATAGRAM: u16 = 1_096;
/// Maximum length of a datagram of the end-to-end session. With 32 coefficients it fits an Ethernet frame
/// (docs/wire.md section 8.1).
pub const MAX_RELAYED_DATAGRAM: u16 = 1_400;
/// Bytes of a symbol before its datagram: the length.
pub(crate) const RELAYED_HEADER: usize = 2;
/// Longest symbol of the relayed lane.
pub const RELAYED_SYMBOL: usize = RELAYED_HEADER + MAX_RELAYED_DATAGRAM as usize;
/// Generations that a sender may begin before it has heard from the receiver. Chosen: 128 symbols of the
/// usual length, half of a lane's first credit.
const FIRST_ROOM: u64 = 4;
/// An end makes no further symbol while this many rows wait for a packet. Chosen: as many as a batch of
/// packets takes, so that a new symbol never waits long.
const MOST_WAITING: u64 = 16;
/// Received rows that wait to be taken. Each datagram brings at most one, and a driver takes them after each
/// datagram or batch of datagrams. Chosen.
const MOST_PENDING: usize = 64;

/// Most packets for each row that can be asked for. Chosen: they replace a loss of half of the packets.
pub(crate) const MOST_REDUNDANCY: f64 = 2.0;

/// How a connection relays.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Relaying {
    /// Symbols of each generation that this end begins, 1 to 64 (default 32). Longer generations lose fewer
    /// packets at their ends, and cost each packet a byte for each symbol.
    pub length: u8,
    /// Most generations kept in each direction, 4 to 128 (default 64). They cover the round trip of a hop.
    pub generations: u64,
    /// Packets sent for each row on this hop, 1 to 2. `None`, the default, follows the loss estimate p:
    /// 1 / (1 - p).
    pub redundancy: Option<f64>,
}

impl Default for Relaying {
    fn default() -> Self {
        Self { length: 32, generations: 64, redundancy: None }
    }
}

impl Relaying {
    /// Whether all values are in their ranges.
    pub(crate) fn is_valid(&self) -> bool {
        (1..=MAX_GENERATION).contains(&self.length)
            && (FIRST_ROOM..=MAX_GENERATIONS).contains(&self.generations)
            && self.redundancy.is_none_or(|redundancy| (1.0..=MOST_REDUNDANCY).contains(&redundancy))
    }
}

/// Counts of the relayed lane of a hop. `received = innovative + redundant + zero + misplaced + malformed +
/// overrun`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RelayStats {
    /// RECODED frames sent.
    pub sent: u64,
    /// RECODED frames received.
    pub received: u64,
    /// They raised the rank of their generation.
    pub innovative: u64,
    /// They did not raise it, or repeat a generation that is complete.
    pub redundant: u64,
    /// All coefficients are zero.
    pub zero: u64,
    /// Another length of generations than before, or a generation for which there is no room.
    pub misplaced: u64,
    /// No coefficients or too many, no length, or a symbol that is empty or too long.
    pub malformed: u64,
    /// They came while too many rows waited to be taken.
    pub overrun: u64,
}

add_counts!(RelayStats { sent, received, innovative, redundant, zero, misplaced, malformed, overrun });

/// The relayed lane of a hop, both directions.
#[derive(Debug)]
pub(crate) struct Recoding {
    pub sender: Sender,
    pub receiver: Receiver,
}

impl Recoding {
    /// An empty lane. Combinations are drawn from `seed`.
    pub(crate) fn new(relaying: Relaying, seed: u64) -> Self {
        Self { sender: Sender::new(relaying, seed), receiver: Receiver::new(relaying.generations) }
    }

    pub(crate) fn stats(&self) -> RelayStats {
        RelayStats { sent: self.sender.sent(), ..self.receiver.stats() }
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.sender.memory() + self.receiver.memory()
    }
}
