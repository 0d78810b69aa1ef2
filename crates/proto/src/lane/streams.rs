//! All streams of a connection: who may open how many, how many bytes each side accepts, and whom to wake.
//!
//! Stream ids are even for the initiator, odd for the responder, and open in order; both halves of a stream exist from its
//! start. A stream is forgotten when its end was sent and all that came was read.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use tidewire_codec::{Decoder, SourceId};

use super::stream::{Incoming, Outgoing, StreamFault};
use crate::Time;
use crate::connection::{CloseCode, Event, Side, StreamId};
use crate::wire::SymbolFrame;

/// A window doubles when it was used up within this many round trips (quinn and Linux's receive autotuning do about the same).
const WIDEN_ROUNDS: u32 = 4;

/// An eighth of the ring is copied out at a time: one walk over what lies unread per so many packets. Chosen.
const COPY_AHEAD: usize = 8;

#[derive(Debug)]
pub(crate) struct Stream {
    pub incoming: Incoming,
    pub outgoing: Outgoing,
    /// The application was told that it may read, and has not read since.
    told_readable: bool,
    /// The application was given the end.
    end_read: bool,
    limit_moved: Time,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Streams {
    side: Side,
    open: BTreeMap<u64, Stream>,
    /// Streams opened so far by each side.
    local: u64,
    remote: u64,
    /// Streams that we may open, as the peer said.
    local_limit: u64,
    /// Streams that the peer may open: told, confirmed, and in which packet.
    remote_limit: u64,
    remote_confirmed: u64,
    remote_told_in: Option<u64>,
    window: u64,
    max_window: u64,
    peer_window: u64,
    /// Streams that wait for room in the lane, first come first served.
    waiting: VecDeque<StreamId>,
    events: VecDeque<Event>,
    limits: Vec<(u64, u64)>,
    /// No unread byte lies in a symbol below.
    copied_below: SourceId,
}

impl Streams {
    /// `streams` the peer may open, each with `window` bytes unread, growing to `max_window`.
    pub fn new(side: Side, streams: u64, window: u64, max_window: u64) -> Self {
        Self {
            side,
            open: BTreeMap::new(),
            local: 0,
            remote: 0,
            local_limit: 0,
            remote_limit: streams,
            remote_confirmed: streams,
            remote_told_in: None,
            window,
            max_window: max_window.max(window),
            peer_window: 0,
            waiting: VecDeque::new(),
            events: VecDeque::new(),
            limits: Vec::new(),
            copied_below: SourceId(0),
        }
    }

    /// What the peer granted in the handshake.
    pub fn set_peer_limits(&mut self, streams: u64, window: u64) {
        self.local_limit = self.local_limit.max(streams);
        self.peer_window = window;
        for stream in self.open.values_mut() {
            stream.outgoing.limit = stream.outgoing.limit.max(window);
        }
    }

    /// Opens the next stream of our side.
    pub fn open(&mut self) -> Option<StreamId> {
        if self.local >= self.local_limit {
            return None;
        }
        let id = 2 * self.local + u64::from(self.side == Side::Responder);
        self.local += 1;
        self.insert(id);
        Some(StreamId(id))
    }

    fn insert(&mut self, id: u64) {
        let stream = Stream {
            incoming: Incoming::new(self.window),
            outgoing: Outgoing { limit: self.peer_window, ..Outgoing::default() },
            told_readable: false,
            end_read: false,
            limit_moved: Time::ZERO,
        };
        self.open.insert(id, stream);
    }

    pub fn get(&self, id: StreamId) -> Option<&Stream> {
        self.open.get(&id.0)
    }

    pub fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.open.get_mut(&id.0)
    }

    fn is_ours(&self, id: u64) -> bool {
        (id % 2 == 1) == (self.side == Side::Responder)
    }

    /// Makes sure that the stream of a frame exists. `None`: it is long done.
    fn ensure(&mut self, id: u64) -> Result<Option<&mut Stream>, CloseCode> {
        let number = id / 2;
        if self.is_ours(id) {
            if number >= self.local {
                return Err(CloseCode::Protocol);
            }
        } else if number >= self.remote_limit {
            return Err(CloseCode::TooManyStreams);
        } else {
            while self.remote <= number {
                let next = 2 * self.remote + u64::from(self.side == Side::Initiator);
                self.remote += 1;
                self.insert(next);
                self.events.push_back(Event::StreamOpened(StreamId(next)));
            }
        }
        Ok(self.open.get_mut(&id))
    }

    /// A frame of symbol `symbol` became known.
    pub fn on_frame(&mut self, symbol: SourceId, frame: &SymbolFrame<'_>) -> Result<(), CloseCode> {
        let SymbolFrame::Stream { stream: id, offset, fin, data, data_at } = *frame else {
            // RESET and STOP come with their issue; to ignore them would leave a reader waiting for ever.
            return Err(CloseCode::Protocol);
        };
        let Some(stream) = self.ensure(id)? else { return Err(CloseCode::Protocol) };
        stream.incoming.insert(offset, data.len(), fin, symbol, data_at).map_err(|fault| match fault {
            StreamFault::Credit => CloseCode::FlowControl,
            StreamFault::Contradiction | StreamFault::Gaps => CloseCode::Protocol,
        })?;
        let tell = stream.incoming.is_readable() && !stream.told_readable;
        stream.told_readable |= tell;
        self.copied_below = self.copied_below.min(symbol);
        if tell {
            self.events.push_back(Event::Readable(StreamId(id)));
        }
        Ok(())
    }

