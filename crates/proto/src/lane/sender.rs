//! The sending half of a lane: puts what streams write into source symbols, keeps the symbols until the peer
//! has decoded them, and keeps the state that redundancy policies read.
//!
//! The encoder's ring is send buffer, retransmission buffer and coding window in one. A symbol is *open*
//! while streams write into it, *queued* once it is closed, and *out* after its first transmission. The bytes
//! of a symbol that is out never change. Repairs mix only such symbols.

mod ahead;
mod expiry;
mod fill;
mod in_flight;
mod repairs;
mod slices;
mod window;
mod withheld;

use core::cmp::Reverse;
use core::ops::Range;
use core::time::Duration;
use std::collections::{BinaryHeap, VecDeque};

use tidewire_codec::{EncodeError, SourceId};

use self::ahead::Ahead;
use self::expiry::Deadline;
pub(crate) use self::expiry::Expired;
use self::in_flight::InFlight;
use self::repairs::RepairKeys;
use self::slices::Slicing;
pub(crate) use self::slices::{Slice, SliceBytes};
use self::window::Window;
use super::{INITIAL_CREDIT, SMALLEST_RING, most_symbols};
use crate::Time;
use crate::redundancy::{Closed, Repair, RepairInFlight, Report};
use crate::wire::{LaneReport, Layout, OpenStream, SymbolHeader, TIME_MODULUS, TIME_UNIT, time_units};

/// State of a source symbol that is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The first transmission is not known to be received or lost yet.
    Open,
    Arrived,
    Lost,
    /// Lost and retransmitted. The retransmission is not known to be received or lost yet.
    Again,
    /// Not sent itself. The fate of the first repair over it is not known yet.
    Withheld,
    /// Not sent itself. The fate of the first repair over it is known.
    Mixed,
}

#[derive(Debug)]
struct OpenSymbol {
    len: usize,
    limit: usize,
    stream: Option<OpenStream>,
}

/// The sending half of a lane; see the module.
#[derive(Debug)]
pub(crate) struct LaneSender {
    window: Window,
    max_capacity: usize,
    open: Option<OpenSymbol>,
    /// The newest symbol that was sent before it was full.
    newest_partial: Option<SourceId>,
    /// Source symbols from `base` to `sent`.
    sources: VecDeque<Source>,
    ids: Ids,
    reported: Reported,
    repairs: InFlight,
    /// Lost source symbols, lowest first. Stale entries are removed when they reach the top.
    lost: BinaryHeap<Reverse<SourceId>>,
    sliced: Slicing,
    keys: RepairKeys,
    ahead: Ahead,
    pace: Pace,
    messages: Outgoing,
    /// Number of bytes by which the ring may grow.
    pub spare: usize,
}

/// Ids of the source symbols at which something changes, in ascending order.
#[derive(Debug, Default)]
struct Ids {
    /// The peer is known to have decoded all symbols below this one.
    base: SourceId,
    /// The first transmissions of all symbols below this one are known to be received or lost.
    settled: SourceId,
    /// Next id to be sent for the first time.
    sent: SourceId,
    /// The peer accepts ids below this one.
    peer_limit: SourceId,
}

/// The newest report of the peer.
#[derive(Debug, Default)]
struct Reported {
    report: Report,
    /// Number of the packet that brought it.
    packet: Option<u64>,
}

/// When source symbols are sent for the first time.
#[derive(Debug)]
struct Pace {
    last: Time,
    /// Mean time between two symbols.
    interval: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { last: Time::ZERO, interval: Duration::from_millis(10) }
    }
}

/// Messages of the lane.
#[derive(Debug, Default)]
struct Outgoing {
    /// Messages that the peer may not have received, oldest first.
    deadlines: VecDeque<Deadline>,
    /// Symbols below this id were given up, although the peer may lack them. `said_in` is the packet that
    /// told the peer.
    given_up: SourceId,
    said_in: Option<u64>,
    /// Messages and symbols whose deadline passed before the peer was known to have them.
    expired: Expired,
    /// When the newest message that is delivered in order was written.
    last_in_order: Option<Time>,
    /// Symbols of important messages that the peer may lack, in ascending runs.
    important: VecDeque<Range<SourceId>>,
}

