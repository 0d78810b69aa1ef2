//! What one direction of a link does to datagrams: plain data that is valid by construction and cheap to
//! clone.
//!
//! It is filled in by code, by the text forms of [`crate::settings`] or by a scenario file, and read once by
//! [`Link::new`](super::Link::new). Values that could be invalid (a probability, a Gilbert pair, a blackout)
//! have types that cannot be, so making a link cannot fail. All times count from [`Time::ZERO`].
//!
//! [`Time::ZERO`]: tidewire_proto::Time::ZERO

use core::time::Duration;
use std::sync::Arc;

use super::police::Police;
use super::slots::Slots;
use super::trace::RateTrace;
use tidewire_proto::codel::CodelConfig;
use tidewire_units::{Probability, Rate};

/// Bytes of an IPv4 and a UDP header (RFC 791 section 3.1, RFC 768), which each datagram costs in addition to
/// its payload.
pub const IPV4_UDP_HEADERS: usize = 28;

/// One direction of a link. The default is perfect: no limit, no delay, no loss.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LinkConfig {
    /// Rate at which IP bytes leave the queue.
    pub capacity: Capacity,
    /// Drop-tail limit of the queue before [`capacity`](Self::capacity). `None` means what the capacity
    /// carries in one round trip (for a single link: twice its delay), at least ten packets of 1,500 bytes. A
    /// link of unlimited capacity has no queue.
    pub queue: Option<Queue>,
    /// What the queue does before it is full. A link of unlimited capacity has no queue.
    pub aqm: Aqm,
    /// How datagrams get from the queue onto the link.
    pub mac: Mac,
    /// Which datagrams are dropped behind the queue because they exceed a rate.
    pub police: Police,
    /// Least one-way time, which follows the queue.
    pub delay: Duration,
    /// Extra one-way time, uniform in `[0, jitter]`, drawn for each datagram. The order is kept: a datagram
    /// that would overtake arrives together with the one before it. So the closer the datagrams, the nearer
    /// their delay is to the upper end, and the more of them arrive together.
    pub jitter: Duration,
    /// Which datagrams are held back so that later ones overtake them.
    pub reorder: Reorder,
    /// Probability that a datagram arrives twice, the copy right after the first.
    pub duplicate: Probability,
    /// Probability that a datagram arrives with one byte changed.
    pub corrupt: Probability,
    /// Which datagrams are lost.
    pub loss: Loss,
    /// Times at which nothing passes.
    pub blackouts: Vec<Blackout>,
    /// Bytes added to each payload, so that rates, queues and the MTU apply to IP packets.
    pub headers: usize,
    /// Longest IP packet that passes. Longer ones are lost without an error message, as behind a router whose
    /// ICMP is filtered.
    pub mtu: Option<usize>,
    /// The source of all randomness of this direction.
    pub seed: u64,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            capacity: Capacity::Unlimited,
            queue: None,
            aqm: Aqm::default(),
            mac: Mac::default(),
            police: Police::default(),
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            reorder: Reorder::default(),
            duplicate: Probability::ZERO,
            corrupt: Probability::ZERO,
            loss: Loss::None,
            blackouts: Vec::new(),
            headers: IPV4_UDP_HEADERS,
            mtu: None,
            seed: 1,
        }
    }
}

/// Rate at which IP bytes leave a link's queue.
#[derive(Clone, Debug, PartialEq)]
pub enum Capacity {
    /// Unlimited: no queue and no serialisation time.
    Unlimited,
    /// A constant rate.
    Fixed(Rate),
    /// The delivery opportunities of a recorded link.
    Trace(Arc<RateTrace>),
}

/// The drop-tail limit of a queue. It bounds the IP bytes that *wait*. The packet in service (its first byte
/// has left) does not count, and a packet that finds the link idle never waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// This many IP bytes.
    Bytes(u64),
    /// What the capacity (for a trace: its mean) carries in this time.
    Time(Duration),
}

/// Active queue management (RFC 7567): what a queue does before it is full. By default nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aqm {
    /// Whether the queue drops or marks at its head.
    pub discipline: Discipline,
    /// Datagrams that wait longer than this are marked, as by an ECN threshold (RFC 3168). The caller turns
    /// the mark into a congestion mark if the sender said that it supports them. `None` never marks.
    pub mark: Option<Duration>,
}

/// What a queue does with datagrams before it is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discipline {
    /// Nothing.
    #[default]
    DropTail,
    /// It drops or marks at its head (RFC 8289). Datagrams whose senders support marks are marked.
    Codel(CodelConfig),
}

/// Access to the link, as by the MAC of a radio link. By default every datagram is sent once, and nobody else
/// uses the link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mac {
    /// How often a lost datagram is sent again on this link.
    pub arq: Option<Arq>,
    /// Links with the same medium take turns: at any time one of them transmits.
    pub medium: Option<Arc<str>>,
    /// When the link transmits; `None` is always. It only has an effect on [`Capacity::Fixed`].
    pub slots: Option<Slots>,
}

/// Retransmission on a link. A loss or a blackout takes an attempt, not the datagram. Each attempt takes the
/// link's capacity again, and makes the datagram later by its delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arq {
    /// Attempts after the first. A datagram that fails in all is lost.
    pub retries: u32,
    /// Time from a failed attempt to the next one. The link serves other datagrams meanwhile.
    pub delay: Duration,
    /// Whether later datagrams wait for the one that is sent again.
    pub in_order: bool,
}

