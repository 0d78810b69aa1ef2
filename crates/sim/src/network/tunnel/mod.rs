//! A tunnel in a network: a connection of ours whose messages are the packets of other flows, as those of
//! `tidewire tunnel` (`docs/tunnel.md`).
//!
//! [`Network`](super::Network) hands over what flows send, and what arrives for the connection. It takes what
//! the connection sends, and the packets that came through. The rules are those of
//! [`tidewire_proto::tunnel`]: a queue in which flows take turns, the time at which a packet enters the lane,
//! and its lifetime. Left out are the greeting, which names the longest packet, and a connection that is made
//! again after it was lost. Invariant: what a flow sent left the queue, waits in it, or was dropped there.

mod batch;
mod inner;
#[cfg(test)]
mod tests;

use core::hash::{BuildHasherDefault, Hasher};
use std::collections::VecDeque;

use tidewire_proto::Time;
use tidewire_proto::connection::{Connection, Event, LaneId, Outgoing};
use tidewire_proto::endpoint::{ConnectionHandle, Endpoint};
use tidewire_proto::stats::Stats;
use tidewire_proto::tunnel::{self, DEFAULT_MTU, Queue, RoundTrip};

use super::agent::{Cargo, Sent};
use super::plan::TunnelPlan;
use super::report::{DROPS, TunnelEnd, TunnelReport};
use crate::duplex::DuplexConfig;
use crate::link::{Corruption, Delivery};
use crate::pair::{Application, End, Pair};

use batch::Waiting;
pub(super) use inner::Inner;

/// Longest packet inside. Real tunnels lower the segments of TCP so that they fit.
pub(super) const MTU: usize = DEFAULT_MTU as usize;
/// Errors that are kept.
const MOST_ERRORS: usize = 8;

/// Both ends of a tunnel; see the module.
#[derive(Debug)]
pub(super) struct Tunnel {
    pair: Pair,
    courier: Courier,
    /// Packets of the near end that wait for their batch, if the plan has some.
    batch: Option<Waiting>,
}

impl Tunnel {
    /// Connects.
    pub fn start(plan: &TunnelPlan, seed: u64) -> Self {
        let config = tunnel::configure(plan.config.to_builder());
        let config = config.build().expect("the tunnel's own settings are valid with any checked ones");
        let mut pair = Pair::new(config.clone(), config, &DuplexConfig::default(), seed);
        pair.link_mut().open();
        let mut courier = Courier::new(seed);
        pair.connect(&mut courier);
        Self { pair, courier, batch: plan.batch.map(Waiting::new) }
    }

    /// Takes a packet that a flow sends at `end`.
    pub fn push(&mut self, now: Time, end: End, inner: Inner) {
        self.run(now);
        match &mut self.batch {
            Some(batch) if end == End::Near => {
                batch.push(now, inner);
                self.enter_batch(now);
            }
            _ => self.enter(end, inner),
        }
    }

    /// Hands a packet to the end of the connection.
    fn enter(&mut self, end: End, inner: Inner) {
        self.courier.push(self.pair.now(), end, inner);
        self.pair.wake(end);
    }

    /// Hands over what waits no more.
    fn enter_batch(&mut self, now: Time) {
        let ready = self.batch.as_mut().map(|batch| batch.ready(now));
        ready.into_iter().flatten().for_each(|inner| self.enter(End::Near, inner));
    }

    /// When it has something to do.
    pub fn next_moment(&self) -> Option<Time> {
        let batch = self.batch.as_ref().and_then(Waiting::next_moment);
        batch.into_iter().chain(self.pair.next_moment()).min()
    }

    /// Does what is due.
    pub fn run(&mut self, now: Time) {
        self.pair.run(&mut self.courier, now, |_| false);
        self.enter_batch(now);
    }

    /// The next datagram of the connection to send. Call until `None`.
    pub fn poll_departure(&mut self) -> Option<Sent> {
        let link = self.pair.link_mut();
        let near = link.forward.poll_departure().map(|sent| (End::Near, sent));
        let (from, sent) = near.or_else(|| link.back.poll_departure().map(|sent| (End::Far, sent)))?;
        Some(Sent { from, len: sent.len, supports_marks: sent.supports_marks, cargo: Cargo::Ours(sent.payload) })
    }

    /// Takes a datagram of the connection that arrived at `end`.
    pub fn hand(&mut self, now: Time, end: End, cargo: Cargo, marked: bool, damage: &[Corruption]) {
        let Cargo::Ours(mut payload) = cargo else { return };
        damage.iter().for_each(|damage| damage.apply(payload.bytes_mut()));
        let link = self.pair.link_mut();
        let door = if end == End::Far { &mut link.forward } else { &mut link.back };
        door.hand(Delivery { payload, at: now, corruption: None, marked });
    }

    /// The next packet that came through. Call until `None`.
    pub fn poll_arrival(&mut self) -> Option<Inner> {
        self.courier.arrived.pop_front()
    }

    /// What came out so far. The owner adds the names.
    pub fn report(&mut self) -> TunnelReport {
        let mut errors = self.courier.errors.clone();
        let ends = [End::Near, End::Far].map(|end| {
            let side = &self.courier.sides[end as usize];
            let live = side.connection.and_then(|(handle, _)| self.pair.endpoint(end).connection(handle));
            let stats = live.map(Connection::stats).or_else(|| side.last_stats.clone());
            side.report(&stats.unwrap_or_default())
        });
        for (end, side) in ends.iter().zip(&self.courier.sides) {
            let dropped: u64 = ["too_long", "late", "overflow"].map(|reason| end.dropped(reason)).iter().sum();
            if side.offered != dropped + end.waiting + end.sent[0] {
                errors.push(format!("{} packets were offered: {end:?}", side.offered));
            }
        }
        let (name, from, to) = Default::default();
        TunnelReport { name, from, to, ends, errors }
    }
}

