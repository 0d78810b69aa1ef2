//! One direction of an emulated link, without clock or I/O.
//!
//! The simulator, the UDP proxy and the namespace lab put datagrams in with [`Link::send`] and take them out
//! with [`Link::poll_delivery`] when [`Link::poll_timeout`] says so. A datagram meets, in this order,
//!
//! ```text
//! MTU -> drop-tail queue -> serialisation at the rate -> blackout, loss -> corruption -> duplication
//!     -> delay + jitter (order kept) -> hold-back (reordering) -> delivery
//! ```
//!
//! Nothing that happens later changes what becomes of a datagram already sent, so the whole fate is settled,
//! and told, by `send`. Invariants: the same configuration and the same calls give the same fates;
//! impairments do not disturb each other's draws (see `random`); [`LinkStats`] sums at any moment; once the
//! two queues have grown to the number of datagrams in flight, nothing is allocated.

mod bottleneck;
mod config;
mod loss;
pub(crate) mod random;
mod stats;
mod trace;

#[cfg(test)]
mod tests;

use core::cmp::{Ordering, Reverse};
use core::num::NonZeroU8;
use core::time::Duration;
use std::collections::VecDeque;
use std::collections::binary_heap::{BinaryHeap, PeekMut};
use std::sync::{Arc, Mutex, PoisonError};

use tidewire_proto::Time;

use bottleneck::{Bottleneck, Service};
use config::nanos;
pub(crate) use loss::LossProcess;
use random::{Purpose, Stream};
use tidewire_units::Probability;

pub use config::{
    Blackout, Capacity, EmptyBlackout, Gilbert, IPV4_UDP_HEADERS, ImpossibleBurst, LinkConfig, Loss, Queue, Reorder,
};
pub(crate) use random::opposite;
pub use stats::LinkStats;
pub use trace::{OPPORTUNITY_BYTES, RateTrace, TraceError};

/// One direction of a link that carries payloads of type `T`: the bytes themselves, or a handle to them.
#[derive(Clone, Debug)]
pub struct Link<T> {
    config: LinkConfig,
    /// Behind a lock, because links can share one.
    bottleneck: Option<Arc<Mutex<Bottleneck>>>,
    loss: LossProcess,
    streams: Streams,
    /// Number of datagrams that passed the MTU and the queue. The number of a datagram selects its draws.
    serial: u64,
    /// Arrival of the newest datagram that was not held back. The next one does not arrive earlier.
    newest_arrival: u64,
    /// In order of arrival.
    in_order: VecDeque<InFlight<T>>,
    /// Datagrams held back, the earliest arrival on top.
    held: BinaryHeap<Reverse<InFlight<T>>>,
    /// The second copy of the datagram returned last.
    copy: Option<Delivery<T>>,
    stats: LinkStats,
}

#[derive(Clone, Copy, Debug)]
struct Streams {
    jitter: Stream,
    reorder: Stream,
    duplicate: Stream,
    corrupt: Stream,
    damage: Stream,
}

/// What happens to a datagram sent on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It will arrive: [`Link::poll_delivery`] returns it at this time.
    Carried {
        /// When it arrives.
        arrives: Time,
    },
    /// The queue had no room for it.
    QueueFull,
    /// Its IP packet was longer than the MTU.
    TooLong,
    /// The loss model dropped it.
    Lost,
    /// It left the queue in a blackout.
    BlackedOut,
}

/// A datagram that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<T> {
    /// What was sent.
    pub payload: T,
    /// When it arrived, which may be before the `now` of the call.
    pub at: Time,
    /// The change of the payload, which the caller has to apply.
    pub corruption: Option<Corruption>,
    /// Whether it waited so long that it must carry a congestion mark if its sender supports them. The caller
    /// applies the mark.
    pub marked: bool,
}

/// One changed byte. Any checksum of the datagram is assumed to be corrected afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Corruption {
    /// Position of the byte in the payload.
    pub offset: usize,
    /// The bits that are inverted.
    pub mask: NonZeroU8,
}

impl Corruption {
    /// Changes `payload`. Does nothing if it is shorter than the length passed to [`Link::send`].
    pub fn apply(self, payload: &mut [u8]) {
        if let Some(byte) = payload.get_mut(self.offset) {
            *byte ^= self.mask.get();
        }
    }
}

