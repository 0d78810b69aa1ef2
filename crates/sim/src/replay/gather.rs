//! Gathers the flow of one connection from its recording.
//!
//! The sender never hears when a symbol was delivered. It knows which packets a FEEDBACK acknowledges, the
//! round trip of the newest of them, and up to which symbol the peer has all. So a packet that arrived took
//! the round trip of its FEEDBACK's newest packet; a symbol whose packet was lost became known when that
//! newest packet arrived, because the peer tells at once what a repair completed; and a symbol was delivered
//! in order when it and all before it were known. Memory: about 50 bytes for each packet, and 20 for each
//! symbol.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use tidewire_proto::profile::Profile;
use tidewire_proto::stats::DelayHistogram;
use tidewire_proto::trace::{Choices, PacketContent, SymbolOrigin, TraceEvent};

use super::back::Arrivals;
use super::{Allowed, Recorded, Sent, fates};

/// Lanes that are followed: all that a connection may have.
const LANES: u32 = 16;
/// IP and UDP headers, which the sizes of events include.
pub(super) const HEADERS: u64 = 28;
/// Smallest datagram that every path carries (docs/wire.md section 1): a flow below it sent no full one.
const SMALLEST: u16 = 1_200;
/// A queue longer than this and than a quarter of the least round trip drops packets: so the protocol's
/// controllers tell congestion from other losses.
const LONG_QUEUE: Duration = Duration::from_millis(10);
/// An end that reads this many times as many bytes as it writes only receives. Chosen: far more than requests
/// are beside answers, and far less than data is beside control.
const READS: u64 = 100;
/// Longest flow that is replayed. Chosen: longer than any recording of 1 GiB that has data all the time.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);
/// Symbols that wait for a report. Chosen: more than any ring holds, so only a hostile file has more.
const MOST_WAITING: usize = 1 << 20;

/// A packet whose fate may be known.
#[derive(Clone, Copy, Debug)]
struct Packet {
    number: u64,
    at: Duration,
    bytes: u32,
    content: PacketContent,
    /// Whether the source symbol that it carries is followed.
    followed: bool,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoReplay {
    /// No connection was made.
    #[error("the recording has no connection")]
    NoConnection,
    /// The recorded end wrote nothing.
    #[error("this end wrote nothing: give the recording of the end that sends")]
    NothingWritten,
    /// The recorded end wrote hardly anything beside what it read: the flow went in the other direction.
    #[error("this end wrote {written} bytes and read {read}: give the recording of the end that sends")]
    Receiver {
        /// Bytes that the application wrote.
        written: u64,
        /// Bytes that it read.
        read: u64,
    },
    /// No FEEDBACK was recorded, so no fate is known.
    #[error("the recording ends before the first FEEDBACK, so no fate of a packet is known")]
    NoFeedback,
    /// A time is further than a year from the beginning of the connection, so the file is not genuine.
    #[error("an event is said to be {} days after its connection was made", .at.as_secs() / 86_400)]
    Time {
        /// The time since the connection was made.
        at: Duration,
    },
}

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
    back: Arrivals,
    writes: Vec<(Duration, u64)>,
    message_bytes: u64,
    /// In-order delays in microseconds, the round trip included.
    delays: Vec<u32>,
    received: DelayHistogram,
    /// Bytes that the application read.
    read: u64,
    /// The latest time.
    latest: Duration,
}

