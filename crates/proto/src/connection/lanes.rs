//! The lanes of a connection: those we send on, whose turn it is to fill a slot, and the peer's lanes of messages.
//!
//! Slots are shared evenly by bytes, repairs included: the lane that was served least is asked first (start-time fair queueing, as
//! in Goyal, Vin and Cheng 1996), and the next one when it has nothing to send. A lane that was silent is owed nothing.

use tidewire_codec::SourceId;

use crate::Time;
use crate::lane::{Arrival, LaneReceiver, LaneSender, MAX_LANES, MESSAGE_RING, Messages, STREAMS};
use crate::redundancy::{Policies, Redundancy, Repair};

use super::{CloseCode, Connection, Event};

/// A lane that we send on.
#[derive(Debug)]
pub(super) struct Lane {
    pub sender: LaneSender,
    pub policies: Policies,
    /// A repair that did not fit the segment size of the running batch: it goes first in the next.
    pub deferred: Option<Repair>,
    /// Whether its messages are delivered in order.
    pub in_order: bool,
    /// It had no room for a message, and the application waits.
    pub blocked: bool,
    /// Up to where it is served, in bytes of the common clock.
    served: u64,
}

impl Lane {
    pub fn new(sender: LaneSender, redundancy: Redundancy, in_order: bool) -> Self {
        let policies = Policies::new(redundancy);
        Self { sender, policies, deferred: None, in_order, blocked: false, served: 0 }
    }

    /// Nothing of it waits, is under way or may be lacking.
    fn is_idle(&self) -> bool {
        self.sender.base() == self.sender.sent() && self.sender.queued() == 0 && !self.sender.is_base_news()
    }
}

/// The lanes that we send on, by their number.
#[derive(Debug)]
pub(super) struct Lanes {
    /// Lane 0: it is always there.
    pub streams: Lane,
    /// Lanes from 1 up.
    pub messages: Vec<Lane>,
    clock: u64,
}

impl Lanes {
    pub fn new(streams: LaneSender, redundancy: Redundancy) -> Self {
        Self { streams: Lane::new(streams, redundancy, true), messages: Vec::new(), clock: 0 }
    }

    pub fn get(&self, lane: u32) -> Option<&Lane> {
        match lane.checked_sub(1) {
            None => Some(&self.streams),
            Some(index) => self.messages.get(index as usize),
        }
    }

    pub fn get_mut(&mut self, lane: u32) -> Option<&mut Lane> {
        match lane.checked_sub(1) {
            None => Some(&mut self.streams),
            Some(index) => self.messages.get_mut(index as usize),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Lane)> {
        (0..).zip([&self.streams].into_iter().chain(&self.messages))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Lane)> {
        (0..).zip([&mut self.streams].into_iter().chain(&mut self.messages))
    }

    /// The lane whose turn it is, of those that are not in the set `tried`.
    pub fn next(&self, tried: u16) -> Option<u32> {
        let untried = self.iter().filter(|(id, lane)| tried & (1 << id) == 0 && (*id == STREAMS || !lane.is_idle()));
        untried.min_by_key(|(_, lane)| lane.served.max(self.clock)).map(|(id, _)| id)
    }

    /// A packet of `bytes` left for a lane.
    pub fn charge(&mut self, lane: u32, bytes: u32) {
        let clock = self.clock;
        if let Some(lane) = self.get_mut(lane) {
            let start = lane.served.max(clock);
            lane.served = start + u64::from(bytes);
            self.clock = start;
        }
    }

    /// Whether the peer may lack something that was sent.
    pub fn is_lacking(&self) -> bool {
        self.iter().any(|(_, lane)| lane.sender.base() < lane.sender.sent() || lane.sender.is_base_news())
    }

    /// The lane whose oldest symbol that the peer may lack is what a silence asks for: that of the streams, where something waits for it whatever
    /// time passes, else the one whose symbol left first.
    pub fn longest_lacking(&self, now: Time) -> Option<(u32, &Lane)> {
        let ages = self.iter().filter_map(|(id, lane)| Some((id, lane, lane.sender.oldest_age(now)?)));
        ages.max_by_key(|&(id, _, age)| (id == STREAMS, age)).map(|(id, lane, _)| (id, lane))
    }

    /// Whether something may be sent or sent again.
    pub fn has_work(&self) -> bool {
        self.is_lacking() || self.iter().any(|(_, lane)| lane.sender.has_source())
    }

    /// Whether symbols wait for the peer's credit.
    pub fn is_blocked(&self) -> bool {
        self.iter().any(|(_, lane)| lane.sender.is_blocked())
    }
}

/// A peer's lane of messages.
#[derive(Debug)]
pub(super) struct Inbound {
    pub receiver: LaneReceiver,
    pub messages: Messages,
}

impl Connection {
    /// Something came of a lane. Returns whether the peer should hear of it soon.
    pub(super) fn on_arrival(
        &mut self,
        now: Time,
        lane: u32,
        base: SourceId,
        arrival: Arrival<'_>,
    ) -> Result<bool, CloseCode> {
        self.heard_symbol = Some(now);
        if lane == STREAMS {
            return self.receiver.receive(now, base, arrival, &mut self.streams);
        }
        if lane as usize >= MAX_LANES {
            return Err(CloseCode::Protocol);
        }
        let (slot_len, span) = (self.config.slot_len(), self.config.max_span);
        let inbound = self.inbound.entry(lane).or_insert_with(|| Inbound {
            receiver: LaneReceiver::new(
                slot_len,
                span,
                MESSAGE_RING.min(self.config.ring_memory),
                self.config.inline(),
            ),
            messages: Messages::new(lane),
        });
        let urgent = inbound.receiver.receive(now, base, arrival, &mut inbound.messages)?;
        self.tell_messages(lane);
        Ok(urgent)
    }

    /// Tells the application that a lane has a message, unless it knows.
    pub(super) fn tell_messages(&mut self, lane: u32) {
        let is_ready = self.inbound.get(&lane).is_some_and(|inbound| inbound.messages.is_ready());
        if is_ready && !self.told_message {
            self.told_message = true;
            self.events.push_back(Event::MessageReadable);
        }
    }
}
