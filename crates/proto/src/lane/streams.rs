//! All streams of a connection: how many each side may open, how many bytes each side accepts, which readers
//! and writers to wake, and which control frames to send.
//!
//! Stream ids are even for the initiator and odd for the responder, and are used in order. Both halves of a
//! stream exist from its start. A stream is forgotten when both halves are over: its end or its RESET was
//! sent, and everything expected was received.

mod arrivals;

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use crate::lane::store::Store;

use super::assembler::Assembler;
use super::scheduler::Scheduler;
use super::stream::{Incoming, Outgoing, Sending};
use crate::Time;
use crate::close::CloseCode;
use crate::event::Event;
use crate::ids::{Side, StreamId};
use crate::wire::SymbolFrame;

/// A window doubles when it was used up within this many round trips (quinn and Linux's receive autotuning do
/// about the same).
const WIDEN_ROUNDS: u32 = 4;

/// Number of bytes by which the windows of all streams together may grow beyond their initial sizes. A peer
/// whose readers first keep up and then stall must not hold `max_stream_window` for each of 4,096 streams.
/// Chosen: one of the largest default windows, 1 Gbit/s over half a second.
const MAX_WIDENED: u64 = 64 << 20;

/// Number of streams whose credit one FEEDBACK carries: half of what the wire format allows, so that
/// everything else has room too.
const MAX_LIMITS: usize = 32;

#[derive(Debug)]
pub(crate) struct Stream {
    pub incoming: Incoming,
    pub outgoing: Outgoing,
    /// The application was told that the stream is readable, and has not read since.
    told_readable: bool,
    /// When the limit last moved; before, when the application first read.
    limit_moved: Option<Time>,
    /// Number of RESET and STOP frames that are not in a symbol yet.
    unsaid: u8,
}

/// A control frame to send as soon as there is room.
#[derive(Clone, Copy, Debug)]
enum Control {
    Reset { id: StreamId, code: u64 },
    Stop { id: StreamId, code: u64 },
}

/// The streams of a connection; see the module.
#[derive(Debug)]
pub(crate) struct Streams {
    side: Side,
    open: BTreeMap<u64, Stream>,
    numbers: Numbers,
    windows: Windows,
    pub scheduler: Scheduler,
    /// Number of streams that wait for credit.
    starved: usize,
    /// At most one RESET and one STOP for each open stream.
    control: VecDeque<Control>,
    /// Streams that the peer stopped and that must be reset.
    stopped: VecDeque<StreamId>,
    events: VecDeque<Event>,
    /// Streams whose limit the peer may not know, the least recently told first.
    unconfirmed: VecDeque<u64>,
    limits: Vec<(u64, u64)>,
    unread: Unread,
}

/// How many streams were opened, and how many may be.
#[derive(Debug, Default)]
struct Numbers {
    /// Number of streams that each side has opened so far.
    local: u64,
    remote: u64,
    /// Number of streams that we may open, as granted by the peer.
    local_limit: u64,
    /// Number of streams that the peer may open: the limit told, the limit confirmed, and the packet that
    /// carried it.
    remote_limit: u64,
    remote_confirmed: u64,
    remote_told_in: Option<u64>,
    /// The application wanted to open a stream, but the limit was reached.
    wants: bool,
}

/// Windows of unread bytes per stream.
#[derive(Debug, Default)]
struct Windows {
    /// Our window of a new stream, and the limit up to which it grows.
    initial: u64,
    max: u64,
    /// The peer's window of a new stream.
    peer: u64,
    /// Number of bytes by which our windows have grown, and by which they may grow now.
    widened: u64,
    spare: u64,
}

/// Bytes that the application has not read.
#[derive(Debug, Default)]
struct Unread {
    /// The unread bytes of all streams.
    assembler: Assembler,
    /// Number of known symbols with more than [`arrivals::MOST_AHEAD`] frames that wait for lower symbols.
    crowded: usize,
}

