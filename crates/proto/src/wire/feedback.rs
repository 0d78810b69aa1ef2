//! FEEDBACK (docs/wire.md section 5): the packets received, the symbols decoded, the deficits, and the
//! credit.
//!
//! [`Feedback`] is the view of a received frame. `parse` validates the whole frame, so the iterators cannot
//! fail. [`FeedbackRepr`] holds the receiver's report, and `emit` writes as much of it as the packet has room
//! for. The iterators are the parser: `parse` runs each one to its end and keeps a copy of its initial state.

use core::ops::{Range, RangeInclusive};
use core::time::Duration;

use tidewire_codec::SourceId;

use super::bytes::{Reader, VARINT_MAX};
use super::frame::{Malformed, number};
use super::time::TIME_UNIT;

/// Maximum number of packet number ranges in one FEEDBACK.
pub(crate) const MAX_RANGES: u64 = 64;
/// Maximum number of stream limits in one FEEDBACK.
pub(crate) const MAX_LIMITS: u64 = 64;
/// Maximum number of lanes in one FEEDBACK.
pub(crate) const MAX_LANES: u64 = 16;
/// Maximum number of undecoded runs of one lane.
pub(crate) const MAX_RUNS: u64 = 32;
/// Maximum number of regions beyond the undecoded runs of one lane.
pub(crate) const MAX_REGIONS: u64 = 63;
/// Value of `largest` when nothing was received.
pub(super) const NOTHING: u64 = VARINT_MAX;

pub(super) mod flag {
    pub(crate) const ECN: u8 = 1;
    pub(crate) const STREAM_CREDIT: u8 = 2;
    pub(crate) const LANES: u8 = 4;
    pub(crate) const ELICITS: u8 = 8;
    pub(crate) const ARRIVAL: u8 = 16;
    pub(crate) const ALL: u8 = 31;
}

/// Number of packets received with each ECN mark, since the path began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EcnCounts {
    /// Marked ECT(0).
    pub ect0: u64,
    /// Marked ECT(1).
    pub ect1: u64,
    /// Marked CE.
    pub ce: u64,
}

/// A received FEEDBACK.
#[derive(Clone, Copy, Debug)]
pub struct Feedback<'a> {
    body: &'a [u8],
    elicits: bool,
    largest: Option<u64>,
    delay: u64,
    received: Received<'a>,
    arrival: Option<u32>,
    ecn: Option<EcnCounts>,
    streams: Option<(u64, StreamLimits<'a>)>,
    lanes: Lanes<'a>,
}

impl PartialEq for Feedback<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.body == other.body
    }
}

impl<'a> Feedback<'a> {
    pub(super) fn parse(r: &mut Reader<'a>) -> Result<Self, Malformed> {
        let start = r.rest();
        let flags = r.u8()?;
        if flags & !flag::ALL != 0 {
            return Err(Malformed::Field("flags"));
        }
        let largest = r.varint()?;
        let delay = r.varint()?;
        let count = r.varint()?;
        if count > MAX_RANGES || (count == 0) != (largest == NOTHING) {
            return Err(Malformed::Field("ranges"));
        }
        let received = Received { reader: *r, left: count, newest: true, next: largest };
        let mut walk = received;
        while walk.step()?.is_some() {}
        *r = walk.reader;
        let arrival = match flags & flag::ARRIVAL {
            0 => None,
            _ if count == 0 => return Err(Malformed::Field("arrival")),
            _ => Some(r.u24()?),
        };
        let ecn = match flags & flag::ECN {
            0 => None,
            _ => Some(EcnCounts { ect0: r.varint()?, ect1: r.varint()?, ce: r.varint()? }),
        };
        let streams = match flags & flag::STREAM_CREDIT {
            0 => None,
            _ => Some((r.varint()?, StreamLimits::parse(r)?)),
        };
        let lanes = match flags & flag::LANES {
            0 => Lanes { reader: Reader::new(&[]), left: 0 },
            _ => Lanes::parse(r)?,
        };
        let len = start.len().saturating_sub(r.remaining());
        Ok(Self {
            body: start.get(..len).unwrap_or_default(),
            elicits: flags & flag::ELICITS != 0,
            largest: (count > 0).then_some(largest),
            delay,
            received,
            arrival,
            ecn,
            streams,
            lanes,
        })
    }

