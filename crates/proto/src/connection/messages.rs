//! The application's interface to messages with deadlines, on their own lanes.

use core::time::Duration;

use super::lanes::Lane;
use super::{Connection, Event, LaneId, Message, State};
use crate::Time;
use crate::lane::{LaneSender, MAX_LANES, MAX_MESSAGE, STREAMS};
use crate::profile::{Delivery, Layout, Profile};
use crate::redundancy::Redundancy;
use crate::stats::MessageStats;
use crate::trace::TraceEvent;

/// Configuration of a message lane. A field that is `None` follows the connection's profile.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LaneConfig {
    /// Policies for proactive repair and for answers.
    pub redundancy: Option<Redundancy>,
    /// Whether messages are delivered in order.
    pub delivery: Option<Delivery>,
    /// The lane takes messages while those that wait for their first transmission can leave within this time
    /// at the present pace, but at least two symbols. An application that chooses between messages, or drops
    /// them, keeps the others itself. If it is `None`, the lane takes messages until its ring is full.
    pub queue: Option<Duration>,
}

/// A message for [`Connection::fill_lane`].
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs)]
pub struct Outgoing {
    /// Its bytes.
    pub data: Vec<u8>,
    /// How long it is useful to the peer; see [`Connection::send_message`].
    pub lifetime: Duration,
    /// Whether the peer delivers it after all earlier messages of the lane that still come.
    pub delivery: Delivery,
    /// Whether other messages are useless without this one. If the cap of proactive repair is too low for the
    /// target, such messages get more of that repair, and the others less. The peer does not learn of it.
    pub important: bool,
}

/// What is asked for a message; see [`Outgoing`].
struct Terms {
    lifetime: Duration,
    delivery: Delivery,
    important: bool,
}

/// Why a lane cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaneError {
    /// All 15 message lanes are open.
    #[error("all {} lanes of messages are open", MAX_LANES - 1)]
    Limit,
    /// The connection is not established, or it is closed.
    #[error("the connection is not established")]
    NotConnected,
}

/// Why a message cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The lane has no room for the message now. [`Event::LaneWritable`] tells when there may be room.
    #[error("no room for the message now")]
    Blocked,
    /// The message is longer than `most` bytes. Send it in parts, or on a stream.
    #[error("a message of {len} bytes is longer than {most}: send it in parts, or on a stream")]
    TooLong {
        /// Length of the message.
        len: usize,
        /// Maximum length of a message.
        most: usize,
    },
    /// The lane was not opened.
    #[error("the lane was not opened")]
    UnknownLane,
    /// The connection is not established, or it is closed.
    #[error("the connection is not established")]
    NotConnected,
}

impl Connection {
    /// Opens a message lane and returns its id. The peer learns of it with its first message.
    pub fn open_lane(&mut self, config: &LaneConfig) -> Result<LaneId, LaneError> {
        if self.security.keys.is_none() || !matches!(self.state, State::Established { .. }) {
            return Err(LaneError::NotConnected);
        }
        let lane = STREAMS + 1 + self.lanes.messages.len() as u32;
        if lane as usize >= MAX_LANES {
            return Err(LaneError::Limit);
        }
        let memory = self.config.message_ring();
        let redundancy = config.redundancy.unwrap_or(self.agreed.profile.redundancy);
        // If the lane's own redundancy mixes arbitrary spans, its layout is a sliding window, whatever the
        // layout of the streams.
        let profile = Profile { redundancy, ..self.agreed.profile };
        let layout = if profile.check_layout().is_ok() { profile.layout } else { Layout::Sliding };
        let sender =
            LaneSender::new(layout, self.agreed.max_span, self.config.slot_len(), memory, self.agreed.lane_credit);
        let in_order = config.delivery.unwrap_or(self.config.profile.delivery) == Delivery::InOrder;
        let mut lane_state = Lane::new(sender, redundancy, in_order);
        lane_state.queue = config.queue;
        self.lanes.messages.push(lane_state);
        Ok(LaneId(lane))
    }

    /// Sends a message of at most 256 KiB that is useful to the peer for `lifetime` from now. After that, the
    /// whole message is given up. A message is accepted as a whole or not at all. Messages of a lane are
    /// given up in the order in which they were sent.
    pub fn send_message(
        &mut self,
        now: Time,
        lane: LaneId,
        data: &[u8],
        lifetime: Duration,
    ) -> Result<(), MessageError> {
        let is_ordered = self.lanes.get(lane.0).is_some_and(|lane| lane.in_order);
        let delivery = if is_ordered { Delivery::InOrder } else { Delivery::AsComplete };
        self.send_message_as(now, lane, data, lifetime, delivery)
    }

    /// As [`Self::send_message`], for a message whose delivery differs from that of its lane. With
    /// [`Delivery::InOrder`] the peer delivers it after all earlier messages of the lane that still come.
    pub(crate) fn send_message_as(
        &mut self,
        now: Time,
        lane: LaneId,
        data: &[u8],
        lifetime: Duration,
        delivery: Delivery,
    ) -> Result<(), MessageError> {
        self.send_outgoing(now, lane, data, Terms { lifetime, delivery, important: false })
    }

