//! Gathers the flow of one connection from its recording.
//!
//! The sender never hears when a symbol was delivered. It knows which packets a FEEDBACK acknowledges, the
//! round trip of the newest of them, and up to which symbol the peer has all. So a packet that arrived took
//! the round trip of its FEEDBACK's newest packet; a symbol whose packet was lost became known when that
//! newest packet arrived, because the peer tells at once what a repair completed; and a symbol was delivered
//! in order when it and all before it were known. Memory: about 50 bytes for each packet, and 20 for each
//! symbol.

use core::fmt;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use tidewire_proto::profile::Profile;
use tidewire_proto::stats::DelayHistogram;
use tidewire_proto::trace::{Choices, PacketContent, SymbolOrigin, TraceEvent};

use super::{Allowed, Recorded, Sent};

/// Lanes that are followed: all that a connection may have.
const LANES: u32 = 16;
/// IP and UDP headers, which the sizes of events include.
const HEADERS: u64 = 28;
/// Smallest datagram that every path carries (docs/wire.md section 1): a flow below it sent no full one.
const SMALLEST: u16 = 1_200;
/// Symbols that wait for a report. Chosen: more than any ring holds, so only a hostile file has more.
const MOST_WAITING: usize = 1 << 20;

/// A packet whose fate may be known.
#[derive(Clone, Copy, Debug)]
struct Packet {
    number: u64,
    at: Duration,
    bytes: u32,
    symbol: Option<(u32, u64)>,
    is_probe: bool,
    lost: bool,
    acked: bool,
}

/// A source symbol that the peer has not reported.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    sent: Duration,
    /// Time until it arrived and its FEEDBACK came back, without the peer's wait.
    round: Option<Duration>,
}

/// The symbols of a lane from its reported edge on.
#[derive(Debug, Default)]
struct Lane {
    first: u64,
    symbols: VecDeque<Symbol>,
    /// When the symbol before was delivered, by the clock of its FEEDBACK.
    delivered: Duration,
}

/// The FEEDBACK that is being handled.
#[derive(Clone, Copy, Debug, Default)]
struct Report {
    /// When it came, less the peer's wait: when the newest packet's answer could have come.
    at: Duration,
    /// The newest packet that it acknowledges, by its place.
    newest: Option<usize>,
}

/// Why a recording cannot be run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoReplay {
    /// No connection was made.
    NoConnection,
    /// The recorded end wrote nothing.
    NothingWritten,
    /// No FEEDBACK was recorded, so no fate is known.
    NoFeedback,
}

impl fmt::Display for NoReplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoConnection => "the recording has no connection",
            Self::NothingWritten => "this end wrote nothing: give the recording of the end that sends",
            Self::NoFeedback => "the recording ends before the first FEEDBACK, so no fate of a packet is known",
        })
    }
}

impl core::error::Error for NoReplay {}

/// Gathers the flow of one connection: pass all of its events to [`Self::take`], in their order.
#[derive(Debug, Default)]
pub struct Gather {
    began: Option<Duration>,
    choices: Option<Choices>,
    packets: Vec<Packet>,
    lanes: BTreeMap<u32, Lane>,
    report: Report,
    /// Time of sending and round trip of the newest packet of each FEEDBACK.
    rounds: Vec<(Duration, Duration)>,
    allowed: Vec<Allowed>,
    back: Vec<Sent>,
    back_next: u64,
    writes: Vec<(Duration, u64)>,
    message_bytes: u64,
    /// In-order delays in microseconds, the round trip included.
    delays: Vec<u32>,
    received: DelayHistogram,
}

impl Gather {
    /// Bytes that the application wrote so far.
    pub fn written(&self) -> u64 {
        self.writes.iter().map(|write| write.1).sum()
    }

    /// In-order delays of what this end received.
    pub fn received(&self) -> &DelayHistogram {
        &self.received
    }

    /// Takes an event of the connection.
    pub fn take(&mut self, at: Duration, event: &TraceEvent) {
        if let TraceEvent::Connected { .. } = event {
            self.began.get_or_insert(at);
        }
        let Some(began) = self.began else { return };
        let at = at.saturating_sub(began);
        match *event {
            TraceEvent::Agreed(choices) => self.choices = Some(choices),
            TraceEvent::PacketSent { number, bytes, content } => self.on_sent(at, number, bytes, content),
            TraceEvent::PacketAcked { number, .. } => self.on_acked(number),
            TraceEvent::PacketLost { number } => {
                if let Some(index) = self.place(number) {
                    self.packets[index].lost = true;
                }
            }
            TraceEvent::PacketReceived { number, .. } => self.on_received(at, number),
            TraceEvent::FeedbackReceived { delay, .. } => {
                self.report = Report { at: at.saturating_sub(delay), newest: None };
            }
            TraceEvent::Rate { window, pacing_bps, .. } => {
                self.allowed.push(Allowed { at, window, pacing_bps });
                self.on_round();
            }
            TraceEvent::LaneReported { lane, edge, .. } => self.on_reported(lane.0, edge.0),
            TraceEvent::StreamWritten { bytes, .. } if bytes > 0 => self.writes.push((at, bytes)),
            TraceEvent::MessageWritten { bytes, .. } => {
                self.writes.push((at, bytes.into()));
                self.message_bytes += u64::from(bytes);
            }
            TraceEvent::SymbolPassed { origin, delay, .. } if origin != SymbolOrigin::GivenUp => {
                self.received.record(delay);
            }
            _ => {}
        }
    }

    /// The place of a packet. Their numbers rise.
    fn place(&self, number: u64) -> Option<usize> {
        self.packets.binary_search_by_key(&number, |packet| packet.number).ok()
    }

