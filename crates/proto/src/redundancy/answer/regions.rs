//! Answers for deficits beyond the runs that FEEDBACK can name, region by region.
//!
//! FEEDBACK names the 32 lowest runs. At 40 % loss these cover 130 symbols. A path can have thousands of
//! symbols in flight. If only these runs were answered, the edge would move by 130 symbols per round trip. So
//! all regions are answered in the same round trip. A repair mixes symbols of one region only, so the rows of
//! one region do not wait for the answers of another. If a report covers less than the path holds, lost
//! symbols are retransmitted instead ([`resend_unseen`](super::resend_unseen)).

use core::ops::Range;
use std::collections::VecDeque;

use tidewire_codec::SourceId;

use crate::redundancy::{CodingContext, MAX_REGIONS, MAX_RUNS, Repair};

/// Repairs still to be sent for the regions of the newest report. They are counted once per report, because
/// thousands of packets can be in flight.
#[derive(Debug, Default)]
pub(crate) struct RegionAnswers {
    /// Serial number of the last report counted, and the settled id at that time.
    looked: Option<(u64, SourceId)>,
    owed: VecDeque<(Range<SourceId>, u64)>,
}

impl RegionAnswers {
    /// Returns the next repair for a region whose first transmissions are settled. `allow(missing)` returns
    /// how many repairs should be in flight for a region that lacks `missing` symbols.
    pub(crate) fn next(&mut self, cx: &CodingContext<'_>, allow: impl Fn(u64) -> u64) -> Option<Repair> {
        // Memory is reserved only when the window is large enough for so many runs. An idle connection needs
        // none.
        if self.owed.capacity() == 0 && cx.sent.0.saturating_sub(cx.base.0) >= 2 * MAX_RUNS as u64 {
            self.owed.reserve(MAX_REGIONS);
        }
        let look = (cx.report.serial, cx.settled);
        if self.looked.replace(look) != Some(look) {
            self.count(cx, allow);
        }
        let (region, left) = self.owed.front_mut()?;
        let first = region.start.max(cx.base);
        let count = region.end.0.saturating_sub(first.0).min(cx.limits.max_span.into()) as u16;
        *left -= 1;
        if *left == 0 || count == 0 {
            self.owed.pop_front();
        }
        (count > 0).then_some(Repair::Coded { first, count, row: None, on_feedback: true })
    }

    fn count(&mut self, cx: &CodingContext<'_>, allow: impl Fn(u64) -> u64) {
        self.owed.clear();
        let regions = &cx.report.regions;
        let settled = regions.partition_point(|(region, _)| region.end <= cx.settled);
        let Some(regions) = regions.get(..settled).filter(|regions| regions.iter().any(|(_, deficit)| *deficit > 0))
        else {
            return;
        };
        // A peer may report regions longer than the span of a repair.
        let most = u64::from(cx.limits.max_span);
        self.owed.extend(regions.iter().map(|(region, deficit)| (region.clone(), allow((*deficit).min(most)))));
        for (region, owed) in self.owed.iter_mut().filter(|(_, owed)| *owed > 0) {
            *owed = owed.saturating_sub(cx.in_flight.within(region.clone()).answers);
        }
        self.owed.retain(|(_, owed)| *owed > 0);
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::redundancy::{InFlight, RepairInFlight, Report, context as any_context};

    fn context<'a>(report: &'a Report, in_flight: &[RepairInFlight], settled: u64) -> CodingContext<'a> {
        let mut cx = any_context(report, 0.4, 1.7, true);
        (cx.settled, cx.sent, cx.in_flight) = (SourceId(settled), SourceId(2_000), InFlight::of(in_flight));
        cx.path.rtt = Duration::from_millis(300);
        cx
    }

    /// The first symbols of all answers that are due.
    fn answers(regions: &mut RegionAnswers, cx: &CodingContext<'_>) -> Vec<u64> {
        let next = || match regions.next(cx, |missing| missing) {
            Some(Repair::Coded { first, on_feedback: true, .. }) => Some(first.0),
            None => None,
            other => panic!("{other:?}"),
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn every_settled_region_is_answered_at_once_and_what_is_under_way_counts() {
        let region = |a, b, deficit| (SourceId(a)..SourceId(b), deficit);
        let list = vec![region(130, 256, 2), region(256, 512, 0), region(512, 768, 3), region(768, 1_024, 4)];
        let report = Report { end: SourceId(130), regions: list, serial: 1, ..Report::default() };
        let mut regions = RegionAnswers::default();
        let cx = context(&report, &[], 1_000);
        assert_eq!(answers(&mut regions, &cx), [130, 130, 512, 512, 512], "the last region is not settled yet");
        assert_eq!(answers(&mut regions, &cx), [0; 0], "each report is answered once");
        let answer = |first, on_feedback| {
            let first = SourceId(first);
            RepairInFlight { packet: 1, first, count: 256, key: 0, on_feedback }
        };
        let in_flight = [answer(0, true), answer(140, true), answer(512, true), answer(600, false)];
        let newer = Report { serial: 2, ..report.clone() };
        assert_eq!(answers(&mut regions, &context(&newer, &in_flight, 1_000)), [130, 512, 512]);
    }

    #[test]
    fn a_region_is_answered_by_spans_that_the_peer_decodes_whatever_it_says() {
        let report = Report { regions: vec![(SourceId(0)..SourceId(1_500), 1_500)], serial: 1, ..Report::default() };
        let mut regions = RegionAnswers::default();
        let cx = context(&report, &[], 1_600);
        let Some(Repair::Coded { count, .. }) = regions.next(&cx, |missing| missing) else { panic!("no answer") };
        assert_eq!((count, answers(&mut regions, &cx).len()), (256, 255));
    }
}
