//! What one direction of a link does to datagrams: plain data, valid by construction, cheap to clone.
//!
//! Filled in by hand, from the text forms of [`crate::settings`], or from a scenario file; read once by
//! [`Link::new`](super::Link::new). Values that could be wrong (a probability, a Gilbert pair, a blackout)
//! have types that cannot be built wrong, so making a link cannot fail. All times count from [`Time::ZERO`].
//!
//! [`Time::ZERO`]: tidewire_proto::Time::ZERO

use core::time::Duration;
use std::sync::Arc;

use super::trace::RateTrace;
use tidewire_units::{Probability, Rate};

/// Bytes of an IPv4 and a UDP header (RFC 791 section 3.1, RFC 768): what a datagram costs beyond its
/// payload.
pub const IPV4_UDP_HEADERS: usize = 28;

/// One direction of a link. The default is a perfect one: no limit, no delay, no loss.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LinkConfig {
    /// How fast IP bytes leave the queue.
    pub capacity: Capacity,
    /// Drop-tail limit of the queue in front of [`capacity`](Self::capacity). `None` is what the capacity
    /// carries in one round trip (for a lone link: twice its delay), at least ten packets of 1,500 bytes. A
    /// link of unlimited capacity has no queue.
    pub queue: Option<Queue>,
    /// Datagrams that wait for longer than this leave the queue marked, as by an ECN threshold (RFC 3168):
    /// who carries them makes that a congestion mark where the sender said that it knows them. None never
    /// marks.
    pub mark: Option<Duration>,
    /// Least one-way time, spent after the queue.
    pub delay: Duration,
    /// Extra one-way time, uniform in `[0, jitter]`, drawn for each datagram. Order is kept: a datagram whose
    /// draw would let it overtake arrives together with the one before it. So the closer the datagrams, the
    /// nearer their delay stays to the upper end, and the more of them arrive in clumps.
    pub jitter: Duration,
    /// Which datagrams are held back so that later ones overtake them.
    pub reorder: Reorder,
    /// Chance that a datagram arrives twice, the copy right behind the first.
    pub duplicate: Probability,
    /// Chance that a datagram arrives with one byte changed.
    pub corrupt: Probability,
    /// Which datagrams vanish.
    pub loss: Loss,
    /// When nothing passes.
    pub blackouts: Vec<Blackout>,
    /// Bytes counted on top of each payload, so that rates, queues and the MTU are of IP packets.
    pub headers: usize,
    /// Longest IP packet that passes; longer ones vanish without a word, as behind a router whose ICMP is
    /// filtered.
    pub mtu: Option<usize>,
    /// Where all randomness of this direction comes from.
    pub seed: u64,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            capacity: Capacity::Unlimited,
            queue: None,
            mark: None,
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

/// How fast IP bytes leave a link's queue.
#[derive(Clone, Debug, PartialEq)]
pub enum Capacity {
    /// At once: no queue, no serialisation time.
    Unlimited,
    /// At a constant rate.
    Fixed(Rate),
    /// At the delivery opportunities of a recorded link.
    Trace(Arc<RateTrace>),
}

/// The drop-tail limit of a queue. It bounds the IP bytes that *wait*: the packet in service (its first byte
/// has left) is not counted, and a packet that finds the link idle never waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// This many IP bytes.
    Bytes(u64),
    /// What the capacity (of a trace: its mean) carries in this time.
    Time(Duration),
}

/// Holding back: a datagram arrives `by` later than it would have, and those behind it do not wait for it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reorder {
    /// Chance for each datagram.
    pub probability: Probability,
    /// How long it is held.
    pub by: Duration,
}

/// Which datagrams vanish after the queue. Independent loss of probability p is the Gilbert model whose mean
/// burst is 1/(1-p), and is drawn the same way.
#[derive(Clone, Debug, PartialEq)]
pub enum Loss {
    /// None do.
    None,
    /// Each with this probability, independently.
    Iid(Probability),
    /// In bursts.
    Gilbert(Gilbert),
    /// As recorded: entry i says whether datagram i past the queue vanishes; begins anew at the end. An empty
    /// trace loses nothing.
    Trace(Arc<[bool]>),
}

/// The two-state loss model of Gilbert (1960) with certain loss in the bad state, stepped once for each
/// datagram past the queue, started in its steady state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gilbert {
    loss: Probability,
    mean_burst: f64,
}

impl Gilbert {
    /// The model that in the long run loses `loss` of the datagrams, in runs of `mean_burst` on average.
    ///
    /// # Errors
    /// When no such model exists: bursts are at least one datagram long, and between two bursts at least one
    /// datagram passes, so that `mean_burst` is at least 1 and at least P/(1-P).
    pub fn new(loss: Probability, mean_burst: f64) -> Result<Self, ImpossibleBurst> {
        let least = (loss.value() / (1.0 - loss.value())).max(1.0);
        if mean_burst.is_finite() && mean_burst >= least {
            Ok(Self { loss, mean_burst })
        } else {
            Err(ImpossibleBurst { loss, mean_burst, least })
        }
    }

    /// Share of datagrams lost in the long run.
    pub fn loss(&self) -> Probability {
        self.loss
    }

    /// Mean number of datagrams lost in a row.
    pub fn mean_burst(&self) -> f64 {
        self.mean_burst
    }

    /// Chance that the datagram after one that passed is lost: P/((1-P)B).
    pub fn loss_after_pass(&self) -> f64 {
        self.loss.value() / ((1.0 - self.loss.value()) * self.mean_burst)
    }

    /// Chance that the datagram after a lost one is lost too: 1 - 1/B.
    pub fn loss_after_loss(&self) -> f64 {
        1.0 - 1.0 / self.mean_burst
    }
}

/// A pair of loss rate and mean burst length that no Gilbert model has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImpossibleBurst {
    /// The loss rate asked for.
    pub loss: Probability,
    /// The mean burst asked for, in datagrams.
    pub mean_burst: f64,
    /// The shortest mean burst that this loss rate allows; infinite at a loss of 100 %.
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

/// A stretch of time `[start, end)` in which nothing passes, once or periodically. A datagram is judged at
/// the moment its last bit leaves the queue.
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
    /// When it would end before it begins, or take no time.
    pub fn once(start: Duration, end: Duration) -> Result<Self, EmptyBlackout> {
        Self::new(start, end, None)
    }

    /// A blackout from `start` until just before `end`, and again after each `period`.
    ///
    /// # Errors
    /// When it would end before it begins, take no time, or last as long as `period`.
    pub fn periodic(start: Duration, end: Duration, period: Duration) -> Result<Self, EmptyBlackout> {
        Self::new(start, end, Some(period))
    }

    fn new(start: Duration, end: Duration, period: Option<Duration>) -> Result<Self, EmptyBlackout> {
        if start >= end || period.is_some_and(|period| period <= end - start) {
            return Err(EmptyBlackout { start, end, period });
        }
        Ok(Self { start: nanos(start), end: nanos(end), every: period.map(nanos) })
    }

    /// Whether the link is dead at `now`, in nanoseconds since the start.
    pub(super) fn covers(&self, now: u64) -> bool {
        let Some(since) = now.checked_sub(self.start) else { return false };
        self.every.map_or(since, |every| since % every) < self.end - self.start
    }
}

/// A blackout that covers nothing, or everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmptyBlackout {
    /// Its first moment.
    pub start: Duration,
    /// The first moment after it.
    pub end: Duration,
    /// Time from one to the next.
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