#[derive(Clone, Debug)]
struct InFlight<T> {
    arrives: u64,
    serial: u64,
    ip_bytes: u64,
    corruption: Option<Corruption>,
    marked: bool,
    /// Whether a copy follows it.
    doubled: bool,
    payload: T,
}

impl<T> Link<T> {
    /// An idle link.
    pub fn new(config: &LinkConfig) -> Self {
        Self::with_round_trip(config, config.delay.saturating_mul(2))
    }

    /// An idle link that is one direction of a path with this round trip, which determines its default queue.
    pub(crate) fn with_round_trip(config: &LinkConfig, round_trip: Duration) -> Self {
        let stream = |purpose| Stream::new(config.seed, purpose);
        Self {
            bottleneck: Bottleneck::new(&config.capacity, config.queue, round_trip).map(|b| Arc::new(Mutex::new(b))),
            loss: LossProcess::new(&config.loss, config.seed),
            streams: Streams {
                jitter: stream(Purpose::Jitter),
                reorder: stream(Purpose::Reorder),
                duplicate: stream(Purpose::Duplicate),
                corrupt: stream(Purpose::Corrupt),
                damage: stream(Purpose::Damage),
            },
            config: config.clone(),
            serial: 0,
            newest_arrival: 0,
            in_order: VecDeque::new(),
            held: BinaryHeap::new(),
            copy: None,
            stats: LinkStats::default(),
        }
    }

    /// From now on the datagrams of both links wait in `other`'s queue and leave it at its rate. Everything
    /// else stays separate. Calls of [`Self::send`] must then be in order of `now` over both links.
    pub fn share_queue<U>(&mut self, other: &Link<U>) {
        self.bottleneck.clone_from(&other.bottleneck);
    }

    /// Sends a datagram of `len` payload bytes. Calls must be in order of `now`. The payload is dropped
    /// unless the datagram is [`Fate::Carried`].
    pub fn send(&mut self, now: Time, len: usize, payload: T) -> Fate {
        let ip_len = len.saturating_add(self.config.headers);
        let ip_bytes = ip_len as u64;
        self.stats.offered += 1;
        self.stats.offered_bytes += ip_bytes;
        if self.config.mtu.is_some_and(|mtu| ip_len > mtu) {
            self.stats.too_long += 1;
            return Fate::TooLong;
        }
        let Some(service) = self.enqueue(now.0, ip_bytes) else {
            self.stats.queue_dropped += 1;
            return Fate::QueueFull;
        };
        let waited = service.start.saturating_sub(now.0);
        self.stats.on_queued(waited);
        let marked = self.config.mark.is_some_and(|threshold| waited > nanos(threshold));

        let serial = self.serial;
        self.serial += 1;
        // The model makes a step in a blackout too, so that the pattern of losses does not depend on
        // blackouts.
        let lost = self.loss.loses(serial);
        if self.config.blackouts.iter().any(|blackout| blackout.covers(service.end)) {
            self.stats.blacked_out += 1;
            return Fate::BlackedOut;
        }
        if lost {
            self.stats.lost += 1;
            return Fate::Lost;
        }
        let arrives = self.launch((serial, marked), service.end, len, ip_bytes, payload);
        Fate::Carried { arrives: Time(arrives) }
    }

    /// From now on nothing is lost, changed, duplicated, delayed at random or held back. Rate, queue, delay
    /// and MTU stay. Datagrams in flight keep their fate.
    pub fn calm(&mut self) {
        let Self { config, loss, .. } = self;
        config.jitter = Duration::ZERO;
        config.reorder = Reorder::default();
        (config.duplicate, config.corrupt) = (Probability::ZERO, Probability::ZERO);
        config.blackouts.clear();
        *loss = LossProcess::new(&Loss::None, config.seed);
    }

    /// From now on this model loses datagrams. Datagrams in flight keep their fate.
    pub fn set_loss(&mut self, loss: &Loss) {
        self.loss = LossProcess::new(loss, self.config.seed);
    }

    /// From now on datagrams take this long after the queue. Datagrams in flight arrive when they would have.
    pub fn set_delay(&mut self, delay: Duration) {
        self.config.delay = delay;
    }

    /// From now on IP packets longer than `mtu` bytes are lost. Datagrams in flight keep their fate.
    pub fn set_mtu(&mut self, mtu: Option<usize>) {
        self.config.mtu = mtu;
    }

