//! One direction of an emulated link, without clock or I/O.
//!
//! The simulator, the UDP proxy and the namespace lab put datagrams in with [`Link::send`] and take them out
//! with [`Link::poll_delivery`] when [`Link::poll_timeout`] says so. A datagram meets, in this order,
//!
//! ```text
//! MTU -> queue -> serialisation at the rate, in slots -> policer -> blackout, loss (and retransmission on
//!     the link) -> corruption -> duplication -> delay + jitter (order kept) -> hold-back (reordering)
//!     -> delivery
//! ```
//!
//! Behind a drop-tail queue, nothing that happens later changes what becomes of a datagram already sent, so
//! the whole fate is settled, and told, by `send`. With CoDel (RFC 8289), or on a medium that several links
//! share, datagrams wait in a `backlog` and `send` answers [`Fate::Waits`]. Invariants: the same
//! configuration and the same calls give the same fates; impairments do not disturb each other's draws (see
//! `random`); [`LinkStats`] sums at any moment; once the two queues have grown to the number of datagrams in
//! flight, nothing is allocated.

mod backlog;
mod bottleneck;
mod config;
mod door;
mod loss;
mod medium;
mod police;
pub(crate) mod random;
mod slots;
mod stats;
mod trace;

#[cfg(test)]
mod mac_tests;
#[cfg(test)]
mod shaping_tests;
#[cfg(test)]
mod tests;

use core::cmp::{Ordering, Reverse};
use core::num::NonZeroU8;
use core::time::Duration;
use std::collections::VecDeque;
use std::collections::binary_heap::{BinaryHeap, PeekMut};
use std::sync::{Arc, Mutex, PoisonError};

use tidewire_proto::Time;

use backlog::{Backlog, Served, Waiting};
use bottleneck::{Bottleneck, Service};
use config::nanos;
use door::Door;
pub(crate) use loss::LossProcess;
use police::Policer;
use random::{Purpose, Stream};
use tidewire_units::Probability;

pub use config::{
    Aqm, Arq, Blackout, Capacity, Discipline, EmptyBlackout, Gilbert, IPV4_UDP_HEADERS, ImpossibleBurst, LinkConfig,
    Loss, Mac, Queue, Reorder,
};
pub use door::Departure;
pub use medium::{Medium, share_media};
pub use police::{ImpossiblePolice, Police, PoliceStep, TokenBucket};
pub(crate) use random::opposite;
pub use slots::{ImpossibleSlots, Slots};
pub use stats::LinkStats;
pub use trace::{OPPORTUNITY_BYTES, RateTrace, TraceError};

