//! Datagrams without acknowledgements and without congestion control: at a constant rate, or the frames of a
//! video, whose sizes vary.
//!
//! Each datagram has a number and the bytes of its place in the flow, which both ends can compute. So a
//! changed byte shows. A frame is cut into datagrams of the record length, which leave together.

use core::time::Duration;
use std::collections::VecDeque;

use tidewire_proto::Time;

use super::agent::{Agent, Cargo, Sent};
use super::plan::Content;
use super::report::FlowReport;
use crate::link::Corruption;
use crate::load::fill;
use crate::pair::End;

/// Errors that are kept.
const MOST_ERRORS: usize = 8;

/// Both ends; see the module.
#[derive(Debug)]
pub(super) struct Datagrams {
    content: Content,
    start: Time,
    seed: u64,
    /// First byte of the next datagram.
    next: u64,
    /// Every datagram made so far.
    made: Vec<Made>,
    leaving: VecDeque<(u64, Vec<u8>)>,
    report: FlowReport,
    last: Time,
}

/// A datagram as its sender made it.
#[derive(Clone, Copy, Debug)]
struct Made {
    at: Time,
    /// Its first byte in the flow, and its length.
    offset: u64,
    bytes: u64,
    has_arrived: bool,
}

impl Datagrams {
    /// A flow that begins at `start`.
    pub(super) fn start(content: &Content, start: Duration, seed: u64) -> Self {
        let start = Time::ZERO + start;
        Self {
            content: content.clone(),
            start,
            seed,
            next: 0,
            made: Vec::new(),
            leaving: VecDeque::new(),
            report: FlowReport { kind: "udp", ..FlowReport::default() },
            last: start,
        }
    }

    /// When the next datagram is made; `None` after the last.
    fn due(&self) -> Option<Time> {
        if self.content.bytes().is_some_and(|bytes| self.next >= bytes) {
            return None;
        }
        let at = match &self.content {
            Content::Video { video, .. } => video.trace.time_of(self.next)?,
            content => content.made(self.made.len() as u64),
        };
        Some(self.start + at)
    }

    /// Length of the next datagram.
    fn length(&self) -> u64 {
        let end = match &self.content {
            Content::Video { video, .. } => {
                let at = video.trace.time_of(self.next).unwrap_or_default();
                video.trace.bytes_until(at)
            }
            content => content.bytes().unwrap_or(u64::MAX),
        };
        self.content.record().min(end.saturating_sub(self.next)).max(1)
    }

    fn contents(&self, offset: u64, bytes: u64) -> Vec<u8> {
        let mut contents = vec![0; usize::try_from(bytes).unwrap_or_default()];
        fill(self.seed, 0, offset, &mut contents);
        contents
    }

    /// Compares what arrived with what was sent.
    fn check(&mut self, number: u64, bytes: &[u8], is_damaged: bool) -> Option<Made> {
        let index = usize::try_from(number).ok()?;
        let made = self.made.get_mut(index)?;
        if core::mem::replace(&mut made.has_arrived, true) {
            return None;
        }
        let made = *made;
        if is_damaged {
            self.report.damaged += 1;
        } else if bytes != self.contents(made.offset, made.bytes) && self.report.errors.len() < MOST_ERRORS {
            self.report.errors.push(format!("datagram {number} is not the one that was sent"));
        }
        Some(made)
    }
}

impl Agent for Datagrams {
    fn next_moment(&self) -> Option<Time> {
        self.due()
    }

    fn run(&mut self, now: Time) {
        while let Some(at) = self.due().filter(|&due| due <= now) {
            let (offset, bytes) = (self.next, self.length());
            self.leaving.push_back((self.made.len() as u64, self.contents(offset, bytes)));
            self.made.push(Made { at, offset, bytes, has_arrived: false });
            self.next += bytes;
        }
    }

    fn poll_departure(&mut self) -> Option<Sent> {
        let (number, bytes) = self.leaving.pop_front()?;
        let len = bytes.len();
        Some(Sent { from: End::Near, len, supports_marks: false, cargo: Cargo::Datagram { number, bytes } })
    }

    fn hand(&mut self, now: Time, _: End, cargo: Cargo, _: bool, damage: &[Corruption]) {
        let Cargo::Datagram { number, mut bytes } = cargo else { return };
        damage.iter().for_each(|damage| damage.apply(&mut bytes));
        if let Some(made) = self.check(number, &bytes, !damage.is_empty()) {
            self.report.bytes += made.bytes;
            self.report.latencies.add(now.since(made.at));
            self.last = now;
        }
    }

    fn is_over(&self) -> bool {
        self.due().is_none() && self.content.bytes() == Some(self.report.bytes)
    }

    fn outcome(&mut self, now: Time) -> FlowReport {
        let ended = if self.due().is_none() { self.last } else { now };
        FlowReport {
            whole: self.content.bytes().map(|bytes| bytes == self.report.bytes),
            seconds: ended.since(self.start).as_secs_f64(),
            packets: self.made.len() as u64,
            ..self.report.clone()
        }
    }
}