/// Reordering: a datagram arrives `by` later than it would have, and later datagrams do not wait for it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reorder {
    /// Probability for each datagram.
    pub probability: Probability,
    /// How long it is held back.
    pub by: Duration,
}

/// Which datagrams are lost after the queue. Independent loss of probability p is the Gilbert model with mean
/// burst 1/(1-p), and is drawn the same way.
#[derive(Clone, Debug, PartialEq)]
pub enum Loss {
    /// No loss.
    None,
    /// Each datagram with this probability, independently.
    Iid(Probability),
    /// Losses in bursts.
    Gilbert(Gilbert),
    /// As recorded: entry i tells whether datagram i after the queue is lost. It starts again at the end. An
    /// empty trace loses nothing.
    Trace(Arc<[bool]>),
}

/// The two-state loss model of Gilbert (1960) with certain loss in the bad state. It makes one step for each
/// datagram after the queue and starts in its steady state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gilbert {
    loss: Probability,
    mean_burst: f64,
}

impl Gilbert {
    /// The model that loses the fraction `loss` of the datagrams in the long run, in runs of `mean_burst` on
    /// average.
    ///
    /// # Errors
    /// Fails if there is no such model. A burst is at least one datagram long, and between two bursts at
    /// least one datagram passes, so `mean_burst` is at least 1 and at least P/(1-P).
    pub fn new(loss: Probability, mean_burst: f64) -> Result<Self, ImpossibleBurst> {
        let least = (loss.value() / (1.0 - loss.value())).max(1.0);
        if mean_burst.is_finite() && mean_burst >= least {
            Ok(Self { loss, mean_burst })
        } else {
            Err(ImpossibleBurst { loss, mean_burst, least })
        }
    }

    /// Fraction of datagrams lost in the long run.
    pub fn loss(&self) -> Probability {
        self.loss
    }

    /// Mean number of consecutive lost datagrams.
    pub fn mean_burst(&self) -> f64 {
        self.mean_burst
    }

    /// Probability that the datagram after one that passed is lost: P/((1-P)B).
    pub fn loss_after_pass(&self) -> f64 {
        self.loss.value() / ((1.0 - self.loss.value()) * self.mean_burst)
    }

    /// Probability that the datagram after a lost one is lost too: 1 - 1/B.
    pub fn loss_after_loss(&self) -> f64 {
        1.0 - 1.0 / self.mean_burst
    }
}

/// A pair of loss rate and mean burst length that no Gilbert model has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImpossibleBurst {
    /// The requested loss rate.
    pub loss: Probability,
    /// The requested mean burst, in datagrams.
    pub mean_burst: f64,
    /// The shortest mean burst that this loss rate allows; infinite at 100 % loss.
    pub least: f64,
}

impl core::fmt::Display for ImpossibleBurst {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { loss, mean_burst, least } = self;
        write!(f, "a mean burst of {mean_burst} is impossible at {loss} loss")?;
        if least.is_finite() {
            write!(f, ": it must be at least {least:.3}")
        } else {
            write!(f, ": use independent loss for a link that is dead")
        }
    }
}

impl core::error::Error for ImpossibleBurst {}

/// A time `[start, end)` in which nothing passes, once or periodically. What counts for a datagram is the
/// time at which its last bit leaves the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blackout {
    start: u64,
    end: u64,
    every: Option<u64>,
}

impl Blackout {
    /// One blackout from `start` until just before `end`.
    ///
    /// # Errors
    /// Fails if it would end before it begins, or have no duration.
    pub fn once(start: Duration, end: Duration) -> Result<Self, EmptyBlackout> {
        Self::new(start, end, None)
    }

    /// A blackout from `start` until just before `end`, repeated after each `period`.
    ///
    /// # Errors
    /// Fails if it would end before it begins, have no duration, or last as long as `period`.
    pub fn periodic(start: Duration, end: Duration, period: Duration) -> Result<Self, EmptyBlackout> {
        Self::new(start, end, Some(period))
    }

    fn new(start: Duration, end: Duration, period: Option<Duration>) -> Result<Self, EmptyBlackout> {
        if start >= end || period.is_some_and(|period| period <= end - start) {
            return Err(EmptyBlackout { start, end, period });
        }
        Ok(Self { start: nanos(start), end: nanos(end), every: period.map(nanos) })
    }

    /// Whether nothing passes at `now`, in nanoseconds since the start.
    pub(super) fn covers(&self, now: u64) -> bool {
        let Some(since) = now.checked_sub(self.start) else { return false };
        self.every.map_or(since, |every| since % every) < self.end - self.start
    }
}

/// A blackout that covers nothing, or everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmptyBlackout {
    /// Its beginning.
    pub start: Duration,
    /// Its end, which it does not include.
    pub end: Duration,
    /// Time from one beginning to the next.
    pub period: Option<Duration>,
}

impl core::fmt::Display for EmptyBlackout {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { start, end, period } = self;
        match period {
            Some(period) if start < end => {
                write!(f, "a blackout of {:?} every {period:?} would never end: lengthen the period", *end - *start)
            }
            _ => write!(f, "a blackout from {start:?} to {end:?} takes no time: give an end after its start"),
        }
    }
}

impl core::error::Error for EmptyBlackout {}

/// A duration in nanoseconds, saturating at 584 years.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
