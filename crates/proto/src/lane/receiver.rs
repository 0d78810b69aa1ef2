//! The receiving half of a lane: takes source and repair symbols, delivers their frames, and reports the
//! lane's state in FEEDBACK.
//!
//! The lane's delivery rule ([`Consumer`]) handles the frames: streams on lane 0, messages on the others. The
//! decoder's ring is reorder buffer, decoder storage and read buffer in one. Its memory grows with the
//! symbols received, and so does the peer's credit. A few symbols with ids far ahead raise neither; they cost
//! about twenty bytes for each id within the credit. The in-order delay of a symbol is measured when the edge
//! passes it (all lower symbols are then decoded). It is the present time, minus the send time in the symbol,
//! minus the least one-way time of the last minute.

use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;

use tidewire_codec::{Code, Elimination, Limits, Reception, RepairId, SourceId};

use super::job;
use super::partial::Partials;
use super::store::Store;
use super::{INITIAL_CREDIT, SMALLEST_RING, most_sliced, most_symbols};
use crate::Time;
use crate::close::CloseCode;
use crate::ids::LaneId;
use crate::redundancy::{MAX_REGIONS, MAX_RUNS};
use crate::stats::{DelayHistogram, SymbolStats};
use crate::trace::{LaneTracer, SymbolOrigin};
use crate::wire::{LaneRepr, Layout, SymbolFrames, TIME_MODULUS, TIME_UNIT, time_units, units_between};

/// The credit doubles when more symbols than this fraction of it were received within a round trip, or are
/// held beyond the edge. This leaves room for 2.5 bandwidth-delay products and a round trip of repair.
const GROW_DIVISOR: u64 = 4;
/// The ring holds this many times the ids between the base and the highest id, within the credit. Repairs mix
/// symbols from the base on, and a late repair uses an older base. Chosen.
const RING_FACTOR: u64 = 2;
/// Maximum number of unsolved rows, in spans, if the ring can hold many spans. A span that cannot be decoded
/// waits a round trip for more repairs, and a row for each loss of that time waits with it. 1,024 rows are
/// three times the losses of 20 ms at 1 Gbit/s and 20 %.
const ROW_SPANS: usize = 4;
/// Rows beyond one span are at most this fraction of the symbols that the ring can hold.
const ROW_DIVISOR: usize = 16;
/// The least one-way time is kept for twice this time.
const HALF_MINUTE: Duration = Duration::from_secs(30);

