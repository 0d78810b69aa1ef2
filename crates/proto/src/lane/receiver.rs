//! The receiving half of a lane: source and repair symbols in, stream frames out, and what FEEDBACK says of it.
//!
//! The decoder's ring is reorder buffer, decoder storage and read buffer in one. Each symbol's in-order delay is taken when the
//! edge below which all is decoded passes it: now, less the send time in the symbol, less the least one-way time of the last minute.

use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;

use tidewire_codec::{Code, DecodeError, Decoder, Limits, Reception, RepairId, SourceId};

use super::sender::{TIME_UNIT, send_time};
use super::streams::Streams;
use super::{INITIAL_CAPACITY, most_symbols};
use crate::Time;
use crate::connection::CloseCode;
use crate::redundancy::MAX_RUNS;
use crate::stats::{DelayHistogram, SymbolStats};
use crate::wire::{LaneRepr, SEND_TIME_MODULUS, SymbolFrames};

/// The ring doubles when more than this fraction of it lies between edge and highest id: room for 2.5 bandwidth-delay products and
/// a round trip of repair (DESIGN section 5).
const GROW_DIVISOR: u64 = 4;
/// Half of the time that the least one-way time is believed.
const HALF_MINUTE: Duration = Duration::from_secs(30);

/// How a symbol came to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Unknown,
    Direct,
    Resent,
    Repaired,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct LaneReceiver {
    decoder: Decoder,
    max_capacity: usize,
    base: SourceId,
    /// Origins of the ids from the edge up.
    origins: VecDeque<Origin>,
    edge: SourceId,
    clock: OneWayClock,
    runs: Vec<Range<SourceId>>,
    pub delay: DelayHistogram,
    pub symbols: SymbolStats,
    /// Receptions that did not raise the rank, refused ones included.
    pub redundant: u64,
    /// Where the edge was, about a round trip ago.
    round: (Time, SourceId),
}

impl LaneReceiver {
    /// `slot_len` bytes hold the longest symbol, spans are at most `max_span`, the ring may grow to `memory` bytes.
    pub fn new(slot_len: usize, max_span: u16, memory: usize) -> Self {
        let limits = Limits { slot_len, capacity: INITIAL_CAPACITY, max_span, max_rows: usize::from(max_span) };
        Self {
            decoder: Decoder::new(limits),
            max_capacity: most_symbols(slot_len, memory),
            base: SourceId(0),
            origins: VecDeque::new(),
            edge: SourceId(0),
            clock: OneWayClock::default(),
            runs: Vec::new(),
            delay: DelayHistogram::default(),
            symbols: SymbolStats::default(),
            redundant: 0,
            round: (Time::ZERO, SourceId(0)),
        }
    }

    /// A source symbol came. Returns whether it made at least one other symbol than itself known, or opened a gap.
    pub fn on_source(
        &mut self,
        now: Time,
        (id, base, again): (SourceId, SourceId, bool),
        symbol: &[u8],
        streams: &mut Streams,
    ) -> Result<bool, CloseCode> {
        self.move_base(base)?;
        self.make_room(SourceId(id.0.saturating_add(1)), streams);
        let end = self.decoder.end();
        let reception = self.decoder.receive_source(id, symbol).map_err(fault)?;
        if reception == Reception::Innovative {
            self.set_origin(id, if again { Origin::Resent } else { Origin::Direct });
            if !again && let Ok((header, _)) = SymbolFrames::new(symbol) {
                self.clock.observe(now, header.time);
            }
        }
        let decoded = self.deliver(now, streams)?;
        let innovative = reception == Reception::Innovative;
        self.redundant += u64::from(!innovative);
        Ok(decoded != u64::from(innovative) || id != end)
    }

    /// A repair symbol came. Returns whether it made a symbol known.
    pub fn on_repair(
        &mut self,
        now: Time,
        (code, id, base): (Code, RepairId, SourceId),
        symbol: &[u8],
        streams: &mut Streams,
    ) -> Result<bool, CloseCode> {
        self.move_base(base)?;
        self.make_room(SourceId(id.first.0.saturating_add(u64::from(id.count))), streams);
        let reception = match self.decoder.receive_repair(code, id, symbol) {
            Ok(reception) => reception,
            // Our own bound on rows or work, not the peer's fault: the repair is as good as lost.
            Err(error) if is_our_bound(&error) => {
                self.redundant += 1;
                return Ok(false);
            }
            Err(error) => return Err(fault(error)),
        };
        let decoded = self.deliver(now, streams)?;
        self.redundant += u64::from(reception != Reception::Innovative);
        Ok(decoded > 0)
    }

    /// The peer says that nothing below `base` will come. On a reliable lane that can only be what is decoded.
    fn move_base(&mut self, base: SourceId) -> Result<(), CloseCode> {
        if base > self.decoder.edge() {
            return Err(CloseCode::Protocol);
        }
        self.base = self.base.max(base);
        Ok(())
    }

    /// Before ids up to `end` are taken: widens the ring where it may, else saves unread bytes from the slots that will be reused.
    fn make_room(&mut self, end: SourceId, streams: &mut Streams) {
        if end <= self.decoder.end() || end > self.decoder.limit() {
            return;
        }
        let span = end.0 - self.decoder.edge().0;
        let capacity = self.decoder.capacity();
        if span > capacity as u64 / GROW_DIVISOR && capacity < self.max_capacity {
            self.decoder.grow(capacity * 2);
        }
        let floor = end.0.saturating_sub(self.decoder.capacity() as u64);
        streams.copy_out(SourceId(floor), &self.decoder);
    }