/// One direction of a link that carries payloads of type `T`: the bytes themselves, or a handle to them.
#[derive(Clone, Debug)]
pub struct Link<T> {
    config: LinkConfig,
    /// Behind a lock, because links can share one.
    bottleneck: Option<Arc<Mutex<Bottleneck>>>,
    /// In place of `bottleneck`, if fates are settled when datagrams leave the queue.
    backlog: Option<Backlog<T>>,
    /// Present if this link is an open end.
    door: Option<Door<T>>,
    policer: Policer,
    loss: LossProcess,
    /// Attempts to transmit a datagram. The number of an attempt selects its draw of the loss model.
    attempts: u64,
    streams: Streams,
    /// Number of datagrams that passed the MTU, the queue and the policer. The number of a datagram selects
    /// its draws.
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

/// A datagram behind the queue.
struct Outgoing<T> {
    len: usize,
    ip_bytes: u64,
    marked: bool,
    payload: T,
}

/// The attempts to transmit a datagram.
struct Attempts {
    /// When the last attempt ended.
    end: u64,
    /// By how much failed attempts make it later.
    later: u64,
    /// How it was lost, if all failed.
    fate: Option<Fate>,
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
    /// It left the queue and exceeded the tokens of the policer.
    Policed,
    /// The loss model dropped it.
    Lost,
    /// It left the queue in a blackout.
    BlackedOut,
    /// It waits, and its fate is not settled yet.
    Waits,
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
        let backlog = Backlog::new(config, round_trip);
        let bottleneck = match backlog {
            Some(_) => None,
            None => Bottleneck::new(config, round_trip).map(|b| Arc::new(Mutex::new(b))),
        };
        Self {
            bottleneck,
            backlog,
            door: None,
            policer: Policer::new(&config.police),
            loss: LossProcess::new(&config.loss, config.seed),
            streams: Streams {
                jitter: stream(Purpose::Jitter),
                reorder: stream(Purpose::Reorder),
                duplicate: stream(Purpose::Duplicate),
                corrupt: stream(Purpose::Corrupt),
                damage: stream(Purpose::Damage),
            },
            config: config.clone(),
            attempts: 0,
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
    ///
    /// # Panics
    /// Panics if either link has another discipline than drop-tail, or a medium. Flows share such links as
    /// parts of a [`Network`](crate::network::Network).
    pub fn share_queue<U>(&mut self, other: &Link<U>) {
        assert!(self.backlog.is_none() && other.backlog.is_none(), "only drop-tail queues can be shared");
        self.bottleneck.clone_from(&other.bottleneck);
    }

    /// Sends a datagram of `len` payload bytes whose sender does not support congestion marks. Calls must be
    /// in order of `now`. The payload is dropped unless the datagram is [`Fate::Carried`] or
    /// [`Fate::Waits`].
    pub fn send(&mut self, now: Time, len: usize, payload: T) -> Fate {
        self.send_from(now, len, false, payload)
    }

    /// The same; `supports_marks` tells whether the sender supports congestion marks, so that CoDel marks
    /// instead of dropping.
    pub fn send_from(&mut self, now: Time, len: usize, supports_marks: bool, payload: T) -> Fate {
        if let Some(door) = &mut self.door {
            door.leave(Departure { len, supports_marks, payload });
            return Fate::Waits;
        }
        self.advance(now.0);
        let ip_len = len.saturating_add(self.config.headers);
        let ip_bytes = ip_len as u64;
        self.stats.offered += 1;
        self.stats.offered_bytes += ip_bytes;
        if self.config.mtu.is_some_and(|mtu| ip_len > mtu) {
            self.stats.too_long += 1;
            return Fate::TooLong;
        }
        if let Some(backlog) = &mut self.backlog {
            let waiting = Waiting { since: now.0, len, ip_bytes, supports_marks, payload };
            if !backlog.push(waiting) {
                self.stats.queue_dropped += 1;
                return Fate::QueueFull;
            }
            self.stats.in_flight += 1;
            self.advance(now.0);
            return Fate::Waits;
        }
        let Some(service) = self.enqueue(now.0, ip_bytes) else {
            self.stats.queue_dropped += 1;
            return Fate::QueueFull;
        };
        let marked = self.on_served(now.0, service);
        self.transmit(service.end, Outgoing { len, ip_bytes, marked, payload })
    }

    /// Lets datagrams leave the backlog whose time has come.
    fn advance(&mut self, now: u64) {
        while let Some(served) = self.backlog.as_mut().and_then(|backlog| backlog.poll(now)) {
            self.stats.in_flight -= 1;
            match served {
                Served::Dropped => self.stats.codel_dropped += 1,
                Served::Sent { service, marked, waiting } => {
                    let Waiting { since, len, ip_bytes, payload, .. } = waiting;
                    let marked = self.on_served(since, service) || marked;
                    self.transmit(service.end, Outgoing { len, ip_bytes, marked, payload });
                }
            }
        }
    }

    /// Counts the wait of a datagram. Returns whether it is long enough for a mark.
    fn on_served(&mut self, since: u64, service: Service) -> bool {
        let waited = service.start.saturating_sub(since);
        self.stats.on_queued(waited);
        self.config.aqm.mark.is_some_and(|threshold| waited > nanos(threshold))
    }

    /// Sends a datagram that left the queue for the first time at `end`, as often as necessary.
    fn transmit(&mut self, end: u64, outgoing: Outgoing<T>) -> Fate {
        // Like a full queue, the policer takes datagrams before they have a number, so the next draws are
        // those of the datagrams that pass.
        if !self.policer.passes(end, outgoing.ip_bytes) {
            self.stats.on_policed();
            return Fate::Policed;
        }
        let serial = self.serial;
        self.serial += 1;
        let attempts = self.attempt(end, outgoing.ip_bytes);
        match attempts.fate {
            Some(fate) => {
                let count = if fate == Fate::Lost { &mut self.stats.lost } else { &mut self.stats.blacked_out };
                *count += 1;
                fate
            }
            None => Fate::Carried { arrives: Time(self.launch(serial, &attempts, outgoing)) },
        }
    }

    /// Attempts to transmit a datagram until one attempt passes. The first ends at `end`.
    fn attempt(&mut self, mut end: u64, ip_bytes: u64) -> Attempts {
        let (retries, delay) = self.config.mac.arq.map_or((0, 0), |arq| (arq.retries, nanos(arq.delay)));
        let (mut later, mut retry) = (0, 0);
        loop {
            // The model makes a step in a blackout too, so that the pattern of losses does not depend on
            // blackouts.
            let lost = self.loss.loses(self.attempts);
            self.attempts += 1;
            let at = end.saturating_add(later);
            let is_dark = self.config.blackouts.iter().any(|blackout| blackout.covers(at));
            if !lost && !is_dark {
                return Attempts { end, later, fate: None };
            }
            if retry == retries {
                return Attempts { end, later, fate: Some(if is_dark { Fate::BlackedOut } else { Fate::Lost }) };
            }
            retry += 1;
            later = later.saturating_add(delay);
            end = self.serve_again(ip_bytes).unwrap_or(end);
            self.stats.on_repeated();
        }
    }

    /// Takes the capacity for one more attempt. Returns when it ends; `None` if the capacity is unlimited.
    fn serve_again(&mut self, ip_bytes: u64) -> Option<u64> {
        if let Some(backlog) = &mut self.backlog {
            return Some(backlog.serve_again(ip_bytes));
        }
        let bottleneck = self.bottleneck.as_ref()?;
        Some(bottleneck.lock().unwrap_or_else(PoisonError::into_inner).serve_again(ip_bytes))
    }

    /// Packets that wait for their service, and their IP bytes.
    pub fn waiting(&mut self, now: Time) -> (usize, u64) {
        self.advance(now.0);
        match (&self.backlog, &self.bottleneck) {
            (Some(backlog), _) => backlog.waiting(),
            (None, Some(shared)) => shared.lock().unwrap_or_else(PoisonError::into_inner).waiting(now.0),
            (None, None) => (0, 0),
        }
    }

    /// Makes this link an open end: what is sent on it comes out of [`Self::poll_departure`], and what
    /// [`Self::hand`] takes is delivered. So a driver of two ends can be part of a larger network. The
    /// configuration has no effect then.
    pub fn open(&mut self) {
        self.door = Some(Door::default());
    }

    /// The next datagram that was sent on an open end.
    pub fn poll_departure(&mut self) -> Option<Departure<T>> {
        self.door.as_mut()?.poll_departure()
    }

    /// Lets a datagram arrive at an open end. Does nothing on a link that is not open.
    pub fn hand(&mut self, delivery: Delivery<T>) {
        if let Some(door) = &mut self.door {
            door.arrive(delivery);
        }
    }

    /// From now on nothing is lost, policed, changed, duplicated, delayed at random or held back. Rate,
    /// queue, slots, delay and MTU stay. Datagrams in flight keep their fate.
    pub fn calm(&mut self) {
        let Self { config, policer, loss, .. } = self;
        config.jitter = Duration::ZERO;
        config.reorder = Reorder::default();
        (config.duplicate, config.corrupt) = (Probability::ZERO, Probability::ZERO);
        config.blackouts.clear();
        *policer = Policer::new(&Police::default());
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
        let leaves = self.backlog.as_ref().and_then(Backlog::poll_timeout);
        let arrived = self.door.as_ref().and_then(Door::poll_timeout);
        in_order.into_iter().chain(held).chain(copy).chain(leaves).chain(arrived).min().map(Time)
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

    /// Puts a datagram that was transmitted in flight. Returns when it arrives.
    fn launch(&mut self, serial: u64, attempts: &Attempts, outgoing: Outgoing<T>) -> u64 {
        let Self { config, streams, .. } = self;
        let Outgoing { len, ip_bytes, marked, payload } = outgoing;
        let corrupt = streams.corrupt.happens(serial, config.corrupt);
        let corruption = if corrupt { damage(streams.damage.bits(serial), len) } else { None };
        let doubled = streams.duplicate.happens(serial, config.duplicate);
        let jitter = if config.jitter.is_zero() { 0 } else { streams.jitter.up_to(serial, config.jitter) };
        let is_ordered = attempts.later == 0 || config.mac.arq.is_some_and(|arq| arq.in_order);
        let (waits, passes) = if is_ordered { (attempts.later, 0) } else { (0, attempts.later) };
        let departed = attempts.end.saturating_add(waits);
        let arrives = departed.saturating_add(nanos(config.delay)).saturating_add(jitter).max(self.newest_arrival);

        let mut datagram = InFlight { arrives, serial, ip_bytes, corruption, marked, doubled, payload };
        self.stats.in_flight += 1;
        let reordered = streams.reorder.happens(serial, config.reorder.probability);
        if reordered || passes > 0 {
            let by = if reordered { nanos(config.reorder.by) } else { 0 };
            datagram.arrives = arrives.saturating_add(by).saturating_add(passes);
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
        if let Some(door) = &mut self.door {
            return door.poll_delivery(now);
        }
        self.advance(now.0);
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
