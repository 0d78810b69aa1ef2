//! Writes FEEDBACK. [`FeedbackRepr`] borrows the receiver's state and writes as much of it as there is room
//! for.
//!
//! The connection fills one from its own state whenever feedback is due. The fixed parts (flags, the newest
//! range, ECN, credit, each lane's edge and deficit) are written completely or not at all. The older ranges
//! and the undecoded runs share the remaining room, since the next FEEDBACK can repeat them.

use core::ops::{Range, RangeInclusive};
use core::time::Duration;

use tidewire_codec::SourceId;

use super::bytes::{Full, VARINT_MAX, Writer, varint_len};
use super::feedback::{EcnCounts, MAX_LANES, MAX_LIMITS, MAX_RANGES, MAX_REGIONS, MAX_RUNS, NOTHING, flag};
use super::frame::write_feedback_type;
use super::time::TIME_UNIT;

/// Maximum number of ranges written. It is one less than the wire allows, so that their count always takes
/// one byte.
const RANGES_WRITTEN: usize = MAX_RANGES as usize - 1;
/// Bytes of the arrival.
const ARRIVAL_LEN: usize = 3;

/// Stream credit to report.
#[derive(Clone, Copy, Debug)]
pub struct StreamCreditRepr<'a> {
    /// Number of streams that the peer may have opened in all.
    pub streams: u64,
    /// `(stream, absolute byte limit)`. Only the first `MAX_LIMITS` are written.
    pub limits: &'a [(u64, u64)],
}

/// Report of one lane. The fields are those of [`super::LaneReport`].
#[derive(Clone, Copy, Debug)]
pub struct LaneRepr<'a> {
    /// The lane.
    pub lane: u32,
    /// All lower ids are decoded or skipped.
    pub edge: SourceId,
    /// One past the highest id that `undecoded` covers; at least `edge`.
    pub end: SourceId,
    /// Independent symbols needed to decode all ids below `end`; at most `end - edge`.
    pub deficit: u64,
    /// Lower ids are accepted; at least `edge`.
    pub limit: SourceId,
    /// Runs of undecoded ids, lowest first, none empty, disjoint, not adjacent, all in `edge .. end`. The
    /// lowest runs that fit are written, at most `MAX_RUNS`.
    pub undecoded: &'a [Range<SourceId>],
    /// Adjacent regions of ids from `end` up, none empty, with the deficit of each, at most its length. If
    /// all runs fit, the lowest regions that fit are written, at most `MAX_REGIONS`.
    pub regions: &'a [(Range<SourceId>, u64)],
}

/// A FEEDBACK to write.
#[derive(Clone, Copy, Debug)]
pub struct FeedbackRepr<'a> {
    /// Packet numbers received: newest range first, disjoint, not adjacent; empty if nothing was received.
    /// The newest ranges that fit are written, at most one less than `MAX_RANGES`.
    pub received: &'a [RangeInclusive<u64>],
    /// Time since the packet with the highest number arrived, written in units of 16 us.
    pub delay: Duration,
    /// When that packet arrived, on our clock, in units of 16 us modulo [`super::TIME_MODULUS`]. It is
    /// written if anything was received.
    pub arrival: Option<u32>,
    /// ECN marks received, if the socket reports them.
    pub ecn: Option<EcnCounts>,
    /// Stream credit, if it changed or was not acknowledged yet.
    pub stream_credit: Option<StreamCreditRepr<'a>>,
    /// Lane reports. Only the first `MAX_LANES` are written.
    pub lanes: &'a [LaneRepr<'a>],
    /// Whether it carries credit that was not acknowledged yet.
    pub elicits: bool,
}

