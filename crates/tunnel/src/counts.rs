//! What happened to the packets of a tunnel, by reason.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use tidewire_proto::tunnel::Fates;

/// Counters that all tasks of a tunnel share.
#[derive(Debug, Default)]
pub struct Counters {
    sent: Volume,
    received: Volume,
    malformed: AtomicU64,
    no_peer: AtomicU64,
    spoofed: AtomicU64,
    too_long: AtomicU64,
    refused: AtomicU64,
    /// Expired messages of connections that have ended.
    expired: AtomicU64,
}

#[derive(Debug, Default)]
struct Volume {
    packets: AtomicU64,
    bytes: AtomicU64,
}

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Carried {
    /// Number of packets.
    pub packets: u64,
    /// Bytes with IP headers.
    pub bytes: u64,
}

/// Packets that were dropped, by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// Their headers contradict each other or their length.
    pub malformed: u64,
    /// No peer has their destination.
    pub no_peer: u64,
    /// A peer sent them from an address that it does not have.
    pub spoofed: u64,
    /// They are longer than the peer takes.
    pub too_long: u64,
    /// Writes that the kernel did not take. Each has one or several packets.
    pub refused: u64,
    /// They waited too long for the path (CoDel).
    pub late: u64,
    /// The queue was full.
    pub overflow: u64,
    /// Their lifetime ended before they arrived.
    pub expired: u64,
}

/// A snapshot of the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Packets given to the transport.
    pub sent: Carried,
    /// Packets written to the device.
    pub received: Carried,
    /// Packets that were marked because they waited too long for the path.
    pub marked: u64,
    /// Packets that were dropped.
    pub dropped: Dropped,
}

/// Why one packet was dropped before it was queued, or after it came from a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// See [`Dropped::malformed`].
    Malformed,
    /// See [`Dropped::no_peer`].
    NoPeer,
    /// See [`Dropped::spoofed`].
    Spoofed,
    /// See [`Dropped::too_long`].
    TooLong,
    /// See [`Dropped::refused`].
    Refused,
}

impl Volume {
    fn add(&self, bytes: usize) {
        self.packets.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn read(&self) -> Carried {
        Carried { packets: self.packets.load(Ordering::Relaxed), bytes: self.bytes.load(Ordering::Relaxed) }
    }
}

impl Counters {
    /// A packet of `bytes` was given to the transport.
    pub fn sent(&self, bytes: usize) {
        self.sent.add(bytes);
    }

    /// A packet of `bytes` came from a peer and goes to the device.
    pub fn received(&self, bytes: usize) {
        self.received.add(bytes);
    }

    /// A packet was dropped.
    pub fn dropped(&self, reason: Reason) {
        let counter = match reason {
            Reason::Malformed => &self.malformed,
            Reason::NoPeer => &self.no_peer,
            Reason::Spoofed => &self.spoofed,
            Reason::TooLong => &self.too_long,
            Reason::Refused => &self.refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection ended, of which so many messages expired.
    pub fn expired(&self, messages: u64) {
        self.expired.fetch_add(messages, Ordering::Relaxed);
    }

    /// The counts so far, with those of the queues and `expired` messages of the connections that there are.
    pub fn read(&self, fates: Fates, expired: u64) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            sent: self.sent.read(),
            received: self.received.read(),
            marked: fates.marked,
            dropped: Dropped {
                malformed: of(&self.malformed),
                no_peer: of(&self.no_peer),
                spoofed: of(&self.spoofed),
                too_long: of(&self.too_long),
                refused: of(&self.refused),
                late: fates.late,
                overflow: fates.overflow,
                expired: of(&self.expired) + expired,
            },
        }
    }
}