    /// The bytes of the frame after its type.
    pub(super) const fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The highest packet number received; `None` if nothing was received.
    pub const fn largest(&self) -> Option<u64> {
        self.largest
    }

    /// Time from the arrival of the packet with the highest number to the sending of this frame.
    pub const fn delay(&self) -> Duration {
        Duration::from_nanos(self.delay.saturating_mul(TIME_UNIT))
    }

    /// The packet numbers received, newest range first.
    pub const fn received(&self) -> Received<'a> {
        self.received
    }

    /// When the packet with the highest number arrived, on the peer's clock, in units of 16 us modulo
    /// [`super::TIME_MODULUS`], if the peer says so. The peer's clock has any offset, and may drift.
    pub const fn arrival(&self) -> Option<u32> {
        self.arrival
    }

    /// The ECN marks received, if the peer can see them.
    pub const fn ecn(&self) -> Option<EcnCounts> {
        self.ecn
    }

    /// Number of streams that we may have opened in all, and the streams with a new absolute limit.
    pub const fn stream_credit(&self) -> Option<(u64, StreamLimits<'a>)> {
        self.streams
    }

    /// The lanes that this frame reports.
    pub const fn lanes(&self) -> Lanes<'a> {
        self.lanes
    }

    /// Whether it carries credit that was not acknowledged yet, and therefore asks for an acknowledgement.
    pub const fn elicits(&self) -> bool {
        self.elicits
    }
}

/// Iterates over ranges of packet numbers received, newest first, disjoint and not adjacent.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    reader: Reader<'a>,
    left: u64,
    newest: bool,
    /// For the newest range: its largest number. For later ranges: the smallest number of the previous range.
    next: u64,
}

impl Received<'_> {
    fn step(&mut self) -> Result<Option<RangeInclusive<u64>>, Malformed> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        let largest = if self.newest {
            self.next
        } else {
            // RFC 9000 section 19.3.1: a gap of 0 leaves one number out. Without it the ranges would be one.
            let gap = self.reader.varint()?.saturating_add(2);
            self.next.checked_sub(gap).ok_or(Malformed::Field("gap"))?
        };
        let length = self.reader.varint()?;
        let smallest = largest.checked_sub(length).ok_or(Malformed::Field("length"))?;
        (self.left, self.newest, self.next) = (left, false, smallest);
        Ok(Some(smallest..=largest))
    }
}

impl Iterator for Received<'_> {
    type Item = RangeInclusive<u64>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().ok().flatten()
    }
}

/// Iterates over `(stream, limit)`, where the limit is the stream's absolute byte limit.
#[derive(Clone, Copy, Debug)]
pub struct StreamLimits<'a> {
    reader: Reader<'a>,
    left: u64,
}

impl<'a> StreamLimits<'a> {
    fn parse(r: &mut Reader<'a>) -> Result<Self, Malformed> {
        let left = r.varint()?;
        if left > MAX_LIMITS {
            return Err(Malformed::Field("streams"));
        }
        let limits = Self { reader: *r, left };
        let mut walk = limits;
        while walk.step()?.is_some() {}
        *r = walk.reader;
        Ok(limits)
    }

    fn step(&mut self) -> Result<Option<(u64, u64)>, Malformed> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        let item = (self.reader.varint()?, self.reader.varint()?);
        self.left = left;
        Ok(Some(item))
    }
}

impl Iterator for StreamLimits<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<Self::Item> {
        self.step().ok().flatten()
    }
}

/// The peer's report on one lane.
#[derive(Clone, Copy, Debug)]
pub struct LaneReport<'a> {
    /// The lane.
    pub lane: u32,
    /// All lower ids are decoded or skipped.
    pub edge: SourceId,
    /// One past the highest id that `undecoded` covers; at least `edge`. Without `regions`, that is the
    /// highest id seen in a source symbol or a span.
    pub end: SourceId,
    /// Independent symbols that the peer needs to decode all ids below `end`; at most `end - edge`.
    pub deficit: u64,
    /// The peer accepts lower ids; at least `edge`.
    pub limit: SourceId,
    /// Runs of undecoded ids, from the edge up, disjoint and not adjacent, all below `end`.
    pub undecoded: Runs<'a>,
    /// Deficits beyond `end`.
    pub regions: Regions<'a>,
}

