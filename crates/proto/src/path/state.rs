//! One path: its packet numbers, round trip, loss, size, rate and pace.
//!
//! A connection owns it and tells it what leaves and what the peer says. `T` stands for what the connection's
//! packets carry, which the path keeps and hands back. Invariant: nothing here knows of lanes or symbols.

use core::net::{IpAddr, SocketAddr};
use core::ops::RangeInclusive;
use core::time::Duration;

use super::control::{AckSample, RateController};
use super::flight::{Carried, Fate, Flight, Sent};
use super::losses::Losses;
use super::silence::Silence;
use super::usage::Usage;
use super::{
    DeliveryRate, FeedbackClock, IP_UDP_HEADER, LossDetector, LossEstimator, LossRuns, MtuProber, Pacer,
    ReceivedPackets, Rtt,
};
use crate::Time;

/// The first packet number is left out after this long, later ones every eight probe timeouts. Chosen: often
/// enough to find out a peer that acknowledges what it never saw.
const SKIP_START: Duration = Duration::from_secs(1);
const SKIP_TIMEOUTS: u32 = 8;
/// Lost packets are kept for this long beyond a round trip, to notice that they arrived after all.
const SPURIOUS_WINDOW: Duration = Duration::from_millis(10);

/// See the module.
#[derive(Debug)]
pub(crate) struct Path<T> {
    pub remote: SocketAddr,
    /// Our address that the initiator chose; none where the system picks it.
    pub local: Option<IpAddr>,
    /// The first packet since the way changed: older ones say nothing of it.
    pub first: u64,
    pub rtt: Rtt,
    pub flight: Flight<T>,
    pub losses: Losses,
    pub delivery: DeliveryRate,
    pub mtu: MtuProber,
    pub rate: Box<dyn RateController>,
    pub pacer: Pacer,
    pub received: ReceivedPackets,
    pub feedback: FeedbackClock,
    /// When a packet number is next left out.
    pub skip_at: Time,
    pub silence: Silence,
    pub usage: Usage,
}

impl<T: Copy> Path<T> {
    /// A path to `remote` that nothing went over yet.
    pub fn new(
        (remote, now): (SocketAddr, Time),
        mtu: MtuProber,
        rate: Box<dyn RateController>,
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
            silence: Silence::new(now),
            usage: Usage::new(now),
        }
    }

    /// Whether the window has room for a datagram of `len` bytes. One packet may always fly: the least window
    /// may be less than a large one.
    pub fn has_room(&self, len: usize) -> bool {
        self.flight.is_empty() || self.flight.bytes() + (len + IP_UDP_HEADER) as u64 <= self.rate.budget().window
    }

    /// A packet leaves; its number is what the flight said.
    pub fn on_sent(&mut self, now: Time, bytes: u32, carried: Carried<T>, elicits: bool) {
        let (alone, app_limited) = (self.flight.is_empty(), !self.usage.is_saturated());
        let mark = self.delivery.on_sent(now, bytes, alone);
        self.flight.push(Sent { at: now, bytes, fate: Fate::Open, carried, elicits, app_limited, mark });
        if elicits {
            self.silence.last_eliciting = now;
            if alone {
                self.silence.waiting_since = now;
            }
            self.rate.on_sent(now, u64::from(bytes), self.flight.bytes());
        }
    }

    /// Leaves out a packet number now and then, so that a peer that acknowledges what it never saw is found
    /// out.
    pub fn skip_number(&mut self, now: Time) {
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

    /// Puts the numbers of these ranges, newest first, that were not acknowledged before into `acked`.
    /// Returns false for one that was never sent.
    pub fn newly_acked(&mut self, received: impl Iterator<Item = RangeInclusive<u64>>, acked: &mut Vec<u64>) -> bool {
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

    /// Round trip and delivery rate from the newest packet of a FEEDBACK, if it is the newest of all.
    pub fn measure(&mut self, now: Time, newest: u64, delay: Duration, sample: &mut AckSample) {
        let Some(sent) = self.flight.get(newest).filter(|sent| sent.fate == Fate::Open) else { return };
        if newest < self.first || self.losses.detector.newest().is_some_and(|known| newest <= known) {
            return;
        }
        self.rtt.on_sample(now, now.since(sent.at), delay);
        sample.rtt = Some(self.rtt.latest());
        sample.rate = self.delivery.on_newest(newest, sent.at, sent.mark, now - delay, sent.app_limited);
        sample.dispersion = self.delivery.dispersion(self.rtt.min());
    }

    /// Gives estimator, rate controller and search of the packet size the fates in the order of sending, as
    /// far as they are known.
    pub fn tell_fates(&mut self, now: Time) {
        // Losses of a full queue are congestion: no redundancy answers them.
        let congested = self.rate.is_congested();
        let loss = self.losses.estimator.estimate().rate;
        for (n, sent) in self.flight.iter_from(self.losses.fates_from) {
            match sent.fate {
                Fate::Open if sent.elicits => break,
                _ if matches!(sent.carried, Carried::SizeProbe) => {}
                _ if !sent.elicits => {
                    if sent.fate == Fate::Acked {
                        self.mtu.on_fate(now, sent.at, (sent.payload_len(), false), loss);
                    }
                }
                Fate::Acked | Fate::Lost { .. } => {
                    let lost = sent.fate != Fate::Acked;
                    self.rate.on_fate(n, lost);
                    self.mtu.on_fate(now, sent.at, (sent.payload_len(), lost), loss);
                    self.losses.runs.on_fate(lost);
                    if !congested {
                        self.losses.estimator.on_fate(lost);
                    }
                }
                Fate::Open | Fate::Skipped => {}
            }
            self.losses.fates_from = n + 1;
        }
    }

    /// Forgets packets whose fate is known, or asked for no acknowledgement, once a late one would tell
    /// nothing.
    pub fn forget_packets(&mut self, now: Time) {
        self.flight.forget(now - self.rtt.smoothed() - SPURIOUS_WINDOW);
    }

    /// Forgets all that was measured, the packet size too. Packet numbers go on, and so does what was
    /// received.
    pub fn renew(&mut self, now: Time, rate: Box<dyn RateController>) {
        self.mtu.restart(now, Duration::ZERO);
        self.rtt = Rtt::default();
        self.losses.detector = LossDetector::default();
        self.losses.estimator = LossEstimator::default();
        self.losses.runs = LossRuns::default();
        self.delivery = DeliveryRate::default();
        self.pacer = Pacer::default();
        self.rate = rate;
    }
}
