//! What the receiver last said of a lane, as a policy sees it.
//!
//! The lane fills it from FEEDBACK; policies and the lane itself read it.

use core::ops::Range;

use tidewire_codec::SourceId;

/// Runs of undecoded ids that FEEDBACK can name (wire.md section 5).
pub(crate) const MAX_RUNS: usize = 32;
/// Regions beyond them that it can tell of.
pub(crate) const MAX_REGIONS: usize = 63;

/// What the receiver last said of the lane.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// All ids below are decoded.
    pub edge: SourceId,
    /// One past the highest id that `undecoded` speaks of.
    pub end: SourceId,
    /// Independent symbols lacking for all below `end`.
    pub deficit: u64,
    /// Undecoded runs from the edge up, at most 32.
    pub undecoded: Vec<Range<SourceId>>,
    /// What was seen beyond `end`, where more runs are lacking than could be named: adjacent regions from
    /// there up, and how many independent symbols are lacking in each once all below it is decoded.
    pub regions: Vec<(Range<SourceId>, u64)>,
    /// How many reports there were.
    pub serial: u64,
}

impl Report {
    /// Undecoded ids below `limit`, as far as they were named.
    pub fn undecoded_below(&self, limit: SourceId) -> u64 {
        self.undecoded.iter().map(|run| run.end.0.min(limit.0).saturating_sub(run.start.0)).sum()
    }

    /// Deficit of the ids below `settled`: what is lacking whatever becomes of the packets still under way.
    ///
    /// The receiver's rows are credited to the settled part, so this is a lower bound.
    pub fn settled_deficit(&self, settled: SourceId) -> u64 {
        let below = self.undecoded_below(settled);
        self.deficit.saturating_sub(self.undecoded_below(self.end) - below).min(below)
    }

    /// Takes the memory for as many regions as can be told of.
    pub(crate) fn reserve_regions(&mut self) {
        self.regions.reserve(MAX_REGIONS.saturating_sub(self.regions.len()));
    }

    /// One past the highest id seen.
    pub fn seen(&self) -> SourceId {
        self.regions.last().map_or(self.end, |(region, _)| region.end)
    }

    /// The lowest undecoded id, if it is below `limit`.
    pub fn first_gap(&self, limit: SourceId) -> Option<SourceId> {
        self.undecoded.first().map(|run| run.start).filter(|&id| id < limit)
    }
}