/// Iterates over the lanes of a FEEDBACK.
#[derive(Clone, Copy, Debug)]
pub struct Lanes<'a> {
    reader: Reader<'a>,
    left: u64,
}

impl<'a> Lanes<'a> {
    fn parse(r: &mut Reader<'a>) -> Result<Self, Malformed> {
        let left = r.varint()?;
        if !(1..=MAX_LANES).contains(&left) {
            return Err(Malformed::Field("lanes"));
        }
        let lanes = Self { reader: *r, left };
        let mut walk = lanes;
        while walk.step()?.is_some() {}
        *r = walk.reader;
        Ok(lanes)
    }

    fn step(&mut self) -> Result<Option<LaneReport<'a>>, Malformed> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        let r = &mut self.reader;
        let lane = number(r, "lane")?;
        let edge = r.varint()?;
        let seen = r.varint()?;
        let deficit = r.varint()?;
        let credit = r.varint()?;
        // Each of them is at most 62 bits long, so the sums do not overflow.
        let end = edge.saturating_add(seen);
        let limit = edge.saturating_add(credit);
        if end > VARINT_MAX || deficit > seen || limit > VARINT_MAX {
            return Err(Malformed::Field("lane report"));
        }
        let count = r.varint()?;
        if count > MAX_RUNS {
            return Err(Malformed::Field("runs"));
        }
        let undecoded = Runs { reader: *r, left: count, lowest: true, next: edge, end };
        let mut walk = undecoded;
        while walk.step()?.is_some() {}
        *r = walk.reader;
        let count = r.varint()?;
        if count > MAX_REGIONS {
            return Err(Malformed::Field("regions"));
        }
        let regions = Regions { reader: *r, left: count, next: end };
        let mut walk = regions;
        while walk.step()?.is_some() {}
        *r = walk.reader;
        self.left = left;
        let (edge, end, limit) = (SourceId(edge), SourceId(end), SourceId(limit));
        Ok(Some(LaneReport { lane, edge, end, deficit, limit, undecoded, regions }))
    }
}

impl<'a> Iterator for Lanes<'a> {
    type Item = LaneReport<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().ok().flatten()
    }
}

/// Iterates over runs of undecoded source ids, lowest first.
#[derive(Clone, Copy, Debug)]
pub struct Runs<'a> {
    reader: Reader<'a>,
    left: u64,
    lowest: bool,
    /// One past the previous run, or the edge.
    next: u64,
    end: u64,
}

impl Runs<'_> {
    fn step(&mut self) -> Result<Option<Range<SourceId>>, Malformed> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        // At least one decoded id lies between two runs. Otherwise they would be one run.
        let least = u64::from(!self.lowest);
        let start = self.next.saturating_add(self.reader.varint()?).saturating_add(least);
        let end = start.saturating_add(self.reader.varint()?).saturating_add(1);
        if end > self.end {
            return Err(Malformed::Field("run"));
        }
        (self.left, self.lowest, self.next) = (left, false, end);
        Ok(Some(SourceId(start)..SourceId(end)))
    }
}

impl Iterator for Runs<'_> {
    type Item = Range<SourceId>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().ok().flatten()
    }
}

/// Iterates over adjacent regions of source ids, lowest first, each with its deficit: the independent symbols
/// that the peer needs in the region once everything below is decoded.
#[derive(Clone, Copy, Debug)]
pub struct Regions<'a> {
    reader: Reader<'a>,
    left: u64,
    /// First id of the next region.
    next: u64,
}

impl Regions<'_> {
    fn step(&mut self) -> Result<Option<(Range<SourceId>, u64)>, Malformed> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        let (length, deficit) = (self.reader.varint()?, self.reader.varint()?);
        let (start, end) = (self.next, self.next.saturating_add(length));
        if length == 0 || deficit > length || end > VARINT_MAX {
            return Err(Malformed::Field("region"));
        }
        (self.left, self.next) = (left, end);
        Ok(Some((SourceId(start)..SourceId(end), deficit)))
    }
}

impl Iterator for Regions<'_> {
    type Item = (Range<SourceId>, u64);

    fn next(&mut self) -> Option<Self::Item> {
        self.step().ok().flatten()
    }
}