impl LaneSender {
    /// `slot_len` is the length of the longest symbol. The window may grow to `memory` bytes. The peer
    /// accepts ids below `peer_limit`.
    pub(crate) fn new(layout: Layout, max_span: u16, slot_len: usize, memory: usize, peer_limit: u64) -> Self {
        Self {
            window: Window::new(layout, slot_len, SMALLEST_RING, max_span),
            max_capacity: most_symbols(slot_len, memory),
            open: None,
            newest_partial: None,
            sources: VecDeque::new(),
            ids: Ids { peer_limit: SourceId(peer_limit), ..Ids::default() },
            reported: Reported::default(),
            repairs: InFlight::default(),
            lost: BinaryHeap::new(),
            sliced: Slicing::new(peer_limit),
            keys: RepairKeys::default(),
            ahead: Ahead::default(),
            pace: Pace::default(),
            messages: Outgoing::default(),
            spare: usize::MAX,
        }
    }

    /// Messages and symbols whose deadline passed before the peer was known to have them.
    pub(crate) fn expired(&self) -> Expired {
        self.messages.expired
    }

    /// Number of symbols that wait for their first transmission, the open one included.
    pub(crate) fn queued(&self) -> usize {
        let closed = self.window.ids().end.0 - self.ids.sent.0;
        closed as usize + usize::from(self.open.is_some())
    }

    /// The next source symbol to send for the first time, if there is one and the peer accepts it. Closes the
    /// open symbol if that is next.
    pub(crate) fn next_source(&mut self) -> Option<SourceId> {
        if self.ids.sent >= self.ids.peer_limit {
            return None;
        }
        if self.ids.sent == self.window.ids().end && self.open.is_some() {
            self.newest_partial = Some(self.ids.sent);
            self.close();
        }
        (self.ids.sent < self.window.ids().end).then_some(self.ids.sent)
    }

    /// Whether a source symbol is waiting and the peer accepts it.
    pub(crate) fn has_source(&self) -> bool {
        self.queued() > 0 && self.ids.sent < self.ids.peer_limit
    }

    /// Whether source symbols are waiting, but the peer accepts no more.
    pub(crate) fn is_blocked(&self) -> bool {
        self.queued() > 0 && self.ids.sent >= self.ids.peer_limit
    }

    /// Writes the send time into the symbol that [`Self::next_source`] named, marks it as sent, and returns
    /// its bytes.
    pub(crate) fn send_source(&mut self, now: Time) -> Option<(SourceId, &[u8])> {
        let id = self.date_source(now, Source::Open)?;
        self.symbol(id).map(|symbol| (id, symbol))
    }

    fn date_source(&mut self, now: Time, state: Source) -> Option<SourceId> {
        let id = self.ids.sent;
        let symbol = self.window.symbol_mut(id)?;
        let length = SymbolHeader::parse(symbol).ok()?.length;
        SymbolHeader { length, time: time_units(now) }.emit(symbol).ok()?;
        self.sources.push_back(state);
        self.ids.sent = SourceId(id.0 + 1);
        // Mean over about eight symbols. A pause counts as a quarter of a second at most.
        let gap = now.since(self.pace.last).min(Duration::from_millis(250));
        self.pace.interval = (self.pace.interval * 7 + gap) / 8;
        self.pace.last = now;
        Some(id)
    }

    /// The bytes of a source symbol as they are sent. If bytes were withdrawn from it earlier, its end is
    /// zeros, which are cut off here because the code pads with zeros anyway.
    pub(crate) fn symbol(&self, id: SourceId) -> Option<&[u8]> {
        let symbol = self.window.symbol(id)?;
        let length = SymbolHeader::parse(symbol).ok()?.length;
        symbol.get(..length.into())
    }