impl FeedbackRepr<'_> {
    /// Writes the frame, all or nothing. Only ranges, runs and regions are cut to the available room.
    pub fn emit(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        let spare = w.remaining().checked_sub(self.least_len()).ok_or(Full)?;
        // The runs get the first half of the room. A repair for the right symbols saves a round trip. A
        // missing range costs nothing until the peer's loss detection needs it.
        let mut for_runs = spare / 2;
        let mut shown = [(0_usize, 0_usize); MAX_LANES as usize];
        for ((runs, _), lane) in shown.iter_mut().zip(self.lanes) {
            *runs = fitting(RunGaps::new(lane).take(MAX_RUNS as usize), &mut for_runs);
        }
        for ((runs, regions), lane) in
            shown.iter_mut().zip(self.lanes).filter(|((runs, _), lane)| *runs == lane.undecoded.len())
        {
            debug_assert!(*runs <= MAX_RUNS as usize, "{runs} runs");
            *regions = fitting(lane.region_pairs().take(MAX_REGIONS as usize), &mut for_runs);
        }
        let mut for_ranges = spare.saturating_sub((spare / 2).saturating_sub(for_runs));
        let gaps = RangeGaps::new(self.received).skip(1).take(RANGES_WRITTEN.saturating_sub(1));
        let ranges = fitting(gaps, &mut for_ranges).saturating_add(usize::from(!self.received.is_empty()));
        w.atomically(|w| {
            self.write_received(w, ranges)?;
            self.write_counts(w)?;
            self.write_lanes(w, &shown)
        })
    }

    fn flags(&self) -> u8 {
        let bit = |present: bool, bit: u8| if present { bit } else { 0 };
        bit(self.ecn.is_some(), flag::ECN)
            | bit(self.stream_credit.is_some(), flag::STREAM_CREDIT)
            | bit(!self.lanes.is_empty(), flag::LANES)
            | bit(self.elicits, flag::ELICITS)
            | bit(self.arrival().is_some(), flag::ARRIVAL)
    }

    fn arrival(&self) -> Option<u32> {
        self.arrival.filter(|_| !self.received.is_empty())
    }

    fn delay_units(&self) -> u64 {
        let units = self.delay.as_nanos().checked_div(TIME_UNIT.into()).unwrap_or_default();
        u64::try_from(units).unwrap_or(VARINT_MAX).min(VARINT_MAX)
    }

    fn largest(&self) -> u64 {
        self.received.first().map_or(NOTHING, |newest| *newest.end())
    }

    /// Bytes with the newest range only and without runs. [`Self::emit`] succeeds with this much room.
    pub(crate) fn least_len(&self) -> usize {
        // Type, flags, number of ranges.
        let mut len = 3_usize.saturating_add(if self.arrival().is_some() { ARRIVAL_LEN } else { 0 });
        let mut add = |value: u64| len = len.saturating_add(varint_len(value));
        add(self.largest());
        add(self.delay_units());
        RangeGaps::new(self.received).take(1).for_each(|(_, length)| add(length));
        if let Some(ecn) = self.ecn {
            [ecn.ect0, ecn.ect1, ecn.ce].into_iter().for_each(&mut add);
        }
        if let Some(credit) = self.stream_credit {
            add(credit.streams);
            add(credit.limits().len() as u64);
            credit.limits().iter().flat_map(|(stream, limit)| [*stream, *limit]).for_each(&mut add);
        }
        if !self.lanes.is_empty() {
            add(self.lanes().len() as u64);
            // The last two bytes are the numbers of runs and of regions, at most 32 and 63.
            self.lanes().iter().flat_map(|lane| lane.fixed().into_iter().chain([0, 0])).for_each(&mut add);
        }
        len
    }

    fn lanes(&self) -> &[LaneRepr<'_>] {
        self.lanes.get(..MAX_LANES as usize).unwrap_or(self.lanes)
    }

    fn write_received(&self, w: &mut Writer<'_>, ranges: usize) -> Result<(), Full> {
        write_feedback_type(w)?;
        w.u8(self.flags())?;
        w.varint(self.largest())?;
        w.varint(self.delay_units())?;
        w.varint(ranges as u64)?;
        for (index, (gap, length)) in RangeGaps::new(self.received).take(ranges).enumerate() {
            if index > 0 {
                w.varint(gap)?;
            }
            w.varint(length)?;
        }
        self.arrival().map_or(Ok(()), |arrival| w.u24(arrival))
    }

    fn write_counts(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        if let Some(ecn) = self.ecn {
            w.varint(ecn.ect0)?;
            w.varint(ecn.ect1)?;
            w.varint(ecn.ce)?;
        }
        if let Some(credit) = self.stream_credit {
            w.varint(credit.streams)?;
            w.varint(credit.limits().len() as u64)?;
            for (stream, limit) in credit.limits() {
                w.varint(*stream)?;
                w.varint(*limit)?;
            }
        }
        Ok(())
    }

    fn write_lanes(&self, w: &mut Writer<'_>, shown: &[(usize, usize)]) -> Result<(), Full> {
        if self.lanes.is_empty() {
            return Ok(());
        }
        w.varint(self.lanes().len() as u64)?;
        for (lane, (runs, regions)) in self.lanes().iter().zip(shown) {
            for value in lane.cut_to(*runs).fixed() {
                w.varint(value)?;
            }
            w.varint(*runs as u64)?;
            for (gap, length) in RunGaps::new(lane).take(*runs) {
                w.varint(gap)?;
                w.varint(length)?;
            }
            w.varint(*regions as u64)?;
            for (length, deficit) in lane.region_pairs().take(*regions) {
                w.varint(length)?;
                w.varint(deficit)?;
            }
        }
        Ok(())
    }
}