impl Streams {
    /// The peer may open `streams` streams, each with `window` unread bytes, growing to `max_window`.
    pub(crate) fn new(side: Side, streams: u64, window: u64, max_window: u64) -> Self {
        Self {
            side,
            open: BTreeMap::new(),
            numbers: Numbers { remote_limit: streams, remote_confirmed: streams, ..Numbers::default() },
            windows: Windows { initial: window, max: max_window.max(window), spare: u64::MAX, ..Windows::default() },
            scheduler: Scheduler::default(),
            starved: 0,
            control: VecDeque::new(),
            stopped: VecDeque::new(),
            events: VecDeque::new(),
            unconfirmed: VecDeque::new(),
            limits: Vec::new(),
            unread: Unread::default(),
        }
    }

    /// Sets the limits that the peer granted in the handshake.
    pub(crate) fn set_peer_limits(&mut self, streams: u64, window: u64) {
        self.numbers.local_limit = self.numbers.local_limit.max(streams);
        self.windows.peer = window;
        for stream in self.open.values_mut() {
            stream.outgoing.limit = stream.outgoing.limit.max(window);
        }
    }

    /// Opens the next stream of this side.
    pub(crate) fn open(&mut self) -> Option<StreamId> {
        self.numbers.wants = self.numbers.local >= self.numbers.local_limit;
        if self.numbers.wants {
            return None;
        }
        let id = 2 * self.numbers.local + u64::from(self.side == Side::Responder);
        self.numbers.local += 1;
        self.insert(id);
        Some(StreamId(id))
    }

    fn insert(&mut self, id: u64) {
        let stream = Stream {
            incoming: Incoming::new(id, self.windows.initial),
            outgoing: Outgoing { limit: self.windows.peer, ..Outgoing::default() },
            told_readable: false,
            limit_moved: None,
            unsaid: 0,
        };
        self.open.insert(id, stream);
    }

    pub(crate) fn get(&self, id: StreamId) -> Option<&Stream> {
        self.open.get(&id.0)
    }

    /// The next unread bytes of a stream, if they were received.
    pub(crate) fn chunk<'a>(&'a self, id: StreamId, store: &'a Store) -> Option<&'a [u8]> {
        self.get(id)?.incoming.chunk(&self.unread.assembler, store)
    }