    /// Once per round trip: widens the ring, and with it the credit, when a fraction of it came meanwhile. Without loss nothing lies
    /// between edge and highest id, and yet the sender needs credit for all that is on its way.
    pub fn tune(&mut self, now: Time, rtt: Duration) {
        let (since, edge) = self.round;
        let passed = now.since(since);
        if passed < rtt {
            return;
        }
        self.round = (now, self.decoder.edge());
        let per_round = u128::from(self.round.1.0 - edge.0) * rtt.as_nanos() / passed.as_nanos().max(1);
        let capacity = self.decoder.capacity();
        if per_round > u128::from(capacity as u64 / GROW_DIVISOR) && capacity < self.max_capacity {
            self.decoder.grow(capacity * 2);
        }
    }

    fn set_origin(&mut self, id: SourceId, origin: Origin) {
        let Some(index) = id.0.checked_sub(self.edge.0) else { return };
        let index = index as usize;
        if index >= self.origins.len() {
            self.origins.resize(index + 1, Origin::Unknown);
        }
        self.origins[index] = origin;
    }

    /// Hands what became known to the streams, and lets the edge pass what is complete. Returns how many symbols became known.
    fn deliver(&mut self, now: Time, streams: &mut Streams) -> Result<u64, CloseCode> {
        let mut count = 0;
        while let Some(decoded) = self.decoder.poll_decoded() {
            count += 1;
            if decoded.repaired {
                self.set_origin(decoded.id, Origin::Repaired);
            }
            let Some(symbol) = self.decoder.symbol(decoded.id) else { continue };
            let (_, frames) = SymbolFrames::new(symbol).map_err(|_| CloseCode::Malformed)?;
            for frame in frames {
                streams.on_frame(decoded.id, &frame.map_err(|_| CloseCode::Malformed)?)?;
            }
        }
        while self.edge < self.decoder.edge() {
            self.pass(now);
        }
        Ok(count)
    }

    /// The edge passes one symbol: it is delivered in order.
    fn pass(&mut self, now: Time) {
        let origin = self.origins.pop_front().unwrap_or(Origin::Unknown);
        match origin {
            Origin::Repaired => self.symbols.repaired += 1,
            Origin::Resent => self.symbols.resent += 1,
            Origin::Direct | Origin::Unknown => self.symbols.direct += 1,
        }
        self.symbols.delivered += 1;
        let header = self.decoder.symbol(self.edge).and_then(|symbol| SymbolFrames::new(symbol).ok());
        if let Some((header, _)) = header {
            self.delay.record(self.clock.delay(now, header.time));
        }
        self.edge = SourceId(self.edge.0 + 1);
    }

    /// What FEEDBACK says of this lane.
    pub fn report(&mut self, lane: u32) -> LaneRepr<'_> {
        self.runs.clear();
        self.runs.extend(self.decoder.undecoded().take(MAX_RUNS));
        LaneRepr {
            lane,
            edge: self.decoder.edge(),
            end: self.decoder.end(),
            deficit: self.decoder.rank_deficit(),
            limit: self.decoder.limit(),
            undecoded: &self.runs,
        }
    }

    /// Where streams find their bytes.
    pub fn decoder(&self) -> &Decoder {
        &self.decoder
    }
}

/// Whether the decoder refused for a bound of its own.
fn is_our_bound(error: &DecodeError) -> bool {
    matches!(error, DecodeError::TooManyRows { .. } | DecodeError::TooManyColumns { .. })
}

/// What the peer did wrong when the decoder refuses.
fn fault(error: DecodeError) -> CloseCode {
    match error {
        DecodeError::BeyondLimit { .. } => CloseCode::FlowControl,
        _ => CloseCode::Protocol,
    }
}

/// Least one-way time of the last half to whole minute, in send time units, relative to the first one seen: the clocks of the two ends
/// need not agree, and drift is forgotten with the minute.
#[derive(Debug, Default)]
struct OneWayClock {
    reference: Option<u32>,
    least: i32,
    next_least: i32,
    turned: Time,
}

impl OneWayClock {
    /// One-way time of a symbol sent at `sent`, relative to the reference.
    fn relative(&self, now: Time, sent: u32) -> i32 {
        let offset = send_time(now).wrapping_sub(sent).wrapping_sub(self.reference.unwrap_or(0)) % SEND_TIME_MODULUS;
        // Sign of a 24-bit difference.
        ((offset << 8) as i32) >> 8
    }

    fn observe(&mut self, now: Time, sent: u32) {
        if self.reference.is_none() {
            self.reference = Some(send_time(now).wrapping_sub(sent) % SEND_TIME_MODULUS);
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
            let sent = |ms: u64| send_time(Time::from_millis(ms + skew));
            clock.observe(Time::from_millis(130), sent(100));
            clock.observe(Time::from_millis(141), sent(111));
            assert_eq!(clock.delay(Time::from_millis(200), sent(120)).as_millis(), 50, "{skew}");
        }
    }
}
