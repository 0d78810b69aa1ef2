//! Turns the events of a job into the frames of the channel: one state for each connection, a step ten times
//! a second.
//!
//! A running dashboard and the reader of a recording feed it. The memory for marks and the number of
//! connections are bounded: the oldest marks of the longest track go first, and so do connections that have
//! ended.

use std::collections::BTreeMap;
use std::time::Duration;

use tidewire::TraceEvent;
use tidewire_proto::connection::Side;

use super::channel::{self, Delays, Kind, Note, Opened};
use super::marks::Track;
use super::meter::Meter;
use crate::consumer::Observed;
use crate::words;

/// Time between two steps: 10 Hz.
pub const STEP: Duration = Duration::from_millis(100);
/// Most connections. Chosen: as many as the page keeps.
const MOST_CONNECTIONS: usize = 64;
/// Most marks of all connections that are kept for pages that open later. Chosen: 72 MB, more than five
/// minutes at 25 Mbit/s.
const MOST_MARKS: usize = 1 << 20;
/// The most characters of a peer's reason that are shown.
const MOST_REASON: usize = 200;

/// A connection of the job.
#[derive(Debug)]
struct Watched {
    id: u16,
    /// Stands before the address.
    prefix: String,
    /// `to` where this end opened the connection, `from` where the peer did.
    way: &'static str,
    peer: String,
    closed: Option<String>,
    meter: Meter,
}

impl Watched {
    fn opened(&self, to: &mut Vec<u8>) {
        let peer = format!("{}{} {}", self.prefix, self.way, self.peer);
        let opened = Opened { id: self.id, peer: &peer, closed: self.closed.as_deref() };
        channel::json(Kind::Connection, &opened, to);
    }
}

/// The state of all connections.
#[derive(Debug)]
pub struct Gatherer {
    /// By endpoint and handle: handles are unique within an endpoint.
    connections: BTreeMap<(u32, u64), Watched>,
    next_id: u16,
    stepped: Duration,
    /// How long marks wait for their fate.
    hold: Duration,
    /// Put before the name of each peer.
    prefix: String,
}

impl Gatherer {
    /// A gatherer without connections. Its ids begin at `first_id`; `prefix` stands before the names of
    /// peers; marks wait for their fate for `hold`.
    pub fn new(first_id: u16, prefix: String, hold: Duration) -> Self {
        Self { connections: BTreeMap::new(), next_id: first_id, stepped: Duration::ZERO, hold, prefix }
    }

    pub fn next_id(&self) -> u16 {
        self.next_id
    }

    /// Takes an event and appends the frames that follow at once. Connections beyond [`MOST_CONNECTIONS`] at
    /// a time are not shown.
    pub fn take(&mut self, observed: &Observed, to: &mut Vec<u8>) {
        let Some(watched) = self.watched((observed.endpoint, observed.connection.0), &observed.event) else { return };
        match &observed.event {
            TraceEvent::Connected { remote, side } => {
                watched.way = if *side == Side::Initiator { "to" } else { "from" };
                watched.peer = remote.to_string();
                watched.opened(to);
            }
            TraceEvent::Moved { remote } => {
                watched.peer = remote.to_string();
                watched.opened(to);
            }
            TraceEvent::Closed(reason) => {
                watched.closed = Some(reason.to_string().chars().take(MOST_REASON).collect());
                watched.opened(to);
            }
            event => {
                if let Some((before, plan)) = watched.meter.take(observed.at, event) {
                    let words = words::words(before.as_ref(), &plan);
                    let t = observed.at.as_secs_f64();
                    let note = Note { c: watched.id, t, words: &words, feasible: plan.nearest.is_none() };
                    channel::json(Kind::Note, &note, to);
                }
            }
        }
    }

    /// The connection of an event. A new one takes the place of one that has ended, if the table is full.
    fn watched(&mut self, key: (u32, u64), event: &TraceEvent) -> Option<&mut Watched> {
        if !self.connections.contains_key(&key) {
            if matches!(event, TraceEvent::Closed(_)) {
                return None;
            }
            if self.connections.len() >= MOST_CONNECTIONS {
                let ended = self.connections.iter().find(|(_, watched)| watched.closed.is_some());
                let ended = ended.map(|(key, _)| *key)?;
                self.connections.remove(&ended);
            }
            // The address follows with the event that the handshake is complete.
            let (way, peer) = ("connecting", String::new());
            let prefix = self.prefix.clone();
            let watched = Watched { id: self.next_id, prefix, way, peer, closed: None, meter: Meter::default() };
            self.next_id = self.next_id.wrapping_add(1);
            self.connections.insert(key, watched);
        }
        self.connections.get_mut(&key)
    }

