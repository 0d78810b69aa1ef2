//! The interface between a path and its rate controller.
//!
//! The controllers of `rate/` implement [`RateController`]. A path owns one controller and calls it for each
//! packet.
//! Invariant: a controller sees packets, not symbols (RFC 9265).

use core::fmt;
use core::time::Duration;

use super::{Dispersion, RateSample};
use crate::Time;

/// What the sender may send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Limit of the bytes in flight, IP and UDP headers included.
    pub window: u64,
    /// Pace in bytes per second.
    pub pacing: u64,
}

/// How a controller that sends packet trains shapes them. After the train's last packet the sender pauses, so
/// that the mean rate is [`Budget::pacing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainPace {
    /// Packets of a train, 2 to 1,024, the first one included, which carries no symbol.
    pub packets: u16,
    /// Pace within the train in bytes per second.
    pub rate: u64,
}

/// One train of ours, measured by the peer.
#[derive(Clone, Copy, Debug)]
pub struct TrainSample {
    /// Time at which the report came.
    pub now: Time,
    /// Bytes of the train after its first packet, up to the last packet that came, lost ones included.
    pub bytes: u64,
    /// Time over which these bytes left.
    pub left: Duration,
    /// Time over which they arrived.
    pub arrived: Duration,
    /// Delay of the first packet above the least of the last thirty seconds: the queue that the train found.
    pub queue: Duration,
}

/// The packets that one FEEDBACK newly acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct AckSample {
    /// Time at which the FEEDBACK came.
    pub now: Time,
    /// Bytes newly acknowledged.
    pub bytes: u64,
    /// Bytes still in flight after it.
    pub in_flight: u64,
    /// Newest packet number acknowledged so far.
    pub newest: u64,
    /// Time at which that packet was sent.
    pub left: Time,
    /// Number of the next packet to be sent. Its acknowledgement ends the current round trip.
    pub next: u64,
    /// Round trip of the newest packet, if this acknowledgement gave one.
    pub rtt: Option<Duration>,
    /// One-way delay of that packet above an arbitrary constant, if the peer said when the packet came.
    /// Only differences mean something. The drift of the clocks is removed, half a minute after the path
    /// began. If the peer's clock jumps, or after 134 s without a packet, the delay moves on by what the
    /// round trip says.
    pub one_way: Option<Duration>,
    /// Size of that packet with IP and UDP headers; 0 if there is no round trip.
    pub newest_bytes: u32,
    /// Whether the application had too little to send when the newest packet left.
    pub app_limited: bool,
    /// Sums over the life of the path.
    pub totals: Totals,
    /// Smoothed round trip.
    pub smoothed: Duration,
    /// Minimum RTT of the last ten seconds.
    pub min_rtt: Duration,
    /// Delivery rate over the last round trip, if it could be measured.
    pub rate: Option<RateSample>,
    /// Delivery rate from the dispersion of the latest packets, if it could be measured.
    pub dispersion: Option<Dispersion>,
}

/// Bytes of a path so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Sent.
    pub sent: u64,
    /// Sent up to the newest packet that was acknowledged, that packet included.
    pub passed: u64,
    /// Acknowledged, late acknowledgements included.
    pub acked: u64,
}

/// Packets that were declared lost at one moment.
#[derive(Clone, Copy, Debug)]
pub struct LossSample {
    /// Time at which they were declared lost.
    pub now: Time,
    /// The bytes of these packets.
    pub bytes: u64,
    /// Time at which the newest of them was sent.
    pub sent: Time,
    /// The lost packets span so long a time without an arrival that the path was down or congested:
    /// persistent congestion (RFC 9002 section 7.6).
    pub persistent: bool,
}

/// What a medium lost of the packets of a test, which were so slow that no bottleneck dropped them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tested {
    /// Packets of the test.
    pub packets: u32,
    /// How many of them were lost.
    pub lost: u32,
    /// How long the test took.
    pub took: Duration,
}

/// A congestion controller.
pub trait RateController: Send + fmt::Debug {
    /// The handshake took `rtt`. The controller may use it for the first pace.
    fn on_handshake(&mut self, _rtt: Duration) {}
    /// A packet was sent; `in_flight` includes it. Returns whether [`Self::budget`] may have changed, which
    /// no controller of this crate does here.
    fn on_sent(&mut self, _now: Time, _bytes: u64, _in_flight: u64) -> bool {
        false
    }
    /// Packets were acknowledged.
    fn on_ack(&mut self, ack: &AckSample);
    /// Packet `number` arrived or was lost. The path calls this in the order of sending, once the fates of
    /// all earlier packets are known, and before [`Self::on_ack`] for the acknowledgement that settled it.
    fn on_fate(&mut self, _number: u64, _lost: bool) {}
    /// Packets were lost.
    fn on_loss(&mut self, _loss: &LossSample) {}
    /// The peer counted more packets with a congestion mark. `sent` is when the oldest of the packets left
    /// that this report newly acknowledges: any of them may be marked, and no mark of a packet that left
    /// before the window fell should lower it again. A mark counts as much as a loss, and all marks of a
    /// round trip count as one (RFC 9002 section 7.1; RFC 8311 lets an experiment react less strongly).
    fn on_ecn(&mut self, _now: Time, _sent: Time) {}
    /// The path MTU fell. Recent losses are those of packets that were too long, which says nothing about the
    /// bottleneck or the medium.
    fn on_mtu_fell(&mut self) {}
    /// The peer reported the arrival of a train; see [`Self::train`].
    fn on_train(&mut self, _train: &TrainSample) {}
    /// What the sender may send now. It stays the same until one of the calls above.
    fn budget(&self) -> Budget;
    /// The trains in which packets leave; `None` for an even pace.
    fn train(&self) -> Option<TrainPace> {
        None
    }
    /// Whether current losses are drops of the bottleneck, judging by the delay, or by what arrives at which
    /// rate. Such losses say nothing about the medium: they are the sender's own, dropped at its own rate.
    fn is_congested(&self) -> bool {
        false
    }
    /// Whether the controller sends at most half of what was delivered, to find out what the medium loses.
    fn is_testing(&self) -> bool {
        false
    }
    /// What such a test found since the last call.
    fn poll_tested(&mut self) -> Option<Tested> {
        None
    }
    /// Name of the phase in which the controller is, in lower case, for people and for reports. Empty for a
    /// controller without phases.
    fn state(&self) -> &'static str {
        ""
    }
}
