//! One path: its packet numbers, round trip, loss, packet size, rate and pace.
//!
//! A connection owns it and reports what it sends and what the peer acknowledges. `T` describes what the
//! connection's packets carry; the path stores it and returns it. Invariant: nothing here depends on lanes or
//! symbols.

use core::net::{IpAddr, SocketAddr};
use core::ops::RangeInclusive;
use core::time::Duration;

use super::app_limited::AppLimited;
use super::control::AckSample;
use super::controller::Controller;
use super::flight::{Carried, Fate, Flight, Sent};
use super::floor::{FloorStats, Sending};
use super::losses::{Cause, Losses};
use super::pto::Pto;
use super::trains::Last;
use super::{
    DeliveryRate, FeedbackClock, IP_UDP_HEADER, LossDetector, LossEstimator, LossRuns, MAX_FEEDBACK_DELAY, MtuProber,
    Pacer, ReceivedPackets, Rtt,
};
use crate::Time;
use crate::wire::TrainReport;

/// The sender skips the first packet number after this time, and further ones every eight probe timeouts.
/// Chosen: often enough to expose a peer that acknowledges packets it never received.
const SKIP_START: Duration = Duration::from_secs(1);
const SKIP_TIMEOUTS: u32 = 8;
/// Lost packets are kept for a round trip plus this time, to notice late arrivals.
const SPURIOUS_WINDOW: Duration = Duration::from_millis(10);

/// One path, described in the module documentation.
#[derive(Debug)]
pub(crate) struct Path<T> {
    pub remote: SocketAddr,
    /// Our address, chosen by the initiator; `None` if the system picks it.
    pub local: Option<IpAddr>,
    /// The first packet since the route changed. Older packets say nothing about it.
    pub first: u64,
    pub rtt: Rtt,
    pub flight: Flight<T>,
    pub losses: Losses,
    pub delivery: DeliveryRate,
    pub mtu: MtuProber,
    pub rate: Controller,
    pub pacer: Pacer,
    pub received: ReceivedPackets,
    pub feedback: FeedbackClock,
    /// Time at which the next packet number is skipped.
    pub skip_at: Time,
    pub pto: Pto,
    pub app_limited: AppLimited,
}

impl<T: Copy> Path<T> {
    /// A path to `remote` on which nothing was sent yet.
    pub(crate) fn new(
        remote: SocketAddr,
        now: Time,
        mtu: MtuProber,
        rate: Controller,
        feedback: FeedbackClock,
    ) -> Self {
        Self {
            remote,
            local: None,
            first: 0,
            rtt: Rtt::default(),
            flight: Flight::default(),
            losses: Losses::default(),
            delivery: DeliveryRate::default(),
            mtu,
            rate,
            pacer: Pacer::default(),
            received: ReceivedPackets::default(),
            feedback,
            skip_at: now + SKIP_START,
            pto: Pto::new(now),
            app_limited: AppLimited::new(now),
        }
    }

    /// Whether the window has room for a datagram of `len` bytes. One packet is always allowed, because the
    /// minimum window may be smaller than a large packet.
    pub(crate) fn has_room(&self, len: usize) -> bool {
        self.flight.is_empty() || self.flight.bytes() + (len + IP_UDP_HEADER) as u64 <= self.rate.budget().window
    }

    /// Full packets for which the window has room.
    pub(crate) fn room(&self) -> u64 {
        let room = self.rate.budget().window.saturating_sub(self.flight.bytes());
        room / u64::from(self.mtu.current()).saturating_add(IP_UDP_HEADER as u64)
    }

    /// A packet is sent. Its number is the flight's next number.
    pub(crate) fn on_sent(&mut self, now: Time, bytes: u32, carried: Carried<T>, elicits: bool) {
        let alone = self.flight.is_empty();
        let app_limited = !self.app_limited.is_saturated() || self.rate.seen().is_testing();
        let mark = self.delivery.on_sent(now, bytes, alone);
        self.delivery.trains.on_sent(self.flight.next_number(), now, mark.sent());
        self.flight.push(Sent { at: now, bytes, fate: Fate::Open, carried, elicits, app_limited, mark });
        if elicits {
            self.pto.last_eliciting = now;
            if alone {
                self.pto.waiting_since = now;
            }
            self.rate.on_sent(now, u64::from(bytes), self.flight.bytes());
        }
    }

    /// Takes the peer's report of a train. Returns false if it names a packet that was never sent.
    pub(crate) fn on_train_report(&mut self, now: Time, report: &TrainReport) -> bool {
        let number = report.first + u64::from(report.distance);
        if number >= self.flight.next_number() {
            return false;
        }
        // A packet that was settled before has left the queue: the report came after newer FEEDBACK.
        let Some(sent) = self.flight.get(number) else { return true };
        if sent.fate == Fate::Skipped {
            return false;
        }
        if let Some(sample) = self.delivery.trains.measure(now, report, Last { at: sent.at, sent: sent.mark.sent() }) {
            self.rate.on_train(&sample);
        }
        true
    }

    /// Skips a packet number now and then, to expose a peer that acknowledges packets it never received.
    pub(crate) fn skip_number(&mut self, now: Time) {
        if now < self.skip_at {
            return;
        }
        self.skip_at = now + self.rtt.probe_timeout(Duration::ZERO) * SKIP_TIMEOUTS;
        if self.flight.is_empty() {
            return;
        }
        self.flight.push(Sent {
            at: now,
            bytes: 0,
            fate: Fate::Skipped,
            carried: Carried::Control,
            elicits: false,
            app_limited: false,
            mark: Default::default(),
        });
    }

