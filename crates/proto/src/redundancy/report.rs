//! The newest report of the receiver about one lane, in the form that policies read.
//!
//! The lane fills it from FEEDBACK. Policies and the lane read it.

use core::iter::once;
use core::ops::Range;

use tidewire_codec::SourceId;

/// Maximum number of runs of undecoded ids in one FEEDBACK (docs/wire.md section 5).
pub(crate) const MAX_RUNS: usize = 32;
/// Maximum number of regions that FEEDBACK can report beyond these runs.
pub(crate) const MAX_REGIONS: usize = 63;

/// The newest report of the receiver about the lane.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The receiver has decoded all lower ids.
    pub edge: SourceId,
    /// One past the highest id that `undecoded` covers.
    pub end: SourceId,
    /// Number of independent symbols that the receiver needs to decode all ids below `end`.
    pub deficit: u64,
    /// Runs of undecoded ids, from the edge upwards, at most 32.
    pub undecoded: Vec<Range<SourceId>>,
    /// Deficits beyond `end`, used when there are more undecoded runs than FEEDBACK can name. Each entry is a
    /// region and the number of independent symbols it needs once all lower ids are decoded. The regions are
    /// adjacent and start at `end`.
    pub regions: Vec<(Range<SourceId>, u64)>,
    /// Number of reports received so far.
    pub serial: u64,
}

impl Report {
    /// Number of undecoded ids below `limit`, among those that the report names.
    pub fn undecoded_below(&self, limit: SourceId) -> u64 {
        self.undecoded.iter().map(|run| run.end.0.min(limit.0).saturating_sub(run.start.0)).sum()
    }

    /// Deficit of the ids below `settled`: the part that does not depend on source packets in flight.
    ///
    /// This is a lower bound, because all rows of the receiver are credited to the settled part.
    pub fn settled_deficit(&self, settled: SourceId) -> u64 {
        let below = self.undecoded_below(settled);
        self.deficit.saturating_sub(self.undecoded_below(self.end) - below).min(below)
    }

    /// Reserves memory for the maximum number of regions.
    pub(crate) fn reserve_regions(&mut self) {
        self.regions.reserve(MAX_REGIONS.saturating_sub(self.regions.len()));
    }

    /// Whether the report says that the symbol is decoded.
    pub fn is_decoded(&self, id: SourceId) -> bool {
        if id < self.edge {
            return true;
        }
        let run = self.undecoded.partition_point(|run| run.end <= id);
        id < self.end && self.undecoded.get(run).is_none_or(|run| run.start > id)
    }

    /// The runs of ids that the report says are decoded, in ascending order. Some are empty.
    pub(crate) fn decoded(&self) -> impl Iterator<Item = Range<SourceId>> {
        // All between two undecoded runs is decoded.
        let starts = once(SourceId(0)).chain(self.undecoded.iter().map(|run| run.end));
        let ends = self.undecoded.iter().map(|run| run.start).chain(once(self.end.max(self.edge)));
        starts.zip(ends).map(|(start, end)| start..end.max(start))
    }

    /// Whether the report says that the symbol is decoded, or that it will be once all lower ids are.
    pub(crate) fn lacks_nothing_of(&self, id: SourceId) -> bool {
        let region = self.regions.partition_point(|(region, _)| region.end <= id);
        let is_full = self.regions.get(region).is_some_and(|(region, deficit)| region.contains(&id) && *deficit == 0);
        is_full || self.is_decoded(id)
    }

    /// Whether the report says that all these symbols are decoded.
    pub fn is_all_decoded(&self, ids: Range<SourceId>) -> bool {
        if ids.end <= self.edge {
            return true;
        }
        let run = self.undecoded.partition_point(|run| run.end <= ids.start);
        ids.end <= self.end && self.undecoded.get(run).is_none_or(|run| run.start >= ids.end)
    }

    /// One past the highest id that the receiver has seen.
    pub fn seen(&self) -> SourceId {
        self.regions.last().map_or(self.end, |(region, _)| region.end)
    }

    /// The lowest undecoded id, if it is below `limit`.
    pub fn first_gap(&self, limit: SourceId) -> Option<SourceId> {
        self.undecoded.first().map(|run| run.start).filter(|&id| id < limit)
    }
}