    fn send_outgoing(&mut self, now: Time, lane: LaneId, data: &[u8], terms: Terms) -> Result<(), MessageError> {
        let LaneId(lane) = lane;
        if !matches!(self.state, State::Established { .. }) {
            return Err(MessageError::NotConnected);
        }
        if data.len() > MAX_MESSAGE {
            return Err(MessageError::TooLong { len: data.len(), most: MAX_MESSAGE });
        }
        if lane == STREAMS || self.lanes.get(lane).is_none() {
            return Err(MessageError::UnknownLane);
        }
        if !self.has_room(now, LaneId(lane), data.len()) {
            return Err(MessageError::Blocked);
        }
        let symbol_len = self.symbol_len(lane);
        let Some(Lane { sender, blocked, .. }) = self.lanes.get_mut(lane) else {
            return Err(MessageError::UnknownLane);
        };
        let Terms { lifetime, delivery, important } = terms;
        let in_order = delivery == Delivery::InOrder;
        *blocked = !sender.send_message(data, in_order, important, now + lifetime, now, symbol_len);
        if *blocked {
            return Err(MessageError::Blocked);
        }
        self.stats.messages.sent += 1;
        self.stats.bytes.app_sent += data.len() as u64;
        self.tracer.record(now, || TraceEvent::MessageWritten {
            lane: LaneId(lane),
            bytes: data.len() as u32,
            lifetime,
            in_order,
        });
        Ok(())
    }

    /// Gives a lane messages from `next` while it has room for one of `most` bytes, and `next` has one.
    /// Returns whether the lane still has room.
    pub fn fill_lane(
        &mut self,
        now: Time,
        lane: LaneId,
        most: usize,
        mut next: impl FnMut() -> Option<Outgoing>,
    ) -> Result<bool, MessageError> {
        let mut has_room = self.has_room(now, lane, most);
        while has_room && let Some(Outgoing { data, lifetime, delivery, important }) = next() {
            self.send_outgoing(now, lane, &data, Terms { lifetime, delivery, important })?;
            has_room = self.has_room(now, lane, most);
        }
        Ok(has_room)
    }

    /// Whether a lane has room for a message of `len` bytes now. If not, [`Event::LaneWritable`] tells when
    /// there may be room.
    pub fn has_room(&mut self, now: Time, lane: LaneId, len: usize) -> bool {
        let LaneId(lane) = lane;
        if lane == STREAMS {
            return false;
        }
        self.expire_messages(now);
        let allowance = self.message_allowance(lane);
        let symbol_len = self.symbol_len(lane);
        let Some(Lane { sender, blocked, .. }) = self.lanes.get_mut(lane) else { return false };
        *blocked = sender.queued() >= allowance || !sender.fits(len, symbol_len);
        !*blocked
    }

    /// Number of symbols that may wait in a lane of messages.
    fn message_allowance(&self, lane: u32) -> usize {
        match self.lanes.get(lane).and_then(|lane| lane.queue) {
            Some(queue) => self.symbols_within(queue, lane),
            None => usize::MAX,
        }
    }

    /// The next received message, of any lane.
    pub fn take_message(&mut self) -> Option<Message> {
        let message = self.receiving.inbound.values_mut().find_map(|inbound| inbound.messages.take());
        self.receiving.told_message &= message.is_some();
        if let Some(message) = &message {
            let bytes = message.data.len();
            self.stats.bytes.app_received += bytes as u64;
            // The application takes messages without a clock.
            self.tracer.record(self.contact.last_asked, || TraceEvent::MessageRead { bytes: bytes as u32 });
        }
        message
    }

    /// Gives up messages that would arrive too late, and tells waiting writers if there may be room.
    pub(super) fn expire_messages(&mut self, now: Time) {
        let arrival = now + self.one_way();
        for index in 0..self.lanes.messages.len() {
            let id = STREAMS + 1 + index as u32;
            let lane = &mut self.lanes.messages[index];
            lane.sender.expire(arrival);
            if lane.blocked && lane.sender.is_half_free() {
                let waiting = lane.sender.queued();
                if waiting < self.message_allowance(id) {
                    self.lanes.messages[index].blocked = false;
                    self.events.push_back(Event::LaneWritable(LaneId(id)));
                }
            }
        }
    }

    /// When the deadline of the next message passes.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let first = self.lanes.messages.iter().filter_map(|lane| lane.sender.next_deadline()).min()?;
        Some(first - self.one_way())
    }

    /// Estimated one-way time of a packet sent now: half of the least round trip, plus all queueing delay,
    /// which is assumed to be in our direction.
    fn one_way(&self) -> Duration {
        let least = self.path.rtt.least_or_zero();
        if least.is_zero() { least } else { self.path.rtt.smoothed().saturating_sub(least / 2) }
    }

    /// Adds the message counts of all lanes.
    pub(super) fn count_messages(&self, stats: &mut MessageStats) {
        for expired in self.lanes.messages.iter().map(|lane| lane.sender.expired()) {
            stats.expired += expired.messages;
            stats.expired_symbols += expired.symbols;
        }
        for inbound in self.receiving.inbound.values() {
            stats.delivered += inbound.messages.stats.delivered;
            stats.dropped += inbound.messages.stats.dropped;
        }
    }
}