    /// Returns the bytes of a source symbol that is out, and records that packet `packet` carries them again.
    pub(crate) fn resend(&mut self, id: SourceId, packet: u64) -> Option<&[u8]> {
        let index = self.index(id)?;
        if self.sources[index] == Source::Lost {
            self.sources[index] = Source::Again;
        }
        self.repairs.push(RepairInFlight { packet, first: id, count: 1, key: 0, on_feedback: true });
        self.symbol(id)
    }

    fn index(&self, id: SourceId) -> Option<usize> {
        let index = usize::try_from(id.0.checked_sub(self.ids.base.0)?).ok()?;
        (index < self.sources.len()).then_some(index)
    }

    /// Called when the packet that carried source symbol `id` was received.
    pub(crate) fn on_source_acked(&mut self, id: SourceId) {
        if let Some(index) = self.index(id) {
            self.sources[index] = Source::Arrived;
        }
        self.advance();
    }

    /// Called when the first transmission of source symbol `id` was lost.
    pub(crate) fn on_source_lost(&mut self, id: SourceId) {
        if let Some(index) = self.index(id)
            && self.sources[index] == Source::Open
        {
            self.sources[index] = Source::Lost;
            self.lost.push(Reverse(id));
        }
        self.advance();
    }

    /// Called when the repair in packet `packet` is known to be received or lost. Returns that repair.
    pub(crate) fn on_repair_settled(&mut self, packet: u64, arrived: bool) -> Option<RepairInFlight> {
        let repair = self.repairs.settle(packet)?;
        self.settle_mixed(packet);
        if repair.count == 1
            && let Some(index) = self.index(repair.first)
        {
            if arrived {
                self.sources[index] = Source::Arrived;
                self.advance();
            } else if self.sources[index] == Source::Again {
                self.sources[index] = Source::Lost;
                self.lost.push(Reverse(repair.first));
            }
        }
        Some(repair)
    }

    /// Takes the peer's report about the lane from packet `number`. A report older than the newest one is
    /// ignored. Returns false if the report names symbols that were never sent.
    pub(crate) fn on_report(&mut self, number: u64, report: &LaneReport<'_>) -> bool {
        let seen = report.regions.last().map_or(report.end, |(region, _)| region.end);
        if seen > self.ids.sent || report.edge > self.ids.sent {
            return false;
        }
        self.ids.peer_limit = self.ids.peer_limit.max(report.limit);
        if self.reported.packet.is_some_and(|newest| newest > number) {
            return true;
        }
        self.reported.packet = Some(number);
        self.sliced.on_credit(report.limit.since(report.edge));
        self.reported.report.edge = report.edge.max(self.reported.report.edge);
        self.reported.report.end = report.end.max(report.edge);
        self.reported.report.deficit = report.deficit;
        self.reported.report.undecoded.clear();
        self.reported.report.undecoded.extend(report.undecoded);
        self.reported.report.regions.clear();
        self.reported.report.regions.extend(report.regions);
        self.reported.report.serial += 1;
        self.forget_decoded();
        self.forget_sliced();
        if self.is_base_news() {
            self.forget_given_up();
        }
        self.advance();
        true
    }

    /// Frees the symbols of each generation that the peer reported as decoded, although it lacks lower ones.
    fn forget_decoded(&mut self) {
        let (report, window) = (&self.reported.report, &mut self.window);
        self.ahead.closed.retain(|&Closed { first, count, .. }| {
            let is_decoded = report.is_all_decoded(first..first.plus(count.into()));
            if is_decoded {
                window.forget(first, count);
            }
            !is_decoded
        });
    }

    /// Whether the symbols that a repair needs are still there. They are not if the peer has reported their
    /// generation as decoded.
    pub(crate) fn keeps(&self, repair: &Repair) -> bool {
        let (Repair::Resend(first) | Repair::Coded { first, .. }) = *repair;
        !self.window.is_forgotten(first)
    }

