//! What a path tells its rate controller, and what it wants to know from it.
//!
//! The controllers of `rate/` implement [`RateController`]; a path owns one and calls it for each packet.
//! Invariant: a controller sees packets, never symbols (RFC 9265).

use core::fmt;
use core::time::Duration;

use super::{Dispersion, RateSample};
use crate::Time;

/// What a sender may do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes in flight (IP and UDP headers included) that must not be exceeded.
    pub window: u64,
    /// Bytes per second at which packets leave.
    pub pacing: u64,
}

/// One FEEDBACK's worth of newly acknowledged packets.
#[derive(Clone, Copy, Debug)]
pub struct AckSample {
    /// When the FEEDBACK came.
    pub now: Time,
    /// Bytes newly acknowledged.
    pub bytes: u64,
    /// Bytes still in flight after it.
    pub in_flight: u64,
    /// Newest packet number acknowledged so far.
    pub newest: u64,
    /// When that packet had left.
    pub left: Time,
    /// Number of the next packet to be sent: where the running round trip ends.
    pub next: u64,
    /// Round trip of the newest packet, if this acknowledgement gave one.
    pub rtt: Option<Duration>,
    /// Smoothed round trip.
    pub smoothed: Duration,
    /// Least round trip of the last ten seconds.
    pub min_rtt: Duration,
    /// Delivery rate over the last round trip, if it could be measured.
    pub rate: Option<RateSample>,
    /// What the dispersion of the latest packets tells of it.
    pub dispersion: Option<Dispersion>,
}

/// Packets found lost at one moment.
#[derive(Clone, Copy, Debug)]
pub struct LossSample {
    /// When they were given up.
    pub now: Time,
    /// Their bytes.
    pub bytes: u64,
    /// When the newest of them had left.
    pub sent: Time,
    /// They span so long without one that arrived that the path was down or choked: persistent congestion
    /// (RFC 9002 section 7.6).
    pub persistent: bool,
}

/// A congestion controller.
pub trait RateController: Send + fmt::Debug {
    /// The handshake took this long: the first pace may count on it.
    fn on_handshake(&mut self, _rtt: Duration) {}
    /// A packet left; `in_flight` counts it.
    fn on_sent(&mut self, _now: Time, _bytes: u64, _in_flight: u64) {}
    /// Packets were acknowledged.
    fn on_ack(&mut self, ack: &AckSample);
    /// What became of packet `number`, in the order of sending: told when all before it are settled too, and
    /// before the acknowledgement that settled it.
    fn on_fate(&mut self, _number: u64, _lost: bool) {}
    /// Packets were lost.
    fn on_loss(&mut self, _loss: &LossSample) {}
    /// The peer counted more packets with a congestion mark; the newest acknowledged one left at `sent`. A
    /// mark weighs as much as a loss, and all marks of a round trip as much as one (RFC 9002 section 7.1; RFC
    /// 8311 lets an experiment answer more mildly).
    fn on_ecn(&mut self, _now: Time, _sent: Time) {}
    /// What may be sent.
    fn budget(&self) -> Budget;
    /// Whether losses now are the bottleneck queue's own, as far as the delay tells: then they say nothing
    /// about the medium.
    fn is_congested(&self) -> bool {
        false
    }
}
