//! The lanes of a connection: the lanes that this end sends on, which of them fills the next slot, and the
//! peer's message lanes.
//!
//! Slots are shared equally by bytes, repairs included. The lane that was served least is asked first
//! (start-time fair queueing, as in Goyal, Vin and Cheng 1996), and the next one if it has nothing to send. A
//! lane that was silent gets no credit for that time.

use core::time::Duration;

use tidewire_codec::SourceId;

use crate::Time;
use crate::config::Config;
use crate::lane::{Arrival, LaneReceiver, LaneSender, MAX_LANES, Messages, STREAMS};
use crate::recode::Recoding;
use crate::redundancy::{Policies, Redundancy, Repair};
use crate::wire::Layout;

use super::{CloseCode, Connection, Event, LaneId};

/// A lane that this end sends on.
#[derive(Debug)]
pub(super) struct Lane {
    pub sender: LaneSender,
    pub policies: Policies,
    /// A repair that did not fit the segment size of the present batch. It is sent first in the next batch.
    pub deferred: Option<Repair>,
    /// Whether its messages are delivered in order.
    pub in_order: bool,
    /// How long messages may wait for their first transmission, if that is limited.
    pub queue: Option<Duration>,
    /// The lane had no room for a message, and the application waits.
    pub blocked: bool,
    /// End of its last packet, in bytes of the common clock.
    served: u64,
}

impl Lane {
    pub(super) fn new(sender: LaneSender, redundancy: Redundancy, in_order: bool) -> Self {
        let policies = Policies::new(redundancy);
        Self { sender, policies, deferred: None, in_order, queue: None, blocked: false, served: 0 }
    }

    /// Whether the lane slides and its policies send combinations in place of source symbols.
    pub(super) fn slides_without_sources(&self) -> bool {
        self.policies.withholds_sources() && self.sender.layout() == Layout::Sliding
    }

    /// Whether nothing of the lane is waiting, in flight or possibly missing at the peer.
    fn is_idle(&self) -> bool {
        self.sender.base() == self.sender.sent() && self.sender.queued() == 0 && !self.sender.is_base_news()
    }
}

/// The lanes that this end sends on, by number.
#[derive(Debug)]
pub(super) struct Lanes {
    /// Lane 0, which always exists.
    pub streams: Lane,
    /// The lanes from 1 up.
    pub messages: Vec<Lane>,
    /// The relayed lane, if this connection is a hop of a path with relays.
    pub recoding: Option<Box<Recoding>>,
    clock: u64,
}

impl Lanes {
    pub(super) fn new(streams: LaneSender, redundancy: Redundancy) -> Self {
        Self { streams: Lane::new(streams, redundancy, true), messages: Vec::new(), recoding: None, clock: 0 }
    }

    pub(super) fn get(&self, lane: u32) -> Option<&Lane> {
        match lane.checked_sub(1) {
            None => Some(&self.streams),
            Some(index) => self.messages.get(index as usize),
        }
    }

