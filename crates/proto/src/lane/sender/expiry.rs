//! Deadlines of messages. When a deadline has passed, the base moves past the symbols of the message.
//!
//! A deadline is the time by which a message should be at the receiver. A message that would arrive later is
//! not sent. The base only moves up, so messages are given up in the order in which they were written. Every
//! symbol tells the receiver the base. If no symbol is sent, the connection sends the base alone, until a
//! packet with it was received.

use core::time::Duration;

use tidewire_codec::SourceId;

use super::{LaneSender, Source};
use crate::Time;

/// For this long after a message that is delivered in order, the lane is planned for such messages. Chosen:
/// speech and video pause for less.
const IN_ORDER_FOR: Duration = Duration::from_secs(1);

/// A message that the peer may not have received.
#[derive(Debug)]
pub(super) struct Deadline {
    first: SourceId,
    /// One past its last symbol.
    end: SourceId,
    at: Time,
}

/// Counts of messages and symbols that were given up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Expired {
    pub messages: u64,
    pub symbols: u64,
}

impl LaneSender {
    /// Queues a message that should be at the receiver at `deadline`. Returns false if there is no room.
    pub(crate) fn send_message(
        &mut self,
        message: &[u8],
        in_order: bool,
        important: bool,
        deadline: Time,
        now: Time,
        symbol_len: usize,
    ) -> bool {
        let Some((first, end)) = self.write_message(message, in_order, symbol_len) else { return false };
        self.messages.deadlines.push_back(Deadline { first, end, at: deadline });
        if in_order {
            self.messages.last_in_order = Some(now);
        }
        if important {
            self.mark_important(first, end);
        }
        true
    }

    fn mark_important(&mut self, first: SourceId, end: SourceId) {
        match self.messages.important.back_mut() {
            Some(run) if first <= run.end => run.end = end,
            _ => self.messages.important.push_back(first..end),
        }
    }

    /// Whether the peer may lack a symbol of an important message that was sent.
    pub(crate) fn has_important(&self) -> bool {
        self.messages.important.front().is_some_and(|run| run.start < self.ids.sent)
    }

    /// Forgets important messages that the peer has, or that were given up.
    pub(super) fn forget_important(&mut self) {
        while self.messages.important.front().is_some_and(|run| run.end <= self.ids.base) {
            self.messages.important.pop_front();
        }
    }

    /// Whether a message that is delivered in order was written in the last second. Others like it are then
    /// expected to follow.
    pub(crate) fn is_in_order(&self, now: Time) -> bool {
        self.messages.last_in_order.is_some_and(|last| now.since(last) < IN_ORDER_FOR)
    }

    /// Gives up messages whose deadline is before `arrival`, the time at which a packet sent now would
    /// arrive.
    pub(crate) fn expire(&mut self, arrival: Time) {
        let mut over = false;
        while let Some(front) = self.messages.deadlines.front() {
            let known = front.end <= self.ids.base;
            // The base counts against the peer's credit, so it must not exceed the limit.
            if !known && (front.at > arrival || front.end > self.ids.peer_limit) {
                break;
            }
            over |= !known;
            self.messages.expired.messages += u64::from(!known);
            self.messages.deadlines.pop_front();
        }
        if over {
            if self.messages.deadlines.is_empty() {
                self.close();
            }
            // A symbol that also carries the beginning of a later message is kept.
            let floor = self.messages.deadlines.front().map_or(self.window.ids().end, |next| next.first);
            self.give_up_before(floor.min(self.ids.peer_limit));
        }
    }

    /// The arrival time for which [`Self::expire`] next has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.messages.deadlines.front().filter(|front| front.end <= self.ids.peer_limit).map(|front| front.at)
    }

    fn give_up_before(&mut self, floor: SourceId) {
        if floor <= self.ids.base {
            return;
        }
        let sent = self.ids.sent.min(floor);
        for id in (self.ids.base.0..sent.0).map(SourceId) {
            let arrived = self.index(id).is_some_and(|index| self.sources[index] == Source::Arrived);
            self.messages.expired.symbols += u64::from(!arrived && !self.is_decoded(id));
        }
        self.messages.expired.symbols += floor.0 - sent.0;
        let out = self.sources.len().min((floor.0 - self.ids.base.0) as usize);
        self.sources.drain(..out);
        self.ids.base = floor;
        self.ids.sent = self.ids.sent.max(floor);
        self.messages.given_up = floor;
        self.messages.said_in = None;
        self.forget_given_up();
        self.advance();
    }

    /// Removes given-up symbols from the report: a peer that does not know of the new base still reports them
    /// as lacking.
    pub(super) fn forget_given_up(&mut self) {
        let report = &mut self.reported.report;
        report.undecoded.retain_mut(|run| {
            run.start = run.start.max(self.messages.given_up);
            run.start < run.end
        });
        report.deficit = report.deficit.min(report.undecoded_below(report.end));
    }

    /// Whether the peer, by its last report, may still wait for symbols that were given up.
    pub(crate) fn is_base_news(&self) -> bool {
        self.messages.given_up > self.reported.report.edge
    }

    /// Whether the peer must be told the base: it may still wait for given-up symbols, and no packet in
    /// flight tells it.
    pub(crate) fn owes_base(&self) -> bool {
        self.is_base_news() && self.messages.said_in.is_none()
    }

    /// Records that packet `number` carries the base.
    pub(crate) fn on_base_said(&mut self, number: u64) {
        if self.is_base_news() {
            self.messages.said_in.get_or_insert(number);
        }
    }

    /// Called when packet `number` was lost.
    pub(crate) fn on_packet_lost(&mut self, number: u64) {
        if self.messages.said_in == Some(number) {
            self.messages.said_in = None;
        }
    }
}