    fn on_sent(&mut self, at: Duration, number: u64, bytes: u32, content: PacketContent) {
        // In a recording that was not tampered with, this never happens.
        if self.packets.last().is_some_and(|last| last.number >= number) {
            return;
        }
        let mut symbol = None;
        if let PacketContent::Source { lane, id, again: false } = content
            && lane.0 < LANES
        {
            let lane_state = self.lanes.entry(lane.0).or_default();
            let next = lane_state.first.saturating_add(lane_state.symbols.len() as u64);
            if id.0 == next && lane_state.symbols.len() < MOST_WAITING {
                lane_state.symbols.push_back(Symbol { sent: at, round: None });
                symbol = Some((lane.0, id.0));
            }
        }
        let is_probe = content == PacketContent::SizeProbe;
        self.packets.push(Packet { number, at, bytes, symbol, is_probe, lost: false, acked: false });
    }

    fn on_acked(&mut self, number: u64) {
        let Some(index) = self.place(number) else { return };
        self.packets[index].acked = true;
        self.report.newest = self.report.newest.max(Some(index));
        // The round trip of the newest is known when the FEEDBACK has been read; until then, it is the own.
        let Packet { at, symbol: Some((lane, id)), .. } = self.packets[index] else { return };
        let round = self.report.at.saturating_sub(at);
        if let Some(symbol) = self.lanes.get_mut(&lane).and_then(|lane| lane.get_mut(id)) {
            symbol.round = Some(round);
        }
    }

    /// All acknowledgements of a FEEDBACK were told.
    fn on_round(&mut self) {
        let Some(newest) = self.report.newest else { return };
        let newest = self.packets[newest];
        // A packet that was declared lost before says nothing about the path now.
        if !newest.lost {
            self.rounds.push((newest.at, self.report.at.saturating_sub(newest.at)));
        }
    }

    /// The peer has all symbols of the lane below `edge`.
    fn on_reported(&mut self, lane: u32, edge: u64) {
        let newest = self.rounds.last().map(|round| round.1);
        let Some(lane) = self.lanes.get_mut(&lane) else { return };
        while lane.first < edge
            && let Some(symbol) = lane.symbols.pop_front()
        {
            lane.first += 1;
            // The round trip of a packet is at most that of its FEEDBACK's newest and at most its own wait.
            let known = match (symbol.round, newest) {
                (Some(round), Some(newest)) => symbol.sent + round.min(newest),
                (Some(round), None) => symbol.sent + round,
                (None, _) => self.report.at,
            };
            lane.delivered = lane.delivered.max(known);
            let delay = lane.delivered.saturating_sub(symbol.sent);
            self.delays.push(u32::try_from(delay.as_micros()).unwrap_or(u32::MAX));
        }
    }

    /// Notes which packets of the peer are missing before this one.
    fn on_received(&mut self, at: Duration, number: u64) {
        let missing = number.saturating_sub(self.back_next).min(1_000);
        if number >= self.back_next && self.back_next > 0 {
            self.back.extend((0..missing).map(|_| Sent { at, lost: true }));
        }
        self.back.push(Sent { at, lost: false });
        self.back_next = self.back_next.max(number.saturating_add(1));
    }

    /// The flow.
    ///
    /// # Errors
    /// See [`NoReplay`].
    pub fn finish(self) -> Result<Recorded, NoReplay> {
        self.began.ok_or(NoReplay::NoConnection)?;
        let app_bytes = self.written();
        if app_bytes == 0 {
            return Err(NoReplay::NothingWritten);
        }
        let least_rtt = self.rounds.iter().map(|round| round.1).min().ok_or(NoReplay::NoFeedback)?;
        let mut delay = DelayHistogram::default();
        let delays = self.delays.iter().map(|&micros| Duration::from_micros(micros.into()));
        delays.for_each(|each| delay.record(each.saturating_sub(least_rtt)));
        let settled = self.packets.iter().filter(|packet| !packet.is_probe && (packet.lost || packet.acked));
        let mut fates: Vec<_> =
            settled.map(|packet| Sent { at: packet.at, lost: packet.lost && !packet.acked }).collect();
        let largest = self.packets.iter().filter(|packet| packet.acked).map(|packet| u64::from(packet.bytes)).max();
        let largest = u16::try_from(largest.unwrap_or(0).saturating_sub(HEADERS)).unwrap_or(u16::MAX);
        let mut queueing: Vec<_> =
            self.rounds.iter().map(|&(at, round)| (at, round.saturating_sub(least_rtt))).collect();
        // FEEDBACK can be overtaken, and a file can say anything.
        queueing.sort_by_key(|&(at, _)| at);
        let (mut writes, mut allowed, mut back) = (self.writes, self.allowed, self.back);
        writes.sort_by_key(|&(at, _)| at);
        allowed.sort_by_key(|step| step.at);
        back.sort_by_key(|sent| sent.at);
        fates.sort_by_key(|sent| sent.at);
        Ok(Recorded {
            choices: self.choices.unwrap_or(Choices {
                profile: Profile::default(),
                latency: None,
                deliver: 0.99,
                max_overhead: 0.5,
                max_rate: None,
            }),
            least_rtt,
            app_bytes,
            wire_bytes: self.packets.iter().map(|packet| u64::from(packet.bytes)).sum(),
            lost: (fates.iter().filter(|sent| sent.lost).count() as u64, fates.len() as u64),
            delay,
            message_bytes: self.message_bytes,
            queueing,
            writes,
            fates,
            back,
            allowed,
            largest: largest.max(SMALLEST),
        })
    }
}

impl Lane {
    fn get_mut(&mut self, id: u64) -> Option<&mut Symbol> {
        let index = usize::try_from(id.checked_sub(self.first)?).ok()?;
        self.symbols.get_mut(index)
    }
}