    /// Advances the base and the settled edge over all symbols whose state is final.
    fn advance(&mut self) {
        while self.ids.base < self.ids.sent {
            if self.ids.base >= self.reported.report.edge && self.sources.front() != Some(&Source::Arrived) {
                break;
            }
            self.sources.pop_front();
            self.ids.base = SourceId(self.ids.base.0 + 1);
        }
        self.forget_important();
        self.window.release_before(self.ids.base);
        self.ahead.release_before(self.ids.base);
        self.ids.settled = self.ids.settled.max(self.ids.base);
        while let Some(index) = self.index(self.ids.settled) {
            if matches!(self.sources[index], Source::Open | Source::Withheld) && !self.is_decoded(self.ids.settled) {
                break;
            }
            self.ids.settled = SourceId(self.ids.settled.0 + 1);
        }
        self.sliced.release_before(self.ids.base);
    }

    /// Whether the peer reported the symbol as decoded.
    fn is_decoded(&self, id: SourceId) -> bool {
        self.reported.report.is_decoded(id)
    }

    /// The lowest source symbol that is lost, is not known to be decoded, and has no retransmission in
    /// flight.
    pub(crate) fn first_lost(&mut self) -> Option<SourceId> {
        while let Some(&Reverse(id)) = self.lost.peek() {
            let lost = self.index(id).is_some_and(|index| self.sources[index] == Source::Lost);
            if lost && !self.is_decoded(id) {
                return Some(id);
            }
            self.lost.pop();
        }
        None
    }

    /// Oldest source symbol that the peer may not have decoded.
    pub(crate) fn base(&self) -> SourceId {
        self.ids.base
    }

    /// Whether the peer has reported everything that was ever written to the lane.
    pub(crate) fn has_delivered(&self) -> bool {
        self.open.is_none() && self.ids.base >= self.window.ids().end
    }

    /// Time since the oldest symbol that the peer may lack was first sent; `None` if the peer lacks nothing.
    /// Ages of minutes wrap around.
    pub(crate) fn oldest_age(&self, now: Time) -> Option<Duration> {
        let symbol = self.window.symbol(self.ids.base).filter(|_| self.ids.base < self.ids.sent)?;
        let left = SymbolHeader::parse(symbol).ok()?.time;
        let units = time_units(now).wrapping_sub(left) % TIME_MODULUS;
        Some(Duration::from_nanos(u64::from(units) * TIME_UNIT))
    }

    /// First source symbol whose first transmission is not yet known to be received or lost.
    pub(crate) fn settled(&self) -> SourceId {
        self.ids.settled
    }

    /// One past the newest source symbol that is out.
    pub(crate) fn sent(&self) -> SourceId {
        self.ids.sent
    }

    /// The layout of the lane: a sliding window or generations.
    pub(crate) fn layout(&self) -> Layout {
        self.window.layout()
    }

    /// Bytes of memory held in symbols.
    pub(crate) fn memory(&self) -> usize {
        self.window.memory() + self.ahead.memory() + self.sliced.memory()
    }

    /// The newest report of the peer.
    pub(crate) fn report(&self) -> &Report {
        &self.reported.report
    }

    /// Repairs in flight, with placeholders between them.
    pub(crate) fn repairs(&self) -> &[RepairInFlight] {
        self.repairs.as_slice()
    }

    /// When the newest source symbol was sent.
    pub(crate) fn last_source(&self) -> Time {
        self.pace.last
    }

    /// Mean time between source symbols.
    pub(crate) fn source_interval(&self) -> Duration {
        self.pace.interval
    }

    /// Length of a repair over the span: at least the length of the longest symbol in it.
    pub(crate) fn repair_len(&self, first: SourceId, count: u16) -> Result<usize, EncodeError> {
        self.window.repair_len(first, count)
    }

    /// Number of symbols that the ring holds now, at least the initial credit. No base can be further back.
    pub(crate) fn reach(&self) -> usize {
        self.window.capacity().max(INITIAL_CREDIT)
    }
}
