//! The blocks that `icm` may have to answer: what is known of each, and what it waits for.

use core::ops::Range;
use std::collections::{BTreeSet, VecDeque};

use tidewire_codec::SourceId;

use super::Trigger;
use crate::redundancy::known::Known;
use crate::redundancy::{Closed, CodingContext, GenerationRow, HasSpan, Repair, Report};

/// A closed block that the peer may be unable to decode.
///
/// It has news ([`OpenBlocks`]) from the moment when it is closed until it was looked at with all its source
/// symbols settled, and whenever the fate of one of its packets becomes known or an answer is not all sent.
/// If it has no news, [`Waits`] says what else can make it necessary to look at it.
#[derive(Debug)]
pub(super) struct Open {
    pub closed: Closed,
    pub known: Known,
    /// Proactive repairs whose fate is known.
    pub repairs_settled: u16,
    /// Key of the next repair.
    key: u16,
    /// What is still to be sent: source symbols, then repairs.
    pub resend: VecDeque<SourceId>,
    repairs: u16,
    pub belief: Belief,
}

/// Whether the receiver can decode a block, as far as the sender knows. A receiver that only peels decodes
/// less than one that eliminates, and the sender does not know which of them the peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Belief {
    Undecoded,
    /// A receiver that eliminates can. The number is that of the newest report when a slot was free since.
    Decoded(Option<u64>),
}

/// What a block without news waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// All its packets are settled, and its trigger is not true yet.
    Trigger,
    /// Packets of it are in flight. A silence ends the wait.
    Unsettled,
    /// It is decoded, as far as the sender knows. A report can say that it is not.
    Believed,
}

/// First symbols of the blocks that wait, by what they wait for.
#[derive(Debug, Default)]
pub(super) struct Waits([BTreeSet<SourceId>; 3]);

impl Waits {
    pub(super) fn of(&mut self, wait: Wait) -> &mut BTreeSet<SourceId> {
        &mut self.0[wait as usize]
    }

    pub(super) fn first(&self, wait: Wait) -> Option<SourceId> {
        self.0[wait as usize].first().copied()
    }

    pub(super) fn remove(&mut self, first: SourceId) {
        for blocks in &mut self.0 {
            blocks.remove(&first);
        }
    }
}

impl HasSpan for Open {
    fn span(&self) -> Range<SourceId> {
        self.closed.span()
    }
}

impl Open {
    pub(super) fn new(closed: &Closed, known: Known) -> Self {
        Self {
            closed: *closed,
            known,
            repairs_settled: 0,
            key: closed.repairs,
            resend: VecDeque::new(),
            repairs: 0,
            belief: Belief::Undecoded,
        }
    }

    pub(super) fn end(&self) -> SourceId {
        self.span().end
    }

    /// Whether a report that came after the sender believed the block decoded says that it is not.
    pub(super) fn is_disproved(&mut self, report: &Report) -> bool {
        let Belief::Decoded(since) = &mut self.belief else { return false };
        // The block is still in the list, so this report does not say that it is decoded.
        *since.get_or_insert(report.serial) < report.serial && self.end() <= report.end
    }

    /// Whether the fates of all its packets are known. Proactive repairs that were never sent, because the
    /// path takes only shorter packets now, are no longer expected after a round trip of silence. Nor are
    /// retransmissions then: the lane probes a silent path with the block's oldest symbol more often than
    /// once in a round trip, so that one is always in flight.
    pub(super) fn is_settled(&self, cx: &CodingContext<'_>, is_silent: bool) -> bool {
        let are_sent = self.repairs_settled >= self.closed.repairs || is_silent;
        let flying = || {
            let singles = if is_silent { cx.in_flight.singles(self.span()).all() } else { 0 };
            cx.in_flight.within(self.span()).all() - singles
        };
        self.end() <= cx.settled && are_sent && flying() == 0
    }

    /// Number of packets of the block that may still arrive.
    fn outstanding(&self, cx: &CodingContext<'_>) -> u64 {
        let flying = cx.in_flight.within(self.span());
        // Proactive repairs that are in flight or not sent yet.
        let repairs = u64::from(self.closed.repairs.saturating_sub(self.repairs_settled)).max(flying.proactive);
        let sources = self.end().0.saturating_sub(cx.settled.0.max(self.closed.first.0));
        sources + repairs + flying.answers + self.resend.len() as u64
    }

    /// A lost source symbol to send again although packets of the block are in flight: those cannot be
    /// enough.
    pub(super) fn too_few(&self, cx: &CodingContext<'_>) -> Option<Repair> {
        if self.known.packets() + self.outstanding(cx) >= self.closed.count.into() {
            return None;
        }
        let settled = (self.closed.first.0..self.end().0.min(cx.settled.0)).map(SourceId);
        let lost =
            |id: &SourceId| !self.known.is_known((id.0 - self.closed.first.0) as u16) && !cx.in_flight.has_single(*id);
        settled.into_iter().find(lost).map(Repair::Resend)
    }

    /// Plans the answer to this settled block and returns its first packet. None if all symbols that it lacks
    /// are in flight again.
    pub(super) fn answer(&mut self, trigger: Trigger, cx: &CodingContext<'_>) -> Option<Repair> {
        let Closed { first, count, .. } = self.closed;
        let lacking = self.known.lacking().into_iter().map(|place| first.plus(place.into()));
        let lacking: Vec<_> = lacking.filter(|&id| !cx.in_flight.has_single(id)).collect();
        if lacking.is_empty() {
            return None;
        }
        let missing = u16::try_from(lacking.len()).unwrap_or(u16::MAX);
        // At a loss rate near 1, (5) gives many times the block. The next answer follows in a round trip.
        self.repairs = trigger.compensation(count, missing, &cx.path.loss).min(count);
        self.resend.extend(lacking);
        self.next()
    }

    /// The next packet of its answer.
    pub(super) fn next(&mut self) -> Option<Repair> {
        while let Some(id) = self.resend.pop_front() {
            // Repairs may have revealed it in the meantime.
            if !self.known.is_known((id.0 - self.closed.first.0) as u16) {
                return Some(Repair::Resend(id));
            }
        }
        self.repairs = self.repairs.checked_sub(1)?;
        let Closed { first, count, code, .. } = self.closed;
        let row = GenerationRow { code, key: self.key };
        code.check(tidewire_codec::RepairId { first, count, key: self.key }).ok()?;
        self.key = self.key.checked_add(1)?;
        Some(Repair::Coded { first, count, row: Some(row), on_feedback: true })
    }
}