    pub(crate) fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.open.get_mut(&id.0)
    }

    /// Total number of streams that the peer may open.
    pub(crate) fn remote_limit(&self) -> u64 {
        self.numbers.remote_limit
    }

    fn is_ours(&self, id: u64) -> bool {
        (id % 2 == 1) == (self.side == Side::Responder)
    }

    /// Opens the stream of a frame if it was not opened before. The stream may already be forgotten.
    fn ensure(&mut self, id: u64) -> Result<(), CloseCode> {
        let number = id / 2;
        if self.is_ours(id) {
            if number >= self.numbers.local {
                return Err(CloseCode::Protocol);
            }
        } else if number >= self.numbers.remote_limit {
            return Err(CloseCode::TooManyStreams);
        } else {
            while self.numbers.remote <= number {
                let next = 2 * self.numbers.remote + u64::from(self.side == Side::Initiator);
                self.numbers.remote += 1;
                self.insert(next);
                self.events.push_back(Event::StreamOpened(StreamId(next)));
            }
        }
        Ok(())
    }

    /// Called when something was received for the reader of a stream.
    fn came(&mut self, id: u64) {
        let Some(stream) = self.open.get_mut(&id) else { return };
        if stream.incoming.is_readable() && !stream.told_readable && !stream.incoming.told_end {
            stream.told_readable = true;
            self.events.push_back(Event::Readable(StreamId(id)));
        }
        self.forget_if_done(StreamId(id));
    }

    /// The next stream that the peer wants reset, with its code.
    pub(crate) fn next_stopped(&mut self) -> Option<(StreamId, u64)> {
        while let Some(id) = self.stopped.pop_front() {
            if let Some(code) = self.get(id).and_then(|stream| stream.outgoing.stopped) {
                return Some((id, code));
            }
        }
        None
    }

    /// Tells the writer that the peer stopped the stream.
    pub(crate) fn tell_stopped(&mut self, id: StreamId) {
        self.scheduler.leave(id);
        self.events.push_back(Event::Writable(id));
    }

    /// Resets our half at length `last`.
    pub(crate) fn give_up(&mut self, id: StreamId, code: u64, last: u64) {
        self.scheduler.leave(id);
        self.feed(id);
        let Some(stream) = self.open.get_mut(&id.0) else { return };
        stream.outgoing.sending = Sending::Reset;
        stream.outgoing.written = last;
        stream.unsaid += 1;
        self.control.push_back(Control::Reset { id, code });
    }

    /// Called when the application reads no more of the stream.
    pub(crate) fn stop(&mut self, id: StreamId, code: u64) {
        let Some(stream) = self.open.get_mut(&id.0) else { return };
        if !stream.incoming.is_stopped() && stream.incoming.stop(&mut self.unread.assembler) {
            stream.unsaid += 1;
            self.control.push_back(Control::Stop { id, code });
        }
        self.forget_if_done(id);
    }

    /// Writes the waiting control frames, as far as `write` takes them. Returns whether any was written.
    pub(crate) fn say(&mut self, mut write: impl FnMut(&SymbolFrame<'_>) -> bool) -> bool {
        let mut said = false;
        while let Some(&control) = self.control.front() {
            let (Control::Reset { id, code } | Control::Stop { id, code }) = control;
            let stream = id.0;
            let last = self.get(id).map_or(0, |stream| stream.outgoing.written);
            let frame = match control {
                Control::Reset { .. } => SymbolFrame::Reset { stream, code, last },
                Control::Stop { .. } => SymbolFrame::Stop { stream, code },
            };
            if !write(&frame) {
                break;
            }
            said = true;
            self.control.pop_front();
            if let Some(stream) = self.open.get_mut(&id.0) {
                stream.unsaid -= 1;
            }
            self.forget_if_done(id);
        }
        said
    }

    /// Records that the application used `n` bytes of the chunk it was lent.
    pub(crate) fn consume(&mut self, id: StreamId, n: usize) {
        if let Some(stream) = self.open.get_mut(&id.0) {
            stream.incoming.consume(n, &mut self.unread.assembler);
            stream.told_readable = false;
            stream.incoming.told_end |= n == 0 && stream.incoming.is_at_end();
        }
    }

    /// Called when the application found nothing to read. It is told when there is something.
    pub(crate) fn wants_read(&mut self, id: StreamId) {
        if let Some(stream) = self.open.get_mut(&id.0) {
            stream.told_readable = false;
        }
    }

    /// Allows the windows to grow by `bytes`.
    pub(crate) fn allow_memory(&mut self, bytes: usize) {
        self.windows.spare = bytes as u64;
    }

    /// Moves the byte limit of a stream after a read. Returns whether the peer should be told.
    pub(crate) fn update_limit(&mut self, id: StreamId, now: Time, rtt: Duration) -> bool {
        let Some(stream) = self.open.get_mut(&id.0) else { return false };
        let since = *stream.limit_moved.get_or_insert(now);
        if stream.incoming.wanted_limit() <= stream.incoming.told {
            return false;
        }
        if now.since(since) < rtt * WIDEN_ROUNDS {
            let window = stream.incoming.window();
            let windows = &mut self.windows;
            let most = (MAX_WIDENED - windows.widened).min(windows.spare);
            let more = window.min(windows.max.saturating_sub(window)).min(most);
            (windows.widened, windows.spare) = (windows.widened + more, windows.spare - more);
            stream.incoming.widen(more);
        }
        stream.limit_moved = Some(now);
        stream.incoming.told = stream.incoming.wanted_limit();
        stream.incoming.told_in = None;
        if !self.unconfirmed.contains(&id.0) {
            self.unconfirmed.push_back(id.0);
        }
        true
    }

    /// Forgets a stream whose halves are both over. If the peer opened it, the peer may then open another.
    pub(crate) fn forget_if_done(&mut self, id: StreamId) -> bool {
        let done = self
            .get(id)
            .is_some_and(|stream| stream.unsaid == 0 && stream.outgoing.is_over() && stream.incoming.is_over());
        if done && let Some(stream) = self.open.remove(&id.0) {
            self.windows.widened -= stream.incoming.window().saturating_sub(self.windows.initial);
            self.unconfirmed.retain(|&other| other != id.0);
            if !self.is_ours(id.0) {
                self.numbers.remote_limit += 1;
                self.numbers.remote_told_in = None;
            }
        }
        done
    }

    /// The credit that the peer has not confirmed, for at most `most` streams; empty if the peer knows all of
    /// it. Streams that do not fit come next time.
    pub(crate) fn unconfirmed(&mut self, most: usize) -> (u64, &[(u64, u64)]) {
        self.limits.clear();
        let ids = self.unconfirmed.iter().take(MAX_LIMITS.min(most));
        self.limits.extend(ids.filter_map(|id| self.open.get(id).map(|stream| (*id, stream.incoming.told))));
        (self.numbers.remote_limit, &self.limits)
    }

    /// Whether [`Self::unconfirmed`] returns anything.
    pub(crate) fn has_unconfirmed(&self) -> bool {
        self.numbers.remote_limit > self.numbers.remote_confirmed || !self.unconfirmed.is_empty()
    }

    /// Records that packet `number` carries the credit.
    pub(crate) fn on_credit_sent(&mut self, number: u64) {
        self.numbers.remote_told_in = Some(number);
        for (id, _) in &self.limits {
            if let Some(stream) = self.open.get_mut(id) {
                stream.incoming.told_in = Some(number);
            }
        }
        self.unconfirmed.rotate_left(self.limits.len().min(self.unconfirmed.len()));
    }

    /// Called when packet `number`, which may carry credit, was acknowledged.
    pub(crate) fn on_credit_acked(&mut self, number: u64) {
        if self.numbers.remote_told_in == Some(number) {
            self.numbers.remote_confirmed = self.numbers.remote_limit;
        }
        let open = &self.open;
        self.unconfirmed.retain(|id| open.get(id).is_some_and(|stream| stream.incoming.told_in != Some(number)));
    }

    /// Takes new credit from the peer.
    pub(crate) fn on_credit(&mut self, streams: u64, limits: impl Iterator<Item = (u64, u64)>) {
        if streams > self.numbers.local_limit {
            self.numbers.local_limit = streams;
            self.numbers.wants = false;
            self.events.push_back(Event::StreamsAvailable);
        }
        for (id, limit) in limits {
            let Some(stream) = self.open.get_mut(&id) else { continue };
            stream.outgoing.limit = stream.outgoing.limit.max(limit);
            if stream.outgoing.starved && !stream.outgoing.lacks_credit() {
                self.wait_for_room(StreamId(id), 0);
            }
        }
    }

    /// Called when the stream could not write all its data. It wants to write `bytes`, at most a symbol, and
    /// is told when there is room and credit.
    pub(crate) fn wait_for_room(&mut self, id: StreamId, bytes: usize) {
        self.feed(id);
        let Some(stream) = self.open.get_mut(&id.0) else { return };
        if stream.outgoing.lacks_credit() {
            stream.outgoing.starved = true;
            self.starved += 1;
            self.scheduler.leave(id);
        } else {
            self.scheduler.wait(id, stream.outgoing.served, bytes);
        }
    }

    /// Marks the stream as not waiting for credit.
    fn feed(&mut self, id: StreamId) {
        if let Some(stream) = self.open.get_mut(&id.0) {
            self.starved -= usize::from(core::mem::take(&mut stream.outgoing.starved));
        }
    }

    /// Tells the streams whose turn it is that the lane has room for `free` symbols.
    pub(crate) fn wake_writers(&mut self, now: Time, free: usize) {
        let events = &mut self.events;
        self.scheduler.wake(now, free, |id| events.push_back(Event::Writable(id)));
    }

    /// Whether a stream or a control frame waits for room.
    pub(crate) fn has_waiting(&self) -> bool {
        self.scheduler.has_waiting() || !self.control.is_empty()
    }

    /// Whether a writer waits for the peer's credit, or the application for permission to open a stream.
    pub(crate) fn is_blocked(&self) -> bool {
        self.starved > 0 || self.numbers.wants
    }

    /// Number of streams that are not over.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Number of unread bytes allowed for each stream.
    #[cfg(test)]
    pub(crate) fn windows(&self) -> impl Iterator<Item = u64> + '_ {
        self.open.values().map(|stream| stream.incoming.window())
    }

    /// Bytes of memory held in unread pieces.
    pub(crate) fn memory(&self) -> usize {
        self.unread.assembler.memory()
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}