    pub(super) fn get_mut(&mut self, lane: u32) -> Option<&mut Lane> {
        match lane.checked_sub(1) {
            None => Some(&mut self.streams),
            Some(index) => self.messages.get_mut(index as usize),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Lane)> {
        (0..).zip([&self.streams].into_iter().chain(&self.messages))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Lane)> {
        (0..).zip([&mut self.streams].into_iter().chain(&mut self.messages))
    }

    /// The lane whose turn it is, among those not in the set `tried`.
    pub(super) fn next(&self, tried: u16) -> Option<u32> {
        let untried = self.iter().filter(|(id, lane)| tried & (1 << id) == 0 && (*id == STREAMS || !lane.is_idle()));
        untried.min_by_key(|(_, lane)| lane.served.max(self.clock)).map(|(id, _)| id)
    }

    /// Records that a packet of `bytes` was sent for a lane.
    pub(super) fn charge(&mut self, lane: u32, bytes: u32) {
        let clock = self.clock;
        if let Some(lane) = self.get_mut(lane) {
            let start = lane.served.max(clock);
            lane.served = start + u64::from(bytes);
            self.clock = start;
        }
    }

    /// Whether the peer may lack a symbol that was sent, or may not know a base.
    pub(super) fn is_lacking(&self) -> bool {
        self.iter().any(|(_, lane)| lane.sender.base() < lane.sender.sent() || lane.sender.is_base_news())
            || self.recoding.as_ref().is_some_and(|recoding| recoding.sender.lacking().is_some())
    }

    /// When the newest source symbol of any lane was given to its policies for the first time.
    pub(super) fn last_source(&self) -> Time {
        self.iter().map(|(_, lane)| lane.sender.last_source()).max().unwrap_or_default()
    }

    /// The lane to probe after a silence. Lane 0 comes first, because its data never expires and readers
    /// always wait for it. Otherwise it is the lane whose oldest missing symbol was sent first.
    pub(super) fn longest_lacking(&self, now: Time) -> Option<(u32, &Lane)> {
        let ages = self.iter().filter_map(|(id, lane)| Some((id, lane, lane.sender.oldest_age(now)?)));
        ages.max_by_key(|&(id, _, age)| (id == STREAMS, age)).map(|(id, lane, _)| (id, lane))
    }

    /// Whether something may be sent or retransmitted.
    pub(super) fn has_work(&self) -> bool {
        self.is_lacking() || self.next_recoded().is_some() || self.iter().any(|(_, lane)| lane.sender.has_source())
    }

    /// Whether symbols wait for the peer's credit.
    pub(super) fn is_blocked(&self) -> bool {
        self.iter().any(|(_, lane)| lane.sender.is_blocked())
            || self.recoding.as_ref().is_some_and(|recoding| recoding.sender.is_blocked())
    }

    /// The generation of the relayed lane that the next packet serves.
    pub(super) fn next_recoded(&self) -> Option<u64> {
        self.recoding.as_ref()?.sender.next()
    }
}

/// The receiver of a lane whose ring may grow to `memory` bytes.
pub(super) fn lane_receiver(config: &Config, lane: u32, memory: usize) -> LaneReceiver {
    let (span, elimination) = (config.repair.max_span, config.profile.elimination);
    LaneReceiver::new(LaneId(lane), config.slot_len(), span, memory, config.inline(), elimination)
}

/// A message lane of the peer.
#[derive(Debug)]
pub(super) struct Inbound {
    pub receiver: LaneReceiver,
    pub messages: Messages,
}

impl Connection {
    /// Handles an arrival on a lane, in packet `number`. Returns whether the peer should get FEEDBACK soon.
    pub(super) fn on_arrival(
        &mut self,
        now: Time,
        number: u64,
        lane: u32,
        base: SourceId,
        arrival: Arrival<'_>,
    ) -> Result<bool, CloseCode> {
        self.receiving.heard_symbol = Some(now);
        if lane == STREAMS {
            self.receiving.receiver.trace.on_packet(number);
            return self.receiving.receiver.receive(now, base, arrival, &mut self.streams);
        }
        if lane as usize >= MAX_LANES {
            return Err(CloseCode::Protocol);
        }
        let memory = self.config.message_ring();
        let inbound = self.receiving.inbound.entry(lane).or_insert_with(|| {
            let mut receiver = lane_receiver(&self.config, lane, memory);
            receiver.limit_span(self.agreed.max_span);
            receiver.trace.trace_with(&self.tracer);
            Inbound { receiver, messages: Messages::new(lane) }
        });
        inbound.receiver.trace.on_packet(number);
        let urgent = inbound.receiver.receive(now, base, arrival, &mut inbound.messages)?;
        self.tell_messages(lane);
        Ok(urgent)
    }

    /// Tells the application that a lane has a message, unless it was told already.
    pub(super) fn tell_messages(&mut self, lane: u32) {
        let is_ready = self.receiving.inbound.get(&lane).is_some_and(|inbound| inbound.messages.is_ready());
        if is_ready && !self.receiving.told_message {
            self.receiving.told_message = true;
            self.events.push_back(Event::MessageReadable);
        }
    }
}