    /// Appends samples to `lasting` and news of marks to `marks`, if a step is over at `now`. Returns whether
    /// it is.
    pub fn step(&mut self, now: Duration, lasting: &mut Vec<u8>, marks: &mut Vec<u8>) -> bool {
        if now < self.stepped + STEP {
            return false;
        }
        self.stepped = now;
        for watched in self.connections.values_mut() {
            let id = watched.id;
            watched.meter.step(id, now, |sample| channel::json(Kind::Sample, sample, lasting));
            for (track, number) in watched.meter.tracks.iter_mut().zip(0..) {
                let news = track.news(now, self.hold);
                channel::marks(news.iter().map(|mark| mark.record(id, number)), marks);
            }
        }
        self.forget();
        true
    }

    /// The last step, at `now`: marks do not wait for their fate any longer.
    pub fn finish(&mut self, now: Duration, lasting: &mut Vec<u8>, marks: &mut Vec<u8>) {
        self.hold = Duration::ZERO;
        self.step(now.max(self.stepped + STEP), lasting, marks);
    }

    /// Keeps the bound of marks.
    fn forget(&mut self) {
        let tracks = self.connections.values().flat_map(|watched| &watched.meter.tracks);
        let mut total: usize = tracks.map(Track::len).sum();
        while total > MOST_MARKS {
            let tracks = self.connections.values_mut().flat_map(|watched| &mut watched.meter.tracks);
            let Some(longest) = tracks.max_by_key(|track| track.len()) else { return };
            let count = longest.len() / 4;
            longest.forget(count);
            total -= count;
        }
    }

    /// Appends what a page needs that opens now: the connections, and their marks.
    pub fn snapshot(&self, to: &mut Vec<u8>) {
        for watched in self.connections.values() {
            watched.opened(to);
            for (track, number) in watched.meter.tracks.iter().zip(0..) {
                channel::marks(track.all().map(|mark| mark.record(watched.id, number)), to);
            }
        }
    }

    /// Appends all delays of each connection. They replace those of a page that missed some.
    pub fn delays(&self, to: &mut Vec<u8>) {
        for watched in self.connections.values() {
            let delays = Delays { c: watched.id, delay: channel::Buckets(&watched.meter.delays) };
            channel::json(Kind::Delays, &delays, to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire::CloseReason;
    use tidewire_proto::endpoint::ConnectionHandle;

    fn happened(gatherer: &mut Gatherer, connection: u64, event: TraceEvent) -> Vec<u8> {
        let mut frames = Vec::new();
        let observed = Observed { at: Duration::ZERO, endpoint: 0, connection: ConnectionHandle(connection), event };
        gatherer.take(&observed, &mut frames);
        frames
    }

    fn lost(gatherer: &mut Gatherer, connection: u64) {
        happened(gatherer, connection, TraceEvent::PacketLost { number: 1, bytes: 1_200, at_own_rate: false });
    }

    #[test]
    fn connections_are_bounded_and_those_that_ended_make_room() {
        let mut gatherer = Gatherer::new(0, String::new(), Duration::ZERO);
        (0..100).for_each(|connection| lost(&mut gatherer, connection));
        assert_eq!(gatherer.connections.len(), MOST_CONNECTIONS);
        let told = happened(&mut gatherer, 5, TraceEvent::Closed(CloseReason::Idle));
        assert!(String::from_utf8_lossy(&told).contains("\"id\":5"), "{told:?}");
        lost(&mut gatherer, 100);
        let ids: Vec<u16> = gatherer.connections.values().map(|watched| watched.id).collect();
        assert!(ids.len() == MOST_CONNECTIONS && !ids.contains(&5) && ids.contains(&64), "{ids:?}");
    }

    #[test]
    fn a_step_comes_ten_times_a_second() {
        let mut gatherer = Gatherer::new(0, String::new(), Duration::ZERO);
        lost(&mut gatherer, 0);
        let (mut lasting, mut marks) = (Vec::new(), Vec::new());
        let mut steps = 0;
        for batch in 1..=50 {
            steps += u32::from(gatherer.step(Duration::from_millis(20 * batch), &mut lasting, &mut marks));
        }
        assert_eq!(steps, 10);
    }
}
