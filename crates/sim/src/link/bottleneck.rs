//! The rate of a link and the drop-tail queue before it.
//!
//! The queue is first in, first out, and every packet's length is known. So the times at which a packet's
//! service begins and ends are fixed when it arrives, and nothing has to happen in between. Only the list of
//! waiting packets is kept, for the limit of the queue. Serialisation is exact: the fraction of a nanosecond
//! that remains from one packet is charged to the next, so a busy link carries exactly its rate over any
//! time. A link with slots does this in open time, so a packet that does not fit into a slot continues in the
//! next one.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use super::config::{Capacity, LinkConfig, Queue, nanos};
use super::slots::Slots;
use super::trace::TraceCursor;

/// A queue and its server. Times are nanoseconds since the start, lengths are IP bytes.
#[derive(Clone, Debug)]
pub(super) struct Bottleneck {
    server: Server,
    /// Maximum number of bytes that wait.
    limit: u64,
    /// Packets whose service has not begun: when it begins, and their lengths.
    waiting: VecDeque<(u64, u64)>,
    waiting_bytes: u64,
}

/// The rate of a link.
#[derive(Clone, Debug)]
pub(super) enum Server {
    Fixed {
        bits_per_second: u64,
        /// When the last packet has left: `free_at` nanoseconds plus `carry / bits_per_second`. With slots
        /// this is open time.
        free_at: u64,
        carry: u64,
        slots: Option<Slots>,
    },
    Trace(TraceCursor),
}

/// When a packet is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Service {
    /// When its first byte leaves.
    pub(super) start: u64,
    /// When its last byte has left.
    pub(super) end: u64,
}

impl Bottleneck {
    /// `None` if the capacity is unlimited. Without a configured queue, the limit is what the capacity
    /// carries in `round_trip`.
    pub(super) fn new(config: &LinkConfig, round_trip: Duration) -> Option<Self> {
        let (server, limit) = Server::new(config, round_trip)?;
        Some(Self { server, limit, waiting: VecDeque::new(), waiting_bytes: 0 })
    }

    /// Forgets the packets whose service has begun.
    fn settle(&mut self, now: u64) {
        while let Some(&(start, waited)) = self.waiting.front()
            && start <= now
        {
            self.waiting.pop_front();
            self.waiting_bytes -= waited;
        }
    }

    /// Packets that wait, and their bytes.
    pub(super) fn waiting(&mut self, now: u64) -> (usize, u64) {
        self.settle(now);
        (self.waiting.len(), self.waiting_bytes)
    }

    /// Serves the packet that was served last once more. Returns when its last byte has left.
    pub(super) fn serve_again(&mut self, bytes: u64) -> u64 {
        self.server.serve_again(bytes)
    }

    /// Offers a packet; `None` if the queue has no room for it.
    pub(super) fn offer(&mut self, now: u64, bytes: u64) -> Option<Service> {
        self.settle(now);
        let start = self.server.start(now);
        if start > now {
            let waiting = self.waiting_bytes.saturating_add(bytes);
            if waiting > self.limit {
                return None;
            }
            self.waiting_bytes = waiting;
            self.waiting.push_back((start, bytes));
        }
        Some(Service { start, end: self.server.serve(bytes) })
    }
}

impl Server {
    /// An idle server and the limit of its queue in bytes; `None` if the capacity is unlimited. Without a
    /// configured queue, the limit is what the capacity carries in `round_trip`.
    pub(super) fn new(config: &LinkConfig, round_trip: Duration) -> Option<(Self, u64)> {
        let server = match &config.capacity {
            Capacity::Unlimited => return None,
            Capacity::Fixed(rate) => {
                let (bits_per_second, slots) = (rate.bits_per_second(), config.mac.slots);
                Self::Fixed { bits_per_second, free_at: 0, carry: 0, slots }
            }
            Capacity::Trace(trace) => Self::Trace(TraceCursor::new(Arc::clone(trace))),
        };
        let limit = match config.queue {
            Some(Queue::Bytes(bytes)) => bytes,
            Some(Queue::Time(time)) => server.mean_bytes_in(nanos(time)),
            None => server.mean_bytes_in(nanos(round_trip)).max(LEAST_DEFAULT_QUEUE),
        };
        Some((server, limit))
    }

    /// Whether the last service ended before `now`, so that the server has asked for another packet.
    pub(super) fn has_idled(&self, now: u64) -> bool {
        match self {
            Self::Fixed { free_at, slots, .. } => *free_at < slots.map_or(now, |slots| slots.passed(now)),
            Self::Trace(cursor) => cursor.has_passed(now),
        }
    }

    /// Serves a packet of `bytes` right after the one before. Returns when it has left.
    pub(super) fn serve_again(&mut self, bytes: u64) -> u64 {
        self.start(0);
        self.serve(bytes)
    }

    /// IP bytes that are served on average in `time` nanoseconds of work.
    fn mean_bytes_in(&self, time: u64) -> u64 {
        match self {
            Self::Fixed { bits_per_second, .. } => {
                let bits = u128::from(*bits_per_second) * u128::from(time) / u128::from(NANOS_PER_SECOND);
                u64::try_from(bits / 8).unwrap_or(u64::MAX)
            }
            Self::Trace(cursor) => cursor.mean_bytes_in(time),
        }
    }

    /// When the service of a packet that arrives at `now` begins.
    pub(super) fn start(&mut self, now: u64) -> u64 {
        match self {
            Self::Fixed { free_at, carry, slots, .. } => {
                let passed = slots.map_or(now, |slots| slots.passed(now));
                if passed > *free_at {
                    (*free_at, *carry) = (passed, 0);
                }
                slots.map_or(*free_at, |slots| slots.begins(*free_at))
            }
            Self::Trace(cursor) => cursor.start(now),
        }
    }

    /// Serves a packet from the time on that [`Self::start`] returned. Returns when it has left.
    pub(super) fn serve(&mut self, bytes: u64) -> u64 {
        match self {
            Self::Fixed { bits_per_second, free_at, carry, slots } => {
                // Below 2^64 for packets up to 2 GB at rates up to 10^18 bit/s.
                let work = bytes.saturating_mul(8 * NANOS_PER_SECOND).saturating_add(*carry);
                *free_at = free_at.saturating_add(work / *bits_per_second);
                *carry = work % *bits_per_second;
                match slots {
                    None => *free_at,
                    // At the end of a slot, the rest of a nanosecond, or no work, belongs into the next slot.
                    Some(slots) if *carry > 0 || bytes == 0 => slots.begins(*free_at),
                    Some(slots) => slots.ends(*free_at),
                }
            }
            Self::Trace(cursor) => cursor.serve(bytes),
        }
    }
}

/// Smallest default queue: ten full packets, the initial window of RFC 6928.
const LEAST_DEFAULT_QUEUE: u64 = 10 * 1_500;

const NANOS_PER_SECOND: u64 = 1_000_000_000;