    /// Appends to `acked` the numbers in these ranges, newest first, that were not acknowledged before.
    /// Returns false if a number was never sent.
    pub(crate) fn newly_acked(
        &mut self,
        received: impl Iterator<Item = RangeInclusive<u64>>,
        acked: &mut Vec<u64>,
    ) -> bool {
        let first = self.flight.first_number();
        acked.clear();
        for range in received {
            if *range.end() >= self.flight.next_number() {
                return false;
            }
            if *range.end() < first {
                break;
            }
            let mut newest = self.flight.newest_unacknowledged(*range.end());
            while let Some(n) = newest.filter(|n| range.contains(n)) {
                if self.flight.get(n).is_some_and(|sent| sent.fate == Fate::Skipped) {
                    return false;
                }
                acked.push(n);
                newest = n.checked_sub(1).and_then(|below| self.flight.newest_unacknowledged(below));
            }
        }
        true
    }

    /// Measures RTT, one-way delay and delivery rate from the newest packet of a FEEDBACK, if no newer one
    /// was acknowledged before. The peer reports how long it kept the FEEDBACK back, and when the packet
    /// arrived on its clock.
    pub(crate) fn measure(
        &mut self,
        now: Time,
        newest: u64,
        (delay, arrival): (Duration, Option<u32>),
        sample: &mut AckSample,
    ) {
        let Some(sent) = self.flight.get(newest).filter(|sent| sent.fate == Fate::Open) else { return };
        if newest < self.first || self.losses.detector.newest().is_some_and(|known| newest <= known) {
            return;
        }
        self.rate.on_host_delay(now, sent.at, delay);
        self.rtt.on_sample(now, now.since(sent.at), delay);
        sample.rtt = Some(self.rtt.latest());
        (sample.newest_bytes, sample.app_limited) = (sent.bytes, sent.app_limited);
        sample.one_way = arrival.map(|arrival| self.delivery.one_way.on_sample(now, sent.at, arrival, delay));
        let rtt = self.rtt.latest();
        let arrived = sample.one_way.map_or(now - delay, |one_way| self.delivery.arrival(sent.at, one_way, rtt));
        sample.rate = self.delivery.on_newest(newest, sent.at, sent.mark, arrived, sent.app_limited);
        sample.dispersion = self.delivery.dispersion(self.rtt.min());
    }

    /// Reports known fates to the estimator, the rate controller and the MTU search, in the order of sending.
    pub(crate) fn tell_fates(&mut self, now: Time) {
        // What the bottleneck drops is congestion, so no redundancy answers it and no report calls it loss.
        let congested = self.rate.is_congested();
        let loss = self.losses.estimator.estimate().rate;
        for (n, sent) in self.flight.iter_from(self.losses.fates_from) {
            match sent.fate {
                Fate::Open if sent.elicits => break,
                _ if matches!(sent.carried, Carried::SizeProbe) => {}
                _ if !sent.elicits => {
                    if sent.fate == Fate::Acked && self.mtu.on_fate(now, sent.at, sent.payload_len(), false, loss) {
                        self.rate.on_mtu_fell();
                    }
                }
                Fate::Acked | Fate::Lost { .. } => {
                    let lost = sent.fate != Fate::Acked;
                    // What the peer's host drops says nothing about the path.
                    let at_host = matches!(sent.fate, Fate::Lost { cause: Cause::Host, .. });
                    if at_host || lost && self.mtu.was_too_long(sent.at, sent.payload_len()) {
                        self.losses.fates_from = n + 1;
                        continue;
                    }
                    self.rate.on_fate(n, sent.bytes, lost, sent.app_limited);
                    self.mtu.on_answerable_fate(sent.at, sent.payload_len(), lost);
                    if self.mtu.on_fate(now, sent.at, sent.payload_len(), lost, loss) {
                        self.rate.on_mtu_fell();
                    }
                    if !matches!(sent.fate, Fate::Lost { cause: Cause::OwnRate, .. }) {
                        self.losses.runs.on_fate(lost);
                    }
                    if !congested {
                        self.losses.estimator.on_fate(lost);
                    }
                }
                Fate::Open | Fate::Skipped => {}
            }
            self.losses.fates_from = n + 1;
        }
        let (rtt, next) = (self.rtt.smoothed(), self.flight.next_number());
        self.rate.floor().review(now, Sending { next, rtt, queue: rtt.saturating_sub(self.rtt.min()) });
    }

    /// Whether an acknowledgement at `now` ends a silence of the length of persistent congestion (RFC 9002
    /// section 7.6).
    pub(crate) fn was_dead(&self, now: Time) -> bool {
        let span = self.rtt.persistent_span(MAX_FEEDBACK_DELAY);
        self.pto.probes > 0 && span.is_some_and(|(_, span)| now.since(self.pto.waiting_since) >= span)
    }

    /// Removes packets whose fate is known, or that asked for no acknowledgement, once a late acknowledgement
    /// would have no use.
    pub(crate) fn forget_packets(&mut self, now: Time) {
        self.flight.forget(now - self.rtt.smoothed() - SPURIOUS_WINDOW);
    }

    /// Discards all measurements, including the packet size. Packet numbers continue, and the received
    /// packets stay known.
    pub(crate) fn renew(&mut self, now: Time, mut rate: Controller) {
        self.mtu.on_new_path(now);
        self.rtt = Rtt::default();
        self.losses.detector = LossDetector::default();
        self.losses.estimator = LossEstimator::default();
        self.losses.runs = LossRuns::default();
        self.delivery = DeliveryRate::default();
        self.pacer = Pacer::default();
        // The counts are of the connection; what a test found was of the old path.
        rate.floor().stats = FloorStats { confirmed_loss: 0.0, ..self.rate.seen().stats };
        self.rate = rate;
    }
}
