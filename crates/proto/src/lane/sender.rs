//! The sending half of a lane: turns what streams write into source symbols, keeps them until the peer has
//! decoded them, and keeps the books that a redundancy policy decides by.
//!
//! The encoder's ring is send buffer, retransmit store and coding window in one. A symbol is open while
//! streams write into it, queued once it is closed or about to be sent, and out after its first transmission;
//! from then on its bytes never change. Only symbols that are out are mixed into repairs.

mod ahead;
mod expiry;
mod fill;
mod in_flight;
mod repairs;
mod slices;
mod window;

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::{BinaryHeap, VecDeque};

use tidewire_codec::{EncodeError, SourceId};

use self::ahead::Ahead;
use self::expiry::Deadline;
pub(crate) use self::expiry::Expired;
use self::in_flight::InFlight;
use self::repairs::Keys;
pub(crate) use self::slices::Slice;
use self::slices::Sliced;
use self::window::Window;
use super::{INITIAL_CREDIT, SMALLEST_RING, most_symbols};
use crate::Time;
use crate::redundancy::{RepairInFlight, Report};
use crate::wire::{LaneReport, Layout, OpenStream, SEND_TIME_MODULUS, SymbolHeader};

/// Unit of the send time in a symbol (wire.md section 6).
pub(super) const TIME_UNIT: u64 = 16_000;

/// What is known of a source symbol that is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The first transmission's fate is open.
    Open,
    Arrived,
    Lost,
    /// Lost, and sent again: that packet's fate is open.
    Again,
}

#[derive(Debug)]
struct OpenSymbol {
    len: usize,
    limit: usize,
    stream: Option<OpenStream>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct LaneSender {
    window: Window,
    max_capacity: usize,
    open: Option<OpenSymbol>,
    /// The newest symbol that was sent though it had room left.
    newest_partial: Option<SourceId>,
    /// Source symbols from `base` to `sent`.
    sources: VecDeque<Source>,
    base: SourceId,
    /// Next id to be sent for the first time.
    sent: SourceId,
    settled: SourceId,
    /// The peer accepts ids below.
    peer_limit: SourceId,
    report: Report,
    /// Number of the packet that brought `report`.
    reported_in: Option<u64>,
    repairs: InFlight,
    /// Lost source symbols, lowest first; stale entries are dropped when they come up.
    lost: BinaryHeap<Reverse<SourceId>>,
    /// Symbols that go in parts, in the order in which they began to.
    sliced: VecDeque<Sliced>,
    keys: Keys,
    ahead: Ahead,
    last_source: Time,
    source_interval: Duration,
    /// Messages that the peer may lack, oldest first.
    deadlines: VecDeque<Deadline>,
    /// Symbols below were given up though the peer may lack them, and the packet that said so.
    given_up: SourceId,
    said_in: Option<u64>,
    /// Messages and symbols whose time was over before the peer was known to have them.
    pub expired: Expired,
    /// Bytes by which the ring may grow.
    pub spare: usize,
}

impl LaneSender {
    /// `slot_len` bytes hold the longest symbol; the window may grow to `memory` bytes. The peer accepts ids below `peer_limit`.
    pub fn new((layout, max_span): (Layout, u16), slot_len: usize, memory: usize, peer_limit: u64) -> Self {
        Self {
            window: Window::new(layout, slot_len, SMALLEST_RING, max_span),
            max_capacity: most_symbols(slot_len, memory),
            open: None,
            newest_partial: None,
            sources: VecDeque::new(),
            base: SourceId(0),
            sent: SourceId(0),
            settled: SourceId(0),
            peer_limit: SourceId(peer_limit),
            report: Report::default(),
            reported_in: None,
            repairs: InFlight::default(),
            lost: BinaryHeap::new(),
            sliced: VecDeque::new(),
            keys: Keys::default(),
            ahead: Ahead::default(),
            last_source: Time::ZERO,
            source_interval: Duration::from_millis(10),
            deadlines: VecDeque::new(),
            given_up: SourceId(0),
            said_in: None,
            expired: Expired::default(),
            spare: usize::MAX,
        }
    }