    /// When [`poll_delivery`](Self::poll_delivery) will have something; `None` if nothing is in flight.
    pub fn poll_timeout(&self) -> Option<Time> {
        let in_order = self.in_order.front().map(|next| next.arrives);
        let held = self.held.peek().map(|Reverse(next)| next.arrives);
        let copy = self.copy.as_ref().map(|copy| copy.at.0);
        in_order.into_iter().chain(held).chain(copy).min().map(Time)
    }

    /// The counts of this direction.
    pub fn stats(&self) -> &LinkStats {
        &self.stats
    }

    /// Passes the queue, if there is one; `None` if it is full.
    fn enqueue(&mut self, now: u64, ip_bytes: u64) -> Option<Service> {
        match &self.bottleneck {
            // Code that holds the lock cannot panic half-way.
            Some(bottleneck) => bottleneck.lock().unwrap_or_else(PoisonError::into_inner).offer(now, ip_bytes),
            None => Some(Service { start: now, end: now }),
        }
    }

    /// Puts a datagram that left the queue at `departed` in flight. Returns when it arrives.
    fn launch(&mut self, (serial, marked): (u64, bool), departed: u64, len: usize, ip_bytes: u64, payload: T) -> u64 {
        let Self { config, streams, .. } = self;
        let corrupt = streams.corrupt.happens(serial, config.corrupt);
        let corruption = if corrupt { damage(streams.damage.bits(serial), len) } else { None };
        let doubled = streams.duplicate.happens(serial, config.duplicate);
        let jitter = if config.jitter.is_zero() { 0 } else { streams.jitter.up_to(serial, config.jitter) };
        let arrives = departed.saturating_add(nanos(config.delay)).saturating_add(jitter).max(self.newest_arrival);

        let mut datagram = InFlight { arrives, serial, ip_bytes, corruption, marked, doubled, payload };
        self.stats.in_flight += 1;
        if streams.reorder.happens(serial, config.reorder.probability) {
            datagram.arrives = arrives.saturating_add(nanos(config.reorder.by));
            let arrives = datagram.arrives;
            self.held.push(Reverse(datagram));
            arrives
        } else {
            self.newest_arrival = arrives;
            self.in_order.push_back(datagram);
            arrives
        }
    }
}

impl<T: Clone> Link<T> {
    /// The next datagram that has arrived by `now`, earliest first. Call until `None`.
    pub fn poll_delivery(&mut self, now: Time) -> Option<Delivery<T>> {
        if let Some(copy) = self.copy.take_if(|copy| copy.at <= now) {
            self.stats.duplicated += 1;
            return Some(copy);
        }
        let datagram = self.next_arrived(now.0)?;
        self.stats.in_flight -= 1;
        self.stats.delivered += 1;
        self.stats.delivered_bytes += datagram.ip_bytes;
        self.stats.corrupted += u64::from(datagram.corruption.is_some());
        self.stats.marked += u64::from(datagram.marked);
        let InFlight { arrives, corruption, marked, payload, doubled, .. } = datagram;
        let delivery = Delivery { payload, at: Time(arrives), corruption, marked };
        if doubled {
            self.copy = Some(delivery.clone());
        }
        Some(delivery)
    }

    /// Takes the earliest datagram out of the two queues if it has arrived by `now`.
    fn next_arrived(&mut self, now: u64) -> Option<InFlight<T>> {
        let held_is_first = match (self.in_order.front(), self.held.peek()) {
            (Some(in_order), Some(Reverse(held))) => held < in_order,
            (in_order, _) => in_order.is_none(),
        };
        if !held_is_first {
            let arrived = self.in_order.front()?.arrives <= now;
            return if arrived { self.in_order.pop_front() } else { None };
        }
        let top = self.held.peek_mut()?;
        if top.0.arrives > now {
            return None;
        }
        self.stats.reordered += 1;
        Some(PeekMut::pop(top).0)
    }
}

/// Earlier arrival first, then in order of sending.
impl<T> Ord for InFlight<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.arrives, self.serial).cmp(&(other.arrives, other.serial))
    }
}

impl<T> PartialOrd for InFlight<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for InFlight<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for InFlight<T> {}

/// The change that `bits` of randomness make to a payload of `len` bytes; `None` if there is no byte to
/// change.
fn damage(bits: u64, len: usize) -> Option<Corruption> {
    let offset = ((u128::from(bits) * len as u128) >> 64) as usize;
    // The low bits choose one of the 255 masks, the high bits the offset.
    let mask = NonZeroU8::MIN.saturating_add((bits % 255) as u8);
    (len > 0).then_some(Corruption { offset, mask })
}
