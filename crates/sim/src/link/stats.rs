//! Counts of a link. They add up: every offered datagram is in exactly one of the other counts.

use core::time::Duration;

/// Counts of one direction of a link. Bytes are IP bytes (payload and headers).
///
/// At any time `offered = delivered + queue_dropped + codel_dropped + too_long + policed() + lost +
/// blacked_out + in_flight`. Copies made by duplication are counted separately, in `duplicated`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkStats {
    /// Datagrams passed to [`Link::send`](super::Link::send).
    pub offered: u64,
    /// Datagrams returned by [`Link::poll_delivery`](super::Link::poll_delivery), without copies.
    pub delivered: u64,
    /// Dropped because the queue was full.
    pub queue_dropped: u64,
    /// Dropped by CoDel at the head of the queue.
    pub codel_dropped: u64,
    /// Dropped because the IP packet was longer than the MTU.
    pub too_long: u64,
    /// Dropped by the loss model.
    pub lost: u64,
    /// Dropped because they left the queue in a blackout.
    pub blacked_out: u64,
    /// In the queue, in service or in flight.
    pub in_flight: u64,
    /// Second copies returned.
    pub duplicated: u64,
    /// Delivered datagrams with a changed byte, without copies.
    pub corrupted: u64,
    /// Delivered datagrams that waited longer than the marking threshold, without copies.
    pub marked: u64,
    /// Delivered datagrams that had been held back, without copies.
    pub reordered: u64,
    /// Bytes of the offered datagrams.
    pub offered_bytes: u64,
    /// Bytes of the delivered datagrams, without copies.
    pub delivered_bytes: u64,
    service: Service,
}

/// Time that datagrams waited until their service began, and what became of them after their service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Service {
    /// Attempts after the first of a datagram.
    repeated: u64,
    /// Dropped by the policer.
    policed: u64,
    longest: Duration,
    /// Sum over all datagrams that the queue took, and their number.
    nanos: u128,
    datagrams: u64,
}

impl LinkStats {
    /// Mean time from sending a datagram until its service begins (without serialisation), over all datagrams
    /// that the queue accepted. Zero before the first.
    pub fn mean_queueing(&self) -> Duration {
        let mean = self.service.nanos.checked_div(u128::from(self.service.datagrams)).unwrap_or(0);
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// Longest time that a datagram waited until its service began.
    pub fn max_queueing(&self) -> Duration {
        self.service.longest
    }

    /// The sum of all fates, which equals [`Self::offered`].
    pub fn accounted(&self) -> u64 {
        let dropped = self.queue_dropped + self.codel_dropped + self.too_long + self.lost + self.blacked_out;
        self.delivered + dropped + self.policed() + self.in_flight
    }

    /// Datagrams dropped because they exceeded the tokens of the policer.
    pub fn policed(&self) -> u64 {
        self.service.policed
    }

    /// Counts a datagram that the policer dropped.
    pub(super) fn on_policed(&mut self) {
        self.service.policed += 1;
    }

    /// Attempts after the first that the link's retransmission made.
    pub fn attempts_repeated(&self) -> u64 {
        self.service.repeated
    }

    /// Counts an attempt after the first.
    pub(super) fn on_repeated(&mut self) {
        self.service.repeated += 1;
    }

    /// Counts a datagram that the queue accepted and that waits for `nanos` nanoseconds.
    pub(super) fn on_queued(&mut self, nanos: u64) {
        self.service.datagrams += 1;
        self.service.nanos += u128::from(nanos);
        self.service.longest = self.service.longest.max(Duration::from_nanos(nanos));
    }
}