    /// Saves unread bytes of symbols below `floor` before the ring reuses their slots; also of some above it, so that a reader who
    /// lets much lie does not cost a walk over all of it for each packet.
    pub fn copy_out(&mut self, floor: SourceId, decoder: &Decoder) {
        if floor <= self.copied_below {
            return;
        }
        self.copied_below = floor.plus((decoder.capacity() / COPY_AHEAD) as u64);
        for stream in self.open.values_mut() {
            stream.incoming.copy_out(self.copied_below, decoder);
        }
    }

    /// The application took `n` bytes of what it was lent.
    pub fn consume(&mut self, id: StreamId, n: usize) {
        if let Some(stream) = self.open.get_mut(&id.0) {
            stream.incoming.consume(n);
            stream.told_readable = false;
            stream.end_read |= n == 0 && stream.incoming.is_at_end();
        }
    }

    /// The application found nothing to read: it is to be told when there is.
    pub fn wants_read(&mut self, id: StreamId) {
        if let Some(stream) = self.open.get_mut(&id.0) {
            stream.told_readable = false;
        }
    }

    /// Moves the byte limit of a stream after a read; returns whether the peer should hear of it.
    pub fn update_limit(&mut self, id: StreamId, now: Time, rtt: Duration) -> bool {
        let Some(stream) = self.open.get_mut(&id.0) else { return false };
        if stream.incoming.wanted_limit() <= stream.incoming.told {
            return false;
        }
        if now.since(stream.limit_moved) < rtt * WIDEN_ROUNDS {
            stream.incoming.widen((stream.incoming.window() * 2).min(self.max_window));
        }
        stream.limit_moved = now;
        stream.incoming.told = stream.incoming.wanted_limit();
        stream.incoming.told_in = None;
        true
    }

    /// Forgets a stream whose end was sent and which was read to its end; a peer's stream makes room for another.
    pub fn forget_if_done(&mut self, id: StreamId) -> bool {
        let done = self.get(id).is_some_and(|stream| stream.outgoing.finished && stream.end_read);
        if done {
            self.open.remove(&id.0);
            if !self.is_ours(id.0) {
                self.remote_limit += 1;
                self.remote_told_in = None;
            }
        }
        done
    }

    /// Credit that the peer has not confirmed; empty when it knows all.
    pub fn unconfirmed(&mut self) -> (u64, &[(u64, u64)]) {
        self.limits.clear();
        let unconfirmed = self.open.iter().filter(|(_, stream)| stream.incoming.told > stream.incoming.confirmed);
        self.limits.extend(unconfirmed.map(|(&id, stream)| (id, stream.incoming.told)).take(64));
        (self.remote_limit, &self.limits)
    }

    /// Whether [`Self::unconfirmed`] has anything to say.
    pub fn has_unconfirmed(&self) -> bool {
        self.remote_limit > self.remote_confirmed
            || self.open.values().any(|stream| stream.incoming.told > stream.incoming.confirmed)
    }

    /// Credit left in packet `number`.
    pub fn on_credit_sent(&mut self, number: u64) {
        self.remote_told_in = Some(number);
        for &(id, _) in &self.limits {
            if let Some(stream) = self.open.get_mut(&id) {
                stream.incoming.told_in = Some(number);
            }
        }
    }

    /// The packet `number` with credit arrived.
    pub fn on_credit_acked(&mut self, number: u64) {
        if self.remote_told_in == Some(number) {
            self.remote_confirmed = self.remote_limit;
        }
        for stream in self.open.values_mut() {
            if stream.incoming.told_in == Some(number) {
                stream.incoming.confirmed = stream.incoming.told;
            }
        }
    }

    /// The peer grants more.
    pub fn on_credit(&mut self, streams: u64, limits: impl Iterator<Item = (u64, u64)>) {
        if streams > self.local_limit {
            self.local_limit = streams;
            self.events.push_back(Event::StreamsAvailable);
        }
        for (id, limit) in limits {
            if let Some(stream) = self.open.get_mut(&id) {
                stream.outgoing.limit = stream.outgoing.limit.max(limit);
            }
        }
    }

    /// The stream could not write all it had: it is told when there is room.
    pub fn wait_for_room(&mut self, id: StreamId) {
        if let Some(stream) = self.open.get_mut(&id.0)
            && !stream.outgoing.waiting
        {
            stream.outgoing.waiting = true;
            self.waiting.push_back(id);
        }
    }

    /// There is room in the lane: tells those who wait and have credit, in the order of their asking.
    pub fn wake_writers(&mut self) {
        for _ in 0..self.waiting.len() {
            let Some(id) = self.waiting.pop_front() else { return };
            let Some(stream) = self.open.get_mut(&id.0) else { continue };
            if stream.outgoing.written < stream.outgoing.limit || stream.outgoing.ends {
                stream.outgoing.waiting = false;
                self.events.push_back(Event::Writable(id));
            } else {
                self.waiting.push_back(id);
            }
        }
    }

    /// Whether a writer waits for room.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a writer waits for the peer's credit.
    pub fn is_blocked(&self) -> bool {
        self.waiting.iter().any(|id| self.get(*id).is_some_and(|s| s.outgoing.written >= s.outgoing.limit))
    }

    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}