    /// Symbols that wait for their first transmission, the open one included.
    pub fn queued(&self) -> usize {
        let closed = self.window.ids().end.0 - self.sent.0;
        closed as usize + usize::from(self.open.is_some())
    }

    /// The source symbol to send next for the first time, if there is one and the peer accepts it.
    pub fn next_source(&mut self) -> Option<SourceId> {
        if self.sent >= self.peer_limit {
            return None;
        }
        if self.sent == self.window.ids().end && self.open.is_some() {
            self.newest_partial = Some(self.sent);
            self.close();
        }
        (self.sent < self.window.ids().end).then_some(self.sent)
    }

    /// Whether a source symbol waits.
    pub fn has_source(&self) -> bool {
        self.queued() > 0 && self.sent < self.peer_limit
    }

    /// Source symbols wait, but the peer accepts no more.
    pub fn is_blocked(&self) -> bool {
        self.queued() > 0 && self.sent >= self.peer_limit
    }

    /// Stamps the symbol that [`Self::next_source`] named and returns its bytes: it leaves now.
    pub fn send_source(&mut self, now: Time) -> Option<(SourceId, &[u8])> {
        let id = self.sent;
        let symbol = self.window.symbol_mut(id)?;
        let length = SymbolHeader::parse(symbol).ok()?.length;
        SymbolHeader { length, time: send_time(now) }.emit(symbol).ok()?;
        self.sources.push_back(Source::Open);
        self.sent = SourceId(id.0 + 1);
        // Mean over about eight symbols; a pause counts as no more than a quarter of a second.
        let gap = now.since(self.last_source).min(Duration::from_millis(250));
        self.source_interval = (self.source_interval * 7 + gap) / 8;
        self.last_source = now;
        self.symbol(id).map(|symbol| (id, symbol))
    }

    /// A source symbol as it is sent: what was withdrawn from it before left zeros behind its end, which the
    /// code pads with anyway.
    fn symbol(&self, id: SourceId) -> Option<&[u8]> {
        let symbol = self.window.symbol(id)?;
        let length = SymbolHeader::parse(symbol).ok()?.length;
        symbol.get(..length.into())
    }

    /// Bytes of a source symbol that is out, to be sent again as packet `packet`.
    pub fn resend(&mut self, id: SourceId, packet: u64) -> Option<&[u8]> {
        let index = self.index(id)?;
        if self.sources[index] == Source::Lost {
            self.sources[index] = Source::Again;
        }
        self.repairs.push(RepairInFlight { packet, first: id, count: 1, on_feedback: true });
        self.symbol(id)
    }

    fn index(&self, id: SourceId) -> Option<usize> {
        let index = usize::try_from(id.0.checked_sub(self.base.0)?).ok()?;
        (index < self.sources.len()).then_some(index)
    }

    /// The packet that carried source symbol `id` arrived.
    pub fn on_source_acked(&mut self, id: SourceId) {
        if let Some(index) = self.index(id) {
            self.sources[index] = Source::Arrived;
        }
        self.advance();
    }

    /// The first transmission of source symbol `id` was lost.
    pub fn on_source_lost(&mut self, id: SourceId) {
        if let Some(index) = self.index(id)
            && self.sources[index] == Source::Open
        {
            self.sources[index] = Source::Lost;
            self.lost.push(Reverse(id));
        }
        self.advance();
    }

