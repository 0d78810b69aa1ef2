//! Deadlines of messages. When a deadline has passed, the base moves past the symbols of the message.
//!
//! A deadline is the time by which a message should be at the receiver. A message that would arrive later is
//! not sent. The base only moves up, so messages are given up in the order in which they were written. Every
//! symbol tells the receiver the base. If no symbol is sent, the connection sends the base alone, until a
//! packet with it was received.

use tidewire_codec::SourceId;

use super::{LaneSender, Source};
use crate::Time;

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
    /// Queues a message that should be at the receiver by `deadline`. Returns false if there is no room.
    pub fn send_message(&mut self, message: &[u8], in_order: bool, deadline: Time, symbol_len: usize) -> bool {
        let Some((first, end)) = self.write_message(message, in_order, symbol_len) else { return false };
        self.deadlines.push_back(Deadline { first, end, at: deadline });
        true
    }

    /// Gives up messages whose deadline is before `arrival`, the time at which a packet sent now would
    /// arrive.
    pub fn expire(&mut self, arrival: Time) {
        let mut over = false;
        while let Some(front) = self.deadlines.front() {
            let known = front.end <= self.base;
            // The base counts against the peer's credit, so it must not exceed the limit.
            if !known && (front.at > arrival || front.end > self.peer_limit) {
                break;
            }
            over |= !known;
            self.expired.messages += u64::from(!known);
            self.deadlines.pop_front();
        }
        if over {
            if self.deadlines.is_empty() {
                self.close();
            }
            // A symbol that also carries the beginning of a later message is kept.
            let floor = self.deadlines.front().map_or(self.window.ids().end, |next| next.first);
            self.give_up_before(floor.min(self.peer_limit));
        }
    }

    /// The arrival time for which [`Self::expire`] next has something to do.
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.front().filter(|front| front.end <= self.peer_limit).map(|front| front.at)
    }

    fn give_up_before(&mut self, floor: SourceId) {
        if floor <= self.base {
            return;
        }
        let sent = self.sent.min(floor);
        for id in (self.base.0..sent.0).map(SourceId) {
            let arrived = self.index(id).is_some_and(|index| self.sources[index] == Source::Arrived);
            self.expired.symbols += u64::from(!arrived && !self.is_decoded(id));
        }
        self.expired.symbols += floor.0 - sent.0;
        let out = self.sources.len().min((floor.0 - self.base.0) as usize);
        self.sources.drain(..out);
        self.base = floor;
        self.sent = self.sent.max(floor);
        self.given_up = floor;
        self.said_in = None;
        self.forget_given_up();
        self.advance();
    }

    /// Removes given-up symbols from the report: a peer that does not know of the new base still reports them
    /// as lacking.
    pub(super) fn forget_given_up(&mut self) {
        let report = &mut self.report;
        report.undecoded.retain_mut(|run| {
            run.start = run.start.max(self.given_up);
            run.start < run.end
        });
        report.deficit = report.deficit.min(report.undecoded_below(report.end));
    }

    /// Whether the peer, by its last report, may still wait for symbols that were given up.
    pub fn is_base_news(&self) -> bool {
        self.given_up > self.report.edge
    }

    /// Whether the peer must be told the base: it may still wait for given-up symbols, and no packet in
    /// flight tells it.
    pub fn owes_base(&self) -> bool {
        self.is_base_news() && self.said_in.is_none()
    }

    /// Records that packet `number` carries the base.
    pub fn on_base_said(&mut self, number: u64) {
        if self.is_base_news() {
            self.said_in.get_or_insert(number);
        }
    }

    /// Called when packet `number` was lost.
    pub fn on_packet_lost(&mut self, number: u64) {
        if self.said_in == Some(number) {
            self.said_in = None;
        }
    }
}