impl Gather {
    /// Bytes that the application wrote so far.
    pub fn written(&self) -> u64 {
        self.writes.iter().fold(0, |sum, write| sum.saturating_add(write.1))
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
        self.latest = self.latest.max(at);
        match *event {
            TraceEvent::Agreed(choices) => self.choices = Some(choices),
            TraceEvent::PacketSent { number, bytes, content } => self.on_sent(at, number, bytes, content),
            TraceEvent::PacketAcked { number, .. } => self.on_acked(number),
            TraceEvent::PacketLost { number, .. } => {
                if let Some(index) = self.place(number) {
                    self.packets[index].lost = true;
                }
            }
            TraceEvent::PacketReceived { number, .. } => self.back.add(at, number),
            TraceEvent::FeedbackReceived { delay, .. } => {
                self.report = Report { at: at.saturating_sub(delay), newest: None };
            }
            TraceEvent::Rate { window, pacing_bps, queueing, least_rtt, .. } => {
                let is_congested = queueing > (least_rtt / 4).max(LONG_QUEUE);
                self.allowed.push(Allowed { at, window, pacing_bps, is_congested });
                self.on_round();
            }
            TraceEvent::LaneReported { lane, edge, .. } => self.on_reported(lane.0, edge.0),
            TraceEvent::StreamWritten { bytes, .. } if bytes > 0 => self.writes.push((at, bytes)),
            TraceEvent::MessageWritten { bytes, .. } => {
                self.writes.push((at, bytes.into()));
                self.message_bytes += u64::from(bytes);
            }
            TraceEvent::StreamRead { bytes, .. } => self.read = self.read.saturating_add(bytes),
            TraceEvent::MessageRead { bytes } => self.read = self.read.saturating_add(bytes.into()),
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
        let mut followed = false;
        if let PacketContent::Source { lane, id, again: false } = content
            && lane.0 < LANES
        {
            let lane_state = self.lanes.entry(lane.0).or_default();
            let next = lane_state.first.saturating_add(lane_state.symbols.len() as u64);
            if id.0 == next && lane_state.symbols.len() < MOST_WAITING {
                lane_state.symbols.push_back(Symbol { sent: at, round: None });
                followed = true;
            }
        }
        self.packets.push(Packet { number, at, bytes, content, followed, lost: false, acked: false });
    }

    fn on_acked(&mut self, number: u64) {
        let Some(index) = self.place(number) else { return };
        self.packets[index].acked = true;
        self.report.newest = self.report.newest.max(Some(index));
        // The round trip of the newest is known when the FEEDBACK has been read; until then, it is the own.
        let Packet { at, followed: true, content: PacketContent::Source { lane, id, .. }, .. } = self.packets[index]
        else {
            return;
        };
        let round = self.report.at.saturating_sub(at);
        if let Some(symbol) = self.lanes.get_mut(&lane.0).and_then(|lane| lane.get_mut(id.0)) {
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
        if app_bytes < self.read / READS {
            return Err(NoReplay::Receiver { written: app_bytes, read: self.read });
        }
        if self.latest > LONGEST {
            return Err(NoReplay::Time { at: self.latest });
        }
        let least_rtt = self.rounds.iter().map(|round| round.1).min().ok_or(NoReplay::NoFeedback)?;
        let mut delay = DelayHistogram::default();
        let delays = self.delays.iter().map(|&micros| Duration::from_micros(micros.into()));
        delays.for_each(|each| delay.record(each.saturating_sub(least_rtt)));
        let packets: Vec<_> = self.packets.iter().map(Packet::recorded).collect();
        let known = packets.iter().filter_map(|packet| Some(Sent { at: packet.at, lost: packet.lost? }));
        let known: Vec<_> = known.collect();
        let largest = self.packets.iter().filter(|packet| packet.acked).map(|packet| u64::from(packet.bytes)).max();
        let largest = u16::try_from(largest.unwrap_or(0).saturating_sub(HEADERS)).unwrap_or(u16::MAX);
        let mut queueing: Vec<_> =
            self.rounds.iter().map(|&(at, round)| (at, round.saturating_sub(least_rtt))).collect();
        // FEEDBACK can be overtaken, and a file can say anything.
        queueing.sort_by_key(|&(at, _)| at);
        let (mut writes, mut allowed) = (self.writes, self.allowed);
        writes.sort_by_key(|&(at, _)| at);
        allowed.sort_by_key(|step| step.at);
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
            lost: (known.iter().filter(|sent| sent.lost).count() as u64, known.len() as u64),
            delay,
            message_bytes: self.message_bytes,
            queueing,
            writes,
            packets,
            known,
            back: self.back,
            allowed,
            largest: largest.max(SMALLEST),
        })
    }
}

impl Packet {
    /// A probe of the packet size can be too large for the path, so its loss says nothing.
    fn recorded(&self) -> fates::Packet {
        let is_known = (self.lost || self.acked) && self.content != PacketContent::SizeProbe;
        fates::Packet { at: self.at, content: self.content, lost: is_known.then_some(!self.acked) }
    }
}

impl Lane {
    fn get_mut(&mut self, id: u64) -> Option<&mut Symbol> {
        let index = usize::try_from(id.checked_sub(self.first)?).ok()?;
        self.symbols.get_mut(index)
    }
}
