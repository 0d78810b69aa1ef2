//! What a link counted. The columns sum: every datagram offered is in exactly one of the others.

use core::time::Duration;

/// Counts of one link direction. Bytes are IP bytes (payload and headers).
///
/// At any moment `offered = delivered + queue_dropped + too_long + lost + blacked_out + in_flight`. Copies
/// made by duplication stand apart, in `duplicated`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkStats {
    /// Datagrams given to [`Link::send`](super::Link::send).
    pub offered: u64,
    /// Datagrams handed out by [`Link::poll_delivery`](super::Link::poll_delivery), copies not counted.
    pub delivered: u64,
    /// Dropped since the queue was full.
    pub queue_dropped: u64,
    /// Dropped since the IP packet was longer than the MTU.
    pub too_long: u64,
    /// Dropped by the loss model.
    pub lost: u64,
    /// Dropped since they left the queue in a blackout.
    pub blacked_out: u64,
    /// Under way: in the queue, in service or in the air.
    pub in_flight: u64,
    /// Second copies handed out.
    pub duplicated: u64,
    /// Delivered datagrams with a changed byte, copies not counted.
    pub corrupted: u64,
    /// Delivered datagrams that had waited too long for the threshold of marks, copies not counted.
    pub marked: u64,
    /// Delivered datagrams that had been held back, copies not counted.
    pub reordered: u64,
    /// Bytes of the datagrams offered.
    pub offered_bytes: u64,
    /// Bytes of the datagrams delivered, copies not counted.
    pub delivered_bytes: u64,
    queueing: Queueing,
}

/// How long datagrams waited for their service to begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Queueing {
    longest: Duration,
    /// Sum over all datagrams that the queue took, and their number.
    nanos: u128,
    datagrams: u64,
}

impl LinkStats {
    /// Mean time from sending a datagram until its service begins (serialisation itself not counted), over
    /// all datagrams that the queue took, whatever became of them later. Zero before the first.
    pub fn mean_queueing(&self) -> Duration {
        let mean = self.queueing.nanos.checked_div(u128::from(self.queueing.datagrams)).unwrap_or(0);
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// Longest time that a datagram waited for its service to begin.
    pub fn max_queueing(&self) -> Duration {
        self.queueing.longest
    }

    /// Counts a datagram that the queue took and that waits for `nanos` nanoseconds.
    pub(super) fn on_queued(&mut self, nanos: u64) {
        self.queueing.datagrams += 1;
        self.queueing.nanos += u128::from(nanos);
        self.queueing.longest = self.queueing.longest.max(Duration::from_nanos(nanos));
    }
}