/// Carries packets between the flows and both ends of the connection.
#[derive(Debug)]
struct Courier {
    sides: [Side; 2],
    arrived: VecDeque<Inner>,
    errors: Vec<String>,
    seed: u64,
}

/// One end.
#[derive(Debug)]
struct Side {
    queue: Queue<Inner, BuildHasherDefault<Numbered>>,
    connection: Option<(ConnectionHandle, LaneId)>,
    rtt: RoundTrip,
    last_stats: Option<Stats>,
    /// Packets of flows, of these the ones that were too long, and the bytes that left the queue.
    offered: u64,
    too_long: u64,
    sent_bytes: u64,
    /// Packets that arrived at this end, and their bytes.
    received: [u64; 2],
}

impl Side {
    fn report(&self, stats: &Stats) -> TunnelEnd {
        let fates = self.queue.fates();
        TunnelEnd {
            rtt: Some(stats.rtt.latest),
            loss: Some(stats.loss.recent),
            source: stats.packets.source,
            repair: stats.packets.repair,
            feedback_repair: stats.packets.feedback_repair,
            waiting: self.queue.waiting() as u64,
            sent: [stats.messages.sent, self.sent_bytes],
            received: self.received,
            marked: fates.marked,
            dropped: DROPS.map(|reason| match reason {
                "too_long" => self.too_long,
                "late" => fates.late,
                "overflow" => fates.overflow,
                "expired" => stats.messages.expired,
                _ => 0,
            }),
        }
    }
}

impl Courier {
    fn new(seed: u64) -> Self {
        let side = |_| Side {
            queue: Queue::new(MTU, BuildHasherDefault::default()),
            connection: None,
            rtt: RoundTrip::new(Time::ZERO, core::time::Duration::ZERO),
            last_stats: None,
            offered: 0,
            too_long: 0,
            sent_bytes: 0,
            received: [0; 2],
        };
        Self { sides: [End::Near, End::Far].map(side), arrived: VecDeque::new(), errors: Vec::new(), seed }
    }

    fn push(&mut self, now: Time, end: End, inner: Inner) {
        let side = &mut self.sides[end as usize];
        side.offered += 1;
        if tunnel::Packet::bytes(&inner) > MTU {
            side.too_long += 1;
        } else {
            side.queue.push(inner, now);
        }
    }

    fn error(&mut self, text: String) {
        if self.errors.len() < MOST_ERRORS {
            self.errors.push(text);
        }
    }

    fn on_event(&mut self, now: Time, end: End, handle: ConnectionHandle, endpoint: &mut Endpoint, event: &Event) {
        let Some(connection) = endpoint.connection_mut(handle) else { return };
        match event {
            Event::Connected => match connection.open_lane(&tunnel::lane()) {
                Ok(lane) => {
                    let side = &mut self.sides[end as usize];
                    side.connection = Some((handle, lane));
                    side.rtt = RoundTrip::new(now, connection.rtt());
                }
                Err(error) => self.error(format!("no lane at {end:?}: {error}")),
            },
            Event::MessageReadable => {
                while let Some(message) = connection.take_message() {
                    match Inner::from_bytes(&message.data, self.seed) {
                        Some(inner) => {
                            let received = &mut self.sides[end as usize].received;
                            *received = [received[0] + 1, received[1] + tunnel::Packet::bytes(&inner) as u64];
                            self.arrived.push_back(inner);
                        }
                        None => self.error(format!("a packet arrived at {end:?} that was not sent")),
                    }
                }
            }
            Event::Closed(reason) => {
                let side = &mut self.sides[end as usize];
                (side.connection, side.last_stats) = (None, Some(connection.stats()));
                self.error(format!("closed at {end:?}: {reason}"));
            }
            _ => {}
        }
    }

    /// Moves packets from the queue to the lane.
    fn fill(&mut self, now: Time, end: End, endpoint: &mut Endpoint) {
        let side = &mut self.sides[end as usize];
        let Some((handle, lane)) = side.connection.filter(|_| !side.queue.is_empty()) else { return };
        let Some(connection) = endpoint.connection_mut(handle) else { return };
        let (rtt, seed) = (side.rtt.at(now, || connection.rtt()), self.seed);
        let filled = connection.fill_lane(now, lane, MTU, || {
            let inner = side.queue.pop(now, rtt)?;
            side.sent_bytes += tunnel::Packet::bytes(&inner) as u64;
            let delivery = inner.delivery();
            Some(Outgoing {
                data: inner.to_bytes(seed),
                lifetime: tunnel::lifetime(rtt, delivery),
                delivery,
                important: false,
            })
        });
        if let Err(error) = filled {
            self.error(format!("no message at {end:?}: {error}"));
        }
    }
}

impl Application for Courier {
    fn run(&mut self, now: Time, end: End, endpoint: &mut Endpoint, event: Option<(ConnectionHandle, Event)>) {
        if let Some((handle, event)) = event {
            self.on_event(now, end, handle, endpoint, &event);
        }
        self.fill(now, end, endpoint);
    }

    fn poll_timeout(&self, _: End) -> Option<Time> {
        None
    }
}

/// Spreads flows by their numbers, so that two share a turn only if there are more of them than turns.
#[derive(Debug, Default)]
struct Numbered(u64);

impl Hasher for Numbered {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0 << 8 | u64::from(*byte);
        }
    }

    fn write_usize(&mut self, number: usize) {
        self.0 = number as u64;
    }
}