    /// The fate of the repair in packet `packet` is known; says which it was.
    pub fn on_repair_settled(&mut self, packet: u64, arrived: bool) -> Option<RepairInFlight> {
        let repair = self.repairs.settle(packet)?;
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

    /// What the peer says of the lane, in packet `number`; older reports than the newest are ignored. Returns
    /// false if it speaks of symbols that were never sent.
    pub fn on_report(&mut self, number: u64, report: &LaneReport<'_>) -> bool {
        let seen = report.regions.last().map_or(report.end, |(region, _)| region.end);
        if seen > self.sent || report.edge > self.sent {
            return false;
        }
        self.peer_limit = self.peer_limit.max(report.limit);
        if self.reported_in.is_some_and(|newest| newest > number) {
            return true;
        }
        self.reported_in = Some(number);
        self.report.edge = report.edge.max(self.report.edge);
        self.report.end = report.end.max(report.edge);
        self.report.deficit = report.deficit;
        self.report.undecoded.clear();
        self.report.undecoded.extend(report.undecoded);
        self.report.regions.clear();
        self.report.regions.extend(report.regions);
        self.report.serial += 1;
        if self.is_base_news() {
            self.forget_given_up();
        }
        self.advance();
        true
    }

    /// Moves base and settled edge over everything that is decided.
    fn advance(&mut self) {
        while self.base < self.sent {
            if self.base >= self.report.edge && self.sources.front() != Some(&Source::Arrived) {
                break;
            }
            self.sources.pop_front();
            self.base = SourceId(self.base.0 + 1);
        }
        self.window.release_before(self.base);
        self.ahead.release_before(self.base);
        self.settled = self.settled.max(self.base);
        while let Some(index) = self.index(self.settled) {
            if self.sources[index] == Source::Open && !self.is_decoded(self.settled) {
                break;
            }
            self.settled = SourceId(self.settled.0 + 1);
        }
        if !self.sliced.is_empty() {
            self.forget_sliced();
        }
    }

    /// Whether the peer said that it has the symbol.
    fn is_decoded(&self, id: SourceId) -> bool {
        if id < self.report.edge {
            return true;
        }
        let runs = &self.report.undecoded;
        let run = runs.partition_point(|run| run.end <= id);
        id < self.report.end && runs.get(run).is_none_or(|run| run.start > id)
    }

    /// The lowest source symbol that is lost, not known to be decoded and not under way again.
    pub fn first_lost(&mut self) -> Option<SourceId> {
        while let Some(&Reverse(id)) = self.lost.peek() {
            let lost = self.index(id).is_some_and(|index| self.sources[index] == Source::Lost);
            if lost && !self.is_decoded(id) {
                return Some(id);
            }
            self.lost.pop();
        }
        None
    }

    /// Oldest source symbol that the peer may lack.
    pub fn base(&self) -> SourceId {
        self.base
    }

    /// How long ago that symbol first left; `None` when the peer lacks nothing. Ages of minutes wrap around.
    pub fn oldest_age(&self, now: Time) -> Option<Duration> {
        let symbol = self.window.symbol(self.base).filter(|_| self.base < self.sent)?;
        let left = SymbolHeader::parse(symbol).ok()?.time;
        let units = send_time(now).wrapping_sub(left) % SEND_TIME_MODULUS;
        Some(Duration::from_nanos(u64::from(units) * TIME_UNIT))
    }

    /// First source symbol whose first transmission's fate is open.
    pub fn settled(&self) -> SourceId {
        self.settled
    }

    /// One past the newest source symbol that is out.
    pub fn sent(&self) -> SourceId {
        self.sent
    }

    /// How its symbols are coded together.
    pub fn layout(&self) -> Layout {
        self.window.layout()
    }

    /// Bytes of memory held in symbols.
    pub fn memory(&self) -> usize {
        self.window.memory() + self.ahead.memory()
    }

    /// What the peer last said.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Repairs whose fate is open, with blanks between them.
    pub fn repairs(&self) -> &[RepairInFlight] {
        self.repairs.as_slice()
    }

    /// When the newest source symbol left.
    pub fn last_source(&self) -> Time {
        self.last_source
    }

    /// Mean time between source symbols.
    pub fn source_interval(&self) -> Duration {
        self.source_interval
    }

    /// Longest symbol of a span: how long its repair is.
    pub fn repair_len(&self, first: SourceId, count: u16) -> Result<usize, EncodeError> {
        self.window.repair_len(first, count)
    }

    /// Symbols that the ring holds at most, before it doubles beyond the first credit: how far back a base
    /// can lie.
    pub fn reach(&self) -> usize {
        self.window.capacity().max(INITIAL_CREDIT)
    }
}

/// The clock as a symbol carries it.
pub(super) fn send_time(now: Time) -> u32 {
    ((now.0 / TIME_UNIT) % u64::from(SEND_TIME_MODULUS)) as u32
}