/// What a packet carries for a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arrival<'a> {
    /// A source symbol. `again` means that it is a retransmission.
    Source { layout: Layout, id: SourceId, again: bool, symbol: &'a [u8] },
    /// A repair symbol.
    Repair { layout: Layout, code: Code, id: RepairId, symbol: &'a [u8] },
    /// Part of a source symbol. It says nothing about the base.
    Slice { layout: Layout, id: SourceId, offset: usize, total: usize, bytes: &'a [u8] },
    /// Only the base.
    Nothing,
}

/// How a lane delivers symbols that become known.
pub(crate) trait Consumer {
    /// Whether the base may pass symbols that are not decoded.
    const MAY_SKIP: bool;

    /// Called when a symbol became known, in any order, with its frames.
    fn on_symbol(&mut self, id: SourceId, frames: SymbolFrames<'_>, store: &Store) -> Result<(), CloseCode>;
    /// Called when the edge passes a symbol, once for each and in order. The store does not have it if it was
    /// skipped.
    fn on_passed(&mut self, _id: SourceId, _store: &Store) -> Result<(), CloseCode> {
        Ok(())
    }
    /// Called before the slots of symbols below `floor` are reused.
    fn before_reuse(&mut self, _floor: SourceId, _store: &Store) -> Result<(), CloseCode> {
        Ok(())
    }
}

/// How a symbol became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Unknown,
    Direct,
    Resent,
    Repaired,
}

/// What the peer may send.
#[derive(Debug)]
struct Credit {
    /// Number of symbols from the edge on that are accepted. A power of two, like `max`, and at least the
    /// ring's capacity.
    now: usize,
    max: usize,
    /// Number of bytes by which [`LaneReceiver::memory`] may grow for a higher credit.
    spare: usize,
}

/// The missing symbols that the next report names.
#[derive(Debug, Default)]
struct Missing {
    runs: Vec<Range<SourceId>>,
    /// Set if more runs are missing than FEEDBACK can name: the end of the named runs, and the deficit below
    /// it. `regions` then holds the regions beyond, with their deficits.
    named: Option<(SourceId, u64)>,
    regions: Vec<(Range<SourceId>, u64)>,
    /// The longest span that both ends allow.
    region_len: u64,
}

/// The receiving half of a lane; see the module.
#[derive(Debug)]
pub(crate) struct LaneReceiver {
    store: Store,
    slot_len: usize,
    credit: Credit,
    /// How the symbols from the edge up became known.
    origins: VecDeque<Origin>,
    partials: Partials,
    edge: SourceId,
    clock: OneWayClock,
    missing: Missing,
    pub delay: DelayHistogram,
    pub trace: LaneTracer,
    pub symbols: SymbolStats,
    /// Receptions that did not raise the rank, refused ones included.
    pub redundant: u64,
    /// Start of the present round trip, and the number of symbols delivered by then. `None` before the first.
    round: Option<(Time, u64)>,
    /// True if the newest arrival has not been reported to the peer.
    pub news: bool,
    /// Jobs of at most this many products run immediately.
    inline: usize,
}

impl LaneReceiver {
    /// The receiver of `lane`. `slot_len` is the length of the longest symbol, `max_span` the longest span.
    /// The ring and symbols in parts may take `memory` bytes together. Jobs of at most `inline` products run
    /// immediately. `elimination` is for generations of sparse codes.
    pub(crate) fn new(
        lane: LaneId,
        slot_len: usize,
        max_span: u16,
        memory: usize,
        inline: usize,
        elimination: Elimination,
    ) -> Self {
        let (span, max_credit) = (usize::from(max_span), most_symbols(slot_len, memory / 5 * 4));
        let max_rows = (max_credit / ROW_DIVISOR).clamp(span, ROW_SPANS * span);
        let limits = Limits { slot_len, capacity: SMALLEST_RING, max_span, max_rows };
        Self {
            store: Store::new(limits, elimination),
            slot_len,
            credit: Credit { now: INITIAL_CREDIT, max: max_credit, spare: usize::MAX },
            origins: VecDeque::new(),
            partials: Partials::default(),
            edge: SourceId(0),
            clock: OneWayClock::default(),
            missing: Missing { region_len: max_span.max(1).into(), ..Missing::default() },
            delay: DelayHistogram::default(),
            trace: LaneTracer::new(lane),
            symbols: SymbolStats::default(),
            redundant: 0,
            round: None,
            news: false,
            inline,
        }
    }

    /// The peer's spans have at most `span` symbols, since one end allows no more. Called before the first
    /// arrival.
    pub(crate) fn limit_span(&mut self, span: u16) {
        self.missing.region_len = self.missing.region_len.min(span.max(1).into());
    }

    /// Allows the memory to grow by `bytes` for a higher credit.
    pub(crate) fn allow_memory(&mut self, bytes: usize) {
        self.credit.spare = bytes;
    }

    /// Takes an arrival for this lane, with the base that its packet told. Returns whether the peer should
    /// get FEEDBACK soon, because the arrival made another symbol known or opened a gap.
    pub(crate) fn receive<D: Consumer>(
        &mut self,
        now: Time,
        base: SourceId,
        arrival: Arrival<'_>,
        delivery: &mut D,
    ) -> Result<bool, CloseCode> {
        self.on_base(now, base, delivery)?;
        match arrival {
            Arrival::Source { layout, id, again, symbol } => {
                self.expect(layout)?;
                self.make_room(base, SourceId(id.0.saturating_add(1)), delivery)?;
                self.on_source(now, id, again, symbol, delivery)
            }
            Arrival::Repair { layout, code, id, symbol } => {
                self.expect(layout)?;
                self.make_room(base, SourceId(id.first.0.saturating_add(id.count.into())), delivery)?;
                self.on_repair(now, code, id, symbol, delivery)
            }
            Arrival::Slice { layout, id, offset, total, bytes } => {
                self.expect(layout)?;
                self.on_slice(now, id, offset, total, bytes, delivery)
            }
            Arrival::Nothing => Ok(true),
        }
    }

    /// The first symbol determines the layout of the lane.
    fn expect(&mut self, layout: Layout) -> Result<(), CloseCode> {
        self.store.expect(layout, self.slot_len, self.missing.region_len as u16)
    }

    /// Takes part of a symbol.
    fn on_slice<D: Consumer>(
        &mut self,
        now: Time,
        id: SourceId,
        offset: usize,
        total: usize,
        part: &[u8],
        delivery: &mut D,
    ) -> Result<bool, CloseCode> {
        if id >= self.limit() {
            return Err(CloseCode::FlowControl);
        }
        if total > self.slot_len {
            return Err(CloseCode::Protocol);
        }
        if self.store.is_decoded(id) {
            self.count_redundant(now);
            return Ok(false);
        }
        match self.partials.insert(id, offset, total, part, most_sliced(self.credit.now as u64))? {
            // Count it as a retransmission, because its send time may be that of an earlier transmission.
            Some(symbol) => {
                self.make_room(self.edge, SourceId(id.0 + 1), delivery)?;
                self.on_source(now, id, true, &symbol, delivery)
            }
            None => Ok(false),
        }
    }

    fn on_source<D: Consumer>(
        &mut self,
        now: Time,
        id: SourceId,
        again: bool,
        symbol: &[u8],
        delivery: &mut D,
    ) -> Result<bool, CloseCode> {
        let end = self.store.end();
        let innovative = self.store.receive_source(id, symbol)? == Some(Reception::Innovative);
        if innovative {
            self.set_origin(id, if again { Origin::Resent } else { Origin::Direct });
            if !again && let Ok((header, _)) = SymbolFrames::new(symbol) {
                self.clock.observe_direct(now, header.time);
            }
        }
        let decoded = self.deliver(now, delivery)?;
        if !innovative {
            self.count_redundant(now);
        }
        Ok(decoded != u64::from(innovative) || id != end)
    }

    fn on_repair<D: Consumer>(
        &mut self,
        now: Time,
        code: Code,
        id: RepairId,
        symbol: &[u8],
        delivery: &mut D,
    ) -> Result<bool, CloseCode> {
        let reception = self.store.receive_repair(code, id, symbol)?;
        let innovative = reception == Some(Reception::Innovative);
        if !innovative {
            self.count_redundant(now);
        }
        let decoded = self.deliver(now, delivery)?;
        // The repairs of a generation come last. If it needs more, the sender has to know soon.
        Ok(decoded > 0 || (innovative && self.store.is_in_generations()))
    }

    /// The peer will send nothing below `base` any more. On a lane that may not skip symbols, all of these
    /// must be decoded.
    fn on_base<D: Consumer>(&mut self, now: Time, base: SourceId, delivery: &mut D) -> Result<(), CloseCode> {
        self.news = true;
        if base > self.store.reported() {
            if !D::MAY_SKIP {
                return Err(CloseCode::Protocol);
            }
            if base > self.limit() {
                return Err(CloseCode::FlowControl);
            }
            // Decoded symbols below the base must still be delivered.
            self.make_room(self.edge, base, delivery)?;
            self.store.skip_before(base);
            self.deliver(now, delivery)?;
        }
        Ok(())
    }

    /// Called before ids up to `end` are taken. Raises the credit and grows the ring if allowed; otherwise
    /// saves unread bytes from the slots that will be reused. Repairs still mix symbols from `base` on.
    fn make_room<D: Consumer>(&mut self, base: SourceId, end: SourceId, delivery: &mut D) -> Result<(), CloseCode> {
        if end > self.limit() {
            return Err(CloseCode::FlowControl);
        }
        if end <= self.store.end() {
            return Ok(());
        }
        self.raise_credit(self.store.held_beyond());
        let wanted = RING_FACTOR * (end.0 - base.0.min(self.edge.0));
        let wanted = wanted.min(self.credit.now as u64) as usize;
        if wanted > self.store.capacity() {
            self.store.grow(wanted);
            if wanted >= 2 * MAX_RUNS {
                self.missing.regions.reserve(MAX_REGIONS.saturating_sub(self.missing.regions.len()));
            }
        }
        let floor = SourceId(end.0.saturating_sub(self.store.capacity() as u64));
        delivery.before_reuse(floor, &self.store)?;
        // Repairs of generations mix symbols below the base, back to the length of the longest span.
        self.store.release_before(floor.min(SourceId(base.0.saturating_sub(self.missing.region_len))));
        Ok(())
    }

    /// Doubles the credit if `symbols` is more than a fraction of it.
    fn raise_credit(&mut self, symbols: u64) {
        let more = self.promised(2 * self.credit.now).saturating_sub(self.granted());
        if symbols > self.credit.now as u64 / GROW_DIVISOR
            && self.credit.now < self.credit.max
            && more <= self.credit.spare
        {
            self.credit.now *= 2;
            self.credit.spare -= more;
        }
    }

    /// Bytes that the lane holds, or will hold when the peer uses a credit that was raised.
    pub(crate) fn granted(&self) -> usize {
        let promised = if self.credit.now > INITIAL_CREDIT { self.credit.now } else { 0 };
        self.memory().max(self.promised(promised))
    }

    /// Bytes of the ring, and of symbols in parts, for a credit of `symbols`.
    fn promised(&self, symbols: usize) -> usize {
        (symbols + most_sliced(symbols as u64)) * self.slot_len
    }

    /// Ids from here on are refused.
    fn limit(&self) -> SourceId {
        self.edge.plus(self.credit.now as u64)
    }

    /// Once per round trip, raises the credit by the symbols that were delivered in that time. Without loss
    /// nothing is held beyond the edge, but the sender still needs credit for everything in flight.
    fn tune(&mut self, now: Time, rtt: Duration) {
        let (since, delivered) = *self.round.get_or_insert((now, 0));
        let passed = now.since(since);
        if passed < rtt {
            return;
        }
        self.round = Some((now, self.symbols.delivered));
        let per_round = u128::from(self.symbols.delivered - delivered) * rtt.as_nanos() / passed.as_nanos().max(1);
        self.raise_credit(u64::try_from(per_round).unwrap_or(u64::MAX));
    }

    fn count_redundant(&mut self, now: Time) {
        self.redundant += 1;
        self.trace.redundant(now);
    }

    fn set_origin(&mut self, id: SourceId, origin: Origin) {
        let Some(index) = id.0.checked_sub(self.edge.0) else { return };
        let index = index as usize;
        if index >= self.origins.len() {
            self.origins.resize(index + 1, Origin::Unknown);
        }
        self.origins[index] = origin;
    }

    /// Delivers symbols that became known, and moves the edge past symbols that are complete or skipped.
    /// Returns how many symbols became known.
    fn deliver<D: Consumer>(&mut self, now: Time, delivery: &mut D) -> Result<u64, CloseCode> {
        while let Some(job) = self.store.poll_job(..=self.inline) {
            self.store.handle_job(job.run())?;
        }
        let mut count = 0;
        while let Some(decoded) = self.store.poll_decoded() {
            count += 1;
            self.partials.forget(decoded.id);
            if decoded.repaired {
                self.set_origin(decoded.id, Origin::Repaired);
                self.trace.repaired(now, decoded.id);
            }
            let Some(symbol) = self.store.symbol(decoded.id) else { continue };
            let (header, frames) = SymbolFrames::new(symbol).map_err(|_| CloseCode::Malformed)?;
            self.clock.observe_decoded(now, header.time);
            delivery.on_symbol(decoded.id, frames, &self.store)?;
        }
        while self.edge < self.store.edge() {
            self.pass(now);
            let passed = SourceId(self.edge.0 - 1);
            delivery.on_passed(passed, &self.store)?;
        }
        Ok(count)
    }

    /// Moves the edge past one symbol, which was delivered in order or skipped.
    fn pass(&mut self, now: Time) {
        let origin = self.origins.pop_front().unwrap_or(Origin::Unknown);
        let (id, symbol) = (self.edge, self.store.symbol(self.edge));
        self.edge = SourceId(self.edge.0 + 1);
        self.partials.forget(id);
        let origin = match origin {
            Origin::Unknown if symbol.is_none() => SymbolOrigin::GivenUp,
            Origin::Repaired => SymbolOrigin::Repaired,
            Origin::Resent => SymbolOrigin::Resent,
            Origin::Direct | Origin::Unknown => SymbolOrigin::Direct,
        };
        let header = symbol.and_then(|symbol| SymbolFrames::new(symbol).ok()).map(|(header, _)| header);
        let delay = header.map(|header| self.clock.delay(now, header.time));
        match origin {
            SymbolOrigin::Direct => self.symbols.direct += 1,
            SymbolOrigin::Resent => self.symbols.resent += 1,
            SymbolOrigin::Repaired => self.symbols.repaired += 1,
            SymbolOrigin::GivenUp => self.symbols.expired += 1,
        }
        self.symbols.delivered += u64::from(origin != SymbolOrigin::GivenUp);
        if let Some(delay) = delay {
            self.delay.record(delay);
        }
        self.trace.passed(now, id, origin, delay);
    }

    /// Collects the missing ids for [`Self::report`].
    pub(crate) fn review(&mut self, now: Time, rtt: Duration) {
        self.tune(now, rtt);
        self.missing.runs.clear();
        self.store.name_undecoded(MAX_RUNS, &mut self.missing.runs);
        self.missing.regions.clear();
        let last = self.missing.runs.last().filter(|_| self.missing.runs.len() == MAX_RUNS).map(|run| run.end);
        self.missing.named = last.map(|end| (end, self.review_regions(end)));
    }

    /// Collects the deficits of the regions from `from` up. Returns the deficit below `from`. Regions end at
    /// multiples of the longest span, so the peer's answers to one report fit the regions of the next report
    /// too.
    fn review_regions(&mut self, from: SourceId) -> u64 {
        let (end, length) = (self.store.end(), self.missing.region_len);
        let mut deficits = [0; MAX_REGIONS];
        let below = self.store.region_deficits(from, length, &mut deficits);
        let mut start = from;
        for deficit in deficits {
            if start >= end {
                break;
            }
            let region = start..SourceId((start.0 / length + 1) * length).min(end);
            start = region.end;
            self.missing.regions.push((region, deficit));
        }
        below
    }

    /// The report of this lane for FEEDBACK.
    pub(crate) fn report(&self, lane: u32) -> LaneRepr<'_> {
        let (end, deficit) = self.missing.named.unwrap_or((self.store.end(), self.store.rank_deficit()));
        LaneRepr {
            lane,
            edge: self.store.reported(),
            end,
            deficit,
            limit: self.limit(),
            undecoded: &self.missing.runs,
            regions: &self.missing.regions,
        }
    }

    /// Whether FEEDBACK should report this lane.
    pub(crate) fn is_reportable(&self) -> bool {
        self.news || self.store.reported() < self.store.end()
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.store.memory() + self.origins.capacity() * size_of::<Origin>() + self.partials.memory()
    }

    /// The store in which streams find their bytes.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// The next decoding job for a worker.
    pub(crate) fn poll_job(&mut self) -> Option<job::Decode> {
        self.store.poll_job(..)
    }

    /// Whether [`Self::poll_job`] has a job.
    pub(crate) fn has_job(&self) -> bool {
        self.store.has_job()
    }

    /// Takes the result of a job from [`Self::poll_job`]. Returns whether the edge moved. The credit then
    /// moved too, and the peer must be told.
    pub(crate) fn handle_job<D: Consumer>(
        &mut self,
        now: Time,
        done: job::Decoded,
        delivery: &mut D,
    ) -> Result<bool, CloseCode> {
        let before = self.edge;
        self.store.handle_job(done)?;
        self.deliver(now, delivery)?;
        let moved = self.edge > before;
        self.news |= moved;
        Ok(moved)
    }
}

/// The least one-way time of the last 30 to 60 seconds, in send time units, relative to the first one
/// measured. The clocks of the two ends need not agree, and old values expire, so drift does not accumulate.
#[derive(Debug, Default)]
struct OneWayClock {
    reference: Option<u32>,
    least: i32,
    next_least: i32,
    turned: Time,
    /// Whether a source symbol came in its first transmission.
    has_direct: bool,
}

impl OneWayClock {
    /// A source symbol came in its first transmission.
    fn observe_direct(&mut self, now: Time, sent: u32) {
        self.has_direct = true;
        self.observe(now, sent);
    }

    /// A symbol became known, in whatever way. It counts on a lane whose source symbols are not sent: there,
    /// the first repair over a symbol may reveal it at once.
    fn observe_decoded(&mut self, now: Time, sent: u32) {
        if !self.has_direct {
            self.observe(now, sent);
        }
    }

    /// One-way time of a symbol sent at `sent`, relative to the reference.
    fn relative(&self, now: Time, sent: u32) -> i32 {
        units_between(self.reference.unwrap_or(0), time_units(now).wrapping_sub(sent))
    }

    fn observe(&mut self, now: Time, sent: u32) {
        if self.reference.is_none() {
            self.reference = Some(time_units(now).wrapping_sub(sent) % TIME_MODULUS);
            self.turned = now;
        }
        let offset = self.relative(now, sent);
        if now.since(self.turned) > HALF_MINUTE {
            self.least = self.next_least.min(offset);
            self.next_least = offset;
            self.turned = now;
        }
        self.least = self.least.min(offset);
        self.next_least = self.next_least.min(offset);
    }

    fn delay(&self, now: Time, sent: u32) -> Duration {
        let over = self.relative(now, sent).saturating_sub(self.least).max(0);
        Duration::from_nanos(u64::from(over.unsigned_abs()) * TIME_UNIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_is_what_exceeds_the_least_one_way_time_whatever_the_clocks() {
        for skew in [0_u64, 5_000, 300_000] {
            let mut clock = OneWayClock::default();
            let sent = |ms: u64| time_units(Time::from_millis(ms + skew));
            clock.observe_decoded(Time::from_millis(130), sent(100));
            assert_eq!(clock.delay(Time::from_millis(190), sent(120)).as_millis(), 40, "{skew}");
            clock.observe_direct(Time::from_millis(141), sent(116));
            clock.observe_decoded(Time::from_millis(141), sent(126));
            assert_eq!(clock.delay(Time::from_millis(200), sent(120)).as_millis(), 55, "{skew}");
        }
    }
}
