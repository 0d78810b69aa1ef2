//! Messages and their time: when it is over, the base passes their symbols.
//!
//! A deadline is when a message is to be at the receiver; what would be sent too late to be there by then is not sent. The base only moves
//! up, so messages are given up in the order in which they were written. The receiver learns of the base from every symbol; where none is
//! sent, the connection says it alone until a packet that did arrived.

use tidewire_codec::SourceId;

use super::{LaneSender, Source};
use crate::Time;

/// A message that the peer may lack.
#[derive(Debug)]
pub(super) struct Deadline {
    first: SourceId,
    /// Behind its last symbol.
    end: SourceId,
    at: Time,
}

/// What was given up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Expired {
    pub messages: u64,
    pub symbols: u64,
}

impl LaneSender {
    /// Takes a message that is to be at the receiver by `deadline`. Returns false when there is no room.
    pub fn send_message(&mut self, message: &[u8], in_order: bool, deadline: Time, symbol_len: usize) -> bool {
        let Some((first, end)) = self.write_message(message, in_order, symbol_len) else { return false };
        self.deadlines.push_back(Deadline { first, end, at: deadline });
        true
    }

    /// Gives up messages whose time is over at `arrival`, when what is sent now would be at the receiver.
    pub fn expire(&mut self, arrival: Time) {
        let mut over = false;
        while let Some(front) = self.deadlines.front() {
            let known = front.end <= self.base;
            // The peer counts the base against its credit.
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
            // A symbol that a later message shares stays for its sake.
            let floor = self.deadlines.front().map_or(self.window.ids().end, |next| next.first);
            self.give_up_before(floor.min(self.peer_limit));
        }
    }

    /// When [`Self::expire`] next has something to do: an arrival time.
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

    /// What was given up is not lacking, whatever the peer says that has not heard of it.
    pub(super) fn forget_given_up(&mut self) {
        let report = &mut self.report;
        report.undecoded.retain_mut(|run| {
            run.start = run.start.max(self.given_up);
            run.start < run.end
        });
        report.deficit = report.deficit.min(report.undecoded_below(report.end));
    }

    /// Whether the peer may wait for symbols that will not come, as far as it told.
    pub fn is_base_news(&self) -> bool {
        self.given_up > self.report.edge
    }

    /// ... and no packet is under way that says so.
    pub fn owes_base(&self) -> bool {
        self.is_base_news() && self.said_in.is_none()
    }

    /// Packet `number` said the base.
    pub fn on_base_said(&mut self, number: u64) {
        if self.is_base_news() {
            self.said_in.get_or_insert(number);
        }
    }

    /// The packet `number` was lost.
    pub fn on_packet_lost(&mut self, number: u64) {
        if self.said_in == Some(number) {
            self.said_in = None;
        }
    }
}