impl StreamCreditRepr<'_> {
    fn limits(&self) -> &[(u64, u64)] {
        self.limits.get(..MAX_LIMITS as usize).unwrap_or(self.limits)
    }
}

impl LaneRepr<'_> {
    /// The same report with only the first `shown` runs. It then ends at the last of them, or the peer would
    /// take the later ids for decoded.
    fn cut_to(self, shown: usize) -> Self {
        let whole = shown == self.undecoded.len();
        let named = self.undecoded.get(..shown).and_then(|runs| runs.last()).map_or(self.edge, |run| run.end);
        Self { end: if whole { self.end } else { named }, ..self }
    }

    /// Length and deficit of each region, in their wire form.
    fn region_pairs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.regions.iter().map(|(ids, deficit)| (ids.end.0.saturating_sub(ids.start.0), *deficit))
    }

    /// Lane, edge, seen, deficit and credit, in their wire form.
    fn fixed(&self) -> [u64; 5] {
        debug_assert!(self.edge <= self.end && self.edge <= self.limit, "lane {} reported wrongly", self.lane);
        let seen = self.end.0.saturating_sub(self.edge.0);
        let credit = self.limit.0.saturating_sub(self.edge.0);
        [self.lane.into(), self.edge.0, seen, self.deficit.min(seen), credit]
    }
}

/// Number of leading pairs that fit into `budget` bytes. Subtracts their size from the budget.
fn fitting(pairs: impl Iterator<Item = (u64, u64)>, budget: &mut usize) -> usize {
    let mut count = 0_usize;
    for (gap, length) in pairs {
        let Some(rest) = budget.checked_sub(varint_len(gap).saturating_add(varint_len(length))) else { break };
        *budget = rest;
        count = count.saturating_add(1);
    }
    count
}

/// The `(gap, length)` of received ranges in their wire form. The gap of the newest range has no meaning.
struct RangeGaps<'a> {
    ranges: core::slice::Iter<'a, RangeInclusive<u64>>,
    smallest: u64,
}

impl<'a> RangeGaps<'a> {
    fn new(ranges: &'a [RangeInclusive<u64>]) -> Self {
        Self { ranges: ranges.iter(), smallest: VARINT_MAX }
    }
}

impl Iterator for RangeGaps<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<Self::Item> {
        let range = self.ranges.next()?;
        let gap = self.smallest.saturating_sub(*range.end()).saturating_sub(2);
        self.smallest = *range.start();
        Some((gap, range.end().saturating_sub(*range.start())))
    }
}

/// The `(gap, length)` of a lane's undecoded runs in their wire form.
struct RunGaps<'a> {
    runs: core::slice::Iter<'a, Range<SourceId>>,
    /// The lowest id at which the next run may begin.
    from: u64,
}

impl<'a> RunGaps<'a> {
    fn new(lane: &LaneRepr<'a>) -> Self {
        Self { runs: lane.undecoded.iter(), from: lane.edge.0 }
    }
}

impl Iterator for RunGaps<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<Self::Item> {
        let run = self.runs.next()?;
        debug_assert!(self.from <= run.start.0 && run.start < run.end, "runs out of order: {run:?}");
        let gap = run.start.0.saturating_sub(self.from);
        self.from = run.end.0.saturating_add(1);
        Some((gap, run.end.0.saturating_sub(run.start.0).saturating_sub(1)))
    }
}
